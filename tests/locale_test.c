// A program whose locale writes 1,5 for 1.5 calls the library: every number is read and written
// with a point all the same, and the locale is the caller's afterwards.  Few machines have such a
// locale, so the test makes one in glibc's binary form; elsewhere it is skipped.
// SPDX-License-Identifier: Apache-2.0
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "io/hfconfig.h"
#include "ir/ir.h"
#include "train/train.h"
#include "unit/scratch.h"

#include <sys/stat.h>

// LC_NUMERIC of glibc: a magic number, the number of fields, where each begins, the fields.
typedef struct numeric_file {
    uint32_t magic, n, at[6];
    char point[2], thousands[2], grouping[4];
    uint32_t wide_point, wide_thousands;
    char codeset[8];
} numeric_file;

static int set_comma(void **state)
{
    const numeric_file f = {.magic = 0x20031115u ^ LC_NUMERIC,
                            .n = 6,
                            .at = {32, 34, 36, 40, 44, 48},
                            .point = ",",
                            .thousands = ".",
                            .wide_point = ',',
                            .wide_thousands = '.',
                            .codeset = "UTF-8"};
    if (scratch_make(state)) return -1;
    if (mkdir(scratch_path("xx_XX"), 0755)) return -1;
    scratch_write("xx_XX/LC_NUMERIC", &f, sizeof f);
    setenv("LOCPATH", scratch_folder, 1);
    setlocale(LC_NUMERIC, "xx_XX");
    if (strcmp(localeconv()->decimal_point, ",") == 0) return 0;
    scratch_remove(state);
    print_message("[  SKIPPED ] this C library takes no locale from a file\n");
    exit(77);
}

static int is_still_comma(void **state)
{
    char now[8];
    (void)state;
    snprintf(now, sizeof now, "%.1f", 1.5);
    return strcmp(now, "1,5");
}

static void numbers_and_texts(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_text t;
    char *end, buf[32];
    int64_t bytes = 0;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_text_init(&t, &a);
    assert_true(asp_strtod("2.5e1x", &end) == 25);
    assert_string_equal(end, "x");
    assert_true(asp_strtod("2,5", &end) == 2);
    asp_format(buf, sizeof buf, "%.2f", 0.25);
    assert_string_equal(buf, "0.25");
    asp_put(&t, "%g ", 1.25);
    asp_put_f64(&t, 6, 1e-5);
    asp_put(&t, " ");
    asp_put_f64(&t, 15, 0.1);
    assert_string_equal(t.at, "1.25 1e-05 0.1");
    assert_string_equal(asp_printf(&a, "%.1f", 3.5), "3.5");
    assert_string_equal(asp_human_bytes(buf, sizeof buf, 1536), "1.50 KiB");
    assert_int_equal(asp_parse_bytes(&cx, "1.5KiB", &bytes), ASP_OK);
    assert_int_equal(bytes, 1536);
    assert_int_equal(asp_parse_bytes(&cx, "1,5KiB", &bytes), ASP_ERR_USAGE);
    (void)asp_note(&cx, asp_fail(&cx, ASP_ERR_INPUT, "it is %g", 0.5), "at %g", 1.5);
    assert_string_equal(cx.message, "at 1.5: it is 0.5");
    asp_arena_fini(&a);
}

static void graph_text(void **state)
{
    (void)state;
    static const char text[] = "graph g {\n"
                               "  %x : f32[4, 8] = input {name = \"x\"}\n"
                               "  %a : f32[4, 8] = mul_scalar %x {value = 0.125}\n"
                               "  return \"a\" = %a\n"
                               "}\n";
    asp_ctx cx;
    asp_arena a;
    asp_text t;
    asp_graph *g;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_text_init(&t, &a);
    if (asp_graph_parse(&cx, "g.ir", text, strlen(text), &g) < 0) fail_msg("%s", cx.message);
    asp_graph_print(g, &t);
    assert_string_equal(t.at, text);
    asp_graph_destroy(g);
    asp_arena_fini(&a);
}

static void json(void **state)
{
    (void)state;
    static const char text[] = "{\"x\": 0.5, \"y\": -2.5e-3}";
    asp_ctx cx;
    json_t *o;
    double x = 0, y = 0;
    asp_ctx_init(&cx);
    assert_int_equal(asp_json_parse(&cx, "t", text, strlen(text), &o), ASP_OK);
    assert_int_equal(asp_json_f64(&cx, "t", o, "x", NULL, &x), ASP_OK);
    assert_int_equal(asp_json_f64(&cx, "t", o, "y", NULL, &y), ASP_OK);
    assert_true(x == 0.5 && y == -2.5e-3);
    char *back = json_dumps(o, JSON_REAL_PRECISION(6) | JSON_COMPACT); // as the machine file is
    assert_string_equal(back, "{\"x\":0.5,\"y\":-0.0025}");
    free(back);
    json_decref(o);
}

static void config_json(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 256, \"hidden_size\": 32, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"intermediate_size\": 64, \"rope_theta\": 10000.5, \"rms_norm_eps\": 1.5e-5}";
    asp_ctx cx;
    asp_arena a;
    asp_text t;
    asp_hf_config c, back;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_text_init(&t, &a);
    if (asp_hf_config_parse(&cx, "t", text, strlen(text), &c) < 0) fail_msg("%s", cx.message);
    assert_true(c.rope_theta == 10000.5 && c.norm_eps == 1.5e-5);
    asp_hf_config_write(&t, &c);
    assert_non_null(strstr(t.at, "\"rope_theta\": 10000.5,\n"));
    assert_non_null(strstr(t.at, "\"rms_norm_eps\": 1.5e-05,\n"));
    assert_int_equal(asp_hf_config_parse(&cx, "t", t.at, t.n, &back), ASP_OK);
    assert_true(back.rope_theta == 10000.5 && back.norm_eps == 1.5e-5);
    asp_arena_fini(&a);
}

static void records(void **state)
{
    (void)state;
    char line[512] = "";
    FILE *f = tmpfile();
    assert_non_null(f);
    asp_step_report s = {.step = 1,
                         .steps = 2,
                         .tokens = 8,
                         .loss = 2.5,
                         .grad_norm = 0.25,
                         .lr = 0.5,
                         .seconds = 0.125};
    asp_report_step(&(asp_report){.json = f}, &s);
    rewind(f);
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    assert_non_null(strstr(line, "\"loss\": 2.5, \"grad_norm\": 0.25, \"lr\": 0.5, "));
    assert_non_null(strstr(line, "\"seconds\": 0.125000, "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(numbers_and_texts, is_still_comma),
        cmocka_unit_test_teardown(graph_text, is_still_comma),
        cmocka_unit_test_teardown(json, is_still_comma),
        cmocka_unit_test_teardown(config_json, is_still_comma),
        cmocka_unit_test_teardown(records, is_still_comma),
    };
    return cmocka_run_group_tests(tests, set_comma, scratch_remove);
}
