// What is legal and what it costs: every op at "sequence" and at "other".
//
// At "sequence" an op is legal when at most one of its letters has a token atom and that letter may
// be split; a summed letter costs an all-reduce.  At "other" it follows one chain: the atoms of a
// result dimension of a mixer (an op that is illegal at "sequence"), batch atoms left out.  The
// chain must stand in every result, in letters that may be split, and in every operand, except
// where the op reads one slice for many (K/V heads under their query heads): then the operand is
// repeated.  A parameter is never sliced: no accidental tensor parallelism.
// Neighbours: place.h (contract), network.c (what becomes of the prices).
// SPDX-License-Identifier: Apache-2.0
#include "pass/place.h"

// ---- bytes
// --------------------------------------------------------------------------------------

#define NOMINAL_SIZES 4096 // whose values are kept: programs have few

// Symbols that have no value yet are priced as a long sequence.
static int64_t evaluate(const asp_placement *p, asp_size s)
{
    int64_t n;
    if (asp_size_is_num(p->g, s, &n)) return n;
    if (asp_size_eval(p->g, s, &p->env, &n) == ASP_OK && n > 0) return n;
    return 4096;
}

static int64_t nominal(const asp_placement *p, asp_size s)
{
    if (s.i >= NOMINAL_SIZES || s.i == 0) return evaluate(p, s);
    if (!p->nominal[s.i]) p->nominal[s.i] = evaluate(p, s);
    return p->nominal[s.i];
}

static int64_t value_bytes(const asp_placement *p, asp_val v)
{
    const asp_type *t = asp_val_type(p->g, v);
    int64_t bytes = asp_dtypes[t->dtype].bytes;
    for (uint32_t d = 0; d < t->rank; d++)
        if (asp_mul_overflows(bytes, nominal(p, t->dim[d]), &bytes)) return INT64_C(1) << 48;
    return asp_min(bytes, INT64_C(1) << 48);
}

// Forward, and backward where there is a gradient.
static int64_t twice_with_grad(const asp_placement *p, asp_val v, int64_t bytes)
{
    return p->axes.needs_grad[v.i] ? 2 * bytes : bytes;
}

int64_t asp_exchange_copies(const asp_placement *p, asp_val v, uint32_t chain)
{
    const asp_chain *c = &p->chains.at[chain];
    int64_t copies = 1, size;
    for (uint32_t i = 0; i < c->atoms.n; i++) {
        if (asp_axes_value_has(&p->axes, v, c->atoms.at[i])) continue;
        ASP_CHECK(asp_size_is_num(p->g, p->axes.atoms.at[c->atoms.at[i]].size, &size));
        copies *= asp_chain_is_ragged(p->g, &p->axes, c) ? size : c->parts[i];
    }
    return copies;
}

// What is cut out of a sequence is split where that is; an exchange splits by the size there is.
// Scores, which have the tokens twice, are never exchanged.
static bool splits_by_itself(const asp_placement *p, asp_val v)
{
    for (uint32_t d = 0; d < asp_val_type(p->g, v)->rank; d++) {
        asp_atoms list = p->axes.dims[v.i][d];
        for (uint32_t k = 0; k < list.n; k++) {
            const asp_atom *a = &p->axes.atoms.at[list.at[k]];
            if (a->copy_of || (a->token && (a->base || a->clash))) return false;
        }
    }
    return true;
}

int64_t asp_exchange_price(const asp_placement *p, asp_val v, uint32_t chain)
{
    if (asp_axes_count_value_tokens(&p->axes, v) != 1 || !splits_by_itself(p, v))
        return ASP_FLOW_INF;
    int64_t bytes = twice_with_grad(p, v, value_bytes(p, v)) * asp_exchange_copies(p, v, chain);
    return bytes + (p->latency > 1 ? twice_with_grad(p, v, p->latency) : 1);
}

// ---- at "sequence"
// ------------------------------------------------------------------------------

static bool dim_has(const asp_rule_dim *d, uint8_t letter)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->at[i] == letter) return true;
    return false;
}

bool asp_operand_has(const asp_placement *p, asp_node n, uint32_t i, uint8_t letter)
{
    const asp_node_axes *a = p->axes.node[n.i];
    asp_val v = asp_node_at(p->g, n)->in[i];
    for (uint32_t d = 0; d < asp_val_type(p->g, v)->rank; d++)
        if (dim_has(&a->rule.in[i][d], letter)) return true;
    return false;
}

static bool result_has(const asp_placement *p, asp_node n, uint32_t i, uint8_t letter)
{
    const asp_node_axes *a = p->axes.node[n.i];
    asp_val v = asp_node_result(p->g, n, i);
    for (uint32_t d = 0; d < asp_val_type(p->g, v)->rank; d++)
        if (dim_has(&a->rule.out[i][d], letter)) return true;
    return false;
}

// Would splitting this letter slice a parameter of a product (no accidental tensor parallelism)?
// Elsewhere, as in a table of positions that is added, a rank takes its part of it.
static bool slices_parameter(const asp_placement *p, asp_node n, uint8_t letter)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    if (asp_op_has(info->op, ASP_POINTWISE) || info->op == ASP_OP_sdpa) return false;
    if (info->op == ASP_OP_conv || info->op == ASP_OP_conv1d) return false; // depthwise
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = info->in[i];
        if (p->axes.replicable[v.i] && p->axes.needs_grad[v.i] && asp_operand_has(p, n, i, letter))
            return true;
    }
    return false;
}

// A sum over tokens is all-reduced: 2 bytes moved a byte of the result.  A scalar's is free.
static int64_t sum_price(const asp_placement *p, asp_node n, uint8_t letter)
{
    int64_t price = 0;
    for (uint32_t i = 0; i < asp_node_at(p->g, n)->n_out; i++) {
        asp_val v = asp_node_result(p->g, n, i);
        if (result_has(p, n, i, letter) || asp_val_type(p->g, v)->rank == 0) continue;
        price += 2 * twice_with_grad(p, v, value_bytes(p, v));
    }
    return price;
}

// Gathering an operand whole on every rank: its parts among zeros, all-reduced.
static int64_t gather_price(const asp_placement *p, asp_node n)
{
    int64_t price = 0;
    for (uint32_t i = 0; i < asp_node_at(p->g, n)->n_in; i++) {
        asp_val v = asp_node_at(p->g, n)->in[i];
        if (!asp_axes_gathers(&p->axes, n, i)) continue;
        asp_dtype dtype = asp_val_type(p->g, v)->dtype;
        if (asp_axes_count_value_tokens(&p->axes, v) != 1 ||
            (!asp_dtypes[dtype].is_float && dtype != ASP_I64))
            return ASP_FLOW_INF;
        int64_t bytes;
        if (asp_mul_overflows(2 * twice_with_grad(p, v, value_bytes(p, v)), p->ranks, &bytes) ||
            asp_add_overflows(price, bytes, &price))
            return ASP_FLOW_INF;
    }
    return price;
}

// Attention over gathered operands is computed on every rank: the last resort, for one head.
static int64_t whole_attention_price(const asp_placement *p, asp_node n)
{
    int64_t price = gather_price(p, n);
    return price >= ASP_FLOW_INF / 64 ? ASP_FLOW_INF : 16 * price;
}

static bool has_clash(const asp_placement *p, asp_atoms list)
{
    for (uint32_t i = 0; i < list.n; i++)
        if (p->axes.atoms.at[list.at[i]].clash) return true;
    return false;
}

// Rows of one operand that every rank shows all others; -1: the op has no algorithm for a split
// sequence (in groups of ranks none has), or a rank has fewer rows than its neighbour wants.
static int64_t algorithm_price(const asp_placement *p, asp_node n)
{
    uint32_t dim;
    int64_t rows;
    if (p->sp.kind == ASP_SP_HYBRID || asp_axes_algorithm(&p->axes, n, &dim, &rows) == ASP_NO_OP)
        return -1;
    asp_val v = asp_node_at(p->g, n)->in[0];
    int64_t length = nominal(p, asp_val_type(p->g, v)->dim[dim]);
    if (length < 1 || rows < 0 || rows > length / p->ranks) return -1;
    return 2 * p->ranks * rows * (twice_with_grad(p, v, value_bytes(p, v)) / length) + 1;
}

static bool is_read(const asp_placement *p, asp_node n, uint8_t letter)
{
    for (uint32_t i = 0; i < asp_node_at(p->g, n)->n_in; i++)
        if (asp_operand_has(p, n, i, letter)) return true;
    return false;
}

static int64_t sequence_price(const asp_placement *p, asp_node n)
{
    const asp_node_axes *a = p->axes.node[n.i];
    const asp_node_info *info = asp_node_at(p->g, n);
    uint32_t letters = 0;
    uint8_t token = 0;
    if (!a->has_rule) {
        for (uint32_t i = 0; i < info->n_in; i++)
            if (asp_axes_count_value_tokens(&p->axes, info->in[i])) return ASP_FLOW_INF;
        return 0;
    }
    for (uint32_t c = 0; c < a->rule.n_letters; c++) {
        uint32_t tokens = asp_axes_count_tokens(&p->axes, a->letter[c]);
        if (has_clash(p, a->letter[c])) return ASP_FLOW_INF;
        if (!is_read(p, n, (uint8_t)c)) continue; // of results alone: follows
        letters += tokens;
        if (tokens) token = (uint8_t)c;
    }
    if (letters == 0) return gather_price(p, n);
    if (info->op == ASP_OP_sdpa) return whole_attention_price(p, n);
    int64_t halo = algorithm_price(p, n);
    if (letters == 1 && halo >= 0) return halo;
    if (letters > 1 || slices_parameter(p, n, token)) return ASP_FLOW_INF;
    if (a->rule.letter[token].kind == ASP_LETTER_SUM) return sum_price(p, n, token);
    return gather_price(p, n);
}

// Around a ring every rank sees all keys and values, forward and backward, and the sums of their
// gradients: 3 P times their bytes, before the factor (P-1)/P that exchanges have too.
static int64_t ring_price(const asp_placement *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    int64_t price = 0;
    for (uint32_t i = 1; i < 3; i++) {
        int64_t bytes = value_bytes(p, info->in[i]);
        price += p->ranks * (bytes + 2 * (p->axes.needs_grad[info->in[i].i] ? bytes : 0));
    }
    return price + 1;
}

// ---- at "other"
// ---------------------------------------------------------------------------------

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
        if (slices_parameter(p, n, (uint8_t)c)) return false;
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

// ---- chains
// -------------------------------------------------------------------------------------

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

static bool is_mixer(const asp_placement *p, asp_node n)
{
    const asp_node_axes *a = p->axes.node[n.i];
    if (!a || !a->has_rule || asp_axes_shortens(&p->axes, n)) return false;
    return p->op[n.i].sequence_price == ASP_FLOW_INF || gather_price(p, n) > 0;
}

// All operands are replicable: the op begins what is split, along the sequence.
static bool starts(const asp_placement *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    for (uint32_t i = 0; i < info->n_in; i++)
        if (!p->axes.replicable[info->in[i].i]) return false;
    return true;
}

static void find_chains(asp_placement *p)
{
    candidates all = {0};
    const uint32_t *level = levels(p);
    uint32_t *of_atom = ASP_NEW_ARRAY(p->arena, uint32_t, p->axes.atoms.n); // index + 1
    ASP_FOR_NODES (p->g, n)
        if (is_mixer(p, n)) add_candidates(p, n, level[n.i], &all, of_atom);
    ASP_FOR_NODES (p->g, n)
        if (is_mixer(p, n)) for_each_chain(p, n, &all, of_atom, count_mixer);
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

// ---- the whole
// ----------------------------------------------------------------------------------

static void add_symbol(asp_env *env, const char *symbol, int64_t value)
{
    for (int i = 0; i < env->n; i++)
        if (strcmp(env->at[i].symbol, symbol) == 0) return;
    if (env->n == (int)ASP_COUNT_OF(env->at)) return;
    env->at[env->n].symbol = symbol;
    env->at[env->n++].value = value;
}

// --sp ring: attention does not go to heads.
static asp_status keep_on_ring(asp_placement *p)
{
    ASP_FOR_NODES (p->g, n) {
        if (!p->axes.node[n.i] || asp_node_at(p->g, n)->op != ASP_OP_sdpa || !is_mixer(p, n))
            continue;
        const char *why = asp_ring_obstacle(&p->axes, n);
        if (why)
            return asp_fail(p->cx, ASP_ERR_UNSUPPORTED,
                            "--sp ring: %s cannot go round a ring: %s; use --sp auto",
                            asp_node_str(p->g, n), why);
        p->op[n.i].chain = ASP_NO_CHAIN;
    }
    return ASP_OK;
}

// --sp hybrid: between exchanges within a group the sequence is still split over the groups, which
// attention alone is built for.
static asp_status keep_in_groups(asp_placement *p)
{
    ASP_FOR_NODES (p->g, n) {
        if (!p->axes.node[n.i]) continue;
        if (asp_node_at(p->g, n)->op != ASP_OP_sdpa || !is_mixer(p, n)) {
            p->op[n.i].chain = ASP_NO_CHAIN;
            continue;
        }
        if (p->op[n.i].chain == ASP_NO_CHAIN) continue; // one head: as under ulysses
        const char *why = asp_ring_obstacle(&p->axes, n);
        if (why)
            return asp_fail(p->cx, ASP_ERR_UNSUPPORTED,
                            "--sp hybrid: %s cannot be split both ways: %s; use --sp auto",
                            asp_node_str(p->g, n), why);
        p->op[n.i].sequence_price = ASP_FLOW_INF;
    }
    return ASP_OK;
}

// ---- --sp auto
// ------------------------------------------------------------------------------------
//
// Attention is priced by the time it takes, as bytes of all ranks whose exchange takes as long:
// what goes round a ring and what merging its parts costs; heads that do not divide over the ranks.

static int64_t as_bytes(const asp_placement *p, double seconds)
{
    double ranks = (double)p->ranks, bytes_a_second = p->device.exchange_gbs * 1e9;
    double bytes = seconds * bytes_a_second * ranks * ranks / (ranks - 1);
    return bytes < 0x1p46 ? (int64_t)bytes + 1 : INT64_C(1) << 46;
}

// Per rank, forward and backward.  Nothing is taken to be hidden: ranks of one machine copy with
// the cores that would compute.
static double ring_seconds(const asp_placement *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    int64_t out = value_bytes(p, info->first) / p->ranks,
            q = value_bytes(p, info->in[0]) / p->ranks;
    int64_t kv = 0;
    for (uint32_t i = 1; i < 3; i++) kv += value_bytes(p, info->in[i]) / p->ranks;
    double step = 6 * p->device.latency_us * 1e-6 + 3 * asp_time_link(&p->device, kv);
    step += asp_time_stream(&p->device, 3 * out + 3 * q + 3 * kv + 2 * out); // merge, sums, delta
    return (double)(p->ranks - 1) * step;
}

// Time in which some ranks have a head more than others.
static double uneven_seconds(const asp_placement *p, asp_node n, const asp_chain *chain)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    const asp_type *q = asp_val_type(p->g, info->in[0]), *v = asp_val_type(p->g, info->in[2]);
    const bool causal = ((const asp_sdpa_attr *)info->attr)->causal;
    int64_t heads = nominal(p, q->dim[0]) * nominal(p, q->dim[1]), size;
    int64_t rows = nominal(p, q->dim[2]), keys = nominal(p, v->dim[2]);
    int64_t d = nominal(p, q->dim[3]), e = nominal(p, v->dim[3]);
    if (!asp_chain_is_ragged(p->g, &p->axes, chain)) return 0;
    ASP_CHECK(asp_size_is_num(p->g, p->axes.atoms.at[chain->atoms.at[0]].size, &size));
    double more = (double)(asp_chain_room(p->g, &p->axes, chain, 0) * p->ranks) / (double)size - 1;
    double flops = asp_flops_sdpa(heads, rows, keys, d, e, causal) +
                   asp_flops_sdpa_grad(heads, rows, keys, d, e, causal);
    return more * asp_time_attention(&p->device, flops / (double)p->ranks, 0);
}

static void price_attention(asp_placement *p)
{
    ASP_FOR_NODES (p->g, n) {
        asp_op_place *op = &p->op[n.i];
        if (!p->axes.node[n.i] || !is_mixer(p, n) || !asp_takes_ring(&p->sp, &p->axes, n)) continue;
        op->sequence_price = as_bytes(p, ring_seconds(p, n));
        if (op->chain != ASP_NO_CHAIN)
            op->other_price = as_bytes(p, uneven_seconds(p, n, &p->chains.at[op->chain])) - 1;
    }
}

static void choose_device(const asp_pass *px, asp_placement *p)
{
    const asp_machine m = asp_machine_builtin(ASP_ISA_AVX2, (int)p->ranks, 0);
    p->device =
        px->options->device ? *px->options->device : asp_device_of_rank(&m, (int)p->ranks, 1);
    p->latency = 1;
    if (p->sp.kind == ASP_SP_AUTO) p->latency = as_bytes(p, p->device.latency_us * 1e-6);
}

asp_status asp_placement_prepare(asp_pass *px, asp_graph *g, asp_placement *out_placement)
{
    asp_placement p = {.cx = px->cx,
                       .arena = px->scratch,
                       .g = g,
                       .ranks = px->options->ranks,
                       .env = px->options->env};
    bool tokens = false;
    p.nominal = ASP_NEW_ARRAY(p.arena, int64_t, NOMINAL_SIZES);
    ASP_TRY(asp_strategy_parse(px->cx, px->options->sp, p.ranks, &p.sp));
    p.sp.plain = px->options->kept;
    choose_device(px, &p);
    add_symbol(&p.env, "S", 4096);
    add_symbol(&p.env, "B", 1);
    asp_axes_analyse(px->scratch, g, &p.axes);
    p.op = ASP_NEW_ARRAY(px->scratch, asp_op_place, g->nodes.n);
    ASP_FOR_NODES (g, n) {
        p.op[n.i].chain = ASP_NO_CHAIN;
        if (!p.axes.node[n.i]) continue;
        p.op[n.i].sequence_price = sequence_price(&p, n);
        if (p.sp.kind == ASP_SP_RING && asp_takes_ring(&p.sp, &p.axes, n))
            p.op[n.i].sequence_price = ring_price(&p, n);
        tokens |= asp_axes_count_value_tokens(&p.axes, asp_node_at(g, n)->first) > 0;
    }
    if (!tokens)
        return asp_fail(px->cx, ASP_ERR_UNSUPPORTED,
                        "graph %s cannot be split over %lld ranks: no trained op works on tokens; "
                        "give the input of token ids {role = \"tokens\"}",
                        g->name, (long long)p.ranks);
    find_chains(&p);
    if (p.sp.kind == ASP_SP_RING) ASP_TRY(keep_on_ring(&p));
    if (p.sp.kind == ASP_SP_HYBRID) ASP_TRY(keep_in_groups(&p));
    if (p.sp.kind == ASP_SP_AUTO) price_attention(&p);
    *out_placement = p;
    return ASP_OK;
}
