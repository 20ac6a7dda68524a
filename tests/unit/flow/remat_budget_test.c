// Choices under a budget: against every subset, against the exact search, and what the frontier
// promises.  SPDX-License-Identifier: Apache-2.0
#include "flow/remat_search.h"
#include "unit/flow/support/random_chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static asp_ctx cx;
static asp_arena arena;
static remat_builder b;

static int setup(void **state)
{
    (void)state;
    asp_ctx_init(&cx);
    asp_arena_init(&arena, &cx);
    rb_init(&b, &cx, &arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    asp_arena_fini(&arena);
    return 0;
}

static asp_remat_frontier find(const asp_remat_program *p, uint32_t ways)
{
    asp_remat_frontier f;
    if (remat_frontier_by(&cx, &arena, p, 0, ways, &f) != ASP_OK) fail_msg("%s", cx.message);
    return f;
}

// ---- against every subset ------------------------------------------------------------------

typedef struct point {
    int64_t peak, ps;
} point;

// Peak and time of each subset of the forward's values.
static uint32_t try_all(const asp_remat_program *p, point *out)
{
    uint32_t values[16], n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (!p->ops[i].backward) values[n++] = p->ops[i].first_result;
    remat_trial t = remat_trial_make(&arena, p, 0);
    for (uint32_t set = 0; set < 1u << n; set++) {
        uint32_t saved[16], n_saved = 0;
        asp_remat_cost c;
        for (uint32_t i = 0; i < n; i++)
            if (set >> i & 1) saved[n_saved++] = values[i];
        assert_int_equal(remat_trial_run(&cx, &t, saved, n_saved, &c), ASP_OK);
        out[set] = (point){c.peak, c.repeated_ps};
    }
    return 1u << n;
}

static int64_t fastest(const point *all, uint32_t n, int64_t budget)
{
    int64_t best = -1;
    for (uint32_t i = 0; i < n; i++)
        if (all[i].peak <= budget && (best < 0 || all[i].ps < best)) best = all[i].ps;
    return best;
}

static void exact_search_equals_every_subset(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 500; seed++) {
        uint32_t n = seed % 100 == 99 ? 13 : 3 + seed % 8;
        asp_arena_reset(&arena);
        random_chain(&b, &cx, &arena, seed, n);
        asp_remat_program p = rb_program(&b);
        point *all = ASP_NEW_ARRAY(&arena, point, (size_t)1 << n);
        uint32_t n_all = try_all(&p, all);
        asp_remat_frontier f = find(&p, REMAT_EXACT);
        assert_true(f.exact);
        for (uint32_t i = 0; i<n_all; i += n_all> 1024 ? 7 : 1) { // each peak is a budget
            const asp_remat_candidate *c = asp_remat_frontier_best(&f, all[i].peak);
            assert_non_null(c);
            assert_int_equal(c->cost.repeated_ps, fastest(all, n_all, all[i].peak));
        }
        int64_t least = f.at[f.n - 1].cost.peak;
        assert_int_equal(fastest(all, n_all, least - 1), -1);
    }
}

// ---- the search against the exact one ------------------------------------------------------

static void search_is_within_two_percent(void **state)
{
    (void)state;
    uint32_t n_budgets = 0, n_equal = 0, n_beyond = 0;
    double worst = 0, sum = 0;
    for (uint32_t seed = 1000; seed < 1500; seed++) {
        asp_arena_reset(&arena);
        random_chain(&b, &cx, &arena, seed, 12 + seed % 5);
        asp_remat_program p = rb_program(&b);
        asp_remat_frontier exact = find(&p, REMAT_EXACT), found = find(&p, REMAT_SEARCH);
        assert_true(exact.exact);
        assert_false(found.exact);
        for (uint32_t i = 0; i < exact.n; i++) {
            const asp_remat_candidate *c = asp_remat_frontier_best(&found, exact.at[i].cost.peak);
            double best = (double)exact.at[i].cost.repeated_ps;
            double mine = c ? (double)c->cost.repeated_ps : 1e30;
            n_budgets++;
            n_equal += mine == best;
            double more = best > 0 ? mine / best - 1 : mine > 0 ? 1e30 : 0;
            n_beyond += more > 0.02;
            if (more > worst) worst = more;
            sum += more < 1 ? more : 1;
        }
    }
    print_message("search: %u budgets, %u equal, %u beyond 2 %%, mean %.4f %%, worst %.4f %%\n",
                  n_budgets, n_equal, n_beyond, 100 * sum / n_budgets, 100 * worst);
    assert_int_equal(n_beyond, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(exact_search_equals_every_subset),
        TEST(search_is_within_two_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
