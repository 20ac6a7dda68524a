// Attention written by hand becomes the op: part of pass masks.
//
//   %s = matmul %q, %kt                    %k = permute %kt {perm = [0, 1, 3, 2]}
//   %t = mul %s, 0.5                  ->   %o = sdpa %q, %k, %v, %m {scale = 0.5, bias = true}
//   %u = where %m, %t, -inf
//   %o = matmul (softmax %u {dim = 3}), %v
//
// Walks up from a softmax along its last dim: masks and biases, then a soft cap m tanh(f x), then
// factors, then the product; and down from it: casts that do nothing, the product with the values.
// Each value below the softmax has one reader.  What does not fit in every detail stays as it is,
// and so do dropped probabilities: sdpa draws other numbers.
// Neighbours: masks.c (who reads the masks).  SPDX-License-Identifier: Apache-2.0
#include "op/attention.h"
#include "pass/fold.h"
#include "pass/masks.h"

#include <math.h>

// What was found, from the softmax outwards.
typedef struct found {
    asp_folder *f;
    asp_graph *g;
    const uint32_t *uses;
    uint32_t rank;
    double factor, cap; // cap 0: none
    asp_val mask;       // added, or a condition; none
    bool is_condition, holds_where_seen;
    double hides; // what a condition overwrites with
    asp_val q, kt, v;
    bool k_as_is;  // kt is k: the product transposed it
    asp_node last; // the product with v
} found;

static const asp_node_info *maker(const found *x, asp_val v) { return asp_val_node(x->g, v); }

static bool constant_of(const found *x, asp_val v, double *out)
{
    const asp_body *b = asp_fold(x->f, v);
    int64_t n;
    if (b->kind == ASP_BODY_FLOAT) return *out = b->number, true;
    if (b->kind != ASP_BODY_INT || b->n || !asp_size_is_num(x->g, b->c, &n)) return false;
    return *out = (double)n, true;
}

// Is the node a product with a constant?  Gives the other operand.
static bool is_scaled(const found *x, const asp_node_info *n, asp_val *out_inner, double *out_by)
{
    if (n->op == ASP_OP_mul_scalar) {
        *out_by = ((const asp_scalar_attr *)n->attr)->value;
        return *out_inner = n->in[0], true;
    }
    if (n->op == ASP_OP_div && constant_of(x, n->in[1], out_by)) {
        *out_by = 1 / *out_by;
        return *out_inner = n->in[0], true;
    }
    if (n->op != ASP_OP_mul) return false;
    for (int i = 0; i < 2; i++)
        if (constant_of(x, n->in[i], out_by)) return *out_inner = n->in[1 - i], true;
    return false;
}

static bool same_type(const found *x, asp_val a, asp_val b)
{
    return asp_type_equal(asp_val_type(x->g, a), asp_val_type(x->g, b));
}

// q k^T itself.
static bool find_product(found *x, asp_val v)
{
    const asp_node_info *n = maker(x, v);
    const asp_bmm_attr *a = n->attr;
    if (n->op == ASP_OP_bmm ? a->ta : n->op != ASP_OP_matmul) return false;
    x->k_as_is = n->op == ASP_OP_bmm && a->tb;
    x->q = n->in[0], x->kt = n->in[1];
    return true;
}

static bool find_scaled_product(found *x, asp_val v)
{
    asp_val inner;
    double by;
    for (int i = 0; i < 8 && is_scaled(x, maker(x, v), &inner, &by); i++) {
        if (!same_type(x, inner, v)) return false;
        x->factor *= by;
        v = inner;
    }
    if (maker(x, v)->op == ASP_OP_tanh && x->cap == 0 && x->factor > 0) {
        x->cap = x->factor; // m tanh(f x): scores f m x, capped at m
        return find_scaled_product(x, maker(x, v)->in[0]);
    }
    return find_product(x, v);
}

static bool find_scores(found *x, asp_val v)
{
    const asp_node_info *n = maker(x, v);
    if (n->op == ASP_OP_cast && same_type(x, n->in[0], v)) return find_scores(x, n->in[0]);
    if (n->op == ASP_OP_where && !x->mask.i) {
        for (int i = 1; i < 3; i++) {
            if (!constant_of(x, n->in[3 - i], &x->hides) || !(x->hides < ASP_HIDDEN_BIAS)) continue;
            if (!same_type(x, n->in[i], v)) return false;
            x->mask = n->in[0];
            x->is_condition = true, x->holds_where_seen = i == 1;
            return find_scores(x, n->in[i]);
        }
        return false;
    }
    if (n->op == ASP_OP_add && !x->mask.i) {
        for (int i = 0; i < 2; i++) {
            found y = *x;
            y.mask = n->in[1 - i];
            if (!same_type(x, n->in[i], v) || !find_scores(&y, n->in[i])) continue;
            *x = y;
            return true;
        }
        return false;
    }
    return find_scaled_product(x, v);
}

// The reader of v, when it is the only one.
static asp_node only_reader(const found *x, asp_node from, asp_val v, uint32_t *out_operand)
{
    if (x->uses[v.i] != 1) return (asp_node){0};
    for (asp_node n = from; n.i; n = asp_node_at(x->g, n)->next) {
        const asp_node_info *info = asp_node_at(x->g, n);
        for (uint32_t i = 0; i < info->n_in; i++)
            if (info->in[i].i == v.i) return *out_operand = i, n;
    }
    return (asp_node){0};
}

static bool find_values(found *x, asp_node softmax)
{
    asp_val v = asp_node_at(x->g, softmax)->first;
    uint32_t operand;
    for (asp_node n = softmax;;) {
        n = only_reader(x, asp_node_at(x->g, n)->next, v, &operand);
        if (!n.i || operand != 0) return false;
        const asp_node_info *info = asp_node_at(x->g, n);
        if (info->op == ASP_OP_matmul || info->op == ASP_OP_bmm) {
            const asp_bmm_attr *a = info->attr;
            if (info->op == ASP_OP_bmm && (a->ta || a->tb)) return false;
            x->v = info->in[1];
            x->last = n;
            return true;
        }
        if (info->op != ASP_OP_cast || !same_type(x, info->first, v)) return false;
        v = info->first;
    }
}

// The shapes of one attention: [.., Sq, D], [.., D, Sk] (or [.., Sk, D]), [.., Sk, E], all with the
// same leading dims.
static bool shapes_fit(const found *x)
{
    const asp_type *q = asp_val_type(x->g, x->q), *k = asp_val_type(x->g, x->kt);
    const asp_type *v = asp_val_type(x->g, x->v);
    int64_t heads = 1;
    if (q->rank != x->rank || k->rank != x->rank || v->rank != x->rank) return false;
    if (q->dtype != k->dtype || q->dtype != v->dtype) return false;
    for (uint32_t d = 0; d + 2 < x->rank; d++)
        if (!asp_size_equal(q->dim[d], k->dim[d]) || !asp_size_equal(q->dim[d], v->dim[d]))
            return false;
    return x->rank == 3 || asp_size_is_num(x->g, q->dim[1], &heads);
}

// ---- rewriting ---------------------------------------------------------------------------------

// [M, S, D] -> [M, 1, S, D]
static asp_val four_dims(asp_builder *b, asp_val v)
{
    if (b->status < 0) return v;
    asp_type t = *asp_val_type(b->g, v);
    if (t.rank != 3) return v;
    t.dim[3] = t.dim[2], t.dim[2] = t.dim[1], t.dim[1] = asp_size_num(b->g, 1);
    t.rank = 4;
    return asp_build_view(b, v, &t);
}

static asp_val build_keys(const found *x, asp_builder *b)
{
    static const int64_t swap4[] = {0, 1, 3, 2}, swap3[] = {0, 2, 1};
    if (x->k_as_is) return x->kt;
    const int64_t *swap = x->rank == 4 ? swap4 : swap3;
    const asp_node_info *n = maker(x, x->kt);
    const asp_permute_attr *a = n->attr;
    if (n->op == ASP_OP_permute && memcmp(a->perm.at, swap, x->rank * sizeof *swap) == 0)
        return n->in[0];
    return asp_build_permute(b, x->kt, x->rank, swap);
}

static asp_val build_mask(const found *x, asp_builder *b)
{
    asp_val m = x->mask;
    if (x->is_condition && !x->holds_where_seen) m = ASP_B1(b, logical_not, NULL, m);
    return x->rank == 3 ? four_dims(b, m) : m;
}

static asp_status rewrite(const found *x, asp_pass *px)
{
    const asp_node_info last = *asp_node_at(x->g, x->last);
    asp_builder b = {.g = x->g, .before = x->last, .loc = last.loc};
    asp_sdpa_attr a = asp_sdpa_attr_of(x->factor, false);
    a.softcap = x->cap;
    a.bias = x->mask.i != 0;
    a.empty = !a.bias ? "zero" : x->is_condition && isfinite(x->hides) ? "mean" : "nan";
    asp_val in[4] = {four_dims(&b, x->q), four_dims(&b, build_keys(x, &b)), four_dims(&b, x->v)};
    if (a.bias) in[3] = build_mask(x, &b);
    const asp_val out = asp_build(&b, ASP_OP_sdpa, &a, a.bias ? 4 : 3, in);
    ASP_TRY(b.status);
    const asp_type type = *asp_val_type(x->g, last.first);
    const asp_val result = asp_build_view(&b, out, &type);
    ASP_TRY(b.status);
    asp_graph_replace_uses(x->g, last.first, result);
    asp_graph_move_name(x->g, last.first, out);
    asp_graph_remove(x->g, x->last);
    px->changes++;
    return ASP_OK;
}

asp_status asp_find_manual_attention(asp_pass *px, asp_folder *f)
{
    const uint32_t *uses = asp_graph_count_uses(f->g, px->scratch);
    const uint32_t n_old = f->g->vals.n;
    for (asp_node n = f->g->head, next; n.i; n = next) {
        const asp_node_info *info = asp_node_at(f->g, n);
        next = info->next;
        if (info->op != ASP_OP_softmax || info->first.i >= n_old) continue;
        found x = {.f = f,
                   .g = f->g,
                   .uses = uses,
                   .factor = 1,
                   .rank = asp_val_type(f->g, info->first)->rank};
        const int64_t dim = ((const asp_dim_attr *)info->attr)->dim;
        if ((x.rank != 3 && x.rank != 4) || dim != (int64_t)x.rank - 1) continue;
        if (!find_scores(&x, info->in[0]) || !find_values(&x, n) || !shapes_fit(&x)) continue;
        if (next.i == x.last.i) next = asp_node_at(f->g, next)->next;
        ASP_TRY(rewrite(&x, px));
    }
    return ASP_OK;
}
