// What is legal and what it costs: every op at "sequence"; at "other", chains.c.
//
// At "sequence" an op is legal when at most one of its letters has a token atom and that letter may
// be split; a summed letter costs an all-reduce.  Under --sp ring, hybrid or auto attention is
// legal there too, at the price of its ring.
//
// Neighbours: place.h (contract), placement_auto.c (prices by time), network.c (what becomes of
// them).  SPDX-License-Identifier: Apache-2.0
#include "pass/placement_int.h"

// ---- bytes --------------------------------------------------------------------------------------

#define NOMINAL_SIZES 4096 // whose values are kept: programs have few

// Symbols that have no value yet are priced as a long sequence.
static int64_t evaluate(const asp_placement *p, asp_size s)
{
    int64_t n;
    if (asp_size_is_num(p->g, s, &n)) return n;
    if (asp_size_eval(p->g, s, &p->env, &n) == ASP_OK && n > 0) return n;
    return 4096;
}

int64_t asp_placement_size(const asp_placement *p, asp_size s)
{
    if (s.i >= NOMINAL_SIZES || s.i == 0) return evaluate(p, s);
    if (!p->nominal[s.i]) p->nominal[s.i] = evaluate(p, s);
    return p->nominal[s.i];
}

int64_t asp_placement_bytes(const asp_placement *p, asp_val v)
{
    const asp_type *t = asp_val_type(p->g, v);
    int64_t bytes = asp_dtypes[t->dtype].bytes;
    for (uint32_t d = 0; d < t->rank; d++)
        if (asp_mul_overflows(bytes, asp_placement_size(p, t->dim[d]), &bytes))
            return INT64_C(1) << 48;
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
    int64_t bytes =
        twice_with_grad(p, v, asp_placement_bytes(p, v)) * asp_exchange_copies(p, v, chain);
    return bytes + (p->latency > 1 ? twice_with_grad(p, v, p->latency) : 1);
}

// ---- at "sequence" ------------------------------------------------------------------------------

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

// Elsewhere, as in a table of positions that is added, a rank takes its part of it.
bool asp_slices_parameter(const asp_placement *p, asp_node n, uint8_t letter)
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
        price += 2 * twice_with_grad(p, v, asp_placement_bytes(p, v));
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
        if (asp_mul_overflows(2 * twice_with_grad(p, v, asp_placement_bytes(p, v)), p->ranks,
                              &bytes) ||
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
    int64_t length = asp_placement_size(p, asp_val_type(p->g, v)->dim[dim]);
    if (length < 1 || rows < 0 || rows > length / p->ranks) return -1;
    return 2 * p->ranks * rows * (twice_with_grad(p, v, asp_placement_bytes(p, v)) / length) + 1;
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
    if (letters > 1 || asp_slices_parameter(p, n, token)) return ASP_FLOW_INF;
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
        int64_t bytes = asp_placement_bytes(p, info->in[i]);
        price += p->ranks * (bytes + 2 * (p->axes.needs_grad[info->in[i].i] ? bytes : 0));
    }
    return price + 1;
}

bool asp_is_mixer(const asp_placement *p, asp_node n)
{
    const asp_node_axes *a = p->axes.node[n.i];
    if (!a || !a->has_rule || asp_axes_shortens(&p->axes, n)) return false;
    return p->op[n.i].sequence_price == ASP_FLOW_INF || gather_price(p, n) > 0;
}

// ---- the whole ----------------------------------------------------------------------------------

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
        if (!p->axes.node[n.i] || asp_node_at(p->g, n)->op != ASP_OP_sdpa || !asp_is_mixer(p, n))
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
        if (asp_node_at(p->g, n)->op != ASP_OP_sdpa || !asp_is_mixer(p, n)) {
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

static void choose_device(const asp_pass *px, asp_placement *p)
{
    const asp_machine m = asp_machine_builtin(ASP_ISA_AVX2, (int)p->ranks, 0);
    p->device =
        px->options->device ? *px->options->device : asp_device_of_rank(&m, (int)p->ranks, 1);
    p->latency = 1;
    if (p->sp.kind == ASP_SP_AUTO)
        p->latency = asp_placement_as_bytes(p, p->device.latency_us * 1e-6);
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
    asp_find_chains(&p);
    if (p.sp.kind == ASP_SP_RING) ASP_TRY(keep_on_ring(&p));
    if (p.sp.kind == ASP_SP_HYBRID) ASP_TRY(keep_in_groups(&p));
    if (p.sp.kind == ASP_SP_AUTO) asp_price_attention(&p);
    *out_placement = p;
    return ASP_OK;
}
