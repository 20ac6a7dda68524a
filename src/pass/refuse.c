// Why a program cannot be split: one message that names the op, its layer, the sizes and the way
// out.  Neighbours: place.h (contract), placement.c (what is illegal), network.c (who finds where).
// SPDX-License-Identifier: Apache-2.0
#include "pass/place.h"

const char *asp_placement_tokens(asp_placement *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_type *t = asp_val_type(p->g, info->in[i]);
        for (uint32_t d = 0; p->axes.dims[info->in[i].i] && d < t->rank; d++)
            if (asp_axes_count_tokens(&p->axes, p->axes.dims[info->in[i].i][d]))
                return asp_printf(p->arena, "dimension %u (%s) of operand %u %s", d,
                                  asp_size_str(p->g, t->dim[d]), i, asp_type_str(p->g, t));
    }
    return "the sequence";
}

// A parameter of one row a token would have to be cut.
static asp_status refuse_parameter(asp_placement *p, asp_node n)
{
    const asp_node_axes *a = p->axes.node[n.i];
    const asp_node_info *info = asp_node_at(p->g, n);
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = info->in[i];
        if (!p->axes.replicable[v.i] || !p->axes.needs_grad[v.i]) continue;
        for (uint32_t c = 0; c < a->rule.n_letters; c++) {
            if (!asp_axes_count_tokens(&p->axes, a->letter[c]) ||
                !asp_operand_has(p, n, i, (uint8_t)c))
                continue;
            return asp_fail(p->cx, ASP_ERR_UNSUPPORTED,
                            "%s cannot be split over %lld ranks: operand %u, %s %s, has one slice "
                            "a token and is trained; read it by an embedding of positions",
                            asp_node_str(p->g, n), (long long)p->ranks, i, asp_val_str(p->g, v),
                            asp_type_str(p->g, asp_val_type(p->g, v)));
        }
    }
    return ASP_OK;
}

asp_status asp_placement_refuse(asp_placement *p, asp_node n)
{
    const char *node = asp_node_str(p->g, n);
    const char *where = asp_placement_tokens(p, n);
    if (!p->axes.node[n.i]->has_rule)
        return asp_fail(p->cx, ASP_ERR_UNSUPPORTED,
                        "%s cannot be split over %lld ranks: the op has no sharding rule, and its "
                        "tokens in %s are split; keep it before the token embedding, or write it "
                        "with ops that have rules (autosp docs ops)",
                        node, (long long)p->ranks, where);
    ASP_TRY(refuse_parameter(p, n));
    return asp_fail(p->cx, ASP_ERR_UNSUPPORTED,
                    "%s cannot be split over %lld ranks: it needs all tokens of %s at once, and "
                    "no other dimension of it can be split; use 1 rank, or an op that mixes tokens "
                    "head by head",
                    node, (long long)p->ranks, where);
}
