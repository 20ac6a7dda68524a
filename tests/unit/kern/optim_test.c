// AdamW against steps worked out by hand, decay and clipping, levels bit for bit, norms; parameters
// of bf16 that are rounded at random.
// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"
#include "kern/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
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
    const asp_adamw_step_args a = {.scale = .7,
                                   .beta1 = .9,
                                   .beta2 = .95,
                                   .rate = 1e-3,
                                   .correct = 1.5,
                                   .eps = 1e-8,
                                   .decay = 1e-4};
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

// ---- parameters of bf16 ------------------------------------------------------------------------

enum { MANY = 1 << 18 };
typedef struct half_slabs {
    uint16_t p[MANY];
    float g[MANY], m[MANY], v[MANY];
} half_slabs;

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

// With a rate of 0 the new value is the old one times 1 - decay: 0.3 of the way from 1 to the bf16
// below it.
static void mean_is_right(void **state)
{
    (void)state;
    const asp_adamw_step_args a = {
        .scale = 1, .correct = 1, .eps = 1, .decay = 0.3 * 0x1p-8, .random = {7, 11}};
    for (int sign = -1; sign <= 1; sign += 2) {
        half_slabs *s = calloc(1, sizeof *s);
        const float near = (float)sign, far = (float)sign * (1 - 0x1p-8f);
        int64_t n_far = 0;
        assert_non_null(s);
        for (int i = 0; i < MANY; i++) s->p[i] = asp_to_bf16(near);
        asp_optim_choose(asp_isa_best())->adamw_bf16(&a, s->p, s->g, s->m, s->v, 0, MANY);
        for (int i = 0; i < MANY; i++) {
            assert_true(s->p[i] == asp_to_bf16(near) || s->p[i] == asp_to_bf16(far));
            n_far += s->p[i] == asp_to_bf16(far);
        }
        const double deviation = sqrt(0.3 * 0.7 / MANY);
        assert_true(fabs((double)n_far / MANY - 0.3) < 5 * deviation + 0x1p-16);
        free(s);
    }
}

// Element i of the slab is rounded by its own 16 bits, whoever updates it and with whom.
static void each_element_has_its_draw(void **state)
{
    (void)state;
    enum { N = 3001, FIRST = 40 };
    static half_slabs s;
    asp_adamw_step_args a = {
        .scale = 1, .correct = 1, .eps = 1, .decay = 0.01, .random = {0x123456789abcdef, 3}};
    const float keep = (float)(1.0 - a.decay);
    for (asp_isa isa = ASP_ISA_GENERIC; isa <= asp_isa_best(); isa++) {
        for (int piece = 1; piece <= N; piece = piece * 5 + 3) {
            for (int i = 0; i < N; i++) s.p[i] = asp_to_bf16((float)(i - N / 2) * 0.37f);
            for (int at = 0; at < N; at += piece)
                asp_optim_choose(isa)->adamw_bf16(&a, s.p + at, s.g + at, s.m + at, s.v + at,
                                                  (uint64_t)(FIRST + at), asp_min(piece, N - at));
            for (int i = 0; i < N; i++) {
                uint32_t words[4];
                asp_philox_block(a.random, (uint64_t)(FIRST + i) / 8, words);
                const uint32_t draw = words[(FIRST + i) % 8 / 2] >> 16 * (i % 2) & 0xffff;
                const float x = asp_from_bf16(asp_to_bf16((float)(i - N / 2) * 0.37f)) * keep;
                assert_int_equal(s.p[i], (bits_of(x) + draw) >> 16);
            }
        }
    }
}

// Moments are those of f32 parameters, and so is the value that is rounded.
static void follows_f32(void **state)
{
    (void)state;
    enum { N = 100 };
    static half_slabs s;
    const asp_adamw_step_args a = {.scale = .5,
                                   .beta1 = .9,
                                   .beta2 = .95,
                                   .rate = 1e-2,
                                   .correct = 1.5,
                                   .eps = 1e-8,
                                   .decay = 1e-4};
    float p[N], g[N], m[N], v[N];
    for (int i = 0; i < N; i++) {
        s.p[i] = asp_to_bf16((float)(i - 30) / 7);
        p[i] = asp_from_bf16(s.p[i]);
        s.g[i] = g[i] = (float)(i * 37 % 101 - 50) / 64;
        s.m[i] = m[i] = (float)(i % 5 - 2) / 8;
        s.v[i] = v[i] = (float)(i % 3) / 8;
    }
    asp_optim_choose(asp_isa_best())->adamw_bf16(&a, s.p, s.g, s.m, s.v, 0, N);
    asp_optim_choose(asp_isa_best())->adamw_f32(&a, p, g, m, v, N);
    assert_memory_equal(s.m, m, sizeof m);
    assert_memory_equal(s.v, v, sizeof v);
    for (int i = 0; i < N; i++) {
        const int below = (int)(bits_of(p[i]) >> 16);
        assert_in_range(s.p[i], below, below + 1);
    }
}

static void what_is_no_number_stays(void **state)
{
    (void)state;
    const asp_adamw_step_args a = {.scale = 1, .correct = 1, .eps = 1};
    static const uint16_t odd[] = {0x7f80, 0xff80, 0x7fc0, 0xffff, 0, 0x8000};
    static half_slabs s;
    for (int i = 0; i < 6 * 50; i++) s.p[i] = odd[i % 6];
    asp_optim_choose(asp_isa_best())->adamw_bf16(&a, s.p, s.g, s.m, s.v, 0, 6 * 50);
    for (int i = 0; i < 6 * 50; i++) assert_int_equal(s.p[i], odd[i % 6]);
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
        cmocka_unit_test(first_step_by_hand),        cmocka_unit_test(first_step_moves_by_the_rate),
        cmocka_unit_test(levels_give_the_same_bits), cmocka_unit_test(mean_is_right),
        cmocka_unit_test(each_element_has_its_draw), cmocka_unit_test(follows_f32),
        cmocka_unit_test(what_is_no_number_stays),   cmocka_unit_test(squares_by_closed_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
