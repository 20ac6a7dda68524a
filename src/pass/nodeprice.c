// A node as the call that will run it, for prices alone: no kernel is chosen, nothing is allocated
// beyond the scratch arena.  Neighbours: nodeprice.h (contract), run/program.c (the real calls).
// SPDX-License-Identifier: Apache-2.0
#include "pass/nodeprice.h"

asp_device asp_price_device(const asp_pass *px)
{
    if (px->options->device) return *px->options->device;
    int ranks = (int)px->options->ranks;
    const asp_machine m = asp_machine_builtin(ASP_ISA_AVX2, ranks, 0);
    return asp_device_of_rank(&m, ranks, 1);
}

static asp_status tensor_of(const asp_pass *px, asp_graph *g, asp_val v, asp_tensor *out)
{
    const asp_type *t = asp_val_type(g, v);
    asp_tensor x = {.dtype = t->dtype, .rank = (int)t->rank};
    int64_t bytes = asp_dtypes[t->dtype].bytes;
    for (uint32_t d = 0; d < t->rank; d++) {
        ASP_TRY(asp_size_eval(g, t->dim[d], &px->options->env, &x.dim[d]));
        if (asp_mul_overflows(bytes, x.dim[d], &bytes) || bytes > INT64_C(1) << 56)
            return asp_fail(px->cx, ASP_ERR_LIMIT, "%s is too large",
                            asp_node_str(g, asp_val_at(g, v)->node));
    }
    *out = x;
    return ASP_OK;
}

asp_status asp_price_bytes(const asp_pass *px, asp_graph *g, asp_val v, int64_t *out_bytes)
{
    asp_tensor t;
    ASP_TRY(tensor_of(px, g, v, &t));
    *out_bytes = asp_tensor_count(&t) * asp_dtypes[t.dtype].bytes;
    return ASP_OK;
}

asp_status asp_price_seconds(const asp_pass *px, asp_arena *scratch, asp_graph *g,
                             const asp_device *d, asp_node n, double *out_seconds)
{
    const asp_node_info *info = asp_node_at(g, n);
    asp_kcall *call = ASP_NEW(scratch, asp_kcall);
    *call = (asp_kcall){.attr = info->attr,
                        .n_in = (int)info->n_in,
                        .n_out = (int)info->n_out,
                        .ranks = (int)px->options->ranks};
    ASP_TRY(asp_node_sizes(scratch, g, n, &px->options->env, &call->sizes));
    for (uint32_t i = 0; i < info->n_in; i++) ASP_TRY(tensor_of(px, g, info->in[i], &call->in[i]));
    for (uint32_t i = 0; i < info->n_out; i++)
        ASP_TRY(tensor_of(px, g, asp_node_result(g, n, i), &call->out[i]));
    *out_seconds = asp_time_call(d, info->op, call);
    return ASP_OK;
}
