// A rank's file of values that are away between forward and backward (--offload), and the thread
// that writes and reads it while the rank computes.  The file has no name: the system takes it back
// however the process ends.  Neighbours: offload.c (plans what goes when), executor.c.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

typedef struct asp_spill asp_spill;

// Of `bytes`, taken now: a folder without room is refused here, not in the middle of a step.
asp_status asp_spill_create(asp_ctx *cx, const char *folder, int64_t bytes, asp_spill **out_spill);
void asp_spill_destroy(asp_spill *s); // waits for what is under way; NULL is allowed

#define ASP_SPILL_MOST 4 // begun and not awaited
// Begins to write memory to the file, or to read it from there.  Memory stays as it is until it is
// awaited.
void asp_spill_begin(asp_spill *s, bool writes, void *memory, int64_t at, int64_t bytes);
// Ends the oldest that has begun.  A failure is told once, and everything begun later fails too.
asp_status asp_spill_await(asp_spill *s, asp_ctx *cx);
void asp_spill_cancel(asp_spill *s);         // waits for all that has begun, whatever came of it
int64_t asp_spill_moved(const asp_spill *s); // bytes written and read that have been awaited
