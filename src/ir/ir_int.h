// Shared inside src/ir only.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

// attr.c
bool asp_field_equal(const asp_field *f, const void *a, const void *b);
void *asp_attr_copy(asp_graph *g, asp_op op, const void *attr); // NULL: defaults

// size.c
struct asp_size_table *asp_size_table_create(asp_arena *a);
// The same sizes under the same handles.
struct asp_size_table *asp_size_table_copy(asp_arena *a, const struct asp_size_table *from);
// size_parse.c
// Reads an expression from *s, up to end; moves *s behind it.  what is set to a static text on
// failure.
bool asp_size_parse(asp_graph *g, const char **s, const char *end, asp_size *out_size,
                    const char **out_what);
