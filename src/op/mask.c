// Predicates over positions: building in normal form, evaluation.  Neighbours: mask.h (contract),
// mask_text.c (reading and printing).  SPDX-License-Identifier: Apache-2.0
#include "op/mask.h"

#define NONE UINT32_MAX

// ---- sides -------------------------------------------------------------------------------------

static int64_t floor_div(int64_t x, int64_t by)
{
    int64_t q = x / by;
    return q - (x % by < 0);
}

static int compare_terms(const asp_mask_term *a, const asp_mask_term *b)
{
    if (a->lookup != b->lookup) return a->lookup < b->lookup ? -1 : 1;
    return a->div == b->div ? 0 : a->div < b->div ? -1 : 1;
}

static bool small(int64_t x) { return -ASP_MASK_MAX_NUMBER <= x && x <= ASP_MASK_MAX_NUMBER; }

bool asp_mask_add_term(asp_mask_side *s, int lookup, int64_t coef, int64_t div)
{
    const asp_mask_term t = {lookup, coef, div};
    uint32_t i = 0;
    if (!small(coef) || lookup >= ASP_MASK_MAX_LOOKUPS || div < 1) return false;
    while (i < s->n && compare_terms(&s->term[i], &t) < 0) i++;
    if (i < s->n && compare_terms(&s->term[i], &t) == 0) {
        s->term[i].coef += coef;
        if (s->term[i].coef == 0) {
            memmove(&s->term[i], &s->term[i + 1], (--s->n - i) * sizeof t);
            s->term[s->n] = (asp_mask_term){0};
        }
        return i >= s->n || small(s->term[i].coef);
    }
    if (coef == 0) return true;
    if (s->n == ASP_MASK_MAX_TERMS) return false;
    memmove(&s->term[i + 1], &s->term[i], (s->n++ - i) * sizeof t);
    s->term[i] = t;
    return true;
}

int64_t asp_mask_side_at(const asp_mask_side *s, int64_t position, const int64_t *value)
{
    int64_t sum = s->constant;
    for (uint32_t i = 0; i < s->n; i++) {
        const asp_mask_term *t = &s->term[i];
        int64_t x = t->lookup < 0 ? position : value[t->lookup], part;
        if (t->div != 1) x = floor_div(x, t->div);
        if (asp_mul_overflows(x, t->coef, &part))
            return (x < 0) == (t->coef < 0) ? INT64_MAX : INT64_MIN;
        if (asp_add_overflows(sum, part, &sum)) return part > 0 ? INT64_MAX : INT64_MIN;
    }
    return sum;
}

static void negate(asp_mask_side *s)
{
    s->constant = -s->constant;
    for (uint32_t i = 0; i < s->n; i++) s->term[i].coef = -s->term[i].coef;
}

static bool sides_equal(const asp_mask_side *a, const asp_mask_side *b)
{
    if (a->constant != b->constant || a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (compare_terms(&a->term[i], &b->term[i]) != 0 || a->term[i].coef != b->term[i].coef)
            return false;
    return true;
}

// ---- atoms -------------------------------------------------------------------------------------

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b, b = r;
    }
    return a < 0 ? -a : a;
}

static int64_t common_divisor(const asp_mask_atom *a)
{
    int64_t g = 0;
    for (uint32_t i = 0; i < a->query.n; i++) g = gcd(g, a->query.term[i].coef);
    for (uint32_t i = 0; i < a->key.n; i++) g = gcd(g, a->key.term[i].coef);
    return g;
}

static void divide(asp_mask_side *s, int64_t by)
{
    for (uint32_t i = 0; i < s->n; i++) s->term[i].coef /= by;
}

// Is every term a position whose coefficient has the sign?  Positions are never negative.
static bool all_signed(const asp_mask_side *s, int sign)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->term[i].lookup >= 0 || (s->term[i].coef > 0) != (sign > 0)) return false;
    return true;
}

static asp_mask_kind truth(bool b) { return b ? ASP_MASK_TRUE : ASP_MASK_FALSE; }

// Brings a relation into its normal form, or finds that it always or never holds.
static asp_mask_kind normalise(asp_mask_atom *a)
{
    const int64_t g = common_divisor(a), c = a->key.constant -= a->query.constant;
    a->query.constant = 0;
    if (g == 0) {
        if (a->rel == ASP_MASK_LE) return truth(0 <= c);
        return truth((a->rel == ASP_MASK_EQ) == (c == 0));
    }
    if (a->rel == ASP_MASK_LE) {
        if (all_signed(&a->query, -1) && all_signed(&a->key, 1) && c >= 0) return ASP_MASK_TRUE;
        if (all_signed(&a->query, 1) && all_signed(&a->key, -1) && c < 0) return ASP_MASK_FALSE;
    } else if (c % g != 0)
        return truth(a->rel == ASP_MASK_NE);
    divide(&a->query, g), divide(&a->key, g);
    a->key.constant = floor_div(c, g);
    if (a->rel == ASP_MASK_LE) return ASP_MASK_ATOM;
    const asp_mask_side *first = a->query.n ? &a->query : &a->key;
    if (first->term[0].coef < 0) negate(&a->query), negate(&a->key);
    return ASP_MASK_ATOM;
}

static bool atoms_equal(const asp_mask_atom *a, const asp_mask_atom *b)
{
    return a->rel == b->rel && sides_equal(&a->query, &b->query) && sides_equal(&a->key, &b->key);
}

// ---- nodes -------------------------------------------------------------------------------------

static uint32_t put_node(asp_mask *m, asp_mask_node n)
{
    for (uint32_t i = 0; i < m->n_nodes; i++)
        if (m->node[i].kind == n.kind && m->node[i].a == n.a && m->node[i].b == n.b) return i;
    if (m->n_nodes == ASP_MASK_MAX_NODES) return NONE;
    m->node[m->n_nodes] = n;
    return m->n_nodes++;
}

uint32_t asp_mask_put_atom(asp_mask *m, const asp_mask_atom *atom)
{
    asp_mask_atom a = *atom;
    const asp_mask_kind kind = normalise(&a);
    if (!small(a.key.constant)) return NONE;
    if (kind != ASP_MASK_ATOM) return put_node(m, (asp_mask_node){.kind = kind});
    uint32_t i = 0;
    while (i < m->n_atoms && !atoms_equal(&m->atom[i], &a)) i++;
    if (i == ASP_MASK_MAX_ATOMS) return NONE;
    if (i == m->n_atoms) m->atom[m->n_atoms++] = a;
    return put_node(m, (asp_mask_node){.kind = ASP_MASK_ATOM, .a = i});
}

// Does node stand among the operands of a run of `kind` that ends in `run`?
static bool holds(const asp_mask *m, asp_mask_kind kind, uint32_t run, uint32_t node)
{
    if (run == node) return true;
    return m->node[run].kind == kind &&
           (holds(m, kind, m->node[run].a, node) || holds(m, kind, m->node[run].b, node));
}

uint32_t asp_mask_put(asp_mask *m, asp_mask_kind kind, uint32_t a, uint32_t b)
{
    if (kind == ASP_MASK_TRUE || kind == ASP_MASK_FALSE)
        return put_node(m, (asp_mask_node){.kind = kind});
    ASP_CHECK(kind == ASP_MASK_AND || kind == ASP_MASK_OR);
    if (a == NONE || b == NONE) return NONE;
    ASP_CHECK(a < m->n_nodes && b < m->n_nodes);
    const asp_mask_kind neutral = truth(kind == ASP_MASK_AND);
    const asp_mask_kind final = truth(kind == ASP_MASK_OR);
    if (m->node[a].kind == neutral || m->node[b].kind == final) return b;
    if (m->node[b].kind == neutral || m->node[a].kind == final) return a;
    if (holds(m, kind, a, b)) return a;
    if (holds(m, kind, b, a)) return b;
    if (m->node[b].kind == kind) { // one run, grown at its end
        const asp_mask_node right = m->node[b];
        return asp_mask_put(m, kind, asp_mask_put(m, kind, a, right.a), right.b);
    }
    return put_node(m, (asp_mask_node){kind, a, b});
}

uint32_t asp_mask_put_not(asp_mask *m, uint32_t node)
{
    if (node == NONE) return NONE;
    const asp_mask_node n = m->node[node];
    switch (n.kind) {
    case ASP_MASK_TRUE: return asp_mask_put(m, ASP_MASK_FALSE, 0, 0);
    case ASP_MASK_FALSE: return asp_mask_put(m, ASP_MASK_TRUE, 0, 0);
    case ASP_MASK_AND:
    case ASP_MASK_OR: {
        const uint32_t a = asp_mask_put_not(m, n.a), b = asp_mask_put_not(m, n.b);
        return asp_mask_put(m, n.kind == ASP_MASK_AND ? ASP_MASK_OR : ASP_MASK_AND, a, b);
    }
    case ASP_MASK_ATOM: break;
    }
    asp_mask_atom a = m->atom[n.a];
    switch (a.rel) {
    case ASP_MASK_EQ: a.rel = ASP_MASK_NE; break;
    case ASP_MASK_NE: a.rel = ASP_MASK_EQ; break;
    case ASP_MASK_LE: // not A <= C:  -A <= -C - 1
        negate(&a.query), negate(&a.key);
        a.key.constant--;
    }
    return asp_mask_put_atom(m, &a);
}

static uint32_t lookups_of(const asp_mask_side *s)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->term[i].lookup >= 0) set |= 1u << s->term[i].lookup;
    return set;
}

// Copies what node needs behind what `to` has, operands first; at[i] is where node i went, plus
// one.
static uint32_t copy_node(asp_mask *to, const asp_mask *from, uint32_t node, uint32_t *at)
{
    asp_mask_node n = from->node[node];
    if (at[node]) return at[node] - 1;
    if (n.kind == ASP_MASK_AND || n.kind == ASP_MASK_OR) {
        n.a = copy_node(to, from, n.a, at);
        n.b = copy_node(to, from, n.b, at);
    } else if (n.kind == ASP_MASK_ATOM) {
        to->atom[to->n_atoms] = from->atom[n.a];
        n.a = to->n_atoms++;
    }
    to->node[to->n_nodes++] = n;
    at[node] = to->n_nodes;
    return at[node] - 1;
}

void asp_mask_finish(asp_mask *m, uint32_t node)
{
    ASP_CHECK(node < m->n_nodes);
    asp_mask out = {0};
    uint32_t at[ASP_MASK_MAX_NODES] = {0};
    copy_node(&out, m, node, at);
    for (uint32_t i = 0; i < out.n_atoms; i++) {
        out.query_lookups |= lookups_of(&out.atom[i].query);
        out.key_lookups |= lookups_of(&out.atom[i].key);
    }
    while (((out.query_lookups | out.key_lookups) >> out.n_lookups) != 0) out.n_lookups++;
    *m = out;
}

// ---- evaluation --------------------------------------------------------------------------------

static bool relates(asp_mask_rel rel, int64_t a, int64_t c)
{
    switch (rel) {
    case ASP_MASK_LE: return a <= c;
    case ASP_MASK_EQ: return a == c;
    case ASP_MASK_NE: return a != c;
    }
    return false;
}

static bool node_holds(const asp_mask *m, uint32_t node, int64_t q, int64_t k, const int64_t *at_q,
                       const int64_t *at_k)
{
    const asp_mask_node *n = &m->node[node];
    switch (n->kind) {
    case ASP_MASK_TRUE: return true;
    case ASP_MASK_FALSE: return false;
    case ASP_MASK_AND:
        return node_holds(m, n->a, q, k, at_q, at_k) && node_holds(m, n->b, q, k, at_q, at_k);
    case ASP_MASK_OR:
        return node_holds(m, n->a, q, k, at_q, at_k) || node_holds(m, n->b, q, k, at_q, at_k);
    case ASP_MASK_ATOM: break;
    }
    const asp_mask_atom *a = &m->atom[n->a];
    return relates(a->rel, asp_mask_side_at(&a->query, q, at_q),
                   asp_mask_side_at(&a->key, k, at_k));
}

bool asp_mask_allows(const asp_mask *m, int64_t q, int64_t k, const int64_t *at_q,
                     const int64_t *at_k)
{
    return node_holds(m, m->n_nodes - 1, q, k, at_q, at_k);
}

// k <= q
static uint32_t put_causal(asp_mask *m)
{
    asp_mask_atom a = {.rel = ASP_MASK_LE}; // -q <= -k
    ASP_CHECK(asp_mask_add_term(&a.query, -1, -1, 1) && asp_mask_add_term(&a.key, -1, -1, 1));
    return asp_mask_put_atom(m, &a);
}

bool asp_mask_add_causal(asp_mask *m)
{
    const uint32_t root = m->n_nodes - 1, causal = put_causal(m);
    if (causal == NONE) return false;
    const uint32_t both = asp_mask_put(m, ASP_MASK_AND, root, causal);
    if (both != NONE) asp_mask_finish(m, both);
    return both != NONE;
}

bool asp_mask_is_causal(const asp_mask *m)
{
    asp_mask causal = *m;
    const uint32_t node = put_causal(&causal);
    return node < m->n_nodes && holds(m, ASP_MASK_AND, m->n_nodes - 1, node);
}
