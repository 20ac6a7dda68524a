// Arena layout: nothing alive together overlaps, hand cases are tight, training-like lifetimes stay
// near the bound.  SPDX-License-Identifier: Apache-2.0
#include "flow/pack.h"

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

static void check_disjoint(const asp_block_life *b, uint32_t n, int64_t height)
{
    int64_t top = 0;
    for (uint32_t i = 0; i < n; i++) {
        top = asp_max(top, asp_round_up(b[i].offset + b[i].bytes, ASP_PACK_ALIGN));
        assert_true(b[i].offset >= 0 && b[i].offset % ASP_PACK_ALIGN == 0);
        assert_true(b[i].offset + b[i].bytes <= height);
        for (uint32_t j = 0; j < i; j++) {
            bool together = b[i].first <= b[j].last && b[j].first <= b[i].last;
            bool overlap =
                b[i].offset < b[j].offset + b[j].bytes && b[j].offset < b[i].offset + b[i].bytes;
            assert_false(together && overlap);
        }
    }
    assert_int_equal(top, height);
}

static void hand_cases_are_tight(void **state)
{
    (void)state;
    asp_pack_result r;
    // A and C are alive together with B only; C can take A's place.
    asp_block_life b[] = {{640, 0, 1, 0}, {64, 1, 2, 0}, {640, 2, 3, 0}};
    assert_int_equal(asp_pack(&arena, b, 3, 4, &r), ASP_OK);
    assert_int_equal(r.height, 704);
    assert_int_equal(r.max_live, 704);
    assert_int_equal(r.at_step, 1);
    check_disjoint(b, 3, r.height);
    assert_int_equal(asp_pack(&arena, b, 0, 4, &r), ASP_OK);
    assert_int_equal(r.height, 0);
}

static void random_lives_never_overlap(void **state)
{
    (void)state;
    unsigned seed = 3;
    for (int round = 0; round < 60; round++) {
        asp_block_life b[200];
        asp_pack_result r;
        for (int i = 0; i < 200; i++) {
            uint32_t x = (uint32_t)rand_r(&seed) % 50, y = (uint32_t)rand_r(&seed) % 50;
            b[i] = (asp_block_life){1 + rand_r(&seed) % 5000, x < y ? x : y, x < y ? y : x, 0};
        }
        assert_int_equal(asp_pack(&arena, b, 200, 50, &r), ASP_OK);
        assert_true(r.height >= r.max_live);
        check_disjoint(b, 200, r.height);
    }
}

// Forward keeps one block a layer and drops three; backward frees in reverse with large transients.
static void training_lives_stay_near_the_bound(void **state)
{
    (void)state;
    enum { LAYERS = 40, N = LAYERS * 8 };
    asp_block_life b[N];
    asp_pack_result r;
    uint32_t n = 0, steps = LAYERS * 8;
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t fwd = 4 * l, bwd = steps - 4 * (l + 1);
        b[n++] = (asp_block_life){100000, fwd, bwd + 3, 0};
        b[n++] = (asp_block_life){30000, fwd + 1, bwd + 2, 0};
        for (uint32_t k = 0; k < 3; k++)
            b[n++] = (asp_block_life){250000 + 1000 * k, fwd + k, fwd + k + 1, 0};
        for (uint32_t k = 0; k < 3; k++)
            b[n++] = (asp_block_life){180000 + 70000 * k, bwd + k, bwd + k + 1, 0};
    }
    assert_int_equal(asp_pack(&arena, b, n, steps, &r), ASP_OK);
    check_disjoint(b, n, r.height);
    print_message("height %lld, bound %lld\n", (long long)r.height, (long long)r.max_live);
    assert_true((double)r.height <= 1.02 * (double)r.max_live);
}

// Two short blocks stand below two that stay; whoever comes later needs both their places in one.
static void what_is_kept_stands_apart_from_what_is_not(void **state)
{
    (void)state;
    asp_pack_result r;
    asp_block_life b[] = {{64, 0, 0, 0}, {64, 0, 9, 0},  {64, 1, 1, 0},
                          {64, 1, 9, 0}, {192, 2, 3, 0}, {64, 4, 9, 0}};
    assert_int_equal(asp_pack(&arena, b, 6, 10, &r), ASP_OK);
    assert_int_equal(r.max_live, 320);
    assert_int_equal(r.at_step, 2);
    assert_int_equal(r.height, 320);
    check_disjoint(b, 6, r.height);
}

static void equal_blocks_get_equal_places(void **state)
{
    (void)state;
    enum { N = 500 };
    unsigned seed = 5;
    asp_block_life a[N], b[N];
    asp_pack_result ra, rb;
    for (int i = 0; i < N; i++) {
        uint32_t first = (uint32_t)rand_r(&seed) % 100;
        a[i] = (asp_block_life){1 + rand_r(&seed) % 100000, first,
                                first + (uint32_t)rand_r(&seed) % (100 - first), 0};
        b[i] = a[i];
        b[i].offset = -1;
    }
    assert_int_equal(asp_pack(&arena, a, N, 100, &ra), ASP_OK);
    assert_int_equal(asp_pack(&arena, b, N, 100, &rb), ASP_OK);
    assert_int_equal(ra.height, rb.height);
    for (int i = 0; i < N; i++) assert_int_equal(a[i].offset, b[i].offset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_cases_are_tight),
        cmocka_unit_test(what_is_kept_stands_apart_from_what_is_not),
        cmocka_unit_test(equal_blocks_get_equal_places),
        cmocka_unit_test(random_lives_never_overlap),
        cmocka_unit_test(training_lives_stay_near_the_bound),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
