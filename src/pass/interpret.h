// Runs a small graph on the reference kernels, value by value: to check that a rewriting means what
// was written.  Neighbours: kern/ref/ (what runs), masks.c (who checks).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/kern.h"

// Fills an input's data.
typedef void asp_interpret_fill(void *arg, const asp_node_info *n, const asp_tensor *t);

// Module ops must have been lowered.  Gives every value on the arena: out_vals[v.i].
// ASP_ERR_UNSUPPORTED where an op is not run by a kernel or an index is outside of what it indexes.
asp_status asp_interpret(asp_graph *g, asp_arena *a, const asp_env *env, asp_interpret_fill *fill,
                         void *arg, asp_tensor **out_vals);
