// One step of a plan in this process, and by how much the process grew: anonymous resident memory
// from before the ranks allocate until after a pass over the program and a walk over the states, as
// an optimizer makes.  Neighbours: ../memory.c, ../trainability.c.  SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "run/run.h"

typedef struct growth {
    int64_t bytes;
    double seconds; // of the pass, of rank 0
    double loss;
} growth;

asp_status growth_of_step(asp_ctx *cx, const asp_plan *p, int threads, growth *out);
