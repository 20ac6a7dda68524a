// A Hugging Face config.json of the llama family as a plain struct, and the names and shapes of its
// tensors.  Neighbours: base/json.h (reading), front/llama.c (who builds the graph),
// train/checkpoint.c (who writes it back).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

typedef struct asp_hf_config {
    int64_t vocab, hidden, layers, heads, kv_heads, head_dim, intermediate, max_positions;
    double rope_theta, rms_eps, initializer_range;
    bool tied; // the head is the embedding table
    bool rope_llama3;
    double rope_factor, rope_low, rope_high; // llama3 scaling; unused without it
    int64_t rope_original;                   // context length of the unscaled model
} asp_hf_config;

// Reads and checks config.json.  Messages name the file, the key (or line and column) and the way
// out.  What would make another model than the one built here is refused; keys without a bearing on
// it are ignored.  heads is a multiple of kv_heads, head_dim even, all sizes are positive and make
// at most 2^50 parameters.
asp_status asp_hf_config_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                               asp_hf_config *out_config);
asp_status asp_hf_config_read(asp_ctx *cx, const char *path, asp_hf_config *out_config);
// Appends a config.json that transformers reads back to the same model.
void asp_hf_config_write(asp_text *t, const asp_hf_config *c);

// One tensor of the model under its Hugging Face name.
typedef struct asp_hf_tensor {
    char name[96];
    int rank;
    int64_t dim[2];
    bool norm; // starts at ones, is not decayed
} asp_hf_tensor;
// The i-th tensor in the order of the forward pass; false behind the last.
bool asp_hf_tensor_at(const asp_hf_config *c, int64_t i, asp_hf_tensor *out_tensor);
