// AdamW against steps worked out by hand, decay and clipping, levels bit for bit, norms.
// SPDX-License-Identifier: Apache-2.0
#include "kern/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

// Step 1 from zero moments, g = 3, scale 2/3 -> x = 2, beta 0.5 and 0.75: m = 1, v = 1; corrected m
// = 2, v = 4, so p moves by lr m / (sqrt(v) + eps) = 0.1 * 2 / 2.5 = 0.08 after p * (1 - 0.1 *
// 0.2). The eps is 0.5.
static void first_step_by_hand(void **state)
{
    (void)state;
    const asp_adamw_step_args a = {.scale = 2.0 / 3,
                                   .beta1 = .5,
                                   .beta2 = .75,
                                   .rate = .1 / (1 - .5),
                                   .correct = 1 / sqrt(1 - .75),
                                   .eps = .5,
                                   .decay = .1 * .2};
    for (asp_isa isa = ASP_ISA_GENERIC; isa <= asp_isa_best(); isa++) {
        double p = 10, g = 3, m = 0, v = 0;
        float fp = 10, fg = 3, fm = 0, fv = 0;
        asp_optim_choose(isa)->adamw_f64(&a, &p, &g, &m, &v, 1);
        asp_optim_choose(isa)->adamw_f32(&a, &fp, &fg, &fm, &fv, 1);
        assert_true(fabs(m - 1) < 1e-15 && fabs(v - 1) < 1e-15);
        assert_true(fabs(p - (9.8 - .08)) < 1e-14);
        assert_float_equal(fp, 9.72f, 2e-6f);
    }
}

// Without decay, clipping or noise the first step moves each parameter by the learning rate.
static void first_step_moves_by_the_rate(void **state)
{
    (void)state;
    const asp_adamw_step_args a = {.scale = 1,
                                   .beta1 = .9,
                                   .beta2 = .95,
                                   .rate = 1e-3 / .1,
                                   .correct = 1 / sqrt(.05),
                                   .eps = 1e-12};
    double p[3] = {1, 2, 3}, g[3] = {1e-3, -5, 100}, m[3] = {0}, v[3] = {0};
    asp_optim_choose(asp_isa_best())->adamw_f64(&a, p, g, m, v, 3);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(p[i] - (i + 1 - (g[i] > 0 ? 1e-3 : -1e-3))) < 1e-11);
}

static void levels_give_the_same_bits(void **state)
{
    (void)state;
    enum { N = 203 };
    const asp_adamw_step_args a = {.7, .9, .95, 1e-3, 1.5, 1e-8, 1e-4};
    float start[4][N], x[2][4][N];
    for (int i = 0; i < 4 * N; i++)
        start[i / N][i % N] = (float)(i * 37 % 101 - (i < 3 * N ? 50 : 0)) / 64;
    for (int l = 0; l < N; l++) start[3][l] = fabsf(start[3][l]);
    double squares[2];
    for (asp_isa isa = ASP_ISA_GENERIC; isa <= asp_isa_best(); isa++) {
        const int to = isa != ASP_ISA_GENERIC;
        const asp_optim_kernels *k = asp_optim_choose(isa);
        memcpy(x[to], start, sizeof start);
        k->adamw_f32(&a, x[to][0], x[to][1], x[to][2], x[to][3], N);
        squares[to] = k->squares_f32(start[0], N);
        assert_memory_equal(x[to], x[0], sizeof start);
        assert_true(squares[to] == squares[0]);
    }
}

static void squares_by_closed_form(void **state)
{
    (void)state;
    float f[100];
    double d[100];
    for (int i = 0; i < 100; i++) d[i] = i, f[i] = (float)i;
    const asp_optim_kernels *k = asp_optim_choose(asp_isa_best());
    for (int n = 0; n <= 100; n++) {
        const double want = (n - 1.0) * n * (2.0 * n - 1) / 6;
        assert_true(k->squares_f32(f, n) == want && k->squares_f64(d, n) == want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_step_by_hand),
        cmocka_unit_test(first_step_moves_by_the_rate),
        cmocka_unit_test(levels_give_the_same_bits),
        cmocka_unit_test(squares_by_closed_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
