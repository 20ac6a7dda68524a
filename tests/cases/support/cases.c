// Neighbours: cases.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "cases/support/cases.h"
#include "unit/sparse.h"

#include <math.h>
#include <stdlib.h>

#define BOUND 1e-12
#define MOST_RANKS (SPARSE(2) == 1 ? 8 : 4)

const sp_strategy sp_strategies[] = {{"ulysses", 0},    {"ring", 0},       {"auto", 0},
                                     {"hybrid:2x2", 4}, {"hybrid:2x4", 8}, {NULL, 0}};

// One step, or why not.
static text_result step(const sp_case *c, int64_t ranks, const char *sp)
{
    static const char head[] = "graph t {\n"
                               "%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
                               "%y : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
                               "%pos : i64[S] = iota\n";
    size_t bytes = sizeof head + strlen(c->body) + 64;
    char *text = malloc(bytes);
    double ids[256];
    text_value given[16];
    int n = 0;
    assert_non_null(text);
    assert_true(c->batch * c->seq <= 256);
    snprintf(text, bytes, "%s%s\nreturn \"loss\" = %%loss\n}\n", head, c->body);
    for (; c->given[n].name; n++) given[n] = c->given[n];
    for (int64_t i = 0; i < c->batch * c->seq; i++) ids[i] = (double)i;
    if (!c->random_ids) given[n++] = (text_value){"ids", c->batch * c->seq, ids};
    given[n] = (text_value){NULL, 0, NULL};
    text_case t = {.text = text,
                   .ranks = ranks,
                   .batch = c->batch,
                   .seq = c->seq,
                   .threads = 1,
                   .sp = sp,
                   .ac = c->ac ? c->ac : "none",
                   .seed = c->seed,
                   .vocab = c->vocab ? c->vocab : 3,
                   .given = given,
                   .update = true};
    text_result r = text_run(&t);
    free(text);
    return r;
}

text_result sp_run(const sp_case *c, int64_t ranks, const char *sp)
{
    text_result r = step(c, ranks, sp);
    if (r.status < 0) fail_msg("%lld ranks, %s: %s\n%s", (long long)ranks, sp, r.message, c->body);
    return r;
}

// A strategy that goes round a ring says why it does not.
static bool is_refused(const sp_case *c, int64_t ranks, const char *sp)
{
    if (!c->no_ring || (strcmp(sp, "ring") != 0 && strncmp(sp, "hybrid", 6) != 0)) return false;
    text_result r = step(c, ranks, sp);
    if (r.status != ASP_ERR_UNSUPPORTED || !strstr(r.message, c->no_ring))
        fail_msg("%s is not refused with '%s' but %d: %s", sp, c->no_ring, r.status, r.message);
    text_free(&r);
    return true;
}

const text_gradient *sp_gradient(const text_result *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->grad[i].name, name) == 0) return &r->grad[i];
    fail_msg("there is no parameter %s", name);
    return NULL;
}

static void close_to(double got, double want, const char *what, int64_t i)
{
    if (!(fabs(got - want) <= BOUND * fmax(1, fabs(want))))
        fail_msg("%s[%lld] is %.17g, not %.17g", what, (long long)i, got, want);
}

static void by_hand(const sp_case *c, const text_result *r)
{
    if (c->nan)
        assert_true(isnan(r->loss));
    else if (!isnan(c->loss))
        close_to(r->loss, c->loss, "loss", 0);
    for (const text_value *w = c->want; w->name; w++) {
        const text_gradient *g = sp_gradient(r, w->name);
        assert_int_equal(g->count, w->count);
        for (int64_t i = 0; i < g->count; i++) close_to(g->at[i], w->at[i], w->name, i);
    }
}

void sp_equal(const text_result *one, const text_result *other, const char *what)
{
    double loss = fabs(one->loss - other->loss), gradients = text_gradient_error(one, other);
    if (isnan(one->loss) && isnan(other->loss)) loss = 0;
    if (!(loss <= BOUND * fabs(one->loss) || loss <= 1e-300) || !(gradients <= BOUND))
        fail_msg("%s: loss %.17g, %.17g on one device; gradients differ by %.2e", what, other->loss,
                 one->loss, gradients);
    const double updates = text_update_error(one, other);
    if (!(updates <= BOUND)) fail_msg("%s: parameters after a step differ by %.2e", what, updates);
    if (!other->ranks_agree) fail_msg("%s: ranks differ", what);
}

void sp_check(const sp_case *c)
{
    text_result one = sp_run(c, 1, "auto");
    by_hand(c, &one);
    for (const sp_strategy *s = sp_strategies; s->sp; s++) {
        for (int64_t ranks = 2; ranks <= (c->max_ranks ? c->max_ranks : MOST_RANKS); ranks *= 2) {
            char what[64];
            if (s->ranks && s->ranks != ranks) continue;
            if (is_refused(c, ranks, s->sp)) continue;
            snprintf(what, sizeof what, "%s on %lld ranks", s->sp, (long long)ranks);
            text_result many = sp_run(c, ranks, s->sp);
            sp_equal(&one, &many, what);
            by_hand(c, &many);
            text_free(&many);
        }
    }
    text_free(&one);
}
