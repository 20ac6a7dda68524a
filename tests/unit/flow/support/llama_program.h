// The joint program of a Llama of any depth, op by op as a graph compiler sees it: casts, norms,
// rotations, attention, SwiGLU, loss, and their derivatives.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "flow/remat.h"

typedef struct llama_shape {
    uint32_t layers;
    int64_t tokens, hidden, heads, kv_heads, head, ffn, vocab;    // tokens: of this rank
    int64_t all_tokens;                                           // of all ranks
    int exchange_ranks;                                           // 1: no exchanges
    double gemm_flops, attention_flops, memory_bytes, link_bytes; // a second
    bool weight_gradients;                                        // they take bytes
    bool headless; // ends with the last layer, whose gradient comes from outside
} llama_shape;

// Llama 8B, 8,192 tokens in bf16 on one device of 600 and 400 TFLOP/s and 3 TB/s.
llama_shape llama_8b(uint32_t layers);

// Names of a layer's values, in the order of the program ("layer" 3's "x1": llama_value).
typedef struct llama_program {
    asp_remat_program program;
    const char *const *names;
    uint32_t n_layer_values, first_layer_value;
} llama_program;
llama_program llama_build(asp_arena *a, const llama_shape *s);
