// A recomputation program as JSON, so that a case is a file (docs/memory.md has the format).
// Neighbours: remat.h (what it describes), recompute.c (autosp.h's calls).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "flow/remat.h"

// What a machine does in a second.
typedef struct asp_remat_rates {
    double gemm, attention; // FLOPs
    double memory, link;    // bytes moved, bytes received
} asp_remat_rates;

// Ops whose time is below 0 get one; 0 where no rates are known (NULL).  ops: those of the program.
void asp_remat_fill_times(const asp_remat_program *p, asp_remat_op *ops,
                          const asp_remat_rates *rates);

typedef struct asp_remat_file {
    asp_remat_program program;
    int64_t *keep, *redo; // by value, prices of a bare cut; bytes and time where none are given
    const char *policy;   // what the file asks for, or NULL
    int64_t budget;       // 0: none given
    double fraction;      // below 0: none given
    bool fused, sideways;
} asp_remat_file;

// Everything lies on the arena.  Fails naming file and place, or the node; sizes are bounded before
// anything is allocated.
asp_status asp_remat_parse(asp_ctx *cx, asp_arena *a, const char *file, const char *text,
                           size_t bytes, asp_remat_file *out_file);
