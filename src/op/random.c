// Random ops.  Their numbers are functions of (seed, step, site, index of the element in the
// unsplit tensor): the same for every number of ranks, strategy and thread, and when a value is
// computed again, so nothing is kept for the backward.  Neighbours: ir/op.def (rows),
// base/philox.h, kern/ref/random.c, kern/random_isa.c (fast), pass/shard.c (who says where a rank's
// elements stand).  SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

// dims, outer, whole, of, parts, stride, rings: one entry for each place where the value is split,
// the innermost first.  There dimension dims is outer x (room of one of parts) x behind on a rank
// and outer x whole x behind in the unsplit tensor; the rank has part (rank / stride) mod parts in
// the order of base/rows.h, of `of` rows, the first whole of which are there.
asp_status asp_dropout_infer(asp_infer *in)
{
    const asp_dropout_attr *a = in->attr;
    const uint32_t n = a->dims.n;
    ASP_TRY(asp_want_float(in, 0));
    if (!(a->p >= 0 && a->p <= 1))
        return asp_infer_fail(in, ASP_ERR_INPUT, "p = %g is no probability", a->p);
    if (a->site < 0 || a->site >= INT64_C(1) << 32)
        return asp_infer_fail(in, ASP_ERR_INPUT, "site = %lld; 0 to 2^32 - 1 are possible",
                              (long long)a->site);
    if (a->outer.n != n || a->whole.n != n || a->of.n != n || a->parts.n != n || a->stride.n != n ||
        a->rings.n != n)
        return asp_infer_fail(
            in, ASP_ERR_INPUT,
            "dims, outer, whole, of, parts, stride and rings have unequal lengths");
    for (uint32_t i = 0; i < n; i++) {
        ASP_TRY(asp_want_dim_attr(in, "dims", a->dims.at[i], in->in[0].rank));
        if (a->parts.at[i] < 1 || a->stride.at[i] < 1 || a->rings.at[i] < 1 ||
            a->parts.at[i] % a->rings.at[i])
            return asp_infer_fail(
                in, ASP_ERR_INPUT,
                "parts, stride and rings are positive, and parts a multiple of rings");
    }
    return asp_result_like(in, 0);
}

// Linear, with the same mask.
void asp_dropout_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B1(b, dropout, ASP_ATTR(b, n, dropout), cotangent[0]);
}
