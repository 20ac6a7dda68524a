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
// Trust is checked: predicate and arithmetic are run on TRIALS random small inputs, and a
// difference is an error.  The lemma: where seg = cumsum(diff(T) != 1), seg[q] = seg[k] implies
// T[q] - T[k] = q - k, so beside that condition comparisons of given positions are comparisons of
// indices.
//
// O(nodes) and one clone of the graph for each distinct mask.  SPDX-License-Identifier: Apache-2.0
#include "op/attention.h"
#include "pass/interpret.h"
#include "pass/masks.h"

#include <math.h>

#define TRIALS 8
#define NONE UINT32_MAX

// One attention, while its mask is looked at.
typedef struct masking {
    asp_pass *px;
    asp_folder *f;
    asp_graph *g;
    asp_node node;
    asp_sdpa_attr attr;
    asp_sdpa_parts parts;
    asp_type operand; // type of the mask
    asp_mask mask;
    asp_val lookup[ASP_MASK_MAX_LOOKUPS]; // values as they were found, then as operands
    asp_size lookup_dim[ASP_MASK_MAX_LOOKUPS][2];
    uint32_t n_lookups;
    const asp_body *dense; // a condition that stays an operand, or NULL
    asp_val slopes;        // or none
    double slope_sign;
    double hides; // what is added where the mask hides; -infinity for a bool mask
    bool adds;
    // Of the attention as it was.
    asp_val value;
    const char *given;
    bool causal;
    asp_size n_q, n_k;
} masking;

// ---- the lemma ---------------------------------------------------------------------------------

// The token vector T of seg = cumsum(diff(T) != 1), or NULL.
static const asp_body *segments_of(const masking *m, asp_val seg)
{
    const asp_node_info *n = asp_val_node(m->g, seg);
    if (n->op != ASP_OP_cumsum || ((const asp_scan_attr *)n->attr)->reverse) return NULL;
    n = asp_val_node(m->g, n->in[0]);
    if (n->op == ASP_OP_cast) n = asp_val_node(m->g, n->in[0]);
    if (n->op != ASP_OP_ne || !asp_body_is_int(m->f, asp_fold(m->f, n->in[1]), 1)) return NULL;
    n = asp_val_node(m->g, n->in[0]);
    return n->op == ASP_OP_diff ? asp_fold(m->f, n->in[0]) : NULL;
}

static const asp_body *only_look(const asp_folder *f, const asp_body *x)
{
    int64_t coef, c;
    if (!x || x->kind != ASP_BODY_INT || x->n != 1 || !x->term[0].look || x->term[0].div != 1)
        return NULL;
    if (!asp_size_is_num(f->g, x->term[0].coef, &coef) || coef != 1) return NULL;
    return asp_size_is_num(f->g, x->c, &c) && c == 0 ? x->term[0].look : NULL;
}

// Of a whole number: the two values looked up with coefficients c and -c in one vector.
static bool opposite_looks(const masking *m, const asp_body *x, uint32_t *i, uint32_t *j)
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
static const asp_body *by_index(masking *m, const asp_body *same, const asp_body *y)
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
    const asp_body *vector = only_look(m->f, segments_of(m, p->v));
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
static const asp_body *simplify(masking *m, const asp_body *x)
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

static bool is_dim(const masking *m, const asp_body *at, uint32_t from_end)
{
    int64_t coef, c;
    if (at->n != 1 || at->term[0].look || at->term[0].div != 1) return false;
    if (!asp_size_is_num(m->g, at->term[0].coef, &coef) || coef != 1) return false;
    if (!asp_size_is_num(m->g, at->c, &c) || c != 0) return false;
    return at->term[0].dim + from_end + 1 == m->operand.rank;
}

// Is the value looked up by batch and one of query (1 from the end) and key (0), in this order,
// else nothing?  -1: no.
static int side_of(const masking *m, const asp_body *look)
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

static int lookup_of(masking *m, const asp_body *look)
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

static bool add_term(masking *m, const asp_body_term *t, asp_mask_atom *a)
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

static uint32_t put_relation(masking *m, const asp_body *x)
{
    asp_mask_atom a = {.rel = x->rel};
    int64_t c;
    if (!asp_size_is_num(m->g, x->x->c, &c)) return NONE;
    if (c < -ASP_MASK_MAX_NUMBER || c > ASP_MASK_MAX_NUMBER) return NONE;
    a.query.constant = c;
    for (uint32_t i = 0; i < x->x->n; i++)
        if (!add_term(m, &x->x->term[i], &a)) return NONE;
    return asp_mask_put_atom(&m->mask, &a);
}

static uint32_t put_condition(masking *m, const asp_body *x)
{
    switch (x->kind) {
    case ASP_BODY_BOOL:
        return asp_mask_put(&m->mask, x->truth ? ASP_MASK_TRUE : ASP_MASK_FALSE, 0, 0);
    case ASP_BODY_REL: return put_relation(m, x);
    case ASP_BODY_AND:
    case ASP_BODY_OR: {
        const uint32_t a = put_condition(m, x->x), b = a == NONE ? NONE : put_condition(m, x->y);
        return asp_mask_put(&m->mask, x->kind == ASP_BODY_AND ? ASP_MASK_AND : ASP_MASK_OR, a, b);
    }
    case ASP_BODY_NONE:
    case ASP_BODY_FLOAT:
    case ASP_BODY_INT:
    case ASP_BODY_WHERE:
    case ASP_BODY_SLOPE: break;
    }
    return NONE;
}

// A bool value read at the mask's own indices: it can stay the operand.
static bool is_dense(const masking *m, const asp_body *x)
{
    if (x->kind != ASP_BODY_REL || x->rel != ASP_MASK_NE) return false;
    const asp_body *look = only_look(m->f, x->x);
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
static uint32_t put_all(masking *m, const asp_body *x)
{
    if (!x) return NONE; // what could not be read stays as it was written
    if (x->kind == ASP_BODY_AND) {
        const uint32_t a = put_all(m, x->x), b = a == NONE ? NONE : put_all(m, x->y);
        return asp_mask_put(&m->mask, ASP_MASK_AND, a, b);
    }
    const uint32_t n_lookups = m->n_lookups, node = put_condition(m, x);
    if (node != NONE) return node;
    m->n_lookups = n_lookups;
    if (m->dense || m->adds || !is_dense(m, x)) return NONE;
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
static bool take_slopes(masking *m, const asp_body *x)
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

static bool take_operand(masking *m, asp_val v)
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
    if (node == NONE) return false;
    const uint32_t whole = asp_mask_put(&m->mask, ASP_MASK_AND, before, node);
    if (whole == NONE) return false;
    asp_mask_finish(&m->mask, whole);
    return m->mask.node[m->mask.n_nodes - 1].kind != ASP_MASK_TRUE || !m->dense;
}

// ---- the check ---------------------------------------------------------------------------------

typedef struct trial {
    uint32_t seed;
    bool restart; // positions restart; else they are any numbers
} trial;

static uint32_t draw(trial *t, uint32_t below)
{
    t->seed = t->seed * 1664525u + 1013904223u;
    return (t->seed >> 8) % below;
}

static void fill_input(void *arg, const asp_node_info *n, const asp_tensor *x)
{
    trial *t = arg;
    const char *role = n->op == ASP_OP_input ? ((const asp_input_attr *)n->attr)->role : "";
    const bool positions = strcmp(role, "positions") == 0;
    const int64_t width = x->rank ? x->dim[x->rank - 1] : 1;
    for (int64_t i = 0; i < asp_tensor_count(x); i++) {
        const int64_t s = i % width, half = width / 2;
        const int64_t id =
            positions && t->restart ? (s < half ? s : s - half) : draw(t, positions ? 5 : 3);
        if (x->dtype == ASP_I64) ((int64_t *)x->data)[i] = id;
        if (x->dtype == ASP_BOOL) ((uint8_t *)x->data)[i] = id != 0;
        if (x->dtype == ASP_F32) ((float *)x->data)[i] = (float)draw(t, 1000) * 0.01f;
        if (x->dtype == ASP_F64) ((double *)x->data)[i] = (double)draw(t, 1000) * 0.01;
    }
}

static double at(const asp_tensor *x, int64_t i)
{
    switch (x->dtype) {
    case ASP_F32: return (double)((const float *)x->data)[i];
    case ASP_F64: return ((const double *)x->data)[i];
    case ASP_I64: return (double)((const int64_t *)x->data)[i];
    case ASP_BOOL: return ((const uint8_t *)x->data)[i];
    case ASP_BF16:
    case ASP_F16:
    case ASP_I32:
    case ASP_U16:
    case ASP_U8: break;
    }
    return 0;
}

// Element of a tensor that is read at batch, head, query and key, broadcast.
static double at_pair(const asp_tensor *x, const int64_t *index)
{
    int64_t i = 0;
    for (int d = 0; d < x->rank; d++)
        i = i * x->dim[d] + (x->dim[d] == 1 ? 0 : index[4 - x->rank + d]);
    return at(x, i);
}

// Look-ups at a position, from their operands ([1|B, 1|n]).
static void looked_up(const masking *m, const asp_tensor *values, int64_t batch, int64_t position,
                      int64_t *out)
{
    for (uint32_t i = 0; i < m->n_lookups; i++) {
        const asp_tensor *x = &values[i];
        const int64_t row = x->dim[0] == 1 ? 0 : batch, column = x->dim[1] == 1 ? 0 : position;
        // In cross-attention a side that is not named may be longer than the look-up.
        out[i] = column < x->dim[1] ? (int64_t)at(x, row * x->dim[1] + column) : 0;
    }
}

static bool agrees_at(const masking *m, const asp_tensor *values, const int64_t *index)
{
    int64_t at_q[ASP_MASK_MAX_LOOKUPS], at_k[ASP_MASK_MAX_LOOKUPS];
    const double given = at_pair(&values[m->n_lookups], index);
    looked_up(m, values, index[0], index[2], at_q);
    looked_up(m, values, index[0], index[3], at_k);
    bool sees = asp_mask_allows(&m->mask, index[2], index[3], at_q, at_k);
    if (m->dense) sees = sees && at_pair(&values[m->n_lookups + 1], index) != 0;
    if (m->adds)
        return given == (sees ? 0 : m->hides) || (!sees && given == (double)(float)m->hides);
    return (given != 0) == sees;
}

// A copy of the graph that computes values[0 .. n - 1] alone, from primitives; owned by the caller.
static asp_status only_values(masking *m, const asp_val *values, uint32_t n, asp_graph **out_graph)
{
    static const char pipeline[] = "dce,lower,dce";
    asp_graph *g = m->g;
    const uint32_t n_outputs = g->outputs.n;
    asp_output *kept = g->outputs.at;
    g->outputs.at = NULL, g->outputs.n = g->outputs.cap = 0;
    for (uint32_t i = 0; i < n; i++) asp_graph_add_output(g, values[i], "");
    asp_graph *copy = asp_graph_clone(g);
    g->outputs.at = kept, g->outputs.n = g->outputs.cap = n_outputs;
    const asp_status s = asp_passes_run(m->px->cx, copy, pipeline, m->px->options, NULL);
    if (s < 0) {
        asp_graph_destroy(copy);
        return s;
    }
    *out_graph = copy;
    return ASP_OK;
}

static asp_status different(const masking *m, asp_arena *a)
{
    asp_text t;
    asp_text_init(&t, a);
    asp_mask_print(&t, &m->mask);
    return asp_fail(
        m->px->cx, ASP_ERR_UNSUPPORTED,
        "%s: its mask was read as \"%s\", but the two differ on a small example; give the mask "
        "as the attribute mask instead",
        asp_node_str(m->g, m->node), t.at);
}

static asp_status one_trial(masking *m, asp_graph *g, uint32_t seed, asp_arena *a)
{
    trial t = {.seed = seed * 7919 + 17, .restart = seed % 2 == 0};
    const char *symbols[8];
    asp_env env = {.n = asp_size_symbols(g, symbols, 8)};
    asp_tensor *all, values[ASP_MASK_MAX_LOOKUPS + 2];
    const asp_type *q = asp_val_type(m->g, asp_node_at(m->g, m->node)->in[0]);
    const asp_type *k = asp_val_type(m->g, asp_node_at(m->g, m->node)->in[1]);
    const asp_size size[4] = {q->dim[0], q->dim[1], q->dim[2], k->dim[2]};
    int64_t n[4], i[4];
    for (int s = 0; s < env.n; s++) {
        env.at[s].symbol = symbols[s];
        env.at[s].value = strcmp(symbols[s], "B") == 0 ? 2 : 5 + draw(&t, 7);
    }
    ASP_TRY(asp_interpret(g, a, &env, fill_input, &t, &all));
    for (uint32_t v = 0; v < g->outputs.n; v++) values[v] = all[g->outputs.at[v].val.i];
    for (int d = 0; d < 4; d++) {
        if (asp_size_eval(m->g, size[d], &env, &n[d]) < 0) return ASP_ERR_UNSUPPORTED;
        n[d] = asp_min(n[d], 64); // of heads and batches some are enough; rows are few
    }
    for (i[0] = 0; i[0] < n[0]; i[0]++)
        for (i[1] = 0; i[1] < n[1]; i[1]++)
            for (i[2] = 0; i[2] < n[2]; i[2]++)
                for (i[3] = 0; i[3] < n[3]; i[3]++)
                    if (!agrees_at(m, values, i)) return different(m, a);
    return ASP_OK;
}

// *out_tried: whether the arithmetic could be run at all.
static asp_status check(masking *m, asp_val operand, bool *out_tried)
{
    asp_val values[ASP_MASK_MAX_LOOKUPS + 2];
    asp_graph *g;
    uint32_t n = 0;
    for (; n < m->n_lookups; n++) values[n] = m->lookup[n];
    values[n++] = operand;
    if (m->dense) values[n++] = only_look(m->f, m->dense->x)->v;
    *out_tried = false;
    if (only_values(m, values, n, &g) < 0) return ASP_OK;
    asp_arena a;
    asp_arena_init(&a, m->px->cx);
    asp_status s = ASP_OK;
    for (uint32_t seed = 0; s == ASP_OK && seed < TRIALS; seed++) {
        s = one_trial(m, g, seed, &a);
        if (s < 0 && seed == 0 && !strstr(m->px->cx->message, "its mask was read")) {
            s = ASP_OK; // not to be run here
            break;
        }
        *out_tried = true;
        asp_arena_reset(&a);
    }
    asp_arena_fini(&a);
    asp_graph_destroy(g);
    return s;
}

// ---- rewriting ---------------------------------------------------------------------------------

// Does a query always see its own key?  Then no row is empty.
static bool sees_itself(const masking *m)
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
        if (at[i] == NONE) return false;
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
        return inside ? NONE : asp_mask_put(out, ASP_MASK_OR, a, b);
    }
    return asp_mask_put(out, n.kind, 0, 0);
}

static void set_mask_attr(masking *m)
{
    asp_text t;
    asp_mask rest = {0};
    bool causal = false;
    const uint32_t node = without_causal(&rest, &m->mask, m->mask.n_nodes - 1, &causal);
    asp_text_init(&t, m->px->scratch);
    if (node != NONE) {
        asp_mask_finish(&rest, node);
        if (rest.n_lookups == m->mask.n_lookups) {
            m->mask = rest;
            m->attr.causal |= causal;
        }
    }
    asp_mask_print(&t, &m->mask);
    m->attr.mask = strcmp(t.at, "true") == 0 ? "" : t.at;
}

static asp_status rewrite(masking *m, asp_builder *b)
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
    if (m->dense) in[n++] = only_look(m->f, m->dense->x)->v;
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

// ---- the pass ----------------------------------------------------------------------------------

// Operands that were read before, of layers that share a mask.
typedef ASP_VEC(masking) readings;

// The same operand in an attention of the same sizes, without further masks.
static const masking *read_before(const readings *done, const masking *m, asp_val operand)
{
    const asp_type *q = asp_val_type(m->g, asp_node_at(m->g, m->node)->in[0]);
    const asp_type *k = asp_val_type(m->g, asp_node_at(m->g, m->node)->in[1]);
    for (uint32_t i = 0; i < done->n; i++) {
        const masking *d = &done->at[i];
        const bool same = d->value.i == operand.i && strcmp(d->given, m->given) == 0 &&
                          d->causal == m->attr.causal;
        if (same && asp_size_equal(d->n_q, q->dim[2]) && asp_size_equal(d->n_k, k->dim[2]) &&
            !*m->given)
            return d;
    }
    return NULL;
}

static void read_again(masking *m, const masking *d)
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
    masking m = {
        .px = px, .f = f, .g = g, .node = node, .attr = *(const asp_sdpa_attr *)info->attr};
    if (!m.attr.bias || !asp_mask_read(m.attr.mask, &m.mask)) return ASP_OK;
    m.given = m.attr.mask, m.causal = m.attr.causal;
    m.n_q = asp_val_type(g, info->in[0])->dim[2], m.n_k = asp_val_type(g, info->in[1])->dim[2];
    m.parts = asp_sdpa_parts_of(&m.attr, &m.mask, 3);
    m.n_lookups = m.mask.n_lookups;
    for (uint32_t i = 0; i < m.n_lookups; i++) m.lookup[i] = info->in[m.parts.lookup[i]];
    const asp_val operand = m.value = info->in[m.parts.bias];
    const uint32_t given = m.n_lookups;
    const masking *before = read_before(done, &m, operand);
    if (before) {
        read_again(&m, before);
        return rewrite(&m, &(asp_builder){.g = g, .before = node, .loc = info->loc});
    }
    if (!take_operand(&m, operand)) return ASP_OK;
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
    ASP_TRY(check(&m, operand, &tried));
    if (!tried) return ASP_OK;
    ASP_PUSH(px->scratch, done, m);
    return rewrite(&m, &b);
}

asp_status asp_pass_masks(asp_pass *px, asp_graph *g)
{
    asp_folder f;
    readings done = {0};
    asp_folder_init(&f, g, px->scratch);
    ASP_TRY(asp_find_manual_attention(px, &f));
    asp_folder_init(&f, g, px->scratch); // there are more values now
    for (asp_node n = g->head, next; n.i; n = next) {
        next = asp_node_at(g, n)->next;
        if (asp_node_at(g, n)->op == ASP_OP_sdpa) ASP_TRY(fold_attention(px, &f, n, &done));
    }
    return px->changes ? asp_pass_dce(px, g)
                       : ASP_OK; // scores and masks that nobody reads any more
}
