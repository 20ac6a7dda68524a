// Between gemm.c and its providers.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/gemm.h"
#include "kern/kern_int.h"

#define ASP_GEMM_KC 256 // slice of k; C is added to once a slice, so the bits depend on it
#define ASP_GEMM_MC 112 // rows of A packed at a time, at most: with a strip of B they stay in cache
#define ASP_GEMM_PAD 64 // packed operands are padded to a multiple of this many rows or columns

typedef void asp_gemm_chunk_fn(const asp_gemm_chunk *g);
asp_gemm_chunk_fn asp_gemm_chunk_generic, asp_gemm_chunk_avx2, asp_gemm_chunk_avx512;
asp_gemm_chunk_fn asp_gemm_chunk_avx512_bf16; // of bf16 alone, where asp_isa_has_bf16

// How C is cut into chunks: near-equal ones of at most most_rows x most_columns, so many that
// multiple_of threads are equally busy where chunks stay large enough for it; rows in multiples of
// step_rows, columns of 32.
typedef struct asp_gemm_grid_limits {
    int64_t most_rows, most_columns, multiple_of, step_rows;
} asp_gemm_grid_limits;
void asp_gemm_grid(asp_gemm_plan *plan, asp_gemm_grid_limits limits);

extern const asp_gemm_provider asp_gemm_onednn; // in builds with oneDNN
