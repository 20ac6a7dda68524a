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

static asp_val sum_over_count(asp_graph *g, asp_node n, asp_status *out_status)
{
    const asp_node_info info = *asp_node_at(g, n);
    asp_builder b = {.g = g, .before = n, .loc = info.loc};
    asp_loss_attr sum = *(const asp_loss_attr *)info.attr;
    sum.reduction = "sum";
    asp_labels_attr labels = {.ignore = sum.ignore};
    asp_val total = ASP_B2(&b, cross_entropy, &sum, info.in[0], info.in[1]);
    asp_cast_attr to = {.to = asp_val_type(g, info.in[0])->dtype};
    asp_val count = ASP_B1(&b, cast, &to, ASP_B1(&b, count_valid, &labels, info.in[1]));
    asp_val mean = ASP_B2(&b, div, NULL, total, count);
    *out_status = b.status;
    return mean;
}

asp_status asp_pass_loss(asp_pass *px, asp_graph *g)
{
    if (px->options->ranks == 1) return ASP_OK;
    for (asp_node n = g->head, next; n.i; n = next) {
        const asp_node_info *info = asp_node_at(g, n);
        next = info->next;
        if (info->op != ASP_OP_cross_entropy) continue;
        if (strcmp(((const asp_loss_attr *)info->attr)->reduction, "mean") != 0) continue;
        asp_status s;
        asp_val mean = sum_over_count(g, n, &s), old = asp_node_result(g, n, 0);
        ASP_TRY(s);
        const char *name = asp_val_at(g, old)->name;
        asp_graph_replace_uses(g, old, mean);
        asp_graph_remove(g, n);
        if (name) asp_val_at(g, mean)->name = name;
        px->changes++;
    }
    return ASP_OK;
}
