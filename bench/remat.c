// How long it takes to choose what to recompute under a budget, for Llamas of 8 to 128 layers, and
// what the choices are worth.
//   bench_remat [layers ...]
// SPDX-License-Identifier: Apache-2.0
#include "unit/flow/support/llama_program.h"

#include <stdlib.h>
#include <time.h>

#define ROUNDS 3

static double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
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

int main(int argc, char **argv)
{
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    if (argc < 2)
        for (uint32_t layers = 8; layers <= 128; layers *= 2) run(&cx, &a, layers);
    for (int i = 1; i < argc; i++) run(&cx, &a, (uint32_t)strtoul(argv[i], NULL, 10));
    asp_arena_fini(&a);
    return 0;
}
