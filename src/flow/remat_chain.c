// The cheapest option for each segment, for all budgets at once.
//
//   F_k(R)  least time of the segments k .. n-1 where R bytes are left to them
//         = min over options o of a span that begins at k, with need_o <= R, of
//               time_o + F_behind(R - bytes_o)
//   F_n(R) = 0
//
// F_k is a falling step function, kept as its steps (need, time).  Walking from the last segment to
// the first makes F_0, which answers every budget.  Of the steps within one of `buckets` equal
// ranges of bytes only the fastest and the smallest stay; needs are exact, so an answer keeps its
// budget and may be slower than the best by what a range of bytes is worth.
// O(segments x options x buckets).  Neighbours: remat_options.c (options), remat_budget.c (who
// simulates the answers).  SPDX-License-Identifier: Apache-2.0
#include "flow/remat_search.h"

#define NONE ASP_REMAT_NONE

typedef struct board {
    int64_t most, width;
    uint32_t n;
    remat_chain_point *fast, *small; // by range; ps < 0: none
} board;

static bool is_better(const remat_chain_point *x, const remat_chain_point *than)
{
    return than->ps < 0 || x->ps < than->ps || (x->ps == than->ps && x->need < than->need);
}

static bool is_smaller(const remat_chain_point *x, const remat_chain_point *than)
{
    return than->ps < 0 || x->need < than->need || (x->need == than->need && x->ps < than->ps);
}

static void put(board *b, const remat_chain_point *x)
{
    if (x->need > b->most) return;
    uint32_t at = (uint32_t)(x->need / b->width);
    if (is_better(x, &b->fast[at])) b->fast[at] = *x;
    if (is_smaller(x, &b->small[at])) b->small[at] = *x;
}

// The part of F_k that begins with option o.
static void put_option(board *b, const remat_chain *c, const remat_option *o, uint32_t option,
                       uint32_t len, uint32_t behind, int64_t shift)
{
    const remat_chain_point *q = c->points[behind];
    uint32_t n = c->n_points[behind], i = 0;
    int64_t need = o->need + shift;
    while (i + 1 < n && o->bytes + q[i + 1].need <= need) i++; // all of these need the same
    for (; i < n; i++) {
        int64_t more = o->bytes + q[i].need;
        put(b, &(remat_chain_point){.need = asp_max(need, more),
                                    .ps = o->ps + q[i].ps,
                                    .option = option,
                                    .len = len,
                                    .next = i});
    }
}

static void take(const board *b, asp_arena *a, remat_chain *c, uint32_t k)
{
    remat_chain_point *out = ASP_NEW_ARRAY(a, remat_chain_point, 2 * (size_t)b->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->fast[i].ps < 0) continue;
        const remat_chain_point *two[] = {&b->small[i], &b->fast[i]};
        for (int j = 0; j < 2; j++)
            if (n == 0 || two[j]->ps < out[n - 1].ps) out[n++] = *two[j];
    }
    c->points[k] = out;
    c->n_points[k] = n;
}

remat_chain remat_chain_solve(const remat_search *s, int64_t most, uint32_t buckets)
{
    asp_arena *a = s->arena;
    uint32_t n = s->segments->n;
    remat_chain c = {.points = ASP_NEW_ARRAY(a, remat_chain_point *, n + 1),
                     .n_points = ASP_NEW_ARRAY(a, uint32_t, n + 1)};
    board b = {.most = most, .width = most / buckets + 1, .n = buckets + 1};
    b.fast = ASP_NEW_ARRAY(a, remat_chain_point, b.n);
    b.small = ASP_NEW_ARRAY(a, remat_chain_point, b.n);
    c.points[n] = ASP_NEW(a, remat_chain_point);
    c.n_points[n] = 1;
    for (uint32_t k = n; k-- > 0;) {
        for (uint32_t i = 0; i < b.n; i++) b.fast[i].ps = b.small[i].ps = -1;
        for (uint32_t len = 1; len <= s->longest && k + len <= n; len++) {
            const remat_span *span = s->span_of[k * s->longest + len - 1];
            int64_t shift = s->gradients[k + len - 1] - s->gradients[span->first + span->len - 1];
            for (uint32_t i = 0; i < span->n_use; i++)
                put_option(&b, &c, &span->options.at[span->use[i]], span->use[i], len, k + len,
                           shift);
        }
        take(&b, a, &c, k);
    }
    return c;
}

void remat_chain_values(const remat_search *s, const remat_chain *c, uint32_t i, remat_values *out)
{
    uint32_t k = 0;
    while (k < s->segments->n) {
        const remat_chain_point *x = &c->points[k][i];
        const remat_span *span = s->span_of[k * s->longest + x->len - 1];
        remat_add_option_values(s, k, &span->options.at[x->option], out);
        k += x->len;
        i = x->next;
    }
}
