// Keeping less and computing it again: the same bits, less memory, exactly the planned exchanges.
// SPDX-License-Identifier: Apache-2.0
#include "support/tiny.h"
#include "unit/sparse.h"

#include <math.h>

static tiny model(asp_dtype dtype, int64_t ranks)
{
    tiny t = tiny_default();
    t.dtype = dtype;
    t.ranks = ranks;
    t.skip_sp = false;
    t.layers = 3;
    t.seq = 64;
    return t;
}

static const asp_plan_exchange *exchange(const tiny_result *r, asp_comm_op op, const char *what)
{
    static const asp_plan_exchange none;
    for (int i = 0; i < r->report.n_exchanges; i++) {
        const asp_plan_exchange *e = &r->report.exchanges[i];
        if (e->op == op && strcmp(e->what, what) == 0) return e;
    }
    return &none;
}

static void counted_is_planned(const tiny_result *r)
{
    int64_t calls[ASP_COMM_OP_COUNT] = {0}, bytes[ASP_COMM_OP_COUNT] = {0};
    for (int i = 0; i < r->report.n_exchanges; i++) {
        calls[r->report.exchanges[i].op] += r->report.exchanges[i].count;
        bytes[r->report.exchanges[i].op] += r->report.exchanges[i].bytes;
    }
    for (int op = 0; op < ASP_COMM_OP_COUNT; op++) {
        assert_int_equal(r->counted.calls[op], calls[op]);
        assert_int_equal(r->counted.bytes[op], bytes[op]);
    }
}

static void compare_policies(asp_dtype dtype, int64_t ranks)
{
    static const char *const policies[] = {"default", "sac", "layer"};
    tiny t = model(dtype, ranks);
    tiny_result none = tiny_run(&t, -1, 0);
    counted_is_planned(&none);
    int64_t forward = exchange(&none, ASP_COMM_all_to_all, "forward")->count;
    assert_int_equal(forward, ranks > 1 ? 4 * t.layers : 0); // q, k, v and the way back
    assert_int_equal(exchange(&none, ASP_COMM_all_to_all, "backward")->count, forward);
    for (size_t i = 0; i < ASP_COUNT_OF(policies); i++) {
        t.ac = policies[i];
        tiny_result r = tiny_run(&t, -1, 0);
        assert_true(r.loss == none.loss);
        assert_memory_equal(r.gradients, none.gradients, (size_t)r.count * sizeof(double));
        assert_true(r.report.max_live_bytes <= none.report.max_live_bytes);
        if (strcmp(t.ac, "default") != 0)
            assert_true(r.report.max_live_bytes < none.report.max_live_bytes);
        assert_int_equal(exchange(&r, ASP_COMM_all_to_all, "forward")->count, forward);
        assert_int_equal(exchange(&r, ASP_COMM_all_to_all, "backward")->count, forward);
        assert_int_equal(exchange(&r, ASP_COMM_all_to_all, "repeated")->count,
                         strcmp(t.ac, "layer") == 0 ? forward : 0);
        counted_is_planned(&r);
        tiny_free(&r);
    }
    tiny_free(&none);
}

static void policies_give_equal_bits_on_one_rank(void **state)
{
    (void)state;
    compare_policies(ASP_F32, 1);
    compare_policies(ASP_F64, 1);
}

static void policies_give_equal_bits_on_ranks(void **state)
{
    (void)state;
    compare_policies(ASP_F32, 2);
    compare_policies(ASP_F64, 4);
}

// A byte-level Llama of 1.5 M parameters at 16 K tokens, planned only.
static void long_sequences_need_less_when_less_is_kept(void **state)
{
    (void)state;
    static const char *const policies[] = {"none", "sac", "layer"};
    int64_t peak[3];
    tiny t = {.layers = 4,
              .heads = 6,
              .kv_heads = 2,
              .hidden = 192,
              .ffn = 512,
              .vocab = 256,
              .dtype = ASP_F32,
              .batch = 1,
              .seq = 16384,
              .ranks = 1,
              .threads = 2};
    for (int i = 0; i < 3; i++) {
        asp_ctx cx;
        asp_ctx_init(&cx);
        t.ac = policies[i];
        asp_plan *p = tiny_plan(&cx, &t);
        const asp_plan_report *r = asp_plan_get_report(p);
        peak[i] = r->rank_bytes;
        assert_true(r->arena_bytes >= r->max_live_bytes);
        assert_true((double)r->arena_bytes <= 1.02 * (double)r->max_live_bytes);
        asp_plan_destroy(p);
    }
    assert_true(peak[0] > 2 * peak[1]);
    assert_true(peak[1] > peak[2]);
}

// From what `none` takes down to the smallest there is: each program keeps its budget, none takes
// more operations than one of a smaller budget, and all give the same bits.
static void budgets_are_kept_and_give_equal_bits(void **state)
{
    (void)state;
    for (int64_t ranks = SPARSE(2); ranks <= 2; ranks++) {
        tiny t = model(ASP_F32, ranks);
        t.seq = 64;
        tiny_result none = tiny_run(&t, -1, 0), r;
        int64_t most = none.report.rank_bytes, least;
        double flops = 1e300;
        t.ac = "budget";
        t.memory = 1; // nothing fits: the smallest
        r = tiny_run(&t, -1, 0);
        least = r.report.rank_bytes;
        tiny_free(&r);
        assert_true(least < most);
        for (int i = 0; i <= 8; i += SPARSE(4)) {
            t.memory = least + (most - least) * i / 8;
            r = tiny_run(&t, -1, 0);
            assert_true(r.report.rank_bytes <= t.memory);
            assert_true(r.report.flops <= flops * 1.0001);
            flops = r.report.flops;
            assert_true(r.loss == none.loss);
            assert_memory_equal(r.gradients, none.gradients, (size_t)r.count * sizeof(double));
            counted_is_planned(&r);
            tiny_free(&r);
        }
        assert_true(flops == none.report.flops);
        tiny_free(&none);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_give_equal_bits_on_one_rank),
        cmocka_unit_test(policies_give_equal_bits_on_ranks),
        cmocka_unit_test(budgets_are_kept_and_give_equal_bits),
        cmocka_unit_test(long_sequences_need_less_when_less_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
