// Packing of the built-in matrix product, for operands of one type: what a slice is copied to is
// f32 in cache order.  A template: gemm_isa.c includes it once for f32 and once for bf16, which is
// exact in f32.  Neighbours: gemm_isa.c.  SPDX-License-Identifier: Apache-2.0
#ifndef PACK
#error "a template: define PACK, ELEMENT, GET, GET_VF and GET_QUAD first"
#endif

// Strips of STRIP columns, k by k: to[strip][k][STRIP], the last strip filled up with zeros.
// B (k, n): rows are copied.
static void PACK(pack_b_rows)(float *to, const ELEMENT *b, int64_t ldb, int64_t kc, int64_t n)
{
    for (int64_t p0 = 0; p0 < kc; p0 += GROUP)
        for (int64_t j = 0; j < n; j += STRIP) {
            const int64_t part = asp_min(STRIP, n - j);
            float *row = to + j * kc + p0 * STRIP;
            for (int64_t p = p0; p < asp_min(kc, p0 + GROUP); p++, row += STRIP) {
                const ELEMENT *from = b + p * ldb + j;
                if (part == STRIP) {
                    if (p + GROUP < kc) ASP_PREFETCH(from + GROUP * ldb);
                    asp_vf_store(row, GET_VF(from));
                    asp_vf_store(row + ASP_VF, GET_VF(from + ASP_VF));
                    continue;
                }
                for (int64_t c = 0; c < STRIP; c++) row[c] = c < part ? GET(from + c) : 0.0f;
            }
        }
}

// B (n, k): columns of a strip are transposed.
static void PACK(pack_b_columns)(float *to, const ELEMENT *b, int64_t ldb, int64_t kc, int64_t n)
{
    for (int64_t j = 0; j < n; j += STRIP, to += kc * STRIP) {
        const int64_t part = asp_min(STRIP, n - j), whole = part / 4 * 4, k4 = kc / 4 * 4;
        for (int64_t c = 0; c < whole; c += 4) {
            const ELEMENT *from = b + (j + c) * ldb;
            for (int64_t p = 0; p < k4; p += 4)
                transpose_quads(to + p * STRIP + c, STRIP, GET_QUAD(from + p),
                                GET_QUAD(from + ldb + p), GET_QUAD(from + 2 * ldb + p),
                                GET_QUAD(from + 3 * ldb + p));
            for (int64_t p = k4; p < kc; p++)
                for (int i = 0; i < 4; i++) to[p * STRIP + c + i] = GET(from + i * ldb + p);
        }
        for (int64_t c = whole; c < STRIP; c++)
            for (int64_t p = 0; p < kc; p++)
                to[p * STRIP + c] = c < part ? GET(b + (j + c) * ldb + p) : 0.0f;
    }
}

// A (k, m): strips of TILE_ROWS rows, k by k; the last strip is as narrow as it is.
static void PACK(pack_a_columns)(float *to, const ELEMENT *a, int64_t lda, int64_t kc, int64_t m)
{
    for (int64_t p0 = 0; p0 < kc; p0 += GROUP)
        for (int64_t i = 0; i < m; i += TILE_ROWS) {
            const int64_t part = asp_min(TILE_ROWS, m - i);
            float *row = to + i * kc + p0 * TILE_ROWS;
            for (int64_t p = p0; p < asp_min(kc, p0 + GROUP); p++, row += TILE_ROWS) {
                const ELEMENT *from = a + p * lda + i;
                if (p + GROUP < kc) ASP_PREFETCH(from + GROUP * lda);
                if (part == TILE_ROWS) // a number that the compiler knows
                    for (int r = 0; r < TILE_ROWS; r++) row[r] = GET(from + r);
                else
                    for (int64_t r = 0; r < part; r++) row[r] = GET(from + r);
            }
        }
}

// A (m, k): rows of a slice, one after another.
static void PACK(pack_a_rows)(float *to, const ELEMENT *a, int64_t lda, int64_t kc, int64_t m)
{
    enum { LINE = ASP_CACHE_LINE / sizeof(float) };
    for (int64_t i = 0; i < m; i++, to += kc, a += lda) {
        int64_t p = 0;
        for (; p + LINE <= kc; p += LINE) {
            if (i + ROWS_AHEAD < m) ASP_PREFETCH(a + ROWS_AHEAD * lda + p);
            for (int v = 0; v < LINE; v += ASP_VF) asp_vf_store(to + p + v, GET_VF(a + p + v));
        }
        for (; p < kc; p++) to[p] = GET(a + p);
    }
}

#undef PACK
#undef ELEMENT
#undef GET
#undef GET_VF
#undef GET_QUAD
