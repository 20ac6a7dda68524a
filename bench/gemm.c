// Rates of matrix products as fractions of the fma probe: our providers, and OpenBLAS and BLIS
// where they are installed (libopenblas.so.0, libblis.so.4; OPENBLAS_CORETYPE=Haswell tells
// OpenBLAS its core).  Contenders interleaved, medians; at the end the geometric mean of what is
// used against the best of the libraries.  `bench_gemm [threads [rounds [large] [bf16]]]`: large
// takes the ten shapes of transformers of 125 M to 8 B parameters, otherwise those of a 30 M Llama;
// bf16 compares with oneDNN's primitive, as fractions of the bf16 probe where there is one.
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/half.h"
#include "bench/support/onednn.h"
#include "kern/gemm.h"
#include "kern/probe.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#define MOST_ROUNDS 64
#define MOST_CONTENDERS 5

typedef struct shape {
    asp_op op;
    int64_t m, n, k;
} shape;

static const shape of_30m[] = {
    {ASP_OP_gemm_nt, 4096, 512, 512},  {ASP_OP_gemm_nn, 4096, 512, 512},
    {ASP_OP_gemm_tn, 512, 512, 4096},  {ASP_OP_gemm_nt, 4096, 1408, 512},
    {ASP_OP_gemm_nn, 4096, 512, 1408}, {ASP_OP_gemm_tn, 1408, 512, 4096},
    {ASP_OP_gemm_nt, 4096, 512, 1408}, {ASP_OP_gemm_nn, 4096, 1408, 512},
    {ASP_OP_gemm_tn, 512, 1408, 4096}, {ASP_OP_gemm_nt, 4096, 4096, 512},
};
static const shape large[] = {
    {ASP_OP_gemm_nt, 4096, 3072, 768},  {ASP_OP_gemm_nn, 4096, 768, 3072},
    {ASP_OP_gemm_tn, 4096, 3072, 768},  {ASP_OP_gemm_nt, 16384, 2048, 2048},
    {ASP_OP_gemm_nt, 4096, 8192, 2048}, {ASP_OP_gemm_nt, 4096, 32000, 768},
    {ASP_OP_gemm_nn, 4096, 768, 32000}, {ASP_OP_gemm_nn, 4096, 2048, 8192},
    {ASP_OP_gemm_tn, 2048, 8192, 4096}, {ASP_OP_gemm_nt, 4096, 768, 768},
};

// ---- libraries ---------------------------------------------------------------------------------

// cblas_sgemm by its documented numbers: row-major 101, as it is 111, transposed 112.
typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void set_threads_fn(int n);

typedef struct library {
    const char *name, *file, *set_threads;
    sgemm_fn *sgemm; // NULL: not installed
} library;

static library libraries[] = {
    {"openblas", "libopenblas.so.0", "openblas_set_num_threads", NULL},
    {"blis", "libblis.so.4", "bli_thread_set_num_threads", NULL},
};

static void open_libraries(int threads)
{
    for (size_t i = 0; i < ASP_COUNT_OF(libraries); i++) {
        void *so = dlopen(libraries[i].file, RTLD_NOW | RTLD_LOCAL);
        if (!so) continue;
        union {
            void *object;
            sgemm_fn *sgemm;
            set_threads_fn *set;
        } f = {dlsym(so, "cblas_sgemm")}, s = {dlsym(so, libraries[i].set_threads)};
        libraries[i].sgemm = f.sgemm;
        if (s.object) s.set(threads);
    }
}

static void run_library(const library *l, const shape *s, const float *a, const float *b, float *c)
{
    const bool tn = s->op == ASP_OP_gemm_tn, nt = s->op == ASP_OP_gemm_nt;
    const int m = (int)s->m, n = (int)s->n, k = (int)s->k;
    l->sgemm(101, tn ? 112 : 111, nt ? 112 : 111, m, n, k, 1, a, tn ? m : k, b, nt ? k : n, 0, c,
             n);
}

// ---- ours --------------------------------------------------------------------------------------

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

static void *numbers(int64_t n, asp_dtype dtype)
{
    float *p = aligned_alloc(64, (size_t)asp_round_up(n * 4, 64));
    uint16_t *half = (uint16_t *)(void *)p;
    for (int64_t i = 0; p && i < n; i++) {
        const float x = (float)((i * 7919) % 1000) * 0.002f - 1.0f;
        if (dtype == ASP_BF16)
            half[i] = asp_to_bf16(x);
        else
            p[i] = x;
    }
    return p;
}

// One product on a provider; NULL: the one that is used.  Seconds.
static double time_ours(asp_ctx *cx, asp_team *team, const shape *s, const char *provider,
                        asp_dtype dtype, void *a, void *b, void *c)
{
    const bool tn = s->op == ASP_OP_gemm_tn, nt = s->op == ASP_OP_gemm_nt;
    asp_arena arena;
    asp_arena_init(&arena, cx);
    job j = {.call = {.n_in = 2, .n_out = 1}};
    j.call.in[0] = (asp_tensor){a, dtype, 2, {tn ? s->k : s->m, tn ? s->m : s->k}};
    j.call.in[1] = (asp_tensor){b, dtype, 2, {nt ? s->n : s->k, nt ? s->k : s->n}};
    j.call.out[0] = (asp_tensor){c, tn ? ASP_F32 : dtype, 2, {s->m, s->n}};
    const asp_kern_row *row = asp_kern_choose(s->op, j.call.out[0].dtype);
    if (asp_kern_prepare(cx, &arena, row, provider, asp_team_size(team), &j.call) < 0) abort();
    j.fn = row->fn;
    j.call.work = aligned_alloc(64, (size_t)asp_round_up(j.call.work_bytes + 1, 64));
    asp_team_run(team, work, &j); // memory is there, caches are as in a step
    double t = asp_seconds();
    asp_team_run(team, work, &j);
    t = asp_seconds() - t;
    free(j.call.work);
    asp_arena_fini(&arena);
    return t;
}

static double time_library(const library *l, const shape *s, const float *a, const float *b,
                           float *c)
{
    run_library(l, s, a, b, c);
    double t = asp_seconds();
    run_library(l, s, a, b, c);
    return asp_seconds() - t;
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

typedef struct setting {
    asp_ctx *cx;
    asp_team *team;
    asp_dtype dtype;
    int rounds;
} setting;

// Once each contender that there is, what is used first; names and GFLOP/s.  Returns how many.
static int one_round(const setting *t, const shape *s, void *a, void *b, void *c,
                     const char **names, double *rates)
{
    const double gflop = 2e-9 * (double)s->m * (double)s->n * (double)s->k;
    int n = 0;
    names[n] = "used";
    rates[n++] = gflop / time_ours(t->cx, t->team, s, NULL, t->dtype, a, b, c);
    if (t->dtype == ASP_BF16) {
        const double seconds =
            support_onednn_bf16(s->op, s->m, s->n, s->k, asp_team_size(t->team), a, b, c);
        names[n] = "onednn";
        if (seconds > 0) rates[n++] = gflop / seconds;
        return n;
    }
    for (int i = 0; asp_gemm_provider_name(i) && n < MOST_CONTENDERS; i++, n++) {
        names[n] = asp_gemm_provider_name(i);
        rates[n] = gflop / time_ours(t->cx, t->team, s, names[n], t->dtype, a, b, c);
    }
    for (size_t i = 0; i < ASP_COUNT_OF(libraries) && n < MOST_CONTENDERS; i++) {
        if (!libraries[i].sgemm) continue;
        names[n] = libraries[i].name;
        rates[n++] = gflop / time_library(&libraries[i], s, a, b, c);
    }
    return n;
}

static double probe_of(asp_dtype dtype)
{
    const double pairs = dtype == ASP_BF16 ? asp_probe_bf16() : 0;
    return pairs > 0 ? pairs : asp_probe_fma(asp_isa_best());
}

// Returns what is used against the best library, as a ratio of rates.
static double bench_shape(const setting *t, const shape *s)
{
    void *a = numbers(s->m * s->k, t->dtype), *b = numbers(s->n * s->k, t->dtype);
    void *c = numbers(s->m * s->n, ASP_F32);
    const char *names[MOST_CONTENDERS];
    double rates[MOST_CONTENDERS][MOST_ROUNDS], probes[MOST_ROUNDS], best = 0, used = 0;
    const int rounds = t->rounds;
    int n = 0;
    for (int r = 0; r < rounds; r++) {
        double now[MOST_CONTENDERS];
        probes[r] = probe_of(t->dtype) * asp_team_size(t->team);
        n = one_round(t, s, a, b, c, names, now);
        for (int i = 0; i < n; i++) rates[i][r] = now[i];
    }
    const double probe = median(probes, rounds);
    printf("%-8s %5lld x %5lld x %5lld  probe %6.1f GF/s", asp_ops[s->op].name, (long long)s->m,
           (long long)s->n, (long long)s->k, probe);
    for (int i = 0; i < n; i++) {
        const double rate = median(rates[i], rounds);
        printf("   %s %6.1f %.2f", names[i], rate, rate / probe);
        if (i == 0)
            used = rate;
        else if (strcmp(names[i], "builtin") != 0)
            best = rate > best ? rate : best;
    }
    printf("\n");
    fflush(stdout);
    free(a), free(b), free(c);
    return best > 0 ? used / best : 1;
}

int main(int argc, char **argv)
{
    asp_ctx cx;
    asp_team *team;
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const int rounds = argc > 2 ? (int)asp_max(1, asp_min(MOST_ROUNDS, atoi(argv[2]))) : 5;
    bool big = false;
    asp_dtype dtype = ASP_F32;
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "large")) big = true;
        if (!strcmp(argv[i], "bf16")) dtype = ASP_BF16;
    }
    const shape *shapes = big ? large : of_30m;
    const size_t n = big ? ASP_COUNT_OF(large) : ASP_COUNT_OF(of_30m);
    double logs = 0, worst = HUGE_VAL;
    asp_ctx_init(&cx);
    if (asp_team_create(&cx, threads, 0, &team) < 0) {
        fprintf(stderr, "%s\n", cx.message);
        return 1;
    }
    open_libraries(threads);
    const setting t = {&cx, team, dtype, rounds};
    for (size_t i = 0; i < n; i++) {
        const double ratio = bench_shape(&t, &shapes[i]);
        logs += log(ratio);
        worst = ratio < worst ? ratio : worst;
    }
    printf("used against the best library: geometric mean %.3f, worst %.3f\n",
           exp(logs / (double)n), worst);
    asp_team_destroy(team);
    return 0;
}
