// Where the window of a move_rows call stands on this rank.  Inside kern/ only.  Neighbours:
// op/sequence.h, ref/sequence.c, move.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/ref/ref.h"
#include "op/sequence.h"

// Rows to .. to + n - 1 of the result are rows from .. of the operand; all others are 0.
typedef struct asp_row_window {
    int64_t to, from, n;
} asp_row_window;

// Rows that rank r has of the sequence of the call.
ASP_INLINE asp_part asp_rows_part(const asp_kcall *k, int64_t r)
{
    const asp_rows_map_attr *a = k->attr;
    asp_part p = asp_part_of(k->sizes[0], a->ranks, r);
    p.n = asp_max(0, asp_min(p.n, k->sizes[1] - p.at));
    return p;
}

ASP_INLINE asp_row_window asp_row_window_of(const asp_kcall *k)
{
    const asp_rows_map_attr *a = k->attr;
    const int64_t r = a->ranks == 1 ? 0 : k->rank, c = a->count, at = k->sizes[2];
    const asp_part p = asp_rows_part(k, r);
    const int64_t few = asp_min(c, p.n);
    asp_row_map map = ASP_ROWS_begin;
    ASP_CHECK(asp_row_map_find(a->map, &map));
    asp_row_window w = {0};
    switch (map) {
    case ASP_ROWS_last: w = (asp_row_window){r * c + c - few, p.n - few, few}; break;
    case ASP_ROWS_first: w = (asp_row_window){r * c, 0, few}; break;
    case ASP_ROWS_before: w = (asp_row_window){0, (r - 1) * c, r > 0 ? c : 0}; break;
    case ASP_ROWS_after: w = (asp_row_window){0, (r + 1) * c, r + 1 < a->ranks ? c : 0}; break;
    case ASP_ROWS_behind: w = (asp_row_window){at + p.n, 0, c}; break;
    case ASP_ROWS_pick: w = (asp_row_window){0, at - p.at, at >= p.at && at < p.at + p.n}; break;
    case ASP_ROWS_begin: w = (asp_row_window){0, 0, r == 0}; break;
    }
    return a->back ? (asp_row_window){w.from, w.to, w.n} : w;
}
