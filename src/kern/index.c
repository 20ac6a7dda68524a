// Fast kernels of look-ups by data and of sums by them.  Neighbours: kern.def (rows), ref/index.c
// (oracle), move.c (embedding).
//
// Around dimension dim an array is outer x n x inner.  SPDX-License-Identifier: Apache-2.0
#include "kern/move.h"

// y = x with its slices along dim at ids: runs of inner.
void asp_index_select_fast(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *x = &k->in[0];
    const int64_t *ids = k->in[1].data, m = asp_tensor_count(&k->in[1]), n = x->dim[dim];
    const int64_t runs = asp_dim_product(x, 0, dim) * m;
    const size_t run = (size_t)asp_dim_product(x, dim + 1, x->rank) * asp_element_bytes(x);
    const char *from = x->data;
    char *to = k->out[0].data;
    for (int64_t i, end; asp_claim(w, runs, asp_runs_per_chunk(run), &i, &end);)
        for (; i < end; i++)
            if (asp_kcall_index(k, ids[i % m], n))
                memcpy(to + (size_t)i * run, from + (size_t)(i / m * n + ids[i % m]) * run, run);
}

// One element of 1, 4 or 8 bytes.
static void copy_element(char *to, const char *from, size_t bytes)
{
    if (bytes == 4)
        memcpy(to, from, 4);
    else if (bytes == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, bytes);
}

// Lanes are done in rows: one outer index with the inner ones from `at` to `end`.
typedef struct lane_row {
    int64_t outer, at, end;
} lane_row;

#define LANES 1024 // inner indices of one claim, at most

static bool next_lanes(asp_worker *w, int64_t outer, int64_t inner, lane_row *out)
{
    const int64_t parts = asp_ceil_div(inner, LANES);
    int64_t i = asp_team_next(w, outer * parts);
    if (i < 0) return false;
    *out = (lane_row){.outer = i / parts, .at = i % parts * LANES};
    out->end = asp_min(inner, out->at + LANES);
    return true;
}

void asp_gather_fast(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t inner = asp_dim_product(x, dim + 1, x->rank), n = x->dim[dim], m = y->dim[dim];
    const int64_t *ids = k->in[1].data;
    const size_t bytes = asp_element_bytes(x);
    const char *from = x->data;
    char *to = y->data;
    for (lane_row l; next_lanes(w, asp_dim_product(x, 0, dim), inner, &l);)
        for (int64_t j = 0; j < m; j++)
            for (int64_t c = l.at; c < l.end; c++) {
                const int64_t at = (l.outer * m + j) * inner + c;
                if (asp_kcall_index(k, ids[at], n))
                    copy_element(to + (size_t)at * bytes,
                                 from + (size_t)((l.outer * n + ids[at]) * inner + c) * bytes,
                                 bytes);
            }
}

void asp_scatter_fast(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *y = &k->out[0];
    const int64_t inner = asp_dim_product(y, dim + 1, y->rank), n = y->dim[dim];
    const int64_t *ids = k->in[1].data, m = k->in[1].dim[dim];
    const size_t bytes = asp_element_bytes(y);
    const char *base = k->in[0].data, *src = k->in[2].data;
    char *to = y->data;
    for (lane_row l; next_lanes(w, asp_dim_product(y, 0, dim), inner, &l);) {
        for (int64_t j = 0; j < n; j++) {
            const size_t at = (size_t)((l.outer * n + j) * inner + l.at) * bytes;
            memcpy(to + at, base + at, (size_t)(l.end - l.at) * bytes);
        }
        for (int64_t j = 0; j < m; j++)
            for (int64_t c = l.at; c < l.end; c++) {
                const int64_t at = (l.outer * m + j) * inner + c;
                if (asp_kcall_index(k, ids[at], n))
                    copy_element(to + (size_t)((l.outer * n + ids[at]) * inner + c) * bytes,
                                 src + (size_t)at * bytes, bytes);
            }
    }
}

// Sums in the order of ids.
void asp_scatter_add_f32(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_index_add_attr *)k->attr)->dim;
    const asp_tensor *y = &k->out[0];
    const int64_t inner = asp_dim_product(y, dim + 1, y->rank), n = y->dim[dim];
    const int64_t *ids = k->in[0].data, m = k->in[0].dim[dim];
    const float *src = k->in[1].data;
    float *to = y->data;
    for (lane_row l; next_lanes(w, asp_dim_product(y, 0, dim), inner, &l);) {
        for (int64_t j = 0; j < n; j++)
            memset(to + (l.outer * n + j) * inner + l.at, 0, (size_t)(l.end - l.at) * sizeof *to);
        for (int64_t j = 0; j < m; j++)
            for (int64_t c = l.at; c < l.end; c++) {
                const int64_t at = (l.outer * m + j) * inner + c;
                if (asp_kcall_index(k, ids[at], n))
                    to[(l.outer * n + ids[at]) * inner + c] += src[at];
            }
    }
}

void asp_index_add_f32(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_index_add_attr *)k->attr)->dim;
    const asp_tensor *y = &k->out[0];
    const int64_t inner = asp_dim_product(y, dim + 1, y->rank), n = y->dim[dim];
    const int64_t *ids = k->in[0].data, m = asp_tensor_count(&k->in[0]);
    const float *src = k->in[1].data;
    for (lane_row l; next_lanes(w, asp_dim_product(y, 0, dim), inner, &l);) {
        const int64_t width = l.end - l.at;
        float *to = (float *)y->data + l.outer * n * inner + l.at;
        for (int64_t j = 0; j < n; j++) memset(to + j * inner, 0, (size_t)width * sizeof *to);
        for (int64_t j = 0; j < m; j++) {
            if (!asp_kcall_index(k, ids[j], n)) continue;
            const float *from = src + (l.outer * m + j) * inner + l.at;
            float *row = to + ids[j] * inner;
            for (int64_t c = 0; c < width; c++) row[c] += from[c];
        }
    }
}
