// A parameter's update as a step of the program: AdamW over pieces that the threads claim, and the
// squares of its gradient, piece by piece, added in order.  Neighbours: gradients.c (plans it),
// executor.c (calls it), kern/optim.h (the loops).  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "run/trace.h"

#define CHUNK ((int64_t)1 << 16)

int64_t asp_update_work_bytes(int64_t count)
{
    return asp_ceil_div(count, CHUNK) * (int64_t)sizeof(double);
}

typedef struct update_job {
    const asp_update_run *u;
    asp_adamw_step_args args; // of this parameter
} update_job;

static void update_chunk(const update_job *j, int64_t c)
{
    const asp_update_run *u = j->u;
    const int64_t from = c * CHUNK, n = asp_min(CHUNK, u->count - from);
    u->squares[c] = asp_optim_squares(u->kernels, u->dtype, u->at[1], from, n);
    asp_optim_adamw(u->kernels, u->dtype, &j->args, u->at, u->first, from, n);
}

static void update_main(void *arg, asp_worker *w)
{
    const update_job *j = arg;
    if (j->u->spans) j->u->spans[w->thread].begin = asp_seconds();
    for (int64_t c; (c = asp_team_next(w, asp_ceil_div(j->u->count, CHUNK))) >= 0;)
        update_chunk(j, c);
    if (j->u->spans) j->u->spans[w->thread].end = asp_seconds();
}

double asp_update(asp_team *team, const asp_update_run *u)
{
    double sum = 0;
    update_job j = {.u = u, .args = *u->args};
    if (!u->decays) j.args.decay = 0;
    asp_team_run(team, update_main, &j);
    for (int64_t c = 0; c < asp_ceil_div(u->count, CHUNK); c++) sum += u->squares[c];
    return sum;
}
