// Trainers over several steps: lengths that change, micro-batches, clipping, several in a process.
// Neighbours: support/decoder.h (the model), autosp.h (what is called).
// SPDX-License-Identifier: Apache-2.0
#include "cases/support/decoder.h"

#include "train/train.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>

#define BOUND 1e-12
#define MOST 4096 // elements of a parameter
#define HEAD                                                                    \
    "graph t {\n%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n" \
    "%y : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n%pos : i64[S] = iota\n"

typedef struct run {
    asp_ctx *cx;
    asp_compiled *c;
    asp_trainer *t;
} run;

#define WELL(r, call)                                                              \
    do {                                                                           \
        if ((call) != ASP_OK) fail_msg("%s: %s", #call, asp_ctx_message((r)->cx)); \
    } while (0)

static run open_body(const char *body, const char *options)
{
    run r = {.cx = asp_ctx_create()};
    asp_model *m;
    size_t bytes = sizeof HEAD + strlen(body) + 64;
    char *text = malloc(bytes);
    assert_non_null(text);
    snprintf(text, bytes, "%s%s\nreturn \"loss\" = %%loss\n}\n", HEAD, body);
    WELL(&r, asp_model_parse(r.cx, "program", text, strlen(text), &m));
    WELL(&r, asp_model_compile(m, options, &r.c));
    WELL(&r, asp_trainer_create(r.c, &r.t));
    asp_model_destroy(m);
    free(text);
    return r;
}

static run open_decoder(const char *options)
{
    const decoder d = decoder_default();
    char *body = decoder_text(&d);
    run r = open_body(body, options);
    free(body);
    return r;
}

static void shut(run *r)
{
    asp_trainer_destroy(r->t);
    asp_compiled_destroy(r->c);
    asp_ctx_destroy(r->cx);
}

static void give(run *r, const char *name, const int64_t *at, int64_t count)
{
    WELL(r, asp_trainer_input(r->t, name, at, (size_t)count * sizeof *at));
}

// Two rows of seq tokens of the vocabulary; some labels are ignored, more in the first half.
static void give_batch(run *r, int64_t seq, int64_t salt)
{
    int64_t ids[64], labels[64];
    for (int64_t i = 0; i < 2 * seq; i++) {
        ids[i] = (i * 7 + salt * 5 + i * i) % 31;
        labels[i] = i % seq < seq / 2 && i % 3 == salt % 3 ? -100 : (i * 11 + salt) % 31;
    }
    give(r, "ids", ids, 2 * seq);
    give(r, "labels", labels, 2 * seq);
}

static double step(run *r)
{
    double loss;
    WELL(r, asp_trainer_step(r->t, &loss));
    return loss;
}

static size_t read_slab(run *r, asp_slab slab, size_t i, double *at)
{
    asp_tensor_info p;
    if (!asp_compiled_param(r->c, i, &p)) return 0;
    assert_true((size_t)p.bytes <= MOST * sizeof *at);
    WELL(r, asp_trainer_read(r->t, slab, p.name, at, (size_t)p.bytes));
    return (size_t)p.bytes / sizeof *at;
}

static void plain_step(run *r, double rate)
{
    static double w[MOST], g[MOST];
    asp_tensor_info p;
    for (size_t i = 0, n; (n = read_slab(r, ASP_SLAB_PARAM, i, w)) > 0; i++) {
        read_slab(r, ASP_SLAB_GRAD, i, g);
        for (size_t k = 0; k < n; k++) w[k] -= rate * g[k];
        asp_compiled_param(r->c, i, &p);
        WELL(r, asp_trainer_write(r->t, ASP_SLAB_PARAM, p.name, w, n * sizeof *w));
    }
}

static double norm_of(run *r, asp_slab slab)
{
    static double x[MOST];
    double sum = 0;
    for (size_t i = 0, n; (n = read_slab(r, slab, i, x)) > 0; i++)
        for (size_t k = 0; k < n; k++) sum += x[k] * x[k];
    return sqrt(sum);
}

// By parameter, against its norm or 1 % of the norm of all.
static void same_slab(run *a, run *b, asp_slab slab, const char *what)
{
    static double x[MOST], y[MOST];
    const double all = norm_of(a, slab);
    for (size_t i = 0, n; (n = read_slab(a, slab, i, x)) > 0; i++) {
        double error = 0, size = 0;
        assert_int_equal(read_slab(b, slab, i, y), n);
        for (size_t k = 0; k < n; k++) {
            error += (x[k] - y[k]) * (x[k] - y[k]);
            size += x[k] * x[k];
        }
        if (!(sqrt(error) <= BOUND * fmax(sqrt(size), 0.01 * all)))
            fail_msg("%s: parameter %zu differs by %.2e of %.2e", what, i, sqrt(error), sqrt(size));
    }
}

static void same_step(run *one, run *many, const char *what)
{
    const double a = step(one), b = step(many);
    if (!(fabs(a - b) <= BOUND * fabs(a))) fail_msg("%s: loss %.17g, not %.17g", what, b, a);
    same_slab(one, many, ASP_SLAB_GRAD, what);
}

static const struct {
    const char *sp;
    int ranks;
} ways[] = {{"ulysses", 2}, {"ulysses", 4}, {"ring", 2},       {"ring", 4},
            {"auto", 2},    {"auto", 4},    {"hybrid:2x2", 4}, {"hybrid:2x4", 8}};

static run open_way(size_t i, const char *more)
{
    char options[160];
    snprintf(options, sizeof options, "batch = 2, seq = 8, ranks = %d, sp = %s, threads = 1%s",
             ways[i].ranks, ways[i].sp, more);
    return open_decoder(options);
}

// One trainer whose sequences have 8, 12, 8 and 9 tokens, against one that was compiled for each
// length and goes on from the same parameters; a plain step and one of AdamW behind each.
static void sp_case_07(void **state)
{
    (void)state;
    static const int64_t lengths[] = {8, 12, 8, 9};
    for (size_t i = 0; i < ASP_COUNT_OF(ways); i++) {
        run many = open_way(i, ""), one = open_decoder("batch = 2, seq = 8, threads = 1");
        for (int s = 0; s < 4; s++) {
            char what[64], options[64];
            snprintf(what, sizeof what, "%s on %d ranks, step %d", ways[i].sp, ways[i].ranks, s);
            snprintf(options, sizeof options, "batch = 2, seq = %d, threads = 1", (int)lengths[s]);
            run fresh = open_decoder(options);
            WELL(&many, asp_trainer_resize(many.t, lengths[s]));
            WELL(&one, asp_trainer_resize(one.t, lengths[s]));
            give_batch(&many, lengths[s], s), give_batch(&one, lengths[s], s);
            give_batch(&fresh, lengths[s], s);
            same_step(&one, &many, what);
            if (s == 0) same_step(&fresh, &many, what); // parameters are those of the seed still
            plain_step(&one, 0.1), plain_step(&many, 0.1);
            same_slab(&one, &many, ASP_SLAB_PARAM, what);
            shut(&fresh);
        }
        shut(&many), shut(&one);
    }
}

// The stretched trainer is right on one rank too: fresh ones with its parameters agree.
static void sp_case_07_fresh(void **state)
{
    (void)state;
    static const int64_t lengths[] = {8, 12, 8, 9};
    static double w[MOST];
    run one = open_decoder("batch = 2, seq = 8, threads = 1");
    for (int s = 0; s < 4; s++) {
        char options[64];
        asp_tensor_info p;
        snprintf(options, sizeof options, "batch = 2, seq = %d, threads = 1", (int)lengths[s]);
        run fresh = open_decoder(options);
        for (size_t i = 0, n; (n = read_slab(&one, ASP_SLAB_PARAM, i, w)) > 0; i++) {
            asp_compiled_param(one.c, i, &p);
            WELL(&fresh, asp_trainer_write(fresh.t, ASP_SLAB_PARAM, p.name, w, n * sizeof *w));
        }
        WELL(&one, asp_trainer_resize(one.t, lengths[s]));
        give_batch(&one, lengths[s], s), give_batch(&fresh, lengths[s], s);
        same_step(&fresh, &one, "a fresh one");
        plain_step(&one, 0.1);
        shut(&fresh);
    }
    shut(&one);
}

static void sp_case_07_refused(void **state)
{
    (void)state;
    run r = open_way(1, "");
    assert_int_equal(asp_trainer_resize(r.t, 3), ASP_ERR_UNSUPPORTED);
    assert_non_null(strstr(asp_ctx_message(r.cx), "a sequence of 3 tokens cannot be split over 4"));
    assert_int_equal(asp_trainer_resize(r.t, 0), ASP_ERR_USAGE);
    give_batch(&r, 8, 0); // and goes on
    assert_true(isfinite(step(&r)));
    double loss;
    WELL(&r, asp_trainer_resize(r.t, 12));
    assert_int_equal(asp_trainer_step(r.t, &loss), ASP_ERR_USAGE); // inputs are to be given again
    shut(&r);
}

// ---- micro-batches -----------------------------------------------------------------------------

// Logits with which position t has the loss each[t] for target t mod 3; 0: no target.
typedef struct micro {
    double each[8];
} micro;

static void fill_micro(const micro *m, double *x, int64_t *ids, int64_t *labels)
{
    labels[0] = -100;
    for (int t = 0; t < 8; t++) {
        const double loss = m->each[t] > 0 ? m->each[t] : 2, rest = log((1 - exp(-loss)) / 2);
        for (int v = 0; v < 3; v++) x[3 * t + v] = v == t % 3 ? -loss : rest;
        ids[t] = t;
        if (t < 7) labels[t + 1] = m->each[t] > 0 ? t % 3 : -100;
    }
}

static void give_micro(run *r, const micro *m)
{
    double x[24];
    int64_t ids[8], labels[8];
    fill_micro(m, x, ids, labels);
    give(r, "ids", ids, 8);
    give(r, "labels", labels, 8);
    WELL(r, asp_trainer_write(r->t, ASP_SLAB_PARAM, "logits", x, sizeof x));
}

#define TOY(rows)                                         \
    "%w : f64[" rows ", 3] = param {name = \"logits\"}\n" \
    "%x : f64[B, S, 3] = embedding %ids, %w\n"            \
    "%n : i64[B, S] = shift %y\n%loss : f64[] = cross_entropy %x, %n\n"

// The mean loss of the micro-batches, and the gradients of the last one's logits against those of
// weights by hand.
static void mean_of(const micro *m, int n, const char *sp, int ranks, const char *weigh,
                    double want, const double *weight)
{
    char options[160];
    double loss, g[24], sum[24] = {0}, all;
    snprintf(options, sizeof options,
             "seq = 8, ranks = %d, sp = %s, threads = 1, accumulate = 2, weigh = %s", ranks, sp,
             weigh);
    run r = open_body(TOY("8"), options);
    for (int i = 0; i < n; i++) {
        int64_t targets, valid = 0;
        for (int t = 0; t < 8; t++) valid += m[i].each[t] > 0;
        give_micro(&r, &m[i]);
        step(&r);
        read_slab(&r, ASP_SLAB_GRAD, 0, g);
        for (int k = 0; k < 24; k++) sum[k] += weight[i] * g[k];
        WELL(&r, asp_trainer_targets(r.t, &targets));
        assert_int_equal(targets, valid);
        WELL(&r, asp_trainer_accumulate(r.t, i + 1 == n, &loss));
    }
    if (!(fabs(loss - want) <= BOUND * want))
        fail_msg("%s on %d ranks, %s: %.17g, not %.17g", sp, ranks, weigh, loss, want);
    read_slab(&r, ASP_SLAB_GRAD, 0, g);
    for (int k = 0; k < 24; k++) assert_true(fabs(g[k] - sum[k]) <= BOUND);
    WELL(&r, asp_trainer_update(r.t, 1e-3, &all));
    shut(&r);
}

static void both_policies(const micro *m, int n, double tokens, const double *by_token,
                          double batches, const double *alike)
{
    static const char *const sp[] = {"ulysses", "ring", "auto"};
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int i = 0; i < 3; i++) {
            mean_of(m, n, sp[i], ranks, "tokens", tokens, by_token);
            mean_of(m, n, sp[i], ranks, "batches", batches, alike);
        }
}

// ---- replicas ----------------------------------------------------------------------------------

// n rows as one batch: those of replica 0, then those of replica 1.
static void give_rows(run *r, const micro *m, int n)
{
    double x[4 * 24];
    int64_t ids[4 * 8], labels[4 * 8];
    for (int i = 0; i < n; i++) fill_micro(&m[i], x + 24 * i, ids + 8 * i, labels + 8 * i);
    for (int t = 0; t < 8 * n; t++) ids[t] = t; // rows of the table of their own
    give(r, "ids", ids, 8 * n);
    give(r, "labels", labels, 8 * n);
    WELL(r, asp_trainer_write(r->t, ASP_SLAB_PARAM, "logits", x, 24 * (size_t)n * sizeof *x));
}

// The gradient of one row's loss by its logits, on one device.
static void gradient_alone(const micro *m, double *g)
{
    run r = open_body(TOY("8"), "seq = 8, threads = 1");
    give_micro(&r, m);
    step(&r);
    read_slab(&r, ASP_SLAB_GRAD, 0, g);
    shut(&r);
}

// Two replicas of `ranks` ranks, each with one row.
static void replicas_mean(const micro *two, const char *sp, int ranks, const char *weigh,
                          double want, const double *weight)
{
    char options[160];
    double g[48], alone[24], all;
    int64_t targets, valid = 0;
    snprintf(options, sizeof options,
             "seq = 8, batch = 2, dp = 2, ranks = %d, sp = %s, threads = 1, weigh = %s", ranks, sp,
             weigh);
    run r = open_body(TOY("16"), options);
    give_rows(&r, two, 2);
    const double loss = step(&r);
    if (!(fabs(loss - want) <= BOUND * want))
        fail_msg("2 replicas of %d ranks, %s, %s: %.17g, not %.17g", ranks, sp, weigh, loss, want);
    read_slab(&r, ASP_SLAB_GRAD, 0, g);
    for (int i = 0; i < 2; i++) {
        for (int t = 0; t < 8; t++) valid += two[i].each[t] > 0;
        gradient_alone(&two[i], alone);
        for (int k = 0; k < 24; k++)
            assert_true(fabs(g[24 * i + k] - weight[i] * alone[k]) <= BOUND);
    }
    WELL(&r, asp_trainer_targets(r.t, &targets));
    assert_int_equal(targets, valid);
    WELL(&r, asp_trainer_update(r.t, 1e-3, &all));
    shut(&r);
}

// Batches of two replicas, at once and one behind the other: the mean is the same.
static void sp_case_13(void **state)
{
    (void)state;
    static const char *const sp[] = {"ulysses", "ring", "auto"};
    static const micro two[] = {{{1, 0, 0, 0, 0, 3}}, {{2, 3, 4, 6, 7, 8}}};
    const double by_token[] = {2 / 8.0, 6 / 8.0}, alike[] = {0.5, 0.5};
    both_policies(two, 2, 34 / 8.0, by_token, 3.5, alike);
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int i = 0; i < 3; i++) {
            replicas_mean(two, sp[i], ranks, "tokens", 34 / 8.0, by_token);
            replicas_mean(two, sp[i], ranks, "batches", 3.5, alike);
        }
    // A replica without a target weighs nothing: no 0/0 reaches the others.
    static const micro empty[] = {{{0}}, {{2, 3, 4, 6, 7, 8}}};
    double g[24], loss;
    run r = open_body(TOY("16"), "seq = 8, batch = 2, dp = 2, ranks = 2, threads = 1");
    give_rows(&r, empty, 2);
    loss = step(&r);
    assert_true(fabs(loss - 5) <= BOUND * 5);
    gradient_alone(&empty[1], g);
    double got[48];
    read_slab(&r, ASP_SLAB_GRAD, 0, got);
    for (int k = 0; k < 24; k++) {
        assert_true(got[k] == 0);
        assert_true(fabs(got[24 + k] - g[k]) <= BOUND);
    }
    shut(&r);
}

// Replicas and micro-batches at once: 2 x 2 rows, each counted once.
static void sp_case_13_accumulated(void **state)
{
    (void)state;
    static const micro rows[] = {{{1, 0, 0, 0, 0, 3}}, {{2, 3, 4, 6, 7, 8}}, {{5}}, {{1, 1, 1}}};
    static const struct {
        const char *weigh;
        double loss;
    } policies[] = {{"tokens", 42 / 12.0}, {"batches", (2 + 5 + 5 + 1) / 4.0}};
    for (size_t p = 0; p < ASP_COUNT_OF(policies); p++) {
        char options[128];
        double loss;
        snprintf(options, sizeof options,
                 "seq = 8, batch = 2, dp = 2, ranks = 2, threads = 1, accumulate = 2, weigh = %s",
                 policies[p].weigh);
        run r = open_body(TOY("16"), options);
        for (int m = 0; m < 2; m++) {
            give_rows(&r, rows + 2 * m, 2);
            step(&r);
            WELL(&r, asp_trainer_accumulate(r.t, m == 1, &loss));
        }
        assert_true(fabs(loss - policies[p].loss) <= BOUND * loss);
        shut(&r);
    }
}

// Sequences of a step shared out over replicas: loss, gradients and parameters of one device with
// all of them, also where their lengths change.
static void sp_case_13_decoder(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(ways); i++) {
        if (ways[i].ranks > 4) continue;
        run one = open_decoder("batch = 2, seq = 8, threads = 1"), many = open_way(i, ", dp = 2");
        double norm[2];
        for (int64_t seq = 8; seq <= 9; seq++) {
            WELL(&many, asp_trainer_resize(many.t, seq));
            WELL(&one, asp_trainer_resize(one.t, seq));
            give_batch(&one, seq, 0), give_batch(&many, seq, 0);
            same_step(&one, &many, ways[i].sp);
        }
        WELL(&one, asp_trainer_update(one.t, 0.1, &norm[0]));
        WELL(&many, asp_trainer_update(many.t, 0.1, &norm[1]));
        assert_true(fabs(norm[0] - norm[1]) <= BOUND * norm[0]);
        same_slab(&one, &many, ASP_SLAB_PARAM, ways[i].sp);
        shut(&many), shut(&one);
    }
}

// Bytes that a rank receives in a step are those of the plan, whatever the replicas.
static void sp_case_13_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(ways); i++) {
        if (ways[i].ranks > 4) continue;
        run r = open_way(i, ", dp = 2");
        int64_t planned = 0;
        asp_exchange_info x;
        for (size_t k = 0; asp_compiled_exchange(r.c, k, &x); k++) planned += x.bytes;
        give_batch(&r, 8, 0);
        step(&r);
        assert_int_equal(asp_trainer_exchanged_bytes(r.t), planned);
        shut(&r);
    }
}

static void refused(const char *body, const char *options, const char *why)
{
    run r = {.cx = asp_ctx_create()};
    asp_model *m;
    char text[1024];
    snprintf(text, sizeof text, "%s\nreturn \"loss\" = %%loss\n}\n", body);
    WELL(&r, asp_model_parse(r.cx, "program", text, strlen(text), &m));
    assert_true(asp_model_compile(m, options, &r.c) < 0);
    if (!strstr(asp_ctx_message(r.cx), why)) fail_msg("%s", asp_ctx_message(r.cx));
    asp_model_destroy(m);
    asp_ctx_destroy(r.cx);
}

static void sp_case_13_refused(void **state)
{
    (void)state;
    static const char *const plain = HEAD TOY("16");
    refused(plain, "batch = 3, dp = 2", "3 sequences cannot be shared out over 2 replicas");
    refused(plain, "batch = 1, dp = 2", "give --batch 2");
    refused(plain, "dp = 0", "1 replica or more");
    refused(plain, "batch = 600, dp = 600, ranks = 2", "at most 1024 ranks in all");
    refused("graph t {\n%ids : i64[S] = input {name = \"ids\", role = \"tokens\"}\n"
            "%y : i64[S] = input {name = \"labels\", role = \"labels\"}\n"
            "%w : f64[8, 3] = param {name = \"w\"}\n%x : f64[S, 3] = embedding %ids, %w\n"
            "%loss : f64[] = cross_entropy %x, %y",
            "batch = 2, dp = 2", "has no input with a dimension B");
    refused("graph t {\n%ids : i64[B*S] = input {name = \"ids\", role = \"tokens\"}\n"
            "%y : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
            "%w : f64[8, 3] = param {name = \"w\"}\n%e : f64[B*S, 3] = embedding %ids, %w\n"
            "%x : f64[B, S, 3] = view %e {shape = [B, S, 3]}\n"
            "%loss : f64[] = cross_entropy %x, %y",
            "batch = 2, dp = 2", "cannot be shared out over replicas");
}

static void sp_case_14(void **state)
{
    (void)state;
    static const micro two[] = {{{1, 2, 3, 10, 5, 6, 7}}, {{1, 0, 0, 0, 1, 1}}};
    both_policies(two, 2, 3.7, (double[]){0.7, 0.3}, (34 / 7.0 + 1) / 2, (double[]){0.5, 0.5});
    // One without a target does not count by tokens.
    static const micro three[] = {{{1, 2, 3, 10, 5, 6, 7}}, {{0}}, {{1, 0, 0, 0, 1, 1}}};
    const double weight[] = {0.7, 0, 0.3};
    mean_of(three, 3, "auto", 2, "tokens", 3.7, weight);
}

// ---- the optimizer -----------------------------------------------------------------------------

// The gradient norm, and parameters behind a step that is clipped at half of it.
static void sp_case_39(void **state)
{
    (void)state;
    run plain = open_decoder("batch = 2, seq = 8, threads = 1, clip = 0");
    give_batch(&plain, 8, 0);
    step(&plain);
    const double norm = norm_of(&plain, ASP_SLAB_GRAD);
    char clip[48];
    double got;
    snprintf(clip, sizeof clip, ", clip = %.17g", norm / 2);
    for (size_t i = 0; i < ASP_COUNT_OF(ways); i++) {
        char options[96];
        snprintf(options, sizeof options, "batch = 2, seq = 8, threads = 1%s", clip);
        run one = open_decoder(options), many = open_way(i, clip);
        give_batch(&one, 8, 0), give_batch(&many, 8, 0);
        same_step(&one, &many, ways[i].sp);
        WELL(&one, asp_trainer_update(one.t, 0.1, &got));
        assert_true(fabs(got - norm) <= BOUND * norm);
        WELL(&many, asp_trainer_update(many.t, 0.1, &got));
        assert_true(fabs(got - norm) <= BOUND * norm);
        // The first mean is a tenth of the clipped gradient.
        assert_true(fabs(norm_of(&many, ASP_SLAB_M) - 0.1 * norm / 2) <= BOUND * norm);
        same_slab(&one, &many, ASP_SLAB_M, ways[i].sp);
        same_slab(&one, &many, ASP_SLAB_V, ways[i].sp);
        same_slab(&one, &many, ASP_SLAB_PARAM, ways[i].sp);
        shut(&one), shut(&many);
    }
    shut(&plain);
}

// ---- several in one process --------------------------------------------------------------------

static void sp_case_45(void **state)
{
    (void)state;
    static const char *const options[] = {"batch = 2, seq = 8, ranks = 2, threads = 1",
                                          "batch = 2, seq = 12, ranks = 4, threads = 1, seed = 7"};
    static const char *const alone[] = {"batch = 2, seq = 8, threads = 1",
                                        "batch = 2, seq = 12, threads = 1, seed = 7"};
    static const int64_t seq[] = {8, 12};
    run many[2], one[2];
    for (int i = 0; i < 2; i++) many[i] = open_decoder(options[i]), one[i] = open_decoder(alone[i]);
    for (int s = 0; s < 6; s++) {
        for (int i = 0; i < 2; i++) {
            if (i == 0 && s >= 4) continue; // gone
            give_batch(&many[i], seq[i], s), give_batch(&one[i], seq[i], s);
            same_step(&one[i], &many[i], options[i]);
            plain_step(&one[i], 0.1), plain_step(&many[i], 0.1);
        }
        if (s == 3) shut(&many[0]), shut(&one[0]);
    }
    shut(&many[1]), shut(&one[1]);
}

// A hundred are made, stepped and taken down; the process does not grow.
static void sp_case_45_rebuilt(void **state)
{
    (void)state;
    int64_t before = 0;
    for (int i = 0; i < 100; i++) {
        run r = open_decoder(i % 2 ? "batch = 2, seq = 8, ranks = 2, threads = 1"
                                   : "batch = 2, seq = 8, ranks = 4, threads = 1");
        give_batch(&r, 8, i);
        assert_true(isfinite(step(&r)));
        WELL(&r, asp_trainer_resize(r.t, 9));
        shut(&r);
        if (i == 19) before = asp_process_anon_bytes();
    }
    const int64_t grown = asp_process_anon_bytes() - before;
    if (grown > (int64_t)8 << 20) fail_msg("80 rebuilds took %lld bytes", (long long)grown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sp_case_07),
                                       cmocka_unit_test(sp_case_07_fresh),
                                       cmocka_unit_test(sp_case_07_refused),
                                       cmocka_unit_test(sp_case_13),
                                       cmocka_unit_test(sp_case_13_accumulated),
                                       cmocka_unit_test(sp_case_13_decoder),
                                       cmocka_unit_test(sp_case_13_bytes),
                                       cmocka_unit_test(sp_case_13_refused),
                                       cmocka_unit_test(sp_case_14),
                                       cmocka_unit_test(sp_case_39),
                                       cmocka_unit_test(sp_case_45),
                                       cmocka_unit_test(sp_case_45_rebuilt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
