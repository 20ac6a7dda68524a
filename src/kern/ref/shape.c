// Reference kernels that move or sum elements.  Neighbours: op/shape.c (what they mean), move.c
// (fast).  SPDX-License-Identifier: Apache-2.0
#include "base/rows.h"
#include "kern/ref/ref.h"

// Each element of the result sums its own slice, in the order of the operand.
void asp_sum_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_ref_reduction r = asp_ref_reduce(&k->in[0], &((const asp_sum_attr *)k->attr)->dims);
    ASP_REF_EACH(i, w, r.n_kept)
    {
        const int64_t base = asp_ref_base(&r, i.at);
        double sum = 0.0;
        for (int64_t j = 0; j < r.n_gone; j++)
            sum += asp_ref_get(&k->in[0], base + asp_ref_slice(&r, j));
        asp_ref_put(&k->out[0], i.at, sum);
    }
}

void asp_expand_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    asp_ref_copy(y, i.at, x, asp_ref_broadcast(x, y, i.at));
}

// Dim i of the result is dim perm[i] of x.
void asp_permute_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_permute_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        int64_t rest = i.at, from = 0;
        for (int d = y->rank - 1; d >= 0; d--) {
            from += rest % y->dim[d] * asp_ref_inner(x, a->perm.at[d]);
            rest /= y->dim[d];
        }
        asp_ref_copy(y, i.at, x, from);
    }
}

// Slice j of the result along dim is slice j / times of x.
void asp_repeat_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_repeat_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t inner = asp_ref_inner(y, a->dim), n = y->dim[a->dim];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        int64_t outer = i.at / inner / n, j = i.at / inner % n;
        asp_ref_copy(y, i.at, x, (outer * x->dim[a->dim] + j / a->times) * inner + i.at % inner);
    }
}

void asp_sum_groups_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_repeat_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t inner = asp_ref_inner(y, a->dim);
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        double sum = 0.0;
        for (int64_t t = 0; t < a->times; t++)
            sum += asp_ref_get(x, (i.at / inner * a->times + t) * inner + i.at % inner);
        asp_ref_put(y, i.at, sum);
    }
}

// What the rank holds of dim, cut to the items there are: `of` and `length` are the call's sizes.
static asp_rows held(const asp_kcall *k, int64_t of, int64_t length)
{
    const asp_part_attr *a = k->attr;
    ASP_CHECK(k->ranks % a->ranks == 0); // of all ranks, or of each group alike
    const asp_rows r = asp_rows_of_rank(of, a->ranks, a->rings, a->zigzag, k->rank % a->ranks);
    return asp_rows_cut(&r, length);
}

void asp_shard_slice_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_part_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t inner = asp_ref_inner(y, a->dim), room = y->dim[a->dim], n = x->dim[a->dim];
    const asp_rows r = held(k, asp_size_at(k, 0) ? asp_size_at(k, 0) : n, n);
    const int64_t last = r.n ? r.seg[r.n - 1].at + r.seg[r.n - 1].n - 1 : n - 1;
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        const int64_t outer = i.at / inner / room, at = asp_rows_place(&r, i.at / inner % room);
        if (at < 0 && a->fill != INT64_MIN) {
            asp_ref_put(y, i.at, (double)a->fill);
            continue;
        }
        asp_ref_copy(y, i.at, x, (outer * n + (at < 0 ? last : at)) * inner + i.at % inner);
    }
}

void asp_shard_pad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_part_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t inner = asp_ref_inner(y, a->dim), room = x->dim[a->dim], n = y->dim[a->dim];
    const asp_rows r = held(k, asp_size_at(k, 0) ? asp_size_at(k, 0) : n, n);
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        const int64_t outer = i.at / inner / n, row = asp_rows_find(&r, i.at / inner % n);
        if (row >= 0)
            asp_ref_copy(y, i.at, x, (outer * room + row) * inner + i.at % inner);
        else
            asp_ref_put(y, i.at, 0.0);
    }
}

void asp_mask_tail_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_part_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t inner = asp_ref_inner(y, a->dim), room = y->dim[a->dim];
    const int64_t of = asp_size_at(k, 0) ? asp_size_at(k, 0) : room * a->ranks;
    const asp_rows r = held(k, of, asp_size_at(k, 1) ? asp_size_at(k, 1) : of);
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        if (i.at / inner % room < asp_rows_count(&r))
            asp_ref_copy(y, i.at, x, i.at);
        else
            asp_ref_put(y, i.at, 0.0);
    }
}
