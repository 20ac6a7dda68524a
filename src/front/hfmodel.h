// What the families of config.json share while their graphs are built.  Neighbours: front.h (what
// is outside), hfmodel.c, decoder.c and gpt2.c (the layers).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "front/front.h"

typedef struct asp_hf_model {
    asp_graph *g;
    asp_builder b;
    const asp_hf_config *c;
    asp_dtype dtype;
    asp_size B, S;
    asp_val positions; // i64[S]
    int64_t layer;     // being built
    int64_t site;      // of the next dropout: each has random numbers of its own
} asp_hf_model;

// The parameter that is this part of the model, or of the layer being built; none when the model
// has none.  Nodes that follow are located there.
asp_val asp_hf_parameter(asp_hf_model *m, asp_hf_part part);
// x w^T + b of the weight's part, whose bias, if there is one, is the next part.
asp_val asp_hf_linear(asp_hf_model *m, asp_val x, asp_hf_part weight);
asp_val asp_hf_activate(asp_hf_model *m, asp_val x);
asp_val asp_hf_dropout(asp_hf_model *m, asp_val x, double p);          // x itself when p is 0
asp_val asp_hf_split_heads(asp_hf_model *m, asp_val x, int64_t heads); // (B, S, heads, width)
asp_val asp_hf_swap_heads(asp_hf_model *m, asp_val x); // (B, S, N, H) <-> (B, N, S, H)
// Causal attention of the layer being built: q (B, N, S, H), k and v (B, K, S, H) -> (B, S, N H)
asp_val asp_hf_attention(asp_hf_model *m, asp_val q, asp_val k, asp_val v);
void asp_hf_locate(asp_hf_model *m, const char *what); // the nodes that follow: "layers.3.mlp"

// From token ids (B, S) to the last norm's result (B, S, hidden), and the table that a tied head
// takes.
asp_val asp_hf_decoder(asp_hf_model *m, asp_val ids, asp_val *out_table);
asp_val asp_hf_gpt2(asp_hf_model *m, asp_val ids, asp_val *out_table);
