// Between gemm.c and its providers.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/gemm.h"
#include "kern/kern_int.h"

#define ASP_GEMM_KC 256 // slice of k; C is added to once a slice, so the bits depend on it
#define ASP_GEMM_MC 112 // rows of A packed at a time, at most: with a strip of B they stay in cache
#define ASP_GEMM_PAD 64 // packed operands are padded to a multiple of this many rows or columns

typedef void asp_gemm_chunk_fn(const asp_gemm_chunk *g);
asp_gemm_chunk_fn asp_gemm_chunk_generic, asp_gemm_chunk_avx2, asp_gemm_chunk_avx512;

// Cuts m and n into near-equal chunks of at most 512 x 512, further while there are fewer than
// `enough` and packing is not yet felt; m to multiples of step_m, n to multiples of 32.
void asp_gemm_grid(asp_gemm_plan *plan, int64_t enough, int64_t step_m);

extern const asp_gemm_provider asp_gemm_onednn; // in builds with oneDNN
