// --seq max is exact: what the search finds in a few plans is what bisection over whole plans
// finds, and one token per rank more does not fit.  SPDX-License-Identifier: Apache-2.0
#include "train/train.h"
#include "unit/sparse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static asp_ctx cx;

typedef struct shape {
    int64_t layers, heads, kv_heads, vocab, ranks;
} shape;

static const shape shapes[] = {{2, 4, 2, 61, 2}, {3, 3, 3, 997, 3}, {2, 6, 2, 127, 4}};

static asp_graph *joint_of(const shape *s, asp_compile_options *o)
{
    const asp_hf_config c = {.vocab = s->vocab,
                             .hidden = s->heads * 16,
                             .layers = s->layers,
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .head_dim = 16,
                             .intermediate = 96,
                             .rope_theta = 100,
                             .norm_eps = 1e-5,
                             .initializer_range = 0.02};
    asp_graph *module, *joint;
    assert_int_equal(asp_front_hf(&cx, &c, ASP_F32, &module), ASP_OK);
    assert_int_equal(asp_compile_joint(&cx, module, o, NULL, &joint), ASP_OK);
    asp_graph_destroy(module);
    return joint;
}

static int64_t bytes_at(const asp_graph *joint, const asp_compile_options *o, int64_t seq)
{
    asp_compile_options at = *o;
    asp_plan *p;
    at.seq = seq;
    if (asp_compile_plan(&cx, joint, &at, NULL, &p) < 0) fail_msg("%s", cx.message);
    const int64_t bytes = asp_plan_get_report(p)->rank_bytes;
    asp_plan_destroy(p);
    return bytes;
}

static int64_t bisected(const asp_graph *joint, const asp_compile_options *o, int64_t memory,
                        int64_t from)
{
    int64_t low = 0, high = asp_max(1, from / o->ranks); // low fits, high in the end does not
    while (bytes_at(joint, o, high * o->ranks) <= memory) {
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        const int64_t at = low + (high - low) / 2;
        *(bytes_at(joint, o, at * o->ranks) <= memory ? &low : &high) = at;
    }
    return low * o->ranks;
}

static void check(const asp_graph *joint, asp_compile_options o, int64_t room, bool bisects)
{
    int64_t found;
    o.memory = bytes_at(joint, &o, o.ranks) + room;
    if (asp_train_longest(&cx, joint, &o, o.memory, &found) < 0) fail_msg("%s", cx.message);
    if (bisects) assert_int_equal(found, bisected(joint, &o, o.memory, found / 2));
    assert_true(found >= o.ranks && bytes_at(joint, &o, found) <= o.memory);
    assert_true(bytes_at(joint, &o, found + o.ranks) > o.memory);
}

static void it_is_what_bisection_finds(void **state)
{
    (void)state;
    static const char *const policies[] = {"none", "default", "sac", "layer", "budget"};
    for (size_t i = 0; i < ASP_COUNT_OF(shapes); i += SPARSE(3)) {
        asp_compile_options o = {.ranks = shapes[i].ranks,
                                 .batch = 1,
                                 .seq = 256 * shapes[i].ranks,
                                 .threads = 1,
                                 .sp = "ulysses",
                                 .backend = ASP_COMM_thread,
                                 .memory = 1, // of the smallest program
                                 .optimizer = true};
        asp_graph *joint = joint_of(&shapes[i], &o);
        for (size_t k = 0; k < ASP_COUNT_OF(policies); k += SPARSE(2)) {
            o.ac = policies[k];
            o.tile = k % 2 ? 0 : 64;
            // Under a budget a plan takes a quarter of a second: both ends say it.
            check(joint, o, (int64_t)(i + 1) << 19, i == 0 || strcmp(o.ac, "budget") != 0);
        }
        asp_graph_destroy(joint);
    }
}

// Too little for one token a rank: no length, and no error.
static void nothing_fits(void **state)
{
    (void)state;
    asp_compile_options o = {.ranks = 2,
                             .batch = 1,
                             .seq = 512,
                             .threads = 1,
                             .sp = "ulysses",
                             .ac = "budget",
                             .backend = ASP_COMM_thread,
                             .memory = 1,
                             .optimizer = true};
    asp_graph *joint = joint_of(&shapes[0], &o);
    const int64_t least = bytes_at(joint, &o, 2);
    int64_t found = -1;
    o.memory = least - 1;
    assert_int_equal(asp_train_longest(&cx, joint, &o, o.memory, &found), ASP_OK);
    assert_int_equal(found, 0);
    o.memory = least;
    assert_int_equal(asp_train_longest(&cx, joint, &o, o.memory, &found), ASP_OK);
    assert_true(found >= 2);
    asp_graph_destroy(joint);
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_what_bisection_finds),
        cmocka_unit_test(nothing_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
