// How n items are split over ranks: contiguous parts in rank order whose sizes differ by one at
// most, the longer ones first.  Every rank has room for the longest; what a shorter part leaves of
// it is its tail.  Used wherever something is split: types (op/), exchanges (comm/), slices
// (kern/). SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

typedef struct asp_part {
    int64_t at, n; // first item, number of items
} asp_part;

// Part `rank` of n items over `ranks`.  10 over 4: 0-2, 3-5, 6-7, 8-9.
static inline asp_part asp_part_of(int64_t n, int64_t ranks, int64_t rank)
{
    int64_t each = n / ranks, longer = n % ranks;
    int64_t at = each * rank + (rank < longer ? rank : longer);
    return (asp_part){at, each + (rank < longer)};
}

// Room for the longest part.
static inline int64_t asp_part_room(int64_t n, int64_t ranks)
{
    return n / ranks + (n % ranks != 0);
}
