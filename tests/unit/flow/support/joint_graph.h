// A joint graph of tests/fixtures/joint-graphs as a recomputation program.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "flow/remat.h"

#include <jansson.h>

typedef struct joint_graph {
    asp_remat_program program;
    asp_remat_value *values; // the program's, to be changed by a test
    json_t *file;            // owned
    int64_t cut;
    bool fused;
} joint_graph;

// Fails the test where the file is not there or malformed.
joint_graph joint_graph_load(asp_arena *a, const char *name);
void joint_graph_free(joint_graph *g);
// "saved", "fw", ... of a policy ("none", "default", "sac", "sac*", "layer").
json_t *joint_graph_expected(const joint_graph *g, const char *policy, const char *key);
