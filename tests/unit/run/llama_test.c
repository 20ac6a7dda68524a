// A tiny Llama on one device: gradients against finite differences, f32 against f64, bits against
// thread counts. SPDX-License-Identifier: Apache-2.0
#include "support/tiny.h"

#include <math.h>

// Central differences of the loss at entries of every parameter: step 1e-6, f64.
static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    tiny t = tiny_default();
    tiny_result base = tiny_run(&t, -1, 0);
    assert_true(isfinite(base.loss) && base.loss > 1);
    double largest = 0;
    for (int64_t i = 0; i < base.count; i++) largest = fmax(largest, fabs(base.gradients[i]));
    assert_true(largest > 1e-3);
    for (int p = 0; p < base.n_params; p++) {
        for (int k = 0; k < 2; k++) {
            int64_t e = base.offset[p] + (base.length[p] * (2 * k + 1) / 4) % base.length[p];
            tiny_result up = tiny_run(&t, e, 1e-6), down = tiny_run(&t, e, -1e-6);
            double slope = (up.loss - down.loss) / 2e-6;
            if (fabs(slope - base.gradients[e]) > 1e-6 * fmax(largest, 1e-3))
                fail_msg("parameter %d element %lld: %.12g by differences, %.12g by derivative", p,
                         (long long)e, slope, base.gradients[e]);
            tiny_free(&up);
            tiny_free(&down);
        }
    }
    tiny_free(&base);
}

static void f32_is_f64_within_rounding(void **state)
{
    (void)state;
    tiny t = tiny_default();
    tiny_result a = tiny_run(&t, -1, 0);
    t.dtype = ASP_F32;
    tiny_result b = tiny_run(&t, -1, 0);
    assert_true(fabs(a.loss - b.loss) <= 1e-6 * a.loss);
    assert_true(tiny_gradient_error(&a, &b) <= 1e-5);
    tiny_free(&a);
    tiny_free(&b);
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    tiny t = tiny_default();
    t.dtype = ASP_F32;
    t.seq = 96;
    tiny_result one = tiny_run(&t, -1, 0);
    for (t.threads = 2; t.threads <= 3; t.threads++) {
        tiny_result more = tiny_run(&t, -1, 0);
        assert_memory_equal(one.gradients, more.gradients, (size_t)one.count * sizeof(double));
        assert_true(one.loss == more.loss);
        tiny_free(&more);
    }
    tiny_free(&one);
}

static void tied_table_gets_both_gradients(void **state)
{
    (void)state;
    tiny t = tiny_default();
    t.tied = true;
    tiny_result base = tiny_run(&t, -1, 0), up = tiny_run(&t, base.offset[0] + 5, 1e-6),
                down = tiny_run(&t, base.offset[0] + 5, -1e-6);
    assert_true(fabs((up.loss - down.loss) / 2e-6 - base.gradients[base.offset[0] + 5]) < 1e-7);
    tiny_free(&base);
    tiny_free(&up);
    tiny_free(&down);
}

// Row programs round every intermediate as if it were stored.
static void fused_gives_the_bits_of_unfused(void **state)
{
    (void)state;
    static const char *const policies[] = {"none", "layer"};
    for (size_t i = 0; i < ASP_COUNT_OF(policies); i++) {
        tiny t = tiny_default();
        t.dtype = ASP_F32;
        t.seq = 80;
        t.ac = policies[i];
        tiny_result fused = tiny_run(&t, -1, 0);
        t.unfused = true;
        tiny_result single = tiny_run(&t, -1, 0);
        assert_true(fused.report.n_steps < single.report.n_steps);
        assert_true(fused.report.max_live_bytes <= single.report.max_live_bytes);
        assert_true(fused.loss == single.loss);
        assert_memory_equal(fused.gradients, single.gradients,
                            (size_t)fused.count * sizeof(double));
        tiny_free(&fused);
        tiny_free(&single);
    }
}

// What a step leaves in memory does not reach the next.
static void a_second_step_gives_the_same_bits(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        tiny t = tiny_default();
        t.dtype = dtype ? ASP_F32 : ASP_F64;
        tiny_result once = tiny_run(&t, -1, 0);
        t.steps = 3;
        tiny_result thrice = tiny_run(&t, -1, 0);
        assert_true(once.loss == thrice.loss);
        assert_memory_equal(once.gradients, thrice.gradients, (size_t)once.count * sizeof(double));
        tiny_free(&once);
        tiny_free(&thrice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(f32_is_f64_within_rounding),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(tied_table_gets_both_gradients),
        cmocka_unit_test(fused_gives_the_bits_of_unfused),
        cmocka_unit_test(a_second_step_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
