// Where a rank's elements stand in the unsplit tensor, and the random words of a place.  Inside
// kern/ only.  Neighbours: op/random.c (the attributes), base/rows.h, base/philox.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/philox.h"
#include "base/rows.h"
#include "kern/kern_int.h"

#define ASP_DROPOUT_KEY UINT64_C(0x64726f706f7574) // apart from initial weights and data order

// One place where the tensor is split: dim is outer x room x behind here, outer x whole x behind
// there, where the rows are the first of `of` that are split.
typedef struct asp_split_place {
    int64_t dim, outer, room, behind, whole, of;
    asp_rows rows;
} asp_split_place;

typedef struct asp_global_map {
    int rank, n;
    int64_t dim[ASP_MAX_RANK];   // here
    int64_t whole[ASP_MAX_RANK]; // there
    asp_split_place at[ASP_MAX_RANK];
} asp_global_map;

// False where the attributes do not go with the shape of the result.
ASP_INLINE bool asp_global_map_make(const asp_kcall *k, asp_global_map *m)
{
    const asp_dropout_attr *a = k->attr;
    const asp_tensor *y = &k->out[0];
    *m = (asp_global_map){.rank = y->rank, .n = (int)a->dims.n};
    memcpy(m->dim, y->dim, sizeof m->dim);
    memcpy(m->whole, y->dim, sizeof m->whole);
    for (int i = 0; i < m->n; i++) {
        asp_split_place *p = &m->at[i];
        const int64_t parts = a->parts.at[i], part = k->rank / a->stride.at[i] % parts;
        *p = (asp_split_place){.dim = a->dims.at[i],
                               .outer = k->sizes[i],
                               .whole = k->sizes[m->n + i],
                               .of = k->sizes[2 * m->n + i]};
        int64_t row, count;
        if (p->outer < 1 || p->whole < 1 || p->of < p->whole) return false;
        p->room = asp_rows_room(p->of, parts);
        if (asp_mul_overflows(p->outer, p->room, &row) || m->whole[p->dim] % row) return false;
        p->behind = m->whole[p->dim] / row;
        p->rows =
            asp_rows_of_rank(p->of, parts, a->rings.at[i], a->zigzag && a->rings.at[i] > 1, part);
        if (asp_mul_overflows(p->outer, p->whole, &count) ||
            asp_mul_overflows(count, p->behind, &m->whole[p->dim]))
            return false;
    }
    return true;
}

ASP_INLINE asp_global_map asp_global_map_of(const asp_kcall *k)
{
    asp_global_map m;
    ASP_CHECK(asp_global_map_make(k, &m)); // asp_kern_prepare looked
    return m;
}

// Index there of element i here; -1 where it is of the tail.
ASP_INLINE int64_t asp_global_index(const asp_global_map *m, int64_t i)
{
    int64_t at[ASP_MAX_RANK] = {0}, index = 0;
    for (int d = m->rank - 1; d >= 0; d--) {
        at[d] = i % m->dim[d];
        i /= m->dim[d];
    }
    for (int k = 0; k < m->n; k++) {
        const asp_split_place *p = &m->at[k];
        const int64_t j = at[p->dim], row = asp_rows_place(&p->rows, j / p->behind % p->room);
        if (row < 0 || row >= p->whole) return -1;
        at[p->dim] = (j / p->behind / p->room * p->whole + row) * p->behind + j % p->behind;
    }
    for (int d = 0; d < m->rank; d++) index = index * m->whole[d] + at[d];
    return index;
}

ASP_INLINE asp_philox asp_dropout_stream(const asp_kcall *k, int64_t site)
{
    return (asp_philox){k->seed ^ ASP_DROPOUT_KEY, k->step << 32 | (uint64_t)site};
}

// Words below it are dropped: probability p.
ASP_INLINE uint64_t asp_dropout_threshold(double p) { return (uint64_t)(p * 0x1p32 + 0.5); }
ASP_INLINE double asp_dropout_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }
