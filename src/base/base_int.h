// Shared inside src/base only.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

// arena.c, for asp_guard: frees the listed blocks of arenas from this number on; empties the list.
void asp_blocks_free(asp_ctx *cx, uint64_t first_arena);
void asp_blocks_forget(asp_ctx *cx);
