// Compiled programs and trainers through autosp.h: gradients against finite differences, ranks
// against one, a graph split by hand against the compiler's, checkpoints, bad input.
// SPDX-License-Identifier: Apache-2.0
#include "autosp.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { VOCAB = 13, SEQ = 8, BATCH = 2, TOKENS = SEQ * BATCH };
#define OPTIONS "seq = 8, batch = 2, threads = 1, lr = 1e-2, weight-decay = 0.1, seed = 3"

// Embedding, attention of 4 heads over 2 K/V heads, tied head, loss; %s is the dtype.
static const char model_text[] =
    "graph tiny {\n"
    "  %%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
    "  %%labels : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
    "  %%table : %s[13, 8] = param {name = \"table\", std = 0.5}\n"
    "  %%wq : %s[8, 8] = param {name = \"wq\", std = 0.5}\n"
    "  %%wk : %s[4, 8] = param {name = \"wk\", std = 0.5}\n"
    "  %%x : %s[B, S, 8] = embedding %%ids, %%table\n"
    "  %%q : %s[B, S, 8] = linear %%x, %%wq\n"
    "  %%k : %s[B, S, 4] = linear %%x, %%wk\n"
    "  %%q2 : %s[B, S, 4, 2] = view %%q {shape = [B, S, 4, 2]}\n"
    "  %%k2 : %s[B, S, 2, 2] = view %%k {shape = [B, S, 2, 2]}\n"
    "  %%q3 : %s[B, 4, S, 2] = permute %%q2 {perm = [0, 2, 1, 3]}\n"
    "  %%k3 : %s[B, 2, S, 2] = permute %%k2 {perm = [0, 2, 1, 3]}\n"
    "  %%a, %%lse : %s[B, 4, S, 2], %s[B, 4, S] = sdpa %%q3, %%k3, %%k3 @ \"layers.0.attn\"\n"
    "  %%a2 : %s[B, S, 4, 2] = permute %%a {perm = [0, 2, 1, 3]}\n"
    "  %%a3 : %s[B, S, 8] = view %%a2 {shape = [B, S, 8]}\n"
    "  %%y : %s[B, S, 8] = add %%x, %%a3\n"
    "  %%logits : %s[B, S, 13] = linear %%y, %%table\n"
    "  %%next : i64[B, S] = shift %%labels\n"
    "  %%loss : %s[] = cross_entropy %%logits, %%next\n"
    "  return \"loss\" = %%loss\n"
    "}\n";

static asp_model *tiny(asp_ctx *cx, const char *t)
{
    char text[4096];
    asp_model *m;
    snprintf(text, sizeof text, model_text, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t, t);
    if (asp_model_parse(cx, "tiny.ir", text, strlen(text), &m) != ASP_OK)
        fail_msg("%s", asp_ctx_message(cx));
    return m;
}

#define WELL(cx, e)                                                     \
    do {                                                                \
        if ((e) != ASP_OK) fail_msg("%s: %s", #e, asp_ctx_message(cx)); \
    } while (0)

static asp_compiled *compiled(asp_ctx *cx, asp_model *m, const char *more)
{
    char options[256];
    asp_compiled *c;
    snprintf(options, sizeof options, OPTIONS ", %s", more);
    WELL(cx, asp_model_compile(m, options, &c));
    return c;
}

static void give_batch(asp_ctx *cx, asp_trainer *t, int step)
{
    int64_t ids[TOKENS], labels[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (i * 5 + step * 3 + i / SEQ) % VOCAB;
        labels[i] = i % 7 == 3 ? -100 : ids[i];
    }
    WELL(cx, asp_trainer_input(t, "ids", ids, sizeof ids));
    WELL(cx, asp_trainer_input(t, "labels", labels, sizeof labels));
}

static double step_of(asp_ctx *cx, asp_trainer *t)
{
    double loss;
    WELL(cx, asp_trainer_step(t, &loss));
    return loss;
}

// Central differences of the loss at entries of every parameter, f64.
static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m = tiny(cx, "f64");
    asp_compiled *c = compiled(cx, m, "ranks = 1");
    asp_trainer *t;
    asp_tensor_info p;
    asp_model_destroy(m); // nobody needs it any more
    WELL(cx, asp_trainer_create(c, &t));
    give_batch(cx, t, 0);
    assert_true(step_of(cx, t) > 1);
    for (size_t i = 0; asp_compiled_param(c, i, &p); i++) {
        double w[VOCAB * 8], g[VOCAB * 8], largest = 0;
        size_t bytes = (size_t)p.bytes, n = bytes / sizeof *w;
        step_of(cx, t);
        WELL(cx, asp_trainer_read(t, ASP_SLAB_PARAM, p.name, w, bytes));
        WELL(cx, asp_trainer_read(t, ASP_SLAB_GRAD, p.name, g, bytes));
        for (size_t e = 0; e < n; e++) largest = fmax(largest, fabs(g[e]));
        assert_true(largest > 1e-4);
        for (size_t e = 1; e < n; e += n / 3) {
            double at = w[e], up, down;
            w[e] = at + 1e-6;
            WELL(cx, asp_trainer_write(t, ASP_SLAB_PARAM, p.name, w, bytes));
            up = step_of(cx, t);
            w[e] = at - 1e-6;
            WELL(cx, asp_trainer_write(t, ASP_SLAB_PARAM, p.name, w, bytes));
            down = step_of(cx, t);
            w[e] = at;
            WELL(cx, asp_trainer_write(t, ASP_SLAB_PARAM, p.name, w, bytes));
            if (fabs((up - down) / 2e-6 - g[e]) > 1e-6 * largest)
                fail_msg("%s[%zu]: %.12g by differences, %.12g by derivative", p.name, e,
                         (up - down) / 2e-6, g[e]);
        }
    }
    asp_trainer_destroy(t);
    asp_compiled_destroy(c);
    asp_ctx_destroy(cx);
}

// Two trainers side by side in one process: 1 rank and 2 ranks, three steps in turn.
static void two_ranks_do_what_one_does(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m = tiny(cx, "f64");
    asp_compiled *c[2] = {compiled(cx, m, "ranks = 1"), compiled(cx, m, "ranks = 2, ac = layer")};
    asp_trainer *t[2];
    asp_tensor_info p;
    for (int i = 0; i < 2; i++) WELL(cx, asp_trainer_create(c[i], &t[i]));
    for (int s = 0; s < 3; s++) {
        double loss[2], size[2];
        for (int i = 0; i < 2; i++) {
            give_batch(cx, t[i], s);
            loss[i] = step_of(cx, t[i]);
        }
        for (size_t k = 0; asp_compiled_param(c[0], k, &p); k++) {
            double g[2][VOCAB * 8];
            for (int i = 0; i < 2; i++)
                WELL(cx, asp_trainer_read(t[i], ASP_SLAB_GRAD, p.name, g[i], (size_t)p.bytes));
            for (size_t e = 0; e < (size_t)p.bytes / sizeof g[0][0]; e++)
                assert_true(fabs(g[0][e] - g[1][e]) <= 1e-12);
        }
        for (int i = 0; i < 2; i++) WELL(cx, asp_trainer_update(t[i], -1, &size[i]));
        assert_true(fabs(loss[0] - loss[1]) <= 1e-12 && fabs(size[0] - size[1]) <= 1e-12);
    }
    assert_int_equal(asp_trainer_updates(t[1]), 3);
    assert_int_equal(asp_trainer_exchanged_bytes(t[0]), 0);
    int64_t planned = 0;
    asp_exchange_info x;
    for (size_t i = 0; asp_compiled_exchange(c[1], i, &x); i++) planned += x.bytes;
    assert_true(planned > 0);
    assert_int_equal(asp_trainer_exchanged_bytes(t[1]), 3 * planned);
    for (int i = 0; i < 2; i++) {
        asp_trainer_destroy(t[i]);
        asp_compiled_destroy(c[i]);
    }
    asp_model_destroy(m);
    asp_ctx_destroy(cx);
}

// ---- split by hand -----------------------------------------------------------------------------

static asp_value op(asp_model *m, const char *name, const char *attrs, asp_value a, asp_value b)
{
    asp_value in[2] = {a, b};
    return asp_model_op(m, name, attrs, b ? 2 : 1, in);
}

// What an expert writes for 2 ranks (Ulysses): tokens in halves, heads in halves around attention,
// the loss as a sum over all divided by the count over all.
static asp_model *split_by_hand(asp_ctx *cx)
{
    asp_model *m;
    WELL(cx, asp_model_create(cx, "by_hand", &m));
    asp_model_split(m, 2);
    asp_value ids = asp_model_input(m, "ids", "i64[B, S]", "tokens");
    asp_value labels = asp_model_input(m, "labels", "i64[B, S]", "labels");
    asp_value table = asp_model_param(m, "table", "f32[13, 8]", "normal", 0.5);
    asp_value wq = asp_model_param(m, "wq", "f32[8, 8]", "normal", 0.5);
    asp_value wk = asp_model_param(m, "wk", "f32[4, 8]", "normal", 0.5);
    asp_value x =
        op(m, "embedding", NULL, op(m, "shard_slice", "dim = 1, ranks = 2", ids, 0), table);
    asp_value q = op(m, "view", "shape = [B, ceil(S, 2), 4, 2]", op(m, "linear", NULL, x, wq), 0);
    asp_value k = op(m, "view", "shape = [B, ceil(S, 2), 2, 2]", op(m, "linear", NULL, x, wk), 0);
    q = op(m, "permute", "perm = [0, 2, 1, 3]", q, 0);
    k = op(m, "permute", "perm = [0, 2, 1, 3]", k, 0);
    q = op(m, "all_to_all", "split = 1, gather = 2, ranks = 2", q, 0);
    k = op(m, "all_to_all", "split = 1, gather = 2, ranks = 2", k, 0);
    asp_value qkv[3] = {q, k, k};
    asp_value a = asp_model_op(m, "sdpa", NULL, 3, qkv);
    a = op(m, "all_to_all", "split = 2, gather = 1, ranks = 2", a, 0);
    a = op(m, "view", "shape = [B, ceil(S, 2), 8]", op(m, "permute", "perm = [0, 2, 1, 3]", a, 0),
           0);
    asp_value logits = op(m, "linear", NULL, op(m, "add", NULL, x, a), table);
    asp_value next = op(m, "shift", NULL, labels, 0);
    asp_value mine = op(m, "shard_slice", "dim = 1, ranks = 2", next, 0);
    asp_value sum = op(m, "cross_entropy", "reduction = \"sum\"", logits, mine);
    asp_value count = op(m, "cast", "to = f32", op(m, "count_valid", NULL, next, 0), 0);
    asp_model_loss(m, op(m, "div", NULL, op(m, "all_reduce", NULL, sum, 0), count));
    WELL(cx, asp_model_status(m));
    return m;
}

static void split_by_hand_is_split_by_the_compiler(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m[2] = {tiny(cx, "f32"), split_by_hand(cx)};
    asp_compiled *c[2] = {compiled(cx, m[0], "ranks = 2"),
                          compiled(cx, m[1], "ranks = 2, sp = none")};
    asp_trainer *t[2];
    asp_exchange_info x, y;
    for (size_t i = 0;; i++) {
        bool more = asp_compiled_exchange(c[0], i, &x);
        assert_int_equal(more, asp_compiled_exchange(c[1], i, &y));
        if (!more) break;
        assert_string_equal(x.op, y.op);
        assert_true(x.count == y.count && x.bytes == y.bytes);
    }
    float g[2][VOCAB * 8];
    double loss[2];
    for (int i = 0; i < 2; i++) {
        WELL(cx, asp_trainer_create(c[i], &t[i]));
        give_batch(cx, t[i], 0);
        loss[i] = step_of(cx, t[i]);
        WELL(cx, asp_trainer_read(t[i], ASP_SLAB_GRAD, "table", g[i], sizeof g[i]));
    }
    assert_true(loss[0] == loss[1]);
    assert_memory_equal(g[0], g[1], sizeof g[0]);
    asp_compiled *wrong;
    assert_int_equal(asp_model_compile(m[1], "seq = 8, ranks = 2", &wrong), ASP_ERR_USAGE);
    assert_non_null(strstr(asp_ctx_message(cx), "split for 2 ranks already"));
    assert_int_equal(asp_model_compile(m[1], "seq = 8, ranks = 4, sp = none", &wrong),
                     ASP_ERR_USAGE);
    for (int i = 0; i < 2; i++) {
        asp_trainer_destroy(t[i]);
        asp_compiled_destroy(c[i]);
        asp_model_destroy(m[i]);
    }
    asp_ctx_destroy(cx);
}

// ---- what a plan says --------------------------------------------------------------------------

static void plans_answer(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m = tiny(cx, "f32");
    asp_compiled *c = compiled(cx, m, "ranks = 2");
    json_t *record = json_loads(asp_compiled_json(c), 0, NULL);
    assert_non_null(record);
    assert_string_equal(json_string_value(json_object_get(record, "record")), "plan");
    assert_int_equal(json_integer_value(json_object_get(record, "predicted_peak_bytes_rank")),
                     asp_compiled_bytes(c, "rank"));
    assert_int_equal(json_integer_value(json_object_get(record, "predicted_process_bytes")),
                     asp_compiled_bytes(c, "process"));
    const char *kind;
    json_t *value;
    int64_t sum = 0;
    json_object_foreach(json_object_get(record, "bytes_by_kind"), kind, value)
    {
        assert_int_equal(json_integer_value(value), asp_compiled_bytes(c, kind));
        sum += json_integer_value(value);
    }
    assert_true(sum > 0 && sum <= asp_compiled_bytes(c, "rank"));
    // Each parameter takes whole lines of 64 bytes.
    assert_int_equal(asp_compiled_bytes(c, "parameters"), 448 + 256 + 128);
    assert_int_equal(asp_compiled_bytes(c, "gold"), -1);
    assert_non_null(strstr(asp_compiled_text(c), "S = 8, batch 2, 2 ranks x 1 thread"));
    assert_non_null(strstr(asp_compiled_steps(c), "all_to_all"));
    asp_tensor_info in;
    assert_true(asp_compiled_input(c, 0, &in));
    assert_string_equal(in.dtype, "i64");
    assert_true(in.rank == 2 && in.dim[0] == BATCH && in.dim[1] == SEQ && in.bytes == TOKENS * 8);
    assert_false(asp_compiled_input(c, 2, &in));
    json_decref(record);
    asp_compiled_destroy(c);
    // The longest that fits: one token per rank more does not.
    WELL(cx, asp_model_compile(m, "seq = max, memory = 1MiB, ranks = 2, threads = 1", &c));
    assert_true(asp_compiled_seq(c) > 64 && asp_compiled_bytes(c, "rank") <= 1 << 20);
    asp_compiled_destroy(c);
    asp_model_destroy(m);
    asp_ctx_destroy(cx);
}

// ---- checkpoints -------------------------------------------------------------------------------

static void a_saved_run_goes_on(void **state)
{
    (void)state;
    char folder[] = "/tmp/autosp-trainer-XXXXXX", command[128];
    assert_non_null(mkdtemp(folder));
    asp_ctx *cx = asp_ctx_create();
    asp_model *m = tiny(cx, "f32");
    asp_compiled *c = compiled(cx, m, "ranks = 2");
    asp_trainer *t, *u;
    float w[2][64];
    WELL(cx, asp_trainer_create(c, &t));
    WELL(cx, asp_trainer_create(c, &u));
    WELL(cx, asp_trainer_fill(u, 99));
    assert_int_equal(asp_trainer_load(u, folder), ASP_ERR_INPUT); // nothing there; u lives on
    for (int s = 0; s < 4; s++) {
        give_batch(cx, t, s);
        step_of(cx, t);
        WELL(cx, asp_trainer_update(t, -1, NULL));
        if (s != 1) continue;
        WELL(cx, asp_trainer_save(t, folder));
        WELL(cx, asp_trainer_load(u, folder));
    }
    for (int s = 2; s < 4; s++) {
        assert_int_equal(asp_trainer_updates(u), s);
        give_batch(cx, u, s);
        step_of(cx, u);
        WELL(cx, asp_trainer_update(u, -1, NULL));
    }
    WELL(cx, asp_trainer_read(t, ASP_SLAB_PARAM, "wq", w[0], sizeof w[0]));
    WELL(cx, asp_trainer_read(u, ASP_SLAB_PARAM, "wq", w[1], sizeof w[1]));
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_int_equal(asp_trainer_save(t, "/dev/null/x"), ASP_ERR_IO);
    step_of(cx, t); // and t lives on
    asp_trainer_destroy(t);
    asp_trainer_destroy(u);
    asp_compiled_destroy(c);
    asp_model_destroy(m);
    asp_ctx_destroy(cx);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

// ---- bad input ---------------------------------------------------------------------------------

static const struct {
    const char *options;
    asp_status status;
    const char *says;
} bad_options[] = {
    {"seq", ASP_ERR_USAGE, "options: 'seq' is not written as name = value"},
    {"colour = red", ASP_ERR_USAGE, "options: there is no option 'colour' here"},
    {"model = x.ir", ASP_ERR_USAGE, "options: there is no option 'model' here"},
    {"seq = -3", ASP_ERR_USAGE, "--seq '-3'"},
    {"seq = 99999999999999999999", ASP_ERR_USAGE, "--seq '99999999999999999999'"},
    {"ranks = 0", ASP_ERR_USAGE, "--ranks 0: 1 to 1024"},
    {"sp = magic", ASP_ERR_USAGE, "--sp 'magic'"},
    {"seq = max", ASP_ERR_USAGE, "needs --memory"},
    {"seq = 64, memory = 1kB", ASP_ERR_LIMIT, "too little"},
    {"seq = 9007199254740992, batch = 9007199254740992", ASP_ERR_LIMIT, "too large"},
};

static void bad_options_have_messages(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m = tiny(cx, "f32");
    for (size_t i = 0; i < sizeof bad_options / sizeof bad_options[0]; i++) {
        asp_compiled *c = NULL;
        asp_status s = asp_model_compile(m, bad_options[i].options, &c);
        assert_null(c);
        if (s != bad_options[i].status || !strstr(asp_ctx_message(cx), bad_options[i].says))
            fail_msg("'%s': %s: %s", bad_options[i].options, asp_status_name(s),
                     asp_ctx_message(cx));
    }
    assert_int_equal(asp_model_compile(m, NULL, NULL), ASP_ERR_USAGE);
    asp_model_destroy(m);
    WELL(cx, asp_model_create(cx, "lossless", &m));
    asp_model_param(m, "w", "f32[2]", "ones", 0);
    asp_compiled *c;
    assert_int_equal(asp_model_compile(m, NULL, &c), ASP_ERR_INPUT);
    assert_non_null(strstr(asp_ctx_message(cx), "loss"));
    asp_model_destroy(m);
    asp_ctx_destroy(cx);
}

#define SAYS(s, want, text)                                      \
    do {                                                         \
        if ((s) != (want) || !strstr(asp_ctx_message(cx), text)) \
            fail_msg("%s", asp_ctx_message(cx));                 \
    } while (0)

static void bad_arguments_have_messages(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m = tiny(cx, "f32");
    asp_compiled *c = compiled(cx, m, "ranks = 2");
    asp_trainer *t;
    double loss;
    float w[64];
    int64_t ids[TOKENS] = {0};
    WELL(cx, asp_trainer_create(c, &t));
    SAYS(asp_trainer_step(t, &loss), ASP_ERR_USAGE, "input ids was not given");
    SAYS(asp_trainer_input(t, "idz", ids, sizeof ids), ASP_ERR_USAGE, "reads no input 'idz'");
    SAYS(asp_trainer_input(t, NULL, ids, sizeof ids), ASP_ERR_USAGE, "no input 'NULL'");
    SAYS(asp_trainer_input(t, "ids", ids, 8), ASP_ERR_USAGE, "ids takes 128 bytes, not 8");
    SAYS(asp_trainer_input(t, "ids", NULL, sizeof ids), ASP_ERR_USAGE, "ids: the data is NULL");
    ids[5] = VOCAB;
    SAYS(asp_trainer_input(t, "ids", ids, sizeof ids), ASP_ERR_INPUT,
         "ids: element 5 is 13; 0 to 12 are possible");
    ids[5] = -100;
    SAYS(asp_trainer_input(t, "ids", ids, sizeof ids), ASP_ERR_INPUT, "element 5 is -100");
    WELL(cx, asp_trainer_input(t, "labels", ids, sizeof ids));
    ids[5] = -99;
    SAYS(asp_trainer_input(t, "labels", ids, sizeof ids), ASP_ERR_INPUT, "or -100 to ignore it");
    SAYS(asp_trainer_update(t, -1, NULL), ASP_ERR_USAGE, "no gradients");
    SAYS(asp_trainer_update(t, (double)NAN, NULL), ASP_ERR_USAGE, "lr is nan");
    SAYS(asp_trainer_read(t, ASP_SLAB_PARAM, "w", w, sizeof w), ASP_ERR_USAGE, "no parameter 'w'");
    SAYS(asp_trainer_read(t, ASP_SLAB_PARAM, "wq", w, 3), ASP_ERR_USAGE, "wq takes 256 bytes");
    SAYS(asp_trainer_read(t, (asp_slab)7, "wq", w, sizeof w), ASP_ERR_USAGE, "no slab 7");
    SAYS(asp_trainer_save(t, NULL), ASP_ERR_USAGE, "the folder is NULL");
    give_batch(cx, t, 0);
    SAYS(asp_trainer_step(t, NULL), ASP_ERR_USAGE, "NULL");
    step_of(cx, t);
    asp_trainer_destroy(t);
    asp_compiled_destroy(c);
    WELL(cx, asp_model_compile(m, "seq = 8, comm = mpi", &c));
    SAYS(asp_trainer_create(c, &t), ASP_ERR_UNSUPPORTED, "threads of this process");
    asp_compiled_destroy(c);
    // More memory than there are addresses: the ranks fail, the process does not.
    WELL(cx, asp_model_compile(m, "seq = 1099511627776, ranks = 2, threads = 1", &c));
    for (int i = 0; i < 50; i++) // ranks that end before anybody waits for them
        assert_true(asp_trainer_create(c, &t) == ASP_ERR_NOMEM);
    asp_compiled_destroy(c);
    assert_int_equal(asp_trainer_create(NULL, &t), ASP_ERR_USAGE);
    assert_int_equal(asp_trainer_step(NULL, &loss), ASP_ERR_USAGE);
    asp_trainer_destroy(NULL);
    asp_compiled_destroy(NULL);
    asp_model_destroy(m);
    asp_ctx_destroy(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(two_ranks_do_what_one_does),
        cmocka_unit_test(split_by_hand_is_split_by_the_compiler),
        cmocka_unit_test(plans_answer),
        cmocka_unit_test(a_saved_run_goes_on),
        cmocka_unit_test(bad_options_have_messages),
        cmocka_unit_test(bad_arguments_have_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
