// Reference kernels of the loss.  A label that is neither a class nor ignored fails the step.
// Neighbours: op/loss.c (what they mean), nll_isa.c (fast).  SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

#include <math.h>

// The parts of a call that rows share.
typedef struct shared {
    const asp_kcall *k;
    asp_nll_attr a;
    const asp_tensor *x, *labels, *weights; // weights NULL: 1
    int64_t rows, V;
    double all_weights;
} shared;

static double weight(const shared *s, int64_t c)
{
    return s->weights ? asp_ref_get(s->weights, c) : 1.0;
}

static shared shared_of(const asp_kcall *k, int labels, int weights)
{
    shared s = {
        .k = k, .a = *(const asp_nll_attr *)k->attr, .x = &k->in[0], .labels = &k->in[labels]};
    s.rows = asp_tensor_rows(s.x);
    s.V = s.x->dim[s.x->rank - 1];
    if (weights) s.weights = &k->in[weights];
    for (int64_t c = 0; c < s.V; c++) s.all_weights += weight(&s, c);
    return s;
}

static double logit(const shared *s, int64_t row, int64_t c)
{
    double x = asp_ref_get(s->x, row * s->V + c), cap = s->a.softcap;
    return cap > 0 ? cap * tanh(x / cap) : x;
}

static double log_sum_exp(const shared *s, int64_t row)
{
    double most = -HUGE_VAL, sum = 0.0;
    for (int64_t c = 0; c < s->V; c++) most = fmax(most, logit(s, row, c));
    for (int64_t c = 0; c < s->V; c++) sum += exp(logit(s, row, c) - most);
    return most + log(sum);
}

static double loss_of(const shared *s, int64_t row, double lse)
{
    const int64_t label = asp_ref_id(s->labels, row);
    const double e = s->a.smoothing;
    double dot = 0.0;
    if (label == s->a.ignore) return 0.0;
    if (!asp_kcall_index(s->k, label, s->V)) return 0.0;
    double loss = (1.0 - e) * weight(s, label) * (lse - logit(s, row, label));
    if (e == 0) return loss;
    for (int64_t c = 0; c < s->V; c++) dot += weight(s, c) * logit(s, row, c);
    return loss + e / (double)s->V * (s->all_weights * lse - dot);
}

// in: logits (..., V), labels (...), class weights or not; out: the sum or each row's, lse (...).
void asp_nll_ref(const asp_kcall *k, asp_worker *w)
{
    const shared s = shared_of(k, 1, k->n_in == 3 ? 2 : 0);
    const asp_tensor *lse = &k->out[1];
    ASP_REF_EACH(i, w, s.rows)
    {
        double l = log_sum_exp(&s, i.at);
        asp_ref_put(lse, i.at, l);
        if (s.a.rows) asp_ref_put(&k->out[0], i.at, loss_of(&s, i.at, l));
    }
    if (s.a.rows) return;
    asp_team_barrier(w);
    if (w->thread != 0) return;
    double sum = asp_carried_sum(k);
    for (int64_t i = 0; i < s.rows; i++) sum += loss_of(&s, i, asp_ref_get(lse, i));
    asp_carry_sum(k, sum);
    asp_ref_put(&k->out[0], 0, sum);
}

// in: logits, lse, labels, d loss (one or each row's), d lse or not, class weights or not; out:
// d logits, exactly 0 in ignored rows whatever the cotangents are.  May run in place on the logits.
void asp_nll_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_nll_attr *a = k->attr;
    const bool has_d_lse = k->n_in - a->weighted == 5;
    const shared s = shared_of(k, 2, a->weighted ? k->n_in - 1 : 0);
    const double e = s.a.smoothing, each = e / (double)s.V;
    ASP_REF_EACH(i, w, s.rows)
    {
        const int64_t label = asp_ref_id(s.labels, i.at);
        const bool ignored = label == s.a.ignore || !asp_kcall_index(k, label, s.V);
        double g = asp_ref_get(&k->in[3], s.a.rows ? i.at : 0), lse = asp_ref_get(&k->in[1], i.at);
        const double hot = ignored ? 0.0 : g * (1.0 - e) * weight(&s, label);
        double soft = hot + g * each * s.all_weights;
        if (has_d_lse) soft += asp_ref_get(&k->in[4], i.at);
        for (int64_t c = 0; c < s.V; c++) {
            double z = logit(&s, i.at, c), d = soft * exp(z - lse) - g * each * weight(&s, c);
            if (c == label) d -= hot;
            if (s.a.softcap > 0) d *= 1.0 - z / s.a.softcap * (z / s.a.softcap);
            asp_ref_put(&k->out[0], i.at * s.V + c, ignored ? 0.0 : d);
        }
    }
}

// ---- choosing by label -------------------------------------------------------------------------

void asp_pick_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t ignore = ((const asp_pick_attr *)k->attr)->ignore;
    const int64_t V = k->in[0].dim[k->in[0].rank - 1];
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        const int64_t label = asp_ref_id(&k->in[1], i.at);
        const bool taken = label != ignore && asp_kcall_index(k, label, V);
        asp_ref_put(&k->out[0], i.at, taken ? asp_ref_get(&k->in[0], i.at * V + label) : 0.0);
    }
}

void asp_pick_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t ignore = ((const asp_pick_attr *)k->attr)->ignore;
    const int64_t V = k->out[0].dim[k->out[0].rank - 1];
    ASP_REF_EACH(i, w, asp_tensor_count(&k->in[0]))
    {
        const int64_t label = asp_ref_id(&k->in[1], i.at);
        for (int64_t c = 0; c < V; c++) {
            const bool hot = c == label && label != ignore;
            asp_ref_put(&k->out[0], i.at * V + c, hot ? asp_ref_get(&k->in[0], i.at) : 0.0);
        }
    }
}

void asp_label_weights_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t ignore = ((const asp_labels_attr *)k->attr)->ignore, V = k->in[1].dim[0];
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        const int64_t label = asp_ref_id(&k->in[0], i.at);
        const bool taken = label != ignore && asp_kcall_index(k, label, V);
        asp_ref_put(&k->out[0], i.at, taken ? asp_ref_get(&k->in[1], label) : 0.0);
    }
}
