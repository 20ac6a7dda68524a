// Attention and rotary positions.  Neighbours: ir/op.def (rows), kern/sdpa_isa.c, kern/ref/.
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

// out = softmax(scale q k^T + mask) v Dao et al. 2022 q (B, N, Sq, D)   k (B, K, Sk, D)   v (B, K,
// Sk, E)   N = K r; head h reads K/V head h / r out (B, N, Sq, E)   lse (B, N, Sq), the log of the
// sum of exponentials of each row
asp_status asp_sdpa_infer(asp_infer *in)
{
    const asp_sdpa_attr *a = in->attr;
    const asp_type *q = &in->in[0], *k = &in->in[1], *v = &in->in[2];
    ASP_TRY(asp_want_float(in, 0));
    for (uint32_t i = 0; i < 3; i++) {
        ASP_TRY(asp_want_rank(in, i, 4, 4));
        ASP_TRY(asp_want_dtype(in, i, q->dtype));
    }
    ASP_TRY(asp_want_same_dim(in, 0, 0, 1, 0));
    ASP_TRY(asp_want_same_dim(in, 0, 3, 1, 3));
    for (int d = 0; d < 3; d++) ASP_TRY(asp_want_same_dim(in, 1, d, 2, d));
    int64_t heads, kv_heads;
    bool plain =
        asp_size_is_num(in->g, q->dim[1], &heads) && asp_size_is_num(in->g, k->dim[1], &kv_heads);
    if (!plain || kv_heads < 1 || heads % kv_heads != 0)
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "%s query heads are not a multiple of %s K/V heads",
                              asp_size_str(in->g, q->dim[1]), asp_size_str(in->g, k->dim[1]));
    if (a->causal) ASP_TRY(asp_want_same_dim(in, 0, 2, 1, 2));
    asp_type out = *q, lse = *q;
    out.dim[3] = v->dim[3];
    lse.rank = 3;
    ASP_TRY(asp_result(in, &out));
    return asp_result(in, &lse);
}

// Dao et al. 2022, algorithm 4.  The log-sum-exp is for the derivative alone: nothing may depend on
// it.
void asp_sdpa_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    ASP_CHECK(cotangent[1].i == 0);
    if (!cotangent[0].i) return;
    asp_val in[] = {asp_in(b, n, 0),  asp_in(b, n, 1),  asp_in(b, n, 2),
                    asp_out(b, n, 0), asp_out(b, n, 1), cotangent[0]};
    asp_val dq = asp_build(b, ASP_OP_sdpa_grad, ASP_ATTR(b, n, sdpa), 6, in);
    for (uint32_t i = 0; i < 3; i++) out_in[i] = asp_build_result(b, dq, i);
}

asp_status asp_sdpa_grad_infer(asp_infer *in)
{
    for (uint32_t i = 0; i < 3; i++) ASP_TRY(asp_want_rank(in, i, 4, 4));
    ASP_TRY(asp_want_rank(in, 4, 3, 3));
    ASP_TRY(asp_want_same_type(in, 3, 5));
    for (uint32_t i = 0; i < 3; i++) ASP_TRY(asp_result_like(in, i));
    return ASP_OK;
}

// Positions are whole numbers, one a token, shared by the batch or one row a sequence.
static asp_status want_positions(const asp_infer *in, uint32_t x, uint32_t p)
{
    ASP_TRY(asp_want_rank(in, p, 1, 2));
    uint32_t rank = in->in[p].rank;
    if (rank == 2) ASP_TRY(asp_want_same_dim(in, p, 0, x, 0));
    return asp_want_same_dim(in, p, (int)rank - 1, x, 2);
}

// Su et al. 2021; halves of the head are rotated against each other, as in Llama.  x (B, N, S, H),
// positions ([B,] S)
asp_status asp_rope_infer(asp_infer *in)
{
    const asp_rope_attr *a = in->attr;
    int64_t width;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 4, 4));
    ASP_TRY(asp_want_dtype(in, 1, ASP_I64));
    ASP_TRY(want_positions(in, 0, 1));
    if (!asp_size_is_num(in->g, in->in[0].dim[3], &width) || width < 2 || width % 2)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "the head width %s is not an even number",
                              asp_size_str(in->g, in->in[0].dim[3]));
    if (*a->scaling && strcmp(a->scaling, "llama3") != 0)
        return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                              "scaling '%s' is not known; use llama3 or none", a->scaling);
    return asp_result_like(in, 0);
}

void asp_rope_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_rope_attr *a = ASP_ATTR(b, n, rope);
    const asp_type *x = asp_val_type(b->g, asp_in(b, n, 0));
    asp_rope_table_attr t = {.to = x->dtype,
                             .theta = a->theta,
                             .scaling = a->scaling,
                             .factor = a->factor,
                             .low = a->low,
                             .high = a->high,
                             .original = a->original};
    ASP_CHECK(asp_size_is_num(b->g, x->dim[3], &t.head_dim));
    asp_val cos = ASP_B1(b, rope_table, &t, asp_in(b, n, 1));
    out[0] = ASP_B3(b, rotary, NULL, asp_in(b, n, 0), cos, asp_build_result(b, cos, 1));
}

// The halves of a head are rotated against each other: its width stays whole.
void asp_rope_rule(asp_rule_builder *b)
{
    asp_rule_text(b, asp_rule_type(b, 1)->rank == 2 ? "bnsH,bs->bnsH" : "bnsH,s->bnsH");
}

asp_status asp_rope_table_infer(asp_infer *in)
{
    const asp_rope_table_attr *a = in->attr;
    ASP_TRY(asp_want_dtype(in, 0, ASP_I64));
    ASP_TRY(asp_want_rank(in, 0, 1, 2));
    if (a->head_dim < 2 || a->head_dim % 2)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "head_dim = %lld is not an even number",
                              (long long)a->head_dim);
    asp_type out = in->in[0];
    out.dtype = a->to;
    out.dim[out.rank++] = asp_size_num(in->g, a->head_dim / 2);
    ASP_TRY(asp_result(in, &out));
    return asp_result(in, &out);
}

asp_status asp_rotary_infer(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 4, 4));
    ASP_TRY(asp_want_same_type(in, 1, 2));
    ASP_TRY(asp_want_dtype(in, 1, in->in[0].dtype));
    ASP_TRY(asp_want_rank(in, 1, 2, 3));
    uint32_t rank = in->in[1].rank;
    if (rank == 3) ASP_TRY(asp_want_same_dim(in, 1, 0, 0, 0));
    ASP_TRY(asp_want_same_dim(in, 1, (int)rank - 2, 0, 2));
    asp_size twice = asp_size_mul(in->g, in->in[1].dim[rank - 1], asp_size_num(in->g, 2));
    if (!asp_size_equal(twice, in->in[0].dim[3]))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "tables %s do not fit heads of %s",
                              asp_type_str(in->g, &in->in[1]), asp_type_str(in->g, &in->in[0]));
    return asp_result_like(in, 0);
}

// A rotation's transpose is the rotation back.
void asp_rotary_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_rotary_attr back = {.inverse = !ASP_ATTR(b, n, rotary)->inverse};
    out_in[0] = ASP_B3(b, rotary, &back, cotangent[0], asp_in(b, n, 1), asp_in(b, n, 2));
}

void asp_rotary_rule(asp_rule_builder *b)
{
    asp_rule_text(b, asp_rule_type(b, 1)->rank == 3 ? "bnsH,bsF,bsF->bnsH" : "bnsH,sF,sF->bnsH");
}
