// Tile by tile over a packed block, for the level and the elements of tile.h.  Neighbours:
// gemm_isa.c, gemm_bf16.c (who include it after tile.h).  SPDX-License-Identifier: Apache-2.0
#include "kern/gemm_int.h"

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
