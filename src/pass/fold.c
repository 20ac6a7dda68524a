// Arithmetic of formulas (placement reference, section 6): normal forms, constants folded,
// substitution of indices.  Neighbours: fold.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "pass/fold.h"

#define MAX_TERMS 16

static asp_body *body(asp_folder *f, asp_body_kind kind)
{
    asp_body *b = ASP_NEW(f->arena, asp_body);
    b->kind = kind;
    return b;
}

static asp_size number(const asp_folder *f, int64_t n) { return asp_size_num(f->g, n); }

static bool is_number(const asp_folder *f, asp_size s, int64_t *out)
{
    return asp_size_is_num(f->g, s, out);
}

static bool is_one(const asp_folder *f, asp_size s)
{
    int64_t n;
    return is_number(f, s, &n) && n == 1;
}

const asp_body *asp_body_bool(asp_folder *f, bool b)
{
    asp_body *x = body(f, ASP_BODY_BOOL);
    x->truth = b;
    return x;
}

const asp_body *asp_body_float(asp_folder *f, double n)
{
    asp_body *x = body(f, ASP_BODY_FLOAT);
    x->number = n;
    return x;
}

const asp_body *asp_body_int(asp_folder *f, asp_size c)
{
    asp_body *x = body(f, ASP_BODY_INT);
    x->c = c;
    return x;
}

static const asp_body *single(asp_folder *f, asp_body_term t)
{
    asp_body *x = body(f, ASP_BODY_INT);
    asp_body_term *terms = ASP_NEW(f->arena, asp_body_term);
    *terms = t;
    x->c = number(f, 0);
    x->n = 1;
    x->term = terms;
    return x;
}

const asp_body *asp_body_index(asp_folder *f, uint32_t dim)
{
    return single(f, (asp_body_term){.dim = dim, .div = 1, .coef = number(f, 1)});
}

// A value at its own indices: a number to reckon with, a condition, or nothing known.
const asp_body *asp_body_value(asp_folder *f, asp_val v)
{
    const asp_type *t = asp_val_type(f->g, v);
    asp_body *look = body(f, ASP_BODY_NONE);
    look->v = v;
    look->rank = t->rank;
    for (uint32_t d = 0; d < t->rank; d++)
        look->at[d] = is_one(f, t->dim[d]) ? asp_body_int(f, number(f, 0)) : asp_body_index(f, d);
    if (t->dtype != ASP_I64 && t->dtype != ASP_BOOL) return look;
    const asp_body *whole =
        single(f, (asp_body_term){.look = look, .div = 1, .coef = number(f, 1)});
    if (t->dtype == ASP_I64) return whole;
    asp_body *holds = body(f, ASP_BODY_REL);
    holds->rel = ASP_MASK_NE;
    holds->x = whole;
    return holds;
}

bool asp_body_is_int(const asp_folder *f, const asp_body *x, int64_t n)
{
    int64_t c;
    return x && x->kind == ASP_BODY_INT && x->n == 0 && is_number(f, x->c, &c) && c == n;
}

// ---- equality ----------------------------------------------------------------------------------

static bool same_var(const asp_body_term *a, const asp_body_term *b)
{
    if (a->div != b->div || !a->look != !b->look) return false;
    return a->look ? asp_body_equal(a->look, b->look) : a->dim == b->dim;
}

// Terms stand in any order.
static bool same_terms(const asp_body *a, const asp_body *b)
{
    if (a->n != b->n || !asp_size_equal(a->c, b->c)) return false;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t j = 0;
        while (j < b->n && !same_var(&a->term[i], &b->term[j])) j++;
        if (j == b->n || !asp_size_equal(a->term[i].coef, b->term[j].coef)) return false;
    }
    return true;
}

static bool both_equal(const asp_body *a, const asp_body *b)
{
    return a == b || (a && b && asp_body_equal(a, b));
}

bool asp_body_equal(const asp_body *a, const asp_body *b)
{
    if (a == b) return true;
    if (a->kind != b->kind || a->rel != b->rel || a->truth != b->truth || a->v.i != b->v.i ||
        memcmp(&a->number, &b->number, sizeof a->number) != 0 || a->rank != b->rank)
        return false;
    if (a->kind == ASP_BODY_INT && !same_terms(a, b)) return false;
    for (uint32_t d = 0; d < a->rank; d++)
        if (!asp_body_equal(a->at[d], b->at[d])) return false;
    return both_equal(a->x, b->x) && both_equal(a->y, b->y) && both_equal(a->z, b->z);
}

// ---- whole numbers -----------------------------------------------------------------------------

const asp_body *asp_body_add(asp_folder *f, const asp_body *x, const asp_body *y, asp_size by)
{
    asp_body_term t[MAX_TERMS];
    uint32_t n = 0;
    if (!x || !y || x->kind != ASP_BODY_INT || y->kind != ASP_BODY_INT) return NULL;
    for (uint32_t i = 0; i < x->n; i++) t[n++] = x->term[i];
    for (uint32_t i = 0; i < y->n; i++) {
        const asp_size coef = asp_size_mul(f->g, y->term[i].coef, by);
        uint32_t j = 0;
        while (j < n && !same_var(&t[j], &y->term[i])) j++;
        if (j == n) {
            if (n == MAX_TERMS) return NULL;
            t[n] = y->term[i];
            t[n++].coef = coef;
        } else
            t[j].coef = asp_size_add(f->g, t[j].coef, coef);
    }
    asp_body *sum = body(f, ASP_BODY_INT);
    asp_body_term *kept = ASP_NEW_ARRAY(f->arena, asp_body_term, n + 1);
    int64_t zero;
    for (uint32_t i = 0; i < n; i++)
        if (!is_number(f, t[i].coef, &zero) || zero != 0) kept[sum->n++] = t[i];
    sum->c = asp_size_add(f->g, x->c, asp_size_mul(f->g, y->c, by));
    sum->term = kept;
    return sum;
}

const asp_body *asp_body_div(asp_folder *f, const asp_body *x, int64_t by)
{
    int64_t c, coef;
    if (!x || x->kind != ASP_BODY_INT || by < 1) return NULL;
    if (by == 1) return x;
    if (!is_number(f, x->c, &c) || c != 0 || x->n != 1) return NULL;
    if (!is_number(f, x->term[0].coef, &coef) || coef != 1) return NULL;
    asp_body_term t = x->term[0];
    if (t.div > INT64_MAX / by) return NULL;
    t.div *= by;
    return single(f, t);
}

// ---- relations ---------------------------------------------------------------------------------

// The largest (sign 1) or smallest value of x is known from indices not being negative: *out_c.
static bool bounded(const asp_folder *f, const asp_body *x, int sign, int64_t *out_c)
{
    for (uint32_t i = 0; i < x->n; i++) {
        int64_t coef;
        if (x->term[i].look || !is_number(f, x->term[i].coef, &coef) || (coef < 0) != (sign > 0))
            return false;
    }
    return is_number(f, x->c, out_c);
}

static const asp_body *relation(asp_folder *f, asp_mask_rel rel, const asp_body *x)
{
    int64_t c;
    if (!x) return NULL;
    if (x->n == 0) {
        if (!is_number(f, x->c, &c)) return NULL;
        return asp_body_bool(f, rel == ASP_MASK_LE ? c <= 0 : (rel == ASP_MASK_EQ) == (c == 0));
    }
    if (rel == ASP_MASK_LE && bounded(f, x, 1, &c) && c <= 0) return asp_body_bool(f, true);
    if (rel == ASP_MASK_LE && bounded(f, x, -1, &c) && c > 0) return asp_body_bool(f, false);
    asp_body *r = body(f, ASP_BODY_REL);
    r->rel = rel;
    r->x = x;
    return r;
}

static bool constant_of(const asp_folder *f, const asp_body *x, double *out)
{
    int64_t n;
    if (x->kind == ASP_BODY_FLOAT) return *out = x->number, true;
    if (x->kind != ASP_BODY_INT || x->n || !is_number(f, x->c, &n)) return false;
    return *out = (double)n, true;
}

static bool is_condition(const asp_body *x)
{
    return x && (x->kind == ASP_BODY_BOOL || x->kind == ASP_BODY_REL || x->kind == ASP_BODY_AND ||
                 x->kind == ASP_BODY_OR);
}

// A condition as a choice between 1 and 0, so that conditions compare with numbers.
static const asp_body *as_number(asp_folder *f, const asp_body *x)
{
    if (!is_condition(x)) return x;
    return asp_body_where(f, x, asp_body_int(f, number(f, 1)), asp_body_int(f, number(f, 0)));
}

const asp_body *asp_body_rel(asp_folder *f, asp_mask_rel rel, const asp_body *x, const asp_body *y)
{
    double a, b;
    if (!x || !y) return NULL;
    x = as_number(f, x), y = as_number(f, y);
    if (x->kind == ASP_BODY_INT && y->kind == ASP_BODY_INT)
        return relation(f, rel, asp_body_add(f, x, y, number(f, -1)));
    if (constant_of(f, x, &a) && constant_of(f, y, &b))
        return asp_body_bool(f, rel == ASP_MASK_LE ? a <= b : (rel == ASP_MASK_EQ) == (a == b));
    const asp_body *choice = x->kind == ASP_BODY_WHERE ? x : y;
    if (choice->kind != ASP_BODY_WHERE) return NULL;
    const bool left = choice == x;
    return asp_body_where(f, choice->x, asp_body_rel(f, rel, left ? x->y : x, left ? y : y->y),
                          asp_body_rel(f, rel, left ? x->z : x, left ? y : y->z));
}

// x < y: not y <= x, which is also right where a choice hides a comparison of floats (no NaN here).
const asp_body *asp_body_less(asp_folder *f, const asp_body *x, const asp_body *y)
{
    return asp_body_not(f, asp_body_rel(f, ASP_MASK_LE, y, x));
}

// ---- conditions --------------------------------------------------------------------------------

// Does y stand among the operands of a run of one kind?
static bool holds(const asp_body *run, asp_body_kind kind, const asp_body *y)
{
    if (asp_body_equal(run, y)) return true;
    return run->kind == kind && (holds(run->x, kind, y) || holds(run->y, kind, y));
}

static const asp_body *join(asp_folder *f, asp_body_kind kind, const asp_body *x, const asp_body *y)
{
    const bool neutral = kind == ASP_BODY_AND;
    if (!is_condition(x) || !is_condition(y)) return NULL;
    if (x->kind == ASP_BODY_BOOL) return x->truth == neutral ? y : x;
    if (y->kind == ASP_BODY_BOOL) return y->truth == neutral ? x : y;
    if (holds(x, kind, y)) return x;
    if (y->kind == kind) return join(f, kind, join(f, kind, x, y->x), y->y);
    asp_body *b = body(f, kind);
    b->x = x;
    b->y = y;
    return b;
}

const asp_body *asp_body_and(asp_folder *f, const asp_body *x, const asp_body *y)
{
    return join(f, ASP_BODY_AND, x, y);
}

const asp_body *asp_body_or(asp_folder *f, const asp_body *x, const asp_body *y)
{
    return join(f, ASP_BODY_OR, x, y);
}

const asp_body *asp_body_not(asp_folder *f, const asp_body *x)
{
    if (!is_condition(x)) return NULL;
    switch (x->kind) {
    case ASP_BODY_BOOL: return asp_body_bool(f, !x->truth);
    case ASP_BODY_AND: return asp_body_or(f, asp_body_not(f, x->x), asp_body_not(f, x->y));
    case ASP_BODY_OR: return asp_body_and(f, asp_body_not(f, x->x), asp_body_not(f, x->y));
    case ASP_BODY_REL:
        if (x->rel == ASP_MASK_LE) // not x <= 0:  1 - x <= 0
            return relation(f, ASP_MASK_LE,
                            asp_body_add(f, asp_body_int(f, number(f, 1)), x->x, number(f, -1)));
        return relation(f, x->rel == ASP_MASK_EQ ? ASP_MASK_NE : ASP_MASK_EQ, x->x);
    case ASP_BODY_NONE:
    case ASP_BODY_FLOAT:
    case ASP_BODY_INT:
    case ASP_BODY_WHERE:
    case ASP_BODY_SLOPE: break;
    }
    return NULL;
}

const asp_body *asp_body_where(asp_folder *f, const asp_body *c, const asp_body *x,
                               const asp_body *y)
{
    if (!is_condition(c) || !x || !y) return NULL;
    if (c->kind == ASP_BODY_BOOL) return c->truth ? x : y;
    if (is_condition(x) && is_condition(y))
        return asp_body_or(f, asp_body_and(f, c, x), asp_body_and(f, asp_body_not(f, c), y));
    if (asp_body_equal(x, y)) return x;
    asp_body *b = body(f, ASP_BODY_WHERE);
    b->x = c;
    b->y = x;
    b->z = y;
    return b;
}

// ---- substitution ------------------------------------------------------------------------------

static const asp_body *term_at(asp_folder *f, const asp_body_term *t, const asp_body *const *at)
{
    if (!t->look) return at[t->dim] ? asp_body_div(f, at[t->dim], t->div) : NULL;
    const asp_body *look = asp_body_at(f, t->look, at);
    if (!look) return NULL;
    return single(f, (asp_body_term){.look = look, .div = t->div, .coef = number(f, 1)});
}

static const asp_body *int_at(asp_folder *f, const asp_body *x, const asp_body *const *at)
{
    const asp_body *sum = asp_body_int(f, x->c);
    for (uint32_t i = 0; i < x->n; i++)
        sum = asp_body_add(f, sum, term_at(f, &x->term[i], at), x->term[i].coef);
    return sum;
}

static const asp_body *look_at(asp_folder *f, const asp_body *x, const asp_body *const *at)
{
    asp_body *look = body(f, ASP_BODY_NONE);
    look->v = x->v;
    look->rank = x->rank;
    for (uint32_t d = 0; d < x->rank; d++)
        if (!(look->at[d] = int_at(f, x->at[d], at))) return NULL;
    return look;
}

const asp_body *asp_body_at(asp_folder *f, const asp_body *x, const asp_body *const *at)
{
    if (!x) return NULL;
    switch (x->kind) {
    case ASP_BODY_BOOL:
    case ASP_BODY_FLOAT: return x;
    case ASP_BODY_NONE: return look_at(f, x, at);
    case ASP_BODY_INT: return int_at(f, x, at);
    case ASP_BODY_REL: return relation(f, x->rel, int_at(f, x->x, at));
    case ASP_BODY_AND: return asp_body_and(f, asp_body_at(f, x->x, at), asp_body_at(f, x->y, at));
    case ASP_BODY_OR: return asp_body_or(f, asp_body_at(f, x->x, at), asp_body_at(f, x->y, at));
    case ASP_BODY_WHERE:
        return asp_body_where(f, asp_body_at(f, x->x, at), asp_body_at(f, x->y, at),
                              asp_body_at(f, x->z, at));
    case ASP_BODY_SLOPE: break;
    }
    const asp_body *value = asp_body_at(f, x->y, at), *whole = asp_body_at(f, x->x, at);
    if (!value || !whole) return NULL;
    asp_body *b = body(f, ASP_BODY_SLOPE);
    b->x = whole;
    b->y = value;
    return b;
}
