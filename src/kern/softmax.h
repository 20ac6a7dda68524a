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
#define QUERIES 96
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
#include "kern/quad.h"
#include "kern/sdpa_int.h"
#include "kern/tile.h"

static_assert(QUERIES <= ASP_SDPA_QUERIES && QUERIES >= ASP_SDPA_LEAST_QUERIES &&
                  KEYS <= ASP_SDPA_KEYS && ASP_SDPA_KEY_CHUNK % KEYS == 0 &&
                  ASP_SDPA_KEY_CHUNK % QUERIES == 0 && QUERIES % (2 * ASP_VF) == 0,
              "blocks fit their scratch, and no block of queries straddles two chunks of keys");

#define LOG2_E 1.44269504f
#define LN_2 0.693147180559945309417

// x[i] = 2^x[i] for x <= 128: m = round(x), 2^(x - m) by a polynomial, m added to the exponent.
// Exactly 0 from -127 down, so also of -infinity; relative error below 2e-7; NaN stays.  Up to
// ABREAST vectors side by side: one alone is a chain of operations that wait for each other.
#define ABREAST 4
ASP_INLINE void exp2_each(asp_vf *x, const int n)
{
    static const float factor[] = {0x1.3cea88p-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f,
                                   1.0f};
    const asp_vf magic = asp_vf_all(12582912.0f); // 1.5 * 2^23: the sum's low bits are the integer
    asp_vf shifted[ABREAST], p[ABREAST];
    ASP_UNROLL
    for (int i = 0; i < n; i++) x[i] = asp_vf_max(asp_vf_all(-127.0f), x[i]);
    ASP_UNROLL
    for (int i = 0; i < n; i++) shifted[i] = x[i] + magic;
    ASP_UNROLL
    for (int i = 0; i < n; i++) x[i] = x[i] - (shifted[i] - magic);
    ASP_UNROLL
    for (int i = 0; i < n; i++) p[i] = asp_vf_all(0x1.5bba14p-10f);
    ASP_UNROLL
    for (int k = 0; k < (int)ASP_COUNT_OF(factor); k++) {
        ASP_UNROLL
        for (int i = 0; i < n; i++) p[i] = asp_vf_fma(p[i], x[i], asp_vf_all(factor[k]));
    }
    ASP_UNROLL // the low bits of magic are 0, the others are shifted out
        for (int i = 0; i < n; i++) x[i] = (asp_vf)((asp_vi)p[i] + ((asp_vi)shifted[i] << 23));
}

ASP_INLINE asp_vf exp2_of(asp_vf x)
{
    exp2_each(&x, 1);
    return x;
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
    const int64_t whole = n / 4 * 4;
    for (int64_t q = 0; q < whole; q += 4)
        for (int64_t x = 0; x < width; x += 4)
            transpose_4x4(to + x * QUERIES + q, QUERIES, rows + q * width + x, width, factor);
    for (int64_t q = whole; q < n; q++)
        for (int64_t x = 0; x < width; x++) to[x * QUERIES + q] = factor * rows[q * width + x];
}

// Scores (n keys from k0 on, QUERIES from q0 on): what a causal query must not see is -infinity.
ASP_UNUSED static void mask_block(float *scores, int64_t q0, int64_t k0, int64_t n)
{
    for (int64_t j = asp_max(0, q0 + 1 - k0); j < n; j++)
        for (int64_t q = 0; q < asp_min(QUERIES, k0 + j - q0); q++)
            scores[j * QUERIES + q] = -__builtin_inff();
}

// ---- a running softmax -------------------------------------------------------------------------

// What a block of queries has so far.
typedef struct running {
    int64_t n_q, e;
    float *out;             // (QUERIES, E), not yet divided by sum
    float *reference, *sum; // QUERIES
} running;

// The maximum of a column of scores; four chains.
ASP_INLINE asp_vf column_max(const float *s, int64_t n)
{
    asp_vf m[4];
    ASP_UNROLL
    for (int i = 0; i < 4; i++) m[i] = asp_vf_all(-__builtin_inff());
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        ASP_UNROLL
        for (int i = 0; i < 4; i++) m[i] = asp_vf_max(m[i], asp_vf_load(s + (j + i) * QUERIES));
    }
    for (; j < n; j++) m[0] = asp_vf_max(m[0], asp_vf_load(s + j * QUERIES));
    return asp_vf_max(asp_vf_max(m[0], m[1]), asp_vf_max(m[2], m[3]));
}

// Moves the reference of the VF queries from c on to their new maximum and rescales what they have.
ASP_UNUSED static void move_reference(const running *b, int64_t c, asp_vf max)
{
    asp_vf old = asp_vf_load(b->reference + c), now = asp_vf_max(old, max);
    asp_vf factor = exp2_of(old - now);
    asp_vf_store(b->reference + c, now);
    asp_vf_store(b->sum + c, asp_vf_load(b->sum + c) * factor);
    for (int64_t q = c; q < asp_min(c + ASP_VF, b->n_q); q++)
        for (int64_t x = 0; x < b->e; x += ASP_VF) {
            float *out = b->out + q * b->e + x;
            asp_vf_store(out, asp_vf_load(out) * factor[q - c]);
        }
}

// ---- products of blocks ------------------------------------------------------------------------
//
// `ahead` is the first key of the block less its first query: key j + ahead is seen from query j
// on. Tiles of what no query sees are skipped, which changes no bit; NOT_CAUSAL sees all.

#define NOT_CAUSAL (-((int64_t)1 << 40))

// Columns of scores before the first tile that is needed of keys from `key` on.
ASP_INLINE int64_t unseen_queries(int64_t ahead, int64_t key)
{
    return asp_max(0, ahead + key) / (2 * ASP_VF) * (2 * ASP_VF);
}
// Of n keys, those of which tiles reach the vector of queries from `query` on.
ASP_INLINE int64_t seen_keys(int64_t ahead, int64_t query, int64_t n)
{
    const int64_t next_tile = query / (2 * ASP_VF) * (2 * ASP_VF) + 2 * ASP_VF;
    return asp_min(n, asp_round_up(asp_max(0, next_tile - ahead), TILE_ROWS));
}

// Scores (keys, queries) = A (keys, k) B (k, queries): keys row by row.  Columns outermost: what a
// tile reads of B stays in the first cache, all of B would fill it.
ASP_UNUSED static void multiply_scores(int64_t keys, int64_t queries, int64_t k, const float *a,
                                       const float *b, float *scores, int64_t ahead)
{
    for (int64_t j = 0; j < queries; j += 2 * ASP_VF) {
        const int64_t seen = seen_keys(ahead, j, keys);
        for (int64_t i = 0; i < seen; i += TILE_ROWS)
            tiles[asp_min(TILE_ROWS, seen - i) - 1][1][0](k, a + i * k, k, b + j, QUERIES,
                                                          scores + i * QUERIES + j, QUERIES, false);
    }
}

// C (keys, n) += scores (keys, queries) B (queries, n).
ASP_UNUSED static void multiply_by_scores(int64_t keys, int64_t queries, int64_t n,
                                          const float *scores, const float *b, float *c,
                                          int64_t ahead)
{
    for (int64_t i = 0; i < keys; i += TILE_ROWS) {
        const int64_t rows = asp_min(TILE_ROWS, keys - i), q = unseen_queries(ahead, i);
        for (int64_t j = 0; j < n; j += 2 * ASP_VF)
            tiles[rows - 1][n - j > ASP_VF][0](queries - q, scores + i * QUERIES + q, QUERIES,
                                               b + q * n + j, n, c + i * n + j, n, true);
    }
}

// C (queries, n) [+]= scores^T B (keys, n).  Columns outermost.
ASP_UNUSED static void multiply_by_transposed(int64_t queries, int64_t keys, int64_t n,
                                              const float *scores, const float *b, float *c,
                                              int64_t ahead, bool add)
{
    for (int64_t j = 0; j < n; j += 2 * ASP_VF)
        for (int64_t i = 0; i < queries; i += TILE_ROWS) {
            const int64_t rows = asp_min(TILE_ROWS, queries - i);
            const int64_t seen = asp_max(0, asp_min(keys, i + rows - ahead));
            tiles[rows - 1][n - j > ASP_VF][1](seen, scores + i, QUERIES, b + j, n, c + i * n + j,
                                               n, add);
        }
}
