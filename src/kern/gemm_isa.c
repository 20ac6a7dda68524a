// The built-in matrix product of one instruction set level: packs B (and A of gemm_tn) in cache
// blocks, multiplies in register tiles.  Neighbours: tile.h, gemm.c (who cuts C into chunks).
// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#define TILE_ROWS 14
#elif defined(__AVX2__)
#define TILE_ROWS 6
#else
#define TILE_ROWS 4
#endif
#include "kern/gemm_int.h"
#include "kern/tile.h"

#define STRIP (2 * ASP_VF) // columns of a tile
#define KC ASP_GEMM_KC

// Strips of STRIP columns, k by k: to[strip][k][STRIP], the last strip filled up with zeros.
// B (k, n): rows are copied.
static void pack_b_rows(float *to, const float *b, int64_t ldb, int64_t kc, int64_t n)
{
    for (int64_t j = 0; j < n; j += STRIP) {
        const int64_t part = asp_min(STRIP, n - j);
        for (int64_t p = 0; p < kc; p++, to += STRIP) {
            const float *from = b + p * ldb + j;
            if (part == STRIP) {
                asp_vf_store(to, asp_vf_load(from));
                asp_vf_store(to + ASP_VF, asp_vf_load(from + ASP_VF));
                continue;
            }
            for (int64_t c = 0; c < STRIP; c++) to[c] = c < part ? from[c] : 0.0f;
        }
    }
}

// 4 x 4 blocks: columns of four rows become rows.
typedef float quad __attribute__((vector_size(16)));
typedef float quad_mem __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_index __attribute__((vector_size(16)));
#if defined(__clang__)
#define MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad_index){i, j, k, l})
#endif

ASP_INLINE quad quad_load(const float *p) { return *(const quad_mem *)(const void *)p; }
ASP_INLINE void quad_store(float *p, quad v) { *(quad_mem *)(void *)p = v; }

ASP_INLINE void transpose_4x4(float *to, int64_t ldt, const float *from, int64_t ldf)
{
    quad r0 = quad_load(from), r1 = quad_load(from + ldf);
    quad r2 = quad_load(from + 2 * ldf), r3 = quad_load(from + 3 * ldf);
    quad a = MIX(r0, r1, 0, 4, 1, 5), b = MIX(r0, r1, 2, 6, 3, 7);
    quad c = MIX(r2, r3, 0, 4, 1, 5), d = MIX(r2, r3, 2, 6, 3, 7);
    quad_store(to, MIX(a, c, 0, 1, 4, 5));
    quad_store(to + ldt, MIX(a, c, 2, 3, 6, 7));
    quad_store(to + 2 * ldt, MIX(b, d, 0, 1, 4, 5));
    quad_store(to + 3 * ldt, MIX(b, d, 2, 3, 6, 7));
}

// B (n, k): columns of a strip are transposed.
static void pack_b_columns(float *to, const float *b, int64_t ldb, int64_t kc, int64_t n)
{
    for (int64_t j = 0; j < n; j += STRIP, to += kc * STRIP) {
        const int64_t part = asp_min(STRIP, n - j), whole = part / 4 * 4, k4 = kc / 4 * 4;
        for (int64_t c = 0; c < whole; c += 4) {
            const float *from = b + (j + c) * ldb;
            for (int64_t p = 0; p < k4; p += 4)
                transpose_4x4(to + p * STRIP + c, STRIP, from + p, ldb);
            for (int64_t p = k4; p < kc; p++)
                for (int i = 0; i < 4; i++) to[p * STRIP + c + i] = from[i * ldb + p];
        }
        for (int64_t c = whole; c < STRIP; c++)
            for (int64_t p = 0; p < kc; p++)
                to[p * STRIP + c] = c < part ? b[(j + c) * ldb + p] : 0.0f;
    }
}

// A (k, m): strips of TILE_ROWS rows, k by k; the last strip is as narrow as it is.
static void pack_a(float *to, const float *a, int64_t lda, int64_t kc, int64_t m)
{
    for (int64_t i = 0; i < m; i += TILE_ROWS, to += kc * TILE_ROWS) {
        const int64_t part = asp_min(TILE_ROWS, m - i);
        for (int64_t p = 0; p < kc; p++) {
            const float *from = a + p * lda + i;
            float *row = to + p * TILE_ROWS;
            if (part == TILE_ROWS)
                memcpy(row, from, TILE_ROWS * sizeof *row);
            else
                for (int64_t r = 0; r < part; r++) row[r] = from[r];
        }
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

// C (m x n) [+]= A B for one slice of k; B packed, A packed (by_k) or in place.
static void multiply_slice(const asp_gemm_chunk *g, bool by_k, const float *a, int64_t lda,
                           int64_t a_step, const float *b, int64_t kc, bool add)
{
    for (int64_t j = 0; j < g->n; j += STRIP, b += kc * STRIP) {
        const int64_t cols = asp_min(STRIP, g->n - j);
        const int nv = cols > ASP_VF ? 2 : 1;
        const bool whole = cols % ASP_VF == 0;
        for (int64_t i = 0; i < g->m; i += TILE_ROWS) {
            const int64_t rows = asp_min(TILE_ROWS, g->m - i);
            tile_fn *tile = tiles[rows - 1][nv - 1][by_k];
            float *c = g->c + i * g->ldc + j;
            if (whole)
                tile(kc, a + i * a_step, lda, b, STRIP, c, g->ldc, add);
            else
                edge_tile(tile, rows, cols, kc, a + i * a_step, lda, b, c, g->ldc, add);
        }
    }
}

void ASP_ISA_NAME(asp_gemm_chunk)(const asp_gemm_chunk *g)
{
    float *packed_b = g->scratch, *packed_a = packed_b + KC * asp_round_up(g->n, ASP_GEMM_PAD);
    for (int64_t p = 0; p < g->k; p += KC) {
        const int64_t kc = asp_min(KC, g->k - p);
        if (g->op == ASP_OP_gemm_nt)
            pack_b_columns(packed_b, g->b + p, g->ldb, kc, g->n);
        else
            pack_b_rows(packed_b, g->b + p * g->ldb, g->ldb, kc, g->n);
        if (g->op == ASP_OP_gemm_tn) {
            pack_a(packed_a, g->a + p * g->lda, g->lda, kc, g->m);
            multiply_slice(g, true, packed_a, TILE_ROWS, kc, packed_b, kc, p > 0);
        } else {
            multiply_slice(g, false, g->a + p, g->lda, g->lda, packed_b, kc, p > 0);
        }
    }
}
