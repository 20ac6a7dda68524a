// Choices under a budget: against every subset, against the exact search, and what the frontier
// promises.  SPDX-License-Identifier: Apache-2.0
#include "flow/remat_search.h"
#include "unit/flow/support/llama_program.h"
#include "unit/flow/support/random_chain.h"
#include "unit/sparse.h"

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
    for (uint32_t seed = 0; seed < 500; seed += SPARSE(19)) {
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
    for (uint32_t seed = 1000; seed < 1500; seed += SPARSE(19)) {
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

// ---- the bound -----------------------------------------------------------------------------

static void bound_is_below_the_best(void **state)
{
    (void)state;
    uint32_t n_above_zero = 0;
    for (uint32_t seed = 2000; seed < 2100; seed++) {
        asp_arena_reset(&arena);
        random_chain(&b, &cx, &arena, seed, 6 + seed % 6);
        asp_remat_program p = rb_program(&b);
        asp_remat_frontier f = find(&p, REMAT_EXACT);
        int64_t *budgets = ASP_NEW_ARRAY(&arena, int64_t, f.n);
        double *bound = ASP_NEW_ARRAY(&arena, double, f.n);
        for (uint32_t i = 0; i < f.n; i++) budgets[i] = f.at[i].cost.peak;
        assert_int_equal(asp_remat_bound(&cx, &p, 0, budgets, f.n, bound), ASP_OK);
        for (uint32_t i = 0; i < f.n; i++) {
            if (bound[i] > (double)f.at[i].cost.repeated_ps + 1e-3)
                fail_msg("seed %u: bound %.3f, best %lld", seed, bound[i],
                         (long long)f.at[i].cost.repeated_ps);
            n_above_zero += bound[i] > 0;
        }
    }
    assert_true(n_above_zero > 100);
}

// A Llama 8B of 32 layers at 20 budgets from the smallest to none: within 2 % of a step.
static void gap_to_the_bound_is_small(void **state)
{
    (void)state;
    llama_shape shape = llama_8b(32);
    llama_program y = llama_build(&arena, &shape);
    asp_remat_frontier f = find(&y.program, REMAT_SEARCH);
    int64_t budgets[20], most = f.at[0].cost.peak, least = f.at[f.n - 1].cost.peak;
    double bound[20], step = 0, worst = 0;
    for (uint32_t i = 0; i < y.program.n_ops; i++) step += (double)y.program.ops[i].time_ps;
    for (int i = 0; i < 20; i++) budgets[i] = least + (most - least) * i / 19;
    assert_int_equal(asp_remat_bound(&cx, &y.program, 0, budgets, 20, bound), ASP_OK);
    for (int i = 0; i < 20; i++) {
        double ps = (double)asp_remat_frontier_best(&f, budgets[i])->cost.repeated_ps;
        double gap = (ps - bound[i]) / (step + ps);
        if (gap > worst) worst = gap;
    }
    print_message("gap to the bound: %.2f %% of a step at most\n", 100 * worst);
    assert_true(worst <= 0.02);
}

// ---- cases ---------------------------------------------------------------------------------

// Three items of weight and value 1 in room for one: exactly one is taken.  And m2, made from m1,
// is kept where either fits: the time is that of what is really repeated.
static void remat_case_A16(void **state)
{
    (void)state;
    const int64_t weights[] = {1, 1, 1};
    const float values[] = {1, 1, 1};
    bool in[3];
    remat_knapsack(&arena, weights, values, 3, 1, in);
    assert_int_equal(in[0] + in[1] + in[2], 1);
    uint32_t x = rb_input(&b, "x", 0, ASP_REMAT_STATIC);
    uint32_t m1 = rb_op(&b, "m1", ASP_REMAT_GEMM, 4, x);
    uint32_t m2 = rb_op(&b, "m2", ASP_REMAT_GEMM, 5, m1);
    rb_maker(&b, m1)->time_ps = 10;
    rb_maker(&b, m2)->time_ps = 1;
    b.values.at[m2].flags |= ASP_REMAT_FORWARD_OUTPUT;
    rb_backward(&b, 0, m2);
    asp_remat_program p = rb_program(&b);
    asp_remat_frontier f = find(&p, REMAT_EXACT);
    const asp_remat_candidate *c = asp_remat_frontier_best(&f, 9);
    assert_non_null(c);
    assert_int_equal(c->cost.repeated_ps, 0);
    assert_int_equal(c->cost.saved_bytes, 5);
    assert_int_equal(c->saved[c->n_saved - 1], m2);
}

static uint32_t count_exchanges(const asp_remat_program *p, const asp_remat_schedule *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_steps; i++)
        n += p->ops[s->steps[i].op].kind == ASP_REMAT_COLLECTIVE;
    return n;
}

// Two ranks, one with 1 % more tokens than the other: one decision for both.
static void remat_case_A23(void **state)
{
    (void)state;
    llama_shape shapes[2] = {llama_8b(4), llama_8b(4)};
    asp_remat_program programs[2], joined;
    shapes[1].tokens += shapes[1].tokens / 100;
    for (int r = 0; r < 2; r++) {
        shapes[r].exchange_ranks = 2;
        programs[r] = llama_build(&arena, &shapes[r]).program;
    }
    const asp_remat_program *list[] = {&programs[0], &programs[1]}, *swapped[] = {list[1], list[0]};
    assert_int_equal(asp_remat_join(&cx, &arena, list, 2, &joined), ASP_OK);
    asp_remat_frontier f = find(&joined, REMAT_SEARCH);
    assert_int_equal(asp_remat_join(&cx, &arena, swapped, 2, &joined), ASP_OK);
    asp_remat_frontier g = find(&joined, REMAT_SEARCH);
    assert_int_equal(f.n, g.n);
    uint32_t repeated = 0;
    for (uint32_t i = 0; i < f.n; i++) { // whoever lists the ranks how, at every budget
        const asp_remat_candidate *c = &f.at[i];
        asp_remat_schedule s[2];
        assert_int_equal(asp_remat_hash(c->saved, c->n_saved),
                         asp_remat_hash(g.at[i].saved, g.at[i].n_saved));
        for (int r = 0; r < 2; r++)
            assert_int_equal(asp_remat_emit(&cx, &arena, &programs[r], c->saved, c->n_saved, &s[r]),
                             ASP_OK);
        assert_int_equal(s[0].n_steps, s[1].n_steps);
        for (uint32_t k = 0; k < s[0].n_steps; k++)
            assert_int_equal(s[0].steps[k].op, s[1].steps[k].op);
        uint32_t n = count_exchanges(&programs[0], &s[0]);
        assert_int_equal(n, count_exchanges(&programs[1], &s[1]));
        repeated += n > 4 * 8;
    }
    assert_true(repeated > 0); // some budgets repeat exchanges
    shapes[1].layers = 3;
    programs[1] = llama_build(&arena, &shapes[1]).program;
    assert_int_equal(asp_remat_join(&cx, &arena, list, 2, &joined), ASP_ERR_PEER);
}

// ---- what a frontier promises --------------------------------------------------------------

static void answers_keep_their_budget_and_are_monotone(void **state)
{
    (void)state;
    llama_shape s = llama_8b(32);
    llama_program y = llama_build(&arena, &s);
    asp_remat_frontier f = find(&y.program, REMAT_EXACT | REMAT_SEARCH);
    remat_trial t = remat_trial_make(&arena, &y.program, 0);
    assert_true(f.n > 20);
    int64_t most = f.at[0].cost.peak, least = f.at[f.n - 1].cost.peak, before = -1;
    assert_int_equal(f.at[0].cost.repeated_ps, 0);
    for (int i = 60; i >= 0; i--) {
        int64_t budget = least + (most - least) * i / 60;
        asp_remat_cost cost;
        const asp_remat_candidate *c = asp_remat_frontier_best(&f, budget);
        assert_non_null(c);
        assert_int_equal(remat_trial_run(&cx, &t, c->saved, c->n_saved, &cost), ASP_OK);
        assert_true(cost.peak <= budget);
        assert_int_equal(cost.repeated_ps, c->cost.repeated_ps);
        assert_true(cost.repeated_ps >= before);
        before = cost.repeated_ps;
    }
    assert_null(asp_remat_frontier_best(&f, least - 1));
    asp_remat_candidate none;
    assert_int_equal(asp_remat_budget(&cx, &arena, &y.program, 0, least - 1, &none), ASP_ERR_LIMIT);
    assert_non_null(strstr(cx.message, asp_printf(&arena, "found is %lld", (long long)least)));
    for (int p = ASP_REMAT_KEEP_ALL; p <= ASP_REMAT_LAYER; p++) { // never worse than a policy
        asp_remat_choice choice;
        asp_remat_cost cost;
        assert_int_equal(asp_remat_choose(&cx, &arena, &y.program, (asp_remat_policy)p, &choice),
                         ASP_OK);
        assert_int_equal(remat_trial_run(&cx, &t, choice.saved, choice.n_saved, &cost), ASP_OK);
        const asp_remat_candidate *c = asp_remat_frontier_best(&f, cost.peak);
        assert_true(c->cost.repeated_ps <= cost.repeated_ps);
        uint32_t i = 0; // fastest of those not slower than the policy: the smallest such peak
        while (i + 1 < f.n && f.at[i + 1].cost.repeated_ps <= cost.repeated_ps) i++;
        assert_true(f.at[i].cost.peak <= cost.peak);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(remat_case_A16),
        TEST(remat_case_A23),
        TEST(answers_keep_their_budget_and_are_monotone),
        TEST(bound_is_below_the_best),
        TEST(gap_to_the_bound_is_small),
        TEST(exact_search_equals_every_subset),
        TEST(search_is_within_two_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
