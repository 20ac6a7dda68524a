// When a rank does what: the time of every step of its program on every thread, for profiles and
// for chrome://tracing.  Neighbours: executor.c (who measures), train/loop.c (who asks).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run/run_int.h"

// Seconds of asp_seconds; both 0: nothing ran.
typedef struct asp_span {
    double begin, end;
} asp_span;

#define ASP_TRACE_PHASES 8

// Of one pass over the program; owned by the rank.
typedef struct asp_trace {
    int n_threads;
    asp_span *steps;   // by step: from outside
    asp_span *threads; // by step, then thread: inside the kernel
    double *sums;      // seconds over the chunks of a loop: by step, then by step and thread
    size_t n_steps;
    struct {
        const char *name; // borrowed
        asp_span span;
    } phases[ASP_TRACE_PHASES]; // beside the program: the optimizer
    int n_phases;
} asp_trace;

asp_status asp_trace_create(asp_ctx *cx, const asp_plan *plan, int n_threads, asp_trace **out);
void asp_trace_destroy(asp_trace *t); // NULL is allowed
// Of a step, by thread; NULL where t is NULL.
static inline asp_span *asp_trace_threads(const asp_trace *t, uint32_t step)
{
    return t ? t->threads + (size_t)step * (size_t)t->n_threads : NULL;
}
// A loop's steps run many times: each is told as one span as long as its chunks together, one step
// behind another from the loop's begin.
void asp_trace_add_chunk(asp_trace *t, const asp_loop *l, int64_t trip);
void asp_trace_end_loop(asp_trace *t, const asp_loop *l, double begin);
// By op: calls, ms, share, GFLOP/s; then where the threads' time went.
void asp_trace_print(const asp_trace *t, const asp_plan *plan, asp_text *out);
// Events of the Trace Event Format, each with a comma and a line of its own; pid is the rank.
void asp_trace_events(const asp_trace *t, const asp_plan *plan, int rank, asp_text *out);
