// Chunks of rows: the bits of the loss, gradients but for the order of their sums, no logits.
// SPDX-License-Identifier: Apache-2.0
#include "support/tiny.h"
#include "unit/sparse.h"

#include <math.h>

static tiny model(asp_dtype dtype, int64_t ranks, int64_t seq)
{
    tiny t = tiny_default();
    t.dtype = dtype;
    t.ranks = ranks;
    t.skip_sp = false;
    t.vocab = 97;
    t.seq = seq;
    return t;
}

// A sequence of chunks of 64 rows and one of chunks and a rest, whole and tiled.
static void compare(tiny t, double bound)
{
    tiny_result whole = tiny_run(&t, -1, 0);
    t.tile = 64;
    tiny_result tiled = tiny_run(&t, -1, 0);
    assert_true(tiled.loss == whole.loss);
    assert_true(tiny_gradient_error(&whole, &tiled) < bound);
    assert_true(tiled.report.max_live_bytes < whole.report.max_live_bytes);
    for (int i = 0; i < tiled.report.n_largest; i++) // f32[B, S, V]
        assert_true(tiled.report.largest[i].kind == ASP_MEM_WORKSPACE ||
                    tiled.report.largest[i].bytes <
                        t.batch * t.seq / t.ranks * t.vocab * asp_dtypes[t.dtype].bytes);
    tiny_free(&whole);
    tiny_free(&tiled);
}

static void loss_is_the_same_to_the_bit(void **state)
{
    (void)state;
    compare(model(ASP_F64, 1, 128), 1e-12);
    compare(model(ASP_F64, 1, 141), 1e-12);
    compare(model(ASP_F32, 1, 141), 1e-4);
}

static void under_every_strategy(void **state)
{
    (void)state;
    static const char *const strategies[] = {"ulysses", "ring", "auto", "hybrid:2x2"};
    for (size_t i = 0; i < ASP_COUNT_OF(strategies); i += SPARSE(3)) {
        tiny t = model(ASP_F64, 4, 402); // an uneven tail: 101 rows of each sequence
        t.sp = strategies[i];
        compare(t, 1e-12);
    }
}

static void under_every_policy(void **state)
{
    (void)state;
    static const char *const policies[] = {"sac", "layer"};
    tiny t = model(ASP_F32, 2, 300);
    t.layers = 3;
    t.tile = 64;
    tiny_result none = tiny_run(&t, -1, 0);
    for (size_t i = 0; i < ASP_COUNT_OF(policies); i++) {
        t.ac = policies[i];
        tiny_result r = tiny_run(&t, -1, 0);
        assert_true(r.loss == none.loss);
        assert_memory_equal(r.gradients, none.gradients, (size_t)r.count * sizeof(double));
        assert_true(r.report.max_live_bytes < none.report.max_live_bytes);
        tiny_free(&r);
    }
    tiny_free(&none);
}

static void tied_weights_and_threads(void **state)
{
    (void)state;
    tiny t = model(ASP_F32, 2, 300);
    t.tied = true;
    compare(t, 1e-4);
    t.tile = 64;
    tiny_result one = tiny_run(&t, -1, 0);
    t.threads = 3;
    tiny_result three = tiny_run(&t, -1, 0);
    assert_true(one.loss == three.loss);
    assert_memory_equal(one.gradients, three.gradients, (size_t)one.count * sizeof(double));
    tiny_free(&one);
    tiny_free(&three);
}

static void short_sequences_stay_whole(void **state)
{
    (void)state;
    tiny t = model(ASP_F32, 1, 32);
    tiny_result whole = tiny_run(&t, -1, 0);
    t.tile = 64;
    tiny_result same = tiny_run(&t, -1, 0);
    assert_int_equal(whole.report.n_steps, same.report.n_steps);
    assert_memory_equal(whole.gradients, same.gradients, (size_t)whole.count * sizeof(double));
    tiny_free(&whole);
    tiny_free(&same);
}

// Nothing of the MLP is multiplied a third time: with everything else kept, the products repeated
// are its first two.
static void the_first_products_are_the_only_ones_repeated(void **state)
{
    (void)state;
    tiny t = model(ASP_F32, 1, 256);
    tiny_result whole = tiny_run(&t, -1, 0);
    t.tile = 64;
    tiny_result tiled = tiny_run(&t, -1, 0);
    const double rows = (double)(t.batch * t.seq);
    const double again = (double)t.layers * 2 * 2 * rows * (double)(t.hidden * t.ffn);
    assert_true(fabs(tiled.report.flops - whole.report.flops - again) < 1.0);
    tiny_free(&whole);
    tiny_free(&tiled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_is_the_same_to_the_bit),
        cmocka_unit_test(under_every_strategy),
        cmocka_unit_test(under_every_policy),
        cmocka_unit_test(tied_weights_and_threads),
        cmocka_unit_test(short_sequences_stay_whole),
        cmocka_unit_test(the_first_products_are_the_only_ones_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
