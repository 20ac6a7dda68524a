// Exchanges between ranks.  The derivative of a collective is its transpose.  Neighbours: ir/op.def
// (rows), pass/shard.c (who inserts them), comm/ (how they run).  SPDX-License-Identifier:
// Apache-2.0
#include "op/op_int.h"

// Each rank holds 1/ranks of dim gather and all of dim split; afterwards all of gather and 1/ranks
// of split.
asp_status asp_all_to_all_infer(asp_infer *in)
{
    const asp_a2a_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "split", a->split, out.rank));
    ASP_TRY(asp_want_dim_attr(in, "gather", a->gather, out.rank));
    if (a->split == a->gather || a->ranks < 1)
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "split and gather must differ and ranks be positive");
    asp_size ranks = asp_size_num(in->g, a->ranks);
    int64_t whole;
    if (asp_size_is_num(in->g, out.dim[a->split], &whole) && whole % a->ranks)
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "dimension %lld of %s does not divide over %lld ranks",
                              (long long)a->split, asp_type_str(in->g, &out), (long long)a->ranks);
    ASP_TRY(asp_size_div(in->g, out.dim[a->split], ranks, &out.dim[a->split]));
    out.dim[a->gather] = asp_size_mul(in->g, out.dim[a->gather], ranks);
    return asp_result(in, &out);
}

void asp_all_to_all_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_a2a_attr *a = ASP_ATTR(b, n, a2a);
    asp_a2a_attr back = {.split = a->gather, .gather = a->split, .ranks = a->ranks};
    out_in[0] = ASP_B1(b, all_to_all, &back, cotangent[0]);
}

asp_status asp_all_reduce_infer(asp_infer *in) { return asp_result_like(in, 0); }

void asp_all_reduce_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    (void)n;
    out_in[0] = ASP_B1(b, all_reduce, NULL, cotangent[0]);
}
