// A small Llama whose attention goes round a ring, against one device: any number of ranks, heads
// and tokens; what is exchanged is what was planned and what the formula says; recomputation,
// fusion and threads make no difference to a bit.  SPDX-License-Identifier: Apache-2.0
#include "support/tiny.h"
#include "unit/sparse.h"

#include <math.h>

static const int64_t rank_counts[] = {2, 3, 4, 6, 8};

static tiny on_ring(asp_dtype dtype)
{
    tiny t = tiny_default();
    t.dtype = dtype;
    t.sp = "ring";
    t.skip_sp = false;
    return t;
}

static void compare(const tiny *model, const char *const *sps, size_t n_sps, double loss_bound,
                    double gradient_bound)
{
    tiny t = *model;
    t.ranks = 1;
    tiny_result one = tiny_run(&t, -1, 0);
    for (size_t i = 0; i < n_sps; i++) {
        t = *model;
        t.sp = sps[i];
        tiny_result many = tiny_run(&t, -1, 0);
        double loss = fabs(one.loss - many.loss) / fabs(one.loss);
        double gradients = tiny_gradient_error(&one, &many);
        if (!(loss <= loss_bound) || !(gradients <= gradient_bound))
            fail_msg("%s, %lld ranks, %lld of %lld heads, B %lld, S %lld: loss %.17g, %.17g on 1; "
                     "gradients differ by %g",
                     t.sp, (long long)t.ranks, (long long)t.kv_heads, (long long)t.heads,
                     (long long)t.batch, (long long)t.seq, many.loss, one.loss, gradients);
        tiny_free(&many);
    }
    tiny_free(&one);
}

// Fewer heads than ranks, groups, tokens that do not divide.
static void rings_agree_with_one_device(void **state)
{
    (void)state;
    static const int64_t kv_heads[] = {1, 2}, batch[] = {1, 3}, seq[] = {16, 13, 9};
    static const char *const ring[] = {"ring"};
    tiny t = on_ring(ASP_F64);
    t.hidden = 16;
    for (size_t p = 0; p < ASP_COUNT_OF(rank_counts); p += SPARSE(3))
        for (size_t s = 0; s < ASP_COUNT_OF(seq); s++) {
            t.ranks = rank_counts[p];
            t.kv_heads = kv_heads[(p + s) % 2];
            t.batch = batch[s % 2];
            t.seq = seq[s];
            t.quick = p > 1;
            compare(&t, ring, 1, 1e-12, 1e-12);
        }
}

static void rings_agree_in_f32(void **state)
{
    (void)state;
    static const char *const ring[] = {"ring"};
    tiny t = on_ring(ASP_F32);
    t.hidden = 64;
    t.quick = true;
    for (size_t p = 0; p < ASP_COUNT_OF(rank_counts); p += SPARSE(3)) {
        t.ranks = rank_counts[p];
        t.seq = p % 2 ? 256 : 131;
        compare(&t, ring, 1, 1e-6, 1e-5);
    }
}

// Heads over groups, rings across them; heads that do not divide, K/V heads fewer than a group.
static void hybrids_agree_with_one_device(void **state)
{
    (void)state;
    static const char *const of_4[] = {"hybrid:2x2", "hybrid:1x4", "hybrid:4x1"};
    static const char *const of_6[] = {"hybrid:2x3", "hybrid:3x2"}, *const of_8[] = {"hybrid:4x2"};
    static const int64_t kv_heads[] = {1, 2, 4}, seq[] = {16, 13, 27};
    tiny t = on_ring(ASP_F64);
    t.hidden = 16;
    for (size_t i = 0; i < 3; i += SPARSE(2)) {
        t.kv_heads = kv_heads[i];
        t.seq = seq[i];
        t.batch = i == 1 ? 3 : 1;
        t.ranks = 4;
        compare(&t, of_4, ASP_COUNT_OF(of_4), 1e-12, 1e-12);
        t.ranks = 6;
        compare(&t, of_6, ASP_COUNT_OF(of_6), 1e-12, 1e-12);
        t.ranks = 8;
        compare(&t, of_8, ASP_COUNT_OF(of_8), 1e-12, 1e-12);
    }
}

static const asp_plan_exchange *find(const tiny_result *r, const char *what)
{
    for (int i = 0; i < r->report.n_exchanges; i++)
        if (r->report.exchanges[i].op == ASP_COMM_rotate &&
            strcmp(r->report.exchanges[i].what, what) == 0)
            return &r->report.exchanges[i];
    fail_msg("no rotations %s", what);
    return NULL;
}

// Per layer (P - 1) B s 2 K d bytes forward and twice that backward, s = ceil(S / P).
static void bytes_meet_the_formula(void **state)
{
    (void)state;
    tiny t = on_ring(ASP_F64);
    t.quick = true;
    for (size_t p = 0; p < ASP_COUNT_OF(rank_counts); p += SPARSE(3)) {
        t.ranks = rank_counts[p];
        t.seq = 13 + (int64_t)p;
        tiny_result r = tiny_run(&t, -1, 0);
        int64_t s = (t.seq + t.ranks - 1) / t.ranks, d = t.hidden / t.heads;
        int64_t forward = t.layers * (t.ranks - 1) * t.batch * s * 2 * t.kv_heads * d * 8;
        assert_int_equal(find(&r, "forward")->bytes, forward);
        assert_int_equal(find(&r, "forward")->count, t.layers * 2 * (t.ranks - 1));
        assert_int_equal(find(&r, "backward")->bytes, 2 * forward);
        assert_int_equal(r.counted.bytes[ASP_COMM_rotate], 3 * forward);
        assert_int_equal(r.counted.calls[ASP_COMM_rotate], t.layers * 6 * (t.ranks - 1));
        assert_int_equal(r.counted.bytes[ASP_COMM_all_to_all], 0);
        tiny_free(&r);
    }
}

// Rows of one sequence in natural order: a window of W keys reaches into ceil((W - 1) / s) parts
// before a rank's own, and the other blocks are neither computed nor sent.
static void windows_leave_blocks_out(void **state)
{
    (void)state;
    static const char *const ring[] = {"ring"};
    static const struct {
        int64_t ranks, seq, window, steps;
    } cases[] = {{4, 64, 1, 1}, {4, 128, 9, 2}, {16, 512, 34, 3}, {8, 64, 5, 2}, {3, 50, 200, 3}};
    for (size_t i = 0; i < ASP_COUNT_OF(cases); i++) {
        tiny t = on_ring(i % 2 ? ASP_F64 : ASP_F32);
        t.hidden = 64;
        t.ranks = cases[i].ranks;
        t.seq = cases[i].seq;
        t.window = cases[i].window;
        t.quick = i > 0;
        compare(&t, ring, 1, t.dtype == ASP_F64 ? 1e-12 : 1e-6, t.dtype == ASP_F64 ? 1e-12 : 1e-5);
        tiny_result r = tiny_run(&t, -1, 0);
        const int64_t room = (t.seq + t.ranks - 1) / t.ranks, steps = cases[i].steps;
        const int64_t bytes = asp_dtypes[t.dtype].bytes * t.kv_heads * t.hidden / t.heads;
        assert_int_equal(r.counted.calls[ASP_COMM_rotate], t.layers * 6 * (steps - 1));
        assert_int_equal(r.counted.bytes[ASP_COMM_rotate],
                         t.layers * 6 * (steps - 1) * t.batch * room * bytes);
        tiny_free(&r);
    }
}

static void same_bits(const tiny *a, const tiny *b)
{
    tiny_result x = tiny_run(a, -1, 0), y = tiny_run(b, -1, 0);
    assert_true(x.loss == y.loss);
    assert_memory_equal(x.gradients, y.gradients, (size_t)x.count * sizeof(double));
    tiny_free(&x);
    tiny_free(&y);
}

static void nothing_else_changes_a_bit(void **state)
{
    (void)state;
    tiny t = on_ring(ASP_F32), u;
    t.hidden = 64;
    t.ranks = 3;
    t.seq = 67;
    u = t, u.ac = "layer";
    same_bits(&t, &u);
    u = t, u.ac = "sac";
    same_bits(&t, &u);
    u = t, u.threads = 3;
    same_bits(&t, &u);
    u = t, u.steps = 3;
    same_bits(&t, &u);
    t.unfused = u.unfused = true;
    u.steps = 1;
    same_bits(&t, &u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_agree_with_one_device),
        cmocka_unit_test(rings_agree_in_f32),
        cmocka_unit_test(hybrids_agree_with_one_device),
        cmocka_unit_test(bytes_meet_the_formula),
        cmocka_unit_test(windows_leave_blocks_out),
        cmocka_unit_test(nothing_else_changes_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
