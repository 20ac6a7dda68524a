// Prices of --sp auto: attention by the time it takes, as bytes of all ranks whose exchange takes
// as long: what goes round a ring and what merging its parts costs; heads that do not divide over
// the ranks.  Neighbours: placement.c (who asks), cost/cost.h (the model). SPDX-License-Identifier:
// Apache-2.0
#include "pass/placement_int.h"

int64_t asp_placement_as_bytes(const asp_placement *p, double seconds)
{
    double ranks = (double)p->ranks, bytes_a_second = p->device.exchange_gbs * 1e9;
    double bytes = seconds * bytes_a_second * ranks * ranks / (ranks - 1);
    return bytes < 0x1p46 ? (int64_t)bytes + 1 : INT64_C(1) << 46;
}

// Per rank, forward and backward.  Nothing is taken to be hidden: ranks of one machine copy with
// the cores that would compute.
static double ring_seconds(const asp_placement *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    int64_t out = asp_placement_bytes(p, info->first) / p->ranks,
            q = asp_placement_bytes(p, info->in[0]) / p->ranks;
    int64_t kv = 0;
    for (uint32_t i = 1; i < 3; i++) kv += asp_placement_bytes(p, info->in[i]) / p->ranks;
    double step = 6 * p->device.latency_us * 1e-6 + 3 * asp_time_link(&p->device, kv);
    step += asp_time_stream(&p->device, 3 * out + 3 * q + 3 * kv + 2 * out); // merge, sums, delta
    return (double)(p->ranks - 1) * step;
}

// Of all heads, forward and backward.
static double attention_flops(const asp_placement *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    asp_kcall call = {.attr = info->attr, .ranks = 1, .n_in = (int)info->n_in, .n_out = 2};
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_type *t = asp_val_type(p->g, info->in[i]);
        call.in[i].rank = (int)t->rank;
        for (uint32_t d = 0; d < t->rank; d++) call.in[i].dim[d] = asp_placement_size(p, t->dim[d]);
    }
    return asp_flops_attention_blocks(ASP_COST_SDPA, &call) +
           asp_flops_attention_blocks(ASP_COST_SDPA_GRAD, &call);
}

// Time in which some ranks have a head more than others.
static double uneven_seconds(const asp_placement *p, asp_node n, const asp_chain *chain)
{
    int64_t size;
    if (!asp_chain_is_ragged(p->g, &p->axes, chain)) return 0;
    ASP_CHECK(asp_size_is_num(p->g, p->axes.atoms.at[chain->atoms.at[0]].size, &size));
    double more = (double)(asp_chain_room(p->g, &p->axes, chain, 0) * p->ranks) / (double)size - 1;
    return more * asp_time_attention(&p->device, attention_flops(p, n) / (double)p->ranks, 0);
}

void asp_price_attention(asp_placement *p)
{
    ASP_FOR_NODES (p->g, n) {
        asp_op_place *op = &p->op[n.i];
        if (!p->axes.node[n.i] || !asp_is_mixer(p, n) || !asp_takes_ring(&p->sp, &p->axes, n))
            continue;
        op->sequence_price = asp_placement_as_bytes(p, ring_seconds(p, n));
        if (op->chain != ASP_NO_CHAIN)
            op->other_price =
                asp_placement_as_bytes(p, uneven_seconds(p, n, &p->chains.at[op->chain])) - 1;
    }
}
