// Fast kernels that move rows of elements of any dtype: permute, repeat, slices, embedding look-up;
// and the two sums that undo such moves.  All are bound by memory: copies of contiguous runs,
// claimed in chunks.  Neighbours: kern.def (rows), ref/shape.c, ref/embedding.c (oracles).
// SPDX-License-Identifier: Apache-2.0
#include "kern/move.h"
#include "base/half.h"
#include "kern/sequence.h"

// ---- permute -----------------------------------------------------------------------------------

// A permutation with dimensions that stay together merged: the result's dims and the operand's step
// along each, in elements.
typedef struct walk {
    int rank;
    int64_t dim[ASP_MAX_RANK], step[ASP_MAX_RANK];
} walk;

static walk walk_of(const asp_tensor *x, const asp_permute_attr *a)
{
    walk w = {0};
    for (uint32_t d = 0; d < a->perm.n; d++) {
        const int64_t from = a->perm.at[d], size = x->dim[from];
        const int64_t step = asp_dim_product(x, from + 1, x->rank);
        if (size == 1) continue;
        if (w.rank && w.step[w.rank - 1] == step * size) {
            w.dim[w.rank - 1] *= size;
            w.step[w.rank - 1] = step;
        } else {
            w.dim[w.rank] = size;
            w.step[w.rank++] = step;
        }
    }
    if (w.rank == 0) w = (walk){1, {1}, {1}};
    return w;
}

// Element of the operand where run number i of the result begins.
static int64_t run_start(const walk *p, int64_t i)
{
    int64_t at = 0;
    for (int d = p->rank - 2; d >= 0; d--) {
        at += i % p->dim[d] * p->step[d];
        i /= p->dim[d];
    }
    return at;
}

#define STRIDED(T)                                                         \
    static void strided_##T(T *to, const T *from, int64_t n, int64_t step) \
    {                                                                      \
        for (int64_t i = 0; i < n; i++) to[i] = from[i * step];            \
    }
STRIDED(uint8_t)
STRIDED(uint16_t)
STRIDED(uint32_t)
STRIDED(uint64_t)

static void copy_run(char *to, const char *from, int64_t n, int64_t step, size_t bytes)
{
    if (step == 1) {
        memcpy(to, from, (size_t)n * bytes);
        return;
    }
    void *t = to;
    const void *f = from;
    if (bytes == 8)
        strided_uint64_t(t, f, n, step);
    else if (bytes == 4)
        strided_uint32_t(t, f, n, step);
    else if (bytes == 2)
        strided_uint16_t(t, f, n, step);
    else
        strided_uint8_t(t, f, n, step);
}

void asp_permute_fast(const asp_kcall *k, asp_worker *w)
{
    const walk p = walk_of(&k->in[0], k->attr);
    const size_t bytes = asp_element_bytes(&k->in[0]);
    const int64_t n = p.dim[p.rank - 1], step = p.step[p.rank - 1];
    const int64_t runs = asp_tensor_count(&k->out[0]) / n;
    const char *from = k->in[0].data;
    char *to = k->out[0].data;
    for (int64_t i, end; asp_claim(w, runs, asp_runs_per_chunk((size_t)n * bytes), &i, &end);)
        for (; i < end; i++)
            copy_run(to + (size_t)(i * n) * bytes, from + (size_t)run_start(&p, i) * bytes, n, step,
                     bytes);
}

// ---- repeat, slices, look-up -------------------------------------------------------------------

void asp_repeat_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_repeat_attr *a = k->attr;
    const asp_tensor *x = &k->in[0];
    const size_t run = (size_t)asp_dim_product(x, a->dim + 1, x->rank) * asp_element_bytes(x);
    const int64_t runs = asp_dim_product(x, 0, a->dim + 1) * a->times;
    const char *from = x->data;
    char *to = k->out[0].data;
    for (int64_t i, end; asp_claim(w, runs, asp_runs_per_chunk(run), &i, &end);)
        for (; i < end; i++) memcpy(to + (size_t)i * run, from + (size_t)(i / a->times) * run, run);
}

// The fast forms of ref/shape.c's: whole runs of what stands inside of dim.  A fill is rare and
// small; it is left to the reference kernel.
typedef struct part_walk {
    asp_part part;  // cut to the items there are; at: of the first
    bool scattered; // it is not one stretch
    int64_t outer, room, n, run_bytes;
} part_walk;

static part_walk part_walk_of(const asp_kcall *k, const asp_tensor *local, int64_t length)
{
    const asp_part_attr *a = k->attr;
    ASP_CHECK(k->ranks % a->ranks == 0); // of all ranks, or of each group alike
    int64_t of = asp_size_at(k, 0) ? asp_size_at(k, 0) : length;
    const asp_rows held = asp_rows_of_rank(of, a->ranks, a->rings, a->zigzag, k->rank % a->ranks);
    const asp_rows cut = asp_rows_cut(&held, length);
    part_walk p = {.part = {cut.seg[0].at, asp_rows_count(&cut)},
                   .scattered = cut.n > 1,
                   .outer = asp_dim_product(local, 0, a->dim),
                   .room = local->dim[a->dim],
                   .n = length,
                   .run_bytes = asp_dim_product(local, a->dim + 1, local->rank) *
                                (int64_t)asp_element_bytes(local)};
    return p;
}

void asp_shard_slice_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_part_attr *a = k->attr;
    const part_walk p = part_walk_of(k, &k->out[0], k->in[0].dim[a->dim]);
    if ((a->fill != INT64_MIN && a->fill != 0) || p.scattered) {
        asp_shard_slice_ref(k, w);
        return;
    }
    const char *from = k->in[0].data;
    char *to = k->out[0].data;
    const int64_t valid = asp_min(p.part.n, p.room);
    for (int64_t i, end;
         asp_claim(w, p.outer, asp_runs_per_chunk((size_t)(p.room * p.run_bytes)), &i, &end);)
        for (; i < end; i++) {
            char *row = to + i * p.room * p.run_bytes;
            const char *whole = from + i * p.n * p.run_bytes;
            memcpy(row, whole + p.part.at * p.run_bytes, (size_t)(valid * p.run_bytes));
            const int64_t last = asp_min(p.n - 1, p.part.at + asp_max(0, valid - 1));
            if (a->fill == 0)
                memset(row + valid * p.run_bytes, 0, (size_t)((p.room - valid) * p.run_bytes));
            for (int64_t j = valid; a->fill != 0 && j < p.room; j++)
                memcpy(row + j * p.run_bytes, whole + last * p.run_bytes, (size_t)p.run_bytes);
        }
}

void asp_shard_pad_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_part_attr *a = k->attr;
    const part_walk p = part_walk_of(k, &k->in[0], k->out[0].dim[a->dim]);
    if (p.scattered) {
        asp_shard_pad_ref(k, w);
        return;
    }
    const char *from = k->in[0].data;
    char *to = k->out[0].data;
    const size_t all = (size_t)(p.n * p.run_bytes), kept = (size_t)(p.part.n * p.run_bytes);
    const size_t at = (size_t)(p.part.at * p.run_bytes);
    for (int64_t i, end; asp_claim(w, p.outer, asp_runs_per_chunk(all), &i, &end);)
        for (; i < end; i++) {
            char *row = to + (size_t)i * all;
            memset(row, 0, all);
            memcpy(row + (kept ? at : 0), from + i * p.room * p.run_bytes, kept);
        }
}

void asp_mask_tail_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_part_attr *a = k->attr;
    const int64_t of = asp_size_at(k, 0) ? asp_size_at(k, 0) : k->out[0].dim[a->dim] * a->ranks;
    const part_walk p = part_walk_of(k, &k->out[0], asp_size_at(k, 1) ? asp_size_at(k, 1) : of);
    const char *from = k->in[0].data;
    char *to = k->out[0].data;
    const size_t kept = (size_t)(p.part.n * p.run_bytes), all = (size_t)(p.room * p.run_bytes);
    for (int64_t i, end; asp_claim(w, p.outer, asp_runs_per_chunk(all), &i, &end);)
        for (; i < end; i++) {
            char *row = to + (size_t)i * all;
            if (from != to) memcpy(row, from + (size_t)i * all, kept);
            memset(row + kept, 0, all - kept);
        }
}

void asp_move_rows_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_rows_map_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const asp_row_window m = asp_row_window_of(k);
    const size_t row = (size_t)asp_dim_product(y, a->dim + 1, y->rank) * asp_element_bytes(y);
    const size_t all = (size_t)y->dim[a->dim] * row, kept = (size_t)m.n * row;
    const char *from = x->data;
    char *to = y->data;
    for (int64_t i, end;
         asp_claim(w, asp_dim_product(y, 0, a->dim), asp_runs_per_chunk(all), &i, &end);)
        for (; i < end; i++) {
            char *at = to + (size_t)i * all;
            memset(at, 0, all);
            if (kept)
                memcpy(at + (size_t)m.to * row, from + (size_t)(i * x->dim[a->dim] + m.from) * row,
                       kept);
        }
}

void asp_embedding_fast(const asp_kcall *k, asp_worker *w)
{
    const int64_t *ids = k->in[0].data;
    const asp_tensor *table = &k->in[1];
    const size_t run = (size_t)table->dim[1] * asp_element_bytes(table);
    const char *from = table->data;
    char *to = k->out[0].data;
    for (int64_t i, end;
         asp_claim(w, asp_tensor_count(&k->in[0]), asp_runs_per_chunk(run), &i, &end);)
        for (; i < end; i++)
            if (asp_kcall_index(k, ids[i], table->dim[0]))
                memcpy(to + (size_t)i * run, from + (size_t)ids[i] * run, run);
}

// ---- sums --------------------------------------------------------------------------------------

// Slices of a group are added in order.
void asp_sum_groups_f32(const asp_kcall *k, asp_worker *w)
{
    const asp_repeat_attr *a = k->attr;
    const asp_tensor *y = &k->out[0];
    const int64_t inner = asp_dim_product(y, a->dim + 1, y->rank),
                  groups = asp_dim_product(y, 0, a->dim + 1);
    const int64_t piece = asp_min(inner, ASP_CHUNK_BYTES / 4), pieces = asp_ceil_div(inner, piece);
    for (int64_t i, end; asp_claim(w, groups * pieces,
                                   asp_runs_per_chunk((size_t)piece * sizeof(float)), &i, &end);)
        for (; i < end; i++) {
            const int64_t group = i / pieces, at = i % pieces * piece;
            const int64_t n = asp_min(piece, inner - at);
            const float *from = (const float *)k->in[0].data + group * a->times * inner + at;
            float *to = (float *)y->data + group * inner + at;
            memcpy(to, from, (size_t)n * sizeof *to);
            for (int64_t t = 1; t < a->times; t++)
                for (int64_t j = 0; j < n; j++) to[j] += from[t * inner + j];
        }
}

// in: dy (..., d), ids (...).  A chunk owns some rows of the table and some columns: it clears them
// and walks all ids in order, so each element is summed in the order of the tokens.
#define GRAD_RANGES 64
#define GRAD_COLS 256

void asp_embedding_grad_f32(const asp_kcall *k, asp_worker *w)
{
    const int64_t *ids = k->in[1].data, n = asp_tensor_count(&k->in[1]);
    float *y = k->out[0].data;
    const int64_t rows = k->out[0].dim[0], d = k->out[0].dim[1];
    const int64_t padding = ((const asp_rows_attr *)k->attr)->padding;
    const int64_t each = asp_ceil_div(rows, GRAD_RANGES), parts = asp_ceil_div(d, GRAD_COLS);
    int64_t chunk;
    while ((chunk = asp_team_next(w, asp_ceil_div(rows, each) * parts)) >= 0) {
        const int64_t first = chunk / parts * each, last = asp_min(rows, first + each);
        const int64_t c = chunk % parts * GRAD_COLS, width = asp_min(GRAD_COLS, d - c);
        for (int64_t r = first; r < last; r++) memset(y + r * d + c, 0, (size_t)width * sizeof *y);
        for (int64_t i = 0; i < n; i++) {
            if (ids[i] < first || ids[i] >= last || ids[i] == padding) continue;
            float *to = y + ids[i] * d + c;
            if (k->in[0].dtype == ASP_BF16) {
                const uint16_t *half = (const uint16_t *)k->in[0].data + i * d + c;
                for (int64_t j = 0; j < width; j++) to[j] += asp_from_bf16(half[j]);
            } else {
                const float *from = (const float *)k->in[0].data + i * d + c;
                for (int64_t j = 0; j < width; j++) to[j] += from[j];
            }
        }
    }
}

// A row of logits in f32 for each thread, where they are bf16.
static int64_t nll_rows_bytes(const asp_tensor *x, int n_threads)
{
    return x->dtype == ASP_BF16 ? n_threads * asp_round_up(x->dim[x->rank - 1], 16) * 4 : 0;
}

// A double for each block of rows (nll_isa.c).
int64_t asp_nll_f32_work(const asp_kcall *k, int n_threads)
{
    const int64_t blocks = asp_ceil_div(asp_tensor_rows(&k->in[0]), 64);
    return asp_round_up(blocks * (int64_t)sizeof(double), 64) +
           nll_rows_bytes(&k->in[0], n_threads);
}

int64_t asp_nll_grad_f32_work(const asp_kcall *k, int n_threads)
{
    return nll_rows_bytes(&k->in[0], n_threads);
}
