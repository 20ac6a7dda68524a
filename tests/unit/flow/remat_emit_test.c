// The emitted program and its bytes: hand cases, and random programs against an independent replay
// and against every choice of saved values.  SPDX-License-Identifier: Apache-2.0
#include "unit/flow/support/remat_builder.h"

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

static asp_remat_schedule emit(const uint32_t *saved, uint32_t n)
{
    asp_remat_program p = rb_program(&b);
    asp_remat_schedule s;
    if (asp_remat_emit(&cx, &arena, &p, saved, n, &s) != ASP_OK) fail_msg("%s", cx.message);
    return s;
}

static asp_remat_cost simulate(const uint32_t *saved, uint32_t n, const asp_remat_schedule *s,
                               uint32_t options)
{
    asp_remat_program p = rb_program(&b);
    asp_remat_cost c;
    asp_remat_simulate(&arena, &p, saved, n, s, options, &c);
    return c;
}

// ---- by hand -------------------------------------------------------------------------------

// Checkpointing case A14: f_i = mm(x_{i-1}) of 32 bytes, x_i = x_{i-1} + mm(f_i) of 8, three
// blocks; 8 of gradient coming in and 32 of temporaries (the outgoing gradient among them).
static void remat_case_A14(void **state)
{
    (void)state;
    uint32_t x[4], f[4], ids = rb_input(&b, "ids", 1, 0),
                         tangent = rb_input(&b, "t", 8, ASP_REMAT_TANGENT);
    x[0] = rb_op(&b, "x0", ASP_REMAT_OTHER, 8, ids);
    for (int i = 1; i <= 3; i++) {
        f[i] = rb_op(&b, "f", ASP_REMAT_GEMM, 32, x[i - 1]);
        x[i] = rb_op(&b, "x", ASP_REMAT_GEMM, 8, x[i - 1], f[i]);
    }
    b.values.at[x[3]].flags |= ASP_REMAT_FORWARD_OUTPUT;
    uint32_t g = rb_add_op(&b, "seed", ASP_REMAT_OTHER, 8, &tangent, 1);
    b.ops.at[b.ops.n - 1].backward = true;
    for (int i = 3; i >= 1; i--) {
        g = rb_backward(&b, 8, g, f[i], x[i - 1]);
        if (i > 1) b.values.at[g].flags = 0;
        rb_result(&b, "temporary", 24);
    }
    const uint32_t values[] = {x[0], f[1], x[1], f[2], x[2], f[3]};
    const struct {
        uint32_t set; // bits of values
        int64_t saved, peak;
        uint32_t repeated;
    } expected[] = {
        {1, 8, 160, 5}, {1 | 4, 16, 128, 4}, {1 | 4 | 16, 24, 96, 3}, {63, 120, 160, 0}};
    int64_t least = INT64_MAX;
    for (uint32_t set = 1; set < 64; set += 2) { // x0 is there in each
        uint32_t saved[6], n = 0;
        for (uint32_t i = 0; i < 6; i++)
            if (set >> i & 1) saved[n++] = values[i];
        asp_remat_schedule s = emit(saved, n);
        asp_remat_cost c = simulate(saved, n, &s, 0);
        least = asp_min(least, c.backward_peak);
        for (size_t k = 0; k < ASP_COUNT_OF(expected); k++) {
            if (expected[k].set != set) continue;
            assert_int_equal(c.saved_bytes, expected[k].saved);
            assert_int_equal(c.backward_peak, expected[k].peak);
            assert_int_equal(c.repeated_ops, expected[k].repeated);
        }
    }
    assert_int_equal(least, 96);
}

static void repeats_just_before_first_need_and_once(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 8, 0);
    uint32_t a = rb_op(&b, "a", ASP_REMAT_POINTWISE, 8, x);       // op 0
    uint32_t y = rb_op(&b, "y", ASP_REMAT_POINTWISE, 8, a);       // op 1
    uint32_t only = rb_op(&b, "only", ASP_REMAT_POINTWISE, 8, x); // op 2: no forward reader
    b.values.at[y].flags |= ASP_REMAT_FORWARD_OUTPUT;
    rb_backward(&b, 8, x);       // op 3
    rb_backward(&b, 8, y);       // op 4
    rb_backward(&b, 8, a, only); // op 5
    rb_op(&b, "dead", ASP_REMAT_POINTWISE, 8, x);
    asp_remat_schedule s = emit(NULL, 0);
    static const asp_remat_step expected[] = {{0, false}, {1, false}, {3, false}, {0, true},
                                              {1, true},  {4, false}, {2, false}, {5, false}};
    assert_int_equal(s.n_forward, 2);
    assert_int_equal(s.n_steps, ASP_COUNT_OF(expected));
    for (uint32_t i = 0; i < s.n_steps; i++) {
        assert_int_equal(s.steps[i].op, expected[i].op);
        assert_int_equal(s.steps[i].repeated, expected[i].repeated);
    }
    s = emit(&a, 1);
    assert_int_equal(s.n_steps, 7); // without the repetition of a
}

static void random_ops_are_not_repeated(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 8, 0);
    uint32_t r = rb_op(&b, "r", ASP_REMAT_RANDOM, 8, x);
    b.values.at[r].flags |= ASP_REMAT_FORWARD_OUTPUT;
    rb_backward(&b, 8, r);
    asp_remat_program p = rb_program(&b);
    asp_remat_schedule s;
    assert_int_equal(asp_remat_emit(&cx, &arena, &p, NULL, 0, &s), ASP_ERR_UNSUPPORTED);
    assert_int_equal(asp_remat_emit(&cx, &arena, &p, &r, 1, &s), ASP_OK);
}

static void views_take_no_bytes_and_hold_their_storage(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 100, 0);
    uint32_t a = rb_op(&b, "a", ASP_REMAT_GEMM, 8, x);
    uint32_t v = rb_op(&b, "v", ASP_REMAT_VIEW, 8, a);
    rb_view(&b, v);
    uint32_t y = rb_op(&b, "y", ASP_REMAT_GEMM, 4, x);
    uint32_t z = rb_op(&b, "z", ASP_REMAT_GEMM, 2, v, y);
    b.values.at[z].flags |= ASP_REMAT_FORWARD_OUTPUT;
    rb_backward(&b, 1, v);
    asp_remat_schedule s = emit(&v, 1);
    asp_remat_cost c = simulate(&v, 1, &s, 0);
    assert_int_equal(c.saved_bytes, 8);
    assert_int_equal(c.forward_peak, 14);
    assert_int_equal(c.backward_peak, 9);
    assert_int_equal(c.peak_step, 3);
    c = simulate(&v, 1, &s, ASP_REMAT_KEEP_OUTPUTS);
    assert_int_equal(c.backward_peak, 11);
}

// x -> a -> y -> z, all of 8: a is never written, and z takes the place of y.
static void fused_chains_take_no_bytes(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 8, 0);
    uint32_t m = rb_op(&b, "m", ASP_REMAT_GEMM, 8, x);
    uint32_t a = rb_op(&b, "a", ASP_REMAT_POINTWISE, 8, m);
    uint32_t y = rb_op(&b, "y", ASP_REMAT_POINTWISE, 8, a);
    uint32_t n = rb_op(&b, "n", ASP_REMAT_GEMM, 8, y);
    uint32_t z = rb_op(&b, "z", ASP_REMAT_POINTWISE, 8, n);
    b.values.at[z].flags |= ASP_REMAT_FORWARD_OUTPUT;
    asp_remat_schedule s = emit(NULL, 0);
    assert_int_equal(simulate(NULL, 0, &s, 0).peak, 16);
    asp_remat_cost c = simulate(NULL, 0, &s, ASP_REMAT_FUSED);
    assert_int_equal(c.peak, 16); // n beside y
    assert_int_equal(c.peak_step, 3);
    rb_maker(&b, n)->kind = ASP_REMAT_POINTWISE;
    rb_maker(&b, n)->fusible = true;
    assert_int_equal(simulate(NULL, 0, &s, ASP_REMAT_FUSED).peak, 8);
}

// ---- random programs -----------------------------------------------------------------------

static uint32_t pick(unsigned *seed, uint32_t n) { return (uint32_t)rand_r(seed) % n; }

static void add_random_forward(unsigned *seed, uint32_t n_ops)
{
    for (uint32_t i = 0; i < n_ops; i++) {
        uint32_t reads[2] = {pick(seed, b.values.n), pick(seed, b.values.n)};
        uint32_t n_reads = 1 + pick(seed, 2), v;
        int64_t bytes = 1 + pick(seed, 30);
        bool view = pick(seed, 5) == 0 && reads[0] >= b.n_inputs;
        v = rb_add_op(&b, "v", view ? ASP_REMAT_VIEW : ASP_REMAT_POINTWISE, bytes, reads,
                      view ? 1 : n_reads);
        b.redo.at[v] = pick(seed, 4) == 0 ? ASP_FLOW_INF : pick(seed, 20);
        if (pick(seed, 6) == 0) b.keep.at[v] = ASP_FLOW_INF;
        if (view)
            rb_view(&b, v);
        else if (pick(seed, 5) == 0)
            rb_result(&b, "w", 1 + pick(seed, 30));
    }
}

static void make_random(unsigned *seed)
{
    rb_init(&b, &cx, &arena);
    rb_input(&b, "x", 5, 0);
    rb_input(&b, "w", 7, ASP_REMAT_STATIC);
    uint32_t tangent = rb_input(&b, "t", 3, ASP_REMAT_TANGENT);
    b.redo.at[tangent] = 0;
    uint32_t first = b.values.n, n_forward;
    rb_op(&b, "v", ASP_REMAT_POINTWISE, 9, 0);
    add_random_forward(seed, 1 + pick(seed, 5));
    n_forward = b.values.n - first;
    for (uint32_t i = 0; i < b.ops.n; i++) // no forward op reads the tangent
        for (uint32_t r = 0; r < b.ops.at[i].n_reads; r++)
            if (b.reads.at[b.ops.at[i].first_read + r] == tangent)
                b.reads.at[b.ops.at[i].first_read + r] = 0;
    b.values.at[first + pick(seed, n_forward)].flags |= ASP_REMAT_FORWARD_OUTPUT;
    for (uint32_t i = 1 + pick(seed, 3); i > 0; i--)
        rb_backward(&b, 1 + pick(seed, 30), tangent, first + pick(seed, n_forward),
                    first + pick(seed, n_forward));
}

// Price of saving exactly this set, or INT64_MAX: everything the backward still misses is redone.
static int64_t price_of(const asp_remat_program *p, uint32_t set)
{
    bool need[64] = {false};
    int64_t price = 0;
    for (uint32_t v = 0; v < p->n_values; v++) {
        if (!(set >> v & 1)) continue;
        if (b.keep.at[v] == ASP_FLOW_INF) return INT64_MAX;
        price += b.keep.at[v];
    }
    for (uint32_t i = p->n_ops; i-- > 0;) {
        const asp_remat_op *o = &p->ops[i];
        bool runs = o->backward;
        for (uint32_t r = 0; r < o->n_results && !o->backward; r++)
            runs |= need[o->first_result + r];
        if (!runs) continue;
        if (!o->backward) {
            if (b.redo.at[o->first_result] == ASP_FLOW_INF) return INT64_MAX;
            price += b.redo.at[o->first_result];
        }
        for (uint32_t r = 0; r < o->n_reads; r++) {
            uint32_t v = p->reads[o->first_read + r];
            if (!(set >> v & 1)) need[v] = true;
        }
    }
    for (uint32_t v = 0; v < p->n_inputs; v++)
        if (need[v] && !(p->values[v].flags & ASP_REMAT_TANGENT)) return INT64_MAX;
    return price;
}

static void cuts_match_every_choice(void **state)
{
    (void)state;
    unsigned seed = 11;
    int solved = 0, refused = 0;
    for (int round = 0; round < 400; round++) {
        make_random(&seed);
        asp_remat_program p = rb_program(&b);
        uint32_t last = 0;
        for (uint32_t i = 0; i < p.n_ops; i++)
            if (!p.ops[i].backward) last = p.ops[i].first_result + p.ops[i].n_results;
        int64_t best = INT64_MAX;
        for (uint32_t set = 0; set < 1u << last; set++) {
            if (set & 4) continue; // the tangent
            best = asp_min(best, price_of(&p, set));
        }
        asp_remat_choice c;
        asp_status s = asp_remat_cut(&cx, &arena, &p, b.keep.at, b.redo.at, &c);
        if (best == INT64_MAX) {
            assert_int_equal(s, ASP_ERR_UNSUPPORTED);
            refused++;
        } else {
            uint32_t set = 0;
            assert_int_equal(s, ASP_OK);
            for (uint32_t i = 0; i < c.n_saved; i++) set |= 1u << c.saved[i];
            assert_int_equal(c.cut, best);
            assert_int_equal(price_of(&p, set), best);
            solved++;
        }
        asp_arena_reset(&arena);
    }
    assert_true(solved > 100 && refused > 20);
}

// Bytes of storages that exist at a step: made or there before, and kept or still to be touched.
static int64_t bytes_at(const asp_remat_program *p, const asp_remat_step *steps, uint32_t n,
                        uint32_t at, const bool *start, const bool *keep)
{
    int64_t bytes = 0;
    for (uint32_t storage = p->n_inputs; storage < p->n_values; storage++) {
        if (p->values[storage].root != storage) continue;
        bool there = start[storage], touched = false, later = false;
        for (uint32_t s = 0; s < n; s++) {
            const asp_remat_op *o = &p->ops[steps[s].op];
            bool makes = storage >= o->first_result && storage - o->first_result < o->n_results;
            bool reads = false;
            for (uint32_t r = 0; r < o->n_reads; r++)
                reads |= p->values[p->reads[o->first_read + r]].root == storage;
            there |= makes && s <= at;
            touched |= makes || reads;
            later |= (makes || reads) && s >= at;
        }
        if (there && (keep[storage] || later || !touched)) bytes += p->values[storage].bytes;
    }
    return bytes;
}

static int64_t replay(const asp_remat_program *p, const asp_remat_step *steps, uint32_t n,
                      const bool *start, const bool *keep)
{
    int64_t peak = 0;
    for (uint32_t s = 0; s < n; s++) peak = asp_max(peak, bytes_at(p, steps, n, s, start, keep));
    return peak;
}

// Every backward step finds its operands: inputs, saved, or made in the backward before it.
static void check_order(const asp_remat_program *p, const asp_remat_schedule *s, const bool *saved)
{
    bool have[64] = {false};
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const asp_remat_op *o = &p->ops[s->steps[i].op];
        if (i == s->n_forward)
            for (uint32_t v = 0; v < p->n_values; v++) {
                assert_true(have[v] || !saved[v]);
                have[v] = saved[v];
            }
        for (uint32_t r = 0; r < o->n_reads; r++) {
            uint32_t v = p->reads[o->first_read + r];
            assert_true(have[v] || v < p->n_inputs);
        }
        for (uint32_t r = 0; r < o->n_results; r++) have[o->first_result + r] = true;
    }
}

static void bytes_match_an_independent_replay(void **state)
{
    (void)state;
    unsigned seed = 23;
    for (int round = 0; round < 300; round++) {
        make_random(&seed);
        asp_remat_program p = rb_program(&b);
        bool saved[64] = {false}, start[64] = {false}, none[64] = {false};
        bool ends_forward[64] = {false}, ends_backward[64] = {false};
        uint32_t list[64], n = 0;
        int64_t saved_bytes = 0;
        for (uint32_t v = p.n_inputs; v < p.n_values; v++) {
            uint32_t flags = p.values[v].flags, storage = p.values[v].root;
            bool backward = rb_maker(&b, v)->backward;
            if (!backward && pick(&seed, 3) == 0) {
                saved[v] = true;
                list[n++] = v;
                if (!start[storage]) saved_bytes += p.values[storage].bytes;
                start[storage] = ends_forward[storage] = true;
            }
            if (flags & ASP_REMAT_FORWARD_OUTPUT) ends_forward[storage] = true;
            if (flags & ASP_REMAT_BACKWARD_OUTPUT) ends_backward[storage] = true;
        }
        asp_remat_schedule s = emit(list, n);
        check_order(&p, &s, saved);
        asp_remat_cost c = simulate(list, n, &s, 0);
        assert_int_equal(c.saved_bytes, saved_bytes);
        assert_int_equal(c.forward_peak, replay(&p, s.steps, s.n_forward, none, ends_forward));
        assert_int_equal(c.backward_peak, replay(&p, s.steps + s.n_forward, s.n_steps - s.n_forward,
                                                 start, ends_backward));
        asp_arena_reset(&arena);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(remat_case_A14),
        TEST(repeats_just_before_first_need_and_once),
        TEST(random_ops_are_not_repeated),
        TEST(views_take_no_bytes_and_hold_their_storage),
        TEST(fused_chains_take_no_bytes),
        TEST(cuts_match_every_choice),
        TEST(bytes_match_an_independent_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
