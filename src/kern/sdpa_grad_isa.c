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
#include "kern/softmax.h"

#include <sched.h>
#include <stdatomic.h>

enum { Q, K, V, OUT, LSE, DOUT };   // operands of sdpa_grad
enum { DQ, DK, DV };                // results
enum { SPINS_BEFORE_YIELD = 2000 }; // a rank may share its core

typedef struct scratch {
    float *delta;         // (B, N, Q), scale * sum of out * dout
    atomic_uint *counter; // (B * N, blocks): chunks that are in dq of the block
    // of this thread
    float *queries, *douts;  // (D, QUERIES), (E, QUERIES): transposed; queries times scale log2(e)
    float *scores, *dscores; // (KEYS, QUERIES)
    float *lse, *delta_of;   // QUERIES: lse in log2; delta
} scratch;

static scratch scratch_in(const asp_kcall *k, const asp_sdpa_sizes *z, int thread)
{
    scratch s = {.delta = k->work};
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

static void prepare(const asp_kcall *k, const asp_sdpa_sizes *z, const scratch *s, asp_worker *w)
{
    enum { ROWS = 256 };
    const float *out = k->in[OUT].data, *dout = k->in[DOUT].data;
    const int64_t n_rows = z->batch * z->heads * z->n_q, n_counters = asp_sdpa_counters(z);
    for (int64_t i = w->thread; i < n_counters; i += w->n_threads)
        atomic_store_explicit(&s->counter[i], 0, memory_order_relaxed);
    for (int64_t i; (i = asp_team_next(w, asp_ceil_div(n_rows, ROWS))) >= 0;)
        for (int64_t row = i * ROWS; row < asp_min(n_rows, (i + 1) * ROWS); row++)
            s->delta[row] = z->scale * dot(out + row * z->e, dout + row * z->e, z->e);
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

static void block_grad(const asp_kcall *k, const asp_sdpa_sizes *z, const scratch *s,
                       const chunk *c, int64_t head, asp_sdpa_block b, bool first)
{
    const int64_t row = head * z->n_q + b.q0;
    const float *q = (const float *)k->in[Q].data + row * z->d;
    const float *dout = (const float *)k->in[DOUT].data + row * z->e;
    float *dq = (float *)k->out[DQ].data + row * z->d;
    const int64_t end = asp_sdpa_seen(z->causal, c->keys, b.at + b.n - 1);
    for (int64_t j = 0; j < end; j += KEYS) {
        const int64_t n = asp_min(KEYS, end - j);
        const int64_t ahead = z->causal ? c->keys.at + j - b.at : NOT_CAUSAL;
        const int64_t columns = asp_round_up(b.n, 2 * ASP_VF);
        const float *keys = c->k + j * z->d, *values = c->v + j * z->e;
        multiply_scores(n, columns, z->d, keys, s->queries, s->scores, ahead);
        multiply_scores(n, columns, z->e, values, s->douts, s->dscores, ahead);
        if (z->causal) mask_block(s->scores, b.at, c->keys.at + j, n);
        score_grads(z, s, b.n, n, ahead);
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

static bool meets(const asp_sdpa_sizes *z, asp_segment keys, asp_sdpa_block b)
{
    return b.n > 0 && asp_sdpa_seen(z->causal, keys, b.at + b.n - 1) > 0;
}

// Chunks before this one that add to dq of the block.
static unsigned chunks_before(const asp_sdpa_sizes *z, const chunk *c, asp_sdpa_block b)
{
    unsigned n = 0;
    for (int64_t o = 0; o < c->order; o++) n += meets(z, keys_of(z, c->n_chunks, o), b);
    return n;
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
            load_block(k, z, s, head * z->n_q + b.q0, b.n);
            wait_for(counter, before);
            block_grad(k, z, s, c, head, b, before == 0);
            atomic_store_explicit(counter, before + 1, memory_order_release);
        }
    }
}

// What no block and no chunk writes: the tails; dq of queries that see no key.
static void clear_rest(const asp_kcall *k, const asp_sdpa_sizes *z, asp_worker *w)
{
    const int64_t q0 = z->all_meet ? asp_rows_count(&z->q_rows) : 0, n_q = z->n_q - q0;
    const int64_t k0 = asp_rows_count(&z->k_rows), n_k = z->n_k - k0;
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
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k);
    if (!z.plain) {
        asp_sdpa_grad_ref(k, w);
        return;
    }
    if (z.d % ASP_VF || z.e % ASP_VF) {
        SDPA_GRAD_BELOW(k, w);
        return;
    }
    const scratch s = scratch_in(k, &z, w->thread);
    const int64_t n_chunks = count_chunks(&z);
    if (!z.all_meet || asp_rows_count(&z.q_rows) < z.n_q || asp_rows_count(&z.k_rows) < z.n_k)
        clear_rest(k, &z, w);
    if (asp_sdpa_is_empty(&z)) return;
    prepare(k, &z, &s, w);
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
