// Where models come from: config.json, a folder with weights, graph text.  Neighbours: io/ (files
// as plain structs), pass/ (what happens to the graph next).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/hfconfig.h"
#include "op/op.h"

// A single-device training program as the user means it.
typedef struct asp_program {
    asp_graph *graph;     // module-level; output "loss"; owned
    bool has_config;      // came from config.json: checkpoints carry one
    asp_hf_config config; // valid with has_config
    const char *weights;  // folder that holds safetensors to start from, or NULL: fresh weights; on
                          // the graph's arena
    int64_t vocab;        // token ids are below this; 0 when the graph does not tell
} asp_program;

// The llama decoder with its loss: inputs input_ids i64[B, S] (role tokens) and labels i64[B, S]
// (role labels, -100 is ignored); position t predicts token t + 1.  Parameters have their Hugging
// Face names.  dtype is f32 or f64.
asp_status asp_front_llama(asp_ctx *cx, const asp_hf_config *c, asp_dtype dtype,
                           asp_graph **out_graph);

// path is a config.json, a folder that holds one (and perhaps safetensors), or graph text (*.ir).
asp_status asp_front_load(asp_ctx *cx, const char *path, asp_dtype dtype, asp_program *out_program);
void asp_program_fini(asp_program *p);
