// What a framework has to change in its graph to have the one that passes made of it.
//
//   {"version": 1, "graph": "a1b2...", "ranks": 2,
//    "insert":  [{"before": "v92", "name": "x3", "op": "autosp.all_to_all", "args": [{"ref":
//    "v76"},
//    ...]}],
//    "rewire":  [{"node": "v92", "inputs": {"v76": "x3"}, "set": [[1, [2, {"sym": "ceil(S, 2)"}]]],
//                 "op": "aten.add.Tensor"}],
//    "outputs": ["x9", null]}
//
// A node of the file is kept where all its nodes in the graph are still there and mean the same,
// but for operands from outside and for shapes that have an argument of their own; then its inputs
// are rewired.  Else what stands in its place is told node by node, like what passes inserted,
// before the next node that is kept; so is attention that our kernel runs.  A node that nobody
// reads any more is left to the framework.  In-place ops become those that are not.  O(nodes).
// Neighbours: aten_source.c (what was read), aten_emit.c (one node), aten.def (arguments).
// SPDX-License-Identifier: Apache-2.0
#include "front/aten_edit.h"

typedef enum fate { GONE, KEPT, AGAIN } fate;

typedef struct editor {
    asp_ctx *cx;
    const asp_aten_source *s;
    asp_graph *g;
    asp_arena *arena;
    asp_text insert, rewire;
    const char **name;   // by value: what the framework calls it now, or NULL
    const char **list;   // by value of a list: what it calls the list
    bool *live;          // by node
    uint32_t *uses;      // by value
    fate *fate;          // by index in made
    const char **before; // by node: the next kept one; NULL: the end
    uint32_t n_new, n_inserted, n_rewired;
} editor;

// ---- what becomes of each node of the file -----------------------------------------------------

static bool is_inside(const editor *e, const aten_made *m, asp_val v)
{
    if (v.i >= e->s->n_vals) return false;
    const uint32_t n = e->g->vals.at[v.i].node.i;
    return n >= m->first && n < m->end;
}

static bool type_changed(const editor *e, asp_val v)
{
    return !asp_type_equal(&e->s->type[v.i], asp_val_type(e->g, v));
}

static bool is_shape(const char *param)
{
    return strcmp(param, "size") == 0 || strcmp(param, "shape") == 0;
}

// May another shape be told: by an argument, or does the node follow its operands by itself?
static bool takes_shape(const aten_row *row)
{
    char name[32];
    if (row->flags & ATEN_LIKE) return false;
    for (uint32_t i = 0; aten_param_name(row, i, name); i++) {
        if (is_shape(name)) return true;
        if (strcmp(name, "sizes") == 0) return false;
    }
    return true;
}

// Random numbers are ours, so that they are the same for every number of ranks.
static bool draws(const asp_node_info *n)
{
    if (n->op == ASP_OP_sdpa) return ((const asp_sdpa_attr *)n->attr)->dropout > 0;
    return n->op == ASP_OP_dropout;
}

// Widths of heads that vectors divide.
enum { OWN_WIDTH = 8 };

// On a CPU our kernel takes two thirds of the time of PyTorch's under a causal mask.
static bool is_ours(const editor *e, const asp_node_info *n)
{
    int64_t d, width;
    if (!e->s->own_kernels || n->op != ASP_OP_sdpa || ((const asp_sdpa_attr *)n->attr)->bias)
        return false;
    return asp_size_is_num(e->g, asp_val_type(e->g, n->in[0])->dim[3], &d) &&
           asp_size_is_num(e->g, asp_val_type(e->g, n->in[2])->dim[3], &width) &&
           d % OWN_WIDTH == 0 && width % OWN_WIDTH == 0;
}

// The node that makes v, where it is of this op and nothing else reads it.
static asp_node only_for(const editor *e, asp_val v, asp_op op)
{
    const asp_node n = e->g->vals.at[v.i].node;
    return e->live[n.i] && e->g->nodes.at[n.i].op == op && e->uses[v.i] == 1 ? n : (asp_node){0};
}

// A plain loss that alone reads a product's rows: the product, which is told with it.  None: it is
// told by itself.
static asp_node head_of(const editor *e, uint32_t loss)
{
    const asp_node_info *n = &e->g->nodes.at[loss];
    if (n->op != ASP_OP_cross_entropy || n->n_in != 2) return (asp_node){0};
    const asp_loss_attr *a = n->attr;
    if (strcmp(a->reduction, "none") == 0 || a->smoothing != 0 || a->softcap != 0 || a->zloss != 0)
        return (asp_node){0};
    const asp_type *x = asp_val_type(e->g, n->in[0]), *y = asp_val_type(e->g, n->in[1]);
    const asp_node view = only_for(e, n->in[0], ASP_OP_view);
    const asp_val rows = view.i ? e->g->nodes.at[view.i].in[0] : n->in[0];
    const asp_node head = only_for(e, rows, ASP_OP_linear);
    const asp_type *z = asp_val_type(e->g, rows);
    const bool by_rows = x->rank == y->rank + 1 && z->rank > 0 &&
                         asp_size_equal(x->dim[x->rank - 1], z->dim[z->rank - 1]);
    return by_rows ? head : (asp_node){0};
}

static bool same_node(const editor *e, const aten_made *m, uint32_t n)
{
    const asp_node_info *was = &e->s->node[n], *is = &e->g->nodes.at[n];
    if (!e->live[n] || was->op != is->op || was->n_in != is->n_in || draws(is) || is_ours(e, is) ||
        head_of(e, n).i)
        return false;
    const bool shape = is->op == ASP_OP_view || is->op == ASP_OP_expand;
    if (!asp_attr_equal(is->op, was->attr, is->attr) && !(shape && takes_shape(m->row)))
        return false;
    for (uint32_t k = 0; k < is->n_in; k++)
        if (is_inside(e, m, was->in[k]) && was->in[k].i != is->in[k].i) return false;
    return true;
}

static fate fate_of(const editor *e, const aten_made *m)
{
    bool any = false;
    for (uint32_t k = 0; k < m->n; k++) any |= e->live[e->g->vals.at[m->at[k].i].node.i];
    if (!any) return GONE;
    if (!m->row) return KEPT; // given
    for (uint32_t k = 0; m->row->flags & ATEN_LIKE && k < m->reads.n; k++)
        if (type_changed(e, m->reads.at[k].val)) return AGAIN;
    for (uint32_t n = m->first; n < m->end; n++)
        if (!same_node(e, m, n)) return AGAIN;
    return KEPT;
}

static void decide(editor *e)
{
    for (uint32_t i = 0; i < e->s->made.n; i++) {
        const aten_made *m = &e->s->made.at[i];
        if (m->first == m->end) continue; // getitem
        e->fate[i] = fate_of(e, m);
        for (uint32_t k = 0; k < m->n; k++) {
            if (m->list && e->fate[i] == KEPT) e->list[m->at[k].i] = m->name;
            if (e->fate[i] != KEPT) e->name[m->at[k].i] = NULL;
        }
    }
    const char *next = NULL;
    ASP_FOR_NODES_REVERSE (e->g, n) {
        const uint32_t i = n.i < e->s->n_nodes ? e->s->maker[n.i] : 0;
        if (i && e->fate[i - 1] == KEPT) next = e->s->made.at[i - 1].name;
        e->before[n.i] = next;
    }
}

// ---- what is inserted --------------------------------------------------------------------------

static const char *new_name(editor *e) { return asp_printf(e->arena, "x%u", ++e->n_new); }

static void begin_insert(editor *e, asp_node at)
{
    const char *before = e->before[at.i];
    asp_put(&e->insert, "%s\n{\"before\": ", e->n_inserted++ ? "," : "");
    if (before)
        asp_put(&e->insert, "\"%s\", ", before);
    else
        asp_put(&e->insert, "null, ");
}

static asp_status insert_node(editor *e, asp_node n, asp_node at);

// What the framework calls v, for a reader at `at`; what has no name yet is told there.
static asp_status name_of(editor *e, asp_val v, asp_node at, const char **out)
{
    if (!e->name[v.i] && e->list[v.i]) {
        const char *name = new_name(e);
        begin_insert(e, at);
        asp_put(&e->insert,
                "\"name\": \"%s\", \"op\": \"getitem\", \"args\": [{\"ref\": \"%s\"}, %u], "
                "\"kwargs\": {}}",
                name, e->list[v.i], e->g->vals.at[v.i].result);
        e->name[v.i] = name;
    }
    if (!e->name[v.i]) ASP_TRY(insert_node(e, asp_val_at(e->g, v)->node, at));
    *out = e->name[v.i];
    if (*out) return ASP_OK;
    return asp_fail(e->cx, ASP_ERR_UNSUPPORTED, "%s gives more than PyTorch's op does",
                    asp_node_str(e->g, asp_val_at(e->g, v)->node));
}

// Head and loss by chunks of so many rows.
#define HEAD_ROWS 512

static asp_status insert_head(editor *e, asp_node n, asp_node head, asp_node at)
{
    const asp_node_info *loss = asp_node_at(e->g, n), *product = asp_node_at(e->g, head);
    const asp_loss_attr *a = loss->attr;
    const char *x, *w, *bias = NULL, *labels, *name = new_name(e);
    ASP_TRY(name_of(e, product->in[0], at, &x));
    ASP_TRY(name_of(e, product->in[1], at, &w));
    if (product->n_in > 2) ASP_TRY(name_of(e, product->in[2], at, &bias));
    ASP_TRY(name_of(e, loss->in[1], at, &labels));
    begin_insert(e, at);
    asp_put(&e->insert,
            "\"name\": \"%s\", \"op\": \"autosp.head_loss\", \"args\": [{\"ref\": \"%s\"}, "
            "{\"ref\": \"%s\"}, ",
            name, x, w);
    if (bias)
        asp_put(&e->insert, "{\"ref\": \"%s\"}", bias);
    else
        asp_put(&e->insert, "null");
    asp_put(&e->insert, ", {\"ref\": \"%s\"}, %lld, %d, %d], \"kwargs\": {}}", labels,
            (long long)a->ignore, strcmp(a->reduction, "mean") == 0 ? 1 : 2, HEAD_ROWS);
    e->name[loss->first.i] = name;
    return ASP_OK;
}

static asp_status insert_node(editor *e, asp_node n, asp_node at)
{
    const asp_node head = head_of(e, n.i);
    if (head.i) return insert_head(e, n, head, at);

    const asp_node_info *info = asp_node_at(e->g, n);
    const char *operand[ASP_MAX_OPERANDS], *name = new_name(e);
    for (uint32_t k = 0; k < info->n_in; k++) ASP_TRY(name_of(e, info->in[k], at, &operand[k]));
    begin_insert(e, at);
    ASP_TRY(aten_emit(e->cx, &e->insert, e->g, n, is_ours(e, info), name, operand));
    asp_put(&e->insert, "}");
    e->name[info->first.i] = name;
    return ASP_OK;
}

// ---- what is kept ------------------------------------------------------------------------------

// What the node reads now where it read r; none: r was read for its type alone.
static asp_val now_read(const editor *e, const aten_made *m, asp_val r)
{
    for (uint32_t n = m->first; n < m->end; n++)
        for (uint32_t k = 0; k < e->s->node[n].n_in; k++)
            if (e->s->node[n].in[k].i == r.i) return e->g->nodes.at[n].in[k];
    return (asp_val){0};
}

static asp_status put_inputs(editor *e, const aten_made *m, asp_text *t, uint32_t *n_changes)
{
    for (uint32_t i = 0; i < m->reads.n; i++) {
        const aten_read *r = &m->reads.at[i];
        bool seen = false;
        for (uint32_t k = 0; k < i; k++) seen |= strcmp(m->reads.at[k].name, r->name) == 0;
        if (seen) continue;
        asp_val now = m->row ? now_read(e, m, r->val) : r->val;
        const char *name = r->name;
        // What is read for its type alone, or by an op that is not in the table, stays as it was.
        if (now.i && e->live[asp_val_at(e->g, now)->node.i])
            ASP_TRY(name_of(e, now, (asp_node){m->first}, &name));
        if (strcmp(name, r->name) == 0) continue;
        asp_put(t, "%s\"%s\": \"%s\"", (*n_changes)++ ? ", " : "", r->name, name);
    }
    return ASP_OK;
}

// A group for each channel that the rank holds.
static bool counts_channels(const asp_node_info *n, const char *param)
{
    return n->op == ASP_OP_conv1d && ((const asp_conv_attr *)n->attr)->groups == 0 &&
           strcmp(param, "groups") == 0;
}

// Arguments that say sizes: a whole shape, the pieces of a split, a number of channels.
static uint32_t put_sizes(const editor *e, const aten_made *m, asp_text *t)
{
    char name[32];
    const asp_type *out = asp_val_type(e->g, m->at[0]);
    bool changed = false;
    for (uint32_t k = 0; k < m->n; k++) changed |= type_changed(e, m->at[k]);
    for (uint32_t i = 0; m->row && changed && aten_param_name(m->row, i, name); i++) {
        const uint32_t n = asp_val_at(e->g, m->at[0])->node.i;
        const asp_op op = e->g->nodes.at[n].op;
        if (is_shape(name)) {
            asp_put(t, "[%u, ", i);
            aten_put_shape(t, e->g, out);
        } else if (counts_channels(&e->g->nodes.at[n], name)) {
            asp_put(t, "[%u, ", i);
            aten_put_size(t, e->g, out->dim[1]);
        } else if (op == ASP_OP_split && strcmp(name, "split_size") == 0) {
            asp_put(t, "[%u, ", i);
            aten_put_size(t, e->g, out->dim[((const asp_split_attr *)e->g->nodes.at[n].attr)->dim]);
        } else if (op == ASP_OP_split && strcmp(name, "split_sizes") == 0) {
            const int64_t dim = ((const asp_split_attr *)e->g->nodes.at[n].attr)->dim;
            asp_put(t, "[%u, ", i);
            for (uint32_t k = 0; k < m->n; k++) {
                asp_put(t, "%s", k ? ", " : "[");
                aten_put_size(t, e->g, asp_val_type(e->g, m->at[k])->dim[dim]);
            }
            asp_put(t, "]");
        } else
            continue;
        asp_put(t, "]");
        return 1;
    }
    return 0;
}

// "aten.add_.Tensor" -> "aten.add.Tensor"
static const char *without_in_place(const editor *e, const char *overload)
{
    const char *bar = strstr(overload, "_.");
    ASP_CHECK(bar);
    return asp_printf(e->arena, "%.*s%s", (int)(bar - overload), overload, bar + 1);
}

static asp_status put_kept(editor *e, const aten_made *m)
{
    asp_text inputs, sizes;
    uint32_t n_inputs = 0;
    asp_text_init(&inputs, e->arena);
    asp_text_init(&sizes, e->arena);
    ASP_TRY(put_inputs(e, m, &inputs, &n_inputs));
    const uint32_t n_sizes = put_sizes(e, m, &sizes);
    const bool in_place = m->row && m->row->flags & ATEN_IN_PLACE;
    if (n_inputs == 0 && n_sizes == 0 && !in_place) return ASP_OK;
    asp_put(&e->rewire, "%s\n{\"node\": \"%s\", \"inputs\": {%s}, \"set\": [%s]",
            e->n_rewired++ ? "," : "", m->name, n_inputs ? inputs.at : "", n_sizes ? sizes.at : "");
    if (in_place) asp_put(&e->rewire, ", \"op\": \"%s\"", without_in_place(e, m->overload));
    asp_put(&e->rewire, "}");
    return ASP_OK;
}

// ---- the list ----------------------------------------------------------------------------------

static asp_status walk(editor *e)
{
    ASP_FOR_NODES (e->g, n) {
        const uint32_t i = n.i < e->s->n_nodes ? e->s->maker[n.i] : 0;
        const bool given = n.i < e->s->n_nodes && i == 0;
        if (given) continue;
        if (i && e->fate[i - 1] == KEPT) {
            const aten_made *m = &e->s->made.at[i - 1];
            if (n.i + 1 == m->end) ASP_TRY(put_kept(e, m));
        } else if (!e->name[asp_node_at(e->g, n)->first.i])
            ASP_TRY(insert_node(e, n, n));
    }
    return ASP_OK;
}

static asp_status put_all(editor *e, asp_text *t)
{
    const uint32_t n = e->g->outputs.n;
    const char **name = ASP_NEW_ARRAY(e->arena, const char *, n + 1);
    decide(e);
    ASP_TRY(walk(e));
    for (uint32_t i = 0; i < n; i++)
        ASP_TRY(name_of(e, e->g->outputs.at[i].val, (asp_node){0}, &name[i]));
    asp_put(t, "{\"version\": 1, \"graph\": \"%016llx\", \"ranks\": %lld,\n\"insert\": [%s],\n",
            (unsigned long long)e->s->hash, (long long)e->g->ranks,
            e->n_inserted ? e->insert.at : "");
    asp_put(t, "\"rewire\": [%s],\n\"outputs\": [", e->n_rewired ? e->rewire.at : "");
    for (uint32_t i = 0; i < e->s->n_outputs; i++) {
        asp_put(t, "%s", i ? ", " : "");
        if (i < n)
            asp_put(t, "\"%s\"", name[i]);
        else
            asp_put(t, "null");
    }
    asp_put(t, "]}\n");
    return ASP_OK;
}

asp_status asp_front_put_edits(asp_ctx *cx, const asp_aten_source *s, asp_graph *g, asp_text *t)
{
    asp_arena a;
    asp_arena_init(&a, cx);
    editor e = {.cx = cx, .s = s, .g = g, .arena = &a};
    asp_text_init(&e.insert, &a);
    asp_text_init(&e.rewire, &a);
    e.name = ASP_NEW_ARRAY(&a, const char *, g->vals.n);
    e.list = ASP_NEW_ARRAY(&a, const char *, g->vals.n);
    e.live = ASP_NEW_ARRAY(&a, bool, g->nodes.n);
    e.fate = ASP_NEW_ARRAY(&a, fate, s->made.n + 1);
    e.before = ASP_NEW_ARRAY(&a, const char *, g->nodes.n);
    memcpy(e.name, s->name, s->n_vals * sizeof *s->name);
    e.uses = asp_graph_count_uses(g, &a);
    ASP_FOR_NODES (g, n) e.live[n.i] = true;
    asp_status status = put_all(&e, t);
    asp_arena_fini(&a);
    return status;
}
