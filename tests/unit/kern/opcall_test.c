// Single ops through autosp.h on memory of the caller's.  SPDX-License-Identifier: Apache-2.0
#include "autosp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

typedef struct block {
    _Alignas(64) float at[64];
} block;

// Two queries that may see one key each give that key's value.
static void attention_under_a_window(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_call *c;
    const char *types[] = {"f32[1, 1, 2, 4]", "f32[1, 1, 2, 4]", "f32[1, 1, 2, 4]"};
    block q = {{1, 2, 3, 4, 5, 6, 7, 8}}, k = q, v = {{9, 10, 11, 12, 13, 14, 15, 16}}, out, lse;
    void *in[] = {q.at, k.at, v.at}, *results[] = {out.at, lse.at};
    assert_int_equal(
        asp_call_create(cx, "sdpa", "causal = true, mask = \"q - k <= 0\"", 3, types, 1, 0, 1, &c),
        ASP_OK);
    assert_string_equal(asp_call_type(c, 0), "f32[1, 1, 2, 4]");
    assert_string_equal(asp_call_type(c, 1), "f32[1, 1, 2]");
    assert_null(asp_call_type(c, 2));
    assert_int_equal(asp_call_run(c, in, results, 0, 0), ASP_OK);
    for (int i = 0; i < 8; i++) assert_true(out.at[i] == v.at[i]);
    assert_true(fabsf(lse.at[0] - 30) < 1e-4F);
    assert_int_equal(asp_call_run(c, in, (void *[]){out.at, lse.at + 1}, 0, 0), ASP_ERR_USAGE);
    assert_non_null(strstr(asp_ctx_message(cx), "result 1"));
    asp_call_destroy(c);
    asp_ctx_destroy(cx);
}

// The second of two ranks drops what the whole tensor drops there.
static void dropout_is_counted_in_the_whole(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_call *whole, *part;
    const char *all[] = {"f32[32]"}, *half[] = {"f32[16]"};
    block x, y, z;
    int dropped = 0;
    for (int i = 0; i < 64; i++) x.at[i] = (float)(i + 1);
    assert_int_equal(asp_call_create(cx, "dropout", "p = 0.5, site = 3", 1, all, 2, 0, 1, &whole),
                     ASP_OK);
    assert_int_equal(asp_call_create(cx, "dropout",
                                     "p = 0.5, site = 3, dims = [0], outer = [1], whole = [32], of "
                                     "= [32], parts = [2], stride = [1], rings = [1]",
                                     1, half, 1, 1, 2, &part),
                     ASP_OK);
    assert_int_equal(asp_call_run(whole, (void *[]){x.at}, (void *[]){y.at}, 7, 9), ASP_OK);
    assert_int_equal(asp_call_run(part, (void *[]){x.at + 16}, (void *[]){z.at}, 7, 9), ASP_OK);
    for (int i = 0; i < 16; i++) assert_true(y.at[16 + i] == z.at[i]);
    for (int i = 0; i < 32; i++) dropped += y.at[i] == 0;
    assert_true(dropped > 4 && dropped < 28);
    asp_call_destroy(part);
    asp_call_destroy(whole);
    asp_ctx_destroy(cx);
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *op, *attrs, *type, *what;
    } cases[] = {{"sine", "", "f32[4]", "sine"},  {"all_reduce", "", "f32[4]", "kernel"},
                 {"exp", "x = 1", "f32[4]", "x"}, {"exp", "", "f32[S]", "numbers"},
                 {"exp", "", "f33[4]", "f33"},    {"exp", "", "f32[4611686018427387904, 4]", ""}};
    asp_ctx *cx = asp_ctx_create();
    asp_call *c = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        asp_status s =
            asp_call_create(cx, cases[i].op, cases[i].attrs, 1, &cases[i].type, 1, 0, 1, &c);
        assert_true(s < 0);
        if (!strstr(asp_ctx_message(cx), cases[i].what)) fail_msg("%s", asp_ctx_message(cx));
    }
    const char *type = "f32[4]";
    assert_int_equal(asp_call_create(cx, "exp", NULL, 1, &type, 0, 0, 1, &c), ASP_ERR_USAGE);
    assert_int_equal(asp_call_create(cx, "exp", NULL, 1, &type, 1, 2, 2, &c), ASP_ERR_USAGE);
    assert_int_equal(asp_call_create(cx, "exp", NULL, 1, NULL, 1, 0, 1, &c), ASP_ERR_USAGE);
    assert_null(c);
    asp_call_destroy(NULL);
    asp_ctx_destroy(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_under_a_window),
        cmocka_unit_test(dropout_is_counted_in_the_whole),
        cmocka_unit_test(bad_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
