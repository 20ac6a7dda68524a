// Fast kernels that cut, join or move along one dimension, for any dtype: all are a few blocks of
// contiguous runs, copied or filled.  Neighbours: kern.def (rows), ref/slice.c (oracle).
//
// Around dimension dim an array is outer x n x inner; a run is some elements along dim of one outer
// index, with all of inner.  SPDX-License-Identifier: Apache-2.0
#include "base/half.h"
#include "kern/move.h"

// The same run of every outer index.
typedef struct block {
    char *to;
    const char *from; // NULL: filled
    size_t to_step, from_step;
    size_t bytes; // of a run
} block;

typedef struct blocks {
    int n;
    int64_t outer;
    block at[ASP_MAX_OPERANDS];
    uint64_t fill; // bits of one element, repeated
    size_t fill_bytes;
} blocks;

static void fill_run(const blocks *b, char *to, size_t bytes)
{
    if (b->fill == 0) {
        memset(to, 0, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += b->fill_bytes) memcpy(to + i, &b->fill, b->fill_bytes);
}

// Piece number i of all pieces of block x.
static void move_piece(const blocks *b, const block *x, int64_t pieces, int64_t i)
{
    const size_t run = (size_t)(i / pieces), at = (size_t)(i % pieces) * ASP_CHUNK_BYTES;
    const size_t bytes = x->bytes - at < ASP_CHUNK_BYTES ? x->bytes - at : ASP_CHUNK_BYTES;
    char *to = x->to + run * x->to_step + at;
    if (x->from)
        memcpy(to, x->from + run * x->from_step + at, bytes);
    else
        fill_run(b, to, bytes);
}

// Runs longer than a chunk are cut into pieces, shorter ones are done several at a time.
static void move(const blocks *b, asp_worker *w)
{
    int64_t pieces[ASP_MAX_OPERANDS], chunks[ASP_MAX_OPERANDS], all = 0;
    for (int k = 0; k < b->n; k++) {
        pieces[k] = asp_ceil_div((int64_t)b->at[k].bytes, ASP_CHUNK_BYTES);
        chunks[k] = asp_ceil_div(b->outer * pieces[k], asp_runs_per_chunk(b->at[k].bytes));
        all += chunks[k];
    }
    for (int64_t chunk; (chunk = asp_team_next(w, all)) >= 0;) {
        int k = 0;
        for (; chunk >= chunks[k]; k++) chunk -= chunks[k];
        const int64_t each = asp_runs_per_chunk(b->at[k].bytes);
        const int64_t end = asp_min(b->outer * pieces[k], (chunk + 1) * each);
        for (int64_t i = chunk * each; i < end; i++) move_piece(b, &b->at[k], pieces[k], i);
    }
}

// Bytes of one index along dim, with all of inner.
static size_t row_bytes(const asp_tensor *t, int64_t dim)
{
    return (size_t)asp_dim_product(t, dim + 1, t->rank) * asp_element_bytes(t);
}

// n elements along dim: from element `from_at` of x to element to_at of y.  x NULL: filled.
static void add(blocks *b, int64_t dim, const asp_tensor *y, int64_t to_at, const asp_tensor *x,
                int64_t from_at, int64_t n)
{
    const size_t row = row_bytes(y, dim);
    if (n <= 0) return;
    b->outer = asp_dim_product(y, 0, dim);
    b->at[b->n++] = (block){
        .to = (char *)y->data + (size_t)to_at * row,
        .to_step = (size_t)y->dim[dim] * row,
        .from = x ? (const char *)x->data + (size_t)from_at * row : NULL,
        .from_step = x ? (size_t)x->dim[dim] * row : 0,
        .bytes = (size_t)n * row,
    };
}

static void set_fill(blocks *b, asp_dtype dtype, double value)
{
    float f = (float)value;
    int64_t i = (int64_t)value;
    uint8_t bit = value != 0;
    uint16_t half = asp_to_bf16(f);
    b->fill_bytes = (size_t)asp_dtypes[dtype].bytes;
    if (dtype == ASP_F32)
        memcpy(&b->fill, &f, sizeof f);
    else if (dtype == ASP_F64)
        memcpy(&b->fill, &value, sizeof value);
    else if (dtype == ASP_I64)
        memcpy(&b->fill, &i, sizeof i);
    else if (dtype == ASP_BF16)
        memcpy(&b->fill, &half, sizeof half);
    else
        memcpy(&b->fill, &bit, sizeof bit);
}

void asp_slice_fast(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_range_attr *)k->attr)->dim;
    blocks b = {0};
    add(&b, dim, &k->out[0], 0, &k->in[0], k->sizes[0], k->out[0].dim[dim]);
    move(&b, w);
}

void asp_pad_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_pad_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t left = k->sizes[0], n = x->dim[a->dim], right = left + n;
    blocks b = {0};
    set_fill(&b, y->dtype, a->value);
    add(&b, a->dim, y, 0, NULL, 0, left);
    add(&b, a->dim, y, left, x, 0, n);
    add(&b, a->dim, y, right, NULL, 0, y->dim[a->dim] - right);
    move(&b, w);
}

void asp_cat_fast(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    blocks b = {0};
    int64_t at = 0;
    for (int i = 0; i < k->n_in; i++) {
        add(&b, dim, &k->out[0], at, &k->in[i], 0, k->in[i].dim[dim]);
        at += k->in[i].dim[dim];
    }
    move(&b, w);
}

static void split(const asp_kcall *k, asp_worker *w, int64_t dim)
{
    blocks b = {0};
    int64_t at = 0;
    for (int i = 0; i < k->n_out; i++) {
        add(&b, dim, &k->out[i], 0, &k->in[0], at, k->out[i].dim[dim]);
        at += k->out[i].dim[dim];
    }
    move(&b, w);
}

void asp_split_fast(const asp_kcall *k, asp_worker *w)
{
    split(k, w, ((const asp_split_attr *)k->attr)->dim);
}

void asp_split_sizes_fast(const asp_kcall *k, asp_worker *w)
{
    split(k, w, ((const asp_pieces_attr *)k->attr)->dim);
}

void asp_roll_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_roll_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t n = x->dim[a->dim], by = (a->by % n + n) % n;
    blocks b = {0};
    add(&b, a->dim, y, by, x, 0, n - by);
    add(&b, a->dim, y, 0, x, n - by, by);
    move(&b, w);
}

void asp_shift_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_shift_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const int64_t dim = a->dim < 0 ? y->rank - 1 : a->dim, n = x->dim[dim];
    const int64_t by = asp_max(-n, asp_min(n, a->by)); // further than n is all fill
    blocks b = {0};
    set_fill(&b, y->dtype, (double)a->fill);
    if (by >= 0) {
        add(&b, dim, y, 0, x, by, n - by);
        add(&b, dim, y, n - by, NULL, 0, by);
    } else {
        add(&b, dim, y, 0, NULL, 0, -by);
        add(&b, dim, y, -by, x, 0, n + by);
    }
    move(&b, w);
}

// Rows in opposite order.
void asp_flip_fast(const asp_kcall *k, asp_worker *w)
{
    const int64_t dim = ((const asp_dim_attr *)k->attr)->dim;
    const asp_tensor *x = &k->in[0];
    const int64_t n = x->dim[dim], rows = asp_dim_product(x, 0, dim + 1);
    const size_t row = row_bytes(x, dim);
    const char *from = x->data;
    char *to = k->out[0].data;
    for (int64_t i, end; asp_claim(w, rows, asp_runs_per_chunk(row), &i, &end);)
        for (; i < end; i++)
            memcpy(to + (size_t)i * row, from + (size_t)(i - i % n + n - 1 - i % n) * row, row);
}
