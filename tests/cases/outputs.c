// Programs without labels: what they return is whole on every rank, in the order of the sequence;
// losses that are made of it outside.  Neighbours: support/decoder.h.
// SPDX-License-Identifier: Apache-2.0
#include "cases/support/decoder.h"

#include <math.h>
#include <stdlib.h>

#define BOUND 1e-12
#define ROOM 1024 // numbers of what is returned

typedef struct inference {
    const char *text, *sp;
    int64_t ranks, seq;
    asp_plan *plan;
    double at[ROOM]; // of rank 0
    int64_t count;
    bool agree;
} inference;

static asp_status compile(asp_ctx *cx, void *arg)
{
    inference *j = arg;
    asp_graph *g;
    const asp_compile_options o = {.ranks = j->ranks,
                                   .batch = 2,
                                   .seq = j->seq,
                                   .threads = 1,
                                   .sp = j->sp,
                                   .ac = "none",
                                   .backend = ASP_COMM_thread,
                                   .whole_outputs = true,
                                   .inference = true};
    ASP_TRY(asp_graph_parse(cx, "program", j->text, strlen(j->text), &g));
    asp_status s = asp_compile(cx, g, &o, NULL, &j->plan);
    asp_graph_destroy(g);
    return s;
}

static asp_status run_rank(inference *j, asp_rank *r, asp_comm *comm, asp_team *team)
{
    const asp_plan *p = j->plan;
    const asp_plan_output *o = asp_plan_get_output(p, 0);
    double loss, all[8], sum = 0;
    for (int i = 0; i < asp_plan_n_params(p); i++) {
        const asp_plan_param *x = asp_plan_get_param(p, i);
        double *w = (double *)asp_rank_slab(r, ASP_SLAB_PARAM) + x->offset;
        for (int64_t k = 0; k < x->count; k++) w[k] = 0.4 * sin(0.7 * (double)(k + 13 * i) + 1);
    }
    for (int i = 0; i < asp_plan_n_inputs(p); i++) {
        int64_t *at = asp_rank_input(r, i), n = asp_plan_get_input(p, i)->bytes / 8;
        for (int64_t k = 0; k < n; k++) at[k] = (k * 7 + i) % 31;
    }
    ASP_TRY(asp_rank_step(r, &loss));
    assert_int_equal(asp_plan_n_outputs(p), 1);
    const double *at = asp_rank_output(r, 0);
    const int64_t count = o->bytes / (int64_t)sizeof *at;
    assert_true(count <= ROOM);
    for (int64_t k = 0; k < count; k++) sum += at[k] * (double)(k + 1);
    ASP_TRY(asp_comm_all_gather(comm, team, &sum, sizeof sum, all));
    if (asp_comm_rank(comm) != 0) return ASP_OK;
    j->count = count; // one rank's to write
    memcpy(j->at, at, (size_t)o->bytes);
    j->agree = true;
    for (int i = 1; i < asp_comm_ranks(comm); i++) j->agree &= all[i] == all[0];
    return ASP_OK;
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    inference *j = arg;
    asp_team *team;
    asp_rank *r;
    ASP_TRY(asp_team_create(cx, 1, -1, &team));
    ASP_TRY(asp_rank_create(cx, j->plan, comm, team, &r));
    asp_status s = run_rank(j, r, comm, team);
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return s;
}

static void infer(inference *j)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_status s = asp_guard(&cx, compile, j);
    if (s == ASP_OK) {
        s = asp_ranks_run(&cx, ASP_COMM_thread, (int)j->ranks, rank_main, j);
        asp_plan_destroy(j->plan);
    }
    if (s < 0) fail_msg("%lld ranks, %s: %s", (long long)j->ranks, j->sp, cx.message);
}

// The decoder with `head` behind its logits %x, which returns %out; no labels.
static char *program(const char *head)
{
    decoder d = decoder_default();
    d.loss = head;
    char *body = decoder_text(&d), *text;
    size_t bytes = strlen(body) + 256;
    text = malloc(bytes);
    assert_non_null(text);
    snprintf(text, bytes,
             "graph t {\n%%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
             "%%pos : i64[S] = iota\n%s\nreturn \"out\" = %%out\n}\n",
             body);
    free(body);
    return text;
}

static void whole_and_in_order(const char *head, int64_t width)
{
    char *text = program(head);
    for (int64_t seq = 8; seq <= 11; seq += 3) {
        inference one = {.text = text, .sp = "auto", .ranks = 1, .seq = seq};
        infer(&one);
        assert_int_equal(one.count, 2 * seq * width);
        for (const sp_strategy *s = sp_strategies; s->sp; s++)
            for (int64_t ranks = 2; ranks <= 8; ranks *= 2) {
                if (s->ranks && s->ranks != ranks) continue;
                inference many = {.text = text, .sp = s->sp, .ranks = ranks, .seq = seq};
                infer(&many);
                assert_int_equal(many.count, one.count);
                if (!many.agree)
                    fail_msg("%s on %lld ranks: ranks differ", s->sp, (long long)ranks);
                for (int64_t i = 0; i < one.count; i++)
                    if (!(fabs(one.at[i] - many.at[i]) <= BOUND * fmax(1, fabs(one.at[i]))))
                        fail_msg("%s on %lld ranks: number %lld is %.17g, not %.17g", s->sp,
                                 (long long)ranks, (long long)i, many.at[i], one.at[i]);
            }
    }
    free(text);
}

#define TARGETS "%t : i64[B, S] = add_scalar %ids {value = 0}\n"
#define LOG_PROBABILITIES TARGETS "%nll : f64[B, S] = cross_entropy %x, %t {reduction = \"none\"}\n"

static void sp_case_44(void **state)
{
    (void)state;
    whole_and_in_order("%out : f64[B, S, 31] = mul_scalar %x {value = 1}\n", 31);
    whole_and_in_order(LOG_PROBABILITIES "%out : f64[B, S] = neg %nll\n", 1);
}

// -log sigma(0.1 (sum of log p of row 0 - that of row 1)), in the program: every rank has its
// tokens alone.
static void sp_case_44_local(void **state)
{
    (void)state;
    decoder d = decoder_default();
    d.loss = LOG_PROBABILITIES
        "%rows : f64[B] = sum %nll {dims = [1]}\n"
        "%first : f64[] = select %rows {dim = 0, at = 0}\n"
        "%second : f64[] = select %rows {dim = 0, at = 1}\n"
        "%gap : f64[] = sub %first, %second\n%z : f64[] = mul_scalar %gap {value = 0.1}\n"
        "%loss : f64[] = softplus %z\n"; // nll is -log p: z stands negative in the sigmoid
    decoder_check(&d, "none");
}

// The same made outside of whole log-probabilities: its derivative by each goes in again.
static void sp_case_44_gathered(void **state)
{
    (void)state;
    decoder d = decoder_default();
    d.loss = LOG_PROBABILITIES "%rows : f64[B] = sum %nll {dims = [1]}\n"
                               "%first : f64[] = select %rows {dim = 0, at = 0}\n"
                               "%second : f64[] = select %rows {dim = 0, at = 1}\n"
                               "%gap : f64[] = sub %first, %second\n"
                               "%z : f64[] = mul_scalar %gap {value = 0.1}\n"
                               "%loss : f64[] = softplus %z\n";
    char *whole = decoder_text(&d);
    d.loss = LOG_PROBABILITIES "%outside : f64[B, S] = input {name = \"outside\"}\n"
                               "%nw : f64[B, S] = mul %nll, %outside\n"
                               "%loss : f64[] = sum %nw {dims = [0, 1]}\n";
    char *again = decoder_text(&d);
    sp_case c = decoder_case(whole);
    text_result want = sp_run(&c, 1, "auto");
    // z from the loss: softplus(z) = loss.  Each token of row 0 has sigma(z) / 10, of row 1 less.
    const double z = log(expm1(want.loss)), each = 0.1 / (1 + exp(-z));
    double outside[16];
    for (int i = 0; i < 16; i++) outside[i] = i < 8 ? each : -each;
    c.body = again;
    c.given[1] = (text_value){"outside", 16, outside};
    for (const sp_strategy *s = sp_strategies; s->sp; s++)
        for (int64_t ranks = 1; ranks <= 8; ranks *= 2) {
            if (s->ranks && s->ranks != ranks) continue;
            text_result got = sp_run(&c, ranks, s->sp);
            const double error = text_gradient_error(&want, &got);
            if (!(error <= 1e-11)) fail_msg("%s on %d ranks: %.2e", s->sp, (int)ranks, error);
            assert_true(got.ranks_agree);
            text_free(&got);
        }
    text_free(&want);
    free(whole), free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sp_case_44),
                                       cmocka_unit_test(sp_case_44_local),
                                       cmocka_unit_test(sp_case_44_gathered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
