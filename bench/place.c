// How long placement takes on a program whose network has 80,000 vertices: a Llama of so many
// layers, from graph to exchanges, through the pass itself.
//   bench_place [layers=2200] [ranks=8] [sp=ulysses]
// legality and prices: axes, rules, chains of every op; cut: the network built and solved; the
// pass: all of it and the exchanges put in.  SPDX-License-Identifier: Apache-2.0
#include "front/front.h"
#include "pass/place.h"

#include <stdlib.h>
#include <time.h>

#define ROUNDS 5

typedef struct args {
    int64_t layers, ranks;
    const char *sp;
} args;

static double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); // one thread: the same as time on a free core
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void keep_least(double *least, double since)
{
    const double took = ms() - since;
    if (*least == 0 || took < *least) *least = took;
}

static asp_status measure(asp_ctx *cx, void *arg)
{
    const args *x = arg;
    asp_hf_config c = {.vocab = 4096,
                       .hidden = 512,
                       .heads = 8,
                       .kv_heads = 8,
                       .head_dim = 64,
                       .intermediate = 1408,
                       .layers = x->layers,
                       .rope_theta = 10000,
                       .norm_eps = 1e-5,
                       .initializer_range = 0.02};
    asp_pass_options o = {.ranks = x->ranks,
                          .sp = x->sp,
                          .ac = "none",
                          .env = {.at = {{"S", 8192}, {"B", 1}}, .n = 2}};
    double prices = 0, cut = 0, whole = 0;
    uint32_t vertices = 0;
    asp_graph *g;
    ASP_TRY(asp_front_hf(cx, &c, ASP_F32, &g));
    ASP_TRY(asp_passes_run(cx, g, "canonicalise,masks,dce,loss", &o, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        asp_arena scratch;
        asp_placement p;
        asp_graph *copy = asp_graph_clone(g);
        asp_arena_init(&scratch, cx);
        asp_pass px = {.cx = cx, .scratch = &scratch, .options = &o};
        double at = ms();
        ASP_TRY(asp_placement_prepare(&px, copy, &p));
        keep_least(&prices, at);
        at = ms();
        ASP_TRY(asp_placement_cut(&p));
        keep_least(&cut, at);
        vertices = p.vertices;
        asp_arena_reset(&scratch);
        at = ms();
        ASP_TRY(asp_pass_place(&px, copy));
        keep_least(&whole, at);
        asp_arena_fini(&scratch);
        asp_graph_destroy(copy);
    }
    printf("%u nodes, %u vertices: legality and prices %.1f ms, cut %.1f ms, the pass %.1f ms\n",
           g->n_nodes, vertices, prices, cut, whole);
    asp_graph_destroy(g);
    return ASP_OK;
}

int main(int argc, char **argv)
{
    args x = {.layers = argc > 1 ? atoll(argv[1]) : 2200,
              .ranks = argc > 2 ? atoll(argv[2]) : 8,
              .sp = argc > 3 ? argv[3] : "ulysses"};
    asp_ctx cx;
    asp_ctx_init(&cx);
    if (asp_guard(&cx, measure, &x) < 0) {
        fprintf(stderr, "%s\n", cx.message);
        return 1;
    }
    return 0;
}
