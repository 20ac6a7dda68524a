// The loss in vector types, one source for every level: log-sum-exp of each row, its label's
// negative log-likelihood, and the gradient of the logits.  A row of logits is read twice, the
// second time from cache.  Neighbours: kern.def (rows), ref/nll.c (oracle), rowprog_isa.c (the same
// order of sums).  SPDX-License-Identifier: Apache-2.0
#include "kern/half.h"
#include "kern/kern_int.h"
#include "kern/line.h"

#include <math.h>

#define BLOCK 64 // rows whose losses are added in double before the blocks are

// The parts of a call that rows share.
typedef struct shared {
    const asp_kcall *k;
    asp_nll_attr a;
    const asp_tensor *logits; // f32 or bf16
    const float *weights;     // NULL: 1
    float *row;               // of this thread: a row of bf16 logits in f32
    const int64_t *labels;
    int64_t rows, V;
    double all_weights;
} shared;

static shared shared_of(const asp_kcall *k, int labels, int weights)
{
    const asp_tensor *logits = &k->in[0];
    shared s = {.k = k,
                .a = *(const asp_nll_attr *)k->attr,
                .logits = logits,
                .labels = k->in[labels].data,
                .rows = asp_tensor_rows(logits),
                .V = logits->dim[logits->rank - 1]};
    if (weights) s.weights = k->in[weights].data;
    s.all_weights = (double)s.V;
    if (!s.weights || s.a.smoothing == 0) return s;
    s.all_weights = 0.0;
    for (int64_t c = 0; c < s.V; c++) s.all_weights += (double)s.weights[c];
    return s;
}

// bf16 rows go to the thread's scratch, which stands behind `used` bytes.
static void find_row_scratch(shared *s, const asp_worker *w, int64_t used)
{
    if (s->logits->dtype != ASP_BF16) return;
    s->row = (float *)(void *)((char *)s->k->work + asp_round_up(used, 64)) +
             w->thread * asp_round_up(s->V, 16);
}

static const float *row_of(const shared *s, int64_t row)
{
    if (!s->row) return (const float *)s->logits->data + row * s->V;
    const uint16_t *half = (const uint16_t *)s->logits->data + row * s->V;
    int64_t i = 0;
    for (; i + ASP_VF <= s->V; i += ASP_VF) asp_vf_store(s->row + i, asp_vf_load_half(half + i));
    for (; i < s->V; i++) s->row[i] = asp_from_bf16(half[i]);
    return s->row;
}

static double weight(const shared *s, int64_t c)
{
    return s->weights ? (double)s->weights[c] : 1.0;
}

// ---- one row -----------------------------------------------------------------------------------

// c tanh(x / c), or x where c is 0.
ASP_INLINE asp_vf capped(asp_vf x, float c) { return c > 0 ? c * asp_vf_tanh(x * (1.0f / c)) : x; }
static float capped_one(float x, float c) { return capped(asp_vf_all(x), c)[0]; }

// Sum of e^(z - most) over soft-capped logits z.
static float sum_exp_capped(const float *x, int64_t n, float most, float cap)
{
    const asp_vf m = asp_vf_all(most);
    asp_vf acc[LINE_ACCS];
    for (int k = 0; k < LINE_ACCS; k++) acc[k] = asp_vf_all(0.0f);
    int64_t i = 0;
    while (i + LINE_PARTIALS <= n)
        for (int k = 0; k < LINE_ACCS; k++, i += ASP_VF)
            acc[k] += asp_vf_exp(capped(asp_vf_load(x + i), cap) - m);
    for (int k = 0; i < n; k++, i += ASP_VF) {
        float part[ASP_VF];
        const int64_t left = asp_min(ASP_VF, n - i);
        asp_vf_store(part, asp_vf_exp(capped(asp_vf_load_part(x + i, left), cap) - m));
        acc[k] += asp_vf_load_part(part, left);
    }
    return line_tree(acc);
}

// Sum of w z.
static float dot_capped(const float *w, const float *x, int64_t n, float cap)
{
    asp_vf acc[LINE_ACCS];
    for (int k = 0; k < LINE_ACCS; k++) acc[k] = asp_vf_all(0.0f);
    for (int64_t i = 0; i < n; i += ASP_VF) {
        const int64_t left = asp_min(ASP_VF, n - i); // beyond the end z is 0
        const asp_vf z = capped(asp_vf_load_part(x + i, left), cap);
        acc[i / ASP_VF % LINE_ACCS] += w ? asp_vf_load_part(w + i, left) * z : z;
    }
    return line_tree(acc);
}

static double lse_of(const float *x, int64_t V, float cap)
{
    const float most = capped_one(line_max(x, V), cap);
    const float sum = cap > 0 ? sum_exp_capped(x, V, most, cap) : line_sum_exp(x, V, most);
    return (double)most + log((double)sum);
}

static double loss_of(const shared *s, int64_t row, const float *x, double lse)
{
    const int64_t label = s->labels[row];
    const float cap = (float)s->a.softcap;
    const double e = s->a.smoothing;
    if (label == s->a.ignore) return 0.0;
    if (!asp_kcall_index(s->k, label, s->V)) return 0.0;
    const double loss = (1.0 - e) * weight(s, label) * (lse - (double)capped_one(x[label], cap));
    if (e == 0) return loss;
    return loss +
           e / (double)s->V * (s->all_weights * lse - (double)dot_capped(s->weights, x, s->V, cap));
}

// in: logits (..., V), labels (...), class weights or not; out: the sum or each row's, lse (...);
// work: a double for each 64 rows; carry: the sum of the chunks before.
void ASP_ISA_NAME(asp_nll_f32)(const asp_kcall *k, asp_worker *w)
{
    shared s = shared_of(k, 1, k->n_in == 3 ? 2 : 0);
    const int64_t blocks = asp_ceil_div(s.rows, BLOCK);
    float *lse = k->out[1].data, *loss = k->out[0].data;
    double *partial = k->work;
    int64_t b;
    find_row_scratch(&s, w, blocks * (int64_t)sizeof *partial);
    while ((b = asp_team_next(w, blocks)) >= 0) {
        double sum = 0.0;
        for (int64_t i = b * BLOCK; i < asp_min(s.rows, (b + 1) * BLOCK); i++) {
            const float *x = row_of(&s, i);
            const double exact = lse_of(x, s.V, (float)s.a.softcap);
            const double here = loss_of(&s, i, x, exact);
            lse[i] = (float)exact;
            if (s.a.rows) loss[i] = (float)here;
            sum += here;
        }
        partial[b] = sum;
    }
    asp_team_barrier(w);
    if (w->thread != 0 || s.a.rows) return;
    double sum = asp_carried_sum(k);
    for (b = 0; b < blocks; b++) sum += partial[b];
    asp_carry_sum(k, sum);
    loss[0] = (float)sum;
}

// ---- the derivative ----------------------------------------------------------------------------

// g * (softmax - one at the label)
static void grad_row(float *y, const float *x, int64_t V, float lse, int64_t label, float g)
{
    const asp_vf l = asp_vf_all(lse), scale = asp_vf_all(g);
    const float at_label = x[label]; // y may be x
    int64_t i = 0;
    for (; i + ASP_VF <= V; i += ASP_VF)
        asp_vf_store(y + i, scale * asp_vf_exp(asp_vf_load(x + i) - l));
    if (i < V)
        asp_vf_store_part(y + i, scale * asp_vf_exp(asp_vf_load_part(x + i, V - i) - l), V - i);
    const asp_vf p = asp_vf_exp(asp_vf_all(at_label) - l);
    y[label] = g * (p[0] - 1.0f);
}

// dz = soft * softmax - each * w, through the soft cap; `hot` less at the label.
typedef struct slope {
    float soft, each, hot, lse, cap;
} slope;

ASP_INLINE asp_vf slope_at(const slope *d, asp_vf x, asp_vf w, float hot)
{
    const asp_vf z = capped(x, d->cap);
    asp_vf dz = d->soft * asp_vf_exp(z - d->lse) - d->each * w - hot;
    if (d->cap > 0) {
        const asp_vf t = z * (1.0f / d->cap);
        dz = dz * (1.0f - t * t);
    }
    return dz;
}

static void slope_row(const shared *s, const slope *d, float *y, const float *x, int64_t label)
{
    const asp_vf one = asp_vf_all(1.0f);
    const float at_label = x[label]; // y may be x
    for (int64_t i = 0; i < s->V; i += ASP_VF) {
        const int64_t left = asp_min(ASP_VF, s->V - i);
        const asp_vf w = s->weights ? asp_vf_load_part(s->weights + i, left) : one;
        asp_vf_store_part(y + i, slope_at(d, asp_vf_load_part(x + i, left), w, 0.0f), left);
    }
    const asp_vf w = asp_vf_all((float)weight(s, label));
    y[label] = slope_at(d, asp_vf_all(at_label), w, d->hot)[0];
}

static void grad_of(const asp_kcall *k, const shared *s, bool has_d_lse, bool plain, int64_t i,
                    const float *x, float *y)
{
    const int64_t label = s->labels[i];
    const float lse = ((const float *)k->in[1].data)[i];
    const float g = ((const float *)k->in[3].data)[s->a.rows ? i : 0];
    if (label == s->a.ignore || !asp_kcall_index(k, label, s->V)) {
        memset(y, 0, (size_t)s->V * sizeof *y);
    } else if (plain) {
        grad_row(y, x, s->V, lse, label, g);
    } else {
        const double e = s->a.smoothing, each = (double)g * e / (double)s->V;
        const double hot = (double)g * (1.0 - e) * weight(s, label);
        const double d_lse = has_d_lse ? (double)((const float *)k->in[4].data)[i] : 0.0;
        const slope d = {(float)(hot + each * s->all_weights + d_lse), (float)each, (float)hot, lse,
                         (float)s->a.softcap};
        slope_row(s, &d, y, x, label);
    }
}

static void grad_of_row(const asp_kcall *k, const shared *s, bool has_d_lse, bool plain, int64_t i)
{
    const float *x = row_of(s, i);
    if (!s->row) {
        grad_of(k, s, has_d_lse, plain, i, x, (float *)k->out[0].data + i * s->V);
        return;
    }
    uint16_t *y = (uint16_t *)k->out[0].data + i * s->V;
    int64_t j = 0;
    grad_of(k, s, has_d_lse, plain, i, x, s->row);
    for (; j + ASP_VF <= s->V; j += ASP_VF) asp_vf_store_half(y + j, asp_vf_load(s->row + j));
    for (; j < s->V; j++) y[j] = asp_to_bf16(s->row[j]);
}

// in: logits, lse, labels, d loss (one or each row's), d lse or not, class weights or not.  May run
// in place on the logits, of whose dtype the result is.
void ASP_ISA_NAME(asp_nll_grad_f32)(const asp_kcall *k, asp_worker *w)
{
    const bool weighted = ((const asp_nll_attr *)k->attr)->weighted;
    const bool has_d_lse = k->n_in - weighted == 5;
    shared s = shared_of(k, 2, weighted ? k->n_in - 1 : 0);
    const bool plain = !weighted && !has_d_lse && s.a.smoothing == 0 && s.a.softcap == 0;
    const int64_t each = asp_max(1, 32768 / s.V);
    int64_t chunk;
    find_row_scratch(&s, w, 0);
    while ((chunk = asp_team_next(w, asp_ceil_div(s.rows, each))) >= 0)
        for (int64_t i = chunk * each; i < asp_min(s.rows, (chunk + 1) * each); i++)
            grad_of_row(k, &s, has_d_lse, plain, i);
}
