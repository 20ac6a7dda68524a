// The atoms of the axes analysis: union-find over what dimensions are, refined where a dimension
// turns out to be a product.  Neighbours: axes.c (the analysis), axes.h (what an atom is).
// SPDX-License-Identifier: Apache-2.0
#include "pass/axes_int.h"

uint32_t asp_atom_new(asp_axes *x, asp_size size)
{
    ASP_PUSH(x->arena, &x->atoms, (asp_atom){.size = size});
    return x->atoms.n - 1;
}

uint32_t asp_atom_root(const asp_axes *x, uint32_t a)
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
    const asp_atom *a = &x->atoms.at[asp_atom_root(x, atom)];
    if (!a->outer) {
        if (out) *out = asp_atom_root(x, atom);
        return 1;
    }
    uint32_t n = flatten_into(x, a->outer, out);
    return n + flatten_into(x, a->inner, out ? out + n : NULL);
}

asp_atoms asp_atoms_flat(const asp_axes *x, asp_atoms list)
{
    if (is_flat(x, list)) return list;
    asp_atoms f = {0};
    for (uint32_t i = 0; i < list.n; i++) f.n += flatten_into(x, list.at[i], NULL);
    f.at = ASP_NEW_ARRAY(x->arena, uint32_t, f.n);
    for (uint32_t i = 0, n = 0; i < list.n; i++) n += flatten_into(x, list.at[i], f.at + n);
    return f;
}

asp_atoms asp_atoms_join(const asp_axes *x, asp_atoms a, asp_atoms b)
{
    if (a.n == 0 || b.n == 0) return a.n ? a : b;
    asp_atoms j = {.n = a.n + b.n, .at = ASP_NEW_ARRAY(x->arena, uint32_t, a.n + b.n)};
    memcpy(j.at, a.at, a.n * sizeof *a.at);
    memcpy(j.at + a.n, b.at, b.n * sizeof *b.at);
    return j;
}

asp_atoms asp_atoms_single(asp_axes *x, uint32_t atom)
{
    asp_atoms list = {.n = 1, .at = ASP_NEW(x->arena, uint32_t)};
    list.at[0] = atom;
    return list;
}

asp_atoms asp_atoms_fresh(asp_axes *x, asp_size size)
{
    if (asp_size_equal(size, asp_size_num(x->g, 1))) return (asp_atoms){0};
    return asp_atoms_single(x, asp_atom_new(x, size));
}

// atom -> outer of the given size, inner of the rest.
static void refine(asp_axes *x, uint32_t atom, asp_size outer, asp_size rest)
{
    uint32_t o = asp_atom_new(x, outer), i = asp_atom_new(x, rest);
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
    uint32_t bp = p->base ? asp_atom_root(x, p->base) : 0,
             bc = c->base ? asp_atom_root(x, c->base) : 0;
    p->clash |= c->clash || (p->token && c->token && bp != bc);
    if (!p->token) p->base = c->base;
    if (!p->copy_of) p->copy_of = c->copy_of;
    c->parent = a;
    p->token |= c->token;
    p->batch |= c->batch;
}

bool asp_atoms_unify(asp_axes *x, asp_atoms p, asp_atoms q)
{
    for (;;) {
        asp_size rest;
        uint32_t i = 0;
        p = asp_atoms_flat(x, p);
        q = asp_atoms_flat(x, q);
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
    return asp_atoms_flat(
        x, asp_atoms_join(x, before, (asp_atoms){.n = list.n - 1, .at = list.at + 1}));
}

bool asp_atoms_regroup(asp_axes *x, asp_atoms list, uint32_t n, const asp_size *size,
                       asp_atoms *out)
{
    asp_size one = asp_size_num(x->g, 1), rest;
    asp_atoms todo = asp_atoms_flat(x, list);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (asp_atoms){0};
        for (asp_size left = size[i]; !asp_size_equal(left, one); left = rest) {
            if (todo.n == 0) return false;
            uint32_t a = todo.at[0];
            asp_size have = x->atoms.at[a].size;
            if (asp_size_divides(x->g, have, left, &rest)) {
                out[i] = asp_atoms_join(x, out[i], asp_atoms_single(x, a));
                todo = without_first(x, todo, (asp_atoms){0});
            } else if (asp_size_divides(x->g, left, have, &rest)) {
                refine(x, a, left, rest);
                out[i] = asp_atoms_join(x, out[i], asp_atoms_single(x, x->atoms.at[a].outer));
                todo = without_first(x, todo, asp_atoms_single(x, x->atoms.at[a].inner));
                rest = one;
            } else
                return false;
        }
    }
    return todo.n == 0;
}

// ---- what was found ----------------------------------------------------------------------------

uint32_t asp_axes_base(const asp_axes *x, uint32_t atom)
{
    uint32_t base = x->atoms.at[atom].base;
    return base ? asp_atom_root(x, base) : atom;
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
