// Shared by the attention kernels of a level: block sizes, exp2, masks, products of blocks.
// Neighbours: sdpa_isa.c, sdpa_grad_isa.c, tile.h.  SPDX-License-Identifier: Apache-2.0
#pragma once

// A tile is TILE_ROWS x 2 vectors; QUERIES and KEYS are multiples of both sides.
#if defined(__AVX512F__)
#define TILE_ROWS 8
#define QUERIES 64
#define KEYS 128
#define SDPA_BELOW asp_sdpa_f32_avx2
#define SDPA_GRAD_BELOW asp_sdpa_grad_f32_avx2
#elif defined(__AVX2__)
#define TILE_ROWS 6
#define QUERIES 48
#define KEYS 96
#define SDPA_BELOW asp_sdpa_f32_generic
#define SDPA_GRAD_BELOW asp_sdpa_grad_f32_generic
#else
#define TILE_ROWS 4
#define QUERIES 32
#define KEYS 64
#define SDPA_BELOW asp_sdpa_ref
#define SDPA_GRAD_BELOW asp_sdpa_grad_ref
#endif
#include "kern/sdpa_int.h"
#include "kern/tile.h"

static_assert(QUERIES <= ASP_SDPA_QUERIES && QUERIES >= ASP_SDPA_LEAST_QUERIES &&
                  KEYS <= ASP_SDPA_KEYS && ASP_SDPA_KEY_CHUNK % KEYS == 0 &&
                  ASP_SDPA_KEY_CHUNK % QUERIES == 0 && QUERIES % (2 * ASP_VF) == 0,
              "blocks fit their scratch, and no block of queries straddles two chunks of keys");

#define LOG2_E 1.44269504f
#define LN_2 0.693147180559945309417

// 2^x for x <= 128: n = round(x), 2^(x - n) by a polynomial, n added to the exponent.  Exactly 0
// from -127 down, so also of -infinity; relative error below 2e-7; NaN stays.
ASP_INLINE asp_vf exp2_of(asp_vf x)
{
    const asp_vf magic = asp_vf_all(12582912.0f); // 1.5 * 2^23: the sum's low bits are the integer
    x = asp_vf_max(asp_vf_all(-127.0f), x);
    asp_vf shifted = x + magic, f = x - (shifted - magic);
    asp_vf p = asp_vf_fma(asp_vf_all(0x1.5bba14p-10f), f, asp_vf_all(0x1.3cea88p-7f));
    p = asp_vf_fma(p, f, asp_vf_all(0x1.c6b752p-5f));
    p = asp_vf_fma(p, f, asp_vf_all(0x1.ebf9bcp-3f));
    p = asp_vf_fma(p, f, asp_vf_all(0x1.62e42ap-1f));
    p = asp_vf_fma(p, f, asp_vf_all(1.0f));
    return (asp_vf)((asp_vi)p + (((asp_vi)shifted - (asp_vi)magic) << 23));
}

ASP_INLINE bool any_above(asp_vf a, asp_vf b) // in some place a > b
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
#else
    asp_vi m = a > b;
    int32_t any = 0;
    for (int i = 0; i < ASP_VF; i++) any |= m[i];
    return any != 0;
#endif
}

// Row of k or v (in rows) that query head `head` (b * N + h) reads first.
ASP_INLINE int64_t kv_row(const asp_sdpa_sizes *z, int64_t head)
{
    const int64_t h = head % z->heads;
    return (head / z->heads * z->kv_heads + h / z->group) * z->n_k;
}

// to (width, QUERIES) = factor * rows^T; rows (n, width), missing columns are 0.
ASP_UNUSED static void load_transposed(float *to, const float *rows, int64_t n, int64_t width,
                                       float factor)
{
    if (n < QUERIES) memset(to, 0, (size_t)(width * QUERIES) * sizeof(float));
    for (int64_t x = 0; x < width; x += 4)
        for (int64_t q = 0; q < n; q++)
            for (int64_t i = x; i < x + 4; i++) to[i * QUERIES + q] = factor * rows[q * width + i];
}

// Scores (n keys from k0 on, QUERIES from q0 on): what a causal query must not see is -infinity.
ASP_UNUSED static void mask_block(float *scores, int64_t q0, int64_t k0, int64_t n)
{
    for (int64_t j = asp_max(0, q0 + 1 - k0); j < n; j++)
        for (int64_t q = 0; q < asp_min(QUERIES, k0 + j - q0); q++)
            scores[j * QUERIES + q] = -__builtin_inff();
}

// C (m, n) [+]= A (m, k) B (k, n), A row by row; n a multiple of the vector.  Row tiles outermost:
// B is small.
ASP_UNUSED static void multiply_rows(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                                     const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    for (int64_t i = 0; i < m; i += TILE_ROWS) {
        const int64_t rows = asp_min(TILE_ROWS, m - i);
        for (int64_t j = 0; j < n; j += 2 * ASP_VF)
            tiles[rows - 1][n - j > ASP_VF][0](k, a + i * lda, lda, b + j, ldb, c + i * ldc + j,
                                               ldc, add);
    }
}

// The same with A (k, m); column tiles outermost: A is small.
ASP_UNUSED static void multiply_columns(int64_t m, int64_t n, int64_t k, const float *a,
                                        int64_t lda, const float *b, int64_t ldb, float *c,
                                        int64_t ldc, bool add)
{
    for (int64_t j = 0; j < n; j += 2 * ASP_VF)
        for (int64_t i = 0; i < m; i += TILE_ROWS) {
            const int64_t rows = asp_min(TILE_ROWS, m - i);
            tiles[rows - 1][n - j > ASP_VF][1](k, a + i, lda, b + j, ldb, c + i * ldc + j, ldc,
                                               add);
        }
}
