// The edit list of an imported graph, inside.  Neighbours: aten_edit.c (the list), aten_emit.c (one
// node as a call).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "front/aten_int.h"

// `"name": ..., "op": ..., "args": [...], "kwargs": {...}` of node n, a row of emit.def; operand[i]
// is what the framework calls its operand i.  ours: an op of ours where there is one.
asp_status aten_emit(asp_ctx *cx, asp_text *t, asp_graph *g, asp_node n, bool ours,
                     const char *name, const char *const *operand);
void aten_put_size(asp_text *t, const asp_graph *g, asp_size s);
void aten_put_shape(asp_text *t, const asp_graph *g, const asp_type *type);
