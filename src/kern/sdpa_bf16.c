// Attention forward of bf16 where the processor sums products of pairs: as sdpa_isa.c has it, but
// operands stay bf16 and so are the probabilities that multiply values; scores, sums and results
// are f32 until they are written.  Causal or plain attention of widths that are multiples of 32;
// what else there is goes through f32 (sdpa_half.c, who chooses).  Neighbours: softmax.h and tile.h
// (products of blocks).  SPDX-License-Identifier: Apache-2.0
//
//   scores (keys x queries) = K Q^T: a pair is two neighbours of D; Q is transposed once a block
//   p = exp2(scale scores - reference), a pair is two keys; out (queries x E) += p^T V, V
//   interleaved a block of keys at a time, in strips as wide as a tile
#define TILE_PAIRS 1
#include "kern/half.h"
#include "kern/softmax.h"

#include <float.h>
#include <math.h>

enum { STRIP = 2 * ASP_VF };

// State of one block of queries; sizes in pairs where pairs stand.
typedef struct block {
    int64_t q0, n_q; // first query in its head, how many
    int64_t at;      // place of the first in the sequence
    float *queries;  // (D / 2, QUERIES) pairs; missing queries are 0
    float *scores;   // (KEYS, QUERIES)
    float *p;        // (KEYS / 2, QUERIES) pairs
    float *values;   // (E / STRIP, KEYS / 2, STRIP) pairs
    float *out;      // (QUERIES, E), not yet divided by sum
    float *reference, *sum;
} block;

static int64_t block_floats(const asp_sdpa_sizes *z)
{
    return QUERIES * (z->d / 2 + KEYS + KEYS / 2 + z->e + 2) + KEYS / 2 * z->e;
}

static block block_in(float *scratch, const asp_sdpa_sizes *z)
{
    block b = {.queries = scratch};
    b.scores = b.queries + z->d / 2 * QUERIES;
    b.p = b.scores + KEYS * QUERIES;
    b.values = b.p + KEYS / 2 * QUERIES;
    b.out = b.values + KEYS / 2 * z->e;
    b.reference = b.out + QUERIES * z->e;
    b.sum = b.reference + QUERIES;
    return b;
}

bool asp_sdpa_bf16_takes(const asp_sdpa_sizes *z)
{
    return z->plain && z->d % STRIP == 0 && z->e % STRIP == 0 && z->scale > 0;
}

int64_t asp_sdpa_bf16_work(const asp_sdpa_sizes *z, int n_threads)
{
    return block_floats(z) * n_threads * (int64_t)sizeof(float);
}

// ---- operands ----------------------------------------------------------------------------------

static void load_queries(const asp_sdpa_sizes *z, block *b, const uint16_t *rows)
{
    const int64_t pairs = z->d / 2, whole = b->n_q / 4 * 4;
    if (b->n_q < QUERIES) memset(b->queries, 0, (size_t)(pairs * QUERIES) * sizeof(float));
    for (int64_t q = 0; q < whole; q += 4)
        for (int64_t x = 0; x < pairs; x += 4) {
            quad r[4];
            for (int i = 0; i < 4; i++) memcpy(&r[i], rows + (q + i) * z->d + 2 * x, sizeof r[i]);
            transpose_quads(b->queries + x * QUERIES + q, QUERIES, r[0], r[1], r[2], r[3]);
        }
    for (int64_t q = whole; q < b->n_q; q++)
        for (int64_t x = 0; x < pairs; x++)
            memcpy(b->queries + x * QUERIES + q, rows + q * z->d + 2 * x, sizeof(float));
}

// n keys' values; the pair of an odd last one has a 0.
static ASP_NOINLINE void load_values(const asp_sdpa_sizes *z, const block *b, const uint16_t *rows,
                                     int64_t n)
{
    for (int64_t x = 0; x < z->e; x += ASP_VF) {
        float *to = b->values + x / STRIP * (KEYS / 2 * STRIP) + x % STRIP;
        const uint16_t *from = rows + x;
        for (int64_t j = 0; j < n; j += 2, from += 2 * z->e, to += STRIP) {
            const __m512i even = (__m512i)asp_vf_load_half(from);
            const __m512i odd =
                j + 1 < n ? (__m512i)asp_vf_load_half(from + z->e) : _mm512_setzero_si512();
            asp_vf_store(to, (asp_vf)_mm512_or_si512(_mm512_srli_epi32(even, 16), odd));
        }
    }
}

// ---- softmax -----------------------------------------------------------------------------------

// 2^x as exp2_each has it, relative error below 8e-5: the result becomes bf16.
ASP_INLINE void exp2_coarse(asp_vf *x, const int n)
{
    static const float factor[] = {0x1.f0de1ap-3f, 0x1.62f31ap-1f, 0x1.fff692p-1f};
    const asp_vf magic = asp_vf_all(12582912.0f);
    asp_vf shifted[ABREAST], p[ABREAST];
    ASP_UNROLL
    for (int i = 0; i < n; i++) x[i] = asp_vf_max(asp_vf_all(-126.0f), x[i]);
    ASP_UNROLL
    for (int i = 0; i < n; i++) shifted[i] = x[i] + magic;
    ASP_UNROLL
    for (int i = 0; i < n; i++) x[i] = x[i] - (shifted[i] - magic);
    ASP_UNROLL
    for (int i = 0; i < n; i++)
        p[i] = asp_vf_fma(asp_vf_all(0x1.c3f760p-5f), x[i], asp_vf_all(factor[0]));
    ASP_UNROLL
    for (int k = 1; k < (int)ASP_COUNT_OF(factor); k++) {
        ASP_UNROLL
        for (int i = 0; i < n; i++) p[i] = asp_vf_fma(p[i], x[i], asp_vf_all(factor[k]));
    }
    ASP_UNROLL
    for (int i = 0; i < n; i++) x[i] = (asp_vf)((asp_vi)p[i] + ((asp_vi)shifted[i] << 23));
}

// Both of each element, as bf16: a in the lower half.
ASP_INLINE asp_vf pair_up(asp_vf a, asp_vf b)
{
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
    const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
    return (asp_vf)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Scores of n keys become pairs of p; sums and references follow.  Rows of scores behind n, up to
// an even number, are -infinity.
static ASP_NOINLINE void softmax_block(const asp_sdpa_sizes *z, block *b, int64_t n, int64_t ahead)
{
    const running now = {b->n_q, z->e, b->out, b->reference, b->sum};
    const asp_vf scale = asp_vf_all(z->scale * LOG2_E);
    for (int64_t c = 0; c < b->n_q; c += ASP_VF) {
        const float *s = b->scores + c;
        float *to = b->p + c;
        const int64_t seen = asp_round_up(seen_keys(ahead, c, n), 2);
        asp_vf max = column_max(s, seen) * scale;
        if (any_above(max, asp_vf_load(b->reference + c) + 8.0f)) move_reference(&now, c, max);
        const asp_vf reference = asp_vf_load(b->reference + c);
        asp_vf sum = asp_vf_load(b->sum + c);
        int64_t j = 0;
        for (; j + ABREAST <= seen; j += ABREAST, s += ABREAST * QUERIES, to += 2 * QUERIES) {
            asp_vf p[ABREAST];
            ASP_UNROLL
            for (int i = 0; i < ABREAST; i++)
                p[i] = asp_vf_fma(asp_vf_load(s + i * QUERIES), scale, -reference);
            exp2_coarse(p, ABREAST);
            sum += (p[0] + p[1]) + (p[2] + p[3]);
            asp_vf_store(to, pair_up(p[0], p[1]));
            asp_vf_store(to + QUERIES, pair_up(p[2], p[3]));
        }
        for (; j < seen; j += 2, s += 2 * QUERIES, to += QUERIES) {
            asp_vf p[2];
            for (int i = 0; i < 2; i++)
                p[i] = asp_vf_fma(asp_vf_load(s + i * QUERIES), scale, -reference);
            exp2_coarse(p, 2);
            sum += p[0] + p[1];
            asp_vf_store(to, pair_up(p[0], p[1]));
        }
        for (; j < n; j += 2, to += QUERIES) asp_vf_store(to, (asp_vf){0});
        asp_vf_store(b->sum + c, sum);
    }
}

// ---- a block -----------------------------------------------------------------------------------

// out += p^T V of n keys; what a query does not see is 0 in p.
static void add_values(const asp_sdpa_sizes *z, const block *b, int64_t n, int64_t ahead)
{
    for (int64_t x = 0; x < z->e; x += STRIP)
        for (int64_t i = 0; i < b->n_q; i += TILE_ROWS) {
            const int64_t rows = asp_min(TILE_ROWS, b->n_q - i);
            const int64_t seen = asp_max(0, asp_min(n, i + rows - ahead));
            tiles[rows - 1][1][1](asp_ceil_div(seen, 2), b->p + i, QUERIES,
                                  b->values + x * (KEYS / 2), STRIP, b->out + i * z->e + x, z->e,
                                  true);
        }
}

static const float *pairs_at(const uint16_t *half) { return (const float *)(const void *)half; }

// The keys of one segment.
static void attend_segment(const asp_kcall *k, const asp_sdpa_sizes *z, int64_t kv, asp_segment s,
                           block *b)
{
    const uint16_t *keys = (const uint16_t *)k->in[1].data + (kv + s.first) * z->d;
    const uint16_t *values = (const uint16_t *)k->in[2].data + (kv + s.first) * z->e;
    const int64_t end = asp_sdpa_seen(z->causal, s, b->at + b->n_q - 1);
    for (int64_t j = 0; j < end; j += KEYS) {
        const int64_t n = asp_min(KEYS, end - j), at = s.at + j;
        const int64_t ahead = z->causal ? at - b->at : NOT_CAUSAL;
        load_values(z, b, values + j * z->e, n);
        multiply_scores(n, asp_round_up(b->n_q, STRIP), z->d / 2, pairs_at(keys + j * z->d),
                        b->queries, b->scores, ahead);
        if (n % 2)
            for (int64_t q = 0; q < QUERIES; q++) b->scores[n * QUERIES + q] = -INFINITY;
        if (z->causal) mask_block(b->scores, b->at, at, n);
        softmax_block(z, b, n, ahead);
        add_values(z, b, n, ahead);
    }
}

static void write_rows(const asp_sdpa_sizes *z, const block *b, uint16_t *out, float *lse)
{
    for (int64_t q = 0; q < b->n_q; q++) {
        const float inverse = b->sum[q] > 0 ? 1.0f / b->sum[q] : 0.0f; // no key: 0
        for (int64_t x = 0; x < z->e; x += ASP_VF)
            asp_vf_store_half(out + q * z->e + x, asp_vf_load(b->out + q * z->e + x) * inverse);
        lse[q] = (float)((double)b->reference[q] * LN_2 + log((double)b->sum[q]));
    }
}

// Rows behind the last segment see nothing.
static void write_tail(const asp_sdpa_sizes *z, int64_t head, uint16_t *out, float *lse)
{
    const int64_t at = asp_rows_count(&z->q_rows), n = z->n_q - at, row = head * z->n_q + at;
    memset(out + row * z->e, 0, (size_t)(n * z->e) * sizeof *out);
    for (int64_t q = 0; q < n; q++) lse[row + q] = -INFINITY;
}

static void attend(const asp_kcall *k, const asp_sdpa_sizes *z, int64_t head, block *b)
{
    const int64_t row = head * z->n_q + b->q0, kv = kv_row(z, head);
    load_queries(z, b, (const uint16_t *)k->in[0].data + row * z->d);
    for (int64_t q = 0; q < QUERIES; q++) b->reference[q] = -FLT_MAX, b->sum[q] = 0;
    memset(b->out, 0, (size_t)(QUERIES * z->e) * sizeof(float));
    for (int s = 0; s < z->k_rows.n; s++) attend_segment(k, z, kv, z->k_rows.seg[s], b);
    write_rows(z, b, (uint16_t *)k->out[0].data + row * z->e, (float *)k->out[1].data + row);
}

// A chunk is a block of queries of one head, the late ones first: when causal they take longest.
void asp_sdpa_bf16(const asp_kcall *k, asp_worker *w)
{
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k, 3);
    const int64_t n_blocks = asp_sdpa_blocks(&z, QUERIES);
    block b = block_in((float *)k->work + w->thread * block_floats(&z), &z);
    for (int64_t i; (i = asp_team_next(w, z.batch * z.heads * n_blocks)) >= 0;) {
        const asp_sdpa_block q = asp_sdpa_block_of(&z, QUERIES, n_blocks - 1 - i % n_blocks);
        b.q0 = q.q0, b.n_q = q.n, b.at = q.at;
        if (q.n) attend(k, &z, i / n_blocks, &b);
        if (i % n_blocks == 0) write_tail(&z, i / n_blocks, k->out[0].data, k->out[1].data);
    }
}
