// Losses in all their forms on the toys of the acceptance cases, on 1 to 4 ranks (8 positions: 3
// do not divide them): logits are log-probabilities, the label of position t is t mod 3, and its
// loss is what the toy says.  And statistics over all tokens, on the same logits.
// References are the sums written out from torch's definitions.  Neighbours: op_harness_test.c
// (derivatives), kern/rows_test.c (kernels).  SPDX-License-Identifier: Apache-2.0
#include "run/compile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define SEQ 8
#define CLASSES 3

typedef struct toy {
    const char *loss; // nodes from the logits %x, labels %y and class weights %k to %loss
    double scale;     // of the logits
    double each[SEQ]; // loss of each position; 0: ignored
    int64_t ranks;
    double result, gradient[SEQ * CLASSES];
} toy;

static void put_logits(const toy *t, double *x)
{
    for (int s = 0; s < SEQ; s++) {
        const double loss = t->each[s] > 0 ? t->each[s] : 2, rest = log((1 - exp(-loss)) / 2);
        for (int v = 0; v < CLASSES; v++) x[s * CLASSES + v] = v == s % 3 ? -loss : rest;
    }
}

typedef struct job {
    toy *t;
    const asp_plan *plan;
} job;

static asp_status compile(asp_ctx *cx, const toy *t, asp_plan **out_plan)
{
    char text[2048];
    asp_graph *g;
    snprintf(text, sizeof text,
             "graph t {\n"
             "%%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
             "%%y : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
             "%%w : f64[8, 3] = param {name = \"w\"}\n"
             "%%n : i64[3] = iota {start = 0}\n%%n1 : f64[3] = cast %%n {to = f64}\n"
             "%%n2 : f64[3] = mul_scalar %%n1 {value = 0.6931471805599453}\n"
             "%%k : f64[3] = exp %%n2\n" // 1, 2, 4
             "%%x0 : f64[B, S, 3] = embedding %%ids, %%w\n"
             "%%x : f64[B, S, 3] = mul_scalar %%x0 {value = %.17g}\n%s\n"
             "return \"loss\" = %%loss\n}\n",
             t->scale, t->loss);
    asp_compile_options o = {
        .ranks = t->ranks, .batch = 1, .seq = SEQ, .threads = 1, .sp = "auto", .ac = "none"};
    ASP_TRY(asp_graph_parse(cx, "toy", text, strlen(text), &g));
    cx->verify_each_pass = true;
    asp_status s = asp_compile(cx, g, &o, NULL, out_plan);
    asp_graph_destroy(g);
    return s;
}

static asp_status one_rank(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    asp_team *team;
    asp_rank *r;
    double loss;
    ASP_TRY(asp_team_create(cx, 1, -1, &team));
    ASP_TRY(asp_rank_create(cx, j->plan, comm, team, &r));
    put_logits(j->t, asp_rank_slab(r, ASP_SLAB_PARAM));
    for (int k = 0; k < asp_plan_n_inputs(j->plan); k++) {
        const asp_plan_input *in = asp_plan_get_input(j->plan, k);
        int64_t *at = asp_rank_input(r, k);
        for (int s = 0; s < SEQ; s++)
            at[s] = strcmp(in->name, "ids") == 0 ? s : j->t->each[s] > 0 ? s % 3 : -100;
    }
    ASP_TRY(asp_rank_step(r, &loss));
    if (asp_comm_rank(comm) == 0) {
        j->t->result = loss;
        memcpy(j->t->gradient, asp_rank_slab(r, ASP_SLAB_GRAD), sizeof j->t->gradient);
    }
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return ASP_OK;
}

static void run(toy *t, int64_t ranks)
{
    asp_ctx cx;
    asp_plan *plan;
    asp_ctx_init(&cx);
    t->ranks = ranks;
    if (compile(&cx, t, &plan) < 0) fail_msg("%s: %s", t->loss, cx.message);
    job j = {t, plan};
    if (asp_ranks_run(&cx, ASP_COMM_thread, (int)ranks, one_rank, &j) < 0)
        fail_msg("%s: %s", t->loss, cx.message);
    asp_plan_destroy(plan);
}

static void close_to(const toy *t, double got, double want, double scale)
{
    if (!(fabs(got - want) <= 1e-12 * scale))
        fail_msg("%s, %lld ranks: %.17g, not %.17g", t->loss, (long long)t->ranks, got, want);
}

// The loss, and the same gradient on every number of ranks.
static void check(toy t, double want)
{
    toy one = t;
    for (int64_t ranks = 1; ranks <= 4; ranks++) {
        run(&t, ranks);
        close_to(&t, t.result, want, fmax(1, fabs(want)));
        if (ranks == 1) one = t;
        for (int i = 0; i < SEQ * CLASSES; i++) close_to(&t, t.gradient[i], one.gradient[i], 1);
    }
}

// Logit gradients of valid rows are this weight times (softmax - one at the label).
static void check_weights(toy t, double weight)
{
    for (int64_t ranks = 1; ranks <= 4; ranks++) {
        double x[SEQ * CLASSES];
        run(&t, ranks);
        put_logits(&t, x);
        for (int i = 0; i < SEQ * CLASSES; i++) {
            const int s = i / CLASSES;
            const double p = exp(x[i]) - (i % CLASSES == s % 3), on = t.each[s] > 0 ? weight : 0;
            close_to(&t, t.gradient[i], on * p, 1);
        }
    }
}

#define TOY(loss_, scale_, ...)                             \
    {                                                       \
        .loss = loss_, .scale = scale_, .each = __VA_ARGS__ \
    }
#define CASE_1                  \
    {                           \
        1, 2, 3, 10, 5, 6, 7, 0 \
    }
#define LOSS "%loss : f64[] = "

static void sp_case_01_mean(void **state)
{
    (void)state;
    toy t = TOY(LOSS "cross_entropy %x, %y", 1, CASE_1);
    check(t, 34 / 7.0);
    check_weights(t, 1 / 7.0);
}

static void sp_case_04_nothing_counts(void **state)
{
    (void)state;
    static const char *const means[] = {LOSS "cross_entropy %x, %y",
                                        LOSS "cross_entropy %x, %y {smoothing = 0.1, zloss = 0.1}",
                                        LOSS "cross_entropy %x, %y, %k"};
    for (size_t i = 0; i < ASP_COUNT_OF(means); i++) {
        for (int64_t ranks = 1; ranks <= 4; ranks++) {
            toy t = TOY(means[i], 1, {0});
            run(&t, ranks);
            assert_true(isnan(t.result));
            for (int k = 0; k < SEQ * CLASSES; k++) assert_true(t.gradient[k] == 0);
        }
    }
}

static void sp_case_12_sums_and_divisors(void **state)
{
    (void)state;
    toy sum = TOY(LOSS "cross_entropy %x, %y {reduction = \"sum\"}", 1, CASE_1);
    check(sum, 34);
    check_weights(sum, 1);
    toy items = TOY("%items : i64[] = constant {value = 7}\n" LOSS "cross_entropy %x, %y, %items",
                    1, CASE_1);
    check(items, 34 / 7.0);
    check_weights(items, 1 / 7.0);
    toy by_hand = TOY("%sum : f64[] = cross_entropy %x, %y {reduction = \"sum\"}\n"
                      "%items : f64[] = constant {value = 7}\n" LOSS "div %sum, %items",
                      1, CASE_1);
    check(by_hand, 34 / 7.0);
    toy each = TOY("%each : f64[B, S] = cross_entropy %x, %y {reduction = \"none\"}\n" LOSS
                   "sum %each {dims = [0, 1]}",
                   1, CASE_1);
    check(each, 34);
    check_weights(each, 1);
}

static void class_weights(void **state)
{
    (void)state;
    toy t = TOY(LOSS "cross_entropy %x, %y, %k", 1, CASE_1);
    check(t, (1 * 1 + 2 * 2 + 4 * 3 + 1 * 10 + 2 * 5 + 4 * 6 + 1 * 7) / 15.0);
    t.loss = LOSS "cross_entropy %x, %y, %k {smoothing = 0.1}";
    check(t, 4.291658500605659);
    t.loss =
        "%each : f64[B, S] = cross_entropy %x, %y, %k {reduction = \"none\", smoothing = 0.1}\n"
        "%first : f64[] = constant {value = 0}\n" LOSS "sum %each {dims = [0, 1]}";
    check(t, 4.291658500605659 * 15);
}

static void sp_case_47_smoothing_caps_and_z(void **state)
{
    (void)state;
    toy t = TOY(LOSS "cross_entropy %x, %y {smoothing = 0.1}", 1, CASE_1);
    check(t, 4.585879888817904);
    t.loss = LOSS "cross_entropy %x, %y {softcap = 30}";
    check(t, 4.769445498936684);
    t.loss = LOSS "cross_entropy %x, %y {softcap = 2}";
    check(t, 1.8808816964416);
    // Written out, it is found and gives the same.
    t.loss = "%a : f64[B, S, 3] = mul_scalar %x {value = 0.5}\n%b : f64[B, S, 3] = tanh %a\n"
             "%c : f64[B, S, 3] = mul_scalar %b {value = 2}\n" LOSS "cross_entropy %c, %y";
    check(t, 1.8808816964416);
    t.scale = 2;
    t.loss = LOSS "cross_entropy %x, %y {zloss = 1e-4}";
    check(t, 8.912624880313738);
    t.loss = LOSS "cross_entropy %x, %y, %k {smoothing = 0.1, softcap = 30, zloss = 1e-4}";
    check(t, 7.363171402283839);
}

static void other_losses(void **state)
{
    (void)state;
    toy t = TOY("%p : f64[B, S, 3] = log_softmax %x {dim = 2}\n" LOSS "nll_loss %p, %y", 1, CASE_1);
    check(t, 34 / 7.0);
    check_weights(t, 1 / 7.0);
    t.loss = "%p : f64[B, S, 3] = log_softmax %x {dim = 2}\n" LOSS "nll_loss %p, %y, %k";
    check(t, (1 * 1 + 2 * 2 + 4 * 3 + 1 * 10 + 2 * 5 + 4 * 6 + 1 * 7) / 15.0);
    // Against 2: of losses 1 and 2 alone, the rest being what is left of 1.
    t.loss = "%p : f64[B, S, 3] = exp %x\n%q : f64[B, S, 3] = mul_scalar %p {value = 0}\n" LOSS
             "mse_loss %p, %q {reduction = \"sum\"}";
    double sum = 0;
    for (int s = 0; s < SEQ; s++) {
        const double p = exp(-(t.each[s] > 0 ? t.each[s] : 2));
        sum += p * p + (1 - p) * (1 - p) / 2;
    }
    check(t, sum);
    t.loss = "%p : f64[B, S, 3] = exp %x\n%q : f64[B, S, 3] = mul_scalar %p {value = 0}\n" LOSS
             "mse_loss %p, %q";
    check(t, sum / (SEQ * CLASSES));
}

// x is 1 .. 8 along the sequence, three times: mean 4.5, squares 42 from it.
#define COUNTING                                                            \
    "%c0 : f64[B, S, 3] = mul_scalar %x {value = 0}\n"                      \
    "%c1 : i64[S] = iota {start = 1}\n%c2 : f64[S] = cast %c1 {to = f64}\n" \
    "%c3 : f64[S, 1] = view %c2 {shape = [S, 1]}\n%c : f64[B, S, 3] = add %c0, %c3\n"

static void sp_case_37_statistics_of_all_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *nodes;
        double want;
    } cases[] = {
        {"%m : f64[B, 3] = mean %c {dims = [1]}\n" LOSS "sum %m {dims = [0, 1]}", 13.5},
        {"%m : f64[B, 3] = var %c {dims = [1]}\n" LOSS "sum %m {dims = [0, 1]}", 18},
        {"%m : f64[] = mean %c {dims = [0, 1, 2]}\n" LOSS "mul_scalar %m {value = 2}", 9},
        {"%m : f64[B, 3] = amax %c {dims = [1]}\n" LOSS "sum %m {dims = [0, 1]}", 24},
        {"%m : f64[B, 3] = logsumexp %c {dims = [1]}\n" LOSS "sum %m {dims = [0, 1]}",
         3 * 8.458339626479004},
        // The first position: -1.527524; the running variance takes 6.
        {"%t : f64[B, 3, S] = permute %c {perm = [0, 2, 1]}\n"
         "%h, %m, %v : f64[B, 3, S], f64[3], f64[3] = batch_norm %t\n"
         "%f : f64[B, 3] = select %h {dim = 2}\n" LOSS "sum %f {dims = [0, 1]}",
         3 * -1.52752377686809},
        {"%t : f64[B, 3, S] = permute %c {perm = [0, 2, 1]}\n"
         "%h, %m, %v : f64[B, 3, S], f64[3], f64[3] = batch_norm %t\n" LOSS "sum %v {dims = [0]}",
         18},
        {"%t : f64[B, 3, S] = permute %c {perm = [0, 2, 1]}\n"
         "%h : f64[B, 3, S] = group_norm %t {groups = 3}\n"
         "%f : f64[B, 3] = select %h {dim = 2}\n" LOSS "sum %f {dims = [0, 1]}",
         3 * -1.52752377686809},
        {"%z : f64[B, S, 3] = mul_scalar %c {value = 0}\n" LOSS "mse_loss %c, %z", 25.5},
        {"%e : f64[B, 3, 3] = einsum %c, %c {equation = \"bsi,bsj->bij\"}\n" LOSS
         "mean %e {dims = [0, 1, 2]}",
         204},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(cases); i++) {
        char nodes[1024];
        snprintf(nodes, sizeof nodes, "%s%s", COUNTING, cases[i].nodes);
        toy t = TOY(nodes, 1, CASE_1);
        check(t, cases[i].want);
    }
}

// The count of many labels is exact: sum over mean gives it, in f32 too.
static asp_status count_rank(void *arg, asp_comm *comm, asp_ctx *cx)
{
    const asp_plan *plan = arg;
    asp_team *team;
    asp_rank *r;
    double quotient;
    ASP_TRY(asp_team_create(cx, 2, -1, &team));
    ASP_TRY(asp_rank_create(cx, plan, comm, team, &r));
    ASP_TRY(asp_rank_step(r, &quotient)); // ids, labels and the table are 0
    const int64_t n = asp_plan_get_input(plan, 0)->dim[1];
    if (!(fabs(quotient - (double)n) <= 1e-6 * (double)n))
        fail_msg("%.9g, not %lld", quotient, (long long)n);
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return ASP_OK;
}

static void sp_case_15_counts(void **state)
{
    (void)state;
    static const int64_t counts[] = {257, 45001, 70000, 100001};
    static const char text[] = "graph t {\n"
                               "%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
                               "%y : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
                               "%w : f32[1, 3] = param {name = \"w\"}\n"
                               "%x : f32[B, S, 3] = embedding %ids, %w\n"
                               "%sum : f32[] = cross_entropy %x, %y {reduction = \"sum\"}\n"
                               "%mean : f32[] = cross_entropy %x, %y\n"
                               "%loss : f32[] = div %sum, %mean\nreturn \"loss\" = %loss\n}\n";
    for (size_t i = 0; i < ASP_COUNT_OF(counts); i++) {
        asp_ctx cx;
        asp_graph *g;
        asp_plan *plan;
        asp_compile_options o = {
            .ranks = 1, .batch = 1, .seq = counts[i], .threads = 2, .sp = "auto", .ac = "none"};
        asp_ctx_init(&cx);
        if (asp_graph_parse(&cx, "counts", text, strlen(text), &g) < 0) fail_msg("%s", cx.message);
        if (asp_compile(&cx, g, &o, NULL, &plan) < 0) fail_msg("%s", cx.message);
        if (asp_ranks_run(&cx, ASP_COMM_thread, 1, count_rank, plan) < 0)
            fail_msg("%s", cx.message);
        asp_plan_destroy(plan);
        asp_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sp_case_01_mean),
        cmocka_unit_test(sp_case_04_nothing_counts),
        cmocka_unit_test(sp_case_12_sums_and_divisors),
        cmocka_unit_test(sp_case_15_counts),
        cmocka_unit_test(class_weights),
        cmocka_unit_test(sp_case_47_smoothing_caps_and_z),
        cmocka_unit_test(sp_case_37_statistics_of_all_tokens),
        cmocka_unit_test(other_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
