// Training steps of a Llama as an expert writes them by hand with the C API: the yardstick of what
// the compiler makes of the program for one device.  Neighbours: ../baselines.c (times),
// tests/parity/baselines_test.c (the lists of kernels and exchanges).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <autosp.h>

typedef enum baseline_kind {
    BASELINE_SINGLE,  // for one device: what the compiler is given
    BASELINE_ULYSSES, // heads are exchanged around attention
    BASELINE_RING,    // keys and values go round, tokens in zig-zag order
    BASELINE_DATA     // whole sequences on every rank, B / ranks of them
} baseline_kind;

typedef struct baseline_shape {
    int layers, heads, kv_heads, width, ffn, vocab; // hidden: heads * width
    int window;                                     // keys that a query sees; 0: all before it
} baseline_shape;

// A graph for `ranks` ranks, whose tokens (of DATA: sequences) they divide.  Compile it with
// sp = none; SINGLE with any.  NULL after a failure, which the context tells.
asp_model *baseline_llama(asp_ctx *cx, const baseline_shape *shape, baseline_kind kind, int ranks);
