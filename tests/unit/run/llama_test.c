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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(f32_is_f64_within_rounding),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(tied_table_gets_both_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
