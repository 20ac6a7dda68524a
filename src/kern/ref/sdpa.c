// Attention and its derivative in plain C, f32 and f64, everything in double: the oracle of the
// flash kernels and what f64 programs run on.  Neighbours: op/attention.c (shapes, derivative),
// kern/sdpa.c (the fast ones).  SPDX-License-Identifier: Apache-2.0
//
//   s[q, j] = scale q.k_j (j <= q when causal), lse[q] = log sum_j e^s, p = e^(s - lse), out = p v
//   dv_j = sum_q p dout_q;  ds = p (dout.v_j - delta_q), delta = out.dout;
//   dk_j = scale sum_q ds q;  dq = scale sum_j ds k_j
// q (B,N,Q,D)  k (B,K,S,D)  v (B,K,S,E)  out (B,N,Q,E)  lse (B,N,Q); query head h reads key head
// h / (N / K).  O(S) scratch a thread: nothing S x S.  A chunk is one query row, or one key row of
// all query heads that read it.
#include "kern/ref/ref.h"

#include <math.h>

typedef struct sizes {
    int64_t batch, heads, kv_heads, n_q, n_k, d, e;
    double scale;
    bool causal;
} sizes;

static sizes sizes_of(const asp_kcall *k)
{
    const asp_tensor *q = &k->in[0], *key = &k->in[1], *v = &k->in[2];
    const asp_sdpa_attr *attr = k->attr;
    return (sizes){q->dim[0], q->dim[1], key->dim[1], q->dim[2],   key->dim[2],
                   q->dim[3], v->dim[3], attr->scale, attr->causal};
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

int64_t asp_sdpa_ref_work(const asp_kcall *k, int n_threads)
{
    const sizes z = sizes_of(k);
    return n_threads * asp_round_up((z.n_k + z.d + z.e) * (int64_t)sizeof(double), 64);
}

static double *scratch_of(const asp_kcall *k, const asp_worker *w)
{
    return (double *)(void *)((char *)k->work + asp_sdpa_ref_work(k, 1) * w->thread);
}

// ---- forward -----------------------------------------------------------------------------------

static void attend(const asp_kcall *k, const sizes *z, int64_t row, double *p)
{
    const asp_tensor *q = &k->in[0], *key = &k->in[1], *v = &k->in[2];
    const int64_t kv = kv_row(z, row / z->n_q);
    const int64_t live = z->causal ? asp_min(row % z->n_q + 1, z->n_k) : z->n_k;
    double max = -HUGE_VAL, sum = 0, *out = p + z->n_k;
    for (int64_t j = 0; j < live; j++) {
        p[j] = z->scale * dot(q, row * z->d, key, (kv + j) * z->d, z->d);
        if (p[j] > max) max = p[j];
    }
    for (int64_t x = 0; x < z->e; x++) out[x] = 0;
    for (int64_t j = 0; j < live; j++) {
        p[j] = exp(p[j] - max);
        sum += p[j];
        for (int64_t x = 0; x < z->e; x++) out[x] += p[j] * asp_ref_get(v, (kv + j) * z->e + x);
    }
    for (int64_t x = 0; x < z->e; x++) asp_ref_put(&k->out[0], row * z->e + x, out[x] / sum);
    asp_ref_put(&k->out[1], row, max + log(sum));
}

void asp_sdpa_ref(const asp_kcall *k, asp_worker *w)
{
    const sizes z = sizes_of(k);
    const int64_t n_rows = z.batch * z.heads * z.n_q;
    double *scratch = scratch_of(k, w);
    for (int64_t row; (row = asp_team_next(w, n_rows)) >= 0;) attend(k, &z, row, scratch);
}

// ---- derivative --------------------------------------------------------------------------------

enum { Q, K, V, OUT, LSE, DOUT }; // operands of sdpa_grad

int64_t asp_sdpa_grad_ref_work(const asp_kcall *k, int n_threads)
{
    const sizes z = sizes_of(k);
    const int64_t delta_bytes = z.batch * z.heads * z.n_q * (int64_t)sizeof(double);
    return asp_sdpa_ref_work(k, n_threads) + asp_round_up(delta_bytes, 64);
}

// p and ds of one query row and one key row.
static double score_grad(const asp_kcall *k, const sizes *z, int64_t row, int64_t key_row,
                         double delta, double *out_p)
{
    const double s = z->scale * dot(&k->in[Q], row * z->d, &k->in[K], key_row * z->d, z->d);
    const double p = exp(s - asp_ref_get(&k->in[LSE], row));
    *out_p = p;
    return p * (dot(&k->in[DOUT], row * z->e, &k->in[V], key_row * z->e, z->e) - delta);
}

static void query_grad(const asp_kcall *k, const sizes *z, int64_t row, double *delta, double *dq)
{
    const int64_t kv = kv_row(z, row / z->n_q);
    const int64_t live = z->causal ? asp_min(row % z->n_q + 1, z->n_k) : z->n_k;
    double p;
    delta[row] = dot(&k->in[OUT], row * z->e, &k->in[DOUT], row * z->e, z->e);
    for (int64_t x = 0; x < z->d; x++) dq[x] = 0;
    for (int64_t j = 0; j < live; j++) {
        const double ds = score_grad(k, z, row, kv + j, delta[row], &p);
        for (int64_t x = 0; x < z->d; x++)
            dq[x] += ds * asp_ref_get(&k->in[K], (kv + j) * z->d + x);
    }
    for (int64_t x = 0; x < z->d; x++) asp_ref_put(&k->out[0], row * z->d + x, z->scale * dq[x]);
}

static void key_grad(const asp_kcall *k, const sizes *z, int64_t key_row, const double *delta,
                     double *dk)
{
    const int64_t kv_head = key_row / z->n_k, j = key_row % z->n_k;
    const int64_t group = z->heads / z->kv_heads;
    double p, *dv = dk + z->d;
    for (int64_t x = 0; x < z->d + z->e; x++) dk[x] = 0;
    for (int64_t h = 0; h < group; h++)
        for (int64_t i = z->causal ? j : 0; i < z->n_q; i++) {
            const int64_t row = (kv_head * group + h) * z->n_q + i;
            const double ds = score_grad(k, z, row, key_row, delta[row], &p);
            for (int64_t x = 0; x < z->d; x++) dk[x] += ds * asp_ref_get(&k->in[Q], row * z->d + x);
            for (int64_t x = 0; x < z->e; x++)
                dv[x] += p * asp_ref_get(&k->in[DOUT], row * z->e + x);
        }
    for (int64_t x = 0; x < z->d; x++)
        asp_ref_put(&k->out[1], key_row * z->d + x, z->scale * dk[x]);
    for (int64_t x = 0; x < z->e; x++) asp_ref_put(&k->out[2], key_row * z->e + x, dv[x]);
}

void asp_sdpa_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const sizes z = sizes_of(k);
    const int64_t n_rows = z.batch * z.heads * z.n_q, n_keys = z.batch * z.kv_heads * z.n_k;
    double *scratch = scratch_of(k, w);
    double *delta = (double *)(void *)((char *)k->work + asp_sdpa_ref_work(k, w->n_threads));
    for (int64_t row; (row = asp_team_next(w, n_rows)) >= 0;)
        query_grad(k, &z, row, delta, scratch);
    asp_team_barrier(w);
    for (int64_t row; (row = asp_team_next(w, n_keys)) >= 0;) key_grad(k, &z, row, delta, scratch);
}
