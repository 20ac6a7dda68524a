// What every exchange of a plan moves against the closed formulas of communication, by hand:
// per layer and rank, forward, with s = S / P tokens, N query and K key/value heads of width d and
// b bytes a number
//
//   heads exchanged   (P-1)/P s d b (N for q, K for k, K for v, N for the result), K P / K where
//                     there are fewer key/value heads than ranks
//   ring              (P-1) steps of s K d b for k and for v
//   U x R             (U-1)/U s d b (N + 2 K + N), then R-1 steps of s K d b for k and for v
//
// and backward the same again, for the ring twice that.  SPDX-License-Identifier: Apache-2.0
#include "run/run_int.h"
#include "support/tiny.h"

#include <stdlib.h>

#define MOST 4096

typedef struct traffic {
    int64_t at[2][2][MOST]; // bytes a rank receives: [rotations][backward]
    int n[2][2];
} traffic;

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void add(traffic *t, bool rotations, bool backward, int64_t bytes, int64_t times)
{
    for (int64_t i = 0; i < times; i++) {
        assert_true(t->n[rotations][backward] < MOST);
        t->at[rotations][backward][t->n[rotations][backward]++] = bytes;
    }
}

static void sort(traffic *t)
{
    for (int r = 0; r < 2; r++)
        for (int b = 0; b < 2; b++)
            qsort(t->at[r][b], (size_t)t->n[r][b], sizeof(int64_t), by_size);
}

// What one rank receives in each exchange of the plan.
static void look(asp_ctx *cx, const asp_plan *plan, int rank, traffic *out)
{
    *out = (traffic){0};
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        const asp_step *s = &plan->steps.at[i];
        if (s->kind == ASP_STEP_ROTATE) {
            const asp_tensor *x = &s->call->in[0];
            add(out, true, s->backward,
                asp_comm_bytes(ASP_COMM_rotate, asp_tensor_count(x), asp_dtypes[x->dtype].bytes,
                               (int)plan->ranks, rank),
                1);
        }
        if (s->kind != ASP_STEP_ALL_TO_ALL) continue;
        const asp_all_to_all a = asp_a2a_of(s->call->attr, &s->call->out[0]);
        int64_t bytes, work;
        assert_int_equal(asp_comm_all_to_all_cost(cx, ASP_COMM_thread, &s->call->in[0], &a,
                                                  (int)plan->ranks, rank, &bytes, &work),
                         ASP_OK);
        add(out, false, s->backward, bytes, 1);
    }
    sort(out);
}

// U ranks share heads out, R groups stand around a ring; ulysses is P x 1, ring 1 x P.
static void expect(const tiny *t, int64_t heads, int64_t rings, traffic *out)
{
    const int64_t s = t->seq / t->ranks, d = t->hidden / t->heads;
    const int64_t row = t->batch * s * d * asp_dtypes[t->dtype].bytes;
    const int64_t kv = heads > t->kv_heads ? heads : t->kv_heads; // repeated to be split
    *out = (traffic){0};
    for (int backward = 0; backward < 2; backward++) {
        if (heads > 1) {
            add(out, false, backward, row * t->heads / heads * (heads - 1), 2 * t->layers);
            add(out, false, backward, row * kv / heads * (heads - 1), 2 * t->layers);
        }
        add(out, true, backward, row * kv, t->layers * 2 * (rings - 1) * (1 + backward));
    }
    sort(out);
}

static void check(const tiny *t, const char *sp, int64_t heads, int64_t rings)
{
    asp_ctx cx;
    tiny u = *t;
    traffic *found = calloc(2, sizeof *found), *wanted = found + 1;
    assert_non_null(found);
    asp_ctx_init(&cx);
    u.sp = sp;
    u.skip_sp = false;
    asp_plan *plan = tiny_plan(&cx, &u);
    expect(&u, heads, rings, wanted);
    for (int rank = 0; rank < (int)u.ranks; rank++) {
        look(&cx, plan, rank, found);
        if (memcmp(found, wanted, sizeof *found) != 0)
            fail_msg("%s, rank %d of %lld: N %lld, K %lld, S %lld: exchanges are not those of the "
                     "formula",
                     sp, rank, (long long)u.ranks, (long long)u.heads, (long long)u.kv_heads,
                     (long long)u.seq);
    }
    asp_plan_destroy(plan);
    free(found);
}

static tiny of_heads(int64_t heads, int64_t kv_heads, int64_t ranks)
{
    tiny t = tiny_default();
    t.heads = heads;
    t.kv_heads = kv_heads;
    t.hidden = heads * 4;
    t.ranks = ranks;
    t.seq = 8 * ranks;
    t.dtype = kv_heads % 2 ? ASP_F64 : ASP_F32;
    t.quick = true;
    return t;
}

static void heads_exchanged(void **state)
{
    (void)state;
    static const int64_t heads[][2] = {{8, 8}, {8, 4}, {8, 2}, {8, 1}, {16, 8}, {32, 8}};
    for (size_t i = 0; i < ASP_COUNT_OF(heads); i++)
        for (int64_t ranks = 2; ranks <= 8; ranks *= 2) {
            if (heads[i][1] == 1) continue; // one K/V head is gathered whole: see below
            const tiny t = of_heads(heads[i][0], heads[i][1], ranks);
            check(&t, "ulysses", ranks, 1);
        }
}

static void rings(void **state)
{
    (void)state;
    static const int64_t heads[][2] = {{8, 8}, {8, 2}, {6, 3}, {4, 1}};
    for (size_t i = 0; i < ASP_COUNT_OF(heads); i++)
        for (int64_t ranks = 2; ranks <= 8; ranks++) {
            const tiny t = of_heads(heads[i][0], heads[i][1], ranks);
            check(&t, "ring", 1, ranks);
        }
}

static void heads_times_rings(void **state)
{
    (void)state;
    static const int64_t mesh[][2] = {{2, 2}, {2, 3}, {2, 4}, {4, 2}};
    for (size_t i = 0; i < ASP_COUNT_OF(mesh); i++) {
        char sp[32];
        const int64_t u = mesh[i][0], r = mesh[i][1];
        const tiny t = of_heads(8, 4, u * r);
        snprintf(sp, sizeof sp, "hybrid:%lldx%lld", (long long)u, (long long)r);
        check(&t, sp, u, r);
    }
}

// 8 key/value heads under 32 query heads: a quarter of the bytes of q, on every rank.
static void grouped_queries(void **state)
{
    (void)state;
    traffic *found = calloc(1, sizeof *found);
    asp_ctx cx;
    assert_non_null(found);
    asp_ctx_init(&cx);
    tiny t = of_heads(32, 8, 4);
    t.layers = 1;
    t.skip_sp = false;
    asp_plan *plan = tiny_plan(&cx, &t);
    for (int rank = 0; rank < 4; rank++) {
        look(&cx, plan, rank, found);
        assert_int_equal(found->n[0][0], 4); // k, v, then q and the result
        assert_int_equal(found->at[0][0][0], found->at[0][0][1]);
        assert_int_equal(4 * found->at[0][0][1], found->at[0][0][2]);
        assert_int_equal(found->at[0][0][2], found->at[0][0][3]);
    }
    asp_plan_destroy(plan);
    free(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_exchanged),
        cmocka_unit_test(rings),
        cmocka_unit_test(heads_times_rings),
        cmocka_unit_test(grouped_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
