// Peak rates of this processor.  Neighbours: probe.h (contract), probe_isa.c (the loops).
// SPDX-License-Identifier: Apache-2.0
#include "kern/probe_int.h"
#include "base/file.h"

double asp_probe_fma(asp_isa isa)
{
    asp_fma_loop_fn *loop = asp_fma_loop_generic;
#if defined(__x86_64__)
    static asp_fma_loop_fn *const levels[] = {asp_fma_loop_generic, asp_fma_loop_avx2,
                                              asp_fma_loop_avx512};
    loop = levels[isa];
#else
    (void)isa;
#endif
    double best = 0;
    for (int round = 0; round < 10; round++) {
        float out;
        double t0 = asp_seconds(), flops = loop(1000000, &out), t = asp_seconds() - t0;
        if (out == out && flops / t > best) best = flops / t;
    }
    return best * 1e-9;
}

typedef struct triad {
    float *a;
    const float *b, *c;
    int64_t n;
} triad;

// Each thread has its stretch.
static void triad_part(const triad *t, int thread, int n_threads)
{
    const int64_t from = t->n * thread / n_threads, end = t->n * (thread + 1) / n_threads;
    float *restrict a = t->a;
    const float *restrict b = t->b, *restrict c = t->c;
    for (int64_t i = from; i < end; i++) a[i] = b[i] + 0.5f * c[i];
}

static void triad_main(void *arg, asp_worker *w) { triad_part(arg, w->thread, w->n_threads); }

double asp_probe_triad(asp_team *team, float *a, const float *b, const float *c, int64_t n)
{
    triad t = {a, b, c, n};
    double best = 0;
    for (int round = 0; round < 5; round++) {
        const double t0 = asp_seconds();
        if (team)
            asp_team_run(team, triad_main, &t);
        else
            triad_part(&t, 0, 1);
        const double rate = 12.0 * (double)n / (asp_seconds() - t0);
        if (a[n - 1] == a[n - 1] && rate > best) best = rate;
    }
    return best * 1e-9;
}
