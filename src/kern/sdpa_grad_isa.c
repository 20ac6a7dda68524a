// The derivative of attention of one instruction set level, from out and lse (Dao et al. 2022,
// algorithm 4).  Neighbours: sdpa_isa.c (forward), softmax.h and tile.h (blocks), ref/sdpa.c (the
// oracle).  SPDX-License-Identifier: Apache-2.0
//
// A chunk is a run of keys of one key head: it makes their dk and dv whole, over the query heads of
// the group and their blocks of queries in order.  dq of a block of queries is a sum over the
// chunks of its head: each adds its part in the order of the chunks, which a counter a block of
// queries keeps.  Chunks are handed out in that order, so whoever waits waits for a chunk that a
// thread already works on, and in practice hardly at all: the follower is one block behind.
// When causal the order is from the last keys to the first, so chunks start at their own diagonal
// with little or nothing before them.
#include "kern/scores.h"

#include <sched.h>
#include <stdatomic.h>

enum { Q, K, V, OUT, LSE, DOUT };   // operands of sdpa_grad
enum { DQ, DK, DV };                // results
enum { SPINS_BEFORE_YIELD = 2000 }; // a rank may share its core

typedef struct scratch {
    float *delta;         // (B, N, Q), scale * sum of out * dout
    float *flat;          // (B, N, Q), weights of queries that see nothing; NULL: there are none
    atomic_uint *counter; // (B * N, blocks): chunks that are in dq of the block
    // of this thread
    float *queries, *douts;  // (D, QUERIES), (E, QUERIES): transposed; queries times scale log2(e)
    float *scores, *dscores; // (KEYS, QUERIES)
    float *lse, *delta_of;   // QUERIES: lse in log2; delta
    scores *extra;           // NULL: plain
} scratch;

static scratch scratch_in(const asp_kcall *k, const asp_sdpa_sizes *z, int thread)
{
    scratch s = {.delta = k->work};
    if (z->hides) s.flat = s.delta + asp_sdpa_delta_floats(z) / 2;
    float *next = s.delta + asp_sdpa_delta_floats(z);
    s.counter = (atomic_uint *)(void *)next;
    s.queries = next + asp_sdpa_counters(z) + thread * asp_sdpa_thread_floats(z);
    s.douts = s.queries + z->d * QUERIES;
    s.scores = s.douts + z->e * QUERIES;
    s.dscores = s.scores + KEYS * QUERIES;
    s.lse = s.dscores + KEYS * QUERIES;
    s.delta_of = s.lse + QUERIES;
    return s;
}

// ---- before ------------------------------------------------------------------------------------

static float dot(const float *a, const float *b, int64_t n)
{
    asp_vf sum = {0};
    float total = 0;
    for (int64_t x = 0; x < n; x += ASP_VF)
        sum = asp_vf_fma(asp_vf_load(a + x), asp_vf_load(b + x), sum);
    for (int i = 0; i < ASP_VF; i++) total += sum[i];
    return total;
}

// The weight of a row that sees nothing, else 0.
static float flat_of(const asp_kcall *k, const asp_sdpa_sizes *z, const scratch *s, int64_t row)
{
    const int64_t head = row / z->n_q, at = asp_rows_place(&z->q_rows, row % z->n_q);
    if (((const float *)k->in[LSE].data)[row] != -INFINITY || at < 0) return 0;
    s->extra->batch = head / z->heads;
    s->extra->head = head % z->heads;
    s->extra->b = (asp_sdpa_block){row % z->n_q, 1, at};
    return (float)flat_weight(s->extra, 0);
}

static void prepare(const asp_kcall *k, const asp_sdpa_sizes *z, const scratch *s, asp_worker *w)
{
    enum { ROWS = 256 };
    const float *out = k->in[OUT].data, *dout = k->in[DOUT].data;
    const int64_t n_rows = z->batch * z->heads * z->n_q, n_counters = asp_sdpa_counters(z);
    for (int64_t i = w->thread; i < n_counters; i += w->n_threads)
        atomic_store_explicit(&s->counter[i], 0, memory_order_relaxed);
    for (int64_t i; (i = asp_team_next(w, asp_ceil_div(n_rows, ROWS))) >= 0;)
        for (int64_t row = i * ROWS; row < asp_min(n_rows, (i + 1) * ROWS); row++) {
            s->delta[row] = z->scale * dot(out + row * z->e, dout + row * z->e, z->e);
            if (s->flat) s->flat[row] = flat_of(k, z, s, row);
        }
    asp_team_barrier(w);
}

// ---- one block of queries against the keys of a chunk ------------------------------------------

typedef struct chunk {
    int64_t order, n_chunks; // 0, 1, ... in which chunks of a head add to dq
    asp_segment keys;        // of it
    int64_t kv_head;         // b * K + key head
    const float *k, *v;      // of the chunk
    float *dk, *dv;
} chunk;

static void load_block(const asp_kcall *k, const asp_sdpa_sizes *z, const scratch *s, int64_t row,
                       int64_t n_q)
{
    const float *lse = (const float *)k->in[LSE].data + row;
    load_transposed(s->queries, (const float *)k->in[Q].data + row * z->d, n_q, z->d,
                    z->scale * LOG2_E);
    load_transposed(s->douts, (const float *)k->in[DOUT].data + row * z->e, n_q, z->e, 1.0f);
    for (int64_t q = 0; q < QUERIES; q++) {
        s->lse[q] = q < n_q ? lse[q] * LOG2_E : __builtin_inff(); // p of a missing query is 0
        if (s->lse[q] == -__builtin_inff())
            s->lse[q] = __builtin_inff(); // of one that sees nothing
        s->delta_of[q] = q < n_q ? s->delta[row + q] : 0.0f;
    }
}

// scores -> p;  dscores (dout v) -> ds = p (scale dout v - delta)
static ASP_NOINLINE void score_grads(const asp_sdpa_sizes *z, const scratch *s, int64_t n_q,
                                     int64_t n, int64_t ahead)
{
    const asp_vf scale = asp_vf_all(z->scale);
    for (int64_t c = 0; c < n_q; c += ASP_VF) {
        const asp_vf lse = asp_vf_load(s->lse + c), delta = asp_vf_load(s->delta_of + c);
        const int64_t seen = seen_keys(ahead, c, n);
        float *score = s->scores + c, *dscore = s->dscores + c;
        int64_t j = 0;
        for (; j + ABREAST <= seen; j += ABREAST) {
            asp_vf p[ABREAST];
            ASP_UNROLL
            for (int i = 0; i < ABREAST; i++) p[i] = asp_vf_load(score + i * QUERIES) - lse;
            exp2_each(p, ABREAST);
            ASP_UNROLL
            for (int i = 0; i < ABREAST; i++, score += QUERIES, dscore += QUERIES) {
                asp_vf_store(score, p[i]);
                asp_vf_store(dscore, p[i] * asp_vf_fma(scale, asp_vf_load(dscore), -delta));
            }
        }
        for (; j < seen; j++, score += QUERIES, dscore += QUERIES) {
            asp_vf p = exp2_of(asp_vf_load(score) - lse);
            asp_vf_store(score, p);
            asp_vf_store(dscore, p * asp_vf_fma(scale, asp_vf_load(dscore), -delta));
        }
        for (; j < n; j++, score += QUERIES, dscore += QUERIES) {
            asp_vf_store(score, (asp_vf){0});
            asp_vf_store(dscore, (asp_vf){0});
        }
    }
}

// The same with what stands between products and exp2, and behind it.
static void extra_grads(const asp_sdpa_sizes *z, const scratch *s, int64_t at, int64_t n,
                        asp_mask_state seen)
{
    const scores *x = s->extra;
    finish_scores(x, s->scores, at, n, seen, true);
    if (x->a.drop_below) {
        draw_keep(x, at, n);
        multiply_by(s->dscores, x->keep, n);
    }
    score_grads(z, s, x->b.n, n, NOT_CAUSAL);
    if (x->a.drop_below) multiply_by(s->scores, x->keep, n);
    if (x->a.softcap > 0) multiply_by(s->dscores, x->cap, n);
}

// Query q of a block, which sees nothing, against the keys of a chunk.
static void flat_grad(const asp_kcall *k, const asp_sdpa_sizes *z, const scratch *s, const chunk *c,
                      int64_t row, int64_t q)
{
    const scores *x = s->extra;
    const float *query = (const float *)k->in[Q].data + row * z->d;
    const float *dout = (const float *)k->in[DOUT].data + row * z->e;
    float *dq = (float *)k->out[DQ].data + row * z->d;
    for (int64_t j = 0; j < c->keys.n; j++) {
        const float *key = c->k + j * z->d, *value = c->v + j * z->e;
        const int64_t at = c->keys.at + j;
        const float p = flat_probability(x, q, at, (double)s->flat[row]);
        const float keep = (float)asp_attend_keep(&x->a, x->batch, x->head, x->b.at + q, at);
        float ds = p * (z->scale * keep * dot(dout, value, z->e) - s->delta[row]);
        if (p == 0) continue;
        if (x->a.softcap > 0) {
            const float t = tanhf(z->scale * dot(query, key, z->d) / (float)x->a.softcap);
            ds *= 1 - t * t;
        }
        if (s->flat[row] < 0) ds = 0; // of no score
        for (int64_t i = 0; i < z->e; i++) c->dv[j * z->e + i] += p * keep * dout[i];
        for (int64_t i = 0; i < z->d; i++) c->dk[j * z->d + i] += ds * query[i];
        for (int64_t i = 0; i < z->d; i++) dq[i] += ds * key[i];
    }
}

static void block_grad(const asp_kcall *k, const asp_sdpa_sizes *z, const scratch *s,
                       const chunk *c, int64_t head, asp_sdpa_block b, bool first)
{
    const int64_t row = head * z->n_q + b.q0;
    const float *q = (const float *)k->in[Q].data + row * z->d;
    const float *dout = (const float *)k->in[DOUT].data + row * z->e;
    float *dq = (float *)k->out[DQ].data + row * z->d;
    const int64_t end = asp_sdpa_seen(z->causal, c->keys, b.at + b.n - 1);
    for (int64_t j = 0; j < end; j += KEYS) {
        const int64_t n = asp_min(KEYS, end - j), at = c->keys.at + j;
        const int64_t ahead = z->causal && !s->extra ? at - b.at : NOT_CAUSAL;
        const int64_t columns = asp_round_up(b.n, 2 * ASP_VF);
        const float *keys = c->k + j * z->d, *values = c->v + j * z->e;
        const asp_mask_state seen =
            s->extra ? scores_see(s->extra, c->keys.first + j, at, n) : ASP_MASK_ALWAYS;
        if (seen == ASP_MASK_NEVER) continue;
        multiply_scores(n, columns, z->d, keys, s->queries, s->scores, ahead);
        multiply_scores(n, columns, z->e, values, s->douts, s->dscores, ahead);
        if (s->extra)
            extra_grads(z, s, at, n, seen);
        else {
            if (z->causal) mask_block(s->scores, b.at, at, n);
            score_grads(z, s, b.n, n, ahead);
        }
        multiply_by_scores(n, b.n, z->e, s->scores, dout, c->dv + j * z->e, ahead);
        multiply_by_scores(n, b.n, z->d, s->dscores, q, c->dk + j * z->d, ahead);
        multiply_by_transposed(b.n, n, z->d, s->dscores, keys, dq, ahead, !first || j > 0);
    }
}

// ---- chunks ------------------------------------------------------------------------------------

static void wait_for(atomic_uint *counter, unsigned value)
{
    for (int spins = 0; atomic_load_explicit(counter, memory_order_acquire) != value; spins++)
        if (spins > SPINS_BEFORE_YIELD) sched_yield();
}

static int64_t count_chunks(const asp_sdpa_sizes *z)
{
    int64_t n = 0;
    for (int i = 0; i < z->k_rows.n; i++) n += asp_ceil_div(z->k_rows.seg[i].n, ASP_SDPA_KEY_CHUNK);
    return n;
}

// The keys of chunk number `order` of a head.
static asp_segment keys_of(const asp_sdpa_sizes *z, int64_t n_chunks, int64_t order)
{
    int64_t i = z->causal ? n_chunks - 1 - order : order;
    for (int j = 0; j < z->k_rows.n; j++) {
        const asp_segment s = z->k_rows.seg[j];
        const int64_t chunks = asp_ceil_div(s.n, ASP_SDPA_KEY_CHUNK);
        const int64_t from = i * ASP_SDPA_KEY_CHUNK;
        if (i < chunks)
            return (asp_segment){s.first + from, asp_min(ASP_SDPA_KEY_CHUNK, s.n - from),
                                 s.at + from};
        i -= chunks;
    }
    return (asp_segment){0};
}

// Where pairs are hidden every chunk passes by every block, in turn.
static bool meets(const asp_sdpa_sizes *z, asp_segment keys, asp_sdpa_block b)
{
    if (z->hides) return b.n > 0;
    return b.n > 0 && asp_sdpa_seen(z->causal, keys, b.at + b.n - 1) > 0;
}

// Chunks before this one that add to dq of the block.
static unsigned chunks_before(const asp_sdpa_sizes *z, const chunk *c, asp_sdpa_block b)
{
    unsigned n = 0;
    if (z->hides) return (unsigned)c->order;
    for (int64_t o = 0; o < c->order; o++) n += meets(z, keys_of(z, c->n_chunks, o), b);
    return n;
}

static bool chunk_sees(const scores *s, asp_segment keys)
{
    for (int64_t j = 0; j < keys.n; j += KEYS)
        if (scores_see(s, keys.first + j, keys.at + j, asp_min(KEYS, keys.n - j)) != ASP_MASK_NEVER)
            return true;
    return false;
}

static void chunk_grad(const asp_kcall *k, const asp_sdpa_sizes *z, const scratch *s,
                       const chunk *c)
{
    const int64_t n_blocks = asp_sdpa_blocks(z, QUERIES);
    memset(c->dk, 0, (size_t)(c->keys.n * z->d) * sizeof(float));
    memset(c->dv, 0, (size_t)(c->keys.n * z->e) * sizeof(float));
    for (int64_t g = 0; g < z->group; g++) {
        const int64_t head = c->kv_head * z->group + g;
        for (int64_t i = 0; i < n_blocks; i++) {
            const asp_sdpa_block b = asp_sdpa_block_of(z, QUERIES, i);
            if (!meets(z, c->keys, b)) continue;
            const unsigned before = chunks_before(z, c, b);
            atomic_uint *counter = &s->counter[head * n_blocks + i];
            const int64_t row = head * z->n_q + b.q0;
            if (s->extra) scores_block(s->extra, head, b);
            const bool any = !z->hides || chunk_sees(s->extra, c->keys);
            if (any) load_block(k, z, s, row, b.n);
            wait_for(counter, before);
            if (any) block_grad(k, z, s, c, head, b, before == 0 && !z->hides);
            for (int64_t q = 0; z->hides && q < b.n; q++)
                if (s->flat[row + q] != 0) flat_grad(k, z, s, c, row + q, q);
            atomic_store_explicit(counter, before + 1, memory_order_release);
        }
    }
}

// What no block and no chunk writes: the tails; dq of queries that see no key; everything when no
// query sees one.
static void clear_rest(const asp_kcall *k, const asp_sdpa_sizes *z, asp_worker *w)
{
    const int64_t q0 = z->all_meet ? asp_rows_count(&z->q_rows) : 0, n_q = z->n_q - q0;
    const int64_t k0 = asp_sdpa_is_empty(z) ? 0 : asp_rows_count(&z->k_rows), n_k = z->n_k - k0;
    for (int64_t h; (h = asp_team_next(w, z->batch * z->heads)) >= 0;) {
        memset((float *)k->out[DQ].data + (h * z->n_q + q0) * z->d, 0,
               (size_t)(n_q * z->d) * sizeof(float));
        if (h >= z->batch * z->kv_heads) continue;
        memset((float *)k->out[DK].data + (h * z->n_k + k0) * z->d, 0,
               (size_t)(n_k * z->d) * sizeof(float));
        memset((float *)k->out[DV].data + (h * z->n_k + k0) * z->e, 0,
               (size_t)(n_k * z->e) * sizeof(float));
    }
    asp_team_barrier(w);
}

void ASP_ISA_NAME(asp_sdpa_grad_f32)(const asp_kcall *k, asp_worker *w)
{
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k, 6);
    if (z.d % ASP_VF || z.e % ASP_VF) {
        SDPA_GRAD_BELOW(k, w);
        return;
    }
    scratch s = scratch_in(k, &z, w->thread);
    scores extra;
    const int64_t n_chunks = count_chunks(&z);
    const bool rest =
        !z.all_meet || asp_rows_count(&z.q_rows) < z.n_q || asp_rows_count(&z.k_rows) < z.n_k;
    if (asp_sdpa_is_empty(&z)) {
        clear_rest(k, &z, w);
        return;
    }
    if (!z.plain) {
        float *behind = (float *)k->work + asp_sdpa_delta_floats(&z) + asp_sdpa_counters(&z) +
                        w->n_threads * asp_sdpa_thread_floats(&z);
        scores_in(&extra, k, &z, 6, behind, w->thread);
        asp_mask_bounds(&z, &extra.a, KEYS, extra.bounds, w);
        s.extra = &extra;
    }
    prepare(k, &z, &s, w); // the last to read out, whose memory dq may be
    if (rest) clear_rest(k, &z, w);
    for (int64_t i; (i = asp_team_next(w, z.batch * z.kv_heads * n_chunks)) >= 0;) {
        chunk c = {.order = i % n_chunks, .n_chunks = n_chunks, .kv_head = i / n_chunks};
        c.keys = keys_of(&z, n_chunks, c.order);
        const int64_t row = c.kv_head * z.n_k + c.keys.first;
        c.k = (const float *)k->in[K].data + row * z.d;
        c.v = (const float *)k->in[V].data + row * z.e;
        c.dk = (float *)k->out[DK].data + row * z.d;
        c.dv = (float *)k->out[DV].data + row * z.e;
        chunk_grad(k, &z, &s, &c);
    }
}
