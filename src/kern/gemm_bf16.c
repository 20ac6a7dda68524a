// The built-in matrix product of bf16 where the processor sums products of pairs of them: the
// blocks and register tiles of gemm_isa.c, whose elements here are pairs of neighbours along k, of
// 32 bits too, so that a step of a tile does twice the work.  Neighbours: tile.h, gemm_block.h,
// gemm.c (who chooses it).  SPDX-License-Identifier: Apache-2.0
//
// Where rows run along k, pairs lie in memory as they are wanted; else two rows are interleaved. An
// odd k ends with a pair whose second half is 0.
#define TILE_ROWS 14
#define TILE_PAIRS 1
#include "kern/half_ops.h"
#include "kern/quad.h"
#include "kern/tile.h"

#define STRIP (2 * ASP_VF) // columns of a tile
#define KC ASP_GEMM_KC     // pairs
#define MC (ASP_GEMM_MC / TILE_ROWS * TILE_ROWS)
#define GROUP 4 // pairs of rows that are packed together, strip by strip
#include "kern/gemm_block.h"

// ---- rows along k ------------------------------------------------------------------------------

// A row of kc pairs, of which n halves are there.
static void pack_row(float *to, const uint16_t *from, int64_t kc, int64_t n)
{
    to[kc - 1] = 0;
    memcpy(to, from, (size_t)asp_min(n, 2 * kc) * sizeof *from);
}

static quad load_pairs(const uint16_t *from)
{
    quad v;
    memcpy(&v, from, sizeof v);
    return v;
}

// Four columns of a strip, each a row of B (n, k): transposed.
static void pack_four(float *to, const uint16_t *b, int64_t ldb, int64_t kc, int64_t n)
{
    const int64_t whole = n / 8 * 4;
    for (int64_t p = 0; p < whole; p += 4) {
        const uint16_t *from = b + 2 * p;
        transpose_quads(to + p * STRIP, STRIP, load_pairs(from), load_pairs(from + ldb),
                        load_pairs(from + 2 * ldb), load_pairs(from + 3 * ldb));
    }
    for (int64_t p = whole; p < kc; p++)
        for (int64_t c = 0; c < 4; c++)
            pack_row(to + p * STRIP + c, b + c * ldb + 2 * p, 1, n - 2 * p);
}

// B (n, k): to[strip][k][STRIP], the last strip filled up with zeros.
static void pack_b_columns(float *to, const uint16_t *b, int64_t ldb, int64_t kc, int64_t k,
                           int64_t n)
{
    for (int64_t j = 0; j < n; j += STRIP, to += kc * STRIP) {
        const int64_t part = asp_min(STRIP, n - j), whole = part / 4 * 4;
        if (part < STRIP) memset(to, 0, (size_t)(kc * STRIP) * sizeof *to);
        for (int64_t c = 0; c < whole; c += 4) pack_four(to + c, b + (j + c) * ldb, ldb, kc, k);
        for (int64_t c = whole; c < part; c++)
            for (int64_t p = 0; p < kc; p++)
                pack_row(to + p * STRIP + c, b + (j + c) * ldb + 2 * p, 1, k - 2 * p);
    }
}

// A (m, k): rows one after another.
static void pack_a_rows(float *to, const uint16_t *a, int64_t lda, int64_t kc, int64_t k, int64_t m)
{
    for (int64_t i = 0; i < m; i++, to += kc) pack_row(to, a + i * lda, kc, k);
}

// ---- rows across k -----------------------------------------------------------------------------

// The first n <= 16 elements of two rows as pairs; without a second row its halves are 0.
static void pack_pair(float *to, const uint16_t *row, const uint16_t *next, int64_t n)
{
    const __mmask16 there = (__mmask16)((1u << n) - 1);
    __m512i pairs = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row));
    if (next) {
        const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, next));
        pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(high, 16));
    }
    _mm512_mask_storeu_epi32(to, there, pairs);
}

// The k rows of n columns as strips of `width` columns, to[strip][pair][width].
static void pack_strips(float *to, const uint16_t *from, int64_t ld, int64_t kc, int64_t k,
                        int64_t n, int64_t width)
{
    for (int64_t p0 = 0; p0 < kc; p0 += GROUP)
        for (int64_t j = 0; j < n; j += width)
            for (int64_t p = p0; p < asp_min(kc, p0 + GROUP); p++) {
                const uint16_t *row = from + 2 * p * ld + j,
                               *next = 2 * p + 1 < k ? row + ld : NULL;
                float *pairs = to + j * kc + p * width;
                if (2 * (p + GROUP) + 1 < k) {
                    ASP_PREFETCH(row + 2 * GROUP * ld);
                    ASP_PREFETCH(row + (2 * GROUP + 1) * ld);
                }
                for (int64_t c = 0; c < asp_min(width, n - j); c += ASP_VF)
                    pack_pair(pairs + c, row + c, next ? next + c : NULL,
                              asp_min(ASP_VF, asp_min(width, n - j) - c));
            }
}

// B (k, n).
static void pack_b_rows(float *to, const uint16_t *b, int64_t ldb, int64_t kc, int64_t k, int64_t n)
{
    const int64_t whole = n / STRIP * STRIP;
    if (whole < n) memset(to + whole * kc, 0, (size_t)(kc * STRIP) * sizeof *to);
    pack_strips(to, b, ldb, kc, k, n, STRIP);
}

// ---- the product -------------------------------------------------------------------------------

// Of a slice of k halves, in kc pairs.
static void pack_b(const asp_gemm_chunk *g, float *to, int64_t at, int64_t kc, int64_t k)
{
    if (g->op == ASP_OP_gemm_nt)
        pack_b_columns(to, g->b.half + at, g->ldb, kc, k, g->n);
    else
        pack_b_rows(to, g->b.half + at * g->ldb, g->ldb, kc, k, g->n);
}

static void pack_a(const asp_gemm_chunk *g, float *to, int64_t i, int64_t at, int64_t kc, int64_t k,
                   int64_t m)
{
    if (g->op == ASP_OP_gemm_tn)
        pack_strips(to, g->a.half + at * g->lda + i, g->lda, kc, k, m, TILE_ROWS);
    else
        pack_a_rows(to, g->a.half + i * g->lda + at, g->lda, kc, k, m);
}

// C is f32: slice by slice, what is packed of B serves all of A.
static void sum_slices(const asp_gemm_chunk *g, float *packed_a, float *packed_b)
{
    for (int64_t at = 0; at < g->k; at += 2 * KC) {
        const int64_t k = asp_min(2 * KC, g->k - at), kc = asp_ceil_div(k, 2);
        pack_b(g, packed_b, at, kc, k);
        for (int64_t i = 0; i < g->m; i += MC) {
            const int64_t m = asp_min(MC, g->m - i);
            pack_a(g, packed_a, i, at, kc, k, m);
            multiply_block(g, g->op == ASP_OP_gemm_tn, m, packed_a, packed_b, g->c + i * g->ldc, kc,
                           g->add || at > 0);
        }
    }
}

// C is bf16: block by block of A over all of B, so that the sums of a block stay in the cache.
static void sum_blocks(const asp_gemm_chunk *g, float *packed_a, float *packed_b)
{
    const int64_t columns = asp_round_up(g->n, STRIP);
    for (int64_t at = 0; at < g->k; at += 2 * KC) {
        const int64_t k = asp_min(2 * KC, g->k - at);
        pack_b(g, packed_b + at / 2 * columns, at, asp_ceil_div(k, 2), k);
    }
    for (int64_t i = 0; i < g->m; i += MC) {
        const int64_t m = asp_min(MC, g->m - i);
        for (int64_t at = 0; at < g->k; at += 2 * KC) {
            const int64_t k = asp_min(2 * KC, g->k - at), kc = asp_ceil_div(k, 2);
            pack_a(g, packed_a, i, at, kc, k, m);
            multiply_block(g, g->op == ASP_OP_gemm_tn, m, packed_a, packed_b + at / 2 * columns,
                           g->c, kc, at > 0);
        }
        for (int64_t r = 0; r < m; r++)
            asp_half_ops_avx512.narrow(g->c + r * g->ldc, g->n, g->half_c + (i + r) * g->ld_half);
    }
}

void ASP_ISA_NAME(asp_gemm_chunk)(const asp_gemm_chunk *g)
{
    float *packed_a = g->scratch, *packed_b = packed_a + KC * ASP_GEMM_MC;
    (g->half_c ? sum_blocks : sum_slices)(g, packed_a, packed_b);
}
