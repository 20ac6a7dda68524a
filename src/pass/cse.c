// pass/cse.c: compute equal values once.
//
//   %1 = exp %x                  %1 = exp %x
//   %2 = exp %x            ->    %3 = add %1, %1
//   %3 = add %1, %2
//
// Two nodes are equal when op, operands, attributes and result types are.  Operands are rewired as
// the walk goes, so equal chains collapse in one sweep.  Collectives are left alone, and so is the
// seed of the backward: the forward may have a constant 1/P too.  O(nodes).
// SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

// What makes a node equal to another, as bytes; false when the node is never shared.
static bool put_key(asp_text *t, const asp_graph *g, const asp_node_info *info, const asp_val *map)
{
    const char *name = asp_val_at(g, info->first)->name;
    if (info->op == ASP_OP_input || info->op == ASP_OP_param ||
        asp_op_has(info->op, ASP_COLLECTIVE) || (name && strcmp(name, ASP_SEED_NAME) == 0))
        return false;
    t->n = 0;
    asp_put(t, "%d", (int)info->op);
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = map[info->in[i].i].i ? map[info->in[i].i] : info->in[i];
        asp_put(t, " %u", v.i);
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        const asp_type *type = asp_val_type(g, (asp_val){info->first.i + i});
        asp_put(t, ":%d", (int)type->dtype);
        for (uint32_t d = 0; d < type->rank; d++) asp_put(t, ",%u", type->dim[d].i);
    }
    return true;
}

asp_status asp_pass_cse(asp_pass *px, asp_graph *g)
{
    asp_map seen;
    ASP_VEC(asp_node) first = {0};
    asp_text key;
    asp_val *map = ASP_NEW_ARRAY(px->scratch, asp_val, g->vals.n);
    asp_map_init(&seen, px->scratch);
    asp_text_init(&key, px->scratch);
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        if (!put_key(&key, g, info, map)) continue;
        // Nodes that differ in attributes alone get keys of their own: "<key>#1", "<key>#2", ...
        for (int variant = 0;; variant++) {
            if (variant) asp_put(&key, "#");
            bool added;
            uint32_t i = asp_map_add(&seen, key.at, key.n, &added);
            if (added) {
                ASP_PUSH(px->scratch, &first, n);
                break;
            }
            const asp_node_info *other = asp_node_at(g, first.at[i]);
            if (!asp_attr_equal(info->op, info->attr, other->attr)) continue;
            for (uint32_t r = 0; r < info->n_out; r++)
                map[info->first.i + r] = (asp_val){other->first.i + r};
            px->changes++;
            break;
        }
    }
    asp_graph_rewire(g, map);
    return ASP_OK;
}
