// Training in bf16 through autosp.h: it follows f32, on any number of ranks, with the same bits
// whatever is computed again and however many threads there are.
// SPDX-License-Identifier: Apache-2.0
#include "autosp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { VOCAB = 37, SEQ = 24, BATCH = 2, TOKENS = SEQ * BATCH, STEPS = 12 };

// Two layers with norms, rotary, grouped attention, SwiGLU and residuals; the head is the table.
#define LAYER(i, x, y)                                                                       \
    "%n" #i " : f32[B, S, 32] = rms_norm %" x ", %gain @ \"layers." #i ".norm\"\n"           \
    "%q" #i " : f32[B, S, 32] = linear %n" #i ", %wq" #i " @ \"layers." #i ".q\"\n"          \
    "%k" #i " : f32[B, S, 16] = linear %n" #i ", %wk" #i " @ \"layers." #i ".k\"\n"          \
    "%qh" #i " : f32[B, S, 4, 8] = view %q" #i " {shape = [B, S, 4, 8]}\n"                   \
    "%kh" #i " : f32[B, S, 2, 8] = view %k" #i " {shape = [B, S, 2, 8]}\n"                   \
    "%qp" #i " : f32[B, 4, S, 8] = permute %qh" #i " {perm = [0, 2, 1, 3]}\n"                \
    "%kp" #i " : f32[B, 2, S, 8] = permute %kh" #i " {perm = [0, 2, 1, 3]}\n"                \
    "%qr" #i " : f32[B, 4, S, 8] = rope %qp" #i ", %at\n"                                    \
    "%kr" #i " : f32[B, 2, S, 8] = rope %kp" #i ", %at\n"                                    \
    "%a" #i ", %l" #i " : f32[B, 4, S, 8], f32[B, 4, S] = sdpa %qr" #i ", %kr" #i ", %kp" #i \
    " {scale = 0.35} @ \"layers." #i ".attn\"\n"                                             \
    "%ap" #i " : f32[B, S, 4, 8] = permute %a" #i " {perm = [0, 2, 1, 3]}\n"                 \
    "%av" #i " : f32[B, S, 32] = view %ap" #i " {shape = [B, S, 32]}\n"                      \
    "%o" #i " : f32[B, S, 32] = linear %av" #i ", %wq" #i " @ \"layers." #i ".o\"\n"         \
    "%r" #i " : f32[B, S, 32] = add %" x ", %o" #i "\n"                                      \
    "%m" #i " : f32[B, S, 32] = rms_norm %r" #i ", %gain @ \"layers." #i ".norm2\"\n"        \
    "%g" #i " : f32[B, S, 48] = linear %m" #i ", %gate @ \"layers." #i ".gate\"\n"           \
    "%u" #i " : f32[B, S, 48] = linear %m" #i ", %up @ \"layers." #i ".up\"\n"               \
    "%s" #i " : f32[B, S, 48] = silu %g" #i "\n"                                             \
    "%p" #i " : f32[B, S, 48] = mul %s" #i ", %u" #i "\n"                                    \
    "%d" #i " : f32[B, S, 32] = linear %p" #i ", %down @ \"layers." #i ".down\"\n"           \
    "%" y " : f32[B, S, 32] = add %r" #i ", %d" #i "\n"
static const char model_text[] =
    "graph two {\n"
    "%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
    "%labels : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
    "%at : i64[S] = input {name = \"positions\", role = \"positions\"}\n"
    "%table : f32[37, 32] = param {name = \"table\", std = 0.2}\n"
    "%gain : f32[32] = param {name = \"gain\", init = \"ones\"}\n"
    "%wq0 : f32[32, 32] = param {name = \"wq0\", std = 0.2}\n"
    "%wk0 : f32[16, 32] = param {name = \"wk0\", std = 0.2}\n"
    "%wq1 : f32[32, 32] = param {name = \"wq1\", std = 0.2}\n"
    "%wk1 : f32[16, 32] = param {name = \"wk1\", std = 0.2}\n"
    "%gate : f32[48, 32] = param {name = \"gate\", std = 0.2}\n"
    "%up : f32[48, 32] = param {name = \"up\", std = 0.2}\n"
    "%down : f32[32, 48] = param {name = \"down\", std = 0.2}\n"
    "%x0 : f32[B, S, 32] = embedding %ids, %table\n" LAYER(0, "x0", "x1")
        LAYER(1, "x1", "x2") "%logits : f32[B, S, 37] = linear %x2, %table @ \"head\"\n"
                             "%next : i64[B, S] = shift %labels\n"
                             "%loss : f32[] = cross_entropy %logits, %next @ \"loss\"\n"
                             "return \"loss\" = %loss\n}\n";

#define WELL(cx, e)                                                     \
    do {                                                                \
        if ((e) != ASP_OK) fail_msg("%s: %s", #e, asp_ctx_message(cx)); \
    } while (0)

typedef struct run {
    asp_ctx *cx;
    asp_compiled *c;
    asp_trainer *t;
    double loss[STEPS];
} run;

static run start(const char *more)
{
    run r = {.cx = asp_ctx_create()};
    asp_model *m;
    char options[256];
    snprintf(options, sizeof options, "seq = %d, batch = %d, lr = 5e-3, seed = 3, %s", SEQ, BATCH,
             more);
    WELL(r.cx, asp_model_parse(r.cx, "two.ir", model_text, strlen(model_text), &m));
    WELL(r.cx, asp_model_compile(m, options, &r.c));
    asp_model_destroy(m);
    WELL(r.cx, asp_trainer_create(r.c, &r.t));
    return r;
}

static void train(run *r, int from, int to)
{
    int64_t ids[TOKENS], at[SEQ];
    for (int s = from; s < to; s++) {
        for (int i = 0; i < TOKENS; i++) ids[i] = (i % SEQ * (3 + i / SEQ) + s % 4) % VOCAB;
        for (int i = 0; i < SEQ; i++) at[i] = i;
        WELL(r->cx, asp_trainer_input(r->t, "ids", ids, sizeof ids));
        WELL(r->cx, asp_trainer_input(r->t, "labels", ids, sizeof ids));
        WELL(r->cx, asp_trainer_input(r->t, "positions", at, sizeof at));
        WELL(r->cx, asp_trainer_step(r->t, &r->loss[s]));
        WELL(r->cx, asp_trainer_update(r->t, -1, NULL));
    }
}

static run trained(const char *more)
{
    run r = start(more);
    train(&r, 0, STEPS);
    return r;
}

static void end(run *r)
{
    asp_trainer_destroy(r->t);
    asp_compiled_destroy(r->c);
    asp_ctx_destroy(r->cx);
}

static float *params_of(const run *r, const char *dtype, size_t *out_bytes)
{
    asp_tensor_info p;
    char *all = NULL;
    size_t n = 0;
    for (size_t i = 0; asp_compiled_param(r->c, i, &p); i++) {
        assert_string_equal(p.dtype, dtype);
        all = realloc(all, n + (size_t)p.bytes);
        assert_non_null(all);
        WELL(r->cx, asp_trainer_read(r->t, ASP_SLAB_PARAM, p.name, all + n, (size_t)p.bytes));
        n += (size_t)p.bytes;
    }
    *out_bytes = n;
    return (float *)(void *)all;
}

// dtype: of the parameters, whatever the products read.
static void same_bits(const run *a, const run *b, const char *dtype)
{
    size_t n, m;
    float *x = params_of(a, dtype, &n), *y = params_of(b, dtype, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void loss_follows_f32(void **state)
{
    (void)state;
    run full = trained("ranks = 1, threads = 1"),
        half = trained("ranks = 1, threads = 1, dtype = bf16");
    double most = 0;
    for (int s = 0; s < STEPS; s++) most = fmax(most, fabs(full.loss[s] - half.loss[s]));
    assert_true(full.loss[STEPS - 1] < full.loss[0] - 0.5);
    assert_true(most > 1e-6); // it is not f32
    if (most > 0.02) fail_msg("losses differ by %g", most);
    end(&full);
    end(&half);
}

// Of all that is kept, what is recomputed, tiled and threaded changes no bit.
static void policies_and_threads_change_no_bit(void **state)
{
    (void)state;
    static const char *const ways[] = {"threads = 3", "threads = 2, ac = layer",
                                       "threads = 1, ac = sac", "threads = 1, ac = default"};
    run first = trained("ranks = 1, dtype = bf16, threads = 1");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char options[128];
        snprintf(options, sizeof options, "ranks = 1, dtype = bf16, %s", ways[i]);
        run r = trained(options);
        same_bits(&first, &r, "f32");
        end(&r);
    }
    end(&first);
}

// ---- without a master copy ---------------------------------------------------------------------

#define NO_MASTER "dtype = bf16, master = none"

static void no_master_follows_f32(void **state)
{
    (void)state;
    run full = trained("ranks = 1, threads = 1"),
        half = trained("ranks = 1, threads = 1, " NO_MASTER);
    double most = 0;
    for (int s = 0; s < STEPS; s++) most = fmax(most, fabs(full.loss[s] - half.loss[s]));
    assert_true(most > 1e-6);
    if (most > 0.02) fail_msg("losses differ by %g", most);
    end(&full);
    end(&half);
}

// Rounding is by the seed and the element: not by threads, policies, and who updates.
static void no_master_rounds_alike_everywhere(void **state)
{
    (void)state;
    static const char *const ways[] = {"threads = 3", "threads = 2, ac = layer"};
    run first = trained("ranks = 1, threads = 1, " NO_MASTER);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char options[128];
        snprintf(options, sizeof options, "ranks = 1, " NO_MASTER ", %s", ways[i]);
        run r = trained(options);
        same_bits(&first, &r, "bf16");
        end(&r);
    }
    end(&first);
}

static void no_master_ranks_agree(void **state)
{
    (void)state;
    run first = trained("ranks = 1, threads = 1, " NO_MASTER),
        two = trained("ranks = 2, threads = 1, sp = ulysses, " NO_MASTER),
        four = trained("ranks = 4, threads = 1, sp = hybrid:2x2, " NO_MASTER);
    for (int s = 0; s < STEPS; s++) {
        assert_true(fabs(two.loss[s] - first.loss[s]) <= (s ? 0.02 : 1e-4));
        assert_true(fabs(four.loss[s] - first.loss[s]) <= (s ? 0.02 : 1e-4));
    }
    end(&first);
    end(&two);
    end(&four);
}

// Rounding to the nearest would leave all weights where they are: a step is far below half of their
// last place.
static void small_steps_are_not_lost(void **state)
{
    (void)state;
    run r = start("ranks = 1, threads = 1, " NO_MASTER ", warmup = 0, weight-decay = 0");
    size_t n, m, moved = 0;
    train(&r, 0, 1);
    uint16_t *before = (uint16_t *)(void *)params_of(&r, "bf16", &n);
    for (int s = 0; s < 20; s++) {
        WELL(r.cx, asp_trainer_step(r.t, &r.loss[0]));
        WELL(r.cx, asp_trainer_update(r.t, 1e-6, NULL)); // weights are of about 0.2
    }
    uint16_t *after = (uint16_t *)(void *)params_of(&r, "bf16", &m);
    for (size_t i = 0; i < n / 2; i++) moved += before[i] != after[i];
    assert_true(moved > 0 && moved < n / 4);
    free(before);
    free(after);
    end(&r);
}

static void ranks_agree(void **state)
{
    (void)state;
    static const char *const ways[] = {"ranks = 2, sp = ulysses", "ranks = 4, sp = ulysses",
                                       "ranks = 2, sp = ring", "ranks = 3, sp = ring",
                                       "ranks = 4, sp = hybrid:2x2"};
    run first = trained("ranks = 1, dtype = bf16, threads = 1");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char options[128];
        snprintf(options, sizeof options, "threads = 1, dtype = bf16, %s", ways[i]);
        run r = trained(options);
        for (int s = 0; s < STEPS; s++)
            if (!(fabs(r.loss[s] - first.loss[s]) <= (s ? 0.02 : 1e-4)))
                fail_msg("%s: loss %d is %g, not %g", ways[i], s, r.loss[s], first.loss[s]);
        int64_t planned = 0;
        asp_exchange_info x;
        for (size_t k = 0; asp_compiled_exchange(r.c, k, &x); k++) planned += x.bytes;
        assert_int_equal(asp_trainer_exchanged_bytes(r.t), STEPS * planned);
        end(&r);
    }
    end(&first);
}

// Half the bytes go over the links where activations do.
static void exchanges_are_half_as_large(void **state)
{
    (void)state;
    int64_t bytes[2] = {0, 0};
    for (int half = 0; half < 2; half++) {
        run r = start(half ? "ranks = 2, threads = 1, sp = ulysses, dtype = bf16"
                           : "ranks = 2, threads = 1, sp = ulysses");
        asp_exchange_info x;
        for (size_t i = 0; asp_compiled_exchange(r.c, i, &x); i++)
            if (strcmp(x.op, "all_to_all") == 0) bytes[half] += x.bytes;
        end(&r);
    }
    assert_true(bytes[1] > 0);
    assert_int_equal(2 * bytes[1], bytes[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_follows_f32),
        cmocka_unit_test(policies_and_threads_change_no_bit),
        cmocka_unit_test(ranks_agree),
        cmocka_unit_test(no_master_follows_f32),
        cmocka_unit_test(no_master_rounds_alike_everywhere),
        cmocka_unit_test(no_master_ranks_agree),
        cmocka_unit_test(small_steps_are_not_lost),
        cmocka_unit_test(exchanges_are_half_as_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
