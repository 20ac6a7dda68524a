// Plans of one program by size.  Neighbours: compile.h (contract), executor.c (a rank that goes on
// with another plan).
//
// The joint graph is symbolic in S, so a new length reruns remat to memory plan alone.  Few lengths
// are in use at a time: they are looked for one by one.  SPDX-License-Identifier: Apache-2.0
#include "run/compile.h"

#include <stdlib.h>

typedef struct sized_plan {
    int64_t seq;
    asp_plan *plan; // owned
    struct sized_plan *next;
} sized_plan;

struct asp_plans {
    asp_graph *joint; // owned
    asp_compile_options options;
    sized_plan *first; // owned
};

asp_status asp_plans_create(asp_ctx *cx, const asp_graph *module,
                            const asp_compile_options *options, asp_plans **out_plans)
{
    asp_plans *p = calloc(1, sizeof *p);
    if (!p) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for plans");
    p->options = *options;
    p->options.choice = NULL; // nobody asks here, and it may be gone when a plan is made
    asp_status s = asp_compile_joint(cx, module, &p->options, NULL, &p->joint);
    if (s < 0) {
        free(p);
        return s;
    }
    *out_plans = p;
    return ASP_OK;
}

void asp_plans_destroy(asp_plans *p)
{
    if (!p) return;
    for (sized_plan *x = p->first, *next; x; x = next) {
        next = x->next;
        asp_plan_destroy(x->plan);
        free(x);
    }
    asp_graph_destroy(p->joint);
    free(p);
}

asp_status asp_plans_get(asp_plans *p, asp_ctx *cx, int64_t seq, const asp_plan **out_plan)
{
    sized_plan *x = p->first;
    while (x && x->seq != seq) x = x->next;
    if (!x) {
        asp_compile_options o = p->options;
        o.seq = seq;
        x = calloc(1, sizeof *x);
        if (!x) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for a plan");
        asp_status s = asp_compile_plan(cx, p->joint, &o, NULL, &x->plan);
        if (s < 0) {
            free(x);
            return s;
        }
        x->seq = seq;
        x->next = p->first;
        p->first = x;
    }
    *out_plan = x->plan;
    return ASP_OK;
}
