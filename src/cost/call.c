// What one call of an op computes and how long it takes, by its cost class (ir/op.def).
// Neighbours: cost.h (contract), time.c (the classes), pass/nodeprice.c and run/program.c (who
// ask). SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

// The depth of a product: rows of gemm_tn, of a bmm with its left side transposed, else columns.
static double gemm_flops(asp_op op, const asp_kcall *k)
{
    const asp_tensor *x = &k->in[0];
    bool down = op == ASP_OP_bmm && ((const asp_bmm_attr *)k->attr)->ta;
    int64_t inner = op == ASP_OP_gemm_tn ? asp_tensor_rows(x) : x->dim[x->rank - (down ? 2 : 1)];
    return asp_flops_gemm(asp_tensor_count(&k->out[0]), 1, inner);
}

// q x keys pairs of each head.
static double attention_flops(asp_cost_class cost, const asp_kcall *k, int64_t q, int64_t keys,
                              bool causal)
{
    const asp_tensor *x = &k->in[0];
    int64_t heads = x->dim[0] * x->dim[1], d = x->dim[3], e = k->in[2].dim[3];
    return cost == ASP_COST_SDPA ? asp_flops_sdpa(heads, q, keys, d, e, causal)
                                 : asp_flops_sdpa_grad(heads, q, keys, d, e, causal);
}

double asp_flops_attention(asp_cost_class cost, const asp_kcall *k)
{
    const asp_sdpa_attr *a = k->attr;
    if (a->rings > 1 || *a->mask) return attention_flops(cost, k, asp_sdpa_pairs(k), 1, false);
    return attention_flops(cost, k, k->in[0].dim[2], k->in[1].dim[2], a->causal);
}

double asp_flops_attention_blocks(asp_cost_class cost, const asp_kcall *k)
{
    return attention_flops(cost, k, asp_sdpa_block_pairs(k), 1, false);
}

double asp_flops_call(asp_op op, const asp_kcall *k)
{
    switch (asp_ops[op].cost) {
    case ASP_COST_GEMM: return gemm_flops(op, k);
    case ASP_COST_SDPA: return asp_flops_attention(ASP_COST_SDPA, k);
    case ASP_COST_SDPA_GRAD: return asp_flops_attention(ASP_COST_SDPA_GRAD, k);
    case ASP_COST_FREE:
    case ASP_COST_STREAM:
    case ASP_COST_LINK: return 0;
    }
    return 0;
}

static int64_t bytes_of(const asp_tensor *t)
{
    return asp_tensor_count(t) * asp_dtypes[t->dtype].bytes;
}

static double gemm_time(const asp_device *d, double flops, int64_t bytes)
{
    double compute = flops / (d->fma_gflops * d->gemm_fraction * 1e9);
    double stream = asp_time_stream(d, bytes);
    return compute > stream ? compute : stream;
}

// Attention around a ring: its blocks, each on the keys of one rank, and the rotations between.
static double ring_time(const asp_device *d, asp_op op, const asp_kcall *k)
{
    bool forward = op == ASP_OP_ring_sdpa;
    double rings = (double)((const asp_sdpa_attr *)k->attr)->rings;
    int64_t keys = bytes_of(&k->in[1]) + bytes_of(&k->in[2]);
    double rotation = asp_time_link(d, forward ? keys : 2 * keys);
    double block = asp_time_attention(
        d, asp_flops_attention(forward ? ASP_COST_SDPA : ASP_COST_SDPA_GRAD, k), 0);
    return rings * block + (rings - 1) * rotation;
}

// A rank keeps its own part of what it exchanges; a sum goes round twice.
static double link_time(const asp_device *d, asp_op op, const asp_kcall *k)
{
    int64_t bytes = bytes_of(&k->out[0]), ranks = asp_max(k->ranks, 1);
    if (op == ASP_OP_ring_sdpa || op == ASP_OP_ring_sdpa_grad) return ring_time(d, op, k);
    if (op == ASP_OP_rotate) return asp_time_link(d, bytes);
    int64_t times = op == ASP_OP_all_reduce ? 2 : 1;
    return asp_time_link(d, (bytes / ranks) * (ranks - 1) * times);
}

double asp_time_call(const asp_device *d, asp_op op, const asp_kcall *k)
{
    int64_t bytes = 0;
    if (asp_op_has(op, ASP_ALIAS)) return 0;
    for (int i = 0; i < k->n_in; i++) bytes += bytes_of(&k->in[i]);
    for (int i = 0; i < k->n_out; i++) bytes += bytes_of(&k->out[i]);
    switch (asp_ops[op].cost) {
    case ASP_COST_GEMM: return gemm_time(d, gemm_flops(op, k), bytes);
    case ASP_COST_SDPA: return asp_time_attention(d, asp_flops_attention(ASP_COST_SDPA, k), bytes);
    case ASP_COST_SDPA_GRAD:
        return asp_time_attention(d, asp_flops_attention(ASP_COST_SDPA_GRAD, k), bytes);
    case ASP_COST_STREAM: return asp_time_stream(d, bytes);
    case ASP_COST_LINK: return link_time(d, op, k);
    case ASP_COST_FREE: return 0;
    }
    return 0;
}
