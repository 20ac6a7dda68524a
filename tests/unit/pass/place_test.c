// Placement: the exchanges of Llama graphs against the written expectation, the cut against the
// written objective and random changes, refusals by text.  SPDX-License-Identifier: Apache-2.0
#include "pass/place.h"
#include "unit/pass/llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static asp_ctx cx;
static asp_arena arena;

static asp_graph *parse(const char *text)
{
    asp_graph *g = NULL;
    if (asp_graph_parse(&cx, "t.ir", text, strlen(text), &g) < 0) fail_msg("%s", cx.message);
    if (asp_graph_typecheck(g) < 0) fail_msg("%s", cx.message);
    return g;
}

static asp_pass_options options_of(int64_t ranks)
{
    return (asp_pass_options){.ranks = ranks, .sp = "ulysses", .ac = "none", .dtype = ASP_F32};
}

static asp_status run(asp_graph *g, const char *passes, int64_t ranks)
{
    asp_pass_options options = options_of(ranks);
    return asp_passes_run(&cx, g, passes, &options, NULL);
}

static int count(const asp_graph *g, asp_op op)
{
    int n = 0;
    ASP_FOR_NODES (g, node) n += asp_node_at(g, node)->op == op;
    return n;
}

static const char *print(const asp_graph *g)
{
    asp_text t;
    asp_text_init(&t, &arena);
    asp_graph_print(g, &t);
    return t.at;
}

// Elements that all exchanges read on all ranks, with S = 8 and B = 3.
static int64_t moved(asp_graph *g)
{
    asp_env env = {.at = {{"S", 8}, {"B", 3}}, .n = 2};
    int64_t total = 0;
    ASP_FOR_NODES (g, n) {
        int64_t elements;
        if (asp_node_at(g, n)->op != ASP_OP_all_to_all) continue;
        asp_size size = asp_type_count(g, asp_val_type(g, asp_node_at(g, n)->in[0]));
        assert_int_equal(asp_size_eval(g, size, &env, &elements), ASP_OK);
        total += elements * g->ranks;
    }
    return total;
}

static void four_exchanges_a_layer_and_one_reduction(void **state)
{
    (void)state;
    static const int heads[][2] = {{8, 1}, {8, 2}, {8, 4}, {8, 8}};
    for (size_t i = 0; i < ASP_COUNT_OF(heads); i++) {
        for (int64_t ranks = 2; ranks <= 8; ranks *= 2) {
            for (int variant = 0; variant < 6; variant++) {
                int64_t N = heads[i][0], K = heads[i][1];
                llama_shape m = {
                    .layers = 2, .heads = (int)N, .kv_heads = (int)K, .B = "B", .S = "S"};
                m.tied = variant == 1;
                m.flat_mlp = variant == 2;
                m.given_positions = variant == 3;
                m.wpe = variant == 4;
                m.reduction = variant == 5 ? "sum" : "mean";
                asp_graph *g = parse(llama_text(&arena, &m));
                if (run(g, ASP_PIPELINE_SHARD, ranks) < 0) fail_msg("%s", cx.message);
                assert_int_equal(count(g, ASP_OP_all_to_all), 8);
                assert_int_equal(count(g, ASP_OP_all_reduce), 1);
                assert_int_equal(count(g, ASP_OP_repeat), ranks > K ? 4 : 0);
                // ids, labels, positions; learned positions are read by an embedding, too
                assert_int_equal(count(g, ASP_OP_shard_slice), 3);
                int64_t kv = K < ranks ? ranks : K;
                assert_int_equal(moved(g), 2 * 3 * 8 * LLAMA_HEAD * (2 * N + 2 * kv));
                asp_graph_destroy(g);
            }
        }
    }
}

// The derivative of what was put in falls out: every exchange goes back once, copies of K/V heads
// are summed.
static void exchanges_are_conjugated_once_in_backward(void **state)
{
    (void)state;
    static const int rows[][2] = {{4, 0}, {2, 4}, {1, 4}}; // K/V heads, repeats
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        llama_shape m = {.layers = 2, .heads = 4, .kv_heads = rows[i][0], .B = "B", .S = "S"};
        asp_graph *g = parse(llama_text(&arena, &m));
        cx.verify_each_pass = true;
        if (run(g, ASP_PIPELINE_SHARD "," ASP_PIPELINE_JOINT, 4) < 0) fail_msg("%s", cx.message);
        cx.verify_each_pass = false;
        assert_int_equal(count(g, ASP_OP_all_to_all), 16);
        assert_int_equal(count(g, ASP_OP_all_reduce), 2);
        assert_int_equal(count(g, ASP_OP_repeat), rows[i][1]);
        assert_int_equal(count(g, ASP_OP_sum_groups), rows[i][1]);
        asp_graph_destroy(g);
    }
}

// B == S == 8 as numbers, and N == head width: the same program.
static void numbers_that_are_equal_do_not_matter(void **state)
{
    (void)state;
    llama_shape m = {.layers = 1, .heads = 8, .kv_heads = 8, .B = "8", .S = "8", .flat_mlp = true};
    asp_graph *g = parse(llama_text(&arena, &m));
    if (run(g, ASP_PIPELINE_SHARD, 4) < 0) fail_msg("%s", cx.message);
    assert_int_equal(count(g, ASP_OP_all_to_all), 4);
    const asp_type *t = asp_val_type(g, asp_graph_find(g, "x1"));
    int64_t batch, tokens;
    assert_true(asp_size_is_num(g, t->dim[0], &batch) && batch == 8);
    assert_true(asp_size_is_num(g, t->dim[1], &tokens) && tokens == 2);
    asp_graph_destroy(g);
}

static void one_rank_changes_nothing(void **state)
{
    (void)state;
    llama_shape m = {.layers = 2, .heads = 4, .kv_heads = 2, .B = "B", .S = "S"};
    const char *text = llama_text(&arena, &m);
    asp_graph *g = parse(text), *again = parse(text);
    assert_int_equal(run(g, ASP_PIPELINE_SHARD, 1), ASP_OK);
    assert_string_equal(print(g), print(again));
    asp_graph_destroy(g);
    asp_graph_destroy(again);
}

// ---- the objective, as written -----------------------------------------------------------------

// Whether some reader of v is at the label (a chain, or "sequence"); the graph's outputs are read
// at "sequence".
static bool read_at(const asp_placement *p, const bool *other, asp_val v, uint32_t chain)
{
    ASP_FOR_NODES (p->g, n) {
        const asp_node_info *info = asp_node_at(p->g, n);
        for (uint32_t i = 0; p->axes.node[n.i] && i < info->n_in; i++)
            if (info->in[i].i == v.i && (other[n.i] ? p->op[n.i].chain : ASP_NO_CHAIN) == chain)
                return true;
    }
    for (uint32_t i = 0; i < p->g->outputs.n; i++)
        if (p->g->outputs.at[i].val.i == v.i && chain == ASP_NO_CHAIN) return true;
    return false;
}

static int64_t plus(int64_t a, int64_t b)
{
    return a == ASP_FLOW_INF || b == ASP_FLOW_INF ? ASP_FLOW_INF : a + b;
}

static int64_t objective(const asp_placement *p, const bool *other)
{
    int64_t total = 0;
    ASP_FOR_NODES (p->g, n) {
        if (!p->axes.node[n.i]) continue;
        const asp_op_place *op = &p->op[n.i];
        if (other[n.i] && op->chain == ASP_NO_CHAIN) return ASP_FLOW_INF;
        if (!other[n.i]) total = plus(total, op->sequence_price);
        for (uint32_t i = 0; i < asp_node_at(p->g, n)->n_out; i++) {
            asp_val v = asp_node_result(p->g, n, i);
            uint32_t own = other[n.i] ? op->chain : ASP_NO_CHAIN;
            bool back = own != ASP_NO_CHAIN && read_at(p, other, v, ASP_NO_CHAIN);
            for (uint32_t c = 0; c < p->chains.n; c++) {
                if (c == own || !read_at(p, other, v, c)) continue;
                total = plus(total, asp_exchange_price(p, v, c));
                back |= own != ASP_NO_CHAIN;
            }
            if (back) total = plus(total, asp_exchange_price(p, v, own));
        }
    }
    return total;
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

#define IDS "%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
#define EMBED \
    IDS "%w : f32[31, 32] = param {name = \"w\"}\n%x : f32[B, S, 32] = embedding %ids, %w\n"
#define HEADS(name, of)                                                           \
    "%" name ".v : f32[B, S, 4, 8] = view %" of " {shape = [B, S, 4, 8]}\n%" name \
    " : f32[B, 4, S, 8] = permute %" name ".v {perm = [0, 2, 1, 3]}\n"
#define SQUARE(name) "%" name " : f32[32, 32] = param {name = \"" name "\"}\n"

// One value is q, k and v; attention on attention without leaving the heads; the packed value read
// by attention and by the residual; a value that is read at both labels and returned.
static const char *const bodies[] = {
    EMBED HEADS("h", "x") "%o, %l : f32[B, 4, S, 8], f32[B, 4, S] = sdpa %h, %h, %h\n"
                          "%z : f32[] = sum %o {dims = [0, 1, 2, 3]}\nreturn \"loss\" = %z\n",
    EMBED HEADS("h", "x") "%o, %l : f32[B, 4, S, 8], f32[B, 4, S] = sdpa %h, %h, %h\n"
                          "%n : f32[B, 4, S, 8] = neg %o\n"
                          "%p, %m : f32[B, 4, S, 8], f32[B, 4, S] = sdpa %n, %o, %h\n"
                          "%z : f32[] = sum %p {dims = [0, 1, 2, 3]}\nreturn \"loss\" = %z, %n\n",
    EMBED SQUARE("u") "%a : f32[B, S, 32] = linear %x, %u\n" HEADS("h", "a")
        HEADS("k", "x") "%o, %l : f32[B, 4, S, 8], f32[B, 4, S] = sdpa %h, %k, %h\n"
                        "%e : f32[B, 4, S, 8] = add %o, %h\n%f : f32[B, 4, S, 8] = silu %e\n"
                        "%z : f32[] = sum %f {dims = [0, 1, 2, 3]}\nreturn \"loss\" = %z, %h\n",
    // the first attention has heads (2 2), the second one 4: two chains
    EMBED HEADS("h", "x") "%k.v : f32[B, S, 2, 16] = view %x {shape = [B, S, 2, 16]}\n"
                          "%k.s : f32[B, S, 2] = sum %k.v {dims = [3]}\n"
                          "%k.e : f32[B, S, 2, 1] = view %k.s {shape = [B, S, 2, 1]}\n"
                          "%k.f : f32[B, S, 2, 8] = expand %k.e {shape = [B, S, 2, 8]}\n"
                          "%k : f32[B, 2, S, 8] = permute %k.f {perm = [0, 2, 1, 3]}\n"
                          "%o, %l : f32[B, 4, S, 8], f32[B, 4, S] = sdpa %h, %k, %k\n"
                          "%t : f32[B, 8, S, 4] = permute %o {perm = [0, 3, 2, 1]}\n"
                          "%p, %m : f32[B, 8, S, 4], f32[B, 8, S] = sdpa %t, %t, %t\n"
                          "%z : f32[] = sum %p {dims = [0, 1, 2, 3]}\nreturn \"loss\" = %z\n",
};

// The cut's value is the objective of its labels, and no change of labels is cheaper.
static void check_cut(const char *text, int64_t ranks, uint32_t *seed)
{
    asp_graph *g = parse(text);
    asp_placement p;
    asp_pass_options options = options_of(ranks);
    asp_pass px = {.cx = &cx, .scratch = &arena, .options = &options};
    if (asp_placement_prepare(&px, g, &p) < 0) fail_msg("%s", cx.message);
    if (asp_placement_cut(&p) < 0) fail_msg("%s", cx.message);
    bool *best = ASP_NEW_ARRAY(&arena, bool, g->nodes.n),
         *other = ASP_NEW_ARRAY(&arena, bool, g->nodes.n);
    for (uint32_t n = 0; n < g->nodes.n; n++) best[n] = p.op[n].other;
    assert_int_equal(objective(&p, best), p.cost);
    for (int t = 0; t < 300; t++) {
        memcpy(other, best, g->nodes.n * sizeof *best);
        uint32_t flips = 1 + next_random(seed) % (t % 2 ? 3 : g->nodes.n);
        uint32_t at = next_random(seed);
        for (uint32_t i = 0; i < flips; i++) { // neighbours, or anywhere
            uint32_t n = (t % 3 ? at++ : next_random(seed)) % g->nodes.n;
            other[n] = !other[n];
        }
        assert_true(objective(&p, other) >= p.cost);
    }
    // All ops that can be at "other" there: every mixer's neighbours pulled along.
    for (uint32_t n = 0; n < g->nodes.n; n++)
        other[n] = p.axes.node[n] && p.op[n].chain != ASP_NO_CHAIN;
    assert_true(objective(&p, other) >= p.cost);
    asp_graph_destroy(g);
}

static void no_change_of_labels_is_cheaper(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (size_t i = 0; i < ASP_COUNT_OF(bodies); i++)
        check_cut(asp_printf(&arena, "graph g {\n%s}\n", bodies[i]), 2, &seed);
    static const int shapes[][3] = {{4, 4, 2}, {4, 2, 2}, {4, 2, 4}, {4, 1, 2}, {8, 2, 8}};
    for (size_t i = 0; i < ASP_COUNT_OF(shapes); i++) {
        llama_shape m = {.layers = 2,
                         .heads = shapes[i][0],
                         .kv_heads = shapes[i][1],
                         .B = "B",
                         .S = "S",
                         .reduction = "sum",
                         .flat_mlp = i == 1};
        check_cut(llama_text(&arena, &m), shapes[i][2], &seed);
    }
}

static void odd_graphs_are_split_and_proved(void **state)
{
    (void)state;
    static const int exchanges[] = {2, 3, 3, 4};
    for (size_t i = 0; i < ASP_COUNT_OF(bodies); i++) {
        asp_graph *g = parse(asp_printf(&arena, "graph g {\n%s}\n", bodies[i]));
        cx.verify_each_pass = true;
        if (run(g, ASP_PIPELINE_SHARD, 2) < 0) fail_msg("%zu: %s\n%s", i, cx.message, print(g));
        cx.verify_each_pass = false;

        assert_int_equal(count(g, ASP_OP_all_to_all), exchanges[i]);
        asp_graph_destroy(g);
    }
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_exchanges_a_layer_and_one_reduction),
        cmocka_unit_test(exchanges_are_conjugated_once_in_backward),
        cmocka_unit_test(numbers_that_are_equal_do_not_matter),
        cmocka_unit_test(one_rank_changes_nothing),
        cmocka_unit_test(no_change_of_labels_is_cheaper),
        cmocka_unit_test(odd_graphs_are_split_and_proved),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
