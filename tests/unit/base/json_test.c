// JSON: where a fault is, what a key must be; null is absent.
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "unit/scratch.h"

static asp_ctx cx;

static void faults_have_a_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        const char *message;
    } rows[] = {
        {"{\"a\": 1,\n  \"a\": 2}", 18, "f:2:5: duplicate object key near '\"a\"'"},
        {"{} {}", 5, "f:1:4: end of file expected near '{'"},
        {"{\"a\": tru}", 10, "f:1:9: invalid token near 'tru'"},
        {"{\"a\": 1}", 7, "f:1:7: '}' expected near end of file"}, // the text ends before its end
        {"[]", 2, "f:1:1: a JSON object {...} is wanted"},
        {"", 0, "f:1:0: '[' or '{' expected near end of file"},
    };
    asp_ctx_init(&cx);
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        json_t *o = NULL;
        assert_int_equal(asp_json_parse(&cx, "f", rows[i].text, rows[i].bytes, &o), ASP_ERR_INPUT);
        assert_string_equal(cx.message, rows[i].message);
        assert_null(o);
    }
}

static void members_have_a_type(void **state)
{
    (void)state;
    static const char text[] =
        "{\"i\": -9223372036854775808, \"r\": 2.5, \"b\": true, \"s\": \"x\", "
        "\"n\": null}";
    static const int64_t seven = 7;
    static const double half = 0.5;
    static const bool yes = true;
    json_t *o;
    int64_t i = 1;
    double r = 1;
    bool b = false;
    const char *s = NULL;
    asp_ctx_init(&cx);
    assert_int_equal(asp_json_parse(&cx, "f", text, sizeof text - 1, &o), ASP_OK);
    // there, of its type
    assert_int_equal(asp_json_i64(&cx, "f", o, "i", NULL, &i), ASP_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(asp_json_f64(&cx, "f", o, "r", NULL, &r), ASP_OK);
    assert_true(r == 2.5);
    assert_int_equal(asp_json_f64(&cx, "f", o, "i", NULL, &r),
                     ASP_OK); // a whole number is a number
    assert_true(r == -0x1p63);
    assert_int_equal(asp_json_bool(&cx, "f", o, "b", NULL, &b), ASP_OK);
    assert_true(b);
    assert_int_equal(asp_json_str(&cx, "f", o, "s", NULL, &s), ASP_OK);
    assert_string_equal(s, "x");
    // absent or null, with a standard
    assert_int_equal(asp_json_i64(&cx, "f", o, "none", &seven, &i), ASP_OK);
    assert_int_equal(i, 7);
    assert_int_equal(asp_json_f64(&cx, "f", o, "n", &half, &r), ASP_OK);
    assert_true(r == 0.5);
    assert_int_equal(asp_json_bool(&cx, "f", o, "n", &yes, &b), ASP_OK);
    assert_int_equal(asp_json_str(&cx, "f", o, "none", "y", &s), ASP_OK);
    assert_string_equal(s, "y");
    // absent without one, of another type
    assert_int_equal(asp_json_i64(&cx, "f", o, "n", NULL, &i), ASP_ERR_INPUT);
    assert_string_equal(cx.message, "f: the key \"n\" is missing");
    assert_int_equal(asp_json_f64(&cx, "f", o, "x", NULL, &r), ASP_ERR_INPUT);
    assert_int_equal(asp_json_bool(&cx, "f", o, "x", NULL, &b), ASP_ERR_INPUT);
    assert_int_equal(asp_json_str(&cx, "f", o, "x", NULL, &s), ASP_ERR_INPUT);
    assert_int_equal(asp_json_i64(&cx, "f", o, "r", &seven, &i), ASP_ERR_INPUT);
    assert_string_equal(cx.message, "f: \"r\" must be a whole number");
    assert_int_equal(asp_json_f64(&cx, "f", o, "s", &half, &r), ASP_ERR_INPUT);
    assert_string_equal(cx.message, "f: \"s\" must be a number");
    assert_int_equal(asp_json_bool(&cx, "f", o, "i", &yes, &b), ASP_ERR_INPUT);
    assert_string_equal(cx.message, "f: \"i\" must be true or false");
    assert_int_equal(asp_json_str(&cx, "f", o, "b", "y", &s), ASP_ERR_INPUT);
    assert_string_equal(cx.message, "f: \"b\" must be a string");
    assert_true(i == 7 && r == 0.5 && b);
    json_decref(o);
}

static void files(void **state)
{
    (void)state;
    json_t *o;
    asp_ctx_init(&cx);
    assert_int_equal(asp_json_read(&cx, scratch_text("a.json", "{\"x\": 1}"), 8, &o), ASP_OK);
    json_decref(o);
    assert_int_equal(asp_json_read(&cx, scratch_text("a.json", "{\"x\": 1}"), 7, &o),
                     ASP_ERR_INPUT);
    assert_non_null(strstr(cx.message, "a.json has 8 bytes; at most 7"));
    assert_int_equal(asp_json_read(&cx, scratch_path("none"), 8, &o), ASP_ERR_IO);
    cx.fail_allocation = 1;
    assert_int_equal(asp_json_read(&cx, scratch_text("a.json", "{}"), 8, &o), ASP_ERR_NOMEM);
    assert_non_null(strstr(cx.message, "no memory for the 2 bytes of "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_have_a_place),
        cmocka_unit_test(members_have_a_type),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
