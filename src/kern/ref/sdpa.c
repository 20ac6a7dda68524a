// Attention and its derivatives in plain C, f32 and f64, everything in double: the oracle of the
// flash kernels and what f64 programs run on.  Neighbours: op/attention.h (shapes, what the masks
// mean), kern/attend.h (masks), kern/sdpa.c (the fast ones).  SPDX-License-Identifier: Apache-2.0
//
//   s[q, j] = cap(scale q.k_j) + bias, for the keys that q sees, lse[q] = log (sum_j e^s + e^sink),
//   p = e^(s - lse), out = (p keep) v
//   dv_j = sum_q p keep dout_q;  ds = p (keep dout.v_j - delta_q), delta = out.dout;
//   dk_j = scale sum_q ds cap' q;  dq = scale sum_j ds cap' k_j;  dbias = ds;  dsink = - sum p_sink
//   delta
// q (B,N,Q,D)  k (B,K,S,D)  v (B,K,S,E)  out (B,N,Q,E)  lse (B,N,Q); query head h reads key head
// h / (N / K).  O(S) scratch a thread: nothing S x S.  A chunk is one query row, or one key row of
// all query heads that read it.
//
// A row that sees no key has lse = -infinity and the probabilities of its flat weight
// (op/attention.h).  On a ring that weight is of the keys of all ranks: a block gives its share of
// what a row gets that sees no key anywhere, and merging leaves it out where another block has one.
#include "kern/attend.h"
#include "kern/ref/ref.h"
#include "kern/sdpa_int.h"

#include <math.h>

typedef struct sizes {
    int64_t batch, heads, kv_heads, n_q, n_k, d, e;
    double scale;
    asp_rows q_rows, k_rows; // places of the rows in the sequence
    asp_attend a;
} sizes;

static sizes sizes_of(const asp_kcall *k, uint32_t first)
{
    const asp_tensor *q = &k->in[0], *key = &k->in[1], *v = &k->in[2];
    const asp_sdpa_attr *attr = k->attr;
    sizes z = {.batch = q->dim[0],
               .heads = q->dim[1],
               .kv_heads = key->dim[1],
               .n_q = q->dim[2],
               .n_k = key->dim[2],
               .d = q->dim[3],
               .e = v->dim[3],
               .scale = attr->scale};
    asp_sdpa_rows(k, &z.q_rows, &z.k_rows);
    asp_attend_of(k, first, &z.a);
    return z;
}

static double dot(const asp_tensor *a, int64_t i, const asp_tensor *b, int64_t j, int64_t n)
{
    double sum = 0;
    for (int64_t x = 0; x < n; x++) sum += asp_ref_get(a, i + x) * asp_ref_get(b, j + x);
    return sum;
}

// Row of k or v (in rows) that query head `head` (b * N + h) reads first.
static int64_t kv_row(const sizes *z, int64_t head)
{
    const int64_t h = head % z->heads, group = z->heads / z->kv_heads;
    return (head / z->heads * z->kv_heads + h / group) * z->n_k;
}

// A query row, b and h of its index, its place in the sequence; -1: of a tail, which sees nothing.
typedef struct query {
    int64_t row, batch, head, q, kv; // kv: its first row of k and v
} query;

static query query_of(const sizes *z, int64_t row)
{
    const int64_t head = row / z->n_q;
    return (query){row, head / z->heads, head % z->heads, asp_rows_place(&z->q_rows, row % z->n_q),
                   kv_row(z, head)};
}

// j: a row of k.
static bool sees(const sizes *z, const query *q, int64_t j)
{
    const int64_t at = asp_rows_place(&z->k_rows, j);
    return q->q >= 0 && at >= 0 && asp_attend_sees(&z->a, q->batch, q->q, at);
}

static double bias_of(const sizes *z, const query *q, int64_t j)
{
    return asp_attend_bias(&z->a, q->batch, q->head, q->q, asp_rows_place(&z->k_rows, j));
}

static double keep_of(const sizes *z, const query *q, int64_t j)
{
    return asp_attend_keep(&z->a, q->batch, q->head, q->q, asp_rows_place(&z->k_rows, j));
}

// The score of a pair, -infinity where the key is hidden, and its derivative by scale q.k.
static double score(const asp_kcall *k, const sizes *z, const query *q, int64_t j,
                    double *out_slope)
{
    *out_slope = 1;
    if (!sees(z, q, j)) return -HUGE_VAL;
    double s = z->scale * dot(&k->in[0], q->row * z->d, &k->in[1], (q->kv + j) * z->d, z->d);
    if (z->a.softcap > 0) {
        const double t = tanh(s / z->a.softcap);
        s = z->a.softcap * t;
        *out_slope = 1 - t * t;
    }
    const double bias = bias_of(z, q, j);
    return bias < ASP_HIDDEN_BIAS ? -HUGE_VAL : s + bias;
}

// ---- rows that see nothing ---------------------------------------------------------------------

// Is the key at this place hidden by a large negative bias alone?
static bool is_flat(const sizes *z, const query *q, int64_t at)
{
    return z->a.bias && asp_attend_sees(&z->a, q->batch, q->q, at) &&
           asp_attend_bias(&z->a, q->batch, q->head, q->q, at) > -HUGE_VAL;
}

// The probability of the flat keys of such a row; negative or NaN: of all keys; 0: of none.
static double flat_weight(const sizes *z, const query *q)
{
    int64_t n = 0;
    if (q->q < 0) return 0;
    for (int64_t at = 0; z->a.bias && at < z->a.n_keys; at++) n += is_flat(z, q, at);
    if (n > 0) return 1 / (double)n;
    switch (z->a.empty) {
    case ASP_ATTEND_ZERO: return 0;
    case ASP_ATTEND_MEAN: return -1 / (double)z->a.n_keys;
    case ASP_ATTEND_NAN: return (double)NAN;
    }
    return 0;
}

static double flat_probability(const sizes *z, const query *q, int64_t j, double weight)
{
    const int64_t at = asp_rows_place(&z->k_rows, j);
    if (at < 0) return 0; // of a tail
    if (weight > 0) return is_flat(z, q, at) ? weight : 0;
    return weight == 0 ? 0 : -weight;
}

int64_t asp_sdpa_ref_work(const asp_kcall *k, int n_threads)
{
    const int64_t n = k->in[1].dim[2] + k->in[0].dim[3] + k->in[2].dim[3];
    return n_threads * asp_round_up(n * (int64_t)sizeof(double), 64);
}

static double *scratch_of(const asp_kcall *k, const asp_worker *w)
{
    return (double *)(void *)((char *)k->work + asp_sdpa_ref_work(k, 1) * w->thread);
}

// ---- forward -----------------------------------------------------------------------------------

static void add_value(const asp_kcall *k, const sizes *z, const query *q, int64_t j, double p,
                      double *out)
{
    p *= keep_of(z, q, j);
    for (int64_t x = 0; x < z->e; x++) out[x] += p * asp_ref_get(&k->in[2], (q->kv + j) * z->e + x);
}

static void attend(const asp_kcall *k, const sizes *z, int64_t row, double *p)
{
    const query q = query_of(z, row);
    double *out = p + z->n_k, slope, sink = -HUGE_VAL;
    bool seen = z->a.sinks && q.q >= 0;
    if (seen) sink = asp_ref_get(z->a.sinks, q.head);
    double max = sink, lse = -HUGE_VAL;
    for (int64_t x = 0; x < z->e; x++) out[x] = 0;
    for (int64_t j = 0; j < z->n_k; j++) {
        p[j] = score(k, z, &q, j, &slope);
        seen |= p[j] != -HUGE_VAL;
        if (p[j] > max) max = p[j];
    }
    if (seen) {
        double sum = exp(sink - max);
        for (int64_t j = 0; j < z->n_k; j++) {
            if (p[j] == -HUGE_VAL) continue;
            p[j] = exp(p[j] - max);
            sum += p[j];
            add_value(k, z, &q, j, p[j], out);
        }
        for (int64_t x = 0; x < z->e; x++) out[x] /= sum;
        lse = max + log(sum);
    } else {
        const double weight = flat_weight(z, &q);
        for (int64_t j = 0; weight != 0 && j < z->n_k; j++)
            add_value(k, z, &q, j, flat_probability(z, &q, j, weight), out);
    }
    for (int64_t x = 0; x < z->e; x++) asp_ref_put(&k->out[0], row * z->e + x, out[x]);
    asp_ref_put(&k->out[1], row, lse);
}

void asp_sdpa_ref(const asp_kcall *k, asp_worker *w)
{
    const sizes z = sizes_of(k, 3);
    const int64_t n_rows = z.batch * z.heads * z.n_q;
    double *scratch = scratch_of(k, w);
    for (int64_t row; (row = asp_team_next(w, n_rows)) >= 0;) attend(k, &z, row, scratch);
}

// ---- derivative --------------------------------------------------------------------------------

enum { Q, K, V, OUT, LSE, DOUT }; // operands of sdpa_grad

// Of each query row, between the threads.
typedef struct per_row {
    double *delta, *flat; // out.dout; the flat weight, where lse is -infinity
} per_row;

static int64_t rows_bytes(const asp_kcall *k)
{
    return asp_round_up(2 * asp_tensor_rows(&k->in[0]) * (int64_t)sizeof(double), 64);
}

int64_t asp_sdpa_grad_ref_work(const asp_kcall *k, int n_threads)
{
    return asp_sdpa_ref_work(k, n_threads) + rows_bytes(k);
}

int64_t asp_sdpa_bias_grad_ref_work(const asp_kcall *k, int n_threads)
{
    return asp_sdpa_grad_ref_work(k, n_threads);
}

static per_row per_row_of(const asp_kcall *k, const asp_worker *w)
{
    double *at = (double *)(void *)((char *)k->work + asp_sdpa_ref_work(k, w->n_threads));
    return (per_row){at, at + asp_tensor_rows(&k->in[0])};
}

static void prepare_rows(const asp_kcall *k, const sizes *z, per_row r, asp_worker *w)
{
    const int64_t n_rows = z->batch * z->heads * z->n_q;
    for (int64_t row; (row = asp_team_next(w, n_rows)) >= 0;) {
        const query q = query_of(z, row);
        r.delta[row] = dot(&k->in[OUT], row * z->e, &k->in[DOUT], row * z->e, z->e);
        r.flat[row] = asp_ref_get(&k->in[LSE], row) == -HUGE_VAL ? flat_weight(z, &q) : 0;
    }
    asp_team_barrier(w);
}

// Of one query row and one key: what v gets of dout, d score, and that by scale q.k.
typedef struct pair {
    double p, ds, dqk;
} pair;

static pair pair_grad(const asp_kcall *k, const sizes *z, const query *q, int64_t j, per_row r)
{
    const double lse = asp_ref_get(&k->in[LSE], q->row);
    double slope, p, s = score(k, z, q, j, &slope);
    if (lse == -HUGE_VAL)
        p = flat_probability(z, q, j, r.flat[q->row]);
    else
        p = s == -HUGE_VAL ? 0 : exp(s - lse);
    if (p == 0) return (pair){0};
    const double keep = keep_of(z, q, j);
    if (r.flat[q->row] < 0) return (pair){p * keep, 0, 0}; // of no score
    const double dv = dot(&k->in[DOUT], q->row * z->e, &k->in[V], (q->kv + j) * z->e, z->e);
    const double ds = p * (keep * dv - r.delta[q->row]);
    return (pair){p * keep, ds, ds * slope};
}

static void query_grad(const asp_kcall *k, const sizes *z, int64_t row, per_row r, double *dq)
{
    const query q = query_of(z, row);
    for (int64_t x = 0; x < z->d; x++) dq[x] = 0;
    for (int64_t j = 0; j < z->n_k; j++) {
        const double ds = pair_grad(k, z, &q, j, r).dqk;
        for (int64_t x = 0; ds != 0 && x < z->d; x++)
            dq[x] += ds * asp_ref_get(&k->in[K], (q.kv + j) * z->d + x);
    }
    for (int64_t x = 0; x < z->d; x++) asp_ref_put(&k->out[0], row * z->d + x, z->scale * dq[x]);
}

static void key_grad(const asp_kcall *k, const sizes *z, int64_t key_row, per_row r, double *dk)
{
    const int64_t kv_head = key_row / z->n_k, j = key_row % z->n_k;
    const int64_t group = z->heads / z->kv_heads;
    double *dv = dk + z->d;
    for (int64_t x = 0; x < z->d + z->e; x++) dk[x] = 0;
    for (int64_t i = 0; i < group * z->n_q; i++) {
        const int64_t row = kv_head * group * z->n_q + i;
        const query q = query_of(z, row);
        const pair g = pair_grad(k, z, &q, j, r);
        if (g.p == 0 && g.dqk == 0) continue;
        for (int64_t x = 0; x < z->d; x++) dk[x] += g.dqk * asp_ref_get(&k->in[Q], row * z->d + x);
        for (int64_t x = 0; x < z->e; x++) dv[x] += g.p * asp_ref_get(&k->in[DOUT], row * z->e + x);
    }
    for (int64_t x = 0; x < z->d; x++)
        asp_ref_put(&k->out[1], key_row * z->d + x, z->scale * dk[x]);
    for (int64_t x = 0; x < z->e; x++) asp_ref_put(&k->out[2], key_row * z->e + x, dv[x]);
}

void asp_sdpa_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const sizes z = sizes_of(k, 6);
    const int64_t n_rows = z.batch * z.heads * z.n_q, n_keys = z.batch * z.kv_heads * z.n_k;
    const per_row r = per_row_of(k, w);
    double *scratch = scratch_of(k, w);
    prepare_rows(k, &z, r, w);
    for (int64_t row; (row = asp_team_next(w, n_rows)) >= 0;) query_grad(k, &z, row, r, scratch);
    asp_team_barrier(w);
    for (int64_t row; (row = asp_team_next(w, n_keys)) >= 0;) key_grad(k, &z, row, r, scratch);
}

// ---- bias and sinks ----------------------------------------------------------------------------

// Element i of the bias: the sum over the pairs that read it.
static double bias_grad(const asp_kcall *k, const sizes *z, const int64_t *at, per_row r)
{
    const int64_t n[] = {z->batch, z->heads, z->n_q, z->n_k};
    int64_t from[4], to[4];
    double sum = 0;
    for (int d = 0; d < 4; d++) {
        const bool one = z->a.bias_dim[d] == 1;
        from[d] = one ? 0 : at[d];
        to[d] = one ? n[d] : at[d] + 1;
    }
    for (int64_t b = from[0]; b < to[0]; b++)
        for (int64_t h = from[1]; h < to[1]; h++)
            for (int64_t i = from[2]; i < to[2]; i++) {
                const query q = query_of(z, (b * z->heads + h) * z->n_q + i);
                for (int64_t j = from[3]; j < to[3]; j++) sum += pair_grad(k, z, &q, j, r).ds;
            }
    return sum;
}

void asp_sdpa_bias_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const sizes z = sizes_of(k, 6);
    const per_row r = per_row_of(k, w);
    prepare_rows(k, &z, r, w);
    const int64_t n = asp_tensor_count(&k->out[0]);
    for (int64_t i; (i = asp_team_next(w, n)) >= 0;) {
        int64_t at[4], rest = i;
        for (int d = 3; d >= 0; d--) {
            at[d] = rest % z.a.bias_dim[d];
            rest /= z.a.bias_dim[d];
        }
        asp_ref_put(&k->out[0], i, bias_grad(k, &z, at, r));
    }
}

// d sink = - sum of e^(sink - lse) out.dout over the rows of the head
void asp_sdpa_sink_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *sinks = &k->in[0], *out = &k->in[1], *lse = &k->in[2], *dout = &k->in[3];
    const int64_t heads = out->dim[1], n_q = out->dim[2], e = out->dim[3];
    for (int64_t h; (h = asp_team_next(w, heads)) >= 0;) {
        const double sink = asp_ref_get(sinks, h);
        double sum = 0;
        for (int64_t b = 0; b < out->dim[0]; b++)
            for (int64_t q = 0; q < n_q; q++) {
                const int64_t row = (b * heads + h) * n_q + q;
                if (asp_ref_get(lse, row) == -HUGE_VAL) continue; // a row of a tail
                sum -= exp(sink - asp_ref_get(lse, row)) * dot(out, row * e, dout, row * e, e);
            }
        asp_ref_put(&k->out[0], h, sum);
    }
}
