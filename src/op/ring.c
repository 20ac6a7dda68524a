// Attention around a ring of ranks: keys and values of every group of ranks pass by all others.
// Neighbours: attention.c (the same on one device), base/rows.h (who holds which rows), pass/ring.c
// (the steps it becomes), comm/ (rotations).  SPDX-License-Identifier: Apache-2.0
//
//   ring_sdpa       q, k, v are this group's rows; out and lse are over the keys of all groups
//   ring_sdpa_grad  dk and dv are the sums over the queries of all groups
//
// The attribute `tokens` counts the rows of q in all groups, `keys` those of k; look-ups and bias
// are whole.
#include "op/attention.h"
#include "op/op_int.h"

// What a group of ranks has room for of so many rows.
static asp_size group_room(const asp_infer *in, asp_size rows)
{
    const asp_sdpa_attr *a = in->attr;
    const asp_size room = asp_size_ceil_div(in->g, rows, asp_size_num(in->g, in->g->ranks));
    return asp_size_mul(in->g, room, asp_size_num(in->g, in->g->ranks / a->rings));
}

static asp_status want_ring(const asp_infer *in)
{
    const asp_sdpa_attr *a = in->attr;
    const asp_type *q = &in->in[0], *k = &in->in[1];
    if (a->rings < 1 || a->step != 0)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "rings = %lld must be positive, step = %lld be 0",
                              (long long)a->rings, (long long)a->step);
    if (a->rings == 1) return ASP_OK;
    if (in->g->ranks % a->rings != 0)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%lld ranks are not %lld groups",
                              (long long)in->g->ranks, (long long)a->rings);
    const asp_size room_q = group_room(in, a->tokens), room_k = group_room(in, a->keys);
    if (!asp_size_equal(room_q, q->dim[2]) || !asp_size_equal(room_k, k->dim[2]))
        return asp_infer_fail(
            in, ASP_ERR_SHAPE, "operands of %s and %s rows are no parts of %s and %s over %lld",
            asp_size_str(in->g, q->dim[2]), asp_size_str(in->g, k->dim[2]),
            asp_size_str(in->g, a->tokens), asp_size_str(in->g, a->keys), (long long)a->rings);
    return ASP_OK;
}

asp_status asp_ring_sdpa_infer(asp_infer *in)
{
    ASP_TRY(want_ring(in));
    return asp_sdpa_infer(in);
}

asp_status asp_ring_sdpa_grad_infer(asp_infer *in)
{
    ASP_TRY(want_ring(in));
    return asp_sdpa_grad_infer(in);
}

// As that of sdpa: out and lse of all keys are all that is kept.
void asp_ring_sdpa_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_node_info *info = asp_node_at(b->g, n);
    const asp_sdpa_attr *a = info->attr;
    if (cotangent[1].i) {
        asp_sdpa_refuse_lse(b, n);
        return;
    }
    asp_val in[ASP_MAX_OPERANDS + 3] = {asp_in(b, n, 0),  asp_in(b, n, 1),  asp_in(b, n, 2),
                                        asp_out(b, n, 0), asp_out(b, n, 1), cotangent[0]};
    asp_mask m;
    ASP_CHECK(asp_mask_read(a->mask, &m));
    const asp_sdpa_parts parts = asp_sdpa_parts_of(a, &m, 3);
    for (uint32_t i = 3; i < info->n_in; i++) in[i + 3] = info->in[i];
    asp_val dq = asp_build(b, ASP_OP_ring_sdpa_grad, a, info->n_in + 3, in);
    for (uint32_t i = 0; i < 3; i++) out_in[i] = asp_build_result(b, dq, i);
    if (!parts.sinks) return;
    const asp_val of_sinks[] = {in[parts.sinks + 3], in[3], in[4], in[5]};
    out_in[parts.sinks] = asp_build(b, ASP_OP_sdpa_sink_grad, NULL, 4, of_sinks);
}

// What two sets of keys give: (out, lse) of the one and of the other.
asp_status asp_merge_attention_infer(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 4, 4));
    ASP_TRY(asp_want_rank(in, 1, 3, 3));
    ASP_TRY(asp_want_dtype(in, 1, in->in[0].dtype));
    for (int d = 0; d < 3; d++) ASP_TRY(asp_want_same_dim(in, 1, d, 0, d));
    ASP_TRY(asp_want_same_type(in, 2, 0));
    ASP_TRY(asp_want_same_type(in, 3, 1));
    ASP_TRY(asp_result_like(in, 0));
    return asp_result_like(in, 1);
}

asp_status asp_rotate_infer(asp_infer *in)
{
    const asp_rotate_attr *a = in->attr;
    if (a->ranks < 1 || (a->ranks > 1 && a->by % a->ranks == 0))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "by %lld of %lld ranks is no rotation",
                              (long long)a->by, (long long)a->ranks);
    return asp_result_like(in, 0);
}

// The transpose of a rotation is the rotation back.
void asp_rotate_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_rotate_attr *a = ASP_ATTR(b, n, rotate);
    asp_rotate_attr back = {.by = -a->by, .ranks = a->ranks};
    out_in[0] = ASP_B1(b, rotate, &back, cotangent[0]);
}
