// pass/loss.c: a mean over tokens becomes a sum over a count, which ranks can share.
//
//   %l = cross_entropy %x, %y      ->    %1 = cross_entropy %x, %y {reduction = "sum"}
//                                        %2 = count_valid %y
//                                        %3 = cast %2
//                                        %l = div %1, %3
//
// Before placement, so that every pass leaves a graph that means the same: pass/shard.c then gives
// each rank its rows and all-reduces the sum, like any sum over tokens.  The count is of the whole
// labels, which every rank has, and exact (i64): ranks with no valid label add zero to the sum.
// With one rank nothing is done.  O(nodes).  SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

// The module itself as a sum, without the divisor.
static asp_val as_sum(asp_builder *b, const asp_node_info *info, asp_val *out_weights,
                      asp_val *out_divisor)
{
    asp_loss_attr sum = *(const asp_loss_attr *)info->attr;
    asp_val in[3];
    uint32_t n = 0;
    sum.reduction = "sum";
    *out_weights = *out_divisor = (asp_val){0};
    for (uint32_t i = 0; i < info->n_in; i++) {
        uint32_t rank = asp_val_type(b->g, info->in[i])->rank;
        if (i > 1) *(rank ? out_weights : out_divisor) = info->in[i];
        if (i < 2 || rank) in[n++] = info->in[i];
    }
    return asp_build(b, ASP_OP_cross_entropy, &sum, n, in);
}

static asp_val sum_over_count(asp_graph *g, asp_node n, asp_status *out_status)
{
    const asp_node_info info = *asp_node_at(g, n);
    asp_builder b = {.g = g, .before = n, .loc = info.loc};
    asp_labels_attr labels = {.ignore = ((const asp_loss_attr *)info.attr)->ignore};
    asp_cast_attr to = {.to = asp_val_type(g, info.in[0])->dtype};
    asp_val weights, divisor, total = as_sum(&b, &info, &weights, &divisor);
    if (weights.i && !divisor.i) {
        asp_sum_attr all = {0};
        for (; all.dims.n < asp_val_type(g, info.in[1])->rank; all.dims.n++)
            all.dims.at[all.dims.n] = all.dims.n;
        divisor = ASP_B2(&b, label_weights, &labels, info.in[1], weights);
        if (all.dims.n) divisor = ASP_B1(&b, sum, &all, divisor);
    } else {
        if (!divisor.i) divisor = ASP_B1(&b, count_valid, &labels, info.in[1]);
        divisor = ASP_B1(&b, cast, &to, divisor);
    }
    asp_val mean = ASP_B2(&b, div, NULL, total, divisor);
    *out_status = b.status;
    return mean;
}

// With a z-loss the log-sum-exp is read as well: the whole is lowered.
static asp_val lowered(asp_graph *g, asp_node n, asp_status *out_status)
{
    asp_builder b = {.g = g, .before = n, .loc = asp_node_at(g, n)->loc};
    asp_val out = {0};
    asp_op_table[ASP_OP_cross_entropy].lower(&b, n, &out);
    *out_status = b.status;
    return out;
}

asp_status asp_pass_loss(asp_pass *px, asp_graph *g)
{
    if (px->options->ranks == 1) return ASP_OK;
    for (asp_node n = g->head, next; n.i; n = next) {
        const asp_node_info *info = asp_node_at(g, n);
        next = info->next;
        if (info->op != ASP_OP_cross_entropy) continue;
        const asp_loss_attr *a = info->attr;
        if (strcmp(a->reduction, "mean") != 0 && a->zloss == 0) continue;
        asp_status s;
        asp_val old = asp_node_result(g, n, 0);
        asp_val by = a->zloss != 0 ? lowered(g, n, &s) : sum_over_count(g, n, &s);
        ASP_TRY(s);
        const char *name = asp_val_at(g, old)->name;
        asp_graph_replace_uses(g, old, by);
        asp_graph_remove(g, n);
        if (name) asp_val_at(g, by)->name = name;
        px->changes++;
    }
    return ASP_OK;
}
