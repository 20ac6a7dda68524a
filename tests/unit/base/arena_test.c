// Arenas and growable arrays, in blocks and (ASP_ARENA=malloc) one allocation each; refused memory.
// SPDX-License-Identifier: Apache-2.0
#include "base/base.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static int in_blocks(void **state)
{
    (void)state;
    return unsetenv("ASP_ARENA");
}

static int separately(void **state)
{
    (void)state;
    return setenv("ASP_ARENA", "malloc", 1);
}

static void memory_is_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    for (int round = 0; round < 2; round++) {
        unsigned char *p[300];
        for (size_t i = 0; i < ASP_COUNT_OF(p); i++) {
            size_t bytes = i == 200 ? (size_t)5 << 20 : i; // one larger than any block
            p[i] = asp_alloc_bytes(&a, bytes, 1);
            assert_non_null(p[i]);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            for (size_t k = 0; k < bytes; k++) assert_int_equal(p[i][k], 0);
            memset(p[i], (int)(i % 251), bytes);
        }
        for (size_t i = 0; i < ASP_COUNT_OF(p); i++)
            for (size_t k = 0; k < (i == 200 ? 1000 : i); k++) assert_int_equal(p[i][k], i % 251);
        assert_true(a.total_bytes >= (5 << 20) + 299 * 300 / 2 - 200);
        asp_arena_reset(&a);
        assert_int_equal(a.total_bytes, 0);
    }
    asp_arena_fini(&a);
}

static void each_allocation_can_be_its_own(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_alloc_bytes(&a, 24, 1);
    size_t one = a.total_bytes;
    assert_in_range(one, 24, 64);
    asp_alloc_bytes(&a, 24, 1);
    assert_int_equal(a.total_bytes, 2 * one);
    asp_arena_fini(&a);
}

static void strings_and_arrays(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    assert_string_equal(asp_copy_str(&a, "three"), "three");
    assert_string_equal(asp_copy_str(&a, ""), "");
    assert_string_equal(asp_printf(&a, "%d of %s", 7, "nine"), "7 of nine");
    assert_memory_equal(asp_copy_bytes(&a, "a\0b", 3), "a\0b", 3);
    assert_non_null(asp_copy_bytes(&a, NULL, 0));
    ASP_VEC(uint32_t) v = {0};
    for (uint32_t i = 0; i < 5000; i++) ASP_PUSH(&a, &v, i * i);
    assert_int_equal(v.n, 5000);
    for (uint32_t i = 0; i < v.n; i++) assert_int_equal(v.at[i], i * i);
    ASP_RESERVE(&a, &v, 20000);
    assert_true(v.cap >= 20000);
    assert_int_equal(v.at[4999], 4999 * 4999);
    asp_arena_fini(&a);
}

typedef struct work {
    asp_arena a;
    int done;
} work;

static asp_status allocate_much(asp_ctx *cx, void *arg)
{
    work *w = arg;
    (void)cx;
    ASP_VEC(uint64_t) v = {0};
    for (uint32_t i = 0; i < 100000; i++) ASP_PUSH(&w->a, &v, i);
    for (int i = 0; i < 30; i++) asp_printf(&w->a, "%1000d", i);
    w->done = 1;
    return ASP_OK;
}

// Refuses the first block, then the second, ... until all are granted.
static void refused_memory_becomes_a_status(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    int64_t n = 1;
    for (asp_status s = ASP_ERR_NOMEM; s != ASP_OK; n++) {
        work w = {.done = 0};
        asp_arena_init(&w.a, &cx);
        cx.fail_allocation = n;
        s = asp_guard(&cx, allocate_much, &w);
        assert_null(cx.on_nomem);
        if (s != ASP_OK) {
            assert_int_equal(s, ASP_ERR_NOMEM);
            assert_int_equal(w.done, 0);
            assert_string_equal(asp_ctx_message(&cx),
                                "the machine refused memory for the compiler's own tables");
        } else {
            assert_int_equal(w.done, 1);
        }
        asp_arena_fini(&w.a);
        assert_in_range(n, 1, 1000);
    }
    assert_true(n > 3);
}

static asp_status too_many(asp_ctx *cx, void *arg)
{
    (void)cx;
    asp_alloc_bytes(arg, SIZE_MAX / 8, 16); // the product wraps around to something small
    return ASP_OK;
}

static asp_status too_much(asp_ctx *cx, void *arg)
{
    (void)cx;
    asp_alloc_bytes(arg, SIZE_MAX / 2, 1);
    return ASP_OK;
}

static asp_status guard_inside(asp_ctx *cx, void *arg)
{
    asp_status s = asp_guard(cx, too_many, arg);
    if (s != ASP_ERR_NOMEM) return ASP_ERR_CHECK;
    return too_much(cx, arg); // leaves through the outer one
}

static void sizes_beyond_reason_are_refused(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    assert_int_equal(asp_guard(&cx, too_many, &a), ASP_ERR_NOMEM);
    assert_int_equal(asp_guard(&cx, too_much, &a), ASP_ERR_NOMEM);
    assert_int_equal(asp_guard(&cx, guard_inside, &a), ASP_ERR_NOMEM);
    assert_null(cx.on_nomem);
    asp_arena_fini(&a);
}

static void without_a_guard_it_is_a_bug(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        asp_ctx cx;
        asp_arena a;
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        asp_ctx_init(&cx);
        asp_arena_init(&a, &cx);
        cx.fail_allocation = 1;
        signal(SIGABRT, SIG_DFL);
        asp_alloc_bytes(&a, 1, 1);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(memory_is_zeroed_aligned_and_apart, in_blocks),
        cmocka_unit_test_setup(memory_is_zeroed_aligned_and_apart, separately),
        cmocka_unit_test_setup(each_allocation_can_be_its_own, separately),
        cmocka_unit_test_setup(strings_and_arrays, in_blocks),
        cmocka_unit_test_setup(strings_and_arrays, separately),
        cmocka_unit_test_setup(refused_memory_becomes_a_status, in_blocks),
        cmocka_unit_test_setup(refused_memory_becomes_a_status, separately),
        cmocka_unit_test(sizes_beyond_reason_are_refused),
        cmocka_unit_test(without_a_guard_it_is_a_bug),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
