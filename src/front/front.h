// Where models come from: config.json, a folder with weights, graph text, exported PyTorch graphs,
// calls of autosp.h.  Neighbours: io/ (files as plain structs), pass/ (what happens to the graph
// next). SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
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

// The model of a config.json with its loss: inputs input_ids i64[B, S] (role tokens) and labels
// i64[B, S] (role labels, -100 is ignored); position t predicts token t + 1.  Parameters have their
// Hugging Face names.  dtype is f32 or f64.
asp_status asp_front_hf(asp_ctx *cx, const asp_hf_config *c, asp_dtype dtype,
                        asp_graph **out_graph);

// A graph that a user builds or has read through autosp.h (builder.c).
struct asp_model {
    asp_ctx *cx;         // borrowed
    asp_program program; // owned
    asp_builder b;       // appends to program.graph
    uint32_t serial;     // the high half of its values' handles; of one context
    asp_arena text;      // what was given out last
    asp_status failed;   // first failure of building, and its message
    char message[ASP_MESSAGE_BYTES];
};

// What a token id or label may be.
typedef struct asp_id_range {
    int64_t below; // 0 <= id < below; INT64_MAX where nothing is looked up
    bool has_ignored;
    int64_t ignored; // allowed besides
} asp_id_range;
// Of the integer input v: the smallest table or row of logits that its values select from, where
// they reach one through integer ops.  Sizes that are not numbers by env are no bound.
asp_id_range asp_front_id_range(const asp_graph *g, const asp_env *env, asp_val v,
                                asp_arena *scratch);
// The ids that every input of this role ("tokens", "labels") may hold are below this; 0: no bound.
int64_t asp_front_vocab(const asp_graph *g);
// Has every table that is looked up by position (GPT-2's) a row for each position of env's S?
asp_status asp_front_check_positions(asp_ctx *cx, const asp_graph *g, const asp_env *env);
// What typechecking does not see: parameters and inputs have names of their own.
asp_status asp_front_check(asp_ctx *cx, const asp_graph *g);

// An exported PyTorch graph (docs/pytorch-graphs.md): nodes are calls of ATen ops, see aten.def.
// The first output, a scalar, is the loss; floating-point tensors of any width get dtype, whole
// numbers are i64.  The graph keeps the example values of the file's symbols.  file is for
// messages: "file: nodes[7]: node v7, aten.sort.default (layers.0.mlp at mixtral.py:80): ...".
bool asp_front_is_aten(const json_t *json);
asp_status asp_front_aten(asp_ctx *cx, const char *file, const json_t *json, asp_dtype dtype,
                          asp_graph **out_graph);

// The same for a framework that goes on with its own graph: each node of the file has nodes of its
// own, ops that are not in the table are inputs of the graph, and what became of each node is
// remembered.  text: the file, for its hash.  The source outlives the graph's passes, which may
// insert and rewire; nodes keep their places.
typedef struct asp_aten_source asp_aten_source;
// ranks: that the file's graph is split for already; 1: none.
asp_status asp_front_aten_kept(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                               asp_dtype dtype, int64_t ranks, asp_graph **out_graph,
                               asp_aten_source **out_source);
void asp_aten_source_destroy(asp_aten_source *s);
bool asp_aten_wants_whole(const asp_aten_source *s); // the outputs, whole on every rank
// The i-th op that is not in the table: what it is called, for messages; false behind the last.
// Its operands must turn out to be replicable.
bool asp_aten_unknown(const asp_aten_source *s, uint32_t i, const char **out_what,
                      const asp_val **out_operands, uint32_t *out_n);
// What the framework has to change in its graph to have g, which passes made of the one that was
// read: a JSON object (docs/pytorch-graphs.md).
asp_status asp_front_put_edits(asp_ctx *cx, const asp_aten_source *s, asp_graph *g, asp_text *t);

void asp_front_put_aten(asp_text *t); // the ATen overloads that are known, as a table

// path is a config.json, a folder that holds one (and perhaps safetensors), an exported graph
// (*.json) or graph text (*.ir).
asp_status asp_front_load(asp_ctx *cx, const char *path, asp_dtype dtype, asp_program *out_program);
// Graph text from memory, checked; file is for messages.
asp_status asp_front_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                           asp_program *out_program);
void asp_program_fini(asp_program *p);
// An independent copy.
asp_program asp_program_clone(const asp_program *p);
