// What a node of a graph takes at the sizes of plan time: bytes and seconds.  Neighbours:
// cost/cost.h (the model), remat.c (who asks).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass/pass.h"

// Bytes of a value; fails where they do not come out as a 64-bit number.
asp_status asp_price_bytes(const asp_pass *px, asp_graph *g, asp_val v, int64_t *out_bytes);
// Of running the node once.  scratch: for the call that is described.
asp_status asp_price_seconds(const asp_pass *px, asp_arena *scratch, asp_graph *g,
                             const asp_device *d, asp_node n, double *out_seconds);
// The device that prices are for: the options', or the table's.
asp_device asp_price_device(const asp_pass *px);
