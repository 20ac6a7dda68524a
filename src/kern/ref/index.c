// Reference kernels of look-ups by data, sums by them, and of what makes such places.  Neighbours:
// op/index.c (what they mean), kern/index.c (fast).
//
// Around dimension dim an array is outer x n x inner; a lane is one outer and inner index with all
// n elements.  Sums: each thread owns lanes of the result and walks them in order.
// SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

#include <math.h>

// Element j of lane number i.
static int64_t in_lane(const asp_tensor *t, int64_t dim, int64_t i, int64_t j)
{
    const int64_t inner = asp_ref_inner(t, dim);
    return (i / inner * t->dim[dim] + j) * inner + i % inner;
}

static int64_t lanes(const asp_tensor *t, int64_t dim) { return asp_tensor_count(t) / t->dim[dim]; }

void asp_gather_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *x = &k->in[0], *ids = &k->in[1], *y = &k->out[0];
    ASP_REF_EACH(i, w, lanes(y, dim))
    for (int64_t j = 0; j < y->dim[dim]; j++) {
        const int64_t at = in_lane(y, dim, i.at, j), id = asp_ref_id(ids, at);
        if (asp_kcall_index(k, id, x->dim[dim])) asp_ref_copy(y, at, x, in_lane(x, dim, i.at, id));
    }
}

void asp_scatter_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *base = &k->in[0], *ids = &k->in[1], *src = &k->in[2], *y = &k->out[0];
    ASP_REF_EACH(i, w, lanes(y, dim))
    {
        for (int64_t j = 0; j < y->dim[dim]; j++) {
            const int64_t at = in_lane(y, dim, i.at, j);
            asp_ref_copy(y, at, base, at);
        }
        for (int64_t j = 0; j < ids->dim[dim]; j++) {
            const int64_t from = in_lane(ids, dim, i.at, j), id = asp_ref_id(ids, from);
            if (asp_kcall_index(k, id, y->dim[dim]))
                asp_ref_copy(y, in_lane(y, dim, i.at, id), src, from);
        }
    }
}

void asp_scatter_add_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_index_add_attr *)k->attr)->dim;
    const asp_tensor *ids = &k->in[0], *src = &k->in[1], *y = &k->out[0];
    ASP_REF_EACH(i, w, lanes(y, dim))
    {
        for (int64_t j = 0; j < y->dim[dim]; j++) asp_ref_put(y, in_lane(y, dim, i.at, j), 0.0);
        for (int64_t j = 0; j < ids->dim[dim]; j++) {
            const int64_t from = in_lane(ids, dim, i.at, j), id = asp_ref_id(ids, from);
            if (!asp_kcall_index(k, id, y->dim[dim])) continue;
            const int64_t to = in_lane(y, dim, i.at, id);
            asp_ref_put(y, to, asp_ref_get(y, to) + asp_ref_get(src, from));
        }
    }
}

// x is outer x n x inner, y outer x ids x inner.
void asp_index_select_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *x = &k->in[0], *ids = &k->in[1], *y = &k->out[0];
    const int64_t inner = asp_ref_inner(x, dim), n = x->dim[dim], m = asp_tensor_count(ids);
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        const int64_t id = asp_ref_id(ids, i.at / inner % m);
        if (asp_kcall_index(k, id, n))
            asp_ref_copy(y, i.at, x, (i.at / inner / m * n + id) * inner + i.at % inner);
    }
}

// src is outer x ids x inner, y outer x n x inner.
void asp_index_add_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_index_add_attr *)k->attr)->dim;
    const asp_tensor *ids = &k->in[0], *src = &k->in[1], *y = &k->out[0];
    const int64_t inner = asp_ref_inner(y, dim), m = asp_tensor_count(ids);
    ASP_REF_EACH(i, w, lanes(y, dim))
    {
        for (int64_t j = 0; j < y->dim[dim]; j++) asp_ref_put(y, in_lane(y, dim, i.at, j), 0.0);
        for (int64_t j = 0; j < m; j++) {
            const int64_t id = asp_ref_id(ids, j);
            if (!asp_kcall_index(k, id, y->dim[dim])) continue;
            const int64_t to = in_lane(y, dim, i.at, id);
            const int64_t from = (i.at / inner * m + j) * inner + i.at % inner;
            asp_ref_put(y, to, asp_ref_get(y, to) + asp_ref_get(src, from));
        }
    }
}

void asp_one_hot_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t classes = ((const asp_one_hot_attr *)k->attr)->classes;
    const asp_tensor *ids = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(ids))
    {
        const int64_t id = asp_ref_id(ids, i.at);
        asp_kcall_index(k, id, classes);
        for (int64_t c = 0; c < classes; c++) asp_ref_put(y, i.at * classes + c, c == id);
    }
}

// Does a value come before another?  NaN is the largest.
static bool before(double a, double b, bool descending)
{
    if (isnan(a) || isnan(b)) return descending ? isnan(a) && !isnan(b) : isnan(b) && !isnan(a);
    return descending ? a > b : a < b;
}

// Element j of x's lane i is better than all that follow in the result and worse than none before.
static void put_ordered(const asp_kcall *k, int64_t dim, int64_t i, int64_t at, int64_t j)
{
    const int64_t to = in_lane(&k->out[0], dim, i, at);
    asp_ref_copy(&k->out[0], to, &k->in[0], in_lane(&k->in[0], dim, i, j));
    ((int64_t *)k->out[1].data)[to] = j;
}

// The next best of lane i behind element `last` in the order; -1 is before all.
static int64_t next_in_order(const asp_kcall *k, int64_t dim, int64_t i, int64_t last,
                             bool descending)
{
    const asp_tensor *x = &k->in[0];
    int64_t best = -1;
    double at_last = last < 0 ? 0 : asp_ref_get(x, in_lane(x, dim, i, last)), at_best = 0;
    for (int64_t j = 0; j < x->dim[dim]; j++) {
        const double v = asp_ref_get(x, in_lane(x, dim, i, j));
        bool behind = last < 0 || before(at_last, v, descending) ||
                      (!before(v, at_last, descending) && j > last);
        if (!behind || (best >= 0 && !before(v, at_best, descending))) continue;
        best = j;
        at_best = v;
    }
    return best;
}

// k passes over each lane.
void asp_topk_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_topk_attr *a = k->attr;
    ASP_REF_EACH(i, w, lanes(&k->out[0], a->dim))
    {
        int64_t last = -1;
        for (int64_t at = 0; at < a->k; at++) {
            last = next_in_order(k, a->dim, i.at, last, a->largest);
            put_ordered(k, a->dim, i.at, at, last);
        }
    }
}

// Does element a of lane i come before element b in the order?  Equal ones stand as they stood.
static bool precedes(const asp_kcall *k, int64_t dim, int64_t i, int64_t a, int64_t b,
                     bool descending)
{
    const asp_tensor *x = &k->in[0];
    const double va = asp_ref_get(x, in_lane(x, dim, i, a));
    const double vb = asp_ref_get(x, in_lane(x, dim, i, b));
    return before(va, vb, descending) || (!before(vb, va, descending) && a < b);
}

// Indices of one lane as a heap whose root comes last in the order.
typedef struct heap {
    const asp_kcall *k;
    int64_t dim, lane, step;
    int64_t *at; // index number j is at[j * step]
    bool descending;
} heap;

static void sift(const heap *h, int64_t j, int64_t n)
{
    const int64_t moving = h->at[j * h->step];
    for (int64_t child; (child = 2 * j + 1) < n; j = child) {
        if (child + 1 < n && precedes(h->k, h->dim, h->lane, h->at[child * h->step],
                                      h->at[(child + 1) * h->step], h->descending))
            child++;
        if (!precedes(h->k, h->dim, h->lane, moving, h->at[child * h->step], h->descending)) break;
        h->at[j * h->step] = h->at[child * h->step];
    }
    h->at[j * h->step] = moving;
}

// Heapsort: no scratch, and the order is total, so it is stable.
void asp_sort_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_sort_attr *a = k->attr;
    const int64_t n = k->in[0].dim[a->dim];
    ASP_REF_EACH(i, w, lanes(&k->out[0], a->dim))
    {
        heap h = {.k = k, .dim = a->dim, .lane = i.at, .descending = a->descending};
        h.step = asp_ref_inner(&k->in[0], a->dim);
        h.at = (int64_t *)k->out[1].data + in_lane(&k->out[1], a->dim, i.at, 0);
        for (int64_t j = 0; j < n; j++) h.at[j * h.step] = j;
        for (int64_t j = n / 2; j-- > 0;) sift(&h, j, n);
        for (int64_t left = n - 1; left > 0; left--) {
            const int64_t last = h.at[0];
            h.at[0] = h.at[left * h.step];
            h.at[left * h.step] = last;
            sift(&h, 0, left);
        }
        for (int64_t j = 0; j < n; j++) put_ordered(k, a->dim, i.at, j, h.at[j * h.step]);
    }
}
