// Reference kernels of softmax and its logarithm.  All may run in place (the derivatives on dy).
// Neighbours: op/softmax.c (what they mean), softmax_isa.c (fast).  SPDX-License-Identifier:
// Apache-2.0
#include "kern/ref/ref.h"

#include <math.h>

// The lines along dim: n elements, `step` apart.
typedef struct lines {
    int64_t count, n, step;
} lines;

static lines lines_of(const asp_kcall *k)
{
    const asp_tensor *x = &k->in[0];
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim, n = x->dim[dim];
    return (lines){asp_tensor_count(x) / n, n, asp_ref_inner(x, dim)};
}

static int64_t start_of(const lines *l, int64_t line)
{
    return line / l->step * l->n * l->step + line % l->step;
}

// Largest of the line, and the sum of e^(x - largest).
static double most_of(const asp_tensor *x, const lines *l, int64_t at, double *out_sum)
{
    double most = -HUGE_VAL, sum = 0.0;
    for (int64_t i = 0; i < l->n; i++) most = fmax(most, asp_ref_get(x, at + i * l->step));
    for (int64_t i = 0; i < l->n; i++) sum += exp(asp_ref_get(x, at + i * l->step) - most);
    *out_sum = sum;
    return most;
}

void asp_softmax_ref(const asp_kcall *k, asp_worker *w)
{
    const lines l = lines_of(k);
    ASP_REF_EACH(line, w, l.count)
    {
        const int64_t at = start_of(&l, line.at);
        double sum, most = most_of(&k->in[0], &l, at, &sum);
        for (int64_t i = 0; i < l.n; i++) {
            const int64_t e = at + i * l.step;
            asp_ref_put(&k->out[0], e, exp(asp_ref_get(&k->in[0], e) - most) / sum);
        }
    }
}

void asp_log_softmax_ref(const asp_kcall *k, asp_worker *w)
{
    const lines l = lines_of(k);
    ASP_REF_EACH(line, w, l.count)
    {
        const int64_t at = start_of(&l, line.at);
        double sum, most = most_of(&k->in[0], &l, at, &sum), log_sum = log(sum);
        for (int64_t i = 0; i < l.n; i++) {
            const int64_t e = at + i * l.step;
            asp_ref_put(&k->out[0], e, asp_ref_get(&k->in[0], e) - most - log_sum);
        }
    }
}

void asp_softmax_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const lines l = lines_of(k);
    const asp_tensor *y = &k->in[0], *dy = &k->in[1];
    ASP_REF_EACH(line, w, l.count)
    {
        const int64_t at = start_of(&l, line.at);
        double dot = 0.0;
        for (int64_t i = 0; i < l.n; i++)
            dot += asp_ref_get(y, at + i * l.step) * asp_ref_get(dy, at + i * l.step);
        for (int64_t i = 0; i < l.n; i++) {
            const int64_t e = at + i * l.step;
            asp_ref_put(&k->out[0], e, asp_ref_get(y, e) * (asp_ref_get(dy, e) - dot));
        }
    }
}

void asp_log_softmax_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const lines l = lines_of(k);
    const asp_tensor *y = &k->in[0], *dy = &k->in[1];
    ASP_REF_EACH(line, w, l.count)
    {
        const int64_t at = start_of(&l, line.at);
        double sum = 0.0;
        for (int64_t i = 0; i < l.n; i++) sum += asp_ref_get(dy, at + i * l.step);
        for (int64_t i = 0; i < l.n; i++) {
            const int64_t e = at + i * l.step;
            asp_ref_put(&k->out[0], e, asp_ref_get(dy, e) - exp(asp_ref_get(y, e)) * sum);
        }
    }
}
