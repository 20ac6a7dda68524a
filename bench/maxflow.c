// How long a minimum cut of the size of a large joint graph takes, and a whole recomputation
// choice.
//   bench_maxflow [layers=512]
// A layer has 155 values, 95 of the forward; the network has two vertices for each of those.
// SPDX-License-Identifier: Apache-2.0
#include "flow/maxflow.h"
#include "flow/remat.h"

#include <stdlib.h>
#include <time.h>

#define FORWARD 95u
#define BACKWARD 60u
#define ROUNDS 5

static double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); // one thread: the same as time on a free core
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

// Numbers that look random and are the same everywhere.
static uint32_t mixed(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// Forward value i reads the value before it and one of the last 12; every fifth is read by the
// backward, every fifth other one may not be computed again.
static asp_flow *make_network(asp_arena *a, uint32_t n)
{
    asp_flow *f = asp_flow_create(a);
    for (uint32_t v = 0; v < 2 + 2 * n; v++) asp_flow_add_node(f);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || i % 5 == 2) asp_flow_add_edge(f, 0, 2 + 2 * i, ASP_FLOW_INF);
        asp_flow_add_edge(f, 2 + 2 * i, 3 + 2 * i, 1000 + mixed(i) % 1000000);
        if (i > 0) asp_flow_add_edge(f, 1 + 2 * i, 2 + 2 * i, ASP_FLOW_INF);
        if (i > 12) asp_flow_add_edge(f, 3 + 2 * (i - 2 - mixed(i) % 10), 2 + 2 * i, ASP_FLOW_INF);
        if (i % 5 == 0) asp_flow_add_edge(f, 3 + 2 * i, 1, ASP_FLOW_INF);
    }
    return f;
}

static void time_cut(asp_ctx *cx, asp_arena *a, uint32_t layers)
{
    double build = 1e30, solve = 1e30;
    uint32_t n = layers * FORWARD;
    int64_t value = 0;
    for (int r = 0; r < ROUNDS; r++) {
        asp_arena_reset(a);
        double start = ms();
        asp_flow *f = make_network(a, n);
        double built = ms();
        if (asp_flow_solve(cx, f, 0, 1, &value) != ASP_OK) {
            printf("%s\n", cx->message);
            exit(1);
        }
        double solved = ms();
        build = built - start < build ? built - start : build;
        solve = solved - built < solve ? solved - built : solve;
    }
    printf("cut: %u vertices, build %.1f ms, solve %.1f ms, value %lld\n", 2 + 2 * n, build, solve,
           (long long)value);
}

typedef struct program {
    asp_remat_value *values;
    asp_remat_op *ops;
    uint32_t *reads, n_values, n_ops, n_reads;
} program;

static void add_op(program *p, bool backward, const uint32_t *reads, uint32_t n_reads)
{
    uint32_t v = p->n_values++, kind = mixed(v) % 8;
    p->values[v] = (asp_remat_value){
        .bytes = 1000 + mixed(v) % 1000000, .root = v, .flags = ASP_REMAT_SEQUENCE};
    p->ops[p->n_ops++] = (asp_remat_op){.kind = kind == 0 ? ASP_REMAT_GEMM : ASP_REMAT_POINTWISE,
                                        .fusible = kind != 0,
                                        .backward = backward,
                                        .block = -1,
                                        .first_read = p->n_reads,
                                        .n_reads = n_reads,
                                        .first_result = v,
                                        .n_results = 1};
    for (uint32_t i = 0; i < n_reads; i++) p->reads[p->n_reads++] = reads[i];
}

static asp_remat_program make_program(asp_arena *a, uint32_t layers)
{
    uint32_t n = 1 + layers * (FORWARD + BACKWARD), last = layers * FORWARD;
    program p = {.values = ASP_NEW_ARRAY(a, asp_remat_value, n),
                 .ops = ASP_NEW_ARRAY(a, asp_remat_op, n),
                 .reads = ASP_NEW_ARRAY(a, uint32_t, 2 * (size_t)n)};
    p.values[p.n_values++] = (asp_remat_value){.bytes = 1000};
    for (uint32_t i = 1; i <= last; i++)
        add_op(&p, false, (uint32_t[]){i - 1, i > 12 ? i - 2 - mixed(i) % 10 : 0}, 2);
    p.values[last].flags |= ASP_REMAT_FORWARD_OUTPUT;
    for (uint32_t i = 0; i < layers * BACKWARD; i++) {
        uint32_t back = (uint32_t)((uint64_t)i * FORWARD / BACKWARD) + mixed(i) % 4;
        add_op(&p, true, (uint32_t[]){p.n_values - 1, back < last ? last - back : 0}, 2);
    }
    p.values[p.n_values - 1].flags |= ASP_REMAT_BACKWARD_OUTPUT;
    return (asp_remat_program){.values = p.values,
                               .n_values = p.n_values,
                               .n_inputs = 1,
                               .ops = p.ops,
                               .n_ops = p.n_ops,
                               .reads = p.reads,
                               .n_reads = p.n_reads};
}

static void time_choice(asp_ctx *cx, asp_arena *a, uint32_t layers, asp_remat_policy policy,
                        const char *name)
{
    double best[3] = {1e30, 1e30, 1e30};
    asp_remat_choice c;
    asp_remat_schedule s;
    asp_remat_cost cost;
    uint32_t n_values = 0;
    for (int r = 0; r < ROUNDS; r++) {
        asp_arena_reset(a);
        asp_remat_program p = make_program(a, layers);
        n_values = p.n_values;
        double t[4] = {ms()};
        if (asp_remat_choose(cx, a, &p, policy, &c) != ASP_OK ||
            (t[1] = ms(), asp_remat_emit(cx, a, &p, c.saved, c.n_saved, &s)) != ASP_OK) {
            printf("%s\n", cx->message);
            exit(1);
        }
        t[2] = ms();
        asp_remat_simulate(a, &p, c.saved, c.n_saved, &s, ASP_REMAT_FUSED, &cost);
        t[3] = ms();
        for (int k = 0; k < 3; k++) best[k] = t[k + 1] - t[k] < best[k] ? t[k + 1] - t[k] : best[k];
    }
    printf("%s: %u values, choose %.1f ms, emit %.1f ms, simulate %.1f ms, %u saved, peak %lld\n",
           name, n_values, best[0], best[1], best[2], c.n_saved, (long long)cost.peak);
}

int main(int argc, char **argv)
{
    uint32_t layers = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 512;
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    time_cut(&cx, &a, layers);
    time_choice(&cx, &a, layers, ASP_REMAT_DEFAULT, "default");
    time_choice(&cx, &a, layers, ASP_REMAT_SAC, "sac");
    asp_arena_fini(&a);
    return 0;
}
