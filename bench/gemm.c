// Rates of matrix products, each provider, as fractions of the fma probe: contenders interleaved,
// medians.  `bench_gemm [threads [rounds]]`.  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "kern/gemm.h"
#include "kern/probe.h"

#include <stdlib.h>

#define MOST_ROUNDS 64

static const int64_t shapes[][3] = {
    {4096, 512, 512}, {4096, 1408, 512}, {4096, 512, 1408}, {4096, 4096, 512}, {512, 1408, 4096}};

typedef struct job {
    asp_kernel *fn;
    asp_kcall call;
} job;

static void work(void *arg, asp_worker *w)
{
    const job *j = arg;
    j->fn(&j->call, w);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float *numbers(int64_t n)
{
    float *p = aligned_alloc(64, (size_t)asp_round_up(n * 4, 64));
    for (int64_t i = 0; p && i < n; i++) p[i] = (float)((i * 7919) % 1000) * 0.002f - 1.0f;
    return p;
}

static void bench_shape(asp_ctx *cx, asp_team *team, asp_op op, const int64_t *s, int rounds)
{
    const bool tn = op == ASP_OP_gemm_tn, nt = op == ASP_OP_gemm_nt;
    const int64_t m = s[0], n = s[1], k = s[2];
    float *a = numbers(m * k), *b = numbers(n * k), *c = numbers(m * n);
    double rates[4][MOST_ROUNDS], probes[MOST_ROUNDS];
    asp_arena arena;
    asp_arena_init(&arena, cx);
    int n_providers = 0;
    for (int r = 0; r < rounds; r++) {
        probes[r] = asp_probe_fma(asp_isa_best()) * asp_team_size(team);
        for (int i = 0; asp_gemm_provider_name(i); i++) {
            job j = {.call = {.n_in = 2, .n_out = 1}};
            j.call.in[0] = (asp_tensor){a, ASP_F32, 2, {tn ? k : m, tn ? m : k}};
            j.call.in[1] = (asp_tensor){b, ASP_F32, 2, {nt ? n : k, nt ? k : n}};
            j.call.out[0] = (asp_tensor){c, ASP_F32, 2, {m, n}};
            const asp_kern_row *row = asp_kern_choose(op, ASP_F32);
            if (asp_kern_prepare(cx, &arena, row, asp_gemm_provider_name(i), asp_team_size(team),
                                 &j.call) < 0)
                abort();
            j.fn = row->fn;
            j.call.work = aligned_alloc(64, (size_t)asp_round_up(j.call.work_bytes + 1, 64));
            asp_team_run(team, work, &j);
            double t0 = asp_seconds();
            asp_team_run(team, work, &j);
            rates[i][r] = 2e-9 * (double)m * (double)n * (double)k / (asp_seconds() - t0);
            free(j.call.work);
            n_providers = i + 1;
        }
    }
    qsort(probes, (size_t)rounds, sizeof *probes, by_value);
    printf("%-8s %5lld x %5lld x %5lld  probe %6.1f", asp_ops[op].name, (long long)m, (long long)n,
           (long long)k, probes[rounds / 2]);
    for (int i = 0; i < n_providers; i++) {
        qsort(rates[i], (size_t)rounds, sizeof(double), by_value);
        printf("   %s %6.1f GF/s %.2f", asp_gemm_provider_name(i), rates[i][rounds / 2],
               rates[i][rounds / 2] / probes[rounds / 2]);
    }
    printf("\n");
    asp_arena_fini(&arena);
    free(a), free(b), free(c);
}

int main(int argc, char **argv)
{
    asp_ctx cx;
    asp_team *team;
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const int rounds = argc > 2 ? (int)asp_max(1, asp_min(MOST_ROUNDS, atoi(argv[2]))) : 5;
    asp_ctx_init(&cx);
    if (asp_team_create(&cx, threads, 0, &team) < 0) {
        fprintf(stderr, "%s\n", cx.message);
        return 1;
    }
    static const asp_op ops[] = {ASP_OP_gemm_nt, ASP_OP_gemm_nn, ASP_OP_gemm_tn};
    for (size_t i = 0; i < ASP_COUNT_OF(shapes); i++)
        for (int o = 0; o < 3; o++) bench_shape(&cx, team, ops[o], shapes[i], rounds);
    asp_team_destroy(team);
    return 0;
}
