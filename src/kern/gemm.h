// f32 and bf16 matrix products through one of several providers.  Neighbours: gemm.c (grid of
// chunks), gemm_isa.c (built in), gemm_dnnl.c (oneDNN), kern.def (rows).  SPDX-License-Identifier:
// Apache-2.0
//
// C (m x n) = sum over k, everything contiguous and row-major:
//   gemm_nt   A (m, k)   B (n, k)     y[.., o] = x[.., i] w[o, i]
//   gemm_nn   A (m, k)   B (k, n)     y[.., i] = x[.., o] w[o, i]
//   gemm_tn   A (k, m)   B (k, n)     y[o, i] = sum over rows of x[.., o] z[.., i]
//   bmm       any of the three, once for each index of the leading dims, which broadcast
// Of bf16 the products are exact in f32 and summed there; C is rounded once, but for gemm_tn, whose
// C is f32.
// C is cut into a grid of chunks; one thread computes a chunk by one call of the provider.  The
// bits do not depend on the number of threads: a provider whose bits depend on the size of a chunk
// cuts by the shape only.
#pragma once

#include "kern/kern.h"

typedef struct asp_gemm_provider asp_gemm_provider;

// Immutable once prepared; owns nothing.
typedef struct asp_gemm_plan {
    const asp_gemm_provider *provider; // static
    asp_op op;
    asp_isa isa;
    int n_threads; // that will share the chunks
    int64_t m, n, k;
    bool half, half_c; // A and B are bf16; C is
    bool pairs;        // which the processor multiplies pair by pair
    int64_t chunk_m, chunk_n;
    int64_t thread_bytes;          // scratch of one thread, a multiple of 64
    int64_t library_bytes;         // that the provider takes of its own, for a thread
    int64_t sums_rows, sums_bytes; // of these, in front: rows of a chunk in f32, where C is bf16
} asp_gemm_plan;

typedef union asp_gemm_operand {
    const float *f32;
    const uint16_t *half; // bf16
} asp_gemm_operand;

// One chunk: C (m x n) with leading dimensions; a, b, c point at the chunk's first elements.
typedef struct asp_gemm_chunk {
    asp_op op;
    int64_t m, n, k;
    bool half; // a and b are bf16
    asp_gemm_operand a, b;
    float *c;
    uint16_t
        *half_c; // NULL, or of products by pairs: where C belongs, whose sums of a block c takes
    int64_t lda, ldb, ldc, ld_half;
    bool add;      // to what C holds
    void *scratch; // the plan's thread_bytes, 64-byte aligned
} asp_gemm_chunk;

struct asp_gemm_provider {
    const char *name;
    // Chunk sizes and scratch for a shape; sets plan->chunk_m, chunk_n and thread_bytes.
    void (*plan)(asp_gemm_plan *plan);
    bool takes_half; // else the built-in one serves for bf16
    void (*run)(const asp_gemm_plan *plan, const asp_gemm_chunk *chunk);
};

// Names of the providers compiled in; NULL past the last.
const char *asp_gemm_provider_name(int i);

// Plans a call of op with these shapes on a provider: a name, or NULL for the fastest at the best
// level.  The grid suits n_threads; any other number gives the same bits.  Fails when there is no
// such provider, naming those that are.
asp_status asp_gemm_prepare(asp_ctx *cx, const char *provider, asp_op op, const asp_kcall *call,
                            int n_threads, asp_gemm_plan *out_plan);
int64_t asp_gemm_work_bytes(const asp_gemm_plan *plan, int n_threads);

// The kernels of kern.def: k->plan is an asp_gemm_plan, or NULL for the built-in provider at the
// best level.
asp_kernel asp_gemm_nt_f32, asp_gemm_nn_f32, asp_gemm_tn_f32, asp_bmm_f32; // bf16 as well
