// Symbolic sizes: normal form, evaluation, refusal.  SPDX-License-Identifier: Apache-2.0
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static asp_ctx cx;
static asp_graph *g;

static int setup(void **state)
{
    (void)state;
    asp_ctx_init(&cx);
    g = asp_graph_create(&cx, "t");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    asp_graph_destroy(g);
    return 0;
}

static void equal_expressions_have_equal_handles(void **state)
{
    (void)state;
    asp_size S = asp_size_sym(g, "S"), B = asp_size_sym(g, "B"), half, third;
    assert_true(asp_size_equal(asp_size_mul(g, S, B), asp_size_mul(g, B, S)));
    assert_int_equal(asp_size_div(g, asp_size_mul(g, S, B), asp_size_num(g, 2), &half), ASP_OK);
    assert_true(asp_size_equal(asp_size_add(g, half, half), asp_size_mul(g, B, S)));
    assert_int_equal(asp_size_div(g, asp_size_mul(g, half, asp_size_num(g, 2)), B, &third), ASP_OK);
    assert_true(asp_size_equal(third, S));
    assert_true(asp_size_equal(asp_size_sub(g, S, S), asp_size_num(g, 0)));
    asp_size p = asp_size_mul(g, B, asp_size_sub(g, S, asp_size_num(g, 1)));
    assert_true(asp_size_equal(p, asp_size_sub(g, asp_size_mul(g, B, S), B)));
    assert_string_equal(asp_size_str(g, p), "B*S - B");
    assert_string_equal(asp_size_str(g, half), "B*S/2");
    assert_string_equal(asp_size_str(g, asp_size_ceil_div(g, S, asp_size_num(g, 3))), "ceil(S, 3)");
}

static void equal_numbers_are_not_equal_sizes(void **state)
{
    (void)state;
    assert_false(asp_size_equal(asp_size_sym(g, "S"), asp_size_sym(g, "B")));
    assert_false(asp_size_equal(asp_size_sym(g, "S"), asp_size_num(g, 8)));
}

static void evaluation_is_exact_or_refused(void **state)
{
    (void)state;
    asp_size S = asp_size_sym(g, "S"), half, huge = S;
    int64_t v = 0;
    asp_env env = {.at = {{"S", 9}}, .n = 1};
    assert_int_equal(asp_size_div(g, S, asp_size_num(g, 2), &half), ASP_OK);
    assert_int_equal(asp_size_eval(g, half, &env, &v), ASP_ERR_SHAPE);
    assert_string_equal(cx.message, "size S/2 with S = 9: is not a whole number");
    assert_int_equal(asp_size_eval(g, asp_size_ceil_div(g, S, asp_size_num(g, 2)), &env, &v),
                     ASP_OK);
    assert_int_equal(v, 5);
    env.at[0].value = INT64_C(1) << 40;
    huge = asp_size_mul(g, S, S);
    assert_int_equal(asp_size_eval(g, huge, &env, &v), ASP_ERR_SHAPE);
    assert_int_equal(asp_size_eval(g, asp_size_sym(g, "Z"), &env, &v), ASP_ERR_USAGE);
    assert_int_equal(asp_size_div(g, S, asp_size_num(g, 0), &half), ASP_ERR_SHAPE);
}

static void division_as_expressions(void **state)
{
    (void)state;
    asp_size S = asp_size_sym(g, "S"), B = asp_size_sym(g, "B"), q;
    asp_size BS = asp_size_mul(g, B, S), two = asp_size_num(g, 2), half;
    assert_int_equal(asp_size_div(g, BS, two, &half), ASP_OK);
    assert_true(asp_size_divides(g, B, BS, &q) && asp_size_equal(q, S));
    assert_true(asp_size_divides(g, two, asp_size_num(g, 8), &q));
    assert_string_equal(asp_size_str(g, q), "4");
    assert_true(asp_size_divides(g, B, half, &q));
    assert_string_equal(asp_size_str(g, q), "S/2");
    assert_true(asp_size_divides(g, q, half, &q) && asp_size_equal(q, B));
    assert_false(asp_size_divides(g, two, S, &q));
    assert_false(asp_size_divides(g, S, B, &q));
    assert_false(asp_size_divides(g, asp_size_num(g, 3), asp_size_num(g, 8), &q));
    assert_false(asp_size_divides(g, asp_size_num(g, 0), S, &q));
    asp_size less = asp_size_sub(g, S, asp_size_num(g, 1));
    assert_true(asp_size_divides(g, less, asp_size_mul(g, B, less), &q) && asp_size_equal(q, B));
    assert_false(asp_size_divides(g, less, BS, &q));
}

// A size that does not fit never turns into one that does, whatever is done with it.
static void overflow_sticks(void **state)
{
    (void)state;
    asp_size S = asp_size_sym(g, "S"), never = asp_size_sym(g, "overflow"), x = S, y = S;
    asp_env env = {.at = {{"S", 8}}, .n = 1};
    int64_t v;
    const int64_t p = (INT64_C(1) << 52) + 1, q = (INT64_C(1) << 52) - 1;
    for (int i = 0; i < 4; i++) x = asp_size_mul(g, x, asp_size_num(g, p)); // the numerator
    assert_true(asp_size_equal(x, never));
    for (int i = 0; i < 4 && asp_size_div(g, y, asp_size_num(g, i % 2 ? p : q), &y) == ASP_OK;
         i++) {
    }
    assert_true(asp_size_equal(y, never)); // the denominator
    assert_true(asp_size_equal(asp_size_sub(g, x, x), never));
    assert_true(asp_size_equal(asp_size_add(g, S, x), never));
    assert_true(asp_size_equal(asp_size_mul(g, y, S), never));
    assert_true(asp_size_equal(asp_size_ceil_div(g, x, S), never));
    assert_int_equal(asp_size_div(g, x, x, &y), ASP_ERR_SHAPE);
    assert_int_equal(asp_size_eval(g, x, &env, &v), ASP_ERR_USAGE);
    asp_size many = asp_size_num(g, 1); // more terms than a size may have
    for (char name[2] = "a"; name[0] < 'p'; name[0]++)
        many = asp_size_add(g, many, asp_size_sym(g, name));
    assert_true(asp_size_equal(many, never));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_expressions_have_equal_handles),
        cmocka_unit_test(equal_numbers_are_not_equal_sizes),
        cmocka_unit_test(division_as_expressions),
        cmocka_unit_test(evaluation_is_exact_or_refused),
        cmocka_unit_test(overflow_sticks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
