// The cases of tests/fixtures/remat: each is a file that says what it expects; malformed ones.
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static asp_ctx cx;
static asp_arena arena;

static int setup(void **state)
{
    (void)state;
    asp_ctx_init(&cx);
    asp_arena_init(&arena, &cx);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    asp_arena_fini(&arena);
    return 0;
}

// ---- files ---------------------------------------------------------------------------------

static void check_names(const asp_recompute *r, json_t *keep, const char *file)
{
    for (size_t i = 0; i < json_array_size(keep); i++) {
        const char *want = json_string_value(json_array_get(keep, i));
        const char *got = asp_recompute_kept(r, i);
        if (!got || strcmp(got, want) != 0)
            fail_msg("%s: value %zu kept is %s, not %s", file, i, got ? got : "none", want);
    }
    if (asp_recompute_kept(r, json_array_size(keep)))
        fail_msg("%s: more values are kept than expected", file);
}

static void check_file(const char *path)
{
    char *text;
    size_t n;
    json_t *o, *expect, *x;
    asp_recompute *r;
    const char *key;
    assert_int_equal(asp_file_read(&arena, path, 1 << 20, &text, &n), ASP_OK);
    assert_int_equal(asp_json_parse(&cx, path, text, n, &o), ASP_OK);
    expect = json_object_get(o, "expect");
    if (asp_recompute_parse(&cx, path, text, n, &r) != ASP_OK) fail_msg("%s", cx.message);
    asp_status s = asp_recompute_choose(r, NULL, 0);
    json_t *errors = json_object_get(expect, "error");
    for (size_t i = 0; i < json_array_size(errors); i++)
        if (s == ASP_OK || !strstr(cx.message, json_string_value(json_array_get(errors, i))))
            fail_msg("%s: '%s' says not %s", path, cx.message,
                     json_string_value(json_array_get(errors, i)));
    if (!errors && s != ASP_OK) fail_msg("%s: %s", path, cx.message);
    json_object_foreach(expect, key, x)
    {
        if (json_is_integer(x) && asp_recompute_number(r, key) != json_integer_value(x))
            fail_msg("%s: %s is %lld, not %lld", path, key, (long long)asp_recompute_number(r, key),
                     (long long)json_integer_value(x));
    }
    if (!errors) {
        check_names(r, json_object_get(expect, "keep"), path);
        assert_non_null(strstr(asp_recompute_text(r), "peak"));
        json_t *record;
        const char *json = asp_recompute_json(r);
        assert_int_equal(asp_json_parse(&cx, "record", json, strlen(json), &record), ASP_OK);
        assert_int_equal(json_array_size(json_object_get(record, "keep")),
                         json_array_size(json_object_get(expect, "keep")));
        json_decref(record);
    }
    asp_recompute_destroy(r);
    json_decref(o);
}

static void files_give_what_they_expect(void **state)
{
    (void)state;
    const char *folder = ASP_SOURCE_DIR "/tests/fixtures/remat";
    struct dirent *e;
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    while ((e = readdir(d))) {
        size_t len = strlen(e->d_name);
        if (len < 5 || strcmp(e->d_name + len - 5, ".json") != 0) continue;
        check_file(asp_printf(&arena, "%s/%s", folder, e->d_name));
        n++;
    }
    closedir(d);
    assert_true(n >= 20);
}

// ---- what is refused -----------------------------------------------------------------------

#define X "{\"name\": \"x\", \"op\": \"input\", \"bytes\": 8}"

static void malformed_descriptions_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *nodes, *says;
    } bad[] = {
        {"", "no list of 1 to"},
        {"7", "node 0 is no object"},
        {X ", " X, "two nodes are called x"},
        {"{\"name\": \"a\", \"op\": \"gem\", \"bytes\": 8}", "there is no op 'gem'"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"bytes\": 8, \"reads\": [\"y\"]}",
         "no node is called y"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"bytes\": -8, \"reads\": [\"x\"]}",
         "bytes of a is -8"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"bytes\": 281474976710657}",
         "bytes of a is 281474976710657"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"bytes\": 99999999999999999999}", "integer"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"time_ps\": -1}", "time_ps of a is -1"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"flags\": [\"best\"]}", "there is no flag best"},
        {"{\"name\": \"x\", \"op\": \"input\", \"bytes\": 8, \"flags\": [\"recompute\"]}",
         "x is an input and cannot be computed again"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"reads\": [\"a\"]}",
         "node 1 and a read each other"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"reads\": [\"b\"]}, "
           "{\"name\": \"b\", \"op\": \"gemm\", \"reads\": [\"a\"]}",
         "node 1 and b read each other: a program has no cycle"},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"reads\": [\"b\"]}, "
           "{\"name\": \"b\", \"op\": \"gemm\", \"reads\": [\"x\"]}",
         "reads b, which is made later"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(bad); i++) {
        const char *text = asp_printf(&arena, "{\"nodes\": [%s]}", bad[i].nodes);
        asp_recompute *r;
        asp_status s = asp_recompute_parse(&cx, "bad", text, strlen(text), &r);
        if (s != ASP_ERR_INPUT || !strstr(cx.message, bad[i].says))
            fail_msg("%s: %d '%s', not '%s'", bad[i].nodes, s, cx.message, bad[i].says);
    }
}

static void contradictions_and_small_budgets_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *nodes, *policy, *says;
        int64_t bytes;
        asp_status status;
    } bad[] = {
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"bytes\": 8, \"reads\": [\"x\"]}, "
           "{\"name\": \"g\", \"op\": \"other\", \"backward\": true, \"bytes\": 4, \"reads\": "
           "[\"a\"], \"flags\": [\"gradient\"]}",
         "budget", "has a peak of at most 11 bytes; the smallest that was found is 12", 11,
         ASP_ERR_LIMIT},
        {X ", {\"name\": \"a\", \"op\": \"gemm\", \"bytes\": 8, \"reads\": [\"x\"], \"flags\": "
           "[\"save\", \"recompute\"]}, {\"name\": \"g\", \"op\": \"other\", \"backward\": true, "
           "\"bytes\": 4, \"reads\": [\"a\"], \"flags\": [\"gradient\"]}",
         "default", "a is tagged must-save but is tagged must-recompute", 0, ASP_ERR_UNSUPPORTED},
        {X, "fastest", "there is no policy 'fastest'", 0, ASP_ERR_USAGE},
        {X, "budget", "needs the bytes", 0, ASP_ERR_USAGE},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(bad); i++) {
        const char *text = asp_printf(&arena, "{\"nodes\": [%s]}", bad[i].nodes);
        asp_recompute *r;
        if (asp_recompute_parse(&cx, "bad", text, strlen(text), &r) != ASP_OK)
            fail_msg("%s", cx.message);
        asp_status s = asp_recompute_choose(r, bad[i].policy, bad[i].bytes);
        if (s != bad[i].status || !strstr(cx.message, bad[i].says))
            fail_msg("%zu: %d '%s', not '%s'", i, s, cx.message, bad[i].says);
        assert_null(asp_recompute_kept(r, 0));
        assert_int_equal(asp_recompute_number(r, "peak"), -1);
        asp_recompute_destroy(r);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_give_what_they_expect),
        TEST(malformed_descriptions_are_refused_by_name),
        TEST(contradictions_and_small_budgets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
