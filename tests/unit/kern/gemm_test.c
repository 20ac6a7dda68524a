// Matrix products: hand values, every provider and level against the reference, edges, threads.
// SPDX-License-Identifier: Apache-2.0
#include "kern/gemm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define CANARY 7.25f
#define GUARD 32 // floats before and after an output

static asp_ctx cx;

static float number(uint32_t *seed) // -1 .. 1
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int32_t)*seed / 2147483648.0f;
}

typedef struct product {
    asp_op op;
    int64_t m, n, k;
    asp_kcall call;
    float *a, *b, *c; // owned; c with guards
} product;

static void shape(asp_tensor *t, asp_dtype dtype, int64_t rows, int64_t cols, void *data)
{
    *t = (asp_tensor){.data = data, .dtype = dtype, .rank = 2, .dim = {rows, cols}};
}

static void *aligned(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)asp_round_up(bytes + 1, 64));
    assert_non_null(p);
    return p;
}

static void product_init(product *p, asp_op op, int64_t m, int64_t n, int64_t k)
{
    uint32_t seed = (uint32_t)(m * 31 + n * 7 + k);
    *p = (product){.op = op, .m = m, .n = n, .k = k};
    p->a = aligned(m * k * 4), p->b = aligned(n * k * 4);
    p->c = aligned((m * n + 2 * GUARD) * 4);
    for (int64_t i = 0; i < m * k; i++) p->a[i] = number(&seed);
    for (int64_t i = 0; i < n * k; i++) p->b[i] = number(&seed);
    for (int64_t i = 0; i < m * n + 2 * GUARD; i++) p->c[i] = CANARY;
    const bool tn = op == ASP_OP_gemm_tn, nt = op == ASP_OP_gemm_nt;
    shape(&p->call.in[0], ASP_F32, tn ? k : m, tn ? m : k, p->a);
    shape(&p->call.in[1], ASP_F32, nt ? n : k, nt ? k : n, p->b);
    shape(&p->call.out[0], ASP_F32, m, n, p->c + GUARD);
    p->call.n_in = 2, p->call.n_out = 1;
}

static void product_fini(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
}

typedef struct job {
    asp_kernel *fn;
    const asp_kcall *call;
} job;

static void work(void *arg, asp_worker *w)
{
    const job *j = arg;
    j->fn(j->call, w);
}

static void run(asp_kernel *fn, asp_kcall *call, int n_threads)
{
    asp_team *team;
    assert_int_equal(asp_team_create(&cx, n_threads, -1, &team), ASP_OK);
    call->work = aligned(call->work_bytes);
    asp_team_run(team, work, &(job){fn, call});
    free(call->work);
    asp_team_destroy(team);
}

static void guards_stand(const product *p)
{
    for (int i = 0; i < GUARD; i++) {
        assert_true(p->c[i] == CANARY);
        assert_true(p->c[GUARD + p->m * p->n + i] == CANARY);
    }
}

// Largest difference to sums in double, in units of sqrt(k) eps.
static double error_of(const product *p)
{
    double worst = 0;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            for (int64_t q = 0; q < p->k; q++) {
                double a =
                    (double)(p->op == ASP_OP_gemm_tn ? p->a[q * p->m + i] : p->a[i * p->k + q]);
                double b =
                    (double)(p->op == ASP_OP_gemm_nt ? p->b[j * p->k + q] : p->b[q * p->n + j]);
                sum += a * b;
            }
            worst = fmax(worst, fabs(sum - (double)p->c[GUARD + i * p->n + j]));
        }
    return worst / (sqrt((double)p->k) * 1.2e-7);
}

static const asp_op forms[] = {ASP_OP_gemm_nt, ASP_OP_gemm_nn, ASP_OP_gemm_tn};

// x = (1 2; 3 4; 5 6), w = (1 0; 2 1): x w^T, x w, and x^T x by hand.
static void hand_values(void **state)
{
    (void)state;
    const float x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, 2, 1};
    const float want[3][6] = {{1, 4, 3, 10, 5, 16}, {5, 2, 11, 4, 17, 6}, {35, 44, 44, 56}};
    for (int f = 0; f < 3; f++)
        for (int fast = 0; fast < 2; fast++) {
            product p;
            const bool tn = forms[f] == ASP_OP_gemm_tn;
            product_init(&p, forms[f], tn ? 2 : 3, 2, tn ? 3 : 2);
            memcpy(p.a, x, sizeof x);
            memcpy(p.b, tn ? x : w, tn ? sizeof x : sizeof w);
            const asp_kern_row *row =
                fast ? asp_kern_choose(forms[f], ASP_F32) : asp_kern_ref(forms[f]);
            p.call.work_bytes = row->work ? row->work(&p.call, 1) : 0;
            run(row->fn, &p.call, 1);
            for (int i = 0; i < p.m * 2; i++) assert_true(p.c[GUARD + i] == want[f][i]);
            product_fini(&p);
        }
}

static void reference_takes_f64(void **state)
{
    (void)state;
    double x[] = {1, 1e-9, 2, 3}, w[] = {1, 1, 0.5, 0}, y[4];
    asp_kcall k = {.n_in = 2, .n_out = 1};
    shape(&k.in[0], ASP_F64, 2, 2, x);
    shape(&k.in[1], ASP_F64, 2, 2, w);
    shape(&k.out[0], ASP_F64, 2, 2, y);
    run(asp_kern_choose(ASP_OP_gemm_nt, ASP_F64)->fn, &k, 2);
    assert_true(y[0] == 1 + 1e-9 && y[1] == 0.5 && y[2] == 5 && y[3] == 1);
}

static void check(const char *provider, asp_op op, int64_t m, int64_t n, int64_t k)
{
    asp_arena arena;
    product p;
    asp_arena_init(&arena, &cx);
    product_init(&p, op, m, n, k);
    const asp_kern_row *row = asp_kern_choose(op, ASP_F32);
    float *first = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        assert_int_equal(asp_kern_prepare(&cx, &arena, row, provider, threads, &p.call), ASP_OK);
        run(row->fn, &p.call, threads);
        guards_stand(&p);
        if (threads == 1) {
            assert_true(error_of(&p) < 8);
            first = aligned(m * n * 4);
            memcpy(first, p.c + GUARD, (size_t)(m * n * 4));
        }
        assert_memory_equal(first, p.c + GUARD, (size_t)(m * n * 4));
    }
    free(first);
    product_fini(&p);
    asp_arena_fini(&arena);
}

static void check_shapes(const char *provider)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {3, 5, 7},     {17, 33, 300},
                                        {130, 70, 65}, {96, 100, 9},  {29, 200, 513},
                                        {7, 8, 256},   {230, 40, 270}};
    uint32_t seed = 5;
    for (int f = 0; f < 3; f++) {
        for (size_t i = 0; i < ASP_COUNT_OF(shapes); i++)
            check(provider, forms[f], shapes[i][0], shapes[i][1], shapes[i][2]);
        for (int i = 0; i < 6; i++) {
            int64_t d[3];
            for (int j = 0; j < 3; j++) d[j] = 1 + (int64_t)(fabsf(number(&seed)) * 110);
            check(provider, forms[f], d[0], d[1], d[2]);
        }
    }
}

static void providers_agree_with_sums_in_double(void **state)
{
    (void)state;
    const char *name;
    for (int i = 0; (name = asp_gemm_provider_name(i)); i++) check_shapes(name);
}

static void levels_agree_with_sums_in_double(void **state)
{
    (void)state;
    const asp_isa best = asp_isa_best();
    for (int isa = 0; isa < (int)best; isa++) {
        setenv("ASP_ISA", asp_isa_name((asp_isa)isa), 1);
        assert_int_equal(asp_isa_best(), isa);
        check_shapes("builtin");
    }
    unsetenv("ASP_ISA");
}

static void leading_dims_are_rows(void **state)
{
    (void)state;
    product p;
    product_init(&p, ASP_OP_gemm_nt, 6, 4, 5);
    p.call.in[0].rank = p.call.out[0].rank = 3;
    memcpy(p.call.in[0].dim, (int64_t[]){2, 3, 5}, 3 * sizeof(int64_t));
    memcpy(p.call.out[0].dim, (int64_t[]){2, 3, 4}, 3 * sizeof(int64_t));
    const asp_kern_row *row = asp_kern_choose(ASP_OP_gemm_nt, ASP_F32);
    p.call.work_bytes = row->work(&p.call, 1);
    run(row->fn, &p.call, 1);
    guards_stand(&p);
    assert_true(error_of(&p) < 8);
    product_fini(&p);
}

static void unknown_provider_is_refused(void **state)
{
    (void)state;
    asp_gemm_plan plan;
    product p;
    product_init(&p, ASP_OP_gemm_nt, 2, 2, 2);
    assert_int_equal(asp_gemm_prepare(&cx, "mkl", p.op, &p.call, 1, &plan), ASP_ERR_USAGE);
    assert_non_null(strstr(cx.message, "no provider \"mkl\""));
    assert_non_null(strstr(cx.message, "builtin"));
    product_fini(&p);
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_values),
        cmocka_unit_test(reference_takes_f64),
        cmocka_unit_test(providers_agree_with_sums_in_double),
        cmocka_unit_test(levels_agree_with_sums_in_double),
        cmocka_unit_test(leading_dims_are_rows),
        cmocka_unit_test(unknown_provider_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
