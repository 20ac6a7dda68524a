// Products of the last two dims, the others being batch: attention written out, einsum.
// Neighbours: ir/op.def (rows), linear.c (products with a matrix), kern/gemm.c, kern/ref/gemm.c.
//
// bmm closes under differentiation with one operand transposed at most:
//   C = A B      dA = dC B^T      dB = A^T dC
//   C = A B^T    dA = dC B        dB = dC^T A
//   C = A^T B    dA = B dC^T      dB = A dC
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

// The batch dims of both broadcast from the right, then (m, n).
static asp_status broadcast_batch(const asp_infer *in, const asp_type *a, const asp_type *b,
                                  asp_type *out)
{
    asp_size one = asp_size_num(in->g, 1);
    uint32_t batch_a = a->rank - 2, batch_b = b->rank - 2;
    uint32_t n = batch_a > batch_b ? batch_a : batch_b;
    *out = (asp_type){.dtype = a->dtype, .rank = n + 2};
    for (uint32_t i = 1; i <= n; i++) {
        asp_size x = i <= batch_a ? a->dim[batch_a - i] : one;
        asp_size y = i <= batch_b ? b->dim[batch_b - i] : one;
        if (!asp_size_equal(x, y) && !asp_size_equal(x, one) && !asp_size_equal(y, one))
            return asp_infer_fail(in, ASP_ERR_SHAPE,
                                  "the leading dims of %s and %s do not broadcast",
                                  asp_type_str(in->g, a), asp_type_str(in->g, b));
        out->dim[n - i] = asp_size_equal(x, one) ? y : x;
    }
    return ASP_OK;
}

asp_status asp_bmm_infer(asp_infer *in)
{
    const asp_bmm_attr *at = in->attr;
    const asp_type *a = &in->in[0], *b = &in->in[1];
    asp_type out;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dtype(in, 1, a->dtype));
    ASP_TRY(asp_want_rank(in, 0, 2, ASP_MAX_RANK));
    ASP_TRY(asp_want_rank(in, 1, 2, ASP_MAX_RANK));
    if (at->ta && at->tb)
        return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                              "ta and tb together are not there; swap the operands");
    ASP_TRY(asp_want_same_dim(in, 0, at->ta ? -2 : -1, 1, at->tb ? -1 : -2));
    ASP_TRY(broadcast_batch(in, a, b, &out));
    if (at->ta) out.dtype = asp_sum_dtype(out.dtype); // as gemm_tn
    out.dim[out.rank - 2] = a->dim[a->rank - (at->ta ? 1 : 2)];
    out.dim[out.rank - 1] = b->dim[b->rank - (at->tb ? 2 : 1)];
    return asp_result(in, &out);
}

static asp_val bmm(asp_builder *b, bool ta, bool tb, asp_val x, asp_val y)
{
    return ASP_B2(b, bmm, (&(asp_bmm_attr){.ta = ta, .tb = tb}), x, y);
}

void asp_bmm_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_bmm_attr at = *ASP_ATTR(b, n, bmm);
    asp_val x = asp_in(b, n, 0), y = asp_in(b, n, 1), d = cotangent[0];
    asp_val dx = at.ta ? bmm(b, at.tb, true, y, d) : bmm(b, false, !at.tb, d, y);
    asp_val dy = at.tb ? bmm(b, true, at.ta, d, x) : bmm(b, !at.ta, false, x, d);
    out_in[0] = asp_build_sum_to_operand(b, n, 0, dx);
    out_in[1] = asp_build_sum_to_operand(b, n, 1, dy);
}

// A sum over tokens may be split, like any sum.
void asp_bmm_rule(asp_rule_builder *b)
{
    const asp_bmm_attr *at = b->info->attr;
    asp_rule_text(b, at->ta   ? "...i+m,...i+n->...mn"
                     : at->tb ? "...mi+,...ni+->...mn"
                              : "...mi+,...i+n->...mn");
}

// ---- matmul ------------------------------------------------------------------------------------

// A vector is one row of a, one column of b.
static asp_type as_matrix(asp_graph *g, const asp_type *t, bool column)
{
    if (t->rank >= 2) return *t;
    asp_size one = asp_size_num(g, 1), n = t->dim[0];
    return (asp_type){.dtype = t->dtype, .rank = 2, .dim = {column ? n : one, column ? one : n}};
}

asp_status asp_matmul_infer(asp_infer *in)
{
    asp_type out;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dtype(in, 1, in->in[0].dtype));
    ASP_TRY(asp_want_rank(in, 0, 1, ASP_MAX_RANK));
    ASP_TRY(asp_want_rank(in, 1, 1, ASP_MAX_RANK));
    bool row = in->in[0].rank == 1, column = in->in[1].rank == 1;
    ASP_TRY(asp_want_same_dim(in, 0, -1, 1, column ? 0 : -2));
    asp_type a = as_matrix(in->g, &in->in[0], false), b = as_matrix(in->g, &in->in[1], true);
    ASP_TRY(broadcast_batch(in, &a, &b, &out));
    out.rank -= 2;
    if (!row) out.dim[out.rank++] = a.dim[a.rank - 2];
    if (!column) out.dim[out.rank++] = b.dim[b.rank - 1];
    return asp_result(in, &out);
}

void asp_matmul_lower(asp_builder *b, asp_node n, asp_val *out)
{
    asp_type ta = *asp_val_type(b->g, asp_in(b, n, 0)), tb = *asp_val_type(b->g, asp_in(b, n, 1));
    asp_type result = *asp_val_type(b->g, asp_out(b, n, 0));
    asp_type ma = as_matrix(b->g, &ta, false), mb = as_matrix(b->g, &tb, true);
    asp_val x = asp_build_view(b, asp_in(b, n, 0), &ma),
            y = asp_build_view(b, asp_in(b, n, 1), &mb);
    asp_val z = mb.rank == 2 ? ASP_B2(b, gemm_nn, NULL, x, y) : bmm(b, false, false, x, y);
    out[0] = asp_build_view(b, z, &result);
}

void asp_matmul_rule(asp_rule_builder *b)
{
    bool row = asp_rule_type(b, 0)->rank == 1, column = asp_rule_type(b, 1)->rank == 1;
    asp_rule_text(b, row && column ? "i+,i+->"
                     : row         ? "i+,...i+n->...n"
                     : column      ? "...mi+,i+->...m"
                                   : "...mi+,...i+n->...mn");
}
