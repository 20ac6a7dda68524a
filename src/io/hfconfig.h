// A Hugging Face config.json as a plain struct, and the names and shapes of its tensors.  Families,
// keys and tensors are the rows of hfconfig.def.  Neighbours: base/json.h (reading),
// front/hfmodel.c (who builds the graph), train/checkpoint.c (who writes it back).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

#define ASP_HF_MAX_LAYERS 4096

typedef enum asp_hf_family {
#define FAMILY(type, architecture, layers, windows) ASP_HF_##type,
#include "io/hfconfig.def"
} asp_hf_family;

// Of the feed-forward.
typedef enum asp_hf_act {
    ASP_HF_SILU,
    ASP_HF_GELU,
    ASP_HF_GELU_TANH,
    ASP_HF_RELU,
} asp_hf_act;

// Zeros where a family does not have a thing.
typedef struct asp_hf_config {
    asp_hf_family family;
    asp_hf_act act;
    int64_t vocab, hidden, layers, heads, kv_heads, head_dim, intermediate, max_positions;
    int64_t window;       // keys that a query of a windowed layer sees; 0: there are no such layers
    int64_t query_scalar; // scores are divided by its root; 0: by that of head_dim
    double rope_theta, norm_eps, initializer_range;
    double score_cap, logit_cap; // c tanh(x / c); 0: none
    double attention_dropout, residual_dropout, embedding_dropout;
    bool tied; // the head is the embedding table
    bool attention_bias, mlp_bias;
    bool rope_llama3;
    double rope_factor, rope_low, rope_high; // llama3 scaling; unused without it
    int64_t rope_original;                   // context length of the unscaled model
    uint8_t windowed[ASP_HF_MAX_LAYERS / 8]; // bit of each layer
} asp_hf_config;

// What all models of a family are.
typedef enum asp_hf_trait {
#define TRAIT(name, families) ASP_HF_IS_##name,
#include "io/hfconfig.def"
} asp_hf_trait;
bool asp_hf_is(const asp_hf_config *c, asp_hf_trait trait);
const char *asp_hf_model_type(const asp_hf_config *c);

static inline bool asp_hf_is_windowed(const asp_hf_config *c, int64_t layer)
{
    return c->windowed[layer / 8] >> layer % 8 & 1;
}

// Reads and checks config.json.  Messages name the file, the key (or line and column) and the way
// out.  What would make another model than the one built here is refused; keys without a bearing on
// it are ignored.  heads is a multiple of kv_heads, head_dim even where it is rotated, all sizes
// are positive and make at most 2^50 parameters.
asp_status asp_hf_config_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                               asp_hf_config *out_config);
asp_status asp_hf_config_read(asp_ctx *cx, const char *path, asp_hf_config *out_config);
// Appends a config.json that transformers reads back to the same model.
void asp_hf_config_write(asp_text *t, const asp_hf_config *c);

// ---- tensors -----------------------------------------------------------------------------------

typedef enum asp_hf_part {
#define TENSOR(families, id, where, name, needs, rows, columns, init) ASP_HF_##id,
#include "io/hfconfig.def"
} asp_hf_part;

// One tensor of the model under its Hugging Face name.
typedef struct asp_hf_tensor {
    char name[96];
    int rank;
    int64_t dim[2];
    const char *init; // how it starts: "normal" with std, "ones" or "zeros"
    double std;
} asp_hf_tensor;
// This part of a layer, or of the model; false when the model does not have it.
bool asp_hf_tensor_of(const asp_hf_config *c, asp_hf_part part, int64_t layer,
                      asp_hf_tensor *out_tensor);
// The i-th tensor in the order of the forward pass; false behind the last.
bool asp_hf_tensor_at(const asp_hf_config *c, int64_t i, asp_hf_tensor *out_tensor);
