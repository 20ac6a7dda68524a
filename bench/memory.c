// The predicted memory of a process against what it takes: the growth of its anonymous resident
// memory from before the ranks allocate until after the first step and a walk over the states, as
// an optimizer does.
//   bench_memory [seq=8192] [ranks=1] [ac=none] [threads=2] [layers=4] [batch=1]
// One process a measurement.  Prints both and fails beyond 2 % from 256 MiB on.
// SPDX-License-Identifier: Apache-2.0
#include "front/front.h"
#include "run/compile.h"

#include <stdlib.h>

typedef struct args {
    int64_t seq, ranks, layers, batch;
    int threads;
    const char *ac;
    asp_plan *plan;
    int64_t before, after;
} args;

// Bytes of RssAnon in /proc/self/status; 0 where the system has none.
static int64_t resident(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %lld kB", &kib) == 1) break;
    if (f) fclose(f);
    return kib * 1024;
}

static asp_status compile(asp_ctx *cx, void *arg)
{
    args *x = arg;
    asp_hf_config c = {.vocab = 256,
                       .hidden = 192,
                       .layers = x->layers,
                       .heads = 8,
                       .kv_heads = 4,
                       .head_dim = 24,
                       .intermediate = 512,
                       .rope_theta = 10000,
                       .norm_eps = 1e-5,
                       .initializer_range = 0.02};
    asp_compile_options o = {.ranks = x->ranks,
                             .batch = x->batch,
                             .seq = x->seq,
                             .threads = x->threads,
                             .sp = "ulysses",
                             .ac = x->ac,
                             .backend = ASP_COMM_thread,
                             .optimizer = true};
    asp_graph *g;
    ASP_TRY(asp_front_hf(cx, &c, ASP_F32, &g));
    asp_status s = asp_compile(cx, g, &o, NULL, &x->plan);
    asp_graph_destroy(g);
    return s;
}

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

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    args *x = arg;
    asp_team *team;
    asp_rank *r;
    double loss;
    ASP_TRY(asp_team_create(cx, x->threads, -1, &team));
    ASP_TRY(asp_rank_create(cx, x->plan, comm, team, &r));
    fill(r, x->plan);
    ASP_TRY(asp_rank_step(r, &loss));
    ASP_TRY(asp_comm_barrier(comm));
    if (asp_comm_rank(comm) == 0) x->after = resident();
    ASP_TRY(asp_comm_barrier(comm));
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return ASP_OK;
}

int main(int argc, char **argv)
{
    args x = {.seq = argc > 1 ? atoll(argv[1]) : 8192,
              .ranks = argc > 2 ? atoll(argv[2]) : 1,
              .ac = argc > 3 ? argv[3] : "none",
              .threads = argc > 4 ? atoi(argv[4]) : 2,
              .layers = argc > 5 ? atoll(argv[5]) : 4,
              .batch = argc > 6 ? atoll(argv[6]) : 1};
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_status s = asp_guard(&cx, compile, &x);
    x.before = resident();
    if (s == ASP_OK) s = asp_ranks_run(&cx, ASP_COMM_thread, (int)x.ranks, rank_main, &x);
    if (s < 0) {
        fprintf(stderr, "%s\n", cx.message);
        return 1;
    }
    int64_t predicted = asp_plan_get_report(x.plan)->process_bytes, grown = x.after - x.before;
    double off = 100.0 * (double)(predicted - grown) / (double)grown;
    printf("S %-6lld %lld ranks x %d threads  %-5s  predicted %9.3f MiB  measured %9.3f MiB  off "
           "%+.3f MiB, %+.2f %%\n",
           (long long)x.seq, (long long)x.ranks, x.threads, x.ac, (double)predicted / 1048576,
           (double)grown / 1048576, (double)(predicted - grown) / 1048576, off);
    asp_plan_destroy(x.plan);
    return grown >= (INT64_C(256) << 20) && (off > 2 || off < -2);
}
