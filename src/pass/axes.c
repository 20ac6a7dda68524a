// The axes analysis: one walk over the graph, binding each op's letters to atoms.
//
//   %x : b, s, a1        = embedding %ids, %w              letters b s d
//   %q : b, s, a2        = linear %x, %wq                  o is new: a2
//   %h : b, s, a3, a4    = view %q {shape = [B, S, 4, 8]}  a2 is refined into a3 a4, everywhere
//
// Atoms are united where one letter meets two (union-find) and refined where a letter is a part of
// one.  A dimension whose atoms cannot be cut to its letters (6 = 2 x 3 met as 3 x 2) is lost to
// the op: its atoms go to one letter that must be whole.  Tokens and batch spread by union; of a
// refined token atom only the outer part is the sequence: ranks hold contiguous blocks.  About
// O(nodes). Neighbours: axes.h (contract), op/rule.c.  SPDX-License-Identifier: Apache-2.0
#include "pass/axes.h"

// ---- atoms
// --------------------------------------------------------------------------------------

static uint32_t new_atom(asp_axes *x, asp_size size)
{
    ASP_PUSH(x->arena, &x->atoms, (asp_atom){.size = size});
    return x->atoms.n - 1;
}

static uint32_t root(const asp_axes *x, uint32_t a)
{
    while (x->atoms.at[a].parent) a = x->atoms.at[a].parent;
    return a;
}

static bool is_flat(const asp_axes *x, asp_atoms list)
{
    for (uint32_t i = 0; i < list.n; i++)
        if (x->atoms.at[list.at[i]].parent || x->atoms.at[list.at[i]].outer) return false;
    return true;
}

static uint32_t flatten_into(const asp_axes *x, uint32_t atom, uint32_t *out)
{
    const asp_atom *a = &x->atoms.at[root(x, atom)];
    if (!a->outer) {
        if (out) *out = root(x, atom);
        return 1;
    }
    uint32_t n = flatten_into(x, a->outer, out);
    return n + flatten_into(x, a->inner, out ? out + n : NULL);
}

// Roots that are not refined.
static asp_atoms flat(const asp_axes *x, asp_atoms list)
{
    if (is_flat(x, list)) return list;
    asp_atoms f = {0};
    for (uint32_t i = 0; i < list.n; i++) f.n += flatten_into(x, list.at[i], NULL);
    f.at = ASP_NEW_ARRAY(x->arena, uint32_t, f.n);
    for (uint32_t i = 0, n = 0; i < list.n; i++) n += flatten_into(x, list.at[i], f.at + n);
    return f;
}

static asp_atoms join(const asp_axes *x, asp_atoms a, asp_atoms b)
{
    if (a.n == 0 || b.n == 0) return a.n ? a : b;
    asp_atoms j = {.n = a.n + b.n, .at = ASP_NEW_ARRAY(x->arena, uint32_t, a.n + b.n)};
    memcpy(j.at, a.at, a.n * sizeof *a.at);
    memcpy(j.at + a.n, b.at, b.n * sizeof *b.at);
    return j;
}

static asp_atoms single(asp_axes *x, uint32_t atom)
{
    asp_atoms list = {.n = 1, .at = ASP_NEW(x->arena, uint32_t)};
    list.at[0] = atom;
    return list;
}

// A fresh atom; no atom for size 1.
static asp_atoms fresh(asp_axes *x, asp_size size)
{
    if (asp_size_equal(size, asp_size_num(x->g, 1))) return (asp_atoms){0};
    return single(x, new_atom(x, size));
}

// atom -> outer of the given size, inner of the rest.
static void refine(asp_axes *x, uint32_t atom, asp_size outer, asp_size rest)
{
    uint32_t o = new_atom(x, outer), i = new_atom(x, rest);
    asp_atom *a = &x->atoms.at[atom];
    x->atoms.at[o].token = a->token;
    x->atoms.at[o].clash = a->clash || (a->token && a->base);
    x->atoms.at[o].batch = x->atoms.at[i].batch = a->batch;
    a->outer = o;
    a->inner = i;
}

static void unite(asp_axes *x, uint32_t a, uint32_t b)
{
    asp_atom *p = &x->atoms.at[a], *c = &x->atoms.at[b];
    uint32_t bp = p->base ? root(x, p->base) : 0, bc = c->base ? root(x, c->base) : 0;
    p->clash |= c->clash || (p->token && c->token && bp != bc);
    if (!p->token) p->base = c->base;
    if (!p->copy_of) p->copy_of = c->copy_of;
    c->parent = a;
    p->token |= c->token;
    p->batch |= c->batch;
}

// Makes two lists of equal size the same; false where one cannot be refined to the other.
static bool unify(asp_axes *x, asp_atoms p, asp_atoms q)
{
    for (;;) {
        asp_size rest;
        uint32_t i = 0;
        p = flat(x, p);
        q = flat(x, q);
        while (i < p.n && i < q.n && p.at[i] == q.at[i]) i++;
        if (i == p.n && i == q.n) return true;
        if (i == p.n || i == q.n) return false;
        uint32_t a = p.at[i], b = q.at[i];
        asp_size sa = x->atoms.at[a].size, sb = x->atoms.at[b].size;
        if (asp_size_equal(sa, sb))
            unite(x, a, b);
        else if (asp_size_divides(x->g, sb, sa, &rest))
            refine(x, a, sb, rest);
        else if (asp_size_divides(x->g, sa, sb, &rest))
            refine(x, b, sa, rest);
        else
            return false;
    }
}

static asp_atoms without_first(const asp_axes *x, asp_atoms list, asp_atoms before)
{
    return flat(x, join(x, before, (asp_atoms){.n = list.n - 1, .at = list.at + 1}));
}

// Cuts a list into n consecutive ones of the given sizes, refining where a cut falls inside.
static bool regroup(asp_axes *x, asp_atoms list, uint32_t n, const asp_size *size, asp_atoms *out)
{
    asp_size one = asp_size_num(x->g, 1), rest;
    asp_atoms todo = flat(x, list);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (asp_atoms){0};
        for (asp_size left = size[i]; !asp_size_equal(left, one); left = rest) {
            if (todo.n == 0) return false;
            uint32_t a = todo.at[0];
            asp_size have = x->atoms.at[a].size;
            if (asp_size_divides(x->g, have, left, &rest)) {
                out[i] = join(x, out[i], single(x, a));
                todo = without_first(x, todo, (asp_atoms){0});
            } else if (asp_size_divides(x->g, left, have, &rest)) {
                refine(x, a, left, rest);
                out[i] = join(x, out[i], single(x, x->atoms.at[a].outer));
                todo = without_first(x, todo, single(x, x->atoms.at[a].inner));
                rest = one;
            } else
                return false;
        }
    }
    return todo.n == 0;
}

// ---- one node
// -----------------------------------------------------------------------------------

typedef struct walk {
    asp_axes *x;
    asp_node_axes *node;
    bool bound[ASP_MAX_LETTERS];
    uint8_t lost; // letter + 1, 0 = none yet
} walk;

static void lose(walk *w, asp_rule_dim *dim, asp_atoms atoms)
{
    asp_rule *r = &w->node->rule;
    if (!w->lost) {
        ASP_CHECK(r->n_letters < ASP_MAX_LETTERS);
        r->letter[r->n_letters] = (asp_letter){.kind = ASP_LETTER_WHOLE};
        w->lost = (uint8_t)++r->n_letters;
        w->bound[w->lost - 1] = true;
    }
    asp_atoms *all = &w->node->letter[w->lost - 1];
    *all = join(w->x, *all, atoms);
    *dim = (asp_rule_dim){.n = 1, .at = {(uint8_t)(w->lost - 1)}};
}

static void bind_dim(walk *w, asp_rule_dim *dim, asp_atoms atoms)
{
    asp_rule *r = &w->node->rule;
    asp_rule_dim letters = *dim;
    asp_atoms part[ASP_MAX_DIM_LETTERS] = {atoms};
    asp_size size[ASP_MAX_DIM_LETTERS];
    if (letters.n == 0) return;
    for (uint32_t i = 0; i < letters.n; i++) size[i] = r->letter[letters.at[i]].size;
    if (letters.n > 1 && !regroup(w->x, atoms, letters.n, size, part)) {
        lose(w, dim, atoms);
        return;
    }
    for (uint32_t i = 0; i < letters.n; i++) {
        uint8_t c = letters.at[i];
        if (!w->bound[c]) {
            w->node->letter[c] = part[i];
            w->bound[c] = true;
        } else if (!unify(w->x, w->node->letter[c], part[i])) {
            r->letter[c].kind = ASP_LETTER_WHOLE;
            lose(w, dim, atoms);
            return;
        }
    }
}

// ---- products of tokens with tokens
// --------------------------------------------------------------
//
//   %s : b, h, s, c     = matmul %q, %k      q: b h s d   k: b h d s    c is a copy of s
//   %o : b, h, s, d     = matmul %p, %v      p: b h s c   v: b h s d    c meets s without a union
//
// so that rows of scores may be split over ranks while each has all keys.

static bool has_tokens(const asp_axes *x, asp_atoms list)
{
    list = flat(x, list);
    for (uint32_t i = 0; i < list.n; i++)
        if (x->atoms.at[list.at[i]].token) return true;
    return false;
}

static bool has_copies(const asp_axes *x, asp_atoms list)
{
    list = flat(x, list);
    for (uint32_t i = 0; i < list.n; i++)
        if (x->atoms.at[list.at[i]].copy_of && !x->atoms.at[list.at[i]].token) return true;
    return false;
}

static asp_atoms copies(asp_axes *x, asp_atoms list)
{
    asp_atoms c = {0};
    list = flat(x, list);
    for (uint32_t i = 0; i < list.n; i++) {
        uint32_t atom = list.at[i];
        if (x->atoms.at[atom].token) {
            uint32_t copy = new_atom(x, x->atoms.at[atom].size);
            x->atoms.at[copy].copy_of = atom;
            atom = copy;
        }
        c = join(x, c, single(x, atom));
    }
    return c;
}

static bool letter_in(const asp_rule_dim *dims, uint32_t rank, uint8_t letter)
{
    for (uint32_t d = 0; d < rank; d++)
        for (uint32_t k = 0; k < dims[d].n; k++)
            if (dims[d].at[k] == letter) return true;
    return false;
}

// Has operand 0 a letter with tokens that stays in the result?
static bool has_rows_of_tokens(const walk *w, asp_node n)
{
    const asp_rule *r = &w->node->rule;
    uint32_t rank = asp_val_type(w->x->g, asp_node_at(w->x->g, n)->in[0])->rank;
    for (uint8_t c = 0; c < r->n_letters; c++)
        if (w->bound[c] && r->letter[c].kind == ASP_LETTER_SPLIT && letter_in(r->in[0], rank, c) &&
            has_tokens(w->x, w->node->letter[c]))
            return true;
    return false;
}

// Binds dim d of operand 1 of a product where its tokens meet those of operand 0; false: it is
// bound as any other.
static bool bind_keys(walk *w, asp_node n, uint32_t d, asp_atoms atoms)
{
    asp_rule_dim *dim = &w->node->rule.in[1][d];
    asp_op op = asp_node_at(w->x->g, n)->op;
    if ((op != ASP_OP_matmul && op != ASP_OP_bmm) || dim->n != 1) return false;
    uint8_t c = dim->at[0];
    if (!has_tokens(w->x, atoms)) return false;
    if (w->node->rule.letter[c].kind == ASP_LETTER_SUM) {
        if (!w->bound[c] || !has_copies(w->x, w->node->letter[c])) return false;
    } else {
        if (w->bound[c] || !has_rows_of_tokens(w, n)) return false;
        w->node->letter[c] = copies(w->x, atoms);
        w->bound[c] = true;
    }
    w->node->whole[1] = true;
    return true;
}

static void bind_operands(walk *w, asp_node n, bool starts)
{
    const asp_axes *x = w->x;
    const asp_node_info *info = asp_node_at(x->g, n);
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = info->in[i];
        if (!x->dims[v.i] || (x->replicable[v.i] && !starts)) continue;
        for (uint32_t d = 0; d < asp_val_type(x->g, v)->rank; d++)
            if (i != 1 || !bind_keys(w, n, d, x->dims[v.i][d]))
                bind_dim(w, &w->node->rule.in[i][d], x->dims[v.i][d]);
    }
    // Letters of replicable operands and of results alone.
    for (uint32_t c = 0; c < w->node->rule.n_letters; c++)
        if (!w->bound[c]) w->node->letter[c] = fresh(w->x, w->node->rule.letter[c].size);
}

static void set_results(walk *w, asp_node n)
{
    asp_axes *x = w->x;
    const asp_node_info *info = asp_node_at(x->g, n);
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_val v = asp_node_result(x->g, n, i);
        const asp_type *t = asp_val_type(x->g, v);
        x->dims[v.i] = ASP_NEW_ARRAY(x->arena, asp_atoms, t->rank);
        for (uint32_t d = 0; d < t->rank; d++) {
            if (!w->node->has_rule) x->dims[v.i][d] = fresh(x, t->dim[d]);
            for (uint32_t k = 0; w->node->has_rule && k < w->node->rule.out[i][d].n; k++)
                x->dims[v.i][d] =
                    join(x, x->dims[v.i][d], w->node->letter[w->node->rule.out[i][d].at[k]]);
        }
    }
}

// What is cut out of the tokens, or laid out anew along them, is tokens too.
static void derive_tokens(const walk *w, asp_node n)
{
    asp_axes *x = w->x;
    const asp_node_info *info = asp_node_at(x->g, n);
    int64_t dim = -1;
    if (info->op == ASP_OP_slice) dim = ((const asp_range_attr *)info->attr)->dim;
    if (info->op == ASP_OP_pad) dim = ((const asp_pad_attr *)info->attr)->dim;
    if (info->op == ASP_OP_conv || info->op == ASP_OP_conv1d) dim = 2;
    if (dim < 0 || !w->node->has_rule) return;
    asp_atoms from = flat(x, x->dims[info->in[0].i] ? x->dims[info->in[0].i][dim] : (asp_atoms){0});
    asp_atoms to = flat(x, x->dims[info->first.i][dim]);
    if (from.n != 1 || to.n != 1 || from.at[0] == to.at[0] || !x->atoms.at[from.at[0]].token)
        return;
    const asp_atom *a = &x->atoms.at[from.at[0]];
    asp_atom *t = &x->atoms.at[to.at[0]];
    t->token = true;
    t->clash = a->clash;
    t->made = info->op != ASP_OP_slice;
    if (info->op == ASP_OP_slice && !a->made) t->base = a->base ? a->base : from.at[0];
}

// An exchange in an unsplit graph is the identity.
static bool is_identity(const asp_node_info *info)
{
    return info->op == ASP_OP_all_to_all && ((const asp_a2a_attr *)info->attr)->ranks == 1;
}

static asp_node_axes *node_axes(asp_axes *x, asp_node n, bool starts)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    walk w = {.x = x, .node = ASP_NEW(x->arena, asp_node_axes)};
    if (is_identity(info)) {
        x->dims[info->first.i] = x->dims[info->in[0].i];
        w.node->has_rule = true;
        return w.node;
    }
    w.node->has_rule = asp_rule_of(x->arena, x->g, n, &w.node->rule);
    if (w.node->has_rule) bind_operands(&w, n, starts);
    set_results(&w, n);
    derive_tokens(&w, n);
    return w.node;
}

// ---- the graph
// ----------------------------------------------------------------------------------

static bool has_token_role(const asp_node_info *info)
{
    if (info->op != ASP_OP_input) return false;
    const char *role = ((const asp_input_attr *)info->attr)->role;
    return strcmp(role, "tokens") == 0 || strcmp(role, "labels") == 0 ||
           strcmp(role, "positions") == 0;
}

// [B, S] of ids, [B, S, D] of numbers: the sequence is the last dim that counts tokens, what stands
// before it is batch; batches of equal size are one.
static void start_axes(asp_axes *x, asp_val v)
{
    const asp_type *t = asp_val_type(x->g, v);
    uint32_t sequence = t->rank - (asp_dtypes[t->dtype].is_float && t->rank > 1 ? 2u : 1u);
    x->dims[v.i] = ASP_NEW_ARRAY(x->arena, asp_atoms, t->rank);
    for (uint32_t d = 0; d < t->rank; d++) {
        uint32_t shared = 0;
        for (uint32_t a = 1; d < sequence && a < x->atoms.n; a++)
            if (x->atoms.at[a].batch && asp_size_equal(x->atoms.at[a].size, t->dim[d])) shared = a;
        x->dims[v.i][d] = shared ? single(x, shared) : fresh(x, t->dim[d]);
        if (x->dims[v.i][d].n == 0) continue;
        asp_atom *a = &x->atoms.at[x->dims[v.i][d].at[0]];
        a->batch = d < sequence;
        a->token = d == sequence;
    }
}

// Would the result of an op on replicable operands be one of many tokens?
static bool counts_tokens(const asp_axes *x, asp_node n)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    for (uint32_t i = 0; i < info->n_out; i++) {
        const asp_type *t = asp_val_type(x->g, asp_node_result(x->g, n, i));
        for (uint32_t d = 0; d < t->rank; d++)
            if (!asp_size_is_num(x->g, t->dim[d], NULL)) return true;
    }
    for (uint32_t i = 0; i < info->n_in; i++)
        if (x->dims[info->in[i].i]) return true;
    return false;
}

static bool keeps_token_axes(asp_op op)
{
    return op == ASP_OP_view || op == ASP_OP_permute || op == ASP_OP_cast || op == ASP_OP_stack ||
           op == ASP_OP_select || op == ASP_OP_unbind;
}

// Do tokens stand where they do, dim by dim?  Of two inputs too: where(labels >= 0, labels, ids).
static bool same_axes(const asp_axes *x, asp_val a, asp_val b)
{
    const asp_type *s = asp_val_type(x->g, a), *t = asp_val_type(x->g, b);
    if (s->rank != t->rank) return false;
    for (uint32_t d = 0; d < s->rank; d++) {
        const asp_atoms p = x->dims[a.i][d], q = x->dims[b.i][d];
        if (!asp_size_equal(s->dim[d], t->dim[d]) ||
            asp_axes_count_tokens(x, p) != asp_axes_count_tokens(x, q))
            return false;
    }
    return true;
}

// Ids that arithmetic has changed, where(ids != 3, ids, 0), are tokens still.  Where operands have
// axes of their own, as rows and columns of a mask, nothing is said.
static void keep_axes_of_numbers(asp_axes *x, asp_node n)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    asp_val from = {0};
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_val v = info->in[i];
        if (!x->dims[v.i]) continue;
        if (from.i && !same_axes(x, from, v)) return;
        from = v;
    }
    const asp_type *t = asp_val_type(x->g, info->first), *s = asp_val_type(x->g, from);
    bool whole = t->rank == s->rank;
    for (uint32_t d = 0; whole && d < t->rank; d++) whole = asp_size_equal(t->dim[d], s->dim[d]);
    if (whole) x->dims[info->first.i] = x->dims[from.i];
}

// So are ids that the program shifts, rolls or sorts.  Of another length (a slice, one more in
// front) they are a sequence of their own; `widens`: only a program that has no other is read so,
// since ids that stand beside what is cut out of its tokens, x[:, :-1] + embedding(ids[:, 1:]),
// take its axis.
static void keep_axes_of_arranged(asp_axes *x, asp_node n, bool widens)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    asp_val from = {0};
    for (uint32_t i = 0; i < info->n_in && !from.i; i++)
        if (x->dims[info->in[i].i]) from = info->in[i];
    const asp_type *s = asp_val_type(x->g, from);
    for (uint32_t i = 0; i < info->n_out; i++) {
        const asp_val v = asp_node_result(x->g, n, i);
        const asp_type *t = asp_val_type(x->g, v);
        bool fits = t->rank == s->rank;
        for (uint32_t d = 0; fits && d < t->rank; d++)
            fits = widens || asp_size_equal(s->dim[d], t->dim[d]);
        if (!fits) continue;
        x->dims[v.i] = ASP_NEW_ARRAY(x->arena, asp_atoms, t->rank);
        for (uint32_t d = 0; d < t->rank; d++) {
            const asp_atoms list = flat(x, x->dims[from.i][d]);
            const bool same = asp_size_equal(s->dim[d], t->dim[d]);
            x->dims[v.i][d] = same ? list : fresh(x, t->dim[d]);
            if (same || x->dims[v.i][d].n == 0) continue;
            x->atoms.at[x->dims[v.i][d].at[0]].token = asp_axes_count_tokens(x, list) > 0;
        }
    }
}

static void visit(asp_axes *x, asp_node n, bool widens)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    bool replicable = true, needs = info->op == ASP_OP_param, any_float = false, axes = false;
    for (uint32_t i = 0; i < info->n_in; i++) {
        replicable &= x->replicable[info->in[i].i];
        needs |= x->needs_grad[info->in[i].i];
        axes |= x->dims[info->in[i].i] != NULL;
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_val v = asp_node_result(x->g, n, i);
        x->needs_grad[v.i] = needs && asp_dtypes[asp_val_type(x->g, v)->dtype].is_float;
        any_float |= x->needs_grad[v.i];
    }
    bool starts = replicable && any_float && info->n_in > 0 && counts_tokens(x, n);
    replicable &= !starts;
    for (uint32_t i = 0; i < info->n_out; i++) x->replicable[info->first.i + i] = replicable;
    if (has_token_role(info) && asp_val_type(x->g, info->first)->rank > 0)
        start_axes(x, info->first);
    else if (!replicable)
        x->node[n.i] = node_axes(x, n, starts);
    else if (axes && keeps_token_axes(info->op))
        node_axes(x, n, true);
    else if (axes && asp_op_has(info->op, ASP_POINTWISE))
        keep_axes_of_numbers(x, n);
    else if (axes)
        keep_axes_of_arranged(x, n, widens);
}

static bool finds_tokens(const asp_axes *x)
{
    ASP_FOR_NODES (x->g, n)
        if (x->node[n.i] && asp_axes_count_value_tokens(x, asp_node_at(x->g, n)->first))
            return true;
    return false;
}

static void walk_graph(asp_arena *a, asp_graph *g, bool widens, asp_axes *out_axes)
{
    asp_axes x = {.g = g, .arena = a};
    x.replicable = ASP_NEW_ARRAY(a, bool, g->vals.n);
    x.needs_grad = ASP_NEW_ARRAY(a, bool, g->vals.n);
    x.dims = ASP_NEW_ARRAY(a, asp_atoms *, g->vals.n);
    x.node = ASP_NEW_ARRAY(a, asp_node_axes *, g->nodes.n);
    ASP_PUSH(a, &x.atoms, (asp_atom){0});
    ASP_FOR_NODES (g, n) visit(&x, n, widens);
    for (uint32_t v = 1; v < g->vals.n; v++)
        for (uint32_t d = 0; x.dims[v] && d < g->vals.at[v].type.rank; d++)
            x.dims[v][d] = flat(&x, x.dims[v][d]);
    for (uint32_t n = 1; n < g->nodes.n; n++)
        for (uint32_t c = 0; x.node[n] && c < x.node[n]->rule.n_letters; c++)
            x.node[n]->letter[c] = flat(&x, x.node[n]->letter[c]);
    *out_axes = x;
}

void asp_axes_analyse(asp_arena *a, asp_graph *g, asp_axes *out_axes)
{
    walk_graph(a, g, false, out_axes);
    if (!finds_tokens(out_axes)) walk_graph(a, g, true, out_axes);
}

uint32_t asp_axes_base(const asp_axes *x, uint32_t atom)
{
    uint32_t base = x->atoms.at[atom].base;
    return base ? root(x, base) : atom;
}

asp_size asp_axes_base_size(const asp_axes *x, uint32_t atom)
{
    return x->atoms.at[asp_axes_base(x, atom)].size;
}

bool asp_atoms_have(asp_atoms list, uint32_t atom)
{
    for (uint32_t i = 0; i < list.n; i++)
        if (list.at[i] == atom) return true;
    return false;
}

uint32_t asp_axes_count_tokens(const asp_axes *x, asp_atoms list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list.n; i++) n += x->atoms.at[list.at[i]].token;
    return n;
}

uint32_t asp_axes_count_value_tokens(const asp_axes *x, asp_val v)
{
    uint32_t n = 0;
    for (uint32_t d = 0; x->dims[v.i] && d < asp_val_type(x->g, v)->rank; d++)
        n += asp_axes_count_tokens(x, x->dims[v.i][d]);
    return n;
}

bool asp_axes_value_has(const asp_axes *x, asp_val v, uint32_t atom)
{
    for (uint32_t d = 0; x->dims[v.i] && d < asp_val_type(x->g, v)->rank; d++)
        if (asp_atoms_have(x->dims[v.i][d], atom)) return true;
    return false;
}

void asp_axes_put(asp_text *t, const asp_axes *x)
{
    uint32_t *number = ASP_NEW_ARRAY(x->arena, uint32_t, x->atoms.n), next[3] = {0};
    ASP_FOR_NODES (x->g, n) {
        for (uint32_t i = 0; i < asp_node_at(x->g, n)->n_out; i++) {
            asp_val v = asp_node_result(x->g, n, i);
            if (!x->dims[v.i]) continue;
            asp_put(t, "%s :", asp_val_str(x->g, v));
            for (uint32_t d = 0; d < asp_val_type(x->g, v)->rank; d++) {
                asp_atoms list = x->dims[v.i][d];
                asp_put(t, "%s%s", d ? ", " : " ", list.n > 1 ? "(" : list.n ? "" : "1");
                for (uint32_t k = 0; k < list.n; k++) {
                    const asp_atom *a = &x->atoms.at[list.at[k]];
                    int kind = a->token ? 0 : a->batch ? 1 : 2;
                    if (!number[list.at[k]]) number[list.at[k]] = ++next[kind];
                    asp_put(t, "%s%c%u", k ? " " : "", "sba"[kind], number[list.at[k]]);
                }
                asp_put(t, "%s", list.n > 1 ? ")" : "");
            }
            asp_put(t, "\n");
        }
    }
}
