// The built-in matrix product of one instruction set level: packs a slice of B, then block by block
// of A, and multiplies in register tiles (Goto and van de Geijn 2008).  Neighbours: tile.h, gemm.c
// (who cuts C into chunks).  SPDX-License-Identifier: Apache-2.0
//
// A strip of B lies in the first cache and a block of A in the second while their tiles are
// computed.  bf16 becomes f32 while it is packed.  What is packed comes from memory, in runs too
// short for the processor to foresee: it is asked for some rows ahead.
#if defined(__AVX512F__)
#define TILE_ROWS 14
#elif defined(__AVX2__)
#define TILE_ROWS 6
#else
#define TILE_ROWS 4
#endif
#include "kern/gemm_int.h"
#include "kern/half.h"
#include "kern/quad.h"
#include "kern/tile.h"

#define STRIP (2 * ASP_VF) // columns of a tile
#define KC ASP_GEMM_KC
#define MC (ASP_GEMM_MC / TILE_ROWS * TILE_ROWS)
#define GROUP 8      // rows that are packed together, strip by strip
#define ROWS_AHEAD 4 // where whole rows are copied

#define PACK(name) name##_f32
#define ELEMENT float
#define GET(p) (*(p))
#define GET_VF asp_vf_load
#define GET_QUAD quad_load
#include "kern/gemm_pack.h"

#define PACK(name) name##_half
#define ELEMENT uint16_t
#define GET(p) asp_from_bf16(*(p))
#define GET_VF asp_vf_load_half
#define GET_QUAD quad_load_half
#include "kern/gemm_pack.h"

#include "kern/gemm_block.h"

static void pack_b(const asp_gemm_chunk *g, float *to, int64_t p, int64_t kc)
{
    const bool columns = g->op == ASP_OP_gemm_nt;
    const int64_t at = columns ? p : p * g->ldb;
    if (g->half)
        (columns ? pack_b_columns_half : pack_b_rows_half)(to, g->b.half + at, g->ldb, kc, g->n);
    else
        (columns ? pack_b_columns_f32 : pack_b_rows_f32)(to, g->b.f32 + at, g->ldb, kc, g->n);
}

static void pack_a(const asp_gemm_chunk *g, float *to, int64_t i, int64_t p, int64_t kc, int64_t m)
{
    const bool columns = g->op == ASP_OP_gemm_tn;
    const int64_t at = columns ? p * g->lda + i : i * g->lda + p;
    if (g->half)
        (columns ? pack_a_columns_half : pack_a_rows_half)(to, g->a.half + at, g->lda, kc, m);
    else
        (columns ? pack_a_columns_f32 : pack_a_rows_f32)(to, g->a.f32 + at, g->lda, kc, m);
}

void ASP_ISA_NAME(asp_gemm_chunk)(const asp_gemm_chunk *g)
{
    float *packed_a = g->scratch, *packed_b = packed_a + KC * ASP_GEMM_MC;
    for (int64_t p = 0; p < g->k; p += KC) {
        const int64_t kc = asp_min(KC, g->k - p);
        pack_b(g, packed_b, p, kc);
        for (int64_t i = 0; i < g->m; i += MC) {
            const int64_t m = asp_min(MC, g->m - i);
            pack_a(g, packed_a, i, p, kc, m);
            multiply_block(g, g->op == ASP_OP_gemm_tn, m, packed_a, packed_b, g->c + i * g->ldc, kc,
                           g->add || p > 0);
        }
    }
}
