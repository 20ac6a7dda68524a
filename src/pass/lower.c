// pass/lower.c: rewrite module ops into primitives.
//
//   %y = linear %x, %w           %y = gemm_nt %x, %w
//
// Each MODULE op is replaced by what its _lower builds in its place; lowerings make primitives
// only.  O(nodes). SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

asp_status asp_lower_node(asp_pass *px, asp_graph *g, asp_node n, asp_val *map)
{
    const asp_node_info info = *asp_node_at(g, n);
    asp_builder b = {.g = g, .before = n, .loc = info.loc};
    asp_val out[ASP_MAX_OPERANDS] = {0};
    asp_op_table[info.op].lower(&b, n, out);
    ASP_TRY(b.status);
    for (uint32_t i = 0; i < info.n_out; i++) {
        ASP_CHECK(out[i].i);
        map[info.first.i + i] = out[i];
    }
    px->changes++;
    return ASP_OK;
}

asp_status asp_pass_lower(asp_pass *px, asp_graph *g)
{
    // Values made here are never replaced, so a map of the old ones is enough; operands are rewired
    // before a node is lowered.
    uint32_t n_old = g->vals.n;
    asp_val *map = ASP_NEW_ARRAY(px->scratch, asp_val, n_old);
    for (asp_node n = g->head, next; n.i; n = next) {
        next = asp_node_at(g, n)->next;
        asp_node_info *info = asp_node_at(g, n);
        for (uint32_t i = 0; i < info->n_in; i++)
            if (info->in[i].i < n_old && map[info->in[i].i].i) info->in[i] = map[info->in[i].i];
        if (asp_ops[info->op].kind != ASP_MODULE) continue;
        ASP_TRY(asp_lower_node(px, g, n, map));
        asp_graph_remove(g, n);
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (map[g->outputs.at[i].val.i].i) g->outputs.at[i].val = map[g->outputs.at[i].val.i];
    return ASP_OK;
}
