// Small graphs with known answers ("checkpointing case A*n*": weights as given, ties nearest the
// backward), and the rules of the policies one by one.  SPDX-License-Identifier: Apache-2.0
#include "unit/flow/support/remat_builder.h"

#include <setjmp.h>
#include <stdarg.h>
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

// Exactly these values, in this order.
#define expect_saved(c, ...)                        \
    expect_saved_list(c, (uint32_t[]){__VA_ARGS__}, \
                      sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
static void expect_saved_list(const asp_remat_choice *c, const uint32_t *want, size_t n)
{
    assert_int_equal(c->n_saved, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(c->saved[i], want[i]);
}

// ---- the bare cut --------------------------------------------------------------------------

static void remat_case_A01(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 8, 0);
    uint32_t a = rb_op(&b, "a", ASP_REMAT_POINTWISE, 8, x);
    rb_op(&b, "b", ASP_REMAT_POINTWISE, 8, a);
    rb_backward(&b, 8, x, a);
    asp_remat_choice c = rb_cut(&b);
    assert_int_equal(c.cut, 8);
    expect_saved(&c, x);
}

static void remat_case_A02(void **state)
{
    (void)state;
    for (int is_static = 0; is_static < 2; is_static++) {
        rb_init(&b, &cx, &arena);
        uint32_t w = rb_input(&b, "w", 32, is_static ? ASP_REMAT_STATIC : 0);
        uint32_t c16 = rb_op(&b, "c", ASP_REMAT_POINTWISE, 16, w);
        rb_backward(&b, 8, c16);
        asp_remat_choice c = rb_cut(&b);
        assert_int_equal(c.cut, is_static ? 0 : 16);
        expect_saved(&c, is_static ? w : c16);
    }
}

static void remat_case_A03(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 4, 0);
    uint32_t y = rb_op(&b, "y", ASP_REMAT_POINTWISE, 64, x);
    rb_backward(&b, 8, y);
    asp_remat_choice c = rb_cut(&b);
    assert_int_equal(c.cut, 4);
    expect_saved(&c, x);
}

static void remat_case_A04(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 16, 0);
    uint32_t m = rb_op(&b, "m", ASP_REMAT_GEMM, 64, x);
    uint32_t r = rb_op(&b, "r", ASP_REMAT_POINTWISE, 64, m);
    rb_backward(&b, 8, r);
    rb_ban(&b, m);
    asp_remat_choice c = rb_cut(&b);
    assert_int_equal(c.cut, 64);
    expect_saved(&c, r);
    b.redo.at[m] = 0;
    c = rb_cut(&b);
    assert_int_equal(c.cut, 16);
    expect_saved(&c, x);
}

// A5's attention layer: returns the values by name.
typedef struct layer {
    uint32_t x, q, k, v, Q, K, V, o, l, O;
} layer;

static layer add_attention(uint32_t x, bool exchanged)
{
    layer y = {.x = x};
    y.q = rb_op(&b, "q", ASP_REMAT_GEMM, 8, x);
    y.k = rb_op(&b, "k", ASP_REMAT_GEMM, 8, x);
    y.v = rb_op(&b, "v", ASP_REMAT_GEMM, 8, x);
    y.Q = y.q, y.K = y.k, y.V = y.v;
    if (exchanged) {
        y.Q = rb_op(&b, "Q", ASP_REMAT_COLLECTIVE, 8, y.q);
        y.K = rb_op(&b, "K", ASP_REMAT_COLLECTIVE, 8, y.k);
        y.V = rb_op(&b, "V", ASP_REMAT_COLLECTIVE, 8, y.v);
    }
    y.o = rb_op(&b, "o", ASP_REMAT_ATTENTION, 8, y.Q, y.K, y.V);
    y.l = rb_result(&b, "l", 1);
    if (exchanged) y.O = rb_op(&b, "O", ASP_REMAT_COLLECTIVE, 8, y.o);
    return y;
}

static void remat_case_A05(void **state)
{
    (void)state;
    layer y = add_attention(rb_input(&b, "x", 8, 0), false);
    rb_backward(&b, 8, y.x, y.q, y.k, y.v, y.o, y.l);
    rb_ban(&b, y.o);
    asp_remat_choice c = rb_cut(&b);
    assert_int_equal(c.cut, 17);
    expect_saved(&c, y.x, y.o, y.l);
    rb_ban(&b, y.q), rb_ban(&b, y.k), rb_ban(&b, y.v);
    c = rb_cut(&b);
    assert_int_equal(c.cut, 41);
    expect_saved(&c, y.x, y.q, y.k, y.v, y.o, y.l);
    b.redo.at[y.q] = b.redo.at[y.k] = b.redo.at[y.v] = b.redo.at[y.o] = 0;
    c = rb_cut(&b);
    assert_int_equal(c.cut, 8);
    expect_saved(&c, y.x);
}

static void remat_case_A06(void **state)
{
    (void)state;
    layer y = add_attention(rb_input(&b, "x", 8, 0), true);
    rb_backward(&b, 8, y.x, y.Q, y.K, y.V, y.o, y.l, y.O);
    rb_ban(&b, y.o);
    asp_remat_choice c = rb_cut(&b);
    assert_int_equal(c.cut, 17); // exchanges free: four redone
    expect_saved(&c, y.x, y.o, y.l);
    rb_ban(&b, y.Q), rb_ban(&b, y.K), rb_ban(&b, y.V);
    c = rb_cut(&b);
    assert_int_equal(c.cut, 41); // only the last free: one redone
    expect_saved(&c, y.x, y.Q, y.K, y.V, y.o, y.l);
    rb_ban(&b, y.O);
    c = rb_cut(&b);
    assert_int_equal(c.cut, 49);
    expect_saved(&c, y.x, y.Q, y.K, y.V, y.o, y.l, y.O);
}

static void remat_case_A07(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 4, 0);
    uint32_t t = rb_op(&b, "t", ASP_REMAT_OTHER, 4, x);
    uint32_t g = rb_op(&b, "g", ASP_REMAT_PICK, 4, t);
    rb_backward(&b, 4, g);
    b.values.at[t].flags |= ASP_REMAT_TUPLE;
    b.keep.at[t] = ASP_FLOW_INF;
    rb_ban(&b, t);
    asp_remat_choice c = rb_cut(&b);
    assert_int_equal(c.cut, 4);
    expect_saved(&c, g);

    b.values.at[g].flags |= ASP_REMAT_MUST_RECOMPUTE;
    asp_remat_program p = rb_program(&b);
    assert_int_equal(asp_remat_cut(&cx, &arena, &p, b.keep.at, b.redo.at, &c), ASP_ERR_UNSUPPORTED);
    assert_non_null(strstr(cx.message, "t cannot be computed again and cannot be kept"));
    assert_non_null(strstr(cx.message, "g is tagged must-recompute"));
}

static void remat_case_A08(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 4, 0);
    uint32_t a = rb_op(&b, "a", ASP_REMAT_POINTWISE, 4, x);
    uint32_t y = rb_op(&b, "b", ASP_REMAT_POINTWISE, 4, a);
    rb_backward(&b, 4, y);
    b.values.at[a].flags |= ASP_REMAT_MUST_RECOMPUTE;
    asp_remat_choice c = rb_cut(&b);
    assert_int_equal(c.cut, 4);
    expect_saved(&c, x);
}

static void remat_case_A10(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 4096, 0);
    uint32_t s = rb_op(&b, "s", ASP_REMAT_OTHER, 8, x);
    b.values.at[s].flags |= ASP_REMAT_SIZE;
    uint32_t g = rb_backward(&b, 8, s);
    b.ops.at[b.ops.n - 1].fusible = true;
    b.values.at[g].flags |= ASP_REMAT_SIZE;
    b.values.at[s].flags |= ASP_REMAT_FORWARD_OUTPUT;
    asp_remat_program p = rb_program(&b);
    asp_remat_choice c;
    assert_int_equal(asp_remat_choose(&cx, &arena, &p, ASP_REMAT_DEFAULT, &c), ASP_OK);
    assert_int_equal(c.cut, 1);
    expect_saved(&c, s);
}

static void remat_case_A11(void **state)
{
    (void)state;
    uint32_t g = rb_input(&b, "g", 8, ASP_REMAT_BACKWARD_OUTPUT);
    asp_remat_choice c = rb_cut(&b);
    assert_int_equal(c.cut, 8);
    expect_saved(&c, g);
}

static void remat_case_A15(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 0, 0);
    uint32_t a = rb_op(&b, "a", ASP_REMAT_POINTWISE, 4, x);
    uint32_t c8 = rb_op(&b, "c", ASP_REMAT_POINTWISE, 8, a);
    rb_backward(&b, 8, c8);
    // price of a byte and times, both in hundredths
    const struct {
        int64_t price, cut;
        uint32_t saved;
    } points[] = {{20, 160, c8}, {25, 200, c8},  {30, 220, a},
                  {200, 900, a}, {250, 1100, a}, {300, 1100, x}};
    b.redo.at[a] = 1000;
    b.redo.at[c8] = 100;
    for (size_t i = 0; i < ASP_COUNT_OF(points); i++) {
        b.keep.at[a] = 4 * points[i].price;
        b.keep.at[c8] = 8 * points[i].price;
        asp_remat_choice c = rb_cut(&b);
        assert_int_equal(c.cut, points[i].cut);
        expect_saved(&c, points[i].saved);
    }
}

// ---- policies ------------------------------------------------------------------------------

static asp_remat_choice choose(asp_remat_policy policy)
{
    asp_remat_program p = rb_program(&b);
    asp_remat_choice c;
    if (asp_remat_choose(&cx, &arena, &p, policy, &c) != ASP_OK) fail_msg("%s", cx.message);
    return c;
}

static void fuse_last_backward(void) { b.ops.at[b.ops.n - 1].fusible = true; }

static void remat_case_A18(void **state)
{
    (void)state;
    for (int64_t bytes = 1; bytes <= 16; bytes += 15) { // 16 is a quarter of 64: no reduction
        rb_init(&b, &cx, &arena);
        uint32_t x = rb_input(&b, "x", 64, 0);
        uint32_t r = rb_op(&b, "r", ASP_REMAT_REDUCTION, bytes, x);
        uint32_t y = rb_op(&b, "y", ASP_REMAT_POINTWISE, 64, r);
        b.values.at[y].flags |= ASP_REMAT_FORWARD_OUTPUT;
        rb_backward(&b, 64, x, r);
        fuse_last_backward();
        asp_remat_choice c = choose(ASP_REMAT_DEFAULT);
        assert_true(rb_has(&c, x));
        assert_int_equal(rb_has(&c, r), bytes == 1);
    }
}

static void remat_case_A20(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 8, 0);
    uint32_t y = rb_op(&b, "y", ASP_REMAT_GEMM, 8, x);
    b.values.at[y].flags |= ASP_REMAT_FORWARD_OUTPUT;
    for (int p = ASP_REMAT_KEEP_ALL; p <= ASP_REMAT_LAYER; p++)
        assert_int_equal(choose((asp_remat_policy)p).n_saved, 0);
}

#define LAYER_VALUES 8 // of add_layers, a layer

// L of A5's layers with a projection and the residual add; the backward reads what it needs.
static void add_layers(uint32_t n)
{
    uint32_t ids = rb_input(&b, "ids", 8, 0);
    uint32_t w = rb_input(&b, "w", 8, ASP_REMAT_STATIC | ASP_REMAT_TRAINED);
    uint32_t x = rb_op(&b, "x", ASP_REMAT_OTHER, 8, ids, w);
    layer *layers = ASP_NEW_ARRAY(&arena, layer, n);
    for (uint32_t i = 0; i < n; i++) {
        layers[i] = add_attention(x, false);
        uint32_t m = rb_op(&b, "m", ASP_REMAT_GEMM, 8, layers[i].o);
        uint32_t r = rb_op(&b, "r", ASP_REMAT_POINTWISE, 8, m);
        x = rb_op(&b, "x", ASP_REMAT_POINTWISE, 8, x, r);
        for (uint32_t k = 1; k <= 7; k++) b.ops.at[b.ops.n - k].block = (int32_t)i;
    }
    b.values.at[x].flags |= ASP_REMAT_FORWARD_OUTPUT;
    uint32_t g = x;
    for (uint32_t i = n; i-- > 0;)
        g = rb_backward(&b, 8, g, layers[i].x, layers[i].q, layers[i].k, layers[i].v, layers[i].o,
                        layers[i].l);
    for (uint32_t v = b.n_inputs; v < b.values.n; v++) b.values.at[v].flags |= ASP_REMAT_SEQUENCE;
}

static void remat_case_A21(void **state)
{
    (void)state;
    const uint32_t n = 5000, first = 3; // the first layer's first value
    add_layers(n);
    for (int p = ASP_REMAT_KEEP_ALL; p <= ASP_REMAT_LAYER; p++) {
        asp_remat_choice c = choose((asp_remat_policy)p);
        bool *saved = ASP_NEW_ARRAY(&arena, bool, b.values.n);
        for (uint32_t i = 0; i < c.n_saved; i++) saved[c.saved[i]] = true;
        for (uint32_t i = 1; i + 1 < n; i++)
            for (uint32_t k = 0; k < LAYER_VALUES; k++)
                assert_int_equal(saved[first + i * LAYER_VALUES + k],
                                 saved[first + LAYER_VALUES + k]);
    }
}

static void each_policy_keeps_its_part_of_a_layer(void **state)
{
    (void)state;
    static const struct {
        asp_remat_policy policy;
        const char *kept; // of the middle layer, in the order of its values
    } expected[] = {
        {ASP_REMAT_KEEP_ALL, "q k v o l x"},
        {ASP_REMAT_DEFAULT, "q k v o l x"},
        {ASP_REMAT_SAC, "o l x"},
        {ASP_REMAT_LAYER, "x"},
    };
    add_layers(3);
    for (size_t i = 0; i < ASP_COUNT_OF(expected); i++) {
        asp_remat_choice c = choose(expected[i].policy);
        asp_text t;
        asp_text_init(&t, &arena);
        for (uint32_t v = 3 + LAYER_VALUES; v < 3 + 2 * LAYER_VALUES; v++)
            if (rb_has(&c, v)) asp_put(&t, "%s%s", t.n ? " " : "", b.names.at[v]);
        assert_string_equal(t.at, expected[i].kept);
    }
}

// a (10 bytes) is read at distance 3 from the backward; b and c are too large to be kept instead.
static int64_t cut_of_weight_case(bool unfusible_reader)
{
    rb_init(&b, &cx, &arena);
    uint32_t x = rb_input(&b, "x", 1000, 0);
    uint32_t a = rb_op(&b, "a", ASP_REMAT_POINTWISE, 10, x);
    rb_maker(&b, a)->n_reads = 0; // made from nothing, so that no reduction keeps it
    uint32_t y = rb_op(&b, "b", ASP_REMAT_POINTWISE, 1000, a);
    if (unfusible_reader) {
        uint32_t u = rb_op(&b, "u", ASP_REMAT_OTHER, 10, a);
        b.values.at[u].flags |= ASP_REMAT_FORWARD_OUTPUT;
    }
    b.values.at[a].flags |= ASP_REMAT_MUST_SAVE;
    uint32_t z = rb_op(&b, "c", ASP_REMAT_POINTWISE, 1000, y);
    uint32_t end = rb_op(&b, "end", ASP_REMAT_POINTWISE, 1000, z);
    b.values.at[end].flags |= ASP_REMAT_FORWARD_OUTPUT;
    rb_backward(&b, 8, z);
    fuse_last_backward();
    asp_remat_choice c = choose(ASP_REMAT_DEFAULT);
    expect_saved(&c, a);
    return c.cut;
}

static void weights_grow_with_distance_and_double_where_unwritten(void **state)
{
    (void)state;
    assert_int_equal(cut_of_weight_case(false), 26); // int(10 x 1.331) x 2
    assert_int_equal(cut_of_weight_case(true), 13);
}

static void sac_frees_sequence_values_only(void **state)
{
    (void)state;
    for (int sequence = 0; sequence < 2; sequence++) {
        rb_init(&b, &cx, &arena);
        uint32_t x = rb_input(&b, "x", 64, 0);
        uint32_t y = rb_op(&b, "y", ASP_REMAT_POINTWISE, 64, x);
        uint32_t z = rb_op(&b, "z", ASP_REMAT_GEMM, 64, y);
        b.values.at[z].flags |= ASP_REMAT_FORWARD_OUTPUT;
        b.values.at[y].flags |= sequence ? ASP_REMAT_SEQUENCE : 0;
        rb_backward(&b, 64, x, y); // not fusible: y would have to be written
        asp_remat_choice c = choose(ASP_REMAT_SAC);
        assert_int_equal(rb_has(&c, y), !sequence);
        assert_true(rb_has(&c, x));
        c = choose(ASP_REMAT_DEFAULT);
        assert_true(rb_has(&c, y));
    }
}

static void exchanges_repeat_under_layer_only(void **state)
{
    (void)state;
    uint32_t ids = rb_input(&b, "ids", 8, 0);
    uint32_t w = rb_input(&b, "w", 8, ASP_REMAT_STATIC | ASP_REMAT_TRAINED);
    layer y = add_attention(rb_op(&b, "x", ASP_REMAT_OTHER, 8, ids, w), true);
    uint32_t m = rb_op(&b, "m", ASP_REMAT_GEMM, 8, y.O, w);
    for (uint32_t i = 1; i < b.ops.n; i++) b.ops.at[i].block = 0;
    uint32_t end = rb_op(&b, "end", ASP_REMAT_OTHER, 8, m);
    b.values.at[end].flags |= ASP_REMAT_FORWARD_OUTPUT;
    rb_backward(&b, 8, y.x, y.Q, y.K, y.V, y.o, y.l, y.O);
    for (uint32_t v = b.n_inputs; v < b.values.n; v++) b.values.at[v].flags |= ASP_REMAT_SEQUENCE;
    asp_remat_program p = rb_program(&b);
    static const struct {
        asp_remat_policy policy;
        uint32_t exchanges, attentions;
    } expected[] = {{ASP_REMAT_KEEP_ALL, 0, 0},
                    {ASP_REMAT_DEFAULT, 0, 0},
                    {ASP_REMAT_SAC, 0, 0},
                    {ASP_REMAT_LAYER, 4, 1}};
    for (size_t i = 0; i < ASP_COUNT_OF(expected); i++) {
        asp_remat_choice c = choose(expected[i].policy);
        asp_remat_schedule s;
        asp_remat_cost cost;
        assert_int_equal(asp_remat_emit(&cx, &arena, &p, c.saved, c.n_saved, &s), ASP_OK);
        asp_remat_simulate(&arena, &p, c.saved, c.n_saved, &s, 0, &cost);
        assert_int_equal(cost.repeated_collectives, expected[i].exchanges);
        assert_int_equal(cost.repeated_attentions, expected[i].attentions);
    }
}

static void bad_descriptions_are_refused(void **state)
{
    (void)state;
    uint32_t x = rb_input(&b, "x", 8, 0);
    uint32_t g = rb_backward(&b, 8, x);
    uint32_t y = rb_op(&b, "y", ASP_REMAT_POINTWISE, 8, x);
    asp_remat_choice c;
    asp_remat_program p = rb_program(&b);
    b.reads.at[b.reads.n - 1] = g; // forward reads backward
    assert_int_equal(asp_remat_choose(&cx, &arena, &p, ASP_REMAT_SAC, &c), ASP_ERR_INPUT);
    b.reads.at[b.reads.n - 1] = y; // itself
    assert_int_equal(asp_remat_choose(&cx, &arena, &p, ASP_REMAT_SAC, &c), ASP_ERR_INPUT);
    b.reads.at[b.reads.n - 1] = x;
    assert_int_equal(asp_remat_choose(&cx, &arena, &p, ASP_REMAT_SAC, &c), ASP_OK);
    b.values.at[x].root = y;
    assert_int_equal(asp_remat_choose(&cx, &arena, &p, ASP_REMAT_SAC, &c), ASP_ERR_INPUT);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(remat_case_A01),
        TEST(remat_case_A02),
        TEST(remat_case_A03),
        TEST(remat_case_A04),
        TEST(remat_case_A05),
        TEST(remat_case_A06),
        TEST(remat_case_A07),
        TEST(remat_case_A08),
        TEST(remat_case_A10),
        TEST(remat_case_A11),
        TEST(remat_case_A15),
        TEST(remat_case_A18),
        TEST(remat_case_A20),
        TEST(remat_case_A21),
        TEST(each_policy_keeps_its_part_of_a_layer),
        TEST(weights_grow_with_distance_and_double_where_unwritten),
        TEST(sac_frees_sequence_values_only),
        TEST(exchanges_repeat_under_layer_only),
        TEST(bad_descriptions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
