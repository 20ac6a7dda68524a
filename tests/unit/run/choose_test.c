// --sp auto: every strategy is weighed, with the bytes and the memory of its own plan; the quickest
// that fits is the program; links decide.  SPDX-License-Identifier: Apache-2.0
#include "support/tiny.h"

#include <stdlib.h>

static asp_ctx cx;

static asp_graph *model(int64_t heads, int64_t kv_heads, int64_t window)
{
    asp_hf_config c = {.vocab = 31,
                       .hidden = heads * 16,
                       .layers = 2,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .head_dim = 16,
                       .intermediate = 64,
                       .rope_theta = 100,
                       .norm_eps = 1e-5,
                       .initializer_range = 0.02,
                       .window = window};
    asp_graph *g;
    if (window) memset(c.windowed, 0xff, sizeof c.windowed);
    assert_int_equal(asp_front_hf(&cx, &c, ASP_F32, &g), ASP_OK);
    return g;
}

static asp_compile_options options(int64_t ranks, int64_t seq, const char *links)
{
    return (asp_compile_options){.ranks = ranks,
                                 .batch = 1,
                                 .seq = seq,
                                 .threads = 1,
                                 .sp = "auto",
                                 .ac = "none",
                                 .links = links,
                                 .backend = ASP_COMM_thread};
}

static asp_plan *compiled(const asp_graph *g, const asp_compile_options *o)
{
    asp_plan *p;
    if (asp_compile(&cx, g, o, NULL, &p) < 0) fail_msg("%s", cx.message);
    return p;
}

static const asp_candidate *find(const asp_choice *c, const char *sp)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->at[i].sp, sp) == 0) return &c->at[i];
    fail_msg("%s was not weighed", sp);
    return NULL;
}

static const char *chosen(const asp_choice *c) { return c->at[c->chosen].sp; }

// Bytes, exchanges and memory in the table are those of the strategy given by name.
static void table_is_true(void **state)
{
    (void)state;
    static const char *const all[] = {"ulysses", "ring", "hybrid:2x3", "hybrid:3x2"};
    asp_graph *g = model(6, 3, 0);
    asp_choice choice;
    asp_compile_options o = options(6, 96, NULL);
    o.choice = &choice;
    asp_plan *p = compiled(g, &o);
    const asp_choice *kept = asp_plan_get_choice(p);
    assert_int_equal(kept->n, choice.n);
    assert_in_range(choice.n, 4, 5); // mixed, where it is none of the four
    const uint64_t hash = asp_plan_hash(&cx, p);
    for (size_t i = 0; i < ASP_COUNT_OF(all); i++) {
        const asp_candidate *x = find(&choice, all[i]);
        asp_compile_options given = options(6, 96, NULL);
        given.sp = all[i];
        asp_plan *q = compiled(g, &given);
        const asp_plan_report *r = asp_plan_get_report(q);
        int64_t bytes = 0, n = 0;
        for (int e = 0; e < r->n_exchanges; e++) {
            if (strcmp(r->exchanges[e].what, "gradients") == 0) continue;
            bytes += r->exchanges[e].bytes;
            n += r->exchanges[e].count;
        }
        assert_string_equal(x->why, "");
        assert_int_equal(x->price.received_bytes, bytes);
        assert_int_equal(x->price.exchanges, n);
        assert_int_equal(x->rank_bytes, r->rank_bytes);
        assert_true(x->price.seconds > 0 && x->price.exchange_seconds < x->price.seconds);
        assert_true(x->price.seconds >= choice.at[choice.chosen].price.seconds);
        if (strcmp(all[i], chosen(&choice)) == 0)
            assert_true(asp_plan_hash(&cx, q) == hash); // auto is that very program
        assert_int_equal(asp_plan_get_choice(q)->n, 0);
        asp_plan_destroy(q);
    }
    asp_plan_destroy(p);
    asp_graph_destroy(g);
}

static void weigh(const asp_graph *g, const asp_compile_options *o, asp_choice *out)
{
    asp_graph *joint;
    if (asp_compile_choose(&cx, g, o, out, &joint) < 0) fail_msg("%s", cx.message);
    asp_graph_destroy(joint);
}

// Two machines of four ranks: what crosses between them decides.
static void links_decide(void **state)
{
    (void)state;
    asp_choice fast, slow;
    asp_graph *g = model(8, 8, 0);
    asp_compile_options o = options(8, 512, "4:100:1,8:100:1");
    weigh(g, &o, &fast);
    o.links = "4:100:1,8:0.1:1";
    weigh(g, &o, &slow);
    assert_string_equal(chosen(&fast), "ulysses"); // with 8 of 8 heads it moves least
    assert_true(find(&slow, "ulysses")->price.seconds > find(&fast, "ulysses")->price.seconds);
    assert_true(strcmp(chosen(&slow), "ulysses") != 0);
    // Over a link that is named a ring hides what it sends behind the blocks, where these are long.
    o = options(8, 4096, "4:100:1,8:0.5:1");
    weigh(g, &o, &slow);
    assert_true(find(&slow, "ring")->price.exchange_seconds <
                find(&slow, "ulysses")->price.exchange_seconds);
    o.seq = 512;
    // Latency alone: few exchanges win.
    o.links = "8:100:20000";
    weigh(g, &o, &slow);
    assert_string_equal(chosen(&slow), "ulysses");
    asp_graph_destroy(g);
}

// Three ranks that hold six heads of five: one has work for a sixth head.
static void uneven_heads_cost(void **state)
{
    (void)state;
    asp_choice even, uneven;
    asp_compile_options o = options(3, 2048, "3:1000:0.001");
    asp_graph *g = model(6, 6, 0);
    weigh(g, &o, &even);
    asp_graph_destroy(g);
    g = model(4, 4, 0); // 2, 1, 1: a third more than even
    weigh(g, &o, &uneven);
    asp_graph_destroy(g);
    assert_true(find(&even, "ulysses")->price.seconds < 1.02 * find(&even, "ring")->price.seconds);
    assert_true(find(&uneven, "ulysses")->price.seconds > find(&uneven, "ring")->price.seconds);
    assert_string_equal(chosen(&uneven), "ring");
}

// A window leaves blocks of the ring out: its price falls with them.
static void windows_make_rings_cheap(void **state)
{
    (void)state;
    asp_choice all, window;
    asp_compile_options o = options(4, 2048, NULL);
    asp_graph *g = model(4, 4, 0);
    weigh(g, &o, &all);
    asp_graph_destroy(g);
    g = model(4, 4, 65);
    weigh(g, &o, &window);
    asp_graph_destroy(g);
    assert_int_equal(3 * find(&window, "ring")->price.received_bytes / 100,
                     find(&all, "ring")->price.received_bytes / 100);
    assert_true(find(&window, "ring")->price.seconds < find(&all, "ring")->price.seconds);
}

static void what_fits_comes_first(void **state)
{
    (void)state;
    asp_choice free, bound;
    asp_graph *g = model(6, 3, 0);
    asp_compile_options o = options(6, 384, NULL);
    weigh(g, &o, &free);
    int64_t least = INT64_MAX;
    for (int i = 0; i < free.n; i++) least = asp_min(least, free.at[i].rank_bytes);
    o.memory = least;
    weigh(g, &o, &bound);
    assert_true(bound.at[bound.chosen].rank_bytes == least);
    o.memory = 1; // nothing fits: the smallest, which the planner then refuses with its sizes
    weigh(g, &o, &bound);
    assert_true(bound.at[bound.chosen].rank_bytes == least);
    asp_graph_destroy(g);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    asp_choice c;
    asp_graph *joint, *g = model(4, 2, 0);
    asp_compile_options o = options(4, 3, NULL); // fewer tokens than ranks
    assert_int_equal(asp_compile_choose(&cx, g, &o, &c, &joint), ASP_ERR_UNSUPPORTED);
    assert_non_null(strstr(cx.message, "cannot be split over 4 ranks"));
    o = options(4, 64, "nonsense");
    assert_int_equal(asp_compile_choose(&cx, g, &o, &c, &joint), ASP_ERR_USAGE);
    asp_graph_destroy(g);
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_true),         cmocka_unit_test(links_decide),
        cmocka_unit_test(uneven_heads_cost),     cmocka_unit_test(windows_make_rings_cheap),
        cmocka_unit_test(what_fits_comes_first), cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
