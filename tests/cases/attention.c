// Attention: which keys a query sees, when its sequence is split and its heads are.  Toys have
// queries and keys 0, so that weights are equal among the keys seen; each is repeated with random
// ones.  Neighbours: support/cases.h.  SPDX-License-Identifier: Apache-2.0
#include "cases/support/cases.h"

#include <math.h>

#define S 8

// Inputs are tables looked up by ids; L = sum of out * weight, so that the gradient of the table
// "weight" is out.  The body's `attention` nodes make %o (B, n, S, h) of %q, %k and %v.
typedef struct toy {
    int64_t batch;
    int n, k; // query heads, key and value heads
    const char *attention;
} toy;

// One table of `heads` heads of width h: %name : f64[B, heads, S, h].
static int table(char *to, size_t room, const char *name, int64_t batch, int heads, int h)
{
    return snprintf(to, room,
                    "%%%s.w : f64[%d, %d] = param {name = \"%s\"}\n"
                    "%%%s.e : f64[B, S, %d] = embedding %%ids, %%%s.w\n"
                    "%%%s.v : f64[B, S, %d, %d] = view %%%s.e {shape = [B, S, %d, %d]}\n"
                    "%%%s : f64[B, %d, S, %d] = permute %%%s.v {perm = [0, 2, 1, 3]}\n",
                    name, (int)batch * S, heads * h, name, name, heads * h, name, name, heads, h,
                    name, heads, h, name, heads, h, name);
}

static void body_of(char *to, size_t room, const toy *t, int h)
{
    size_t n = 0;
    n += (size_t)table(to + n, room - n, "q", t->batch, t->n, h);
    n += (size_t)table(to + n, room - n, "k", t->batch, t->k, h);
    n += (size_t)table(to + n, room - n, "v", t->batch, t->k, h);
    n += (size_t)table(to + n, room - n, "weight", t->batch, t->n, h);
    for (const char *s = t->attention; *s; s++) { // H, N and K stand for sizes
        bool size = s[1] == '\'';
        n += (size_t)(size ? snprintf(to + n, room - n, "%d",
                                      *s == 'H'   ? h
                                      : *s == 'N' ? t->n
                                                  : t->k)
                           : snprintf(to + n, room - n, "%c", *s));
        s += size;
    }
    snprintf(to + n, room - n,
             "%%ow : f64[B, %d, S, %d] = mul %%o, %%weight\n"
             "%%loss : f64[] = sum %%ow {dims = [0, 1, 2, 3]}\n",
             t->n, h);
}

// v, out and dv: S * heads numbers a batch row, token by token; dv NULL: not by hand.  `more`: what
// else the attention reads.
static void check(const toy *t, const double *v, const double *out, const double *dv,
                  const text_value *more)
{
    char body[8192];
    static const double zero[256];
    double one[256], total = 0;
    const int64_t rows = t->batch * S;
    for (int i = 0; i < 256; i++) one[i] = 1;
    for (int i = 0; i < rows * t->n; i++) total += out[i];
    body_of(body, sizeof body, t, 1);
    sp_case c = {.body = body,
                 .batch = t->batch,
                 .seq = S,
                 .given = {{"q", rows * t->n, zero},
                           {"k", rows * t->k, zero},
                           {"v", rows * t->k, v},
                           {"weight", rows * t->n, one}},
                 .loss = total,
                 .want = {{"weight", rows * t->n, out}}};
    if (dv) c.want[1] = (text_value){"v", rows * t->k, dv};
    for (int i = 0; more && more[i].name; i++) c.given[4 + i] = more[i];
    sp_check(&c);
}

// Random q, k, v, eight wide.
static void check_random(toy t, const text_value *more)
{
    char body[8192];
    body_of(body, sizeof body, &t, 8);
    sp_case c = {.body = body, .batch = t.batch, .seq = S, .seed = 11, .loss = (double)NAN};
    for (int i = 0; more && more[i].name; i++) c.given[i] = more[i];
    sp_check(&c);
}

// The same numbers for each of n heads: to[t * n + head] = each[t].
static const double *heads(double *to, int n, const double *each)
{
    for (int i = 0; i < S * n; i++) to[i] = each[i / n];
    return to;
}

#define SDPA(attributes) \
    "%o, %lse : f64[B, N', S, H'], f64[B, N', S] = sdpa %q, %k, %v " attributes "\n"

static const double one_up[S] = {1, 2, 3, 4, 5, 6, 7, 8};
static const double half_up[S] = {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5};
// Of L = sum of out: the sum over t >= s of 1 / (t + 1).
static const double causal_dv[S] = {1 / 1. + 1 / 2. + 1 / 3. + 1 / 4. + 1 / 5. + 1 / 6. + 1 / 7. +
                                        1 / 8.,
                                    1 / 2. + 1 / 3. + 1 / 4. + 1 / 5. + 1 / 6. + 1 / 7. + 1 / 8.,
                                    1 / 3. + 1 / 4. + 1 / 5. + 1 / 6. + 1 / 7. + 1 / 8.,
                                    1 / 4. + 1 / 5. + 1 / 6. + 1 / 7. + 1 / 8.,
                                    1 / 5. + 1 / 6. + 1 / 7. + 1 / 8.,
                                    1 / 6. + 1 / 7. + 1 / 8.,
                                    1 / 7. + 1 / 8.,
                                    1 / 8.};

static void sp_case_17(void **state)
{
    (void)state;
    double v[32], out[32], dv[32];
    toy t = {1, 4, 4, SDPA("{scale = 0.35}")};
    check(&t, heads(v, 4, one_up), heads(out, 4, half_up), heads(dv, 4, causal_dv), NULL);
    t.batch = 2;
    check_random(t, NULL);
}

static void sp_case_18(void **state)
{
    (void)state;
    double v[S * 2], out[S * 4], dv[S * 2];
    for (int t = 0; t < S; t++) {
        v[t * 2] = t, v[t * 2 + 1] = 10 * t;
        for (int h = 0; h < 4; h++) out[t * 4 + h] = (h < 2 ? 1 : 10) * t / 2.0;
        for (int h = 0; h < 2; h++) dv[t * 2 + h] = 2 * causal_dv[t];
    }
    toy t = {1, 4, 2, SDPA("{scale = 0.35}")};
    check(&t, v, out, dv, NULL);
    t.batch = 2;
    check_random(t, NULL);
}

// The keys seen by query t are those of seen[t]; out is the mean of their v = key + 1.
static void expect(double *out, int n, double *dv, bool (*sees)(int q, int k))
{
    for (int i = 0; i < S * n; i++) dv[i] = out[i] = 0;
    for (int t = 0; t < S; t++) {
        double count = 0, sum = 0;
        for (int k = 0; k < S; k++)
            if (sees(t, k)) count += 1, sum += k + 1;
        for (int h = 0; h < n && count > 0; h++) out[t * n + h] = sum / count;
        for (int k = 0; k < S; k++)
            for (int h = 0; h < n && sees(t, k); h++) dv[k * n + h] += 1 / count;
    }
}

static bool kept(int q, int k) { return k <= q && k < 6; }
static bool causal(int q, int k) { return k <= q; }
static bool near(int q, int k) { return k <= q && q - k < 3; }
static bool not_first(int q, int k) { return k <= q && k != 0 && q != 0; }

static const text_value keep[] = {VALUES("keep", 1, 1, 1, 1, 1, 1, 0, 0), {NULL, 0, NULL}};
static const text_value keep_2[] = {VALUES("keep", 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1),
                                    {NULL, 0, NULL}};

static void sp_case_22(void **state)
{
    (void)state;
    double v[32], out[32], dv[32];
    static const char *const forms[] = {
        "%keep : i64[B, S] = input {name = \"keep\"}\n"
        "%o, %lse : f64[B, N', S, H'], f64[B, N', S] = sdpa %q, %k, %v, %keep "
        "{scale = 0.35, mask = \"T0[k] != 0\"}\n",
        // computed: [B, 1, 1, S] of the keys, [S, S] of positions
        "%keep : bool[B, S] = input {name = \"keep\"}\n"
        "%kv : bool[B, 1, 1, S] = view %keep {shape = [B, 1, 1, S]}\n"
        "%row : i64[S, 1] = view %pos {shape = [S, 1]}\n"
        "%col : i64[1, S] = view %pos {shape = [1, S]}\n"
        "%le : bool[S, S] = le %col, %row\n"
        "%m : bool[B, 1, S, S] = logical_and %kv, %le\n"
        "%o, %lse : f64[B, N', S, H'], f64[B, N', S] = sdpa %q, %k, %v, %m "
        "{scale = 0.35, causal = false, bias = true}\n"};
    static const double by_hand[S] = {1, 1.5, 2, 2.5, 3, 3.5, 3.5, 3.5};
    expect(out, 4, dv, kept);
    for (int i = 0; i < S; i++) assert_true(fabs(out[4 * i] - by_hand[i]) < 1e-14);
    for (int i = 0; i < 2; i++) {
        toy t = {1, 4, 4, forms[i]};
        check(&t, heads(v, 4, one_up), out, dv, keep);
        t.batch = 2;
        check_random(t, keep_2);
    }
}

#define BIAS(type, shape)                                                \
    "%m : " type shape " = input {name = \"m\"}\n"                       \
    "%o, %lse : f64[B, N', S, H'], f64[B, N', S] = sdpa %q, %k, %v, %m " \
    "{scale = 0.35, causal = false, bias = true}\n"

static void sp_case_23(void **state)
{
    (void)state;
    double v[64], out[64], dv[64], allowed[128], added[128];
    for (int i = 0; i < 128; i++) {
        allowed[i] = i % S <= i / S % S;
        added[i] = allowed[i] != 0 ? 0 : -(double)INFINITY;
    }
    expect(out, 4, dv, causal);
    static const struct {
        const char *attention;
        bool is_bool, each_row;
    } forms[] = {
        {BIAS("bool", "[1, 1, S, S]"), true, false}, {BIAS("f64", "[1, 1, S, S]"), false, false},
        {BIAS("bool", "[B, 1, S, S]"), true, true},  {BIAS("f64", "[B, 1, S, S]"), false, true},
        {BIAS("bool", "[S, S]"), true, false},       {BIAS("f64", "[S, S]"), false, false}};
    for (size_t i = 0; i < ASP_COUNT_OF(forms); i++) {
        toy t = {1, 4, 4, forms[i].attention};
        text_value m[] = {{"m", S * S, forms[i].is_bool ? allowed : added}, {NULL, 0, NULL}};
        check(&t, heads(v, 4, one_up), out, dv, m);
        t.batch = 2;
        if (forms[i].each_row) m[0].count *= 2;
        check_random(t, m);
    }
    // Keys 6 and 7 are off in the first row of two, all queries see all the others.
    static const char *const padding[] = {BIAS("bool", "[B, 1, 1, S]"),
                                          BIAS("f64", "[B, 1, 1, S]")};
    for (int f = 0; f < 2; f++) {
        toy t = {2, 4, 4, padding[f]};
        for (int i = 0; i < 16; i++) {
            bool off = i == 6 || i == 7;
            added[i] = f == 0 ? !off : off ? -(double)INFINITY : 0;
        }
        for (int i = 0; i < 64; i++) {
            v[i] = i / 4 % S + 1;
            out[i] = i < 32 ? 3.5 : 4.5;
            dv[i] = i >= 32 ? 1 : i / 4 < 6 ? 8 / 6.0 : 0;
        }
        const text_value m[] = {{"m", 16, added}, {NULL, 0, NULL}};
        check(&t, v, out, dv, m);
        check_random(t, m);
    }
}

static void sp_case_24(void **state)
{
    (void)state;
    double v[16], out[16], dv[16], m[2 * S * S];
    toy t = {1, 2, 2, BIAS("bool", "[1, 2, S, S]")};
    for (int i = 0; i < S * S; i++) {
        m[i] = i % S == i / S;
        m[S * S + i] = i % S <= i / S;
    }
    for (int i = 0; i < S; i++) {
        v[2 * i] = v[2 * i + 1] = out[2 * i] = one_up[i];
        out[2 * i + 1] = half_up[i];
        dv[2 * i] = 1;
        dv[2 * i + 1] = causal_dv[i];
    }
    const text_value more[] = {{"m", 2 * S * S, m}, {NULL, 0, NULL}};
    check(&t, v, out, dv, more);
    t.batch = 2;
    check_random(t, more);
}

// Sinks, slopes and a mask of heads that stay together in groups of two: nine of them over the
// ranks, or over those of a group.
static void sp_case_24_groups(void **state)
{
    (void)state;
    enum { N = 18 };
    double m[N * S * S], slopes[N];
    for (int i = 0; i < N * S * S; i++) m[i] = i % S == i / S % S || i % 7 < 4;
    for (int i = 0; i < N; i++) slopes[i] = 0.5 / (i + 1);
    const text_value more[] = {{"slopes", N, slopes}, {"m", N * S * S, m}, {NULL, 0, NULL}};
    toy t = {2, N, N / 2,
             "%m : bool[N', S, S] = input {name = \"m\"}\n"
             "%sinks : f64[N'] = param {name = \"sinks\"}\n"
             "%slopes : f64[N'] = input {name = \"slopes\"}\n"
             "%o, %lse : f64[B, N', S, H'], f64[B, N', S] = sdpa %q, %k, %v, %m, %sinks, %slopes "
             "{scale = 0.35, bias = true, sinks = true, alibi = \"relative\"}\n"};
    check_random(t, more);
    t.k = N;
    check_random(t, more);
}

static void sp_case_26(void **state)
{
    (void)state;
    double v[32], out[32], dv[32], m[S * S];
    expect(out, 4, dv, not_first); // the first query sees nothing
    for (int i = 0; i < S * S; i++) m[i] = not_first(i / S, i % S);
    const text_value more[] = {{"m", S * S, m}, {NULL, 0, NULL}};
    toy t = {1, 4, 4, BIAS("bool", "[S, S]")};
    check(&t, heads(v, 4, one_up), out, dv, more);
    for (int i = 0; i < S * S; i++) m[i] = m[i] != 0 ? 0 : -(double)INFINITY;
    t.attention = BIAS("f64", "[S, S]");
    check(&t, heads(v, 4, one_up), out, dv, more);
    check_random(t, more);
    // By a predicate of one key mask.
    const text_value keys[] = {VALUES("keep", 0, 1, 1, 1, 1, 1, 1, 1), {NULL, 0, NULL}};
    t.attention = "%keep : i64[B, S] = input {name = \"keep\"}\n"
                  "%o, %lse : f64[B, N', S, H'], f64[B, N', S] = sdpa %q, %k, %v, %keep "
                  "{scale = 0.35, mask = \"T0[k] != 0\"}\n";
    check(&t, heads(v, 4, one_up), out, dv, keys);
    check_random(t, keys);
    // finfo.min: the mean of v over all keys, future ones included.
    for (int i = 0; i < S * S; i++) m[i] = m[i] < 0 ? -1.7976931348623157e308 : 0;
    for (int i = 0; i < 32; i++) {
        out[i] = i < 4 ? 4.5 : out[i];
        dv[i] += 1 / 8.0;
    }
    t.attention = BIAS("f64", "[S, S]");
    check(&t, heads(v, 4, one_up), out, dv, more);
    check_random(t, more);
}

static void sp_case_28(void **state)
{
    (void)state;
    double v[32], out[32], dv[32];
    static const double by_hand[S] = {1, 1.5, 2, 3, 4, 5, 6, 7};
    static const char *const forms[] = {
        SDPA("{scale = 0.35, mask = \"q - k <= 2\"}"),
        "%row : i64[S, 1] = view %pos {shape = [S, 1]}\n"
        "%col : i64[1, S] = view %pos {shape = [1, S]}\n"
        "%le : bool[S, S] = le %col, %row\n"
        "%d : i64[S, S] = sub %row, %col\n%two : i64[] = constant {value = 2}\n"
        "%w : bool[S, S] = le %d, %two\n%m : bool[S, S] = logical_and %le, %w\n"
        "%o, %lse : f64[B, N', S, H'], f64[B, N', S] = sdpa %q, %k, %v, %m "
        "{scale = 0.35, causal = false, bias = true}\n"};
    expect(out, 4, dv, near);
    for (int i = 0; i < S; i++) assert_true(fabs(out[4 * i] - by_hand[i]) < 1e-14);
    for (int i = 0; i < 2; i++) {
        toy t = {1, 4, 4, forms[i]};
        check(&t, heads(v, 4, one_up), out, dv, NULL);
        t.batch = 2;
        check_random(t, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sp_case_17), cmocka_unit_test(sp_case_18),
        cmocka_unit_test(sp_case_22), cmocka_unit_test(sp_case_23),
        cmocka_unit_test(sp_case_24), cmocka_unit_test(sp_case_24_groups),
        cmocka_unit_test(sp_case_26), cmocka_unit_test(sp_case_28)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
