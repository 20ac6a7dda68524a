// Values that are away in a file between forward and backward: the same bits, less memory, bytes as
// planned, no file left, and a file that cannot be written ends the step with a message.
// SPDX-License-Identifier: Apache-2.0
#include "run/spill.h"
#include "support/tiny.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static tiny model(int64_t ranks)
{
    tiny t = tiny_default();
    t.layers = 5;
    t.dtype = ASP_F32;
    t.ranks = ranks;
    t.seq = 128;
    t.skip_sp = false;
    t.ac = "layer";
    return t;
}

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/autosp-offload-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); // fails where something is left
}

static void compare(tiny t)
{
    tiny_result here = tiny_run(&t, -1, 0);
    t.offload = folder;
    tiny_result away = tiny_run(&t, -1, 0);
    const int64_t input = t.batch * t.seq / t.ranks * t.hidden * 4; // of a layer
    assert_true(away.loss == here.loss);
    assert_memory_equal(away.gradients, here.gradients, (size_t)here.count * sizeof(double));
    assert_int_equal(away.report.offload_bytes, (t.layers - 1) * input); // not that of the last
    assert_int_equal(away.offloaded, t.steps * 2 * away.report.offload_bytes);
    assert_true(away.report.max_live_bytes < here.report.max_live_bytes);
    tiny_free(&here);
    tiny_free(&away);
}

static void bits_are_the_same(void **state)
{
    (void)state;
    tiny t = model(1);
    t.steps = 2;
    compare(t);
    t = model(2);
    t.tile = 64;
    compare(t);
    t.sp = "ring";
    t.threads = 2;
    compare(t);
}

// Two more layers need no more memory than their parameters.
static void memory_does_not_grow_with_layers(void **state)
{
    (void)state;
    asp_ctx cx;
    int64_t arena[2];
    asp_ctx_init(&cx);
    for (int i = 0; i < 2; i++) {
        tiny t = model(1);
        t.layers += 2 * i;
        t.offload = folder;
        asp_plan *p = tiny_plan(&cx, &t);
        arena[i] = asp_plan_get_report(p)->max_live_bytes;
        asp_plan_destroy(p);
    }
    assert_int_equal(arena[0], arena[1]);
}

static int64_t bytes_of(const tiny *t)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_plan *p = tiny_plan(&cx, t);
    const int64_t bytes = asp_plan_get_report(p)->rank_bytes;
    asp_plan_destroy(p);
    return bytes;
}

// The search does not know what is away; its smallest program is no larger than layer's all the
// same, and what fits that is found.
static void budgets_know_what_layer_takes(void **state)
{
    (void)state;
    tiny t = model(1);
    t.offload = folder;
    const int64_t layer = bytes_of(&t);
    t.ac = "budget";
    t.memory = 1;
    assert_true(bytes_of(&t) <= layer);
    t.memory = layer;
    assert_true(bytes_of(&t) <= layer);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void a_full_folder_is_refused_before_the_step(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_spill *s;
    asp_ctx_init(&cx);
    limit_files(4096);
    assert_int_equal(asp_spill_create(&cx, folder, 1 << 20, &s), ASP_ERR_IO);
    limit_files(RLIM_INFINITY);
    assert_non_null(strstr(cx.message, "1.00 MiB are wanted there"));
    assert_int_equal(asp_spill_create(&cx, "/nowhere/at/all", 4096, &s), ASP_ERR_IO);
    assert_non_null(strstr(cx.message, "--offload /nowhere/at/all"));
}

// A failure is told when it is awaited, and nothing behind it is believed.
static void a_write_that_fails_ends_the_step(void **state)
{
    (void)state;
    static char from[8192], to[8192];
    asp_ctx cx;
    asp_spill *s;
    asp_ctx_init(&cx);
    memset(from, 'x', sizeof from);
    assert_int_equal(asp_spill_create(&cx, folder, sizeof from, &s), ASP_OK);
    asp_spill_begin(s, true, from, 0, sizeof from);
    assert_int_equal(asp_spill_await(s, &cx), ASP_OK);
    asp_spill_begin(s, false, to, 0, sizeof to);
    assert_int_equal(asp_spill_await(s, &cx), ASP_OK);
    assert_memory_equal(from, to, sizeof from);
    limit_files(4096);
    asp_spill_begin(s, true, from, 4096, 4096);
    assert_int_equal(asp_spill_await(s, &cx), ASP_ERR_IO);
    assert_non_null(strstr(cx.message, "the file cannot be written: File too large"));
    limit_files(RLIM_INFINITY);
    asp_spill_begin(s, false, to, 0, sizeof to);
    assert_int_equal(asp_spill_await(s, &cx), ASP_ERR_IO);
    asp_spill_begin(s, false, to, 0, sizeof to);
    asp_spill_cancel(s);
    assert_int_equal(asp_spill_moved(s), 2 * sizeof from);
    asp_spill_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_same),
        cmocka_unit_test(memory_does_not_grow_with_layers),
        cmocka_unit_test(budgets_know_what_layer_takes),
        cmocka_unit_test(a_full_folder_is_refused_before_the_step),
        cmocka_unit_test(a_write_that_fails_ends_the_step),
    };
    signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
