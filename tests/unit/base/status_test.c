// Messages: set, put before, cut off when too long; the public names.  SPDX-License-Identifier:
// Apache-2.0
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static asp_status inner(asp_ctx *cx)
{
    return asp_fail(cx, ASP_ERR_SHAPE, "inner dims %d != %d", 3, 4);
}

static asp_status middle(asp_ctx *cx, bool pass)
{
    ASP_TRY(pass ? ASP_IN_PROGRESS : ASP_OK); // neither is a failure
    ASP_TRY_NOTE(cx, inner(cx), "while inferring %s", "matmul");
    return ASP_OK;
}

static asp_status outer(asp_ctx *cx)
{
    ASP_TRY(middle(cx, true));
    return ASP_OK;
}

static void messages_gather_context(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    assert_non_null(cx);
    assert_string_equal(asp_ctx_message(cx), "");
    assert_int_equal(outer(cx), ASP_ERR_SHAPE);
    assert_string_equal(asp_ctx_message(cx), "while inferring matmul: inner dims 3 != 4");
    asp_ctx_destroy(cx);
    asp_ctx_destroy(NULL);
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    char note[ASP_MESSAGE_BYTES];
    memset(note, 'n', sizeof note - 1);
    note[sizeof note - 1] = 0;
    assert_int_equal(asp_fail(&cx, ASP_ERR_IO, "%9999d", 1), ASP_ERR_IO);
    assert_int_equal(strlen(cx.message), ASP_MESSAGE_BYTES - 1);
    assert_int_equal(asp_note(&cx, ASP_ERR_IO, "%s", note), ASP_ERR_IO);
    assert_true(strlen(cx.message) < ASP_MESSAGE_BYTES);
    assert_memory_equal(cx.message, "nnnn", 4);
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    for (int a = ASP_ERR_CHECK; a <= ASP_IN_PROGRESS; a++) {
        assert_string_not_equal(asp_status_name((asp_status)a), "unknown status");
        for (int b = ASP_ERR_CHECK; b < a; b++)
            assert_string_not_equal(asp_status_name((asp_status)a), asp_status_name((asp_status)b));
    }
    assert_string_equal(asp_status_name((asp_status)-77), "unknown status");
    assert_string_equal(asp_version(), "0.1.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_gather_context),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(every_status_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
