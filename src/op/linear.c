// Matrix products and the table look-up.  Neighbours: ir/op.def (rows), kern/gemm.h,
// kern/ref/gemm.c.
//
// The three forms of a GEMM close under differentiation: with leading dims flattened to rows r,
//   nt: y[r,o] = x[r,i] w[o,i]      nn: y[r,i] = x[r,o] w[o,i]      tn: y[o,i] = sum_r x[r,o]
//   z[r,i]
// A sum over rows is the gradient of a weight: of bf16 it is f32.
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

static asp_status want_product(const asp_infer *in, uint32_t w_rank)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dtype(in, 1, in->in[0].dtype));
    ASP_TRY(asp_want_rank(in, 0, 1, ASP_MAX_RANK));
    return w_rank ? asp_want_rank(in, 1, w_rank, w_rank) : ASP_OK;
}

// The result of x (..., c) with w: c is dim `with` of w and the other dim of w takes its place.
static asp_status infer_product(asp_infer *in, int with)
{
    ASP_TRY(want_product(in, 2));
    ASP_TRY(asp_want_same_dim(in, 0, -1, 1, with));
    asp_type out = in->in[0];
    out.dim[out.rank - 1] = in->in[1].dim[1 - with];
    return asp_result(in, &out);
}

asp_status asp_gemm_nt_infer(asp_infer *in) { return infer_product(in, 1); }
asp_status asp_gemm_nn_infer(asp_infer *in) { return infer_product(in, 0); }

asp_status asp_gemm_tn_infer(asp_infer *in)
{
    ASP_TRY(want_product(in, 0));
    ASP_TRY(asp_want_rank(in, 1, in->in[0].rank, in->in[0].rank));
    for (int d = 0; d + 1 < (int)in->in[0].rank; d++) ASP_TRY(asp_want_same_dim(in, 0, d, 1, d));
    uint32_t last = in->in[0].rank - 1;
    asp_type out = {.dtype = asp_sum_dtype(in->in[0].dtype),
                    .rank = 2,
                    .dim = {in->in[0].dim[last], in->in[1].dim[last]}};
    return asp_result(in, &out);
}

void asp_gemm_nt_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, gemm_nn, NULL, cotangent[0], asp_in(b, n, 1));
    out_in[1] = ASP_B2(b, gemm_tn, NULL, cotangent[0], asp_in(b, n, 0));
}

void asp_gemm_nn_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, gemm_nt, NULL, cotangent[0], asp_in(b, n, 1));
    out_in[1] = ASP_B2(b, gemm_tn, NULL, asp_in(b, n, 0), cotangent[0]);
}

void asp_gemm_tn_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, gemm_nt, NULL, asp_in(b, n, 1), cotangent[0]);
    out_in[1] = ASP_B2(b, gemm_nn, NULL, asp_in(b, n, 0), cotangent[0]);
}

// y = x w^T + b          x (..., I)   w (O, I)   b (O)   y (..., O)
asp_status asp_linear_infer(asp_infer *in)
{
    if (in->n_in == 3) {
        ASP_TRY(asp_want_rank(in, 2, 1, 1));
        ASP_TRY(asp_want_same_dim(in, 2, 0, 1, 0));
    }
    return infer_product(in, 1);
}

void asp_linear_lower(asp_builder *b, asp_node n, asp_val *out)
{
    out[0] = ASP_B2(b, gemm_nt, NULL, asp_in(b, n, 0), asp_in(b, n, 1));
    if (asp_node_at(b->g, n)->n_in == 3) out[0] = ASP_B2(b, add, NULL, out[0], asp_in(b, n, 2));
}

// y[..., :] = table[ids[...], :]; the row padding of the table (none: -1) gets no gradient.
asp_status asp_embedding_infer(asp_infer *in)
{
    ASP_TRY(asp_want_dtype(in, 0, ASP_I64));
    ASP_TRY(asp_want_float(in, 1));
    ASP_TRY(asp_want_rank(in, 1, 2, 2));
    ASP_TRY(asp_want_rank(in, 0, 0, ASP_MAX_RANK - 1));
    asp_type out = in->in[0];
    out.dtype = in->in[1].dtype;
    out.dim[out.rank++] = in->in[1].dim[1];
    return asp_result(in, &out);
}

void asp_embedding_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_rows_attr a = {.rows = asp_val_type(b->g, asp_in(b, n, 1))->dim[0],
                       .padding = ASP_ATTR(b, n, embedding)->padding};
    out_in[1] = ASP_B2(b, embedding_grad, &a, cotangent[0], asp_in(b, n, 0));
}

asp_status asp_embedding_grad_infer(asp_infer *in)
{
    const asp_rows_attr *a = in->attr;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dtype(in, 1, ASP_I64));
    ASP_TRY(asp_want_rank(in, 0, in->in[1].rank + 1, in->in[1].rank + 1));
    for (int d = 0; d < (int)in->in[1].rank; d++) ASP_TRY(asp_want_same_dim(in, 0, d, 1, d));
    asp_type out = {.dtype = asp_sum_dtype(in->in[0].dtype),
                    .rank = 2,
                    .dim = {a->rows, in->in[0].dim[in->in[0].rank - 1]}};
    return asp_result(in, &out);
}
