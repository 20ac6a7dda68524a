// Maximum flow and minimum cut on plain arrays (Dinic 1970).  Neighbours: pass/place.c and
// flow/remat_network.c, which build networks.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

#define ASP_FLOW_INF INT64_MAX // an edge that no cut may cross

// Lives on one arena; edges are kept in the order in which they were added, and so is every choice
// among equals.
typedef struct asp_flow asp_flow;

asp_flow *asp_flow_create(asp_arena *a);
void asp_flow_reserve(asp_flow *f, uint32_t edges); // a hint: so many will be added
uint32_t asp_flow_add_node(asp_flow *f);            // 0, 1, 2, ...
uint32_t asp_flow_count_nodes(const asp_flow *f);
// capacity >= 0.  Parallel edges are allowed.
void asp_flow_add_edge(asp_flow *f, uint32_t from, uint32_t to, int64_t capacity);

// Solves once.  Finite capacities must sum to less than 2^61 (checked).  A path of infinite edges
// from source to sink is ASP_ERR_UNSUPPORTED; asp_flow_infinite_path then gives its nodes.
asp_status asp_flow_solve(asp_ctx *cx, asp_flow *f, uint32_t source, uint32_t sink,
                          int64_t *out_value);

// After a solve: is v on the source's side of the minimum cut nearest the sink (the largest source
// side: v cannot reach the sink in the residual network), or of the one nearest the source (the
// smallest: v can be reached from the source)?
bool asp_flow_in_largest_source_side(const asp_flow *f, uint32_t v);
bool asp_flow_in_smallest_source_side(asp_flow *f, uint32_t v);

// Nodes from source to sink, at most max; returns their number.
uint32_t asp_flow_infinite_path(const asp_flow *f, uint32_t *out_nodes, uint32_t max);
