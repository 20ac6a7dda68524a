// Micro-batches: sums of weighted losses and gradients.  Neighbours: train.h (contract), targets.c
// (weights), adamw.c (who uses the mean).
//
//   sum += w g, one pass over two slabs a micro-batch; g = sum / (sum of w) at the end
//
// A micro-batch of weight 0 has a loss of 0/0 and is left out.  SPDX-License-Identifier: Apache-2.0
#include "train/train.h"

#include <math.h>

#define CHUNK ((int64_t)1 << 16)

typedef struct scale_job {
    void *to;         // to = kept * to + by * from
    const void *from; // may be to, where kept is 0
    double kept, by;
    int64_t count;
    asp_dtype dtype;
} scale_job;

static void scale_main(void *arg, asp_worker *w)
{
    const scale_job *j = arg;
    for (int64_t c; (c = asp_team_next(w, asp_ceil_div(j->count, CHUNK))) >= 0;) {
        const int64_t end = asp_min(j->count, (c + 1) * CHUNK);
        for (int64_t i = c * CHUNK; i < end; i++) {
            if (j->dtype == ASP_F64) {
                double *to = j->to;
                to[i] = (j->kept != 0 ? to[i] : 0) + j->by * ((const double *)j->from)[i];
            } else {
                float *to = j->to;
                to[i] = (j->kept != 0 ? to[i] : 0) + (float)j->by * ((const float *)j->from)[i];
            }
        }
    }
}

static void scale(asp_rank *r, const asp_plan *p, asp_team *team, asp_slab to, asp_slab from,
                  double kept, double by)
{
    scale_job j = {.to = asp_rank_slab(r, to),
                   .from = asp_rank_slab(r, from),
                   .kept = kept,
                   .by = by,
                   .count = asp_plan_slab_count(p),
                   .dtype = asp_plan_dtype(p)};
    asp_team_run(team, scale_main, &j);
}

void asp_accumulate(asp_accumulated *a, asp_rank *r, const asp_plan *p, asp_team *team, double loss,
                    int64_t targets, bool by_tokens)
{
    const double w = by_tokens ? (double)targets : 1;
    a->targets += targets;
    if (w == 0) return;
    scale(r, p, team, ASP_SLAB_SUM, ASP_SLAB_GRAD, a->weight > 0, w);
    a->loss += w * loss;
    a->weight += w;
}

double asp_accumulate_end(const asp_accumulated *a, asp_rank *r, const asp_plan *p, asp_team *team)
{
    if (a->weight == 0) return (double)NAN; // gradients are those of the last one: exactly 0
    scale(r, p, team, ASP_SLAB_GRAD, ASP_SLAB_SUM, 0, 1 / a->weight);
    return a->loss / a->weight;
}
