// pass/dce.c: drop values nobody reads.
//
//   %1 = matmul %x, %w           %1 = matmul %x, %w
//   %2 = exp %1            ->    return %1
//   return %1
//
// Walks the list once backwards over the use counts.  Inputs and parameters stay: they are the
// program's interface.  A collective whose result nobody reads goes too: all ranks run the same
// pass on the same graph.  O(values). SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

static bool is_interface(asp_op op) { return op == ASP_OP_input || op == ASP_OP_param; }

static bool any_result_read(const asp_graph *g, asp_node n, const uint32_t *uses)
{
    for (uint32_t i = 0; i < asp_node_at(g, n)->n_out; i++)
        if (uses[asp_node_result(g, n, i).i]) return true;
    return false;
}

asp_status asp_pass_dce(asp_pass *px, asp_graph *g)
{
    uint32_t *uses = asp_graph_count_uses(g, px->scratch);
    for (asp_node n = g->tail, prev; n.i; n = prev) {
        const asp_node_info *info = asp_node_at(g, n);
        prev = info->prev;
        if (is_interface(info->op) || any_result_read(g, n, uses)) continue;
        for (uint32_t i = 0; i < info->n_in; i++) uses[info->in[i].i]--;
        asp_graph_remove(g, n);
        px->changes++;
    }
    return ASP_OK;
}
