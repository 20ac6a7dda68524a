// The longest sequence that fits: plans at a few lengths, nothing runs.  Neighbours: train.h
// (contract), fit.c and levers.c (who ask), run/compile.h (plans).
//
// The part of compilation that does not depend on S is done once; each trial reruns remat to memory
// plan.  Memory grows with S and is nearly a line, so the line through the longest length known to
// fit and the shortest known not to says where to look next.  Where that is not far enough from the
// end that moved last, steps from it double: about 6 plans for the exact answer on a line, and
// never more than bisection would want by a factor of 2.
//
// Under --ac budget the question is at which length the smallest program still fits
// (asp_compile_options.smallest).  Which it is depends on the length, so it is looked for where
// `layer`, which is never smaller, ends, and again where that leads to.  SPDX-License-Identifier:
// Apache-2.0
#include "train/train.h"

#define MAX_SEQ (INT64_C(1) << 36)
#define FIRST_SEQ 4096
#define MOST_LOOKS 4
#define LAYER_SLACK 0.05

typedef struct point {
    int64_t at; // in units of P
    double bytes;
} point;

typedef struct search {
    asp_ctx *cx;
    const asp_graph *joint;
    asp_compile_options o;
    double memory;
    point before, low, high; // low fits and high does not; before: fitted earlier than low
    int64_t step;            // from the end that moved last; negative: that was high
    bool anew;               // forget which choices are the smallest before each probe
} search;

static asp_status probe(search *s, int64_t at)
{
    asp_plan *plan;
    s->o.seq = at * s->o.ranks;
    if (s->anew) asp_smallest_forget(s->o.smallest);
    ASP_TRY(asp_compile_plan(s->cx, s->joint, &s->o, NULL, &plan));
    const point p = {at, (double)asp_plan_get_report(plan)->rank_bytes};
    asp_plan_destroy(plan);
    const bool fits = p.bytes <= s->memory;
    if (fits) {
        s->before = s->low;
        s->low = p;
    } else {
        s->high = p;
    }
    if (fits == (s->step > 0))
        s->step *= 2;
    else
        s->step = fits ? 1 : -1;
    return ASP_OK;
}

// Where the line through a and b reaches the memory; further for `more`, a part of the way.
static double reach(const search *s, point a, point b, double more)
{
    const double slope = (b.bytes - a.bytes) / (double)(b.at - a.at);
    if (!(slope > 0)) return 2 * (double)b.at;
    return (double)b.at + (1 + more) * (s->memory - b.bytes) / slope;
}

// Until a length does not fit.  *out_ends: lengths that are too large to ask for fit as well.
static asp_status find_high(search *s, int64_t first, bool *out_ends)
{
    const int64_t most = MAX_SEQ / s->o.ranks;
    int64_t at = asp_max(1, asp_min(s->low.at ? 2 * s->low.at : first, most));
    *out_ends = false;
    while (s->high.at == 0) {
        ASP_TRY(probe(s, at));
        if (s->high.at == 0 && at == most) {
            *out_ends = true;
            return ASP_OK;
        }
        const double there = s->before.at ? reach(s, s->before, s->low, 0.02) : 0;
        const double least = (double)(at + asp_max(1, at / 64)), far = 16 * (double)at;
        const double next = there < least ? (s->before.at ? least : 2 * (double)at) : there;
        at = (int64_t)(next < far ? next : far);
        at = asp_min(at, most);
    }
    return ASP_OK;
}

// Where nothing is known to fit, the least length says whether anything does.
static int64_t between(const search *s)
{
    if (s->low.at == 0) return 1;
    const double line = reach(s, s->high, s->low, 0);
    int64_t at =
        line < (double)s->high.at ? (int64_t)line : s->low.at + (s->high.at - s->low.at) / 2;
    at = s->step > 0 ? asp_max(at, s->low.at + s->step) : asp_min(at, s->high.at + s->step);
    return asp_max(s->low.at + 1, asp_min(at, s->high.at - 1));
}

// Exact to `slack` of the answer.
static asp_status find(search *s, int64_t first, double slack)
{
    bool ends;
    s->step = 1;
    ASP_TRY(find_high(s, first, &ends));
    while (!ends && s->high.at - s->low.at > 1 &&
           (double)(s->high.at - s->low.at) > slack * (double)s->low.at)
        ASP_TRY(probe(s, between(s)));
    return ASP_OK;
}

// Under a budget the choices that end the search were the smallest at some other length.  They are
// looked for again at both ends that it came to.  Where that moves an end the search goes on from
// there, at last with choices of their own for each length.
static asp_status find_all(search *s, int64_t first, double slack)
{
    ASP_TRY(find(s, first, slack));
    for (int i = 0; slack == 0 && !s->anew; i++) {
        const int64_t low = asp_max(s->low.at, 1), high = s->high.at;
        if (asp_smallest_hash(s->o.smallest) == 0) return ASP_OK;
        s->before = s->low = s->high = (point){0, 0};
        s->anew = true;
        ASP_TRY(probe(s, low));
        if (s->low.at && high > low) ASP_TRY(probe(s, high));
        if (s->low.at <= low && s->high.at && s->high.at - s->low.at <= 1) return ASP_OK;
        s->anew = i + 1 == MOST_LOOKS;
        ASP_TRY(find(s, low, slack));
    }
    return ASP_OK;
}

static asp_status find_start(const search *s, int64_t *first)
{
    search layer = *s;
    if (strcmp(s->o.ac, "budget") != 0) return ASP_OK;
    layer.o.ac = "layer";
    layer.o.smallest = NULL;
    ASP_TRY(find(&layer, *first, LAYER_SLACK));
    if (layer.low.at) *first = layer.low.at;
    return ASP_OK;
}

static asp_status find_in(asp_ctx *cx, const asp_graph *joint, const asp_compile_options *o,
                          int64_t memory, int64_t first, bool from_there, double slack,
                          int64_t *out_seq)
{
    search s = {.cx = cx, .joint = joint, .o = *o, .memory = (double)memory};
    s.o.memory = memory;
    if (!o->smallest) s.o.smallest = asp_smallest_create(cx);
    asp_status status = from_there ? probe(&s, first) : find_start(&s, &first);
    if (status == ASP_OK && s.high.at == 0) status = find_all(&s, first, slack);
    if (!o->smallest) asp_smallest_destroy(s.o.smallest);
    *out_seq = s.low.at * o->ranks;
    return status;
}

asp_status asp_train_longest(asp_ctx *cx, const asp_graph *joint, const asp_compile_options *o,
                             int64_t memory, int64_t *out_seq)
{
    return find_in(cx, joint, o, memory, FIRST_SEQ, false, 0, out_seq);
}

asp_status asp_train_longer(asp_ctx *cx, const asp_graph *joint, const asp_compile_options *o,
                            int64_t memory, int64_t from, double slack, int64_t *out_seq)
{
    return find_in(cx, joint, o, memory, from / o->ranks, true, slack, out_seq);
}
