// What each node of an imported PyTorch graph became, remembered until the edit list is written.
//
// Passes insert, remove and rewire nodes but never move them to other indices, so that a copy of
// the lists as they were read is enough to tell what was done.  Neighbours: aten.c (who reads),
// aten_edit.c (who asks).  SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

static aten_made *last(aten_import *m) { return &m->source->made.at[m->source->made.n - 1]; }

void aten_source_begin(aten_import *m, const char *name, const char *overload, const aten_row *row)
{
    if (!m->source) return;
    asp_arena *a = &m->source->arena;
    aten_made made = {.name = asp_copy_str(a, name),
                      .overload = asp_copy_str(a, overload),
                      .loc = asp_copy_str(a, m->b.loc),
                      .row = row,
                      .first = m->g->nodes.n,
                      .end = m->g->nodes.n};
    ASP_PUSH(a, &m->source->made, made);
}

void aten_source_read(aten_import *m, const char *name, asp_val v)
{
    if (!m->source || m->source->made.n == 0) return;
    aten_read r = {.name = asp_copy_str(&m->source->arena, name), .val = v};
    ASP_PUSH(&m->source->arena, &last(m)->reads, r);
}

void aten_source_end(aten_import *m, const asp_val *at, uint32_t n, bool list)
{
    if (!m->source) return;
    aten_made *made = last(m);
    made->end = m->g->nodes.n;
    made->at = asp_copy_bytes(&m->source->arena, at, n * sizeof *at);
    made->n = n;
    made->list = list;
}

// What the file calls a value: the node that gives it, or the first that picks it from a list.
static void name_values(asp_aten_source *s, const asp_graph *g)
{
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        const bool given = info->op == ASP_OP_input || info->op == ASP_OP_param;
        if (given && !s->maker[n.i]) s->name[info->first.i] = g->vals.at[info->first.i].name;
    }
    for (uint32_t i = 0; i < s->made.n; i++) {
        const aten_made *made = &s->made.at[i];
        for (uint32_t k = 0; k < made->n && !made->list; k++)
            if (!s->name[made->at[k].i]) s->name[made->at[k].i] = made->name;
    }
}

void aten_source_finish(aten_import *m, uint32_t n_outputs)
{
    asp_aten_source *s = m->source;
    asp_arena *a = &s->arena;
    const asp_graph *g = m->g;
    s->n_outputs = n_outputs;
    s->n_nodes = g->nodes.n;
    s->n_vals = g->vals.n;
    s->maker = ASP_NEW_ARRAY(a, uint32_t, g->nodes.n);
    s->name = ASP_NEW_ARRAY(a, const char *, g->vals.n);
    s->type = ASP_NEW_ARRAY(a, asp_type, g->vals.n);
    s->node = asp_copy_bytes(a, g->nodes.at, g->nodes.n * sizeof *g->nodes.at);
    for (uint32_t n = 1; n < g->nodes.n; n++)
        s->node[n].in = asp_copy_bytes(a, s->node[n].in, s->node[n].n_in * sizeof *s->node[n].in);
    for (uint32_t v = 1; v < g->vals.n; v++) s->type[v] = g->vals.at[v].type;
    for (uint32_t i = 0; i < s->made.n; i++)
        for (uint32_t n = s->made.at[i].first; n < s->made.at[i].end; n++) s->maker[n] = i + 1;
    name_values(s, g);
}

void asp_aten_source_destroy(asp_aten_source *s)
{
    if (!s) return;
    asp_arena a = s->arena; // it lies there itself
    asp_arena_fini(&a);
}

bool asp_aten_wants_whole(const asp_aten_source *s) { return s->whole; }

bool asp_aten_unknown(const asp_aten_source *s, uint32_t i, const char **out_what,
                      const asp_val **out_operands, uint32_t *out_n)
{
    for (uint32_t k = 0; k < s->made.n; k++) {
        const aten_made *made = &s->made.at[k];
        if (made->row || strcmp(made->overload, "getitem") == 0 || i-- > 0) continue;
        asp_arena *a = (asp_arena *)(uintptr_t)&s->arena;
        asp_val *at = ASP_NEW_ARRAY(a, asp_val, made->reads.n + 1);
        for (uint32_t r = 0; r < made->reads.n; r++) at[r] = made->reads.at[r].val;
        *out_what = asp_printf(a, "%s, %s%s%s%s", made->name, made->overload,
                               *made->loc ? " (" : "", made->loc, *made->loc ? ")" : "");
        *out_operands = at;
        *out_n = made->reads.n;
        return true;
    }
    return false;
}
