// Memory is refused at every allocation of a compilation in turn: each time there is a status with
// a message, and nothing is left behind (seen by ASan at the end, and counted here where the C
// library counts).  SPDX-License-Identifier: Apache-2.0
#include "front/front.h"
#include "run/compile.h"
#include "unit/sparse.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const asp_hf_config config = {.vocab = 32,
                                     .hidden = 16,
                                     .layers = 2,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 4,
                                     .intermediate = 24,
                                     .rope_theta = 1e4,
                                     .norm_eps = 1e-5,
                                     .initializer_range = 0.02};

// Bytes in use, where that is known: small blocks stay in caches of the C library.
static size_t held(void)
{
#if defined(__GLIBC__) && !ASP_ASAN
    return getenv("ASP_ARENA") ? 0 : mallinfo2().uordblks;
#else
    return 0;
#endif
}

static asp_status compile(asp_ctx *cx, void *arg)
{
    asp_graph *module, *joint;
    asp_plan *plan;
    (void)arg;
    asp_compile_options o = {.ranks = 2,
                             .batch = 1,
                             .seq = 64,
                             .threads = 1,
                             .sp = "auto",
                             .ac = "sac",
                             .backend = ASP_COMM_thread,
                             .optimizer = true};
    ASP_TRY(asp_front_hf(cx, &config, ASP_F32, &module));
    asp_status s = asp_compile_joint(cx, module, &o, NULL, &joint);
    asp_graph_destroy(module);
    ASP_TRY(s);
    s = asp_compile_plan(cx, joint, &o, NULL, &plan);
    asp_graph_destroy(joint);
    if (s == ASP_OK) asp_plan_destroy(plan);
    return s;
}

// Refuses allocation n, which is there if this returns true.
static bool refuse(int64_t n)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    size_t before = held();
    cx.fail_allocation = n;
    asp_status s = asp_guard(&cx, compile, NULL);
    if (held() != before)
        fail_msg("allocation %lld: %lld bytes are left", (long long)n,
                 (long long)held() - (long long)before);
    assert_null(cx.on_nomem);
    assert_null(cx.blocks);
    if (s == ASP_OK) return false;
    if (s != ASP_ERR_NOMEM) fail_msg("allocation %lld: %s", (long long)n, cx.message);
    assert_true(cx.message[0] != 0);
    return true;
}

// For the whole process: what matrix libraries allocate when they are first called.
static void make_what_is_made_once(void)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    assert_int_equal(asp_guard(&cx, compile, NULL), ASP_OK);
}

static int64_t refuse_each(int64_t stride)
{
    int64_t n = 1;
    make_what_is_made_once();
    while (refuse(n)) n += stride;
    return n;
}

static void every_block(void **state)
{
    (void)state;
    unsetenv("ASP_ARENA");
    assert_in_range(refuse_each(SPARSE(7)), 20, 10000);
}

// Every allocation its own block: there are many, so one in some.
static void every_so_many_an_allocation(void **state)
{
    (void)state;
    setenv("ASP_ARENA", "malloc", 1);
    assert_in_range(refuse_each(31 * SPARSE(7)), 5000, 1000000);
    unsetenv("ASP_ARENA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block),
        cmocka_unit_test(every_so_many_an_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
