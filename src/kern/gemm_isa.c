// The built-in matrix product of one instruction set level: packs a slice of B, then block by block
// of A, and multiplies in register tiles (Goto and van de Geijn 2008).  Neighbours: tile.h, gemm.c
// (who cuts C into chunks).  SPDX-License-Identifier: Apache-2.0
//
// A strip of B lies in the first cache and a block of A in the second while their tiles are
// computed.  What is packed comes from memory, in runs too short for the processor to foresee: it
// is asked for some rows ahead.
#if defined(__AVX512F__)
#define TILE_ROWS 14
#elif defined(__AVX2__)
#define TILE_ROWS 6
#else
#define TILE_ROWS 4
#endif
#include "kern/gemm_int.h"
#include "kern/quad.h"
#include "kern/tile.h"

#define STRIP (2 * ASP_VF) // columns of a tile
#define KC ASP_GEMM_KC
#define MC (ASP_GEMM_MC / TILE_ROWS * TILE_ROWS)
#define GROUP 8      // rows that are packed together, strip by strip
#define ROWS_AHEAD 4 // where whole rows are copied

// Strips of STRIP columns, k by k: to[strip][k][STRIP], the last strip filled up with zeros.
// B (k, n): rows are copied.
static void pack_b_rows(float *to, const float *b, int64_t ldb, int64_t kc, int64_t n)
{
    for (int64_t p0 = 0; p0 < kc; p0 += GROUP)
        for (int64_t j = 0; j < n; j += STRIP) {
            const int64_t part = asp_min(STRIP, n - j);
            float *row = to + j * kc + p0 * STRIP;
            for (int64_t p = p0; p < asp_min(kc, p0 + GROUP); p++, row += STRIP) {
                const float *from = b + p * ldb + j;
                if (part == STRIP) {
                    if (p + GROUP < kc) ASP_PREFETCH(from + GROUP * ldb);
                    asp_vf_store(row, asp_vf_load(from));
                    asp_vf_store(row + ASP_VF, asp_vf_load(from + ASP_VF));
                    continue;
                }
                for (int64_t c = 0; c < STRIP; c++) row[c] = c < part ? from[c] : 0.0f;
            }
        }
}

// B (n, k): columns of a strip are transposed.
static void pack_b_columns(float *to, const float *b, int64_t ldb, int64_t kc, int64_t n)
{
    for (int64_t j = 0; j < n; j += STRIP, to += kc * STRIP) {
        const int64_t part = asp_min(STRIP, n - j), whole = part / 4 * 4, k4 = kc / 4 * 4;
        for (int64_t c = 0; c < whole; c += 4) {
            const float *from = b + (j + c) * ldb;
            for (int64_t p = 0; p < k4; p += 4)
                transpose_4x4(to + p * STRIP + c, STRIP, from + p, ldb, 1.0f);
            for (int64_t p = k4; p < kc; p++)
                for (int i = 0; i < 4; i++) to[p * STRIP + c + i] = from[i * ldb + p];
        }
        for (int64_t c = whole; c < STRIP; c++)
            for (int64_t p = 0; p < kc; p++)
                to[p * STRIP + c] = c < part ? b[(j + c) * ldb + p] : 0.0f;
    }
}

// A (k, m): strips of TILE_ROWS rows, k by k; the last strip is as narrow as it is.
static void pack_a_columns(float *to, const float *a, int64_t lda, int64_t kc, int64_t m)
{
    for (int64_t p0 = 0; p0 < kc; p0 += GROUP)
        for (int64_t i = 0; i < m; i += TILE_ROWS) {
            const int64_t part = asp_min(TILE_ROWS, m - i);
            float *row = to + i * kc + p0 * TILE_ROWS;
            for (int64_t p = p0; p < asp_min(kc, p0 + GROUP); p++, row += TILE_ROWS) {
                const float *from = a + p * lda + i;
                if (p + GROUP < kc) ASP_PREFETCH(from + GROUP * lda);
                if (part == TILE_ROWS)
                    memcpy(row, from, TILE_ROWS * sizeof *row);
                else
                    for (int64_t r = 0; r < part; r++) row[r] = from[r];
            }
        }
}

// A (m, k): rows of a slice, one after another.
static void pack_a_rows(float *to, const float *a, int64_t lda, int64_t kc, int64_t m)
{
    enum { LINE = ASP_CACHE_LINE / sizeof(float) };
    for (int64_t i = 0; i < m; i++, to += kc, a += lda) {
        int64_t p = 0;
        for (; p + LINE <= kc; p += LINE) {
            if (i + ROWS_AHEAD < m) ASP_PREFETCH(a + ROWS_AHEAD * lda + p);
            memcpy(to + p, a + p, ASP_CACHE_LINE);
        }
        for (; p < kc; p++) to[p] = a[p];
    }
}

// One tile at the right edge, narrower than its vectors: through a buffer.
static void edge_tile(tile_fn *tile, int64_t rows, int64_t cols, int64_t kc, const float *a,
                      int64_t lda, const float *b, float *c, int64_t ldc, bool add)
{
    float buffer[TILE_ROWS * STRIP] __attribute__((aligned(64)));
    tile(kc, a, lda, b, STRIP, buffer, STRIP, false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float *to = &c[i * ldc + j];
            *to = add ? *to + buffer[i * STRIP + j] : buffer[i * STRIP + j];
        }
}

// C (m x n) [+]= A B for one slice of k and a block of m rows; both packed, A by_k or row by row.
static void multiply_block(const asp_gemm_chunk *g, bool by_k, int64_t m, const float *a,
                           const float *b, float *c, int64_t kc, bool add)
{
    const int64_t lda = by_k ? TILE_ROWS : kc;
    for (int64_t j = 0; j < g->n; j += STRIP, b += kc * STRIP) {
        const int64_t cols = asp_min(STRIP, g->n - j);
        const int nv = cols > ASP_VF ? 2 : 1;
        const bool whole = cols % ASP_VF == 0;
        for (int64_t i = 0; i < m; i += TILE_ROWS) {
            const int64_t rows = asp_min(TILE_ROWS, m - i);
            tile_fn *tile = tiles[rows - 1][nv - 1][by_k];
            float *to = c + i * g->ldc + j;
            for (int64_t r = 0; r < rows; r++) ASP_PREFETCH(to + r * g->ldc);
            if (whole)
                tile(kc, a + i * kc, lda, b, STRIP, to, g->ldc, add);
            else
                edge_tile(tile, rows, cols, kc, a + i * kc, lda, b, to, g->ldc, add);
        }
    }
}

void ASP_ISA_NAME(asp_gemm_chunk)(const asp_gemm_chunk *g)
{
    const bool by_k = g->op == ASP_OP_gemm_tn;
    float *packed_a = g->scratch, *packed_b = packed_a + KC * ASP_GEMM_MC;
    for (int64_t p = 0; p < g->k; p += KC) {
        const int64_t kc = asp_min(KC, g->k - p);
        if (g->op == ASP_OP_gemm_nt)
            pack_b_columns(packed_b, g->b + p, g->ldb, kc, g->n);
        else
            pack_b_rows(packed_b, g->b + p * g->ldb, g->ldb, kc, g->n);
        for (int64_t i = 0; i < g->m; i += MC) {
            const int64_t m = asp_min(MC, g->m - i);
            if (by_k)
                pack_a_columns(packed_a, g->a + p * g->lda + i, g->lda, kc, m);
            else
                pack_a_rows(packed_a, g->a + i * g->lda + p, g->lda, kc, m);
            multiply_block(g, by_k, m, packed_a, packed_b, g->c + i * g->ldc, kc, g->add || p > 0);
        }
    }
}
