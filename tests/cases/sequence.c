// Ops along the sequence: convolution, running sums, pooling, the last token, norms.
// Neighbours: support/cases.h.  SPDX-License-Identifier: Apache-2.0
#include "cases/support/cases.h"

#include <math.h>

#define TOKENS                                                                          \
    "%xw : f64[8, 1] = param {name = \"x\"}\n%x : f64[B, S, 1] = embedding %ids, %xw\n" \
    "%ww : f64[8, 1] = param {name = \"w\"}\n%w : f64[B, S, 1] = embedding %ids, %ww\n"
#define WEIGHTED "%r : f64[B, S, 1] = mul %o, %w\n%loss : f64[] = sum %r {dims = [0, 1, 2]}\n"

static const double one_up[8] = {1, 2, 3, 4, 5, 6, 7, 8};

// Tokens 1 .. 8; `out` of each, the gradient of its weight; or the loss alone.
static void check(const char *body, const double *out, double loss)
{
    sp_case c = {.body = body,
                 .batch = 1,
                 .seq = 8,
                 .loss = loss,
                 .given = {{"x", 8, one_up}, {"w", 8, one_up}}};
    if (out) c.want[0] = (text_value){"w", 8, out};
    sp_check(&c);
    c.given[0] = (text_value){"w", 8, one_up}; // and of random tokens, against one device
    c.given[1] = (text_value){NULL, 0, NULL};
    c.want[0] = (text_value){NULL, 0, NULL};
    c.loss = (double)NAN, c.seed = 3;
    sp_check(&c);
}

static void sp_case_37(void **state)
{
    (void)state;
    static const double conv[8] = {1, 3, 6, 9, 12, 15, 18, 21};
    static const double sums[8] = {1, 3, 6, 10, 15, 21, 28, 36};
    double norm[8];
    check(TOKENS "%k0 : f64[1, 1, 3] = constant {value = 1}\n"
                 "%t : f64[B, 1, S] = permute %x {perm = [0, 2, 1]}\n"
                 "%c : f64[B, 1, S] = conv1d %t, %k0 {left = 2}\n"
                 "%o : f64[B, S, 1] = permute %c {perm = [0, 2, 1]}\n" WEIGHTED,
          conv, (double)NAN);
    check(TOKENS "%o : f64[B, S, 1] = cumsum %x {dim = 1}\n" WEIGHTED, sums, (double)NAN);
    check(TOKENS "%m : f64[B, 1] = mean %x {dims = [1]}\n%loss : f64[] = sum %m {dims = [0, 1]}\n",
          NULL, 4.5);
    check(TOKENS "%m : f64[B, 1] = select %x {dim = 1, at = S - 1}\n"
                 "%loss : f64[] = sum %m {dims = [0, 1]}\n",
          NULL, 8);
    // Of the last token: its gradient is at the last row alone.
    const sp_case last = {.body = TOKENS "%m : f64[B, 1] = select %x {dim = 1, at = S - 1}\n"
                                         "%loss : f64[] = sum %m {dims = [0, 1]}\n",
                          .batch = 1,
                          .seq = 8,
                          .loss = 8,
                          .given = {{"x", 8, one_up}},
                          .want = {VALUES("x", 0, 0, 0, 0, 0, 0, 0, 1)}};
    sp_check(&last);
    for (int i = 0; i < 8; i++) norm[i] = (i - 3.5) / sqrt(5.25 + 1e-5);
    check(TOKENS
          "%t : f64[B, 1, S] = permute %x {perm = [0, 2, 1]}\n"
          "%b, %bm, %bv : f64[B, 1, S], f64[1], f64[1] = batch_norm %t {dim = 1, eps = 1e-5}\n"
          "%o : f64[B, S, 1] = permute %b {perm = [0, 2, 1]}\n" WEIGHTED,
          norm, (double)NAN);
}

// Norms of a token's own numbers exchange nothing but gradients.
static void sp_case_37_norms(void **state)
{
    (void)state;
    static const char *const norms[] = {"rms_norm %x, %g", "layer_norm %x, %g"};
    for (int i = 0; i < 2; i++) {
        char body[512];
        snprintf(
            body, sizeof body,
            "%%xw : f64[8, 4] = param {name = \"x\"}\n%%x : f64[B, S, 4] = embedding %%ids, %%xw\n"
            "%%g : f64[4] = param {name = \"norm\"}\n%%o : f64[B, S, 4] = %s\n"
            "%%q : f64[B, S, 4] = mul %%o, %%x\n%%loss : f64[] = sum %%q {dims = [0, 1, 2]}\n",
            norms[i]);
        sp_case c = {.body = body, .batch = 1, .seq = 8, .seed = 3, .loss = (double)NAN};
        sp_check(&c);
        text_result r = sp_run(&c, 2, "ulysses");
        int64_t forward = 0;
        for (int e = 0; e < r.report.n_exchanges; e++)
            if (strcmp(r.report.exchanges[e].what, "forward") == 0)
                forward += r.report.exchanges[e].count;
        assert_int_equal(forward, 1); // the loss
        text_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sp_case_37),
                                       cmocka_unit_test(sp_case_37_norms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
