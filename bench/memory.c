// The predicted memory of a process against what it takes (support/growth.h).
//   bench_memory [seq=8192] [ranks=1] [ac=none] [threads=2] [layers=4] [batch=1] [tile=0] [fused=0]
// One process a measurement; fused: the optimizer is part of the program.  Prints both and fails
// beyond 2 % from 256 MiB on.  SPDX-License-Identifier: Apache-2.0
#include "bench/support/growth.h"
#include "front/front.h"
#include "run/compile.h"

#include <stdlib.h>

typedef struct args {
    int64_t seq, ranks, layers, batch, tile;
    bool fused;
    int threads;
    const char *ac;
    asp_plan *plan;
} args;

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
                             .tile = x->tile,
                             .optimizer = true,
                             .fuse_optimizer = x->fused};
    asp_graph *g;
    ASP_TRY(asp_front_hf(cx, &c, ASP_F32, &g));
    asp_status s = asp_compile(cx, g, &o, NULL, &x->plan);
    asp_graph_destroy(g);
    return s;
}

int main(int argc, char **argv)
{
    args x = {.seq = argc > 1 ? atoll(argv[1]) : 8192,
              .ranks = argc > 2 ? atoll(argv[2]) : 1,
              .ac = argc > 3 ? argv[3] : "none",
              .threads = argc > 4 ? atoi(argv[4]) : 2,
              .layers = argc > 5 ? atoll(argv[5]) : 4,
              .batch = argc > 6 ? atoll(argv[6]) : 1,
              .tile = argc > 7 ? atoll(argv[7]) : 0,
              .fused = argc > 8 && atoi(argv[8])};
    growth g;
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_status s = asp_guard(&cx, compile, &x);
    if (s == ASP_OK) s = growth_of_step(&cx, x.plan, x.threads, &g);
    if (s < 0) {
        fprintf(stderr, "%s\n", cx.message);
        return 1;
    }
    int64_t predicted = asp_plan_get_report(x.plan)->process_bytes, grown = g.bytes;
    double off = 100.0 * (double)(predicted - grown) / (double)grown;
    printf("S %-6lld %lld ranks x %d threads  %-5s  predicted %9.3f MiB  measured %9.3f MiB  off "
           "%+.3f MiB, %+.2f %%\n",
           (long long)x.seq, (long long)x.ranks, x.threads, x.ac, (double)predicted / 1048576,
           (double)grown / 1048576, (double)(predicted - grown) / 1048576, off);
    asp_plan_destroy(x.plan);
    return grown >= (INT64_C(256) << 20) && (off > 2 || off < -2);
}
