// The windows of move_rows: which rows of its operand a rank puts where.  Read by inference and by
// the kernel.  Neighbours: sequence.c, kern/ref/sequence.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

// With count rows, at a rank that has n rows of the sequence, from row `start` on:
#define ASP_ROW_MAPS(ROWS)                                                                      \
    ROWS(last, "the last count of its rows, at its place among those of all ranks")             \
    ROWS(first, "the first count of its rows, at its place among those of all ranks")           \
    ROWS(before, "of count rows of all ranks, those of the rank before; 0 where there is none") \
    ROWS(after, "those of the rank behind")                                                     \
    ROWS(behind, "count rows, behind `at` rows and the n own ones")                             \
    ROWS(pick, "row `at` of the sequence, where it is; 0 elsewhere")                            \
    ROWS(begin, "the row, on the first rank; 0 elsewhere")

typedef enum asp_row_map {
#define ROWS(name, doc) ASP_ROWS_##name,
    ASP_ROW_MAPS(ROWS)
#undef ROWS
} asp_row_map;

bool asp_row_map_find(const char *name, asp_row_map *out_map);
