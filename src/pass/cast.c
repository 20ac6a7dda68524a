// pass/cast.c: bf16 where bytes and products are, f32 where sums are.  With --dtype bf16.
//
//   %w : f32[8, 16] = param                       %w : f32[8, 16] = param
//                                                 %1 : bf16[8, 16] = cast %w {to = bf16}
//   %y : f32[S, 8] = gemm_nt %x, %w         ->    %y : bf16[S, 8] = gemm_nt %x, %1
//   %z : f32[S, 8] = silu %y                      %2 : f32[S, 8] = cast %y
//                                                 %z : f32[S, 8] = silu %2
//
// Runs on the joint graph of an f32 program: derivatives and sharding rules never see bf16.  A
// value has one dtype for all that read it, whoever fuses, tiles or computes it again, so that loss
// and gradients have the same bits under every policy of recomputation:
//   - what products, attention and rotary read and make is bf16 (table COMPUTE), but for sums over
//     rows, the gradients of weights, which are f32;
//   - what only moves elements has the dtype of what it moves (MOVE), and so have the loss and the
//     look-up's derivative, which read either and sum in f32 (EITHER);
//   - element by element ops compute in f32 (STORED); of their results in front of the last product
//     those are rounded to bf16 that live long: the sum of two activations, the residual stream,
//     and what the backward reads, unless it reads all that they are made of and can make them
//     again without a bit's difference (absorb.c);
//   - everything else is f32: statistics, softmax written out, the loss and what follows it.
// Parameters stay f32.  Ops that compute in f32 read them as they are, products their rounding.
// With
// --master none they are bf16: products and look-ups read them as they are, the others widened.
//
// A reader in f32 has its own cast, right in front, so that no f32 copy lives between two readers:
// it becomes the load of a row program.  O(nodes) a sweep; a few sweeps until no dtype changes.
// Neighbours: grad.c (before), fuse.c (casts are members), kern/ (who takes bf16).
// SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

#include <math.h>

typedef enum cast_kind { PLAIN, COMPUTE, MOVE, EITHER, STORED } cast_kind;

// Ops that are not element by element (STORED) or PLAIN.  half: bits of the operands that are bf16
// (COMPUTE) or may be (EITHER).
static const struct {
    asp_op op;
    cast_kind kind;
    uint32_t half;
} table[] = {
    {ASP_OP_gemm_nt, COMPUTE, 3},
    {ASP_OP_gemm_nn, COMPUTE, 3},
    {ASP_OP_gemm_tn, COMPUTE, 3},
    {ASP_OP_bmm, COMPUTE, 3},
    {ASP_OP_rotary, COMPUTE, 1},
    {ASP_OP_sdpa, COMPUTE, 7},                // q, k, v
    {ASP_OP_sdpa_grad, COMPUTE, 1 << 5 | 15}, // q, k, v, out, dout
    {ASP_OP_sdpa_bias_grad, COMPUTE, 1 << 5 | 15},
    {ASP_OP_sdpa_sink_grad, COMPUTE, 1 << 3 | 1 << 1}, // out, dout
    {ASP_OP_ring_sdpa, COMPUTE, 7},
    {ASP_OP_ring_sdpa_grad, COMPUTE, 1 << 5 | 15},
    {ASP_OP_nll, EITHER, 1},
    {ASP_OP_nll_grad, EITHER, 1},
    {ASP_OP_embedding_grad, EITHER, 1},
    {ASP_OP_embedding, STORED, 0},
    {ASP_OP_conv, STORED, 0},
    {ASP_OP_dropout, STORED, 0},
    {ASP_OP_view, MOVE, 0},
    {ASP_OP_permute, MOVE, 0},
    {ASP_OP_repeat, MOVE, 0},
    {ASP_OP_slice, MOVE, 0},
    {ASP_OP_pad, MOVE, 0},
    {ASP_OP_cat, MOVE, 0},
    {ASP_OP_split, MOVE, 0},
    {ASP_OP_split_sizes, MOVE, 0},
    {ASP_OP_flip, MOVE, 0},
    {ASP_OP_roll, MOVE, 0},
    {ASP_OP_triangle, MOVE, 0},
    {ASP_OP_gather, MOVE, 0},
    {ASP_OP_index_select, MOVE, 0},
    {ASP_OP_shard_slice, MOVE, 0},
    {ASP_OP_shard_pad, MOVE, 0},
    {ASP_OP_mask_tail, MOVE, 0},
    {ASP_OP_move_rows, MOVE, 0},
    {ASP_OP_shorten, MOVE, 0},
    {ASP_OP_all_to_all, MOVE, 0},
    {ASP_OP_rotate, MOVE, 0},
};

typedef struct caster {
    asp_pass *px;
    asp_graph *g;
    uint32_t n_old;       // values below this were there before
    bool *f32;            // by value: it was f32
    uint32_t *same;       // by value: another one of its class, towards its root
    bool *half;           // by root: its class is bf16
    bool *backward;       // by value
    bool *read_back;      // by root: the backward reads it
    bool *before_product; // by value of the forward: a product depends on it
    bool *activation;     // by value: one number a token and feature, that depends on a look-up or
                          // product
    asp_val *half_of;     // by value: its bf16, once there
} caster;

// ---- what an op is -----------------------------------------------------------------------------

// A fill is moved as well: it must be bf16.
static bool fills_exactly(const asp_node_info *info)
{
    if (info->op != ASP_OP_pad) return true;
    const double value = ((const asp_pad_attr *)info->attr)->value;
    return value == 0 || isinf(value);
}

static cast_kind kind_of(const caster *c, const asp_node_info *info, uint32_t *out_half)
{
    *out_half = 0;
    if (info->op == ASP_OP_embedding && c->px->options->half_params) {
        *out_half = 1 << 1; // the table
        return COMPUTE;
    }
    for (size_t i = 0; i < ASP_COUNT_OF(table); i++) {
        if (table[i].op != info->op) continue;
        *out_half = table[i].half;
        return fills_exactly(info) ? table[i].kind : PLAIN;
    }
    return asp_op_has(info->op, ASP_POINTWISE) && info->op != ASP_OP_cast ? STORED : PLAIN;
}

static bool is_f32(const caster *c, asp_val v) { return v.i < c->n_old && c->f32[v.i]; }

static bool is_param(const caster *c, asp_val v)
{
    return asp_val_node(c->g, v)->op == ASP_OP_param;
}

static uint32_t root(caster *c, asp_val v)
{
    uint32_t i = v.i;
    while (c->same[i] != i) i = c->same[i] = c->same[c->same[i]];
    return i;
}

static bool is_half(caster *c, asp_val v) { return is_f32(c, v) && c->half[root(c, v)]; }

// true: that is news.
static bool mark(caster *c, asp_val v)
{
    if (!is_f32(c, v) || c->half[root(c, v)]) return false;
    return c->half[root(c, v)] = true;
}

// ---- what is known before dtypes ---------------------------------------------------------------

static void join_moved(caster *c, const asp_node_info *info)
{
    for (uint32_t i = 0; i < info->n_in + info->n_out; i++) {
        asp_val v = i < info->n_in ? info->in[i] : (asp_val){info->first.i + i - info->n_in};
        if (is_f32(c, v) && is_f32(c, info->first)) c->same[root(c, v)] = root(c, info->first);
    }
}

static bool is_large(const caster *c, asp_val v)
{
    const asp_type *t = asp_val_type(c->g, v);
    return t->rank >= 2 && !asp_size_equal(t->dim[t->rank - 1], asp_size_num(c->g, 1));
}

static void look_forward(caster *c)
{
    ASP_FOR_NODES (c->g, n) {
        const asp_node_info *info = asp_node_at(c->g, n);
        const char *name = asp_val_at(c->g, info->first)->name;
        bool backward = name && strcmp(name, ASP_SEED_NAME) == 0, active = false;
        uint32_t bits;
        const cast_kind kind = kind_of(c, info, &bits);
        for (uint32_t i = 0; i < info->n_in; i++) {
            backward |= c->backward[info->in[i].i];
            active |= c->activation[info->in[i].i];
        }
        active = (active && (kind == STORED || kind == MOVE)) || kind == COMPUTE ||
                 info->op == ASP_OP_embedding;
        for (uint32_t i = 0; i < info->n_out; i++) {
            const asp_val v = asp_node_result(c->g, n, i);
            c->backward[v.i] = backward;
            c->activation[v.i] = active && i == 0 && is_f32(c, v) && is_large(c, v);
        }
        if (kind == MOVE) join_moved(c, info);
    }
    ASP_FOR_NODES (c->g, n) {
        const asp_node_info *info = asp_node_at(c->g, n);
        if (!c->backward[info->first.i]) continue;
        for (uint32_t i = 0; i < info->n_in; i++) c->read_back[root(c, info->in[i])] = true;
    }
}

static void look_back(caster *c)
{
    ASP_FOR_NODES_REVERSE (c->g, n) {
        const asp_node_info *info = asp_node_at(c->g, n);
        uint32_t bits;
        bool before = kind_of(c, info, &bits) == COMPUTE;
        if (c->backward[info->first.i]) continue;
        for (uint32_t i = 0; i < info->n_out; i++)
            before |= c->before_product[asp_node_result(c->g, n, i).i];
        for (uint32_t i = 0; i < info->n_in; i++) c->before_product[info->in[i].i] |= before;
    }
}

// ---- which values are bf16 ---------------------------------------------------------------------

static bool same_dims(const caster *c, asp_val a, asp_val b)
{
    return asp_type_equal(asp_val_type(c->g, a), asp_val_type(c->g, b));
}

// Does the result of an element by element op in the forward live long, so that it is rounded?
static bool is_stored(caster *c, const asp_node_info *info)
{
    const asp_val v = info->first;
    uint32_t large = 0, read_back = 0;
    if (!c->activation[v.i] || c->backward[v.i] || !c->before_product[v.i]) return false;
    for (uint32_t i = 0; i < info->n_in; i++) {
        if (!c->activation[info->in[i].i] || !same_dims(c, info->in[i], v)) continue;
        large++;
        read_back += c->read_back[root(c, info->in[i])];
    }
    if ((info->op == ASP_OP_add || info->op == ASP_OP_sub) && large == 2) return true;
    return c->read_back[root(c, v)] && !(large > 0 && large == read_back);
}

// The types that the node has with its present operands.
static asp_status infer(caster *c, const asp_node_info *info, uint32_t bits, asp_infer *out)
{
    *out = (asp_infer){
        .g = c->g, .op = info->op, .attr = info->attr, .loc = info->loc, .n_in = info->n_in};
    for (uint32_t i = 0; i < info->n_in; i++) {
        out->in[i] = *asp_val_type(c->g, info->in[i]);
        if (is_f32(c, info->in[i]))
            out->in[i].dtype = (bits >> i & 1) && is_half(c, info->in[i]) ? ASP_BF16 : ASP_F32;
    }
    return asp_op_table[info->op].infer(out);
}

static asp_status sweep(caster *c, bool *out_changed)
{
    bool changed = false;
    ASP_FOR_NODES (c->g, n) {
        const asp_node_info *info = asp_node_at(c->g, n);
        asp_infer in;
        uint32_t bits;
        const cast_kind kind = kind_of(c, info, &bits);
        if (!is_f32(c, info->first)) continue; // i64 look-ups, f64
        if (kind == STORED && is_stored(c, info)) changed |= mark(c, info->first);
        if (kind != COMPUTE && kind != EITHER) continue;
        for (uint32_t i = 0; i < info->n_in && kind == COMPUTE; i++)
            if (bits >> i & 1) changed |= mark(c, info->in[i]);
        ASP_TRY(infer(c, info, bits, &in));
        for (uint32_t i = 0; i < in.n_out; i++)
            if (in.out[i].dtype == ASP_BF16) changed |= mark(c, asp_node_result(c->g, n, i));
    }
    *out_changed = changed;
    return ASP_OK;
}

// ---- casts -------------------------------------------------------------------------------------

static asp_val cast(caster *c, asp_node before, asp_val v, asp_dtype to, const char *loc)
{
    asp_type type = *asp_val_type(c->g, v);
    const asp_cast_attr attr = {.to = to};
    type.dtype = to;
    const asp_node n = asp_graph_insert(c->g, before, ASP_OP_cast, &attr, 1, &v, 1, &type, loc);
    c->px->changes++;
    return asp_node_result(c->g, n, 0);
}

// Operand i of n as n wants it.
static asp_val operand(caster *c, asp_node n, uint32_t i, bool half)
{
    const asp_node_info *info = asp_node_at(c->g, n);
    const asp_val v = info->in[i], made = c->half_of[v.i];
    if (!made.i || half) return made.i ? made : v;
    if (is_param(c, v) && made.i != v.i) return v;
    for (uint32_t k = 0; k < i; k++) // the same operand twice
        if (asp_val_node(c->g, info->in[k])->op == ASP_OP_cast && info->in[k].i >= c->n_old &&
            asp_val_node(c->g, info->in[k])->in[0].i == made.i)
            return info->in[k];
    return cast(c, n, made, ASP_F32, info->loc);
}

static asp_status rewrite(caster *c, asp_node n, asp_node next)
{
    const asp_node_info *info = asp_node_at(c->g, n);
    const uint32_t n_in = info->n_in, n_out = info->n_out;
    uint32_t bits;
    const cast_kind kind = kind_of(c, info, &bits);
    const bool own = kind == MOVE || (info->op == ASP_OP_param && c->px->options->half_params);
    const bool moves = own && is_half(c, info->first);
    asp_infer in = {.n_out = 0};
    if (kind == COMPUTE || kind == EITHER) ASP_TRY(infer(c, info, bits, &in));
    for (uint32_t i = 0; i < n_in; i++) {
        const asp_val v = asp_node_at(c->g, n)->in[i];
        if (!is_f32(c, v)) continue;
        asp_graph_set_input(c->g, n, i, operand(c, n, i, moves || bits >> i & 1));
    }
    for (uint32_t i = 0; i < n_out; i++) {
        const asp_val v = asp_node_result(c->g, n, i);
        asp_type t = *asp_val_type(c->g, v);
        if (!is_half(c, v)) continue;
        if (moves || (i < in.n_out && in.out[i].dtype == ASP_BF16)) {
            c->half_of[v.i] = v;
            t.dtype = ASP_BF16;
            asp_graph_set_type(c->g, v, &t);
        } else {
            c->half_of[v.i] = cast(c, next, v, ASP_BF16, asp_node_at(c->g, n)->loc);
        }
    }
    return ASP_OK;
}

// Outputs keep their dtypes.
static void widen_outputs(caster *c)
{
    for (uint32_t i = 0; i < c->g->outputs.n; i++) {
        const asp_val v = c->g->outputs.at[i].val, made = c->half_of[v.i];
        if (!made.i || (is_param(c, v) && made.i != v.i)) continue;
        const char *loc = asp_val_node(c->g, v)->loc;
        c->g->outputs.at[i].val = cast(c, (asp_node){0}, made, ASP_F32, loc);
    }
}

static asp_status check_params(asp_graph *g)
{
    ASP_FOR_NODES (g, n) {
        const asp_type *t = asp_val_type(g, asp_node_at(g, n)->first);
        if (asp_node_at(g, n)->op == ASP_OP_param && t->dtype != ASP_F32)
            return asp_fail(g->cx, ASP_ERR_UNSUPPORTED,
                            "--dtype bf16 trains programs of f32, but %s is %s; write it in f32",
                            asp_node_str(g, n), asp_dtypes[t->dtype].name);
    }
    return ASP_OK;
}

// Before anything is known of others: they are what a program begins with.
static void mark_params(caster *c)
{
    ASP_FOR_NODES (c->g, n)
        if (asp_node_at(c->g, n)->op == ASP_OP_param) mark(c, asp_node_at(c->g, n)->first);
}

asp_status asp_pass_cast(asp_pass *px, asp_graph *g)
{
    if (px->options->dtype != ASP_BF16) return ASP_OK;
    const uint32_t n = g->vals.n;
    ASP_TRY(check_params(g));
    caster c = {.px = px,
                .g = g,
                .n_old = n,
                .f32 = ASP_NEW_ARRAY(px->scratch, bool, n),
                .same = ASP_NEW_ARRAY(px->scratch, uint32_t, n),
                .half = ASP_NEW_ARRAY(px->scratch, bool, n),
                .backward = ASP_NEW_ARRAY(px->scratch, bool, n),
                .read_back = ASP_NEW_ARRAY(px->scratch, bool, n),
                .before_product = ASP_NEW_ARRAY(px->scratch, bool, n),
                .activation = ASP_NEW_ARRAY(px->scratch, bool, n),
                .half_of = ASP_NEW_ARRAY(px->scratch, asp_val, n)};
    for (uint32_t i = 0; i < n; i++) c.same[i] = i;
    ASP_FOR_NODES (g, at)
        for (uint32_t i = 0; i < asp_node_at(g, at)->n_out; i++) {
            const asp_val v = asp_node_result(g, at, i);
            c.f32[v.i] = asp_val_type(g, v)->dtype == ASP_F32;
        }
    look_forward(&c);
    look_back(&c);
    if (px->options->half_params) mark_params(&c);
    for (bool changed = true; changed;) ASP_TRY(sweep(&c, &changed));
    for (asp_node at = g->head, next; at.i; at = next) {
        next = asp_node_at(g, at)->next;
        ASP_TRY(rewrite(&c, at, next));
    }
    widen_outputs(&c);
    return ASP_OK;
}
