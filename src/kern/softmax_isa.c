// Softmax and its logarithm along the last dim in vector types, one source for every level; along
// other dims the reference kernels run.  A row is read from cache after the first time; all may run
// in place.  Neighbours: kern.def (rows), ref/softmax.c (oracle), line.h.
// SPDX-License-Identifier: Apache-2.0
#include "kern/kern_int.h"
#include "kern/line.h"

#include <math.h>

#define UNIT 32768 // elements that a thread claims at once, about

static bool is_last(const asp_kcall *k)
{
    return ((const asp_dim_attr *)k->attr)->dim == k->in[0].rank - 1;
}

// Claims runs of rows: next(&c, w) while there are any, rows c.at .. c.end - 1 of n elements.
typedef struct claim {
    int64_t rows, n, each, at, end;
} claim;

static claim claim_of(const asp_kcall *k)
{
    const int64_t n = k->in[0].dim[k->in[0].rank - 1];
    return (claim){.rows = asp_tensor_rows(&k->in[0]), .n = n, .each = asp_max(1, UNIT / n)};
}

static bool next(claim *c, asp_worker *w)
{
    const int64_t i = asp_team_next(w, asp_ceil_div(c->rows, c->each));
    c->at = i * c->each;
    c->end = asp_min(c->rows, c->at + c->each);
    return i >= 0;
}

// y[i] = EXPR of the vectors x, z at i.
#define EACH(y, n, EXPR)                                                           \
    do {                                                                           \
        int64_t i = 0;                                                             \
        for (; i + ASP_VF <= (n); i += ASP_VF) asp_vf_store((y) + i, EXPR(WHOLE)); \
        if (i < (n)) asp_vf_store_part((y) + i, EXPR(PART), (n)-i);                \
    } while (0)
#define WHOLE(p) asp_vf_load((p) + i)
#define PART(p) asp_vf_load_part((p) + i, c.n - i)

// acc[] += EXPR, element i to partial i mod 64; what lies beyond the end is 0 in every operand.
#define SUM(acc, n, EXPR)                                                                 \
    do {                                                                                  \
        int64_t i = 0;                                                                    \
        for (int a_ = 0; a_ < LINE_ACCS; a_++) (acc)[a_] = asp_vf_all(0.0f);              \
        while (i + LINE_PARTIALS <= (n))                                                  \
            for (int a_ = 0; a_ < LINE_ACCS; a_++, i += ASP_VF) (acc)[a_] += EXPR(WHOLE); \
        for (int a_ = 0; i < (n); a_++, i += ASP_VF)                                      \
            (acc)[a_] += i + ASP_VF <= (n) ? EXPR(WHOLE) : EXPR(PART);                    \
    } while (0)

void ASP_ISA_NAME(asp_softmax_f32)(const asp_kcall *k, asp_worker *w)
{
    if (!is_last(k)) {
        asp_softmax_ref(k, w);
        return;
    }
    for (claim c = claim_of(k); next(&c, w);)
        for (int64_t r = c.at; r < c.end; r++) {
            const float *x = (const float *)k->in[0].data + r * c.n;
            float *y = (float *)k->out[0].data + r * c.n;
            const float most = line_max(x, c.n);
            const asp_vf m = asp_vf_all(most);
            asp_vf acc[LINE_ACCS];
#define EXP(load) asp_vf_exp(load(x) - m)
            EACH(y, c.n, EXP);
#define OF_Y(load) load(y)
            SUM(acc, c.n, OF_Y);
            const asp_vf scale = asp_vf_all(1.0f / line_tree(acc));
#define SCALED(load) (load(y) * scale)
            EACH(y, c.n, SCALED);
        }
}

void ASP_ISA_NAME(asp_log_softmax_f32)(const asp_kcall *k, asp_worker *w)
{
    if (!is_last(k)) {
        asp_log_softmax_ref(k, w);
        return;
    }
    for (claim c = claim_of(k); next(&c, w);)
        for (int64_t r = c.at; r < c.end; r++) {
            const float *x = (const float *)k->in[0].data + r * c.n;
            float *y = (float *)k->out[0].data + r * c.n;
            const float most = line_max(x, c.n);
            const double log_sum = log((double)line_sum_exp(x, c.n, most));
            const asp_vf m = asp_vf_all(most), l = asp_vf_all((float)log_sum);
#define LESS(load) ((load(x) - m) - l)
            EACH(y, c.n, LESS);
        }
}

void ASP_ISA_NAME(asp_softmax_grad_f32)(const asp_kcall *k, asp_worker *w)
{
    if (!is_last(k)) {
        asp_softmax_grad_ref(k, w);
        return;
    }
    for (claim c = claim_of(k); next(&c, w);)
        for (int64_t r = c.at; r < c.end; r++) {
            const float *y = (const float *)k->in[0].data + r * c.n;
            const float *dy = (const float *)k->in[1].data + r * c.n;
            float *dx = (float *)k->out[0].data + r * c.n;
            asp_vf acc[LINE_ACCS];
#define DOT(load) (load(y) * load(dy))
            SUM(acc, c.n, DOT);
            const asp_vf dot = asp_vf_all(line_tree(acc));
#define SOFTMAX_GRAD(load) (load(y) * (load(dy) - dot))
            EACH(dx, c.n, SOFTMAX_GRAD);
        }
}

void ASP_ISA_NAME(asp_log_softmax_grad_f32)(const asp_kcall *k, asp_worker *w)
{
    if (!is_last(k)) {
        asp_log_softmax_grad_ref(k, w);
        return;
    }
    for (claim c = claim_of(k); next(&c, w);)
        for (int64_t r = c.at; r < c.end; r++) {
            const float *y = (const float *)k->in[0].data + r * c.n;
            const float *dy = (const float *)k->in[1].data + r * c.n;
            float *dx = (float *)k->out[0].data + r * c.n;
            asp_vf acc[LINE_ACCS];
#define ITSELF(load) (load(dy))
            SUM(acc, c.n, ITSELF);
            const asp_vf sum = asp_vf_all(line_tree(acc));
#define LOG_GRAD(load) (load(dy) - asp_vf_exp(load(y)) * sum)
            EACH(dx, c.n, LOG_GRAD);
        }
}
