// Chains: the heads, and what else an op can be split along where all tokens are at hand ("other").
//
// A chain is the atoms of a result dimension of a mixer (an op that is illegal at "sequence"),
// batch atoms left out.  An op follows one chain: it must stand in every result, in letters that
// may be split, and in every operand, except where the op reads one slice for many (K/V heads under
// their query heads): then the operand is repeated.  A parameter is never sliced: no accidental
// tensor parallelism.  O(ops x chains of an op). Neighbours: place.h (contract), placement.c
// (legality at "sequence"). SPDX-License-Identifier: Apache-2.0
#include "pass/placement_int.h"

// ---- at "other" ---------------------------------------------------------------------------------

int64_t asp_chain_room(const asp_graph *g, const asp_axes *x, const asp_chain *c, uint32_t i)
{
    int64_t size;
    ASP_CHECK(asp_size_is_num(g, x->atoms.at[c->atoms.at[i]].size, &size));
    return asp_part_room(size, c->parts[i]);
}

bool asp_chain_is_ragged(const asp_graph *g, const asp_axes *x, const asp_chain *c)
{
    int64_t size;
    ASP_CHECK(asp_size_is_num(g, x->atoms.at[c->atoms.at[0]].size, &size));
    return c->atoms.n == 1 && size % c->parts[0] != 0;
}

// All but the last atom completely: each rank's part is one contiguous block.
static bool spread_evenly(const asp_graph *g, const asp_axes *x, asp_atoms atoms, int64_t ranks,
                          asp_chain *out_chain)
{
    asp_chain c = {.atoms = {.at = atoms.at}};
    int64_t left = ranks, size;
    while (left > 1) {
        if (c.atoms.n == atoms.n || c.atoms.n == ASP_MAX_DIM_LETTERS) return false;
        if (!asp_size_is_num(g, x->atoms.at[atoms.at[c.atoms.n]].size, &size)) return false;
        int64_t k = left % size == 0 ? size : left;
        if (size % k != 0) return false;
        c.parts[c.atoms.n++] = k;
        left /= k;
    }
    *out_chain = c;
    return c.atoms.n > 0;
}

bool asp_chain_spread(const asp_graph *g, const asp_axes *x, asp_atoms atoms, int64_t ranks,
                      asp_chain *out_chain)
{
    if (spread_evenly(g, x, atoms, ranks, out_chain)) return true;
    if (atoms.n == 0 || !asp_size_is_num(g, x->atoms.at[atoms.at[0]].size, NULL)) return false;
    *out_chain = (asp_chain){.atoms = {.n = 1, .at = atoms.at}, .parts = {ranks}};
    return true;
}

int asp_repeat_dim(const asp_placement *p, asp_node n, uint32_t i, const asp_chain *chain)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    const asp_node_axes *a = p->axes.node[n.i];
    asp_val v = info->in[i];
    for (uint32_t o = 0; o < info->n_in; o++) {
        for (uint32_t d = 0; d < asp_val_type(p->g, info->in[o])->rank; d++) {
            const asp_rule_dim *dim = &a->rule.in[o][d];
            bool lacked = false;
            for (uint32_t k = 1; k < dim->n; k++)
                for (uint32_t x = 0; x < chain->atoms.n; x++)
                    lacked |= asp_atoms_have(a->letter[dim->at[k]], chain->atoms.at[x]);
            for (uint32_t e = 0; lacked && e < asp_val_type(p->g, v)->rank; e++)
                if (a->rule.in[i][e].n == 1 && a->rule.in[i][e].at[0] == dim->at[0]) return (int)e;
        }
    }
    return -1;
}

// Stands the atom in every result, and only in letters that may be split?
static bool atom_legal(const asp_placement *p, asp_node n, uint32_t atom)
{
    const asp_node_axes *a = p->axes.node[n.i];
    const asp_node_info *info = asp_node_at(p->g, n);
    uint32_t letters = 0;
    for (uint32_t c = 0; c < a->rule.n_letters; c++) {
        if (!asp_atoms_have(a->letter[c], atom)) continue;
        if (a->rule.letter[c].kind != ASP_LETTER_SPLIT || letters++) return false;
        if (asp_slices_parameter(p, n, (uint8_t)c)) return false;
    }
    for (uint32_t i = 0; i < info->n_out; i++)
        if (!asp_axes_value_has(&p->axes, asp_node_result(p->g, n, i), atom)) return false;
    return true;
}

// complete: every operand has all of the chain.
static bool other_legal(const asp_placement *p, asp_node n, const asp_chain *chain,
                        bool *out_complete)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    if (!p->axes.node[n.i]->has_rule) return false;
    for (uint32_t x = 0; x < chain->atoms.n; x++)
        if (!atom_legal(p, n, chain->atoms.at[x])) return false;
    *out_complete = true;
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = info->in[i];
        uint32_t have = 0;
        if (p->axes.replicable[v.i]) continue;
        for (uint32_t x = 0; x < chain->atoms.n; x++)
            have += asp_axes_value_has(&p->axes, v, chain->atoms.at[x]);
        if (have == chain->atoms.n) continue;
        if (asp_repeat_dim(p, n, i, chain) < 0) return false;
        *out_complete = false;
    }
    return true;
}

// ---- chains -------------------------------------------------------------------------------------

typedef struct candidate {
    asp_chain chain;
    uint32_t cover, part; // mixers where every operand has it; mixers where it is legal
    // Of the mixer that it is of: how far from the inputs, which dim of its results.  Among equals
    // these decide, and the list of nodes does not.
    uint32_t level, place;
    uint32_t met;
} candidate;

// By node: the longest way from an input.
static uint32_t *levels(const asp_placement *p)
{
    uint32_t *level = ASP_NEW_ARRAY(p->arena, uint32_t, p->g->nodes.n);
    ASP_FOR_NODES (p->g, n)
        for (uint32_t i = 0; i < asp_node_at(p->g, n)->n_in; i++) {
            const uint32_t below = level[asp_val_at(p->g, asp_node_at(p->g, n)->in[i])->node.i];
            if (level[n.i] <= below) level[n.i] = below + 1;
        }
    return level;
}

static bool stands_first(const candidate *a, const candidate *b)
{
    if (a->level != b->level) return a->level < b->level;
    if (a->chain.atoms.n != b->chain.atoms.n) return a->chain.atoms.n > b->chain.atoms.n;
    return a->place < b->place;
}

// The atoms of one result dim of a mixer that may be split, batch left out; n = 0 when the dim is
// tokens or must be whole.
static asp_atoms splittable(const asp_placement *p, const asp_node_axes *a, const asp_rule_dim *dim)
{
    asp_atoms list = {0};
    for (uint32_t k = 0; k < dim->n; k++) list.n += a->letter[dim->at[k]].n;
    list = (asp_atoms){.at = ASP_NEW_ARRAY(p->arena, uint32_t, list.n)};
    for (uint32_t k = 0; k < dim->n; k++) {
        if (a->rule.letter[dim->at[k]].kind != ASP_LETTER_SPLIT) break;
        for (uint32_t i = 0; i < a->letter[dim->at[k]].n; i++) {
            const asp_atom *atom = &p->axes.atoms.at[a->letter[dim->at[k]].at[i]];
            if (atom->token) return (asp_atoms){0};
            if (!atom->batch) list.at[list.n++] = a->letter[dim->at[k]].at[i];
        }
    }
    return list;
}

typedef ASP_VEC(candidate) candidates;

// One an atom.
static void add_candidates(const asp_placement *p, asp_node n, uint32_t level, candidates *all,
                           uint32_t *of_atom)
{
    const asp_node_axes *a = p->axes.node[n.i];
    for (uint32_t i = 0; i < asp_node_at(p->g, n)->n_out; i++) {
        asp_val v = asp_node_result(p->g, n, i);
        for (uint32_t d = 0; d < asp_val_type(p->g, v)->rank; d++) {
            asp_atoms list = splittable(p, a, &a->rule.out[i][d]);
            candidate c = {.level = level, .place = i * ASP_MAX_RANK + d, .met = all->n};
            if (list.n == 0) continue;
            if (!asp_chain_spread(p->g, &p->axes, list, p->sp.heads, &c.chain)) continue;
            candidate *known = of_atom[list.at[0]] ? &all->at[of_atom[list.at[0]] - 1] : NULL;
            if (known) {
                c.met = known->met;
                if (stands_first(&c, known)) *known = c;
                continue;
            }
            ASP_PUSH(p->arena, all, c);
            of_atom[list.at[0]] = all->n;
        }
    }
}

typedef void chain_fn(const asp_placement *p, asp_node n, candidate *c);

// Calls fn for each candidate whose first atom stands in a result of n, once each.
static void for_each_chain(const asp_placement *p, asp_node n, candidates *all,
                           const uint32_t *of_atom, chain_fn *fn)
{
    asp_val v = asp_node_at(p->g, n)->first;
    for (uint32_t d = 0; d < asp_val_type(p->g, v)->rank; d++) {
        asp_atoms list = p->axes.dims[v.i][d];
        for (uint32_t k = 0; k < list.n; k++)
            if (of_atom[list.at[k]]) fn(p, n, &all->at[of_atom[list.at[k]] - 1]);
    }
}

static void count_mixer(const asp_placement *p, asp_node n, candidate *c)
{
    bool complete;
    if (!other_legal(p, n, &c->chain, &complete)) return;
    c->part++;
    c->cover += complete;
}

static bool comes_first(const candidate *a, const candidate *b)
{
    if (a->cover != b->cover) return a->cover > b->cover;
    if (a->part != b->part) return a->part > b->part;
    if (stands_first(a, b) || stands_first(b, a)) return stands_first(a, b);
    return a->met < b->met;
}

// The legal chain of node n that comes first.
static void choose_chain(const asp_placement *p, asp_node n, candidate *c)
{
    asp_op_place *op = &p->op[n.i];
    bool complete;
    if (op->chain > c->met && other_legal(p, n, &c->chain, &complete)) op->chain = c->met;
}

// All operands are replicable: the op begins what is split, along the sequence.
static bool starts(const asp_placement *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    for (uint32_t i = 0; i < info->n_in; i++)
        if (!p->axes.replicable[info->in[i].i]) return false;
    return true;
}

void asp_find_chains(asp_placement *p)
{
    candidates all = {0};
    const uint32_t *level = levels(p);
    uint32_t *of_atom = ASP_NEW_ARRAY(p->arena, uint32_t, p->axes.atoms.n); // index + 1
    ASP_FOR_NODES (p->g, n)
        if (asp_is_mixer(p, n)) add_candidates(p, n, level[n.i], &all, of_atom);
    ASP_FOR_NODES (p->g, n)
        if (asp_is_mixer(p, n)) for_each_chain(p, n, &all, of_atom, count_mixer);
    for (uint32_t i = 1; i < all.n; i++) {
        candidate c = all.at[i];
        uint32_t j = i;
        for (; j > 0 && comes_first(&c, &all.at[j - 1]); j--) all.at[j] = all.at[j - 1];
        all.at[j] = c;
    }
    for (uint32_t i = 0; i < all.n; i++) { // from here on `met` is the place in this order
        all.at[i].met = i;
        of_atom[all.at[i].chain.atoms.at[0]] = i + 1;
        ASP_PUSH(p->arena, &p->chains, all.at[i].chain);
    }
    ASP_FOR_NODES (p->g, n)
        if (p->axes.node[n.i] && !starts(p, n)) for_each_chain(p, n, &all, of_atom, choose_chain);
}
