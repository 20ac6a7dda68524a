// The optimizer over a rank's slabs.  Neighbours: train.h (contract), kern/optim.h (the loops).
//
// The gradient norm is a sum of squares in double over fixed chunks of the slab, chunks added in
// order: its bits depend neither on threads nor on ranks.  The update is one pass over memory.
// Slabs are padded with zeros, which stay zero.  Where the program updates parameters itself
// (run/gradients.c), nothing is left to do here. SPDX-License-Identifier: Apache-2.0
#include "kern/optim.h"
#include "train/train_int.h"

#include <math.h>

#define CHUNK ((int64_t)1 << 16)

typedef struct adamw_job {
    const asp_plan *plan;
    asp_rank *r;
    const asp_optim_kernels *kernels;
    asp_adamw_step_args args; // decay is that of decayed parameters
    double *squares;          // by chunk
    int64_t n_chunks, count;
} adamw_job;

static void norm_main(void *arg, asp_worker *w)
{
    adamw_job *j = arg;
    const void *g = asp_rank_slab(j->r, ASP_SLAB_GRAD);
    for (int64_t c; (c = asp_team_next(w, j->n_chunks)) >= 0;) {
        int64_t at = c * CHUNK, n = asp_min(CHUNK, j->count - at);
        j->squares[c] = asp_optim_squares(j->kernels, asp_plan_dtype(j->plan), g, at, n);
    }
}

static void update_range(const adamw_job *j, int64_t from, int64_t n, bool decayed)
{
    void *s[4];
    asp_adamw_step_args args = j->args;
    if (!decayed) args.decay = 0;
    for (int i = 0; i < 4; i++) s[i] = asp_rank_slab(j->r, (asp_slab)i);
    asp_optim_adamw(j->kernels, asp_plan_slab_dtype(j->plan, ASP_SLAB_PARAM), &args, s, 0, from, n);
}

// The first parameter that reaches into chunk c or beyond.
static int first_param(const asp_plan *p, int64_t c)
{
    int low = 0, high = asp_plan_n_params(p) - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        const asp_plan_param *a = asp_plan_get_param(p, middle);
        if (a->offset + a->count <= c * CHUNK)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void update_main(void *arg, asp_worker *w)
{
    adamw_job *j = arg;
    for (int64_t c; (c = asp_team_next(w, j->n_chunks)) >= 0;) {
        for (int i = first_param(j->plan, c); i < asp_plan_n_params(j->plan); i++) {
            const asp_plan_param *a = asp_plan_get_param(j->plan, i);
            int64_t from = asp_max(a->offset, c * CHUNK),
                    to = asp_min(a->offset + a->count, (c + 1) * CHUNK);
            if (a->offset >= (c + 1) * CHUNK) break;
            if (from < to) update_range(j, from, to - from, a->rank >= 2);
        }
    }
}

int64_t asp_adamw_chunks(const asp_plan *p) { return asp_ceil_div(asp_plan_slab_count(p), CHUNK); }

static asp_adamw_step_args args_of(const asp_adamw *a, int64_t step, double scale)
{
    return (asp_adamw_step_args){.scale = scale,
                                 .beta1 = a->beta1,
                                 .beta2 = a->beta2,
                                 .rate = a->lr / (1 - pow(a->beta1, (double)step + 1)),
                                 .correct = 1 / sqrt(1 - pow(a->beta2, (double)step + 1)),
                                 .eps = a->eps,
                                 .decay = a->lr * a->weight_decay,
                                 .random = {a->seed ^ ASP_ROUNDING_KEY, (uint64_t)step}};
}

void asp_adamw_prepare(const asp_adamw *a, const asp_seat *seat, const asp_plan *p, int64_t step)
{
    const asp_adamw_step_args args = args_of(a, step, 1);
    if (asp_plan_fuses_optimizer(p)) asp_rank_update_by(seat->rank, &args);
}

double asp_adamw_step(const asp_adamw *a, const asp_seat *seat, const asp_plan *p, int64_t step)
{
    adamw_job j = {.plan = p,
                   .r = seat->rank,
                   .squares = seat->squares,
                   .n_chunks = asp_adamw_chunks(p),
                   .kernels = asp_optim_choose(asp_isa_best()),
                   .count = asp_plan_slab_count(p)};
    if (asp_plan_fuses_optimizer(p)) return asp_rank_gradient_norm(seat->rank);
    asp_team_run(seat->team, norm_main, &j);
    double sum = 0;
    for (int64_t c = 0; c < j.n_chunks; c++) sum += j.squares[c];
    double norm = sqrt(sum);
    j.args = args_of(a, step, a->clip > 0 && norm > a->clip ? a->clip / norm : 1);
    asp_team_run(seat->team, update_main, &j);
    return norm;
}

double asp_train_lr(const asp_train_options *o, int64_t step)
{
    if (step < o->warmup) return o->lr * (double)(step + 1) / (double)o->warmup;
    double part = (double)(step - o->warmup) / (double)asp_max(o->steps - o->warmup, 1);
    return o->lr * (0.1 + 0.45 * (1 + cos(3.141592653589793 * fmin(part, 1))));
}
