// Reference kernels that carry a state along a dimension.  Neighbours: op/scan.c (what they mean),
// kern/scan.c (fast).
//
// Around dimension dim an array is outer x n x inner; a lane is one outer and inner index, walked
// by one thread.  SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

void asp_cumsum_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_scan_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t n = x->dim[a->dim], inner = asp_ref_inner(x, a->dim);
    ASP_REF_EACH(i, w, asp_tensor_count(x) / n)
    {
        double sum = 0;
        for (int64_t t = 0; t < n; t++) {
            const int64_t at =
                (i.at / inner * n + (a->reverse ? n - 1 - t : t)) * inner + i.at % inner;
            sum += asp_ref_get(x, at);
            asp_ref_put(y, at, sum);
        }
    }
}

// in: a, b [, h0].
void asp_scan_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_scan_attr *attr = k->attr;
    const asp_tensor *a = &k->in[0], *b = &k->in[1], *y = &k->out[0];
    const int64_t n = b->dim[attr->dim], inner = asp_ref_inner(b, attr->dim);
    ASP_REF_EACH(i, w, asp_tensor_count(b) / n)
    {
        double h = k->n_in == 3 ? asp_ref_get(&k->in[2], i.at) : 0;
        for (int64_t t = 0; t < n; t++) {
            const int64_t row = attr->reverse ? n - 1 - t : t;
            const int64_t at = (i.at / inner * n + row) * inner + i.at % inner;
            h = asp_ref_get(a, asp_ref_broadcast(a, y, at)) * h + asp_ref_get(b, at);
            asp_ref_put(y, at, h);
        }
    }
}
