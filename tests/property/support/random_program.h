// Random small transformer programs as graph text: a stream f64[B, S, D] through blocks drawn at
// random (norms, MLPs, attention of all kinds, what mixes tokens otherwise), then a loss drawn at
// random.  A program is the list of its blocks, each with a seed of its own, so that one can be
// left out without changing the others: that is how a failing one is shrunk.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

#define RANDOM_BLOCKS 6
#define RANDOM_IDS 4 // ways of what the first embedding reads

typedef struct random_program {
    int n;
    struct {
        int kind;
        uint64_t seed;
    } block[RANDOM_BLOCKS];
    int loss;
    uint64_t loss_seed;
    int64_t width; // D
    bool tied;
    int ids;
} random_program;

random_program random_program_draw(uint64_t seed);
void random_program_text(const random_program *p, asp_text *t);
const char *random_block_name(int kind);
int random_block_kinds(void);
