// Minimum cuts against hand values and against trying every cut.  SPDX-License-Identifier:
// Apache-2.0
#include "flow/maxflow.h"

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

static asp_flow *with_nodes(uint32_t n)
{
    asp_flow *f = asp_flow_create(&arena);
    for (uint32_t i = 0; i < n; i++) asp_flow_add_node(f);
    return f;
}

static void ties_go_to_the_side_asked_for(void **state)
{
    (void)state;
    asp_flow *f = with_nodes(4); // 0 -> 1 -> 2 -> 3, every edge 5
    int64_t value;
    for (uint32_t i = 0; i < 3; i++) asp_flow_add_edge(f, i, i + 1, 5);
    assert_int_equal(asp_flow_solve(&cx, f, 0, 3, &value), ASP_OK);
    assert_int_equal(value, 5);
    assert_true(asp_flow_in_largest_source_side(f, 2));
    assert_false(asp_flow_in_smallest_source_side(f, 1));
    assert_true(asp_flow_in_smallest_source_side(f, 0));
    assert_false(asp_flow_in_largest_source_side(f, 3));
}

static void an_infinite_path_is_refused_and_named(void **state)
{
    (void)state;
    asp_flow *f = with_nodes(4);
    int64_t value;
    uint32_t path[8];
    asp_flow_add_edge(f, 0, 1, ASP_FLOW_INF);
    asp_flow_add_edge(f, 0, 3, 2);
    asp_flow_add_edge(f, 1, 2, ASP_FLOW_INF);
    asp_flow_add_edge(f, 2, 3, ASP_FLOW_INF);
    assert_int_equal(asp_flow_solve(&cx, f, 0, 3, &value), ASP_ERR_UNSUPPORTED);
    assert_int_equal(asp_flow_infinite_path(f, path, 8), 4);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(path[i], i);
}

typedef struct edge {
    uint32_t from, to;
    int64_t capacity;
} edge;

// The cheapest of all 2^(n-2) cuts.
static int64_t try_every_cut(const edge *edges, int n_edges, uint32_t n)
{
    int64_t best = INT64_MAX;
    for (uint32_t side = 0; side < 1u << n; side++) {
        if (!(side & 1) || (side >> (n - 1) & 1)) continue;
        int64_t sum = 0;
        for (int e = 0; e < n_edges && sum < INT64_MAX; e++) {
            if (!(side >> edges[e].from & 1) || (side >> edges[e].to & 1)) continue;
            sum = edges[e].capacity == ASP_FLOW_INF ? INT64_MAX : sum + edges[e].capacity;
        }
        best = sum < best ? sum : best;
    }
    return best;
}

static int64_t cut_price(const asp_flow *f, const edge *edges, int n_edges)
{
    int64_t sum = 0;
    for (int e = 0; e < n_edges; e++)
        if (asp_flow_in_largest_source_side(f, edges[e].from) &&
            !asp_flow_in_largest_source_side(f, edges[e].to))
            sum += edges[e].capacity;
    return sum;
}

static void random_networks_match_every_cut(void **state)
{
    (void)state;
    unsigned seed = 7;
    int refused = 0, solved = 0;
    for (int round = 0; round < 400; round++) {
        uint32_t n = 3 + (uint32_t)rand_r(&seed) % 8;
        int n_edges = 2 + rand_r(&seed) % 30;
        edge edges[32];
        asp_flow *f = with_nodes(n);
        for (int e = 0; e < n_edges; e++) {
            edges[e] = (edge){(uint32_t)rand_r(&seed) % n, (uint32_t)rand_r(&seed) % n,
                              rand_r(&seed) % 20};
            if (rand_r(&seed) % 8 == 0) edges[e].capacity = ASP_FLOW_INF;
            asp_flow_add_edge(f, edges[e].from, edges[e].to, edges[e].capacity);
        }
        int64_t value = -1, want = try_every_cut(edges, n_edges, n);
        asp_status s = asp_flow_solve(&cx, f, 0, n - 1, &value);
        if (want == INT64_MAX) {
            assert_int_equal(s, ASP_ERR_UNSUPPORTED);
            refused++;
            continue;
        }
        assert_int_equal(s, ASP_OK);
        assert_int_equal(value, want);
        assert_int_equal(cut_price(f, edges, n_edges), want);
        solved++;
    }
    assert_true(refused > 10 && solved > 200);
}

// Renaming the vertices and adding the arcs in another order leaves both sides as they were.
static void remat_case_A21_order(void **state)
{
    (void)state;
    unsigned seed = 11;
    for (int round = 0; round < 200; round++) {
        uint32_t n = 4 + (uint32_t)rand_r(&seed) % 12, name[16], order[40];
        uint32_t n_edges = 5 + (uint32_t)rand_r(&seed) % 35;
        edge edges[40];
        int64_t value[2];
        for (uint32_t e = 0; e < n_edges; e++) { // few capacities, so that there are ties
            edges[e] = (edge){(uint32_t)rand_r(&seed) % n, (uint32_t)rand_r(&seed) % n,
                              1 + rand_r(&seed) % 3};
            order[e] = e;
        }
        for (uint32_t v = 0; v < n; v++) name[v] = v;
        for (uint32_t v = n; v-- > 1;) {
            uint32_t w = (uint32_t)rand_r(&seed) % (v + 1), was = name[v];
            name[v] = name[w], name[w] = was;
        }
        for (uint32_t e = n_edges; e-- > 1;) {
            uint32_t w = (uint32_t)rand_r(&seed) % (e + 1), was = order[e];
            order[e] = order[w], order[w] = was;
        }
        asp_flow *f = with_nodes(n), *g = with_nodes(n);
        for (uint32_t e = 0; e < n_edges; e++) {
            const edge *x = &edges[e], *y = &edges[order[e]];
            asp_flow_add_edge(f, x->from, x->to, x->capacity);
            asp_flow_add_edge(g, name[y->from], name[y->to], y->capacity);
        }
        assert_int_equal(asp_flow_solve(&cx, f, 0, n - 1, &value[0]), ASP_OK);
        assert_int_equal(asp_flow_solve(&cx, g, name[0], name[n - 1], &value[1]), ASP_OK);
        assert_int_equal(value[0], value[1]);
        for (uint32_t v = 0; v < n; v++) {
            assert_int_equal(asp_flow_in_largest_source_side(f, v),
                             asp_flow_in_largest_source_side(g, name[v]));
            assert_int_equal(asp_flow_in_smallest_source_side(f, v),
                             asp_flow_in_smallest_source_side(g, name[v]));
        }
    }
}

// 20,000 layers of 3: every layer passes 2 + 3 + 4 but one in the middle, which passes 1 + 1 + 1,
// and one after it of the same price: the two nearest cuts are these.
static void a_long_layered_network_is_cut_at_its_narrowest(void **state)
{
    (void)state;
    const uint32_t layers = 20000, narrow = 7000, twin = 15000, source = 3 * layers,
                   sink = source + 1;
    asp_flow *f = with_nodes(sink + 1);
    int64_t value;
    for (uint32_t k = 0; k < 3; k++) {
        asp_flow_add_edge(f, source, k, ASP_FLOW_INF);
        asp_flow_add_edge(f, 3 * (layers - 1) + k, sink, ASP_FLOW_INF);
    }
    for (uint32_t l = 0; l + 1 < layers; l++)
        for (uint32_t k = 0; k < 3; k++) {
            int64_t capacity = l == narrow || l == twin ? 1 : 2 + k;
            asp_flow_add_edge(f, 3 * l + k, 3 * (l + 1) + k, capacity);
            if (l != narrow && l != twin) // sideways, so that a blocked node has a way round
                asp_flow_add_edge(f, 3 * l + k, 3 * (l + 1) + (k + 1) % 3, 1);
        }
    assert_int_equal(asp_flow_solve(&cx, f, source, sink, &value), ASP_OK);
    assert_int_equal(value, 3);
    for (uint32_t l = 0; l < layers; l += 50)
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(asp_flow_in_largest_source_side(f, 3 * l + k), l <= twin);
            assert_int_equal(asp_flow_in_smallest_source_side(f, 3 * l + k), l <= narrow);
        }
}

static void sums_beyond_the_limit_are_refused(void **state)
{
    (void)state;
    asp_flow *f = with_nodes(3);
    int64_t value;
    asp_flow_add_edge(f, 0, 1, INT64_C(1) << 60);
    asp_flow_add_edge(f, 1, 2, INT64_C(1) << 60);
    assert_int_equal(asp_flow_solve(&cx, f, 0, 2, &value), ASP_ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_go_to_the_side_asked_for),
        cmocka_unit_test(an_infinite_path_is_refused_and_named),
        cmocka_unit_test(random_networks_match_every_cut),
        cmocka_unit_test(remat_case_A21_order),
        cmocka_unit_test(a_long_layered_network_is_cut_at_its_narrowest),
        cmocka_unit_test(sums_beyond_the_limit_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
