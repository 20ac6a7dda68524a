// Reference kernels of ops that cut, join or move along one dimension.  An array is seen as outer x
// n x inner around that dimension.  Neighbours: op/slice.c (what they mean), kern/slice.c (fast).
// SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

// The j-th of n elements along dim that element i of t has, and the first of the same outer and
// inner with j = 0 in an array that has size elements along dim.
typedef struct along {
    int64_t j, outer, inner;
} along;

static along along_of(const asp_tensor *t, int64_t dim, int64_t i)
{
    const int64_t inner = asp_ref_inner(t, dim), n = t->dim[dim];
    return (along){.j = i / inner % n, .outer = i / inner / n, .inner = i % inner};
}

// The element of t (along dim) at j.
static int64_t element(const asp_tensor *t, int64_t dim, along a, int64_t j)
{
    return (a.outer * t->dim[dim] + j) * asp_ref_inner(t, dim) + a.inner;
}

void asp_slice_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_range_attr *)k->attr)->dim, start = k->sizes[0];
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        along a = along_of(y, dim, i.at);
        asp_ref_copy(y, i.at, x, element(x, dim, a, a.j + start));
    }
}

void asp_pad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_pad_attr *attr = k->attr;
    const int64_t left = k->sizes[0];
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        along a = along_of(y, attr->dim, i.at);
        int64_t j = a.j - left;
        if (j >= 0 && j < x->dim[attr->dim])
            asp_ref_copy(y, i.at, x, element(x, attr->dim, a, j));
        else
            asp_ref_put(y, i.at, attr->value);
    }
}

void asp_cat_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        along a = along_of(y, dim, i.at);
        int from = 0;
        for (; a.j >= k->in[from].dim[dim]; from++) a.j -= k->in[from].dim[dim];
        asp_ref_copy(y, i.at, &k->in[from], element(&k->in[from], dim, a, a.j));
    }
}

static void split(const asp_kcall *k, asp_worker *w, int64_t dim)
{
    const asp_tensor *x = &k->in[0];
    int64_t start = 0;
    for (int p = 0; p < k->n_out; p++) {
        const asp_tensor *y = &k->out[p];
        ASP_REF_EACH(i, w, asp_tensor_count(y))
        {
            along a = along_of(y, dim, i.at);
            asp_ref_copy(y, i.at, x, element(x, dim, a, a.j + start));
        }
        start += y->dim[dim];
    }
}

void asp_split_ref(const asp_kcall *k, asp_worker *w)
{
    split(k, w, ((const asp_split_attr *)k->attr)->dim);
}

void asp_split_sizes_ref(const asp_kcall *k, asp_worker *w)
{
    split(k, w, ((const asp_pieces_attr *)k->attr)->dim);
}

void asp_flip_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        along a = along_of(y, dim, i.at);
        asp_ref_copy(y, i.at, x, element(x, dim, a, x->dim[dim] - 1 - a.j));
    }
}

void asp_roll_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_roll_attr *attr = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t n = x->dim[attr->dim];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        along a = along_of(y, attr->dim, i.at);
        int64_t j = (a.j - attr->by % n + n) % n;
        asp_ref_copy(y, i.at, x, element(x, attr->dim, a, j));
    }
}

void asp_shift_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_shift_attr *attr = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t dim = attr->dim < 0 ? y->rank - 1 : attr->dim, n = x->dim[dim];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        along a = along_of(y, dim, i.at);
        bool there = attr->by < 0 ? a.j >= -attr->by : a.j < n - attr->by;
        if (there)
            asp_ref_copy(y, i.at, x, element(x, dim, a, a.j + attr->by));
        else
            asp_ref_put(y, i.at, (double)attr->fill);
    }
}

void asp_triangle_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_triangle_attr *attr = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t cols = y->dim[y->rank - 1], rows = y->dim[y->rank - 2];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        int64_t c = i.at % cols, r = i.at / cols % rows;
        if (attr->upper ? c - r >= attr->diagonal : c - r <= attr->diagonal)
            asp_ref_copy(y, i.at, x, i.at);
        else
            asp_ref_put(y, i.at, 0.0);
    }
}
