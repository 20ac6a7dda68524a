// pass/canonicalise.c: drop ops that change nothing, join views of views and permutes of permutes.
//
//   %1 = view %x {shape = [B*S, 32]}
//   %2 = view %1 {shape = [B, S, 4, 8]}     ->   %2 = view %x {shape = [B, S, 4, 8]}
//   %3 = cast %2 {to = f32}  (f32 already)       (readers of %3 read %2)
//
//   %1 = pad %x {dim = 1, left = 3}
//   %2 = slice %1 {dim = 1, end = S}       ->   %2 = shift %x {by = -3, fill = 0, dim = 1}
//
//   %1 = pad %x {dim = 2, left = 3}
//   %2 = conv1d %1, %w                     ->   %2 = conv1d %x, %w {left = 3}
//
//   %m = mean %x {dims = [1]}              ->   %1 = sum %x {dims = [1]}
//                                               %2 = size_value {size = S}
//                                               %m = div %1, %2
//
// Modules that count elements (ASP_EARLY) are lowered here, while sizes are those of whole tensors.
// In a framework's own graph (options.kept) only those that count tokens are, and nothing else is
// done. The passes behind it meet fewer shapes of the same program; values nobody reads any more
// stay for dce.  With one rank nothing is done: the program is the one the user wrote.  O(nodes).
// SPDX-License-Identifier: Apache-2.0
#include "pass/axes.h"
#include "pass/pass.h"

static bool same_type(const asp_graph *g, const asp_node_info *info)
{
    return asp_type_equal(asp_val_type(g, info->in[0]), asp_val_type(g, info->first));
}

static bool is_identity_permute(const asp_ints *perm)
{
    for (uint32_t d = 0; d < perm->n; d++)
        if (perm->at[d] != (int64_t)d) return false;
    return true;
}

// Ops whose result is their operand, bit by bit.
static bool does_nothing(const asp_graph *g, const asp_node_info *info)
{
    if (info->op == ASP_OP_view || info->op == ASP_OP_expand || info->op == ASP_OP_cast)
        return same_type(g, info);
    if (info->op == ASP_OP_permute)
        return is_identity_permute(&((const asp_permute_attr *)info->attr)->perm);
    if (info->op == ASP_OP_repeat || info->op == ASP_OP_sum_groups)
        return ((const asp_repeat_attr *)info->attr)->times == 1;
    if (info->op == ASP_OP_mul_scalar) return ((const asp_scalar_attr *)info->attr)->value == 1.0;
    return false;
}

// Reads through the operand when both are views or both are permutes.
static bool join_with_operand(asp_graph *g, asp_node n)
{
    const asp_node_info *info = asp_node_at(g, n);
    if (info->op != ASP_OP_view && info->op != ASP_OP_permute) return false;
    const asp_node_info *under = asp_val_node(g, info->in[0]);
    if (under->op != info->op) return false;
    asp_val source = under->in[0];
    if (info->op == ASP_OP_permute) {
        const asp_ints *outer = &((const asp_permute_attr *)info->attr)->perm;
        const asp_ints *inner = &((const asp_permute_attr *)under->attr)->perm;
        asp_permute_attr both = {.perm = {.n = outer->n}};
        for (uint32_t d = 0; d < outer->n; d++) both.perm.at[d] = inner->at[outer->at[d]];
        asp_graph_set_attr(g, n, &both);
    }
    asp_graph_set_input(g, n, 0, source);
    return true;
}

// A window as long as what was padded, moved: a shift.
static bool is_shift(asp_graph *g, const asp_node_info *info, asp_shift_attr *out_shift)
{
    if (info->op != ASP_OP_slice) return false;
    const asp_node_info *under = asp_val_node(g, info->in[0]);
    if (under->op != ASP_OP_pad) return false;
    const asp_range_attr *r = info->attr;
    const asp_pad_attr *p = under->attr;
    int64_t by;
    if (p->dim != r->dim || p->value != 0 ||
        !asp_size_is_num(g, asp_size_sub(g, r->start, p->left), &by) ||
        !asp_type_equal(asp_val_type(g, under->in[0]), asp_val_type(g, info->first)))
        return false;
    *out_shift = (asp_shift_attr){.by = by, .fill = 0, .dim = p->dim};
    return true;
}

static asp_status shift_instead(asp_graph *g, asp_node n, const asp_shift_attr *a, asp_val *map)
{
    const asp_node_info *info = asp_node_at(g, n);
    asp_builder b = {.g = g, .before = n, .loc = info->loc};
    asp_val x = asp_val_node(g, info->in[0])->in[0], old = info->first;
    map[old.i] = ASP_B1(&b, shift, a, x);
    return b.status;
}

// Zeros around what is convolved are the convolution's own.
static bool take_padding(asp_graph *g, asp_node n)
{
    const asp_node_info *info = asp_node_at(g, n);
    if (info->op != ASP_OP_conv && info->op != ASP_OP_conv1d) return false;
    const asp_node_info *under = asp_val_node(g, info->in[0]);
    if (under->op != ASP_OP_pad) return false;
    const asp_pad_attr *p = under->attr;
    int64_t left, right;
    if (p->dim != 2 || p->value != 0 || !asp_size_is_num(g, p->left, &left) ||
        !asp_size_is_num(g, p->right, &right) || left < 0 || right < 0)
        return false;
    asp_conv_attr a = *(const asp_conv_attr *)info->attr;
    a.left += left;
    a.right += right;
    asp_graph_set_attr(g, n, &a);
    asp_graph_set_input(g, n, 0, under->in[0]);
    return true;
}

// Does the node need all of a dimension in which tokens stand?
static bool counts_tokens(const asp_axes *x, asp_node n)
{
    const asp_node_axes *a = x->node[n.i];
    if (!a) return false;
    if (!a->has_rule) return true;
    for (uint32_t c = 0; c < a->rule.n_letters; c++)
        if (a->rule.letter[c].kind != ASP_LETTER_SPLIT && asp_axes_count_tokens(x, a->letter[c]))
            return true;
    return false;
}

// A framework's own graph: modules that count tokens are lowered, nothing else is touched.
static asp_status lower_token_counts(asp_pass *px, asp_graph *g)
{
    asp_axes x;
    asp_val *map = ASP_NEW_ARRAY(px->scratch, asp_val, g->vals.n);
    asp_axes_analyse(px->scratch, g, &x);
    for (asp_node n = g->head, next; n.i; n = next) {
        next = asp_node_at(g, n)->next;
        if (n.i >= x.g->nodes.n || !asp_op_has(asp_node_at(g, n)->op, ASP_EARLY)) continue;
        if (!counts_tokens(&x, n)) continue;
        const asp_node_info info = *asp_node_at(g, n);
        ASP_TRY(asp_lower_node(px, g, n, map));
        for (uint32_t i = 0; i < info.n_out; i++)
            asp_graph_replace_uses(g, (asp_val){info.first.i + i}, map[info.first.i + i]);
        asp_graph_remove(g, n);
        px->changes++;
    }
    return ASP_OK;
}

asp_status asp_pass_canonicalise(asp_pass *px, asp_graph *g)
{
    if (px->options->ranks == 1) return ASP_OK;
    if (px->options->kept) return lower_token_counts(px, g);
    const uint32_t n_old = g->vals.n; // what is made here is not rewired
    asp_val *map = ASP_NEW_ARRAY(px->scratch, asp_val, n_old);
    for (asp_node n = g->head, next; n.i; n = next) {
        asp_node_info *info = asp_node_at(g, n);
        next = info->next;
        for (uint32_t i = 0; i < info->n_in; i++)
            if (info->in[i].i < n_old && map[info->in[i].i].i) info->in[i] = map[info->in[i].i];
        if (asp_op_has(info->op, ASP_EARLY)) {
            ASP_TRY(asp_lower_node(px, g, n, map));
            asp_graph_remove(g, n);
            continue;
        }
        asp_shift_attr shift;
        if (is_shift(g, info, &shift)) {
            ASP_TRY(shift_instead(g, n, &shift, map));
            px->changes++;
            continue;
        }
        px->changes += join_with_operand(g, n) || take_padding(g, n);
        if (!does_nothing(g, info)) continue;
        map[info->first.i] = info->in[0];
        px->changes++;
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (map[g->outputs.at[i].val.i].i) g->outputs.at[i].val = map[g->outputs.at[i].val.i];
    return ASP_OK;
}
