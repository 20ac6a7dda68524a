// What becomes of an op at "sequence": operands that must be whole, results that are kept in part,
// sequences cut short, and the ops that have an algorithm for a split sequence.
//
//   %2 = shift %x {by = -1, fill = 0, dim = 1}     halo of a row         (op/sequence.c)
//   %3 = slice %x {dim = 1, end = S - 1}           nothing moves: every rank has its part already
//   %4 = flip %x {dim = 1}                         %x is gathered, each rank keeps its part
//
// A look at one node each.  Neighbours: axes.h (contract), placement.c (prices), shard.c (who does
// it).  SPDX-License-Identifier: Apache-2.0
#include "pass/axes.h"

static bool is_whole_token_letter(const asp_axes *x, const asp_node_axes *a, uint8_t c)
{
    return a->rule.letter[c].kind == ASP_LETTER_WHOLE && asp_axes_count_tokens(x, a->letter[c]) > 0;
}

bool asp_axes_shortens(const asp_axes *x, asp_node n)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    const asp_node_axes *a = x->node[n.i];
    if (info->op != ASP_OP_slice || !a || !a->has_rule) return false;
    const asp_range_attr *r = info->attr;
    const asp_rule_dim *dim = &a->rule.in[0][r->dim];
    asp_atoms from = x->dims[info->in[0].i][r->dim], to = x->dims[info->first.i][r->dim];
    if (from.n != 1 || to.n != 1 || asp_axes_base(x, from.at[0]) != asp_axes_base(x, to.at[0]))
        return false;
    return asp_size_equal(r->start, asp_size_num(x->g, 0)) && dim->n == 1 &&
           is_whole_token_letter(x, a, dim->at[0]);
}

bool asp_axes_runs_whole(const asp_axes *x, asp_node n)
{
    const asp_node_axes *a = x->node[n.i];
    if (!a || !a->has_rule || asp_axes_shortens(x, n)) return false;
    for (uint8_t c = 0; c < a->rule.n_letters; c++)
        if (is_whole_token_letter(x, a, c)) return true;
    return false;
}

bool asp_axes_gathers(const asp_axes *x, asp_node n, uint32_t i)
{
    const asp_node_axes *a = x->node[n.i];
    asp_val v = asp_node_at(x->g, n)->in[i];
    if (!a || x->replicable[v.i]) return false;
    if (a->whole[i]) return true;
    return asp_axes_runs_whole(x, n) && asp_axes_count_value_tokens(x, v) > 0;
}

// Dim d of the operand is the tokens and nothing else.
static bool is_token_dim(const asp_axes *x, asp_val v, int64_t d)
{
    if (x->replicable[v.i] || !x->dims[v.i] || d < 0 || d >= asp_val_type(x->g, v)->rank)
        return false;
    asp_atoms list = x->dims[v.i][d];
    return list.n == 1 && x->atoms.at[list.at[0]].token && !x->atoms.at[list.at[0]].clash &&
           asp_dtypes[asp_val_type(x->g, v)->dtype].is_float;
}

static asp_op conv_algorithm(const asp_axes *x, asp_node n, int64_t *out_rows)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    const asp_conv_attr *a = info->attr;
    int64_t taps;
    asp_size in_size = asp_val_type(x->g, info->in[0])->dim[2];
    if (a->stride != 1 || !asp_size_equal(in_size, asp_val_type(x->g, info->first)->dim[2]) ||
        !asp_size_is_num(x->g, asp_val_type(x->g, info->in[1])->dim[2], &taps))
        return ASP_NO_OP;
    *out_rows = (taps - 1) * a->dilation;
    return *out_rows >= a->left ? ASP_OP_seq_conv1d : ASP_NO_OP;
}

asp_op asp_axes_algorithm(const asp_axes *x, asp_node n, uint32_t *out_dim, int64_t *out_rows)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    asp_op op = ASP_NO_OP;
    int64_t dim = -1;
    if (!x->node[n.i] || !x->node[n.i]->has_rule) return ASP_NO_OP;
    if (info->op == ASP_OP_shift && ((const asp_shift_attr *)info->attr)->fill == 0 &&
        ((const asp_shift_attr *)info->attr)->by > -INT64_MAX) {
        const asp_shift_attr *a = info->attr;
        dim = a->dim < 0 ? a->dim + asp_val_type(x->g, info->in[0])->rank : a->dim;
        *out_rows = a->by < 0 ? -a->by : a->by;
        op = ASP_OP_seq_shift;
    } else if (info->op == ASP_OP_conv1d) {
        dim = 2;
        op = conv_algorithm(x, n, out_rows);
    } else if (info->op == ASP_OP_cumsum && !((const asp_scan_attr *)info->attr)->reverse) {
        dim = ((const asp_scan_attr *)info->attr)->dim;
        *out_rows = 1;
        op = ASP_OP_seq_cumsum;
    } else if (info->op == ASP_OP_scan && !((const asp_scan_attr *)info->attr)->reverse) {
        dim = ((const asp_scan_attr *)info->attr)->dim;
        *out_rows = 2;
        op = ASP_OP_seq_scan;
        if (!is_token_dim(x, info->in[1], dim)) return ASP_NO_OP;
    } else if (info->op == ASP_OP_select) {
        dim = ((const asp_select_attr *)info->attr)->dim;
        *out_rows = 1;
        op = ASP_OP_seq_select;
    }
    if (op == ASP_NO_OP || !is_token_dim(x, info->in[0], dim)) return ASP_NO_OP;
    *out_dim = (uint32_t)dim;
    return op;
}
