// Attention forward of one instruction set level, flash style (Dao et al. 2022): a block of queries
// against blocks of keys with a running maximum and sum; nothing of size S x S.  Neighbours: tile.h
// (products), softmax.h (exp2 and masks), sdpa_grad_isa.c (the derivative), ref/sdpa.c (the
// oracle). SPDX-License-Identifier: Apache-2.0
//
//   scores (keys x queries) = K Q^T, in units of log2: maximum, sum and rescaling run down vectors
//   of queries, without horizontal sums
//   p = exp2(scores - reference), sum += p, out (queries x E) += p^T V
//   the reference of a query moves to the maximum only when a score exceeds it by 2^8
#include "kern/scores.h"

#include <float.h>
#include <math.h>

// State of one block of queries.
typedef struct block {
    int64_t q0, n_q; // first query in its head, how many
    int64_t at;      // place of the first in the sequence
    float *queries;  // (D, QUERIES) transposed, times scale log2(e); missing queries are 0
    float *scores;   // (KEYS, QUERIES)
    float *out;      // (QUERIES, E), not yet divided by sum
    float *reference, *sum;
    scores *extra; // NULL: plain
} block;

static block block_in(float *scratch, const asp_sdpa_sizes *z)
{
    block b = {.queries = scratch};
    b.scores = b.queries + z->d * QUERIES;
    b.out = b.scores + KEYS * QUERIES;
    b.reference = b.out + QUERIES * z->e;
    b.sum = b.reference + QUERIES;
    return b;
}

// Scores of n keys become p; sums and references follow.
static ASP_NOINLINE void softmax_block(const asp_sdpa_sizes *z, block *b, int64_t n, int64_t ahead)
{
    const running now = {b->n_q, z->e, b->out, b->reference, b->sum};
    for (int64_t c = 0; c < b->n_q; c += ASP_VF) {
        float *s = b->scores + c;
        const int64_t seen = seen_keys(ahead, c, n);
        asp_vf max = column_max(s, seen);
        if (any_above(max, asp_vf_load(b->reference + c) + 8.0f)) move_reference(&now, c, max);
        const asp_vf reference = asp_vf_load(b->reference + c);
        asp_vf sum = asp_vf_load(b->sum + c);
        int64_t j = 0;
        for (; j + ABREAST <= seen; j += ABREAST, s += ABREAST * QUERIES) {
            asp_vf p[ABREAST];
            ASP_UNROLL
            for (int i = 0; i < ABREAST; i++) p[i] = asp_vf_load(s + i * QUERIES) - reference;
            exp2_each(p, ABREAST);
            ASP_UNROLL
            for (int i = 0; i < ABREAST; i++) {
                asp_vf_store(s + i * QUERIES, p[i]);
                sum += p[i];
            }
        }
        for (; j < seen; j++, s += QUERIES) {
            asp_vf p = exp2_of(asp_vf_load(s) - reference);
            asp_vf_store(s, p);
            sum += p;
        }
        for (; j < n; j++, s += QUERIES) asp_vf_store(s, (asp_vf){0});
        asp_vf_store(b->sum + c, sum);
    }
}

static void write_rows(const asp_sdpa_sizes *z, const block *b, float *out, float *lse)
{
    for (int64_t q = 0; q < b->n_q; q++) {
        const float inverse = b->sum[q] > 0 ? 1.0f / b->sum[q] : 0.0f; // no key: 0
        for (int64_t x = 0; x < z->e; x += ASP_VF)
            asp_vf_store(out + q * z->e + x, asp_vf_load(b->out + q * z->e + x) * inverse);
        lse[q] = (float)((double)b->reference[q] * LN_2 + log((double)b->sum[q]));
    }
}

// Rows behind the last segment see nothing.
static void write_tail(const asp_sdpa_sizes *z, int64_t head, float *out, float *lse)
{
    const int64_t at = asp_rows_count(&z->q_rows), n = z->n_q - at, row = head * z->n_q + at;
    memset(out + row * z->e, 0, (size_t)(n * z->e) * sizeof *out);
    for (int64_t q = 0; q < n; q++) lse[row + q] = -INFINITY;
}

// The keys of one segment.
static void attend_segment(const asp_kcall *k, const asp_sdpa_sizes *z, int64_t kv, asp_segment s,
                           block *b)
{
    const float *keys = (const float *)k->in[1].data + (kv + s.first) * z->d;
    const float *values = (const float *)k->in[2].data + (kv + s.first) * z->e;
    const int64_t end = asp_sdpa_seen(z->causal, s, b->at + b->n_q - 1);
    for (int64_t j = 0; j < end; j += KEYS) {
        const int64_t n = asp_min(KEYS, end - j);
        const int64_t at = s.at + j;
        const int64_t ahead = z->causal && !b->extra ? at - b->at : NOT_CAUSAL;
        const asp_mask_state seen =
            b->extra ? scores_see(b->extra, s.first + j, at, n) : ASP_MASK_ALWAYS;
        if (seen == ASP_MASK_NEVER) continue;
        multiply_scores(n, asp_round_up(b->n_q, 2 * ASP_VF), z->d, keys + j * z->d, b->queries,
                        b->scores, ahead);
        if (b->extra)
            finish_scores(b->extra, b->scores, at, n, seen, false);
        else if (z->causal)
            mask_block(b->scores, b->at, at, n);
        softmax_block(z, b, n, ahead);
        if (b->extra && b->extra->a.drop_below) {
            draw_keep(b->extra, at, n);
            multiply_by(b->scores, b->extra->keep, n);
        }
        multiply_by_transposed(b->n_q, n, z->e, b->scores, values + j * z->e, b->out, ahead, true);
    }
}

// A reference below all scores but -infinity, or the sink: a score of a key without value.
static void start_sums(block *b, const float *sink)
{
    for (int64_t q = 0; q < QUERIES; q++) {
        b->reference[q] = sink ? *sink * LOG2_E : -FLT_MAX;
        b->sum[q] = sink ? 1 : 0;
    }
}

// The mean of values where a query saw nothing and that is wanted.
static void fill_flat_rows(const asp_kcall *k, const asp_sdpa_sizes *z, int64_t head,
                           const block *b)
{
    const scores *s = b->extra;
    const int64_t row = head * z->n_q + b->q0, kv = kv_row(z, head);
    for (int64_t q = 0; q < b->n_q; q++) {
        if (b->sum[q] != 0) continue;
        float *out = (float *)k->out[0].data + (row + q) * z->e;
        const double weight = flat_weight(s, q);
        for (int i = 0; weight != 0 && i < z->k_rows.n; i++)
            for (int64_t j = 0; j < z->k_rows.seg[i].n; j++) {
                const int64_t at = z->k_rows.seg[i].at + j;
                const float *v =
                    (const float *)k->in[2].data + (kv + z->k_rows.seg[i].first + j) * z->e;
                const float p = flat_probability(s, q, at, weight) *
                                (float)asp_attend_keep(&s->a, s->batch, s->head, b->at + q, at);
                for (int64_t x = 0; x < z->e; x++) out[x] += p * v[x];
            }
    }
}

static void attend(const asp_kcall *k, const asp_sdpa_sizes *z, int64_t head, block *b)
{
    const int64_t row = head * z->n_q + b->q0, kv = kv_row(z, head);
    load_transposed(b->queries, (const float *)k->in[0].data + row * z->d, b->n_q, z->d,
                    z->scale * LOG2_E);
    start_sums(b, b->extra && b->extra->a.sinks
                      ? (const float *)b->extra->a.sinks->data + head % z->heads
                      : NULL);
    memset(b->out, 0, (size_t)(QUERIES * z->e) * sizeof(float));
    for (int s = 0; s < z->k_rows.n; s++) attend_segment(k, z, kv, z->k_rows.seg[s], b);
    write_rows(z, b, (float *)k->out[0].data + row * z->e, (float *)k->out[1].data + row);
    if (b->extra && b->extra->hides) fill_flat_rows(k, z, head, b);
}

// A chunk is a block of queries of one head, the late ones first: when causal they take longest.
void ASP_ISA_NAME(asp_sdpa_f32)(const asp_kcall *k, asp_worker *w)
{
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k, 3);
    if (z.d % ASP_VF || z.e % ASP_VF) {
        SDPA_BELOW(k, w);
        return;
    }
    const int64_t n_blocks = asp_sdpa_blocks(&z, QUERIES);
    block b = block_in((float *)k->work + w->thread * asp_sdpa_thread_floats(&z), &z);
    scores extra;
    if (!z.plain) {
        scores_in(&extra, k, &z, 3, (float *)k->work + w->n_threads * asp_sdpa_thread_floats(&z),
                  w->thread);
        asp_mask_bounds(&z, &extra.a, KEYS, extra.bounds, w);
        b.extra = &extra;
    }
    for (int64_t i; (i = asp_team_next(w, z.batch * z.heads * n_blocks)) >= 0;) {
        const asp_sdpa_block q = asp_sdpa_block_of(&z, QUERIES, n_blocks - 1 - i % n_blocks);
        b.q0 = q.q0, b.n_q = q.n, b.at = q.at;
        if (q.n && b.extra) scores_block(&extra, i / n_blocks, q);
        if (q.n) attend(k, &z, i / n_blocks, &b);
        if (i % n_blocks == 0) write_tail(&z, i / n_blocks, k->out[0].data, k->out[1].data);
    }
}
