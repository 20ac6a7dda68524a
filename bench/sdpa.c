// Rates of causal attention as fractions of the fma probe, forward and backward interleaved,
// medians.  `bench_sdpa [threads [rounds [S D heads [bf16]]]]`, of bf16 as fractions of the bf16
// probe where there is one; `bench_sdpa threads rounds S "q - k <= 1023"` compares a predicate with
// the causal mask.  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/half.h"
#include "kern/kern.h"
#include "kern/probe.h"
#include "op/attention.h"

#include <stdlib.h>

#define MOST_ROUNDS 64

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

static asp_tensor tensor(asp_dtype dtype, int rank, int64_t heads, int64_t s, int64_t d)
{
    asp_tensor t = {NULL, dtype, rank, {1, heads, s, d}};
    const int64_t n = asp_tensor_count(&t);
    float *p = aligned_alloc(64, (size_t)asp_round_up(n * 4, 64));
    if (!p) abort();
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)((i * 7919) % 1009) * 0.002f - 1.0f;
        if (dtype == ASP_BF16)
            ((uint16_t *)p)[i] = asp_to_bf16(x);
        else
            p[i] = x;
    }
    t.data = p;
    return t;
}

static double seconds(asp_team *team, job *j)
{
    double t0 = asp_seconds();
    asp_team_run(team, work, j);
    return asp_seconds() - t0;
}

static void job_init(job *j, asp_op op, asp_dtype dtype, int threads)
{
    const asp_kern_row *row = asp_kern_choose(op, dtype);
    j->fn = row->fn;
    j->call.work_bytes = row->work ? row->work(&j->call, threads) : 0;
    j->call.work = aligned_alloc(64, (size_t)asp_round_up(j->call.work_bytes + 1, 64));
    if (!j->call.work) abort();
}

static void bench_shape(asp_team *team, asp_dtype dtype, int64_t heads, int64_t s, int64_t d,
                        int rounds)
{
    const asp_sdpa_attr attr = asp_sdpa_attr_of(0.125, true);
    const int threads = asp_team_size(team);
    double probe[MOST_ROUNDS], fwd[MOST_ROUNDS], bwd[MOST_ROUNDS];
    asp_tensor t[9];
    for (int i = 0; i < 9; i++)
        t[i] = tensor(i == 4 ? ASP_F32 : dtype, i == 4 ? 3 : 4, heads, s, d);
    job f = {.call = {.attr = &attr, .n_in = 3, .n_out = 2}};
    job b = {.call = {.attr = &attr, .n_in = 6, .n_out = 3}};
    memcpy(f.call.in, t, 3 * sizeof *t), memcpy(f.call.out, t + 3, 2 * sizeof *t);
    memcpy(b.call.in, t, 6 * sizeof *t), memcpy(b.call.out, t + 6, 3 * sizeof *t);
    job_init(&f, ASP_OP_sdpa, dtype, threads), job_init(&b, ASP_OP_sdpa_grad, dtype, threads);
    seconds(team, &f), seconds(team, &b);
    const double flops = 2e-9 * (double)heads * (double)s * (double)s * (double)d;
    for (int r = 0; r < rounds; r++) {
        probe[r] =
            threads * (dtype == ASP_BF16 && asp_isa_has_bf16() ? asp_probe_bf16()
                                                               : asp_probe_fma(asp_isa_best()));
        fwd[r] = flops / seconds(team, &f);
        bwd[r] = 2.5 * flops / seconds(team, &b);
    }
    qsort(probe, (size_t)rounds, sizeof(double), by_value);
    qsort(fwd, (size_t)rounds, sizeof(double), by_value);
    qsort(bwd, (size_t)rounds, sizeof(double), by_value);
    const double peak = probe[rounds / 2];
    printf("heads %2lld  S %6lld  D %3lld  probe %6.1f   forward %6.1f GF/s %.2f   backward %6.1f "
           "GF/s %.2f\n",
           (long long)heads, (long long)s, (long long)d, peak, fwd[rounds / 2],
           fwd[rounds / 2] / peak, bwd[rounds / 2], bwd[rounds / 2] / peak);
    fflush(stdout);
    for (int i = 0; i < 9; i++) free(t[i].data);
    free(f.call.work), free(b.call.work);
}

// A predicate against the causal mask alone, interleaved: seconds of both and how many times
// faster.
static void bench_mask(asp_team *team, const char *mask, int64_t s, int64_t d, int rounds)
{
    asp_sdpa_attr causal = asp_sdpa_attr_of(0.125, true), masked = causal;
    asp_tensor t[9];
    double seconds_of[4][MOST_ROUNDS];
    job j[4];
    masked.mask = mask;
    for (int i = 0; i < 9; i++) t[i] = tensor(ASP_F32, i == 4 ? 3 : 4, 1, s, d);
    for (int i = 0; i < 4; i++) { // forward: causal, masked; backward: causal, masked
        const bool forward = i < 2;
        j[i] = (job){.call = {.attr = i % 2 ? &masked : &causal,
                              .ranks = 1,
                              .n_in = forward ? 3 : 6,
                              .n_out = forward ? 2 : 3}};
        memcpy(j[i].call.in, t, 6 * sizeof *t);
        memcpy(j[i].call.out, t + (forward ? 3 : 6), 3 * sizeof *t);
        job_init(&j[i], forward ? ASP_OP_sdpa : ASP_OP_sdpa_grad, ASP_F32, asp_team_size(team));
    }
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < 4; i++) seconds_of[i][r] = seconds(team, &j[i]);
    for (int i = 0; i < 4; i++) {
        qsort(seconds_of[i], (size_t)rounds, sizeof(double), by_value);
        free(j[i].call.work);
    }
    const int m = rounds / 2;
    printf("S %6lld  D %3lld  %-28s forward %7.3f s of %7.3f s, %5.1fx   backward %7.3f s of %7.3f "
           "s, %5.1fx\n",
           (long long)s, (long long)d, mask, seconds_of[1][m], seconds_of[0][m],
           seconds_of[0][m] / seconds_of[1][m], seconds_of[3][m], seconds_of[2][m],
           seconds_of[2][m] / seconds_of[3][m]);
    for (int i = 0; i < 9; i++) free(t[i].data);
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
    if (argc == 5) { // a mask at S = argv[3]
        bench_mask(team, argv[4], atoi(argv[3]), 64, rounds);
    } else if (argc > 5) {
        const asp_dtype dtype = argc > 6 && !strcmp(argv[6], "bf16") ? ASP_BF16 : ASP_F32;
        bench_shape(team, dtype, atoi(argv[5]), atoi(argv[3]), atoi(argv[4]), rounds);
    } else {
        bench_shape(team, ASP_F32, 8, 256, 64, rounds);
        bench_shape(team, ASP_F32, 4, 1024, 64, rounds);
        bench_shape(team, ASP_F32, 1, 4096, 64, rounds);
        bench_shape(team, ASP_F32, 2, 4096, 64, rounds);
        bench_shape(team, ASP_F32, 1, 4096, 128, rounds);
        bench_shape(team, ASP_F32, 1, 4096, 80, rounds);
        bench_shape(team, ASP_F32, 1, 4096, 16, rounds);
    }
    asp_team_destroy(team);
    return 0;
}
