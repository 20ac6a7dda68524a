// --sp auto: which strategy, for this program, these sizes and this machine.
//
//   ulysses, ring, hybrid:UxR for every U R = P, mixed    ->  compiled, planned, priced  ->
//   quickest
//
// Nothing is estimated apart from the program itself: what is priced is the plan that would run, so
// bytes, exchanges and memory of the table are exact, and times are as good as the rates of cost/.
// "mixed" is the cut of pass place with its own prices, attention by attention; it counts as one
// more candidate, and only where it is none of the others.  All ranks choose alike: the price knows
// neither backend nor rank.  O(candidates) compilations.  Neighbours: compile.h (contract),
// price.c, train/report.c (who prints the table).  SPDX-License-Identifier: Apache-2.0
#include "run/compile_int.h"

typedef struct chooser {
    asp_ctx *cx;
    const asp_graph *module;
    asp_compile_options options; // sp changes
    asp_device device;
    asp_links links;
    asp_choice *choice;
    asp_graph *best;   // of the chosen one; NULL: none yet
    asp_status failed; // the last refusal, whose message stands in the context
} chooser;

static bool fits(const chooser *c, const asp_candidate *x)
{
    return c->options.memory <= 0 || x->rank_bytes <= c->options.memory;
}

// Before all: does it fit.  What fits is weighed by time, what does not by bytes.
static bool is_better(const chooser *c, const asp_candidate *x, const asp_candidate *y)
{
    if (fits(c, x) != fits(c, y)) return fits(c, x);
    return fits(c, x) ? x->price.seconds < y->price.seconds : x->rank_bytes < y->rank_bytes;
}

static bool same_price(const asp_candidate *x, const asp_candidate *y)
{
    return !*y->why && x->price.exchanges == y->price.exchanges &&
           x->price.received_bytes == y->price.received_bytes && x->rank_bytes == y->rank_bytes;
}

// What the program is under one strategy.  A refusal is an answer too: it says why.
static asp_status try_candidate(chooser *c, asp_candidate *x, asp_graph **out_joint)
{
    asp_plan *plan;
    asp_graph *joint;
    c->options.sp = x->sp;
    ASP_TRY(asp_compile_joint(c->cx, c->module, &c->options, NULL, &joint));
    asp_status s = asp_compile_plan(c->cx, joint, &c->options, NULL, &plan);
    if (s < 0) {
        asp_graph_destroy(joint);
        return s;
    }
    x->price = asp_plan_price(plan, &c->device, &c->links);
    x->rank_bytes = asp_plan_get_report(plan)->rank_bytes;
    asp_plan_destroy(plan);
    *out_joint = joint;
    return ASP_OK;
}

static asp_status consider(chooser *c, const char *sp)
{
    asp_choice *all = c->choice;
    asp_candidate x = {.why = ""};
    asp_graph *joint = NULL;
    snprintf(x.sp, sizeof x.sp, "%s", sp);
    asp_status s = try_candidate(c, &x, &joint);
    if (s == ASP_ERR_NOMEM) return s;
    c->failed = s < 0 ? s : c->failed;
    if (s < 0) snprintf(x.why, sizeof x.why, "%.*s", (int)sizeof x.why - 1, c->cx->message);
    if (s == ASP_OK && (!c->best || is_better(c, &x, &all->at[all->chosen]))) {
        if (c->best) asp_graph_destroy(c->best);
        c->best = joint;
        all->chosen = all->n;
    } else if (s == ASP_OK)
        asp_graph_destroy(joint);
    all->at[all->n++] = x;
    return ASP_OK;
}

// Last, so that of two equal ones the plain one is taken.  The cut refuses nothing that another
// strategy can split, so its message is the one to show where there is none.
static asp_status consider_mixed(chooser *c)
{
    asp_choice *all = c->choice;
    const int at = all->n;
    asp_status s = consider(c, "mixed");
    bool known = all->chosen != at && *all->at[at].why;
    for (int i = 0; i < at; i++)
        known = known || (all->chosen != at && same_price(&all->at[at], &all->at[i]));
    if (known && c->best) all->n--;
    return s < 0 || c->best ? s : c->failed;
}

static asp_status consider_all(chooser *c)
{
    char name[ASP_CANDIDATE_NAME_BYTES];
    const int64_t ranks = c->options.ranks;
    ASP_TRY(consider(c, "ulysses"));
    ASP_TRY(consider(c, "ring"));
    for (int64_t heads = 2; heads < ranks; heads++) {
        if (ranks % heads != 0 || c->choice->n >= ASP_MAX_CANDIDATES - 1) continue;
        snprintf(name, sizeof name, "hybrid:%lldx%lld", (long long)heads,
                 (long long)(ranks / heads));
        ASP_TRY(consider(c, name));
    }
    return consider_mixed(c);
}

asp_status asp_compile_choose(asp_ctx *cx, const asp_graph *module,
                              const asp_compile_options *options, asp_choice *out_choice,
                              asp_graph **out_joint)
{
    asp_machine machine;
    chooser c = {.cx = cx, .module = module, .options = *options, .choice = out_choice};
    *out_choice = (asp_choice){0};
    ASP_TRY(asp_machine_find(cx, &machine));
    ASP_TRY(asp_links_parse(cx, options->links ? options->links : machine.links, &c.links));
    c.device = asp_compile_device(&machine, options);
    c.options.choice = NULL;
    asp_status s = consider_all(&c);
    if (s < 0) {
        if (c.best) asp_graph_destroy(c.best);
        return s;
    }
    *out_joint = c.best;
    return ASP_OK;
}
