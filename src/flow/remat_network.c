// The cut itself.  Every node that depends on no tangent becomes two vertices, in and out:
//
//   source -redo-> in        computing it again costs redo (infinite: forbidden)
//   in -keep-> out           saving it costs keep (infinite: it cannot be saved)
//   out -inf-> in of readers of the forward
//   out -inf-> sink          a reader of the backward, or it is returned as a gradient
//   in -inf-> sink           tagged must-recompute: then nothing else
//
// in on the sink's side: computed again; in on the source's side and out on the sink's: saved.
// Ties go to the cut nearest the sink, which is unique, so the order of edges does not matter.
// Neighbours: maxflow.h (solver), remat.c (prices).  SPDX-License-Identifier: Apache-2.0
#include "flow/maxflow.h"
#include "flow/remat_int.h"

#define SOURCE 0u
#define SINK 1u

static uint32_t vertex_in(uint32_t node) { return 2 + 2 * node; }
static uint32_t vertex_out(uint32_t node) { return 3 + 2 * node; }

static void add_edges(asp_flow *f, const remat_graph *g, uint32_t node, int64_t keep, int64_t redo)
{
    const remat_node *n = &g->nodes[node];
    if (n->flags & ASP_REMAT_MUST_RECOMPUTE) {
        asp_flow_add_edge(f, vertex_in(node), SINK, ASP_FLOW_INF);
        if (redo > 0) asp_flow_add_edge(f, SOURCE, vertex_in(node), redo);
        return;
    }
    if (redo > 0) asp_flow_add_edge(f, SOURCE, vertex_in(node), redo);
    asp_flow_add_edge(f, vertex_in(node), vertex_out(node), keep);
    bool wanted = n->flags & ASP_REMAT_BACKWARD_OUTPUT;
    for (uint32_t u = 0; u < n->n_users; u++) {
        uint32_t user = g->users[n->first_user + u];
        if (g->nodes[user].backward)
            wanted = true;
        else
            asp_flow_add_edge(f, vertex_out(node), vertex_in(user), ASP_FLOW_INF);
    }
    if (wanted) asp_flow_add_edge(f, vertex_out(node), SINK, ASP_FLOW_INF);
}

// ---- why there is no cut -------------------------------------------------------------------

static void say_why_not_again(asp_text *t, const remat_node *n)
{
    if (n->is_input)
        asp_put(t, "cannot be computed (an input)");
    else if (n->flags & ASP_REMAT_MUST_SAVE)
        asp_put(t, "is tagged must-save");
    else
        asp_put(t, "cannot be computed again");
}

// The path is source, in and out of one node after the other, sink.
static asp_status refuse(asp_ctx *cx, asp_arena *a, const remat_graph *g, const asp_flow *f)
{
    uint32_t max = 2 * g->n + 2, *path = ASP_NEW_ARRAY(a, uint32_t, max);
    uint32_t n = asp_flow_infinite_path(f, path, max);
    asp_text t;
    asp_text_init(&t, a);
    for (uint32_t i = 1; i + 1 < n; i++) {
        uint32_t node = (path[i] - 2) / 2;
        const remat_node *x = &g->nodes[node];
        bool enters = path[i] == vertex_in(node),
             crosses = enters && path[i + 1] == vertex_out(node);
        if (!enters) continue;
        asp_put(&t, "%s%s", i == 1 ? "" : ", ", remat_name(a, g, node));
        if (i == 1) {
            asp_put(&t, " ");
            say_why_not_again(&t, x);
        }
        if (crosses)
            asp_put(&t, "%s cannot be kept%s", i == 1 ? " and" : "", x->tuple ? " (a tuple)" : "");
        if (x->flags & ASP_REMAT_MUST_RECOMPUTE)
            asp_put(&t, "%s is tagged must-recompute", i == 1 ? " but" : "");
        else if (path[i + 1] == SINK || (i + 2 < n && path[i + 2] == SINK))
            asp_put(&t, ", yet the backward reads it");
    }
    return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                    "recompute: no choice of saved values is possible: %s; drop the tags on these "
                    "values or choose another policy",
                    t.at);
}

asp_status remat_solve(asp_ctx *cx, asp_arena *a, const remat_graph *g, const int64_t *keep,
                       const int64_t *redo, asp_remat_choice *out_choice)
{
    asp_flow *f = asp_flow_create(a);
    int64_t value;
    for (uint32_t v = 0; v < 2 + 2 * g->n; v++) asp_flow_add_node(f);
    for (uint32_t i = 0; i < g->n; i++)
        if (!g->nodes[i].backward) add_edges(f, g, i, keep[i], redo[i]);
    asp_status s = asp_flow_solve(cx, f, SOURCE, SINK, &value);
    if (s == ASP_ERR_UNSUPPORTED) return refuse(cx, a, g, f);
    ASP_TRY(s);
    uint32_t *saved = ASP_NEW_ARRAY(a, uint32_t, g->n), n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->nodes[i].backward || g->nodes[i].value == ASP_REMAT_NONE) continue;
        if (asp_flow_in_largest_source_side(f, vertex_in(i)) &&
            !asp_flow_in_largest_source_side(f, vertex_out(i)))
            saved[n++] = g->nodes[i].value;
    }
    *out_choice = (asp_remat_choice){.saved = saved, .n_saved = n, .cut = value};
    return ASP_OK;
}
