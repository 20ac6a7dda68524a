// A small Llama on 2, 4 and 8 ranks against one device; what is kept and what is computed again
// makes no difference to a bit.  SPDX-License-Identifier: Apache-2.0
#include "support/tiny.h"
#include "unit/sparse.h"

#include <math.h>

static const int64_t rank_counts[] = {4, 2, 8};
static const int64_t odd_counts[] = {3, 7, 2, 5, 11};

static tiny eight_heads(asp_dtype dtype)
{
    tiny t = tiny_default();
    t.heads = 8;
    t.hidden = dtype == ASP_F64 ? 32 : 64; // the reference kernels are slow
    t.dtype = dtype;
    t.skip_sp = false;
    return t;
}

static void compare_at(const tiny *model, const int64_t *counts, size_t n_counts, double loss_bound,
                       double gradient_bound)
{
    tiny t = *model;
    t.ranks = 1;
    tiny_result one = tiny_run(&t, -1, 0);
    for (size_t i = 0; i < n_counts; i += SPARSE(3)) {
        t.ranks = counts[i];
        tiny_result many = tiny_run(&t, -1, 0);
        double loss = fabs(one.loss - many.loss) / fmax(fabs(one.loss), 1e-300),
               gradients = tiny_gradient_error(&one, &many);
        if ((one.loss != many.loss && loss > loss_bound) || gradients > gradient_bound)
            fail_msg(
                "%lld ranks, %lld K/V heads, B %lld, S %lld, labels %s: loss %.17g, %.17g on 1; "
                "gradients differ by %g",
                (long long)t.ranks, (long long)t.kv_heads, (long long)t.batch, (long long)t.seq,
                t.labels, many.loss, one.loss, gradients);
        tiny_free(&many);
    }
    tiny_free(&one);
}

static void compare_ranks(const tiny *model, double loss_bound, double gradient_bound)
{
    compare_at(model, rank_counts, ASP_COUNT_OF(rank_counts), loss_bound, gradient_bound);
}

static void ranks_agree_with_one_device(asp_dtype dtype, double loss_bound, double gradient_bound)
{
    static const int64_t kv_heads[] = {1, 2, 8}, batch[] = {3, 1}, seq[] = {64, 256};
    tiny t = eight_heads(dtype);
    for (size_t k = 0; k < ASP_COUNT_OF(kv_heads); k += SPARSE(2))
        for (size_t b = 0; b < ASP_COUNT_OF(batch); b += SPARSE(2))
            for (size_t s = 0; s < ASP_COUNT_OF(seq); s += SPARSE(2)) {
                t.kv_heads = kv_heads[k];
                t.batch = batch[b];
                t.seq = seq[s];
                t.quick = b + s > 0;
                compare_ranks(&t, loss_bound, gradient_bound);
            }
}

static void ranks_agree_in_f32(void **state)
{
    (void)state;
    ranks_agree_with_one_device(ASP_F32, 1e-6, 1e-5);
}

static void ranks_agree_in_f64(void **state)
{
    (void)state;
    ranks_agree_with_one_device(ASP_F64, 1e-12, 1e-11);
}

// Neither tokens nor heads divide; more ranks than heads; ranks with one token; labels that leave
// shards empty.
static void any_sizes_agree(void **state)
{
    static const int64_t heads[][2] = {{8, 8}, {8, 2}, {6, 3}, {6, 1}, {4, 4}}, seq[] = {11, 67};
    static const char *const labels[] = {"", "empty-shard"};
    (void)state;
    for (size_t h = 0; h < ASP_COUNT_OF(heads); h += SPARSE(2))
        for (size_t s = 0; s < ASP_COUNT_OF(seq); s++) {
            tiny t = eight_heads(ASP_F64);
            t.heads = heads[h][0];
            t.kv_heads = heads[h][1];
            t.hidden = 4 * t.heads;
            t.batch = 1 + (int64_t)s;
            t.seq = seq[s];
            if (*labels[s]) t.labels = labels[s];
            t.quick = h + s > 0;
            compare_at(&t, odd_counts, ASP_COUNT_OF(odd_counts), 1e-12, 1e-11);
        }
}

// A shard without a label that counts adds exact zeros; none at all gives no loss (0 / 0).
static void shards_without_labels_add_nothing(void **state)
{
    (void)state;
    tiny t = eight_heads(ASP_F64);
    t.kv_heads = 2;
    t.seq = 64;
    t.labels = "empty-shard";
    compare_ranks(&t, 1e-12, 1e-11);
}

static void one_rank_is_the_program_without_the_passes(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        tiny t = eight_heads(dtype ? ASP_F32 : ASP_F64);
        tiny_result with = tiny_run(&t, -1, 0);
        t.skip_sp = true;
        tiny_result without = tiny_run(&t, -1, 0);
        assert_int_equal(with.report.n_exchanges, 0);
        assert_true(with.loss == without.loss);
        assert_memory_equal(with.gradients, without.gradients, (size_t)with.count * sizeof(double));
        tiny_free(&with);
        tiny_free(&without);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_agree_in_f32),
        cmocka_unit_test(ranks_agree_in_f64),
        cmocka_unit_test(any_sizes_agree),
        cmocka_unit_test(shards_without_labels_add_nothing),
        cmocka_unit_test(one_rank_is_the_program_without_the_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
