// See growth.h.  SPDX-License-Identifier: Apache-2.0
#include "bench/support/growth.h"

#include "base/file.h"

typedef struct job {
    const asp_plan *plan;
    int threads;
    growth *out;
} job;

// Numbers that keep the loss finite; every page of what an optimizer keeps.
static void fill(asp_rank *r, const asp_plan *p)
{
    float *w = asp_rank_slab(r, ASP_SLAB_PARAM), *m = asp_rank_slab(r, ASP_SLAB_M),
          *v = asp_rank_slab(r, ASP_SLAB_V);
    for (int64_t i = 0; i < asp_plan_slab_count(p); i++)
        w[i] = (float)(i % 17 - 8) * 0.01f, m[i] = v[i] = 0;
    for (int k = 0; k < asp_plan_n_inputs(p); k++) {
        int64_t *at = asp_rank_input(r, k);
        for (int64_t i = 0; i < asp_plan_get_input(p, k)->bytes / 8; i++) at[i] = i % 251;
    }
}

static asp_status measure(job *j, asp_rank *r, asp_comm *comm)
{
    double loss = 0, began = asp_seconds();
    ASP_TRY(asp_rank_step(r, &loss));
    ASP_TRY(asp_comm_barrier(comm));
    if (asp_comm_rank(comm) == 0) {
        j->out->seconds = asp_seconds() - began;
        j->out->bytes = asp_process_anon_bytes() - j->out->bytes;
        j->out->loss = loss;
    }
    return asp_comm_barrier(comm); // nobody frees before
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    asp_team *team;
    asp_rank *r;
    ASP_TRY(asp_team_create(cx, j->threads, -1, &team));
    asp_status s = asp_rank_create(cx, j->plan, comm, team, &r);
    if (s == ASP_OK) {
        fill(r, j->plan);
        s = measure(j, r, comm);
        asp_rank_destroy(r);
    }
    asp_team_destroy(team);
    return s;
}

asp_status growth_of_step(asp_ctx *cx, const asp_plan *p, int threads, growth *out)
{
    job j = {.plan = p, .threads = threads, .out = out};
    *out = (growth){.bytes = asp_process_anon_bytes()};
    return asp_ranks_run(cx, ASP_COMM_thread, (int)asp_plan_ranks(p), rank_main, &j);
}
