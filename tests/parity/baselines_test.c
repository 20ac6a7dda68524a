// The compiler's program against what an expert writes by hand (bench/baselines): the same list of
// kernels and exchanges at the same places of memory, no byte more at the peak, the same bits.  And
// whole sequences on every rank give what one rank gives.  SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/llama.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static asp_ctx *cx;

static const baseline_shape shapes[] = {
    {.layers = 2, .heads = 8, .kv_heads = 8, .width = 8, .ffn = 96, .vocab = 61},
    {.layers = 2, .heads = 8, .kv_heads = 4, .width = 8, .ffn = 96, .vocab = 61},
    {.layers = 1, .heads = 8, .kv_heads = 2, .width = 16, .ffn = 64, .vocab = 40},
};

static asp_compiled *compiled(const baseline_shape *s, baseline_kind kind, int ranks,
                              const char *options)
{
    asp_compiled *c = NULL;
    asp_model *m = baseline_llama(cx, s, kind, ranks);
    if (!m || asp_model_compile(m, options, &c) < 0) fail_msg("%s", asp_ctx_message(cx));
    asp_model_destroy(m);
    return c;
}

static void same_program(const asp_compiled *ours, const asp_compiled *hand, const char *what)
{
    const char *a = asp_compiled_steps(ours), *b = asp_compiled_steps(hand);
    for (int line = 1; *a || *b; line++) {
        const size_t n = strcspn(a, "@\n"), m = strcspn(b, "@\n"); // whose it is behind @
        if (n != m || memcmp(a, b, n) != 0)
            fail_msg("%s, line %d: the compiler has '%.*s', by hand it is '%.*s'", what, line,
                     (int)n, a, (int)m, b);
        a += strcspn(a, "\n"), a += *a == '\n';
        b += strcspn(b, "\n"), b += *b == '\n';
    }
}

static void same_exchanges(const asp_compiled *ours, const asp_compiled *hand)
{
    asp_exchange_info a, b;
    size_t i = 0;
    for (; asp_compiled_exchange(ours, i, &a); i++) {
        assert_true(asp_compiled_exchange(hand, i, &b));
        assert_string_equal(a.op, b.op);
        assert_string_equal(a.what, b.what);
        assert_int_equal(a.count, b.count);
        assert_int_equal(a.bytes, b.bytes);
    }
    assert_true(i >= 3);
    assert_false(asp_compiled_exchange(hand, i, &b));
}

// One step from the same parameters on the same tokens: the loss, and the gradient of the table.
static double step(const asp_compiled *c, int64_t batch, int64_t seq, int64_t vocab,
                   asp_tensor_info *of, float **out_gradient)
{
    asp_trainer *t;
    double loss = 0;
    const size_t bytes = (size_t)(batch * seq) * sizeof(int64_t);
    int64_t *ids = malloc(bytes);
    assert_non_null(ids);
    for (int64_t i = 0; i < batch * seq; i++) ids[i] = (i * i * 3 + i * 7 + 5) % vocab;
    assert_int_equal(asp_trainer_create(c, &t), ASP_OK);
    assert_int_equal(asp_trainer_input(t, "input_ids", ids, bytes), ASP_OK);
    assert_int_equal(asp_trainer_input(t, "labels", ids, bytes), ASP_OK);
    if (asp_trainer_step(t, &loss) < 0) fail_msg("%s", asp_ctx_message(cx));
    assert_true(asp_compiled_param(c, 0, of));
    *out_gradient = malloc((size_t)of->bytes);
    assert_non_null(*out_gradient);
    assert_int_equal(asp_trainer_read(t, ASP_SLAB_GRAD, of->name, *out_gradient, (size_t)of->bytes),
                     ASP_OK);
    asp_trainer_destroy(t);
    free(ids);
    return loss;
}

static void check(const baseline_shape *s, baseline_kind kind, int ranks, const char *ac)
{
    static const char *const names[] = {"", "ulysses", "ring", ""};
    char ours[128], hand[128], what[128];
    const int seq = 16 * ranks;
    snprintf(ours, sizeof ours, "seq = %d, batch = 2, threads = 1, ranks = %d, ac = %s, sp = %s",
             seq, ranks, ac, names[kind]);
    snprintf(hand, sizeof hand, "seq = %d, batch = 2, threads = 1, ranks = %d, ac = %s, sp = none",
             seq, ranks, ac);
    snprintf(what, sizeof what, "%s, %d ranks, %d of %d heads, %s", names[kind], ranks, s->kv_heads,
             s->heads, ac);
    asp_compiled *a = compiled(s, BASELINE_SINGLE, ranks, ours);
    asp_compiled *b = compiled(s, kind, ranks, hand);
    asp_tensor_info t;
    float *x, *y;
    same_program(a, b, what);
    same_exchanges(a, b);
    assert_true(asp_compiled_bytes(a, "rank") <= asp_compiled_bytes(b, "rank"));
    assert_true(step(a, 2, seq, s->vocab, &t, &x) == step(b, 2, seq, s->vocab, &t, &y));
    assert_memory_equal(x, y, (size_t)t.bytes);
    free(x), free(y);
    asp_compiled_destroy(a);
    asp_compiled_destroy(b);
}

static void as_by_hand(baseline_kind kind)
{
    static const char *const ac[] = {"none", "sac", "layer"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int ranks = 2; ranks <= 8; ranks *= 2) check(&shapes[i], kind, ranks, ac[i]);
}

static void ulysses_as_by_hand(void **state)
{
    (void)state;
    as_by_hand(BASELINE_ULYSSES);
}

static void ring_as_by_hand(void **state)
{
    (void)state;
    as_by_hand(BASELINE_RING);
}

static void whole_sequences(void **state)
{
    (void)state;
    const baseline_shape *s = &shapes[1];
    asp_tensor_info t;
    float *x, *y;
    double worst = 0, size = 0;
    asp_compiled *one = compiled(s, BASELINE_SINGLE, 1, "seq = 24, batch = 4, threads = 1");
    asp_compiled *four =
        compiled(s, BASELINE_DATA, 4, "seq = 24, batch = 4, threads = 1, ranks = 4, sp = none");
    const double a = step(one, 4, 24, s->vocab, &t, &x), b = step(four, 4, 24, s->vocab, &t, &y);
    assert_true(fabs(a - b) <= 1e-6 * fabs(a));
    for (int64_t i = 0; i < t.bytes / 4; i++) {
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
        size = fmax(size, fabs((double)x[i]));
    }
    assert_true(size > 0 && worst <= 1e-5 * size);
    free(x), free(y);
    asp_compiled_destroy(one);
    asp_compiled_destroy(four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ulysses_as_by_hand),
        cmocka_unit_test(ring_as_by_hand),
        cmocka_unit_test(whole_sequences),
    };
    cx = asp_ctx_create();
    if (!cx) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    asp_ctx_destroy(cx);
    return failed;
}
