// One node of the axes analysis: the letters of its rule meet the atoms of its operands.
// Neighbours: axes.c (the walk), atoms.c, op/rule.c (rules).  SPDX-License-Identifier: Apache-2.0
#include "pass/axes_int.h"

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
    *all = asp_atoms_join(w->x, *all, atoms);
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
    if (letters.n > 1 && !asp_atoms_regroup(w->x, atoms, letters.n, size, part)) {
        lose(w, dim, atoms);
        return;
    }
    for (uint32_t i = 0; i < letters.n; i++) {
        uint8_t c = letters.at[i];
        if (!w->bound[c]) {
            w->node->letter[c] = part[i];
            w->bound[c] = true;
        } else if (!asp_atoms_unify(w->x, w->node->letter[c], part[i])) {
            r->letter[c].kind = ASP_LETTER_WHOLE;
            lose(w, dim, atoms);
            return;
        }
    }
}

// ---- products of tokens with tokens ------------------------------------------------------------
//
//   %s : b, h, s, c     = matmul %q, %k      q: b h s d   k: b h d s    c is a copy of s
//   %o : b, h, s, d     = matmul %p, %v      p: b h s c   v: b h s d    c meets s without a union
//
// so that rows of scores may be split over ranks while each has all keys.

static bool has_tokens(const asp_axes *x, asp_atoms list)
{
    list = asp_atoms_flat(x, list);
    for (uint32_t i = 0; i < list.n; i++)
        if (x->atoms.at[list.at[i]].token) return true;
    return false;
}

static bool has_copies(const asp_axes *x, asp_atoms list)
{
    list = asp_atoms_flat(x, list);
    for (uint32_t i = 0; i < list.n; i++)
        if (x->atoms.at[list.at[i]].copy_of && !x->atoms.at[list.at[i]].token) return true;
    return false;
}

static asp_atoms copies(asp_axes *x, asp_atoms list)
{
    asp_atoms c = {0};
    list = asp_atoms_flat(x, list);
    for (uint32_t i = 0; i < list.n; i++) {
        uint32_t atom = list.at[i];
        if (x->atoms.at[atom].token) {
            uint32_t copy = asp_atom_new(x, x->atoms.at[atom].size);
            x->atoms.at[copy].copy_of = atom;
            atom = copy;
        }
        c = asp_atoms_join(x, c, asp_atoms_single(x, atom));
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
        if (!w->bound[c]) w->node->letter[c] = asp_atoms_fresh(w->x, w->node->rule.letter[c].size);
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
            if (!w->node->has_rule) x->dims[v.i][d] = asp_atoms_fresh(x, t->dim[d]);
            for (uint32_t k = 0; w->node->has_rule && k < w->node->rule.out[i][d].n; k++)
                x->dims[v.i][d] = asp_atoms_join(x, x->dims[v.i][d],
                                                 w->node->letter[w->node->rule.out[i][d].at[k]]);
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
    asp_atoms from =
        asp_atoms_flat(x, x->dims[info->in[0].i] ? x->dims[info->in[0].i][dim] : (asp_atoms){0});
    asp_atoms to = asp_atoms_flat(x, x->dims[info->first.i][dim]);
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

asp_node_axes *asp_axes_of_node(asp_axes *x, asp_node n, bool starts)
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
