// Decoders of two layers: positions, dropout, tied weights, layouts, sizes that agree by chance,
// recomputation, the losses of their heads.  Neighbours: support/decoder.h, support/cases.h.
// SPDX-License-Identifier: Apache-2.0
#include "cases/support/decoder.h"

#include <math.h>
#include <stdlib.h>

// Half of the sequence has no label: its gradients come through keys and values alone.
static void sp_case_03(void **state)
{
    (void)state;
    double labels[16];
    for (int i = 0; i < 16; i++) labels[i] = i % 8 <= 4 ? -100 : i;
    decoder d = decoder_default();
    char *text = decoder_text(&d);
    sp_case c = decoder_case(text);
    c.given[0].at = labels;
    sp_check(&c);
    text_result r = sp_run(&c, 2, "ulysses");
    const text_gradient *k = sp_gradient(&r, "k.w0");
    double sum = 0;
    for (int64_t i = 0; i < k->count; i++) sum += fabs(k->at[i]);
    assert_true(sum > 0);
    text_free(&r);
    free(text);
}

// Vectors (1, 0) turned by their position in a head two wide: (cos, sin).
static void rotates(const char *positions, double first, const text_value *given)
{
    char body[2048];
    double x[16], want[16];
    for (int t = 0; t < 8; t++) {
        x[2 * t] = 1, x[2 * t + 1] = 0;
        want[2 * t] = cos(t + first), want[2 * t + 1] = sin(t + first);
    }
    snprintf(
        body, sizeof body,
        "%s\n%%xw : f64[8, 2] = param {name = \"x\"}\n%%ww : f64[8, 2] = param {name = \"w\"}\n"
        "%%xe : f64[B, S, 2] = embedding %%ids, %%xw\n%%we : f64[B, S, 2] = embedding %%ids, %%ww\n"
        "%%x : f64[B, 1, S, 2] = view %%xe {shape = [B, 1, S, 2]}\n"
        "%%r : f64[B, 1, S, 2] = rope %%x, %%p\n"
        "%%rv : f64[B, S, 2] = view %%r {shape = [B, S, 2]}\n"
        "%%rw : f64[B, S, 2] = mul %%rv, %%we\n%%loss : f64[] = sum %%rw {dims = [0, 1, 2]}",
        positions);
    sp_case c = {.body = body,
                 .batch = 1,
                 .seq = 8,
                 .loss = (double)NAN,
                 .given = {{"x", 16, x}},
                 .want = {{"w", 16, want}}};
    if (given) c.given[1] = *given;
    sp_check(&c);
}

static void sp_case_20(void **state)
{
    (void)state;
    const text_value low = VALUES("p", 0, 1, 2, 3, 4, 5, 6, 7);
    const text_value high = VALUES("p", 100, 101, 102, 103, 104, 105, 106, 107);
    static const char one[] = "%p : i64[S] = input {name = \"p\", role = \"positions\"}";
    static const char rows[] = "%p : i64[B, S] = input {name = \"p\", role = \"positions\"}";
    rotates(one, 0, &low);
    rotates(one, 100, &high);
    rotates(rows, 100, &high);
    rotates("%p : i64[S] = iota", 0, NULL);
    rotates("%p : i64[S] = iota {start = 100}", 100, NULL);
    rotates("%p : i64[S] = add_scalar %pos {value = 100}", 100, NULL);
    static const char *const ways[] = {"rope", "given", "given rows", "offset"};
    for (size_t i = 0; i < ASP_COUNT_OF(ways); i++) {
        decoder d = decoder_default();
        d.positions = ways[i];
        decoder_check(&d, "none");
    }
}

static void sp_case_21(void **state)
{
    (void)state;
    double weights[16], want[32] = {0};
    for (int i = 0; i < 16; i++) want[i] = weights[i] = 0.5 + i;
    const sp_case c = {.body = "%wpe : f64[16, 2] = param {name = \"wpe\"}\n"
                               "%ww : f64[8, 2] = param {name = \"w\"}\n"
                               "%pe : f64[S, 2] = embedding %pos, %wpe\n"
                               "%we : f64[B, S, 2] = embedding %ids, %ww\n"
                               "%rw : f64[B, S, 2] = mul %we, %pe\n"
                               "%loss : f64[] = sum %rw {dims = [0, 1, 2]}",
                       .batch = 1,
                       .seq = 8,
                       .loss = (double)NAN,
                       .given = {{"w", 16, weights}},
                       .want = {{"wpe", 32, want}}};
    sp_check(&c);
    decoder d = decoder_default();
    d.positions = "table";
    decoder_check(&d, "none");
}

static void sp_case_30(void **state)
{
    (void)state;
    decoder d = decoder_default();
    d.dropout = 0.5;
    decoder_check(&d, "none");
    decoder_check(&d, "sac");
    decoder_check(&d, "layer");
    char *text = decoder_text(&d);
    sp_case c = decoder_case(text);
    text_result kept = sp_run(&c, 1, "auto");
    c.ac = "layer";
    text_result again = sp_run(&c, 4, "ulysses");
    sp_equal(&kept, &again, "recomputed");
    text_free(&kept), text_free(&again);
    free(text);
}

// No two tokens lose the same elements, whichever rank they are on.
static void sp_case_30_tokens_differ(void **state)
{
    (void)state;
    const sp_case c = {.body = "%w : f64[8, 48] = param {name = \"w\"}\n"
                               "%e : f64[B, S, 48] = embedding %ids, %w\n"
                               "%d : f64[B, S, 48] = dropout %e {p = 0.5, site = 3}\n"
                               "%loss : f64[] = sum %d {dims = [0, 1, 2]}",
                       .batch = 1,
                       .seq = 8,
                       .loss = (double)NAN};
    sp_check(&c);
    text_result r = sp_run(&c, 4, "ulysses");
    const double *g = sp_gradient(&r, "w")->at;
    for (int i = 0; i < 8 * 48; i++) assert_true(g[i] == 0 || g[i] == 2);
    for (int a = 0; a < 8; a++)
        for (int b = 0; b < a; b++)
            assert_true(memcmp(g + a * 48, g + b * 48, 48 * sizeof *g) != 0);
    text_free(&r);
}

static void sp_case_31(void **state)
{
    (void)state;
    double table[31 * 32];
    for (int i = 0; i < 31 * 32; i++) table[i] = 0.3 * sin(1.7 * i);
    decoder d = decoder_default();
    char *untied = decoder_text(&d);
    d.tied = true;
    char *tied = decoder_text(&d);
    sp_case c = decoder_case(untied);
    c.given[1] = (text_value){"table", 31 * 32, table};
    c.given[2] = (text_value){"head", 31 * 32, table};
    text_result two = sp_run(&c, 1, "auto");
    const double *of_table = sp_gradient(&two, "table")->at,
                 *of_head = sp_gradient(&two, "head")->at;
    double sum[31 * 32];
    for (int i = 0; i < 31 * 32; i++) sum[i] = of_table[i] + of_head[i];
    c.body = tied;
    c.given[2] = (text_value){0};
    c.want[0] = (text_value){"table", 31 * 32, sum};
    c.loss = two.loss;
    sp_check(&c);
    text_free(&two);
    free(untied), free(tied);
}

static void sp_case_32(void **state)
{
    (void)state;
    decoder d = decoder_default();
    d.layers = 3;
    decoder_check(&d, "none");
    decoder_check(&d, "layer"); // each layer is a region of its own
    char *fused = decoder_text(&d);
    d.manual = 2;
    decoder_check(&d, "none");
    char *manual = decoder_text(&d);
    sp_case c = decoder_case(fused);
    text_result one = sp_run(&c, 1, "auto");
    c.body = manual;
    text_result other = sp_run(&c, 4, "auto");
    sp_equal(&one, &other, "layer 2 written out");
    text_free(&one), text_free(&other);
    free(fused), free(manual);
}

static void sp_case_34(void **state)
{
    (void)state;
    static const decoder_layout layouts[] = {LAYOUT_BSNH, LAYOUT_SBD, LAYOUT_NO_HEAD, LAYOUT_3D,
                                             LAYOUT_STRIDED};
    for (size_t i = 0; i < ASP_COUNT_OF(layouts); i++) {
        decoder d = decoder_default();
        d.layout = layouts[i];
        if (d.layout == LAYOUT_NO_HEAD) d.heads = d.kv_heads = 1, d.head = 32;
        char *text = decoder_text(&d);
        sp_case c = decoder_case(text);
        sp_check(&c);
        free(text);
    }
}

static void sp_case_35(void **state)
{
    (void)state;
    decoder same = decoder_default(), narrow = same, many = same;
    char *text = decoder_text(&same);
    sp_case c = decoder_case(text);
    c.batch = 8;
    c.given[0] = (text_value){0};
    sp_check(&c);
    free(text);
    narrow.width = 8, narrow.heads = narrow.kv_heads = 2, narrow.head = 4, narrow.ffn = 16;
    decoder_check(&narrow, "none");
    many.heads = many.kv_heads = 8, many.head = 4;
    decoder_check(&many, "none");
}

static void sp_case_36(void **state)
{
    (void)state;
    decoder d = decoder_default();
    d.flat = true;
    decoder_check(&d, "none");
}

static void sp_case_40(void **state)
{
    (void)state;
    decoder d = decoder_default();
    char *text = decoder_text(&d);
    sp_case c = decoder_case(text);
    c.body = text;
    text_result plain = sp_run(&c, 1, "auto");
    for (const sp_strategy *s = sp_strategies; s->sp; s++) {
        if (s->ranks > 1) continue;
        text_result r = sp_run(&c, 1, s->sp);
        assert_int_equal(r.report.n_exchanges, 0);
        assert_true(memcmp(&r.loss, &plain.loss, sizeof r.loss) == 0);
        for (int p = 0; p < r.n; p++)
            assert_memory_equal(r.grad[p].at, plain.grad[p].at,
                                (size_t)r.grad[p].count * sizeof(double));
        text_free(&r);
    }
    text_free(&plain);
    free(text);
}

// Exchanges of a step without those of gradients, which stand alike in all.
static int64_t exchanges(const text_result *r, const char *what)
{
    int64_t n = 0;
    for (int i = 0; i < r->report.n_exchanges; i++)
        if (strcmp(r->report.exchanges[i].what, what) == 0) n += r->report.exchanges[i].count;
    return n;
}

static void sp_case_43(void **state)
{
    (void)state;
    decoder d = decoder_default();
    char *text = decoder_text(&d);
    sp_case c = decoder_case(text);
    for (const sp_strategy *s = sp_strategies; s->sp; s++) {
        const int64_t ranks = s->ranks ? s->ranks : 4;
        c.ac = "none";
        text_result off = sp_run(&c, ranks, s->sp);
        c.ac = "sac";
        text_result on = sp_run(&c, ranks, s->sp);
        assert_true(memcmp(&on.loss, &off.loss, sizeof on.loss) == 0);
        for (int p = 0; p < on.n; p++)
            assert_memory_equal(on.grad[p].at, off.grad[p].at,
                                (size_t)on.grad[p].count * sizeof(double));
        assert_true(on.ranks_agree && off.ranks_agree);
        assert_int_equal(exchanges(&on, "forward"), exchanges(&off, "forward"));
        assert_int_equal(exchanges(&on, "backward"), exchanges(&off, "backward"));
        assert_int_equal(exchanges(&on, "repeated"), 0);
        assert_true(on.report.rank_bytes < off.report.rank_bytes);
        text_free(&on), text_free(&off);
    }
    free(text);
}

static void sp_case_47(void **state)
{
    (void)state;
    decoder d = decoder_default();
    static const char *const losses[] = {
        "%n : i64[B, S] = shift %y\n%loss : f64[] = cross_entropy %x, %n {smoothing = 0.1}\n",
        "%n : i64[B, S] = shift %y\n%loss : f64[] = cross_entropy %x, %n {softcap = 30}\n",
        "%n : i64[B, S] = shift %y\n%loss : f64[] = cross_entropy %x, %n {zloss = 0.0001}\n",
        "%n : i64[B, S] = shift %y\n%loss : f64[] = cross_entropy %x, %n {smoothing = 0.1, softcap "
        "= 30, "
        "zloss = 0.0001}\n",
        // the same, written out
        "%x1 : f64[B, S, 31] = mul_scalar %x {value = 0.03333333333333333}\n"
        "%x2 : f64[B, S, 31] = tanh %x1\n%x3 : f64[B, S, 31] = mul_scalar %x2 {value = 30}\n"
        "%n : i64[B, S] = shift %y\n%ce : f64[] = cross_entropy %x3, %n {smoothing = 0.1}\n"
        "%lse : f64[B, S] = logsumexp %x3 {dims = [2]}\n%lse2 : f64[B, S] = mul %lse, %lse\n"
        "%no : i64[] = constant {value = -100}\n%valid : bool[B, S] = ne %n, %no\n"
        "%v : f64[B, S] = cast %valid {to = f64}\n%lv : f64[B, S] = mul %lse2, %v\n"
        "%ls : f64[] = sum %lv {dims = [0, 1]}\n%vs : f64[] = sum %v {dims = [0, 1]}\n"
        "%lm : f64[] = div %ls, %vs\n%z : f64[] = mul_scalar %lm {value = 0.0001}\n"
        "%loss : f64[] = add %ce, %z\n"};
    double loss[ASP_COUNT_OF(losses)];
    for (size_t i = 0; i < ASP_COUNT_OF(losses); i++) {
        d.loss = losses[i];
        decoder_check(&d, "none");
        char *text = decoder_text(&d);
        sp_case c = decoder_case(text);
        text_result r = sp_run(&c, 1, "auto");
        loss[i] = r.loss;
        text_free(&r);
        free(text);
    }
    assert_true(fabs(loss[3] - loss[4]) <= 1e-12 * loss[3]);
}

// Three rows of logits at a time, which does not divide a rank's part.
static void sp_case_47_chunks(void **state)
{
    (void)state;
    decoder d = decoder_default();
    char *whole = decoder_text(&d);
    char body[4096];
    size_t n = (size_t)snprintf(body, sizeof body, "%%n : i64[B, S] = shift %%y\n");
    static const char *const ends[] = {"0", "3", "6", "S"}, *const sizes[] = {"3", "3", "S - 6"};
    for (int i = 0; i < 3; i++)
        n += (size_t)snprintf(
            body + n, sizeof body - n,
            "%%cut%d : f64[B, %s, 32] = slice %%hidden {dim = 1, start = %s, end = %s}\n"
            "%%key%d : i64[B, %s] = slice %%n {dim = 1, start = %s, end = %s}\n"
            "%%log%d : f64[B, %s, 31] = linear %%cut%d, %%head\n"
            "%%s%d.sum : f64[] = cross_entropy %%log%d, %%key%d {reduction = \"sum\"}\n",
            i, sizes[i], ends[i], ends[i + 1], i, sizes[i], ends[i], ends[i + 1], i, sizes[i], i, i,
            i, i);
    snprintf(body + n, sizeof body - n,
             "%%t1 : f64[] = add %%s0.sum, %%s1.sum\n%%t2 : f64[] = add %%t1, %%s2.sum\n"
             "%%count : i64[] = count_valid %%n\n%%cf : f64[] = cast %%count {to = f64}\n"
             "%%loss : f64[] = div %%t2, %%cf\n");
    d.head_body = body;
    decoder_check(&d, "none");
    char *chunks = decoder_text(&d);
    sp_case c = decoder_case(whole);
    text_result one = sp_run(&c, 1, "auto");
    c.body = chunks;
    text_result other = sp_run(&c, 4, "auto");
    sp_equal(&one, &other, "in chunks");
    text_free(&one), text_free(&other);
    free(whole), free(chunks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sp_case_03),
                                       cmocka_unit_test(sp_case_20),
                                       cmocka_unit_test(sp_case_21),
                                       cmocka_unit_test(sp_case_30),
                                       cmocka_unit_test(sp_case_30_tokens_differ),
                                       cmocka_unit_test(sp_case_31),
                                       cmocka_unit_test(sp_case_32),
                                       cmocka_unit_test(sp_case_34),
                                       cmocka_unit_test(sp_case_35),
                                       cmocka_unit_test(sp_case_36),
                                       cmocka_unit_test(sp_case_40),
                                       cmocka_unit_test(sp_case_43),
                                       cmocka_unit_test(sp_case_47),
                                       cmocka_unit_test(sp_case_47_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
