// What the blocks of random programs share: the text under way, drawing, and pieces of blocks.
// Neighbours: random_program.c (the program, blocks that are no attention), random_attention.c.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

typedef struct gen {
    asp_text *t;
    uint64_t state;
    int i;     // of the block
    int64_t d; // width of the stream
    int site;
} gen;

typedef struct heads {
    int n, k, w; // query heads, key/value heads, width
} heads;

#define PUT(...) asp_put(g->t, __VA_ARGS__)
#define I g->i
#define D ((long long)g->d)

// Each block reads the stream %h<i> and defines %h<i+1>.
typedef void block_fn(gen *g);

int pick(gen *g, int n); // 0 .. n - 1
bool coin(gen *g);
void param_sq(gen *g, const char *name, long long o, long long i); // %<name><i>
void norm(gen *g);     // %n<i> = a norm of %h<i>, or itself
void residual(gen *g); // %h<i+1> = %h<i> + %r<i>, perhaps through dropout

block_fn attention, manual, linear_attention, folded_heads, cross_attention, snippet, computed_mask,
    loss_snippet;
