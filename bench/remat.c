// How long it takes to choose what to recompute under a budget, for Llamas of 8 to 128 layers, and
// what the choices are worth.  Processor time, of one core: others that work beside do not count.
//   bench_remat [layers ...]
// SPDX-License-Identifier: Apache-2.0
#include "unit/flow/support/llama_program.h"

#include <stdlib.h>
#include <time.h>

#define ROUNDS 3

static double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void run(asp_ctx *cx, asp_arena *a, uint32_t layers)
{
    double best = 1e30;
    asp_remat_frontier f = {0};
    uint32_t n_ops = 0;
    for (int r = 0; r < ROUNDS; r++) {
        asp_arena_reset(a);
        llama_shape s = llama_8b(layers);
        llama_program p = llama_build(a, &s);
        n_ops = p.program.n_ops;
        double start = ms();
        if (asp_remat_frontier_find(cx, a, &p.program, 0, &f) != ASP_OK) {
            printf("%s\n", cx->message);
            exit(1);
        }
        best = ms() - start < best ? ms() - start : best;
    }
    const asp_remat_candidate *fast = &f.at[0], *small = &f.at[f.n - 1];
    printf("%4u layers, %6u ops, %4u segments: %7.1f ms, %3u tried, %3u on the frontier, peak "
           "%.2f GiB + %.1f ms to %.2f GiB + %.1f ms\n",
           layers, n_ops, f.n_segments, best, f.n_tried, f.n, (double)fast->cost.peak / (1 << 30),
           (double)fast->cost.repeated_ps * 1e-9, (double)small->cost.peak / (1 << 30),
           (double)small->cost.repeated_ps * 1e-9);
}

#define BUDGETS 20

static double step_ps(const asp_remat_program *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) sum += (double)p->ops[i].time_ps;
    return sum;
}

// From the smallest peak to none's: what is repeated, and how far that may be from the best.
static void print_gap(asp_ctx *cx, asp_arena *a, uint32_t layers)
{
    asp_remat_frontier f;
    int64_t budgets[BUDGETS];
    double bound[BUDGETS];
    llama_shape s = llama_8b(layers);
    llama_program p = llama_build(a, &s);
    if (asp_remat_frontier_find(cx, a, &p.program, 0, &f) != ASP_OK) exit(1);
    int64_t most = f.at[0].cost.peak, least = f.at[f.n - 1].cost.peak;
    for (int i = 0; i < BUDGETS; i++) budgets[i] = least + (most - least) * i / (BUDGETS - 1);
    if (asp_remat_bound(cx, &p.program, 0, budgets, BUDGETS, bound) != ASP_OK) exit(1);
    double step = step_ps(&p.program), worst = 0;
    printf("%u layers, a step of %.1f ms: budget, repeated, bound, gap of the step\n", layers,
           step * 1e-9);
    for (int i = 0; i < BUDGETS; i++) {
        double ps = (double)asp_remat_frontier_best(&f, budgets[i])->cost.repeated_ps;
        double gap = (ps - bound[i]) / (step + ps);
        worst = gap > worst ? gap : worst;
        printf("  %8.2f GiB %8.2f ms %8.2f ms %6.2f %%\n", (double)budgets[i] / (1 << 30),
               ps * 1e-9, bound[i] * 1e-9, 100 * gap);
    }
    printf("  worst gap %.2f %%\n", 100 * worst);
}

int main(int argc, char **argv)
{
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    if (argc < 2)
        for (uint32_t layers = 8; layers <= 128; layers *= 2) run(&cx, &a, layers);
    for (int i = 1; i < argc; i++) run(&cx, &a, (uint32_t)strtoul(argv[i], NULL, 10));
    print_gap(&cx, &a, 4);
    print_gap(&cx, &a, 32);
    asp_arena_fini(&a);
    return 0;
}
