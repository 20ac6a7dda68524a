// Which nodes can run over a chunk of rows: a table by op.  Neighbours: tile.h (contract).
//
// What an op does to its leading dims is what its sharding rule says of small letters; here only
// those count that all stand in front, so that a chunk of rows is one piece of memory of every
// value.  SPDX-License-Identifier: Apache-2.0
#include "pass/tile.h"

bool asp_tile_shape_of(asp_graph *g, const asp_type *t, asp_tile_shape *out_shape)
{
    asp_tile_shape s = {.rows = asp_size_num(g, 1)};
    for (uint32_t d = 0; d < t->rank; d++) {
        s.rows = asp_size_mul(g, s.rows, t->dim[d]);
        if (!asp_size_mentions(g, t->dim[d], "S")) continue;
        s.lead = d + 1;
        for (d++; d < t->rank; d++)
            if (asp_size_mentions(g, t->dim[d], "S")) return false;
        *out_shape = s;
        return true;
    }
    return false;
}

// ---- forms -------------------------------------------------------------------------------------

// One node being looked at.
typedef struct look {
    asp_graph *g;
    const asp_node_info *info;
    asp_size rows;
    bool known; // rows are set
} look;

static const asp_type *type_in(const look *x, uint32_t i)
{
    return asp_val_type(x->g, x->info->in[i]);
}

// The value has rows, and as many as those before.
static bool has_rows(look *x, asp_val v, asp_tile_shape *out_shape)
{
    if (!asp_tile_shape_of(x->g, asp_val_type(x->g, v), out_shape)) return false;
    if (x->known && !asp_size_equal(out_shape->rows, x->rows)) return false;
    x->rows = out_shape->rows;
    x->known = true;
    return true;
}

static bool all_results_have_rows(look *x)
{
    asp_tile_shape s;
    for (uint32_t i = 0; i < x->info->n_out; i++)
        if (!has_rows(x, (asp_val){x->info->first.i + i}, &s)) return false;
    return true;
}

static bool is_free(const look *x, uint32_t operand)
{
    const asp_type *t = type_in(x, operand);
    for (uint32_t d = 0; d < t->rank; d++)
        if (asp_size_mentions(x->g, t->dim[d], "S")) return false;
    return true;
}

// Is operand i the same for all rows of a result with `lead` leading dims of `rank`?
static bool is_shared(const look *x, uint32_t i, uint32_t rank, uint32_t lead)
{
    const asp_type *t = type_in(x, i);
    if (!is_free(x, i)) return false;
    for (uint32_t d = 0; d < t->rank; d++)
        if (d + rank - t->rank < lead && !asp_size_equal(t->dim[d], asp_size_num(x->g, 1)))
            return false;
    return true;
}

static asp_tile_role pointwise(look *x)
{
    asp_tile_shape out, in;
    if (!has_rows(x, x->info->first, &out)) return ASP_TILE_NONE;
    const uint32_t rank = asp_val_type(x->g, x->info->first)->rank;
    for (uint32_t i = 0; i < x->info->n_in; i++) {
        if (is_shared(x, i, rank, out.lead)) continue;
        if (!has_rows(x, x->info->in[i], &in) || in.lead != out.lead || type_in(x, i)->rank != rank)
            return ASP_TILE_NONE;
    }
    return ASP_TILE_EACH;
}

// Over dims behind the rows, or over all rows.
static asp_tile_role over_dims(look *x)
{
    const asp_sum_attr *a = x->info->attr;
    asp_tile_shape in;
    if (!has_rows(x, x->info->in[0], &in)) return ASP_TILE_NONE;
    uint32_t leading = 0;
    for (uint32_t i = 0; i < a->dims.n; i++) leading += a->dims.at[i] < in.lead;
    if (leading == 0) return all_results_have_rows(x) ? ASP_TILE_EACH : ASP_TILE_NONE;
    return x->info->op == ASP_OP_sum && leading == in.lead ? ASP_TILE_SUM : ASP_TILE_NONE;
}

// The attributes' `dim` lies behind the rows of all operands.
static asp_tile_role along_dim(look *x)
{
    int64_t dim = 0;
    for (const asp_field *f = asp_ops[x->info->op].fields(); f->name; f++)
        if (strcmp(f->name, "dim") == 0)
            dim = *(const int64_t *)((const char *)x->info->attr + f->offset);
    for (uint32_t i = 0; i < x->info->n_in; i++) {
        asp_tile_shape in;
        if (!has_rows(x, x->info->in[i], &in) || dim < in.lead) return ASP_TILE_NONE;
    }
    return all_results_have_rows(x) ? ASP_TILE_EACH : ASP_TILE_NONE;
}

static asp_tile_role same_rows(look *x)
{
    asp_tile_shape in;
    if (!has_rows(x, x->info->in[0], &in)) return ASP_TILE_NONE;
    return all_results_have_rows(x) ? ASP_TILE_EACH : ASP_TILE_NONE;
}

static asp_tile_role product_of_rows(look *x)
{
    return is_free(x, 1) ? same_rows(x) : ASP_TILE_NONE;
}

static asp_tile_role product_over_rows(look *x)
{
    asp_tile_shape a, b;
    bool both = has_rows(x, x->info->in[0], &a) && has_rows(x, x->info->in[1], &b);
    return both ? ASP_TILE_SUM : ASP_TILE_NONE;
}

// Every operand has rows or is shared by all of them.
static asp_tile_role by_row(look *x)
{
    asp_tile_shape in;
    for (uint32_t i = 0; i < x->info->n_in; i++)
        if (!is_free(x, i) && !has_rows(x, x->info->in[i], &in)) return ASP_TILE_NONE;
    if (!x->known) return ASP_TILE_NONE;
    return all_results_have_rows(x) ? ASP_TILE_EACH : ASP_TILE_NONE;
}

static asp_tile_role loss(look *x)
{
    asp_tile_shape s;
    if (((const asp_nll_attr *)x->info->attr)->rows) return by_row(x);
    for (uint32_t i = 0; i < 2; i++)
        if (!has_rows(x, x->info->in[i], &s)) return ASP_TILE_NONE;
    return has_rows(x, (asp_val){x->info->first.i + 1}, &s) ? ASP_TILE_SUM : ASP_TILE_NONE;
}

static const struct {
    asp_op op;
    asp_tile_role (*form)(look *x);
} forms[] = {
    {ASP_OP_expand, pointwise},
    {ASP_OP_view, same_rows},
    {ASP_OP_sum, over_dims},
    {ASP_OP_amax, over_dims},
    {ASP_OP_amin, over_dims},
    {ASP_OP_logsumexp, over_dims},
    {ASP_OP_softmax, along_dim},
    {ASP_OP_softmax_grad, along_dim},
    {ASP_OP_log_softmax, along_dim},
    {ASP_OP_log_softmax_grad, along_dim},
    {ASP_OP_slice, along_dim},
    {ASP_OP_pad, along_dim},
    {ASP_OP_cat, along_dim},
    {ASP_OP_split, along_dim},
    {ASP_OP_split_sizes, along_dim},
    {ASP_OP_gemm_nt, product_of_rows},
    {ASP_OP_gemm_nn, product_of_rows},
    {ASP_OP_gemm_tn, product_over_rows},
    {ASP_OP_nll, loss},
    {ASP_OP_nll_grad, by_row},
    {ASP_OP_pick, by_row},
    {ASP_OP_pick_grad, by_row},
    {ASP_OP_label_weights, by_row},
};

asp_tile_role asp_tile_role_of(asp_graph *g, asp_node n, asp_size *out_rows)
{
    look x = {.g = g, .info = asp_node_at(g, n)};
    asp_tile_role role = ASP_TILE_NONE;
    if (asp_op_has(x.info->op, ASP_POINTWISE)) role = pointwise(&x);
    for (size_t i = 0; i < ASP_COUNT_OF(forms); i++)
        if (forms[i].op == x.info->op) role = forms[i].form(&x);
    if (role != ASP_TILE_NONE) *out_rows = x.rows;
    return role;
}

bool asp_tile_is_cheap(asp_graph *g, asp_node n)
{
    const asp_node_info *info = asp_node_at(g, n);
    asp_size rows;
    bool row_wise = asp_op_has(info->op, ASP_POINTWISE) || info->op == ASP_OP_sum ||
                    info->op == ASP_OP_expand || info->op == ASP_OP_view;
    return row_wise && asp_tile_role_of(g, n, &rows) != ASP_TILE_NONE;
}

// ---- whole tiles -------------------------------------------------------------------------------

// Is v, made in the tile of a reader, a sum over the rows?
static bool is_sum(asp_graph *g, asp_val v)
{
    asp_tile_shape s;
    return !asp_tile_shape_of(g, asp_val_type(g, v), &s);
}

asp_status asp_tile_check(asp_graph *g)
{
    asp_size rows = {0}, own;
    uint32_t tile = 0;
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        if (!info->tile) continue;
        if (asp_tile_role_of(g, n, &own) == ASP_TILE_NONE)
            return asp_fail(g->cx, ASP_ERR_INPUT, "%s: tile %u runs by rows, which this cannot",
                            asp_node_str(g, n), info->tile);
        if (info->tile == tile && !asp_size_equal(own, rows))
            return asp_fail(g->cx, ASP_ERR_INPUT, "%s: has %s rows, others of tile %u have %s",
                            asp_node_str(g, n), asp_size_str(g, own), tile, asp_size_str(g, rows));
        tile = info->tile;
        rows = own;
        for (uint32_t i = 0; i < info->n_in; i++)
            if (asp_val_node(g, info->in[i])->tile == tile && is_sum(g, info->in[i]))
                return asp_fail(g->cx, ASP_ERR_INPUT,
                                "%s: reads %s, a sum over the rows of its own tile %u",
                                asp_node_str(g, n), asp_val_str(g, info->in[i]), tile);
    }
    return ASP_OK;
}
