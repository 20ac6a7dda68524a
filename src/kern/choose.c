// `where` row by row: each operand is read along the last dim or stands still there; which row is
// found once a row.  Neighbours: kern.def (rows), ref/compare.c (oracle), op/compare.c.
// SPDX-License-Identifier: Apache-2.0
#include "kern/kern_int.h"
#include "kern/move.h"

#define UNIT 16384 // elements that a thread claims at once, about

// Element of operand t where row r of y begins; operands are broadcast from the right.
static int64_t row_start(const asp_tensor *t, const asp_tensor *y, int64_t r)
{
    int64_t at = 0, step = t->rank ? t->dim[t->rank - 1] : 1;
    for (int b = 2; b <= t->rank; b++) {
        const int64_t size = y->dim[y->rank - b], here = r % size;
        r /= size;
        if (t->dim[t->rank - b] != 1) at += here * step;
        step *= t->dim[t->rank - b];
    }
    return at;
}

static bool moves(const asp_tensor *t) { return t->rank > 0 && t->dim[t->rank - 1] != 1; }

static void choose_row(float *y, int64_t n, const uint8_t *c, bool c_moves, const float *a,
                       bool a_moves, const float *b, bool b_moves)
{
    if (!c_moves) {
        const float *x = *c ? a : b;
        const bool x_moves = *c ? a_moves : b_moves;
        for (int64_t i = 0; i < n; i++) y[i] = x[x_moves ? i : 0];
    } else if (a_moves && b_moves) {
        for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : b[i];
    } else if (a_moves) {
        const float other = *b;
        for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : other;
    } else {
        const float taken = *a;
        for (int64_t i = 0; i < n; i++) y[i] = c[i] ? taken : b[b_moves ? i : 0];
    }
}

void asp_where_f32(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *c = &k->in[0], *a = &k->in[1], *b = &k->in[2], *y = &k->out[0];
    const int64_t n = y->rank ? y->dim[y->rank - 1] : 1, rows = asp_tensor_count(y) / n;
    for (int64_t r, end; asp_claim(w, rows, asp_max(1, UNIT / n), &r, &end);)
        for (; r < end; r++)
            choose_row((float *)y->data + r * n, n, (const uint8_t *)c->data + row_start(c, y, r),
                       moves(c), (const float *)a->data + row_start(a, y, r), moves(a),
                       (const float *)b->data + row_start(b, y, r), moves(b));
}
