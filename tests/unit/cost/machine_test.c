// The machine file: round trip, what is refused and how, where it is looked for.
// SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/autosp-machine-XXXXXX";
static char path[512];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/a/b/machine.json", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static const asp_machine measured = {.cpu = "Some \"fine\" CPU",
                                     .cores = 3,
                                     .memory_bytes = INT64_C(34359738368),
                                     .fma_gflops = 266.5,
                                     .triad_gbs = 41.25,
                                     .triad_all_gbs = 53,
                                     .exchange_gbs = 9.2,
                                     .latency_us = 4.5,
                                     .gemm_fraction = 0.88,
                                     .attention_fraction = 1};

static void write_text(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void comes_back(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_machine m;
    bool found = true;
    assert_int_equal(asp_machine_read(&cx, path, &m, &found), ASP_OK);
    assert_false(found);
    assert_true(m.cores >= 1 && m.memory_bytes > 0 && m.fma_gflops > 0);
    assert_int_equal(asp_machine_write(&cx, path, &measured), ASP_OK);
    assert_int_equal(asp_machine_write(&cx, path, &measured), ASP_OK); // over the old one
    assert_int_equal(asp_machine_read(&cx, path, &m, &found), ASP_OK);
    assert_true(found);
    assert_string_equal(m.cpu, measured.cpu);
    assert_int_equal(m.cores, 3);
    assert_int_equal(m.memory_bytes, INT64_C(34359738368));
    assert_true(m.fma_gflops == 266.5 && m.triad_gbs == 41.25 && m.triad_all_gbs == 53);
    assert_true(m.exchange_gbs == 9.2 && m.latency_us == 4.5);
    assert_true(m.gemm_fraction == 0.88 && m.attention_fraction == 1);
}

#define REST \
    "\"triad_gbs\":1,\"triad_all_gbs\":1,\"exchange_gbs\":1,\"latency_us\":1,\"gemm_fraction\":1,"

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\n  \"cpu\": \"x\",\n  \"cores\": 2,,\n}", "machine.json:3:"},
        {"", "machine.json:1:"},
        {"[1]", "not a machine file"},
        {"{\"cores\": 2}", "not a machine file"},
        {"{\"cpu\": \"x\", \"cores\": 0}", "`cores` must be a whole number above 0"},
        {"{\"cpu\": \"x\", \"cores\": 4294967297}", "`cores` must be a whole number above 0"},
        {"{\"cpu\": \"x\", \"cores\": 2}", "`memory_bytes` must be a whole number above 0"},
        {"{\"cpu\": \"x\", \"cores\": 2, \"memory_bytes\": 1, \"fma_gflops\": -3}",
         "`fma_gflops` must be a number above 0"},
        {"{\"cpu\": \"x\", \"cores\": 2, \"memory_bytes\": 1, \"fma_gflops\": \"fast\"}",
         "`fma_gflops` must be a number above 0"},
        {"{\"cpu\": \"x\", \"cores\": 2, \"memory_bytes\": 1, \"fma_gflops\": 1, " REST
         "\"attention_fraction\": 1.5}",
         "`attention_fraction` must be a number above 0 and at most 1"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(cases); i++) {
        asp_ctx cx;
        asp_ctx_init(&cx);
        asp_machine m;
        bool found;
        write_text(cases[i].text);
        assert_int_equal(asp_machine_read(&cx, path, &m, &found), ASP_ERR_INPUT);
        if (!strstr(cx.message, cases[i].says)) print_error("case %zu: %s\n", i, cx.message);
        assert_non_null(strstr(cx.message, cases[i].says));
        assert_non_null(strstr(cx.message, path));
    }
}

static void cannot_be_written(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    char below[600];
    snprintf(below, sizeof below, "%s/x.json", path); // path is a file
    assert_int_equal(asp_machine_write(&cx, below, &measured), ASP_ERR_IO);
    assert_non_null(strstr(cx.message, below));
    assert_non_null(strstr(cx.message, "AUTOSP_MACHINE"));
}

static void is_looked_for(void **state)
{
    (void)state;
    char at[512];
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_machine m;
    setenv("HOME", folder, 1);
    unsetenv("AUTOSP_MACHINE");
    assert_true(asp_machine_path(at, sizeof at));
    assert_string_equal(at + strlen(folder), "/.config/autosp/machine.json");
    assert_int_equal(asp_machine_find(&cx, &m), ASP_OK); // the table
    assert_int_equal(strncmp(m.cpu, "built-in ", 9), 0);
    setenv("AUTOSP_MACHINE", path, 1);
    assert_int_equal(asp_machine_write(&cx, path, &measured), ASP_OK);
    assert_int_equal(asp_machine_find(&cx, &m), ASP_OK);
    assert_string_equal(m.cpu, measured.cpu);
    setenv("AUTOSP_MACHINE", "/nowhere/machine.json", 1);
    assert_int_equal(asp_machine_find(&cx, &m), ASP_ERR_INPUT);
    assert_non_null(strstr(cx.message, "/nowhere/machine.json"));
    setenv("AUTOSP_MACHINE", "", 1); // none, whatever HOME has
    assert_false(asp_machine_path(at, sizeof at));
    unsetenv("AUTOSP_MACHINE");
    unsetenv("HOME");
    assert_false(asp_machine_path(at, sizeof at));
    assert_int_equal(asp_machine_find(&cx, &m), ASP_OK);
}

static void table(void **state)
{
    (void)state;
    for (int isa = ASP_ISA_GENERIC; isa <= ASP_ISA_AVX512; isa++) {
        asp_machine one = asp_machine_builtin((asp_isa)isa, 1, 1);
        asp_machine two = asp_machine_builtin((asp_isa)isa, 2, 1);
        assert_true(one.fma_gflops > 0 && one.latency_us > 0 && one.exchange_gbs > 0);
        assert_true(one.triad_all_gbs == one.triad_gbs && two.triad_all_gbs > two.triad_gbs);
        assert_true(one.gemm_fraction <= 1 && one.attention_fraction <= 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),
        cmocka_unit_test(refuses),
        cmocka_unit_test(cannot_be_written),
        cmocka_unit_test(is_looked_for),
        cmocka_unit_test(table),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
