// pass/masks.c: masks that a graph computes become predicates of attention.
//
//   %i = iota                     : i64[S]
//   %q = view %i                  : i64[S, 1]
//   %m = le %i, %q                : bool[S, S]
//   %o = sdpa %q, %k, %v, %m {bias = true, causal = false}     ->     %o = sdpa %q, %k, %v {causal
//   = true}
//
// The operand is folded to a formula of batch, head, query and key (fold.h).  Its conditions on
// query and key become the predicate; token vectors they look up become operands; one condition
// that is a value of the user's own, with query and key among its dims, stays as the operand.  A
// mask that is added (0, or a constant that hides) is the same condition.  Slopes times distances
// become alibi.  What has no formula stays as it was: a mask is never built because of this pass.
//
// Trust is checked: predicate and arithmetic are run on random small inputs, and a
// difference is an error.  The lemma: where seg = cumsum(diff(T) != 1), seg[q] = seg[k] implies
// T[q] - T[k] = q - k, so beside that condition comparisons of given positions are comparisons of
// indices.
//
// O(nodes) and one clone of the graph for each distinct mask.  Neighbours: masks_read.c (formula to
// predicate), masks_check.c (trust), fold.c, manual.c.  SPDX-License-Identifier: Apache-2.0
#include "pass/masks_int.h"

#include <math.h>

// ---- rewriting ---------------------------------------------------------------------------------

// Does a query always see its own key?  Then no row is empty.
static bool sees_itself(const asp_masking *m)
{
    const asp_node_info *n = asp_node_at(m->g, m->node);
    if (m->dense ||
        !asp_size_equal(asp_val_type(m->g, n->in[0])->dim[2], asp_val_type(m->g, n->in[1])->dim[2]))
        return false;
    asp_mask whole = m->mask, none = {0};
    uint32_t at[ASP_MASK_MAX_NODES];
    for (uint32_t i = 0; i < whole.n_nodes; i++) {
        const asp_mask_node *node = &whole.node[i];
        if (node->kind == ASP_MASK_ATOM) {
            asp_mask_atom a = whole.atom[node->a];
            for (uint32_t t = 0; t < a.key.n; t++)
                if (!asp_mask_add_term(&a.query, a.key.term[t].lookup, -a.key.term[t].coef,
                                       a.key.term[t].div))
                    return false;
            a.key.n = 0;
            memset(a.key.term, 0, sizeof a.key.term);
            at[i] = asp_mask_put_atom(&none, &a);
        } else if (node->kind == ASP_MASK_AND || node->kind == ASP_MASK_OR)
            at[i] = asp_mask_put(&none, node->kind, at[node->a], at[node->b]);
        else
            at[i] = asp_mask_put(&none, node->kind, 0, 0);
        if (at[i] == ASP_NO_CONDITION) return false;
    }
    return none.node[at[whole.n_nodes - 1]].kind == ASP_MASK_TRUE;
}

// Takes k <= q out of the conditions that all must hold; returns the rest.
static uint32_t without_causal(asp_mask *out, const asp_mask *m, uint32_t node, bool *found)
{
    const asp_mask_node n = m->node[node];
    if (n.kind == ASP_MASK_AND) {
        const uint32_t a = without_causal(out, m, n.a, found),
                       b = without_causal(out, m, n.b, found);
        return asp_mask_put(out, ASP_MASK_AND, a, b);
    }
    asp_mask alone = *m;
    asp_mask_finish(&alone, node);
    if (asp_mask_is_causal(&alone)) {
        *found = true;
        return asp_mask_put(out, ASP_MASK_TRUE, 0, 0);
    }
    if (n.kind == ASP_MASK_ATOM) return asp_mask_put_atom(out, &m->atom[n.a]);
    if (n.kind == ASP_MASK_OR) {
        bool inside = false;
        const uint32_t a = without_causal(out, m, n.a, &inside),
                       b = without_causal(out, m, n.b, &inside);
        return inside ? ASP_NO_CONDITION : asp_mask_put(out, ASP_MASK_OR, a, b);
    }
    return asp_mask_put(out, n.kind, 0, 0);
}

static void set_mask_attr(asp_masking *m)
{
    asp_text t;
    asp_mask rest = {0};
    bool causal = false;
    const uint32_t node = without_causal(&rest, &m->mask, m->mask.n_nodes - 1, &causal);
    asp_text_init(&t, m->px->scratch);
    if (node != ASP_NO_CONDITION) {
        asp_mask_finish(&rest, node);
        if (rest.n_lookups == m->mask.n_lookups) {
            m->mask = rest;
            m->attr.causal |= causal;
        }
    }
    asp_mask_print(&t, &m->mask);
    m->attr.mask = strcmp(t.at, "true") == 0 ? "" : t.at;
}

static asp_status rewrite(asp_masking *m, asp_builder *b)
{
    const asp_node_info old = *asp_node_at(m->g, m->node);
    const asp_sdpa_parts p = m->parts;
    asp_val in[ASP_MAX_OPERANDS];
    uint32_t n = 0;
    for (; n < 3; n++) in[n] = old.in[n];
    if (m->adds && isfinite(m->hides)) m->attr.empty = "mean";
    if (m->slopes.i == 0 && sees_itself(m)) m->attr.empty = "zero";
    set_mask_attr(m);
    for (uint32_t i = 0; i < m->n_lookups; i++) in[n++] = m->lookup[i];
    if (m->dense) in[n++] = asp_body_only_look(m->f, m->dense->x)->v;
    m->attr.bias = m->dense != NULL;
    if (p.sinks) in[n++] = old.in[p.sinks];
    if (p.slopes) in[n++] = old.in[p.slopes];
    if (m->slopes.i) {
        const asp_type heads = {.dtype = asp_val_type(m->g, m->slopes)->dtype,
                                .rank = 1,
                                .dim = {asp_val_type(m->g, old.in[0])->dim[1]}};
        asp_val slopes = asp_build_view(b, m->slopes, &heads);
        in[n++] = m->slope_sign < 0 ? ASP_B1(b, neg, NULL, slopes) : slopes;
        m->attr.alibi = "relative";
    }
    const asp_val out = asp_build(b, ASP_OP_sdpa, &m->attr, n, in);
    ASP_TRY(b->status);
    for (uint32_t i = 0; i < old.n_out; i++)
        asp_graph_replace_uses(m->g, (asp_val){old.first.i + i}, (asp_val){out.i + i});
    for (uint32_t i = 0; i < old.n_out; i++)
        asp_graph_move_name(m->g, (asp_val){old.first.i + i}, (asp_val){out.i + i});
    asp_graph_remove(m->g, m->node);
    m->px->changes++;
    return ASP_OK;
}

// A framework's own graph keeps what its attention adds to scores, and what it differentiates.
static bool stays(const asp_masking *m)
{
    return m->px->options->kept && (m->slopes.i || m->dense);
}

// ---- the pass ----------------------------------------------------------------------------------

// Operands that were read before, of layers that share a mask.
typedef ASP_VEC(asp_masking) readings;

// The same operand in an attention of the same sizes, without further masks.
static const asp_masking *read_before(const readings *done, const asp_masking *m, asp_val operand)
{
    const asp_type *q = asp_val_type(m->g, asp_node_at(m->g, m->node)->in[0]);
    const asp_type *k = asp_val_type(m->g, asp_node_at(m->g, m->node)->in[1]);
    for (uint32_t i = 0; i < done->n; i++) {
        const asp_masking *d = &done->at[i];
        const bool same = d->value.i == operand.i && strcmp(d->given, m->given) == 0 &&
                          d->causal == m->attr.causal;
        if (same && asp_size_equal(d->n_q, q->dim[2]) && asp_size_equal(d->n_k, k->dim[2]) &&
            !*m->given)
            return d;
    }
    return NULL;
}

static void read_again(asp_masking *m, const asp_masking *d)
{
    m->operand = d->operand, m->mask = d->mask;
    m->n_lookups = d->n_lookups;
    memcpy(m->lookup, d->lookup, sizeof m->lookup);
    m->dense = d->dense, m->hides = d->hides, m->adds = d->adds;
}

static asp_status fold_attention(asp_pass *px, asp_folder *f, asp_node node, readings *done)
{
    asp_graph *g = f->g;
    const asp_node_info *info = asp_node_at(g, node);
    asp_masking m = {
        .px = px, .f = f, .g = g, .node = node, .attr = *(const asp_sdpa_attr *)info->attr};
    if (!m.attr.bias || !asp_mask_read(m.attr.mask, &m.mask)) return ASP_OK;
    m.given = m.attr.mask, m.causal = m.attr.causal;
    m.n_q = asp_val_type(g, info->in[0])->dim[2], m.n_k = asp_val_type(g, info->in[1])->dim[2];
    m.parts = asp_sdpa_parts_of(&m.attr, &m.mask, 3);
    m.n_lookups = m.mask.n_lookups;
    for (uint32_t i = 0; i < m.n_lookups; i++) m.lookup[i] = info->in[m.parts.lookup[i]];
    const asp_val operand = m.value = info->in[m.parts.bias];
    const uint32_t given = m.n_lookups;
    const asp_masking *before = read_before(done, &m, operand);
    if (before) {
        read_again(&m, before);
        if (stays(&m)) return ASP_OK;
        return rewrite(&m, &(asp_builder){.g = g, .before = node, .loc = info->loc});
    }
    if (!asp_masking_read(&m, operand)) return ASP_OK;
    if (stays(&m)) return ASP_OK;
    asp_builder b = {.g = g, .before = node, .loc = info->loc};
    if (m.slopes.i) return rewrite(&m, &b);
    for (uint32_t i = given; i < m.n_lookups; i++) {
        const asp_type t = {.dtype = asp_val_type(g, m.lookup[i])->dtype,
                            .rank = 2,
                            .dim = {m.lookup_dim[i][0], m.lookup_dim[i][1]}};
        m.lookup[i] = asp_build_view(&b, m.lookup[i], &t);
    }
    ASP_TRY(b.status);
    bool tried;
    ASP_TRY(asp_masking_check(&m, operand, &tried));
    if (!tried) return ASP_OK;
    ASP_PUSH(px->scratch, done, m);
    return rewrite(&m, &b);
}

asp_status asp_pass_masks(asp_pass *px, asp_graph *g)
{
    asp_folder f;
    readings done = {0};
    asp_folder_init(&f, g, px->scratch);
    if (!px->options->kept) ASP_TRY(asp_find_manual_attention(px, &f));
    asp_folder_init(&f, g, px->scratch); // there are more values now
    for (asp_node n = g->head, next; n.i; n = next) {
        next = asp_node_at(g, n)->next;
        if (asp_node_at(g, n)->op == ASP_OP_sdpa) ASP_TRY(fold_attention(px, &f, n, &done));
    }
    return px->changes ? asp_pass_dce(px, g)
                       : ASP_OK; // scores and masks that nobody reads any more
}
