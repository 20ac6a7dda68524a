// Register tiles of matrix products, shared by the GEMM and attention kernels of a level.
// Neighbours: vec.h (vector types), gemm_isa.c and sdpa_isa.c (who include it after defining
// TILE_ROWS).  SPDX-License-Identifier: Apache-2.0
//
// A tile computes C (rows x nv vectors) = [C +] A (rows x k) B (k x nv vectors) with all of C in
// registers.  B and C have unit column stride.  A stands row by row (a[i * lda + k]) or k by k
// (a[k * lda + i]).  Each element of C is one chain of fma over ascending k from 0, then one add to
// the old C: the bits do not depend on the tile's shape.  Tiles are out of line on purpose: in one
// function with other vector code gcc 12 spills the accumulators.
#ifndef TILE_ROWS
#error "a template: define TILE_ROWS and TILE_EACH first"
#endif

#include "kern/fma.h"

#ifdef TILE_PAIRS
#define TILE_SPREAD asp_vf_all_bits
#define TILE_SUM asp_vf_sum_pairs
#else
#define TILE_SPREAD(p) asp_vf_all(*(p))
#define TILE_SUM asp_vf_fma
#endif

typedef void tile_fn(int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                     int64_t ldc, bool add);

// acc += one column of A times one row of B.
ASP_INLINE void tile_step(const int rows, const int nv, const bool by_k, asp_vf (*acc)[2],
                          const float *a, int64_t lda, const float *b)
{
    asp_vf vb[2] = {{0}, {0}};
    ASP_UNROLL
    for (int j = 0; j < nv; j++) vb[j] = asp_vf_load(b + j * ASP_VF);
    ASP_UNROLL
    for (int i = 0; i < rows; i++) {
        asp_vf va = TILE_SPREAD(by_k ? a + i : a + i * lda);
        ASP_UNROLL
        for (int j = 0; j < nv; j++) acc[i][j] = TILE_SUM(va, vb[j], acc[i][j]);
    }
}

// Four steps a round where k allows: attention's tiles are short, and the processor foresees the
// end of a short loop.
ASP_INLINE void tile_body(const int rows, const int nv, const bool by_k, int64_t k, const float *a,
                          int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    asp_vf acc[TILE_ROWS][2];
    ASP_UNROLL
    for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = (asp_vf){0};
    if (k % 4 == 0)
        for (int64_t p = 0; p < k; p += 4) {
            ASP_UNROLL
            for (int u = 0; u < 4; u++, a += by_k ? lda : 1, b += ldb)
                tile_step(rows, nv, by_k, acc, a, lda, b);
        }
    else
        for (int64_t p = 0; p < k; p++, a += by_k ? lda : 1, b += ldb)
            tile_step(rows, nv, by_k, acc, a, lda, b);
    ASP_UNROLL
    for (int i = 0; i < rows; i++) {
        ASP_UNROLL
        for (int j = 0; j < nv; j++) {
            float *to = c + i * ldc + j * ASP_VF;
            asp_vf_store(to, add ? asp_vf_load(to) + acc[i][j] : acc[i][j]);
        }
    }
}

#define TILE(rows, nv, by_k)                                                                     \
    static ASP_NOINLINE void tile_##rows##_##nv##_##by_k(int64_t k, const float *a, int64_t lda, \
                                                         const float *b, int64_t ldb, float *c,  \
                                                         int64_t ldc, bool add)                  \
    {                                                                                            \
        tile_body(rows, nv, by_k, k, a, lda, b, ldb, c, ldc, add);                               \
    }
#define TILE_ALL(rows) TILE(rows, 1, 0) TILE(rows, 2, 0) TILE(rows, 1, 1) TILE(rows, 2, 1)
#define TILE_ROW(rows)                          \
    {                                           \
        {tile_##rows##_1_0, tile_##rows##_1_1}, \
        {tile_##rows##_2_0, tile_##rows##_2_1}, \
    },

#if TILE_ROWS == 4
#define TILE_EACH(X) X(1) X(2) X(3) X(4)
#elif TILE_ROWS == 6
#define TILE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#elif TILE_ROWS == 8
#define TILE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#elif TILE_ROWS == 14
#define TILE_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#endif
TILE_EACH(TILE_ALL)
// tiles[rows - 1][nv - 1][by_k]
static tile_fn *const tiles[TILE_ROWS][2][2] = {TILE_EACH(TILE_ROW)};
