// Which rows of a sequence a rank holds.  n rows are split over `rings` groups of neighbouring
// ranks in contiguous parts that differ by one row at most, and each group's rows over its ranks:
// with one group in such parts too; with several every rank is filled up before the next, so that
// what the ranks of a group hold, put together, has its tail at the end.
// In natural order group g holds part g of `rings`; in zig-zag order parts g and 2 rings - 1 - g of
// 2 rings, one behind the other, so that under a causal mask all groups have equal work.  One group
// (rings = 1) holds everything; as many groups as ranks is a plain ring.
//
// Every rank and group has room for the largest; rows that stand behind the last segment are its
// tail.  Neighbours: kern/ (slices, attention on blocks), comm/ (exchanges), pass/ (who splits).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

// Rows first .. first + n - 1 of what is held are rows at .. at + n - 1 of the sequence.
typedef struct asp_segment {
    int64_t first, n, at;
} asp_segment;

typedef struct asp_rows {
    int n; // segments; none is empty, and they stand one behind the other from row 0 on
    asp_segment seg[2];
} asp_rows;

// All rows of a sequence that is not split.
static inline asp_rows asp_rows_all(int64_t n) { return (asp_rows){n > 0, {{0, n, 0}}}; }

static inline int64_t asp_rows_count(const asp_rows *r)
{
    return (r->n > 0 ? r->seg[0].n : 0) + (r->n > 1 ? r->seg[1].n : 0);
}

// Room of a rank, and of a group: that of its ranks.
static inline int64_t asp_rows_room(int64_t n, int64_t ranks) { return asp_ceil_div(n, ranks); }
static inline int64_t asp_rows_group_room(int64_t n, int64_t ranks, int64_t rings)
{
    return ranks / rings * asp_ceil_div(n, ranks);
}

// What group g of `rings` holds; what a rank of `ranks` holds.
asp_rows asp_rows_of_group(int64_t n, int64_t rings, bool zigzag, int64_t group);
asp_rows asp_rows_of_rank(int64_t n, int64_t ranks, int64_t rings, bool zigzag, int64_t rank);
// Place in the sequence of a row that is held; -1: it is of the tail.
int64_t asp_rows_place(const asp_rows *r, int64_t row);
// The row held of a place in the sequence; -1: not held here.
int64_t asp_rows_find(const asp_rows *r, int64_t place);
// Without the places from `length` on.
asp_rows asp_rows_cut(const asp_rows *r, int64_t length);
// Pairs (query, key) of these rows with key <= query: the work of a block under a causal mask.
int64_t asp_rows_causal_pairs(const asp_rows *queries, const asp_rows *keys);
