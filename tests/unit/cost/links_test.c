// Links between ranks as text: which one a pair has, and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void first_that_fits(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_links l;
    asp_ctx_init(&cx);
    assert_int_equal(asp_links_parse(&cx, "1-6:7.5:9,4:200:2,16:25:10", &l), ASP_OK);
    assert_int_equal(l.n, 3);
    assert_true(asp_links_find(&l, 0, 3)->gbs == 200);
    assert_true(asp_links_find(&l, 3, 4)->gbs == 25);
    assert_true(asp_links_find(&l, 6, 1)->gbs == 7.5 && asp_links_find(&l, 1, 6)->latency_us == 9);
    assert_null(asp_links_find(&l, 15, 16));
    assert_int_equal(asp_links_parse(&cx, "", &l), ASP_OK);
    assert_int_equal(l.n, 0);
    assert_null(asp_links_find(&l, 0, 1));
}

static void refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"8",       "8:1",         "0:1:1",       "8:0:1",  "8:1:0",
                                      "8:1:1,x", "8:1:1;9:1:1", "3-3:1:1",     "-1:1:1", "8:nan:1",
                                      "8:1e9:1", "1-:1:1",      "9999999:1:1", "8:1:1 "};
    asp_ctx cx;
    asp_links l = {.n = 7};
    asp_ctx_init(&cx);
    for (size_t i = 0; i < ASP_COUNT_OF(bad); i++) {
        assert_int_equal(asp_links_parse(&cx, bad[i], &l), ASP_ERR_USAGE);
        assert_non_null(strstr(cx.message, "links"));
        assert_int_equal(l.n, 7); // outputs on success alone
    }
    char many[512] = "";
    for (int i = 0; i <= ASP_MAX_LINKS; i++) strcat(many, i ? ",8:1:1" : "8:1:1");
    assert_int_equal(asp_links_parse(&cx, many, &l), ASP_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_that_fits),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
