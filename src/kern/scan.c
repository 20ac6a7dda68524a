// Fast kernels that carry a state along a dimension, f32.  Neighbours: kern.def (rows), ref/scan.c
// (oracle).
//
// Around dimension dim an array is outer x n x inner.  A claim is one outer index with some inner
// ones; their states are doubles, so that long sums keep their digits, and the inner loop runs over
// neighbours in memory.  SPDX-License-Identifier: Apache-2.0
#include "kern/move.h"

#define LANES 512 // inner indices of a claim, at most

// The part of the array that a claim is.
typedef struct lanes {
    int64_t outer, at, n; // inner indices at .. at + n - 1
} lanes;

static bool next_lanes(asp_worker *w, int64_t outer, int64_t inner, lanes *out)
{
    const int64_t parts = asp_ceil_div(inner, LANES);
    int64_t i = asp_team_next(w, outer * parts);
    if (i < 0) return false;
    *out = (lanes){.outer = i / parts, .at = i % parts * LANES};
    out->n = asp_min(LANES, inner - out->at);
    return true;
}

void asp_cumsum_f32(const asp_kcall *k, asp_worker *w)
{
    const asp_scan_attr *a = k->attr;
    const asp_tensor *x = &k->in[0];
    const int64_t n = x->dim[a->dim], inner = asp_dim_product(x, a->dim + 1, x->rank);
    for (lanes l; next_lanes(w, asp_dim_product(x, 0, a->dim), inner, &l);) {
        double sum[LANES] = {0};
        for (int64_t t = 0; t < n; t++) {
            const int64_t row = l.outer * n + (a->reverse ? n - 1 - t : t);
            const float *from = (const float *)x->data + row * inner + l.at;
            float *to = (float *)k->out[0].data + row * inner + l.at;
            for (int64_t c = 0; c < l.n; c++) {
                sum[c] += (double)from[c];
                to[c] = (float)sum[c];
            }
        }
    }
}

// Where the elements of a that go with the lanes stand: its inner dims broadcast or are all there.
typedef struct factors {
    const float *at;      // of row 0
    int64_t row, element; // steps
    const int64_t *index; // of each lane, where they follow no step; NULL otherwise
} factors;

// Steps of a (broadcast to b) for one claim; index has room for LANES.
static factors factors_of(const asp_kcall *k, int64_t dim, const lanes *l, int64_t *index)
{
    const asp_tensor *a = &k->in[0], *b = &k->in[1];
    int64_t step[ASP_MAX_RANK], at = 0, rest = l->outer, steps = 1;
    for (int d = a->rank - 1; d >= 0; d--) {
        step[d] = a->dim[d] == 1 ? 0 : steps;
        steps *= a->dim[d];
    }
    for (int64_t d = dim - 1; d >= 0; d--) {
        at += rest % b->dim[d] * step[d];
        rest /= b->dim[d];
    }
    factors f = {.at = (const float *)a->data + at, .row = step[dim]};
    const int64_t inner = asp_dim_product(b, dim + 1, b->rank);
    const int64_t inner_a = asp_dim_product(a, dim + 1, a->rank);
    if (inner_a == 1) return f;
    if (inner_a == inner) {
        f.at += l->at;
        f.element = 1;
        return f;
    }
    for (int64_t c = 0; c < l->n; c++) {
        index[c] = 0;
        rest = l->at + c;
        for (int d = b->rank - 1; d > dim; d--) {
            index[c] += rest % b->dim[d] * step[d];
            rest /= b->dim[d];
        }
    }
    f.index = index;
    return f;
}

// One row of lanes: h = a h + b.
static void scan_row(const factors *f, int64_t row, const float *b, double *h, float *y, int64_t n)
{
    const float *a = f->at + row * f->row;
    if (f->index)
        for (int64_t c = 0; c < n; c++) h[c] = (double)a[f->index[c]] * h[c] + (double)b[c];
    else if (f->element)
        for (int64_t c = 0; c < n; c++) h[c] = (double)a[c] * h[c] + (double)b[c];
    else
        for (int64_t c = 0; c < n; c++) h[c] = (double)a[0] * h[c] + (double)b[c];
    for (int64_t c = 0; c < n; c++) y[c] = (float)h[c];
}

void asp_scan_f32(const asp_kcall *k, asp_worker *w)
{
    const asp_scan_attr *attr = k->attr;
    const asp_tensor *b = &k->in[1];
    const int64_t n = b->dim[attr->dim], inner = asp_dim_product(b, attr->dim + 1, b->rank);
    const float *h0 = k->n_in == 3 ? k->in[2].data : NULL;
    int64_t index[LANES];
    for (lanes l; next_lanes(w, asp_dim_product(b, 0, attr->dim), inner, &l);) {
        const factors f = factors_of(k, attr->dim, &l, index);
        double h[LANES] = {0};
        for (int64_t c = 0; h0 && c < l.n; c++) h[c] = (double)h0[l.outer * inner + l.at + c];
        for (int64_t t = 0; t < n; t++) {
            const int64_t row = attr->reverse ? n - 1 - t : t;
            const int64_t at = (l.outer * n + row) * inner + l.at;
            scan_row(&f, row, (const float *)b->data + at, h, (float *)k->out[0].data + at, l.n);
        }
    }
}
