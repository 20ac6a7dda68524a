// Reference kernels of the loss.  Neighbours: op/loss.c (what they mean), nll_isa.c (fast).
// SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

#include <math.h>

static double log_sum_exp(const asp_tensor *x, int64_t row, int64_t V)
{
    double most = -HUGE_VAL, sum = 0.0;
    for (int64_t v = 0; v < V; v++) most = fmax(most, asp_ref_get(x, row * V + v));
    for (int64_t v = 0; v < V; v++) sum += exp(asp_ref_get(x, row * V + v) - most);
    return most + log(sum);
}

// in: logits (..., V), labels (...); out: sum of lse - x[label] over rows not ignored, lse (...).
// Labels were checked when the data was read.
void asp_nll_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *labels = &k->in[1];
    const int64_t ignore = ((const asp_labels_attr *)k->attr)->ignore;
    const int64_t rows = asp_tensor_rows(x), V = x->dim[x->rank - 1];
    ASP_REF_EACH(i, w, rows) asp_ref_put(&k->out[1], i.at, log_sum_exp(x, i.at, V));
    asp_team_barrier(w);
    if (w->thread != 0) return;
    double sum = 0.0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t label = asp_ref_id(labels, i);
        if (label != ignore) sum += asp_ref_get(&k->out[1], i) - asp_ref_get(x, i * V + label);
    }
    asp_ref_put(&k->out[0], 0, sum);
}

// in: logits, lse, labels, d sum; out: d sum * (softmax - one at the label), 0 in ignored rows
// whatever d sum is.  May run in place on the logits.
void asp_nll_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *lse = &k->in[1], *labels = &k->in[2], *y = &k->out[0];
    const int64_t ignore = ((const asp_labels_attr *)k->attr)->ignore, V = x->dim[x->rank - 1];
    const double g = asp_ref_get(&k->in[3], 0);
    ASP_REF_EACH(i, w, asp_tensor_rows(x))
    {
        int64_t label = asp_ref_id(labels, i.at);
        double l = asp_ref_get(lse, i.at);
        for (int64_t v = 0; v < V; v++) {
            double p = exp(asp_ref_get(x, i.at * V + v) - l) - (v == label ? 1.0 : 0.0);
            asp_ref_put(y, i.at * V + v, label == ignore ? 0.0 : g * p);
        }
    }
}
