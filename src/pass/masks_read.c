// The operand of an attention read as a predicate: conditions on query and key, token vectors they
// look up, one dense condition, slopes.  Neighbours: masks.c (the pass, its algorithm), fold.h
// (formulas), op/mask.h (predicates).  SPDX-License-Identifier: Apache-2.0
#include "pass/masks_int.h"

#include <math.h>

// ---- the lemma ---------------------------------------------------------------------------------

// The token vector T of seg = cumsum(diff(T) != 1), or NULL.
static const asp_body *segments_of(const asp_masking *m, asp_val seg)
{
    const asp_node_info *n = asp_val_node(m->g, seg);
    if (n->op != ASP_OP_cumsum || ((const asp_scan_attr *)n->attr)->reverse) return NULL;
    n = asp_val_node(m->g, n->in[0]);
    if (n->op == ASP_OP_cast) n = asp_val_node(m->g, n->in[0]);
    if (n->op != ASP_OP_ne || !asp_body_is_int(m->f, asp_fold(m->f, n->in[1]), 1)) return NULL;
    n = asp_val_node(m->g, n->in[0]);
    return n->op == ASP_OP_diff ? asp_fold(m->f, n->in[0]) : NULL;
}

const asp_body *asp_body_only_look(const asp_folder *f, const asp_body *x)
{
    int64_t coef, c;
    if (!x || x->kind != ASP_BODY_INT || x->n != 1 || !x->term[0].look || x->term[0].div != 1)
        return NULL;
    if (!asp_size_is_num(f->g, x->term[0].coef, &coef) || coef != 1) return NULL;
    return asp_size_is_num(f->g, x->c, &c) && c == 0 ? x->term[0].look : NULL;
}

// Of a whole number: the two values looked up with coefficients c and -c in one vector.
static bool opposite_looks(const asp_masking *m, const asp_body *x, uint32_t *i, uint32_t *j)
{
    uint32_t n = 0, at[2] = {0, 0};
    int64_t a, b;
    for (uint32_t k = 0; k < x->n; k++) {
        if (!x->term[k].look) continue;
        if (n == 2 || x->term[k].div != 1) return false;
        at[n++] = k;
    }
    if (n != 2 || x->term[at[0]].look->v.i != x->term[at[1]].look->v.i) return false;
    if (!asp_size_is_num(m->g, x->term[at[0]].coef, &a) ||
        !asp_size_is_num(m->g, x->term[at[1]].coef, &b))
        return false;
    *i = at[0], *j = at[1];
    return a == -b;
}

// y, a comparison of T at two places, with the places themselves where `same` says they lie in one
// segment.
static const asp_body *by_index(asp_masking *m, const asp_body *same, const asp_body *y)
{
    uint32_t si, sj, i, j;
    if (same->kind != ASP_BODY_REL || same->rel != ASP_MASK_EQ ||
        !opposite_looks(m, same->x, &si, &sj))
        return y;
    if (y->kind != ASP_BODY_REL || y->rel != ASP_MASK_LE || !opposite_looks(m, y->x, &i, &j))
        return y;
    int64_t c;
    if (same->x->n != 2 || !asp_size_is_num(m->g, same->x->c, &c) || c != 0) return y;
    const asp_body *p = same->x->term[si].look, *q = same->x->term[sj].look;
    const asp_body *a = y->x->term[i].look, *b = y->x->term[j].look;
    const asp_body *vector = asp_body_only_look(m->f, segments_of(m, p->v));
    if (!vector || vector->v.i != a->v.i || a->rank != p->rank || a->rank == 0) return y;
    if (asp_body_equal(p->at[0], b->at[0]) &&
        !asp_body_equal(p->at[a->rank - 1], a->at[a->rank - 1])) {
        const asp_body *swap = p; // seg and T name the two places in another order
        p = q, q = swap;
    }
    for (uint32_t d = 0; d < a->rank; d++)
        if (!asp_body_equal(p->at[d], a->at[d]) || !asp_body_equal(q->at[d], b->at[d])) return y;
    const uint32_t last = a->rank - 1;
    const asp_size one = asp_size_num(m->g, 1), minus = asp_size_num(m->g, -1),
                   coef = y->x->term[i].coef;
    const asp_body *difference = asp_body_add(m->f, a->at[last], b->at[last], minus);
    const asp_body *zero = asp_body_int(m->f, asp_size_num(m->g, 0)),
                   *rest = asp_body_int(m->f, y->x->c);
    for (uint32_t k = 0; k < y->x->n; k++)
        if (!y->x->term[k].look) {
            asp_body *term = ASP_NEW(m->f->arena, asp_body);
            *term = (asp_body){
                .kind = ASP_BODY_INT, .c = asp_size_num(m->g, 0), .n = 1, .term = &y->x->term[k]};
            rest = asp_body_add(m->f, rest, term, one);
        }
    rest = asp_body_add(m->f, rest, difference, coef);
    return asp_body_rel(m->f, ASP_MASK_LE, rest, zero);
}

// All conditions of a run of and, each beside each other one.
static const asp_body *simplify(asp_masking *m, const asp_body *x)
{
    const asp_body *item[32], *all = asp_body_bool(m->f, true);
    uint32_t n = 0;
    for (const asp_body *run = x;; run = run->x) {
        if (n == ASP_COUNT_OF(item)) return x;
        const bool more = run->kind == ASP_BODY_AND;
        item[n++] = more ? run->y : run;
        if (!more) break;
    }
    for (uint32_t i = n; i-- > 0;) {
        const asp_body *y = item[i];
        for (uint32_t j = 0; y && j < n; j++)
            if (j != i) y = by_index(m, item[j], y);
        all = asp_body_and(m->f, all, y ? y : item[i]);
    }
    return all;
}

// ---- from formulas to predicates ---------------------------------------------------------------

static bool is_dim(const asp_masking *m, const asp_body *at, uint32_t from_end)
{
    int64_t coef, c;
    if (at->n != 1 || at->term[0].look || at->term[0].div != 1) return false;
    if (!asp_size_is_num(m->g, at->term[0].coef, &coef) || coef != 1) return false;
    if (!asp_size_is_num(m->g, at->c, &c) || c != 0) return false;
    return at->term[0].dim + from_end + 1 == m->operand.rank;
}

// Is the value looked up by batch and one of query (1 from the end) and key (0), in this order,
// else nothing?  -1: no.
static int side_of(const asp_masking *m, const asp_body *look)
{
    bool batch = false;
    int side = -1;
    for (uint32_t d = 0; d < look->rank; d++) {
        if (asp_body_is_int(m->f, look->at[d], 0)) {
            if (!asp_size_equal(asp_val_type(m->g, look->v)->dim[d], asp_size_num(m->g, 1)))
                return -1;
        } else if (side < 0 && !batch && is_dim(m, look->at[d], 3))
            batch = true;
        else if (side < 0 && is_dim(m, look->at[d], 0))
            side = 0;
        else if (side < 0 && is_dim(m, look->at[d], 1))
            side = 1;
        else
            return -1;
    }
    return side < 0 && batch ? 0 : side; // one a sequence: the same at every key
}

static int lookup_of(asp_masking *m, const asp_body *look)
{
    for (uint32_t i = 0; i < m->n_lookups; i++)
        if (m->lookup[i].i == look->v.i) return (int)i;
    if (m->n_lookups == ASP_MASK_MAX_LOOKUPS) return -1;
    asp_size *dim = m->lookup_dim[m->n_lookups];
    m->lookup[m->n_lookups] = look->v;
    dim[0] = dim[1] = asp_size_num(m->g, 1);
    for (uint32_t d = 0; d < look->rank; d++)
        if (!asp_body_is_int(m->f, look->at[d], 0))
            dim[!is_dim(m, look->at[d], 3)] = asp_val_type(m->g, look->v)->dim[d];
    return (int)m->n_lookups++;
}

static bool add_term(asp_masking *m, const asp_body_term *t, asp_mask_atom *a)
{
    int64_t coef;
    int lookup = -1, side;
    if (!asp_size_is_num(m->g, t->coef, &coef)) return false;
    if (t->look) {
        side = side_of(m, t->look);
        if (side < 0 || (lookup = lookup_of(m, t->look)) < 0) return false;
    } else {
        side = (int)(m->operand.rank - 1 - t->dim);
        if (side > 1) return false;
    }
    return side == 1 ? asp_mask_add_term(&a->query, lookup, coef, t->div)
                     : asp_mask_add_term(&a->key, lookup, -coef, t->div);
}

static uint32_t put_relation(asp_masking *m, const asp_body *x)
{
    asp_mask_atom a = {.rel = x->rel};
    int64_t c;
    if (!asp_size_is_num(m->g, x->x->c, &c)) return ASP_NO_CONDITION;
    if (c < -ASP_MASK_MAX_NUMBER || c > ASP_MASK_MAX_NUMBER) return ASP_NO_CONDITION;
    a.query.constant = c;
    for (uint32_t i = 0; i < x->x->n; i++)
        if (!add_term(m, &x->x->term[i], &a)) return ASP_NO_CONDITION;
    return asp_mask_put_atom(&m->mask, &a);
}

static uint32_t put_condition(asp_masking *m, const asp_body *x)
{
    switch (x->kind) {
    case ASP_BODY_BOOL:
        return asp_mask_put(&m->mask, x->truth ? ASP_MASK_TRUE : ASP_MASK_FALSE, 0, 0);
    case ASP_BODY_REL: return put_relation(m, x);
    case ASP_BODY_AND:
    case ASP_BODY_OR: {
        const uint32_t a = put_condition(m, x->x),
                       b = a == ASP_NO_CONDITION ? ASP_NO_CONDITION : put_condition(m, x->y);
        return asp_mask_put(&m->mask, x->kind == ASP_BODY_AND ? ASP_MASK_AND : ASP_MASK_OR, a, b);
    }
    case ASP_BODY_NONE:
    case ASP_BODY_FLOAT:
    case ASP_BODY_INT:
    case ASP_BODY_WHERE:
    case ASP_BODY_SLOPE: break;
    }
    return ASP_NO_CONDITION;
}

// A bool value read at the mask's own indices: it can stay the operand.
static bool is_dense(const asp_masking *m, const asp_body *x)
{
    if (x->kind != ASP_BODY_REL || x->rel != ASP_MASK_NE) return false;
    const asp_body *look = asp_body_only_look(m->f, x->x);
    if (!look || asp_val_type(m->g, look->v)->dtype != ASP_BOOL || look->rank > m->operand.rank)
        return false;
    for (uint32_t d = 0; d < look->rank; d++)
        if (!is_dim(m, look->at[d], look->rank - 1 - d) &&
            !(asp_body_is_int(m->f, look->at[d], 0) &&
              asp_size_equal(asp_val_type(m->g, look->v)->dim[d], asp_size_num(m->g, 1))))
            return false;
    return true;
}

// Puts what conditions it can into the mask; one that is dense stays aside.
static uint32_t put_all(asp_masking *m, const asp_body *x)
{
    if (!x) return ASP_NO_CONDITION; // what could not be read stays as it was written
    if (x->kind == ASP_BODY_AND) {
        const uint32_t a = put_all(m, x->x),
                       b = a == ASP_NO_CONDITION ? ASP_NO_CONDITION : put_all(m, x->y);
        return asp_mask_put(&m->mask, ASP_MASK_AND, a, b);
    }
    const uint32_t n_lookups = m->n_lookups, node = put_condition(m, x);
    if (node != ASP_NO_CONDITION) return node;
    m->n_lookups = n_lookups;
    if (m->dense || m->adds || !is_dense(m, x)) return ASP_NO_CONDITION;
    m->dense = x;
    return asp_mask_put(&m->mask, ASP_MASK_TRUE, 0, 0);
}

// ---- the whole operand -------------------------------------------------------------------------

static bool is_hiding(const asp_body *x)
{
    return x->kind == ASP_BODY_FLOAT && x->number < ASP_HIDDEN_BIAS;
}
static bool is_zero(const asp_body *x) { return x->kind == ASP_BODY_FLOAT && x->number == 0; }

// slope times (k - q), or by k alone, which differs by a constant of the row.
static bool take_slopes(asp_masking *m, const asp_body *x)
{
    asp_mask_atom a = {0};
    const asp_type *t = asp_val_type(m->g, x->y->v);
    int64_t heads;
    for (uint32_t i = 0; i < x->x->n; i++)
        if (x->x->term[i].look || !add_term(m, &x->x->term[i], &a)) return false;
    const int64_t q = a.query.n ? a.query.term[0].coef : 0, k = a.key.n ? -a.key.term[0].coef : 0;
    if (a.query.n > 1 || a.key.n > 1 || (k != 1 && k != -1) || (q != 0 && q != -k)) return false;
    if (t->dtype != asp_val_type(m->g, asp_node_at(m->g, m->node)->in[0])->dtype) return false;
    for (uint32_t d = 0; d < x->y->rank; d++)
        if (!is_dim(m, x->y->at[d], 2) && !asp_size_equal(t->dim[d], asp_size_num(m->g, 1)))
            return false;
    if (!asp_size_is_num(m->g, asp_type_count(m->g, t), &heads)) return false;
    if (!asp_size_equal(asp_type_count(m->g, t),
                        asp_val_type(m->g, asp_node_at(m->g, m->node)->in[0])->dim[1]))
        return false;
    m->slopes = x->y->v;
    m->slope_sign = (double)k;
    return true;
}

bool asp_masking_read(asp_masking *m, asp_val v)
{
    const asp_body *x = asp_fold(m->f, v);
    const uint32_t before = m->mask.n_nodes - 1;
    m->operand = *asp_val_type(m->g, v);
    m->hides = -HUGE_VAL;
    if (x->kind == ASP_BODY_SLOPE) return !*m->attr.alibi && take_slopes(m, x);
    if (x->kind == ASP_BODY_WHERE) {
        m->adds = true;
        if (is_zero(x->y) && is_hiding(x->z)) {
            m->hides = x->z->number;
            x = x->x;
        } else if (is_hiding(x->y) && is_zero(x->z)) {
            m->hides = x->y->number;
            x = asp_body_not(m->f, x->x);
        }
    } else if (asp_dtypes[m->operand.dtype].is_float)
        return false;
    if (!x) return false;
    const uint32_t node = put_all(m, simplify(m, x));
    if (node == ASP_NO_CONDITION) return false;
    const uint32_t whole = asp_mask_put(&m->mask, ASP_MASK_AND, before, node);
    if (whole == ASP_NO_CONDITION) return false;
    asp_mask_finish(&m->mask, whole);
    return m->mask.node[m->mask.n_nodes - 1].kind != ASP_MASK_TRUE || !m->dense;
}
