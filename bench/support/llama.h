// A Llama of given sizes as a joint graph of forward and backward, for benches that plan it under
// many options.  Neighbours: ../budgets.c, ../trainability.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run/compile.h"

typedef struct llama_sizes {
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
} llama_sizes;

// f32, weights apart from the head's.  The graph is the caller's.
asp_status llama_joint(asp_ctx *cx, const llama_sizes *s, const asp_compile_options *o,
                       asp_graph **out_joint);
