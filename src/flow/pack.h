// Static arena layout: blocks with lifetimes get offsets so that blocks alive together never
// overlap.
// Neighbours: run/memplan.c (who asks).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

#define ASP_PACK_ALIGN 64

typedef struct asp_block_life {
    int64_t bytes;        // > 0; rounded up to ASP_PACK_ALIGN inside
    uint32_t first, last; // steps at which it is alive, both included
    int64_t offset;       // result
} asp_block_life;

typedef struct asp_pack_result {
    int64_t height;   // bytes of the arena
    int64_t max_live; // lower bound: the most bytes alive at one step, rounded blocks
    uint32_t at_step; // the first step at which max_live is reached
} asp_pack_result;

// Fills the offsets of n blocks that live within n_steps steps.  Deterministic.  Scratch comes from
// the arena.
asp_status asp_pack(asp_arena *scratch, asp_block_life *blocks, uint32_t n, uint32_t n_steps,
                    asp_pack_result *out_result);
