// Growing text, JSON quoting, byte counts written and read.  SPDX-License-Identifier: Apache-2.0
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void text_grows(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_text t;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_text_init(&t, &a);
    asp_put(&t, "%s", "");
    assert_string_equal(t.at, "");
    for (int i = 0; i < 3000; i++) {
        asp_put(&t, "%d,", i % 10);
        if (i % 7 == 0) asp_put_bytes(&t, "xyz", 2);
        assert_int_equal(t.at[t.n], 0);
    }
    assert_int_equal(t.n, 3000 * 2 + 429 * 2);
    assert_int_equal(strlen(t.at), t.n);
    assert_memory_equal(t.at, "0,xy1,2,3,4,5,6,7,xy8,", 22);
    asp_arena_fini(&a);
}

static void quoting(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_text t;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_text_init(&t, &a);
    asp_put_quoted(&t, "a\"b\\c\n\t\x01\r/\xc3\xa9");
    assert_string_equal(t.at, "\"a\\\"b\\\\c\\n\\t\\u0001\\u000d/\xc3\xa9\"");
    asp_arena_fini(&a);
}

static void bytes_written(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *want;
    } rows[] = {{0, "0 bytes"},
                {1023, "1023 bytes"},
                {1024, "1.00 KiB"},
                {1536, "1.50 KiB"},
                {10 << 20, "10.0 MiB"},
                {(int64_t)3 << 29, "1.50 GiB"},
                {(int64_t)1 << 40, "1.00 TiB"},
                {INT64_MAX, "8192.0 PiB"}};
    char buf[32];
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++)
        assert_string_equal(asp_human_bytes(buf, sizeof buf, rows[i].bytes), rows[i].want);
}

static void bytes_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want; // -1: refused
    } rows[] = {{"4194304", 4194304},
                {"0", 0},
                {"4MiB", 4 << 20},
                {"2 GB", 2000000000},
                {"1.5GiB", (int64_t)3 << 29},
                {"1k", 1024},
                {"1kB", 1000},
                {"10 bytes", 10},
                {"7 b", 7},
                {"3TiB", (int64_t)3 << 40},
                {"", -1},
                {"GiB", -1},
                {"-1", -1},
                {"nan", -1},
                {"inf", -1},
                {"1e30", -1},
                {"4 MiBs", -1},
                {"4 megabytes", -1},
                {"5000000000 GiB", -1},
                {"4MiB ", -1}};
    asp_ctx cx;
    asp_ctx_init(&cx);
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        int64_t got = -1;
        asp_status s = asp_parse_bytes(&cx, rows[i].text, &got);
        assert_int_equal(s, rows[i].want < 0 ? ASP_ERR_USAGE : ASP_OK);
        assert_int_equal(got, rows[i].want); // set only on success
    }
    assert_int_equal(asp_parse_bytes(&cx, "lots", &(int64_t){0}), ASP_ERR_USAGE);
    assert_string_equal(cx.message,
                        "'lots' is not a number of bytes; write 4194304, 512MiB or 1.5GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows),
        cmocka_unit_test(quoting),
        cmocka_unit_test(bytes_written),
        cmocka_unit_test(bytes_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
