// Predicates over positions: hand values, normal form, and random texts against an evaluator of the
// test's own.  SPDX-License-Identifier: Apache-2.0
#include "op/mask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static asp_ctx cx;

static asp_mask parsed(const char *text)
{
    asp_mask m;
    if (asp_mask_parse(&cx, text, &m) < 0) fail_msg("%s", cx.message);
    return m;
}

static void prints(const char *text, const char *want)
{
    asp_arena a;
    asp_text t;
    asp_mask m = parsed(text);
    asp_arena_init(&a, &cx);
    asp_text_init(&t, &a);
    asp_mask_print(&t, &m);
    assert_string_equal(t.at, want);
    asp_arena_fini(&a);
}

static void normal_forms(void **state)
{
    (void)state;
    prints("", "true");
    prints("k <= q", "k <= q");
    prints("q >= k", "k <= q");
    prints("k - q <= 0", "k <= q");
    prints("0 <= q - k", "k <= q");
    prints("k < q + 1", "k <= q");
    prints("k < q", "-q + k <= -1");
    prints("q-k<=1023", "q - k <= 1023");
    prints("k > q - 1024", "q - k <= 1023");
    prints("2 * k <= 2 * q + 1", "k <= q");
    prints("! (k > q)", "k <= q");
    prints("!(k <= q & q - k <= 3)", "q - k <= -1 | -q + k <= -4");
    prints("T0[k] == T0[q]", "T0[q] == T0[k]");
    prints("-T0[q] == -T0[k]", "T0[q] == T0[k]");
    prints("T1[k] != 0 & T1[k] != 0", "T1[k] != 0");
    prints("q/128 == k/128", "q/128 == k/128");
    prints("k <= q & (T0[q] == 1 | T0[k] == 1)", "k <= q & (T0[q] == 1 | T0[k] == 1)");
    prints("k > 3", "k >= 4");
    prints("k < 4", "-k >= -3");
    prints("-q <= 0", "true");
    prints("q + k < 0", "false");
    prints("q == q", "true");
    prints("2 * q == 1", "false");
    prints("k <= q | true", "true");
    prints("k <= q & true", "k <= q");
    prints("3 < 2", "false");
    prints("k <= q & k <= q & (k <= q & q <= 7)", "k <= q & q <= 7");
}

static void refused(const char *text, const char *message)
{
    asp_mask m;
    assert_int_equal(asp_mask_parse(&cx, text, &m), ASP_ERR_INPUT);
    if (!strstr(cx.message, message)) fail_msg("%s", cx.message);
    assert_false(asp_mask_read(text, &m));
}

static void malformed_texts_are_refused(void **state)
{
    (void)state;
    refused("k <", "character 4: q, k, a look-up or a number expected");
    refused("k <= q &", "character 9: q, k,");
    refused("k q", "character 3: a comparison expected");
    refused("k <= q q", "character 8: '&', '|' or the end expected");
    refused("(k <= q", "')' expected");
    refused("T9[q] == 1", "too many look-ups");
    refused("T0(q) == 1", "'[' expected");
    refused("T0[x] == 1", "q or k expected");
    refused("Tq == 1", "number of a look-up expected");
    refused("k <= q/0", "a positive number expected");
    refused("k <= 99999999999999999999", "number too large");
    refused("x <= q", "character 1:");
    refused("((((((((((((((((((((((((((k <= q))))))))))))))))))))))))))", "nested too deep");
    char many[4000] = "q == 1";
    for (int i = 0; i < 60; i++) snprintf(many + strlen(many), 60, " | q == %d + k", i + 7);
    refused(many, "too many");
    static char longest[6000];
    memset(longest, ' ', sizeof longest - 1);
    refused(longest, "text too long");
}

static void causal_is_found_among_conditions(void **state)
{
    (void)state;
    asp_mask m = parsed("q - k <= 3 & k <= q & T0[q] == T0[k]");
    assert_true(asp_mask_is_causal(&m));
    assert_int_equal(m.n_lookups, 1);
    m = parsed("q - k <= 3 | k <= q");
    assert_false(asp_mask_is_causal(&m));
    m = parsed("k <= q + 1");
    assert_false(asp_mask_is_causal(&m));
    m = parsed("T2[k] != 0");
    assert_int_equal(m.n_lookups, 3);
    assert_int_equal(m.query_lookups, 0);
    assert_int_equal(m.key_lookups, 4);
}

// ---- random texts ------------------------------------------------------------------------------

static uint32_t seed = 5;
static int64_t below(int64_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)(seed >> 8) % n;
}

static int64_t at_q[ASP_MASK_MAX_LOOKUPS], at_k[ASP_MASK_MAX_LOOKUPS], pos_q, pos_k;

// Appends a random sum to text and gives its value at the positions above.
static int64_t random_sum(char *text, size_t bytes)
{
    int64_t value = 0;
    for (int64_t i = 0, n = 1 + below(3); i < n; i++) {
        size_t at = strlen(text);
        const int64_t sign = below(3) ? 1 : -1, coef = 1 + below(3), div = 1 + below(4);
        const int64_t what = below(5), index = below(2);
        const char *join = sign < 0 ? " - " : i ? " + " : "";
        int64_t x = what == 0   ? coef
                    : what == 1 ? pos_q
                    : what == 2 ? pos_k
                    : what == 3 ? at_q[index]
                                : at_k[index];
        if (what == 0) {
            snprintf(text + at, bytes - at, "%s%d", join, (int)coef);
            value += sign * coef;
            continue;
        }
        snprintf(text + at, bytes - at, "%s%d * ", join, (int)coef);
        at = strlen(text);
        if (what < 3)
            snprintf(text + at, bytes - at, "%c/%d", what == 1 ? 'q' : 'k', (int)div);
        else
            snprintf(text + at, bytes - at, "T%d[%c]/%d", (int)index, what == 3 ? 'q' : 'k',
                     (int)div);
        int64_t down = x / div;
        if (down * div > x) down--;
        value += sign * coef * down;
    }
    return value;
}

static bool random_mask(char *text, size_t bytes, int depth)
{
    const int64_t kind = below(depth > 2 ? 1 : 5);
    if (kind == 3) {
        strcat(text, "!(");
        bool x = random_mask(text, bytes, depth + 1);
        strcat(text, ")");
        return !x;
    }
    if (kind > 0) {
        strcat(text, "(");
        bool x = random_mask(text, bytes, depth + 1);
        strcat(text, kind == 1 ? " & " : " | ");
        bool y = random_mask(text, bytes, depth + 1);
        strcat(text, ")");
        return kind == 1 ? x & y : x | y;
    }
    static const char *const rels[] = {"<=", "<", ">=", ">", "==", "!="};
    const int64_t a = random_sum(text, bytes), rel = below(6);
    strcat(text, rels[rel]);
    const int64_t c = random_sum(text, bytes);
    return rel == 0   ? a <= c
           : rel == 1 ? a < c
           : rel == 2 ? a >= c
           : rel == 3 ? a > c
           : rel == 4 ? a == c
                      : a != c;
}

static void random_texts_mean_what_they_say(void **state)
{
    (void)state;
    int held = 0, full = 0;
    for (int i = 0; i < 20000; i++) {
        char text[8192] = "";
        pos_q = below(9), pos_k = below(9);
        for (int j = 0; j < 2; j++) at_q[j] = below(7) - 3, at_k[j] = below(7) - 3;
        const bool want = random_mask(text, sizeof text, 0);
        asp_mask m, again;
        if (asp_mask_parse(&cx, text, &m) < 0) { // more terms or relations than a mask holds
            if (!strstr(cx.message, "too many")) fail_msg("%s", cx.message);
            full++;
            continue;
        }
        if (asp_mask_allows(&m, pos_q, pos_k, at_q, at_k) != want) fail_msg("%s", text);
        asp_arena a;
        asp_text t;
        asp_arena_init(&a, &cx);
        asp_text_init(&t, &a);
        asp_mask_print(&t, &m);
        again = parsed(t.at);
        asp_text reprinted; // structs have padding: texts are compared
        asp_text_init(&reprinted, &a);
        asp_mask_print(&reprinted, &again);
        assert_string_equal(reprinted.at, t.at);
        asp_arena_fini(&a);
        held += want;
    }
    assert_true(full < 1000 && held > 5000 && held < 15000);
}

// Values at the ends of 64 bits compare as they are.
static void large_values(void **state)
{
    (void)state;
    const int64_t big[] = {INT64_MAX, 0, 0, 0}, other[] = {INT64_MAX - 1, 0, 0, 0},
                  low[] = {INT64_MIN, 0, 0, 0};
    asp_mask m = parsed("T0[q] == T0[k]");
    assert_true(asp_mask_allows(&m, 0, 0, big, big));
    assert_false(asp_mask_allows(&m, 0, 0, big, other));
    assert_false(asp_mask_allows(&m, 0, 0, low, big));
    assert_true(asp_mask_allows(&m, 0, 0, low, low));
}

static void causal_is_one_more_condition(void **state)
{
    (void)state;
    static const char *const masks[][2] = {{"", "k <= q"},
                                           {"k <= q", "k <= q"},
                                           {"q - k <= 2", "q - k <= 2 & k <= q"},
                                           {"T0[k] != 0", "T0[k] != 0 & k <= q"},
                                           {"q - k <= 2 & k <= q", "q - k <= 2 & k <= q"}};
    for (size_t i = 0; i < ASP_COUNT_OF(masks); i++) {
        asp_mask m, want;
        assert_true(asp_mask_read(masks[i][0], &m) && asp_mask_read(masks[i][1], &want));
        assert_true(asp_mask_add_causal(&m));
        for (int64_t q = 0; q < 6; q++)
            for (int64_t k = 0; k < 6; k++) {
                const int64_t at[ASP_MASK_MAX_LOOKUPS] = {k % 2};
                assert_int_equal(asp_mask_allows(&m, q, k, at, at),
                                 asp_mask_allows(&want, q, k, at, at));
            }
    }
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_is_one_more_condition),
        cmocka_unit_test(normal_forms),
        cmocka_unit_test(malformed_texts_are_refused),
        cmocka_unit_test(causal_is_found_among_conditions),
        cmocka_unit_test(random_texts_mean_what_they_say),
        cmocka_unit_test(large_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
