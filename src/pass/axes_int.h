// Between the parts of the axes analysis: axes.c (the graph), axes_node.c (one node), atoms.c.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass/axes.h"

// ---- atoms.c -----------------------------------------------------------------------------------

uint32_t asp_atom_new(asp_axes *x, asp_size size);
uint32_t asp_atom_root(const asp_axes *x, uint32_t a);
// Roots that are not refined.
asp_atoms asp_atoms_flat(const asp_axes *x, asp_atoms list);
asp_atoms asp_atoms_join(const asp_axes *x, asp_atoms a, asp_atoms b);
asp_atoms asp_atoms_single(asp_axes *x, uint32_t atom);
// A fresh atom; no atom for size 1.
asp_atoms asp_atoms_fresh(asp_axes *x, asp_size size);
// Makes two lists of equal size the same; false where one cannot be refined to the other.
bool asp_atoms_unify(asp_axes *x, asp_atoms p, asp_atoms q);
// Cuts a list into n consecutive ones of the given sizes, refining where a cut falls inside.
bool asp_atoms_regroup(asp_axes *x, asp_atoms list, uint32_t n, const asp_size *size,
                       asp_atoms *out);

// ---- axes_node.c -------------------------------------------------------------------------------

// Binds the letters of n's rule to what its operands are, and gives its results their axes.
// `starts`: its replicable operands are read too.
asp_node_axes *asp_axes_of_node(asp_axes *x, asp_node n, bool starts);
