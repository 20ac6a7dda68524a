// Losses over tokens that are split: which count, by what they are divided, what lies on a cut.
// Neighbours: support/cases.h, unit/run/loss_test.c (every form of the loss).
// SPDX-License-Identifier: Apache-2.0
#include "cases/support/cases.h"

#include <math.h>
#include <stdlib.h>

#define V 3
#define MOST 18
#define LOGITS(rows)                                      \
    "%w : f64[" rows ", 3] = param {name = \"logits\"}\n" \
    "%x : f64[B, S, 3] = embedding %ids, %w\n"

// each[t]: the loss that position t is to have for its target, which is t mod 3; 0: it has none.
typedef struct toy {
    int64_t seq;
    int by;        // the label of position t stands at t + by
    double weight; // of a logit gradient: times (softmax - one at the target)
    double each[MOST];
} toy;

static void logits_of(const toy *t, double *at)
{
    for (int s = 0; s < t->seq; s++) {
        const double loss = t->each[s] > 0 ? t->each[s] : 2, rest = log((1 - exp(-loss)) / 2);
        for (int v = 0; v < V; v++) at[s * V + v] = v == s % V ? -loss : rest;
    }
}

static void check(const char *body, const toy *t, double loss)
{
    double x[MOST * V], want[MOST * V], labels[MOST];
    logits_of(t, x);
    for (int s = 0; s < t->seq; s++) labels[s] = -100;
    for (int s = 0; s < t->seq; s++) {
        if (t->each[s] > 0) labels[s + t->by] = s % V;
        for (int v = 0; v < V; v++)
            want[s * V + v] = t->each[s] > 0 ? t->weight * (exp(x[s * V + v]) - (v == s % V)) : 0;
    }
    sp_case c = {.body = body,
                 .batch = 1,
                 .seq = t->seq,
                 .given = {{"logits", t->seq * V, x}, {"labels", t->seq, labels}},
                 .loss = loss,
                 .nan = isnan(loss),
                 .want = {{"logits", t->seq * V, want}}};
    sp_check(&c);
}

#define SHIFTED LOGITS("8") "%n : i64[B, S] = shift %y\n"
#define CE "%loss : f64[] = cross_entropy %x, %n"
static const toy first = {8, 1, 1 / 7.0, {1, 2, 3, 10, 5, 6, 7}};

static void sp_case_01(void **state)
{
    (void)state;
    check(SHIFTED CE, &first, 34 / 7.0);
}

static void sp_case_02(void **state)
{
    (void)state;
    check(SHIFTED CE, &(toy){8, 1, 1 / 4.0, {1, 0, 0, 0, 5, 6, 7}}, 19 / 4.0);
}

static void sp_case_03(void **state)
{
    (void)state;
    check(SHIFTED CE, &(toy){8, 1, 1 / 3.0, {0, 0, 0, 0, 5, 6, 7}}, 6);
}

static void sp_case_04(void **state)
{
    (void)state;
    check(SHIFTED CE, &(toy){8, 1, 0, {0}}, (double)NAN);
}

static void sp_case_06(void **state)
{
    (void)state;
    check(LOGITS("9") "%n : i64[B, S] = shift %y\n" CE,
          &(toy){9, 1, 1 / 8.0, {1, 2, 3, 4, 5, 6, 7, 8}}, 36 / 8.0);
}

static void sp_case_08(void **state)
{
    (void)state;
    check(LOGITS("8") "%loss : f64[] = cross_entropy %x, %y",
          &(toy){8, 0, 1 / 4.0, {1, 0, 0, 0, 5, 6, 7}}, 19 / 4.0);
}

static void sp_case_09(void **state)
{
    (void)state;
    check(LOGITS("8") "%c : f64[B, S - 1, 3] = slice %x {dim = 1, end = S - 1}\n"
                      "%n : i64[B, S - 1] = slice %y {dim = 1, start = 1, end = S}\n"
                      "%loss : f64[] = cross_entropy %c, %n",
          &first, 34 / 7.0);
    check(LOGITS("8") "%p : i64[B, S + 1] = pad %y {dim = 1, right = 1, value = -100}\n"
                      "%n : i64[B, S] = slice %p {dim = 1, start = 1, end = S + 1}\n" CE,
          &first, 34 / 7.0);
    check(LOGITS("8") "%c : f64[B, S - 1, 3] = slice %x {dim = 1, end = S - 1}\n"
                      "%n : i64[B, S - 1] = slice %y {dim = 1, start = 1, end = S}\n"
                      "%f : f64[B*(S - 1), 3] = view %c {shape = [B*(S - 1), 3]}\n"
                      "%g : i64[B*(S - 1)] = view %n {shape = [B*(S - 1)]}\n"
                      "%loss : f64[] = cross_entropy %f, %g",
          &first, 34 / 7.0);
}

static void sp_case_10(void **state)
{
    (void)state;
    const char *two = LOGITS("8") "%n : i64[B, S] = shift %y {by = 2}\n" CE;
    check(two, &(toy){8, 2, 1 / 6.0, {1, 2, 3, 4, 5, 6}}, 3.5);
    check(two, &(toy){8, 2, 1 / 6.0, {1, 2, 9, 4, 5, 6}}, 4.5);
}

static void sp_case_12(void **state)
{
    (void)state;
    toy t = first;
    t.weight = 1;
    check(SHIFTED CE " {reduction = \"sum\"}", &t, 34);
    check(SHIFTED "%items : i64[] = constant {value = 7}\n"
                  "%loss : f64[] = cross_entropy %x, %n, %items",
          &first, 34 / 7.0);
    check(SHIFTED "%sum : f64[] = cross_entropy %x, %n {reduction = \"sum\"}\n"
                  "%items : f64[] = constant {value = 7}\n%loss : f64[] = div %sum, %items",
          &first, 34 / 7.0);
}

// Counts beyond what narrow numbers hold: sum over mean of a loss in f32 is the count, of logits in
// f32 and in bf16 alike.  (The counts are i64; there is no f16 arithmetic.)
static void count_labels(const char *both, asp_dtype dtype)
{
    static const int64_t counts[] = {257, 45001, 100001, 70000};
    for (size_t i = 0; i < ASP_COUNT_OF(counts); i++) {
        const int64_t n = counts[i], seq = n + 1234;
        double *labels = calloc((size_t)seq, sizeof *labels);
        assert_non_null(labels);
        for (int64_t s = 0; s < seq; s++) labels[s] = s < n ? (double)(s % 3) : -100;
        for (int ranks = 1; ranks <= 4; ranks *= 2) {
            double loss[2];
            for (int r = 0; r < 2; r++) {
                static const char *const reductions[] = {"mean", "sum"};
                char text[1024];
                const char *cut = strstr(both, "REDUCTION");
                snprintf(text, sizeof text, "%.*s%s%s", (int)(cut - both), both, reductions[r],
                         cut + strlen("REDUCTION"));
                const text_value given[] = {{"labels", seq, labels}, {NULL, 0, NULL}};
                text_case c = {.text = text,
                               .ranks = ranks,
                               .batch = 1,
                               .seq = seq,
                               .threads = 1,
                               .sp = "auto",
                               .ac = "none",
                               .dtype = dtype,
                               .seed = 5,
                               .vocab = 3,
                               .given = given};
                text_result got = text_run(&c);
                if (got.status < 0) fail_msg("%s", got.message);
                loss[r] = got.loss;
                text_free(&got);
            }
            const double count = loss[1] / loss[0];
            if (!(fabs(count - (double)n) <= 1e-6 * (double)n))
                fail_msg("%lld labels on %d ranks count as %.9g", (long long)n, ranks, count);
        }
        free(labels);
    }
}

static void sp_case_15(void **state)
{
    (void)state;
    count_labels(
        "graph t {\n%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
        "%y : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
        "%w : f64[3, 3] = param {name = \"logits\"}\n%x : f64[B, S, 3] = embedding %ids, %w\n"
        "%x32 : f32[B, S, 3] = cast %x {to = f32}\n"
        "%l32 : f32[] = cross_entropy %x32, %y {reduction = \"REDUCTION\"}\n"
        "%loss : f64[] = cast %l32 {to = f64}\nreturn \"loss\" = %loss\n}\n",
        ASP_F32);
    count_labels(
        "graph t {\n%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
        "%y : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
        "%w : f32[3, 4] = param {name = \"table\"}\n%h : f32[3, 4] = param {name = \"head\"}\n"
        "%x : f32[B, S, 4] = embedding %ids, %w\n%l : f32[B, S, 3] = linear %x, %h\n"
        "%loss : f32[] = cross_entropy %l, %y {reduction = \"REDUCTION\"}\n"
        "return \"loss\" = %loss\n}\n",
        ASP_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sp_case_01), cmocka_unit_test(sp_case_02),
                                       cmocka_unit_test(sp_case_03), cmocka_unit_test(sp_case_04),
                                       cmocka_unit_test(sp_case_06), cmocka_unit_test(sp_case_08),
                                       cmocka_unit_test(sp_case_09), cmocka_unit_test(sp_case_10),
                                       cmocka_unit_test(sp_case_12), cmocka_unit_test(sp_case_15)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
