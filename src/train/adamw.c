// The optimizer over flat slabs.  Neighbours: train.h (contract).
//
// The gradient norm is a sum of squares in double over fixed chunks of the slab, chunks added in
// order: its bits depend neither on threads nor on ranks.  The update is one pass over memory.
// Slabs are padded with zeros, which stay zero. SPDX-License-Identifier: Apache-2.0
#include "train/train.h"

#include <math.h>
#include <stdlib.h>

#define CHUNK ((int64_t)1 << 16)

typedef struct adamw_job {
    const asp_adamw *a;
    const asp_plan *plan;
    asp_rank *r;
    double *squares; // by chunk
    int64_t n_chunks, count;
    double scale, correct1, correct2; // of gradients; of the moments
} adamw_job;

#define SQUARES(T)                                                                                \
    static double squares_##T(const T *g, int64_t n)                                              \
    {                                                                                             \
        double sum[8] = {0};                                                                      \
        for (int64_t i = 0; i < n; i++) sum[i % 8] += (double)g[i] * (double)g[i];                \
        return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])); \
    }
SQUARES(float)
SQUARES(double)

static void norm_main(void *arg, asp_worker *w)
{
    adamw_job *j = arg;
    const void *g = asp_rank_slab(j->r, ASP_SLAB_GRAD);
    for (int64_t c; (c = asp_team_next(w, j->n_chunks)) >= 0;) {
        int64_t at = c * CHUNK, n = asp_min(CHUNK, j->count - at);
        j->squares[c] = asp_plan_dtype(j->plan) == ASP_F64
                            ? squares_double((const double *)g + at, n)
                            : squares_float((const float *)g + at, n);
    }
}

#define UPDATE(T, SQRT)                                                                            \
    static void update_##T(const adamw_job *j, T *p, const T *g, T *m, T *v, int64_t n, T decay)   \
    {                                                                                              \
        const T b1 = (T)j->a->beta1, b2 = (T)j->a->beta2, scale = (T)j->scale, eps = (T)j->a->eps; \
        const T rate = (T)(j->a->lr / j->correct1), correct = (T)(1.0 / sqrt(j->correct2)),        \
                keep = (T)1 - decay;                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T x = g[i] * scale;                                                                    \
            T mi = b1 * m[i] + ((T)1 - b1) * x, vi = b2 * v[i] + ((T)1 - b2) * (x * x);            \
            m[i] = mi;                                                                             \
            v[i] = vi;                                                                             \
            p[i] = p[i] * keep - rate * mi / (SQRT(vi) * correct + eps);                           \
        }                                                                                          \
    }
UPDATE(float, sqrtf)
UPDATE(double, sqrt)

// Parameter p's elements in chunk c of the slab; false: none.
static bool in_chunk(const asp_plan_param *p, int64_t c, int64_t *from, int64_t *to)
{
    *from = asp_max(p->offset, c * CHUNK);
    *to = asp_min(p->offset + p->count, (c + 1) * CHUNK);
    return *from < *to;
}

static void update_chunk(const adamw_job *j, int64_t c)
{
    void *s[4];
    for (int i = 0; i < 4; i++) s[i] = asp_rank_slab(j->r, (asp_slab)i);
    int low = 0,
        high = asp_plan_n_params(j->plan) - 1; // first parameter that reaches into the chunk
    while (low < high) {
        int middle = (low + high) / 2;
        const asp_plan_param *p = asp_plan_get_param(j->plan, middle);
        if (p->offset + p->count <= c * CHUNK)
            low = middle + 1;
        else
            high = middle;
    }
    int64_t from, to;
    for (int i = low;
         i < asp_plan_n_params(j->plan) && in_chunk(asp_plan_get_param(j->plan, i), c, &from, &to);
         i++) {
        double decay =
            asp_plan_get_param(j->plan, i)->rank >= 2 ? j->a->lr * j->a->weight_decay : 0;
        if (asp_plan_dtype(j->plan) == ASP_F64)
            update_double(j, (double *)s[0] + from, (double *)s[1] + from, (double *)s[2] + from,
                          (double *)s[3] + from, to - from, decay);
        else
            update_float(j, (float *)s[0] + from, (float *)s[1] + from, (float *)s[2] + from,
                         (float *)s[3] + from, to - from, (float)decay);
    }
}

static void update_main(void *arg, asp_worker *w)
{
    adamw_job *j = arg;
    for (int64_t c; (c = asp_team_next(w, j->n_chunks)) >= 0;) update_chunk(j, c);
}

double asp_adamw_step(const asp_adamw *a, asp_rank *r, const asp_plan *p, asp_team *team,
                      int64_t step)
{
    adamw_job j = {.a = a, .plan = p, .r = r, .count = asp_plan_slab_count(p)};
    j.n_chunks = asp_ceil_div(j.count, CHUNK);
    j.squares = calloc((size_t)j.n_chunks, sizeof *j.squares);
    ASP_CHECK(j.squares != NULL);
    asp_team_run(team, norm_main, &j);
    double sum = 0;
    for (int64_t c = 0; c < j.n_chunks; c++) sum += j.squares[c];
    free(j.squares);
    double norm = sqrt(sum);
    j.scale = a->clip > 0 && norm > a->clip ? a->clip / norm : 1;
    j.correct1 = 1 - pow(a->beta1, (double)step + 1);
    j.correct2 = 1 - pow(a->beta2, (double)step + 1);
    asp_team_run(team, update_main, &j);
    return norm;
}

double asp_train_lr(const asp_train_options *o, int64_t step)
{
    if (step < o->warmup) return o->lr * (double)(step + 1) / (double)o->warmup;
    double part = (double)(step - o->warmup) / (double)asp_max(o->steps - o->warmup, 1);
    return o->lr * (0.1 + 0.45 * (1 + cos(3.141592653589793 * fmin(part, 1))));
}
