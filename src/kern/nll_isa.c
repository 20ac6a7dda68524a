// The loss in vector types, one source for every level: log-sum-exp of each row, its label's
// negative log-likelihood, and the gradient of the logits.  A row of logits is read twice, the
// second time from cache.  Neighbours: kern.def (rows), ref/nll.c (oracle), rowprog_isa.c (the same
// order of sums).  SPDX-License-Identifier: Apache-2.0
#include "kern/kern_int.h"
#include "kern/line.h"

#include <math.h>

#define BLOCK 64 // rows whose losses are added in double before the blocks are

// in: logits (..., V), labels (...); out: sum, lse (...); work: a double for each 64 rows.
void ASP_ISA_NAME(asp_nll_f32)(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *logits = &k->in[0];
    const float *x = logits->data;
    const int64_t *labels = k->in[1].data, ignore = ((const asp_labels_attr *)k->attr)->ignore;
    const int64_t rows = asp_tensor_rows(logits), V = logits->dim[logits->rank - 1];
    const int64_t blocks = asp_ceil_div(rows, BLOCK);
    float *lse = k->out[1].data;
    double *partial = k->work;
    int64_t b;
    while ((b = asp_team_next(w, blocks)) >= 0) {
        double sum = 0.0;
        for (int64_t i = b * BLOCK; i < asp_min(rows, (b + 1) * BLOCK); i++) {
            const float most = line_max(x + i * V, V);
            const double exact = (double)most + log((double)line_sum_exp(x + i * V, V, most));
            lse[i] = (float)exact;
            if (labels[i] != ignore) sum += exact - (double)x[i * V + labels[i]];
        }
        partial[b] = sum;
    }
    asp_team_barrier(w);
    if (w->thread != 0) return;
    double sum = 0.0;
    for (b = 0; b < blocks; b++) sum += partial[b];
    *(float *)k->out[0].data = (float)sum;
}

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

// in: logits, lse, labels, d sum.  May run in place on the logits.
void ASP_ISA_NAME(asp_nll_grad_f32)(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *logits = &k->in[0];
    const float *x = logits->data, *lse = k->in[1].data, g = *(const float *)k->in[3].data;
    const int64_t *labels = k->in[2].data, ignore = ((const asp_labels_attr *)k->attr)->ignore;
    const int64_t rows = asp_tensor_rows(logits), V = logits->dim[logits->rank - 1];
    const int64_t each = asp_max(1, 32768 / V);
    float *y = k->out[0].data;
    int64_t chunk;
    while ((chunk = asp_team_next(w, asp_ceil_div(rows, each))) >= 0)
        for (int64_t i = chunk * each; i < asp_min(rows, (chunk + 1) * each); i++) {
            if (labels[i] == ignore)
                memset(y + i * V, 0, (size_t)V * sizeof *y);
            else
                grad_row(y + i * V, x + i * V, V, lse[i], labels[i], g);
        }
}
