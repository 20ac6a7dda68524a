// The public C API of libautosp: the only installed header.  SPDX-License-Identifier: Apache-2.0
//
//   model      a training program for one device: a graph built here, read from text or a file
//   compiled   the same for P ranks at given sizes: memory and exchanges are exact, nothing has run
//   recompute  what to keep for a backward pass and what to compute again, on a plain description
//   call       one op by its kernel, on memory of the caller's
//   trainer    ranks (threads of this process) with their memory: steps, gradients, checkpoints
//
// Functions that can fail return an asp_status; the message of the last failure stands in the
// context.  Outputs are set only on success.  No input makes the library exit or abort.
//
// Objects are opaque and have one owner, who destroys them before what they were made from:
// trainer, compiled, model, context.  A compiled program does not need its model any more.  A
// context and all that was made with it may be used by one thread at a time, different contexts by
// different threads.  Strings given in are copied; strings given out belong to the object they come
// from. A complete program: examples/c-api/train.c; more words: docs/c-api.md.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASP_API __attribute__((visibility("default")))
#define ASP_MUST_USE __attribute__((warn_unused_result))

// 0 is success, 1 is in progress, negative is an error.
typedef enum asp_status {
    ASP_OK = 0,
    ASP_IN_PROGRESS = 1,
    ASP_ERR_NOMEM = -1,       // the machine refused memory
    ASP_ERR_USAGE = -2,       // options or arguments that make no sense together
    ASP_ERR_INPUT = -3,       // a file or a graph from outside is malformed or does not match
    ASP_ERR_SHAPE = -4,       // an op's operands do not fit together
    ASP_ERR_UNSUPPORTED = -5, // well formed, but cannot be proved equal to the single-device
                              // program (or not built yet)
    ASP_ERR_LIMIT = -6,       // does not fit the memory or size given
    ASP_ERR_IO = -7,          // the operating system refused a file
    ASP_ERR_PEER = -8,        // another rank failed, left or disagrees
    ASP_ERR_CHECK = -9        // a verification ran and found a difference
} asp_status;

// One compiler context: error message and limits.  Created and destroyed by the user.
typedef struct asp_ctx asp_ctx;

ASP_API asp_ctx *asp_ctx_create(void);     // NULL when out of memory
ASP_API void asp_ctx_destroy(asp_ctx *cx); // NULL is allowed, here and in all _destroy
// Of the last failure; belongs to cx, valid until the next call.
ASP_API const char *asp_ctx_message(const asp_ctx *cx);
ASP_API const char *asp_status_name(asp_status s); // static text such as "unsupported"
ASP_API const char *asp_version(void);

// ---- models ------------------------------------------------------------------------------------

// A graph under construction, or one that was read.  Building calls return a value, or 0 after a
// failure; the first failure stays with the model: later building calls return 0 too, and whatever
// takes the model returns that failure.  So a chain of calls needs one check at its end.
typedef struct asp_model asp_model;
typedef uint64_t asp_value; // 0 is none; of one model, another one refuses it

// name: letters, digits, '_', '.', as in graph text.
ASP_API ASP_MUST_USE asp_status asp_model_create(asp_ctx *cx, const char *name,
                                                 asp_model **out_model);
// path: a config.json, a folder that holds one (and perhaps *.safetensors, which training then
// starts from), or graph text named *.ir.  dtype: "f32" or "f64", of parameters and activations;
// graph text has its own.
ASP_API ASP_MUST_USE asp_status asp_model_load(asp_ctx *cx, const char *path, const char *dtype,
                                               asp_model **out_model);
// Graph text (docs/ir.md) from memory.  file: a name for messages.
ASP_API ASP_MUST_USE asp_status asp_model_parse(asp_ctx *cx, const char *file, const char *text,
                                                size_t bytes, asp_model **out_model);
ASP_API void asp_model_destroy(asp_model *m);

// A value the user hands in each step.  type: "i64[B, S]": a dtype and sizes, expressions such as
// "S/2" over symbols; S is the length of the sequence, B the batch.  role: "tokens", "labels",
// "positions" or "".
ASP_API asp_value asp_model_input(asp_model *m, const char *name, const char *type,
                                  const char *role);
// A trained tensor.  type: "f32[512, 64]", plain numbers.  init: "normal" (0, std), "ones" or
// "zeros".
ASP_API asp_value asp_model_param(asp_model *m, const char *name, const char *type,
                                  const char *init, double std);
// Any op of the table by name (`autosp docs ops`, docs/ir.md), exchanges included.  attrs: as in
// graph text, "scale = 0.25, causal = true"; NULL or "" for defaults.  in: n operands.  The first
// result.
ASP_API asp_value asp_model_op(asp_model *m, const char *op, const char *attrs, size_t n,
                               const asp_value *in);
// An op whose result type is given and not inferred: input, param, constant, iota.
ASP_API asp_value asp_model_declare(asp_model *m, const char *op, const char *type,
                                    const char *attrs);
// Result i of the op that made v.
ASP_API asp_value asp_model_result(asp_model *m, asp_value v, size_t i);
// The value of this name in the graph (%name); 0 without a failure when there is none.
ASP_API asp_value asp_model_find(asp_model *m, const char *name);
// Where the ops that follow stand in the user's program, as "layers.3.attn": for messages, and the
// number is the block that `ac=layer` keeps or computes again.
ASP_API void asp_model_at(asp_model *m, const char *where);
// Shows v as %name in graph text (with a suffix when the name is taken).
ASP_API void asp_model_name(asp_model *m, asp_value v, const char *name);
// v, a single number, is what training makes small.  Once.
ASP_API void asp_model_loss(asp_model *m, asp_value v);
// The graph is what one of `ranks` ranks runs: sizes are local, exchanges stand in it.  Compile it
// with sp=none.
ASP_API void asp_model_split(asp_model *m, int64_t ranks);

// The first failure of building, its message in the context; ASP_OK when all is well.
ASP_API asp_status asp_model_status(asp_model *m);
// Graph text; belongs to the model, valid until its next call.
ASP_API ASP_MUST_USE asp_status asp_model_text(asp_model *m, const char **out_text);
// "f32[B, S, 512]"; likewise.
ASP_API ASP_MUST_USE asp_status asp_model_type(asp_model *m, asp_value v, const char **out_text);
// The names of all ops: i = 0, 1, ... until NULL.  Static text.
ASP_API const char *asp_op_name(size_t i);

// ---- a framework's own graph -------------------------------------------------------------------

// What a framework has to change in its training graph so that each of P ranks runs its part of it:
// the passes of a compiled program, for hosts that go on with their own compiler.
typedef struct asp_edits asp_edits;

// json: an exported graph (docs/pytorch-graphs.md); file: a name for messages.  dtype: "f32" or
// "f64", what floating-point tensors count as.  sp: as in `autosp plan --sp`; NULL for auto.  Ops
// that are not known are taken where nothing that is split reaches them, and refused elsewhere.
ASP_API ASP_MUST_USE asp_status asp_edits_create(asp_ctx *cx, const char *file, const char *json,
                                                 size_t bytes, const char *dtype, int64_t ranks,
                                                 const char *sp, asp_edits **out_edits);
ASP_API void asp_edits_destroy(asp_edits *e);
// The list, a JSON object; the split program as graph text.
ASP_API const char *asp_edits_json(const asp_edits *e);
ASP_API const char *asp_edits_text(const asp_edits *e);
// As `--sp` takes it: where it was auto, the quickest for the sizes that the file gives as examples
// (on one rank nothing is chosen).
ASP_API const char *asp_edits_strategy(const asp_edits *e);
// Is json the very graph that the list was made for?  After the list was applied it is not.
ASP_API ASP_MUST_USE asp_status asp_edits_fit(const asp_edits *e, const char *json, size_t bytes);
// Is json, the framework's graph after the list was applied, the split program?  Reads it again,
// compares all nodes and proves it anew.
ASP_API ASP_MUST_USE asp_status asp_edits_verify(const asp_edits *e, const char *json,
                                                 size_t bytes);

// Where the rows of a rank's part of n rows stand: out[i] of each of the ceil(n / ranks) it has
// room for, -1 past its end.  rings and zigzag: as the attributes of shard_slice say.
ASP_API void asp_row_places(int64_t n, int64_t ranks, int64_t rings, bool zigzag, int64_t rank,
                            int64_t *out);

// One op of the table (`autosp docs ops`) by its kernel, on memory of the caller's: for frameworks
// whose graphs hold ops of ours.
typedef struct asp_call asp_call;

// attrs: as in graph text.  types: of the n operands, "f32[1, 8, 4096, 64]", plain numbers.
// threads: that work on it, the caller's among them.  rank of ranks: which part of the sequence
// this is, for ops that ask.
ASP_API ASP_MUST_USE asp_status asp_call_create(asp_ctx *cx, const char *op, const char *attrs,
                                                size_t n, const char *const *types, int threads,
                                                int64_t rank, int64_t ranks, asp_call **out_call);
ASP_API void asp_call_destroy(asp_call *c);
// The type of result i; NULL behind the last.
ASP_API const char *asp_call_type(const asp_call *c, size_t i);
// in, out: contiguous arrays of the operands and results, aligned to 64 bytes, none the same as
// another.  seed and step: what random ops draw from.
ASP_API ASP_MUST_USE asp_status asp_call_run(asp_call *c, void *const *in, void *const *out,
                                             uint64_t seed, uint64_t step);

// ---- compiling ---------------------------------------------------------------------------------

// A program for P ranks at given sizes: every byte and exchange is known, nothing has run.
typedef struct asp_compiled asp_compiled;

// options: "seq = 4096, ranks = 2, ac = sac": those of `autosp plan` (docs/cli.md) without their
// dashes, with the same defaults: seq, ranks, threads, sp, links, ac, memory, batch, dtype = bf16
// (or left out: that of the model's tensors, which are f32 where it is given), master, and for
// trainers steps, lr, warmup, clip, weight-decay, seed.  NULL or "" for defaults.  The environment
// is not read.
ASP_API ASP_MUST_USE asp_status asp_model_compile(asp_model *m, const char *options,
                                                  asp_compiled **out_compiled);
ASP_API void asp_compiled_destroy(asp_compiled *c);
// The plan for people, as `autosp plan` prints it; as one JSON record, as `autosp plan --json`
// writes it; and the list of steps of a rank, one a line.
ASP_API const char *asp_compiled_text(const asp_compiled *c);
ASP_API const char *asp_compiled_json(const asp_compiled *c);
ASP_API const char *asp_compiled_steps(const asp_compiled *c);
// Bytes of "rank" (all that one rank takes: the peak), "process", or a kind of the JSON record's
// bytes_by_kind: "parameters", "activations", ...; -1 where there is no such kind.
ASP_API int64_t asp_compiled_bytes(const asp_compiled *c, const char *kind);
ASP_API int64_t asp_compiled_seq(const asp_compiled *c); // S, also where it was asked for as max

// The i-th kind of exchange of a step: what a rank 0 receives.  False behind the last.
typedef struct asp_exchange_info {
    const char *op;   // "all_to_all"
    const char *what; // "forward", "backward", "repeated", "gradients"
    int64_t count, bytes;
} asp_exchange_info;
ASP_API bool asp_compiled_exchange(const asp_compiled *c, size_t i, asp_exchange_info *out_info);

// The i-th parameter or input.  False behind the last.
typedef struct asp_tensor_info {
    const char *name;
    const char *dtype; // "f32"
    const char *role;  // of an input; "" of a parameter
    int64_t bytes;
    int64_t rank;
    int64_t dim[8];
} asp_tensor_info;
ASP_API bool asp_compiled_param(const asp_compiled *c, size_t i, asp_tensor_info *out_info);
ASP_API bool asp_compiled_input(const asp_compiled *c, size_t i, asp_tensor_info *out_info);

// ---- recomputation -----------------------------------------------------------------------------

// What one of `ranks` ranks on this machine does in a second (`autosp bench` measures it): for
// descriptions of programs by FLOPs and bytes.
typedef struct asp_rates {
    double gemm, attention; // FLOPs of products of matrices, of attention
    double memory, link;    // bytes moved, bytes received from other ranks
} asp_rates;
ASP_API ASP_MUST_USE asp_status asp_machine_rates(asp_ctx *cx, int64_t ranks, int threads,
                                                  asp_rates *out_rates);

// What to keep of a joint forward + backward program and what to compute again, on a plain
// description: docs/memory.md has its JSON form.  No graph, no model.
typedef struct asp_recompute asp_recompute;

// file: a name for messages.
ASP_API ASP_MUST_USE asp_status asp_recompute_parse(asp_ctx *cx, const char *file, const char *text,
                                                    size_t bytes, asp_recompute **out_recompute);
ASP_API void asp_recompute_destroy(asp_recompute *r);
// policy: "none", "default", "sac", "layer", "budget" (bytes: the most that the peak may be), "cut"
// (the prices of the description) or NULL: what the description asks for.  Can be asked again.
ASP_API ASP_MUST_USE asp_status asp_recompute_choose(asp_recompute *r, const char *policy,
                                                     int64_t bytes);
// Of the last choice: the i-th value that is kept, in the order of the description; the i-th that
// is computed again, in the order in which that happens.  NULL behind the last.
ASP_API const char *asp_recompute_kept(const asp_recompute *r, size_t i);
ASP_API const char *asp_recompute_again(const asp_recompute *r, size_t i);
// Of the last choice: "peak", "forward_peak", "backward_peak", "kept" (bytes), "ps" (time of what
// is computed again), "cut" (value of the minimum cut, 0 where there was none), "hash" (of what is
// kept: equal on ranks that decide alike); -1 where there is no such number.
ASP_API int64_t asp_recompute_number(const asp_recompute *r, const char *name);
// The last choice for people, and as one JSON record.
ASP_API const char *asp_recompute_text(const asp_recompute *r);
ASP_API const char *asp_recompute_json(const asp_recompute *r);

// ---- training ----------------------------------------------------------------------------------

// P ranks with their memory, waiting for work.  After a failure of a rank (not of an argument) the
// trainer is ended: every later call returns that failure.
typedef struct asp_trainer asp_trainer;

// What a rank holds of each parameter: itself, its gradient of the last step (summed over ranks),
// the optimizer's mean and mean square.
typedef enum asp_slab { ASP_SLAB_PARAM, ASP_SLAB_GRAD, ASP_SLAB_M, ASP_SLAB_V } asp_slab;

// Starts the ranks.  Parameters come from the folder the model was loaded from, or fresh from
// the option seed.
ASP_API ASP_MUST_USE asp_status asp_trainer_create(const asp_compiled *c,
                                                   asp_trainer **out_trainer);
ASP_API void asp_trainer_destroy(asp_trainer *t);
// Fresh parameters from a seed, on all ranks; the optimizer starts anew.
ASP_API ASP_MUST_USE asp_status asp_trainer_fill(asp_trainer *t, uint64_t seed);
// The whole of an input (not a rank's or a replica's part), row by row; kept until given again.
// bytes must be what asp_compiled_input says.  Token ids and labels outside of what the graph looks
// up are refused.
ASP_API ASP_MUST_USE asp_status asp_trainer_input(asp_trainer *t, const char *name,
                                                  const void *data, size_t bytes);
// One forward and backward pass over the inputs.  All inputs must have been given once.
ASP_API ASP_MUST_USE asp_status asp_trainer_step(asp_trainer *t, double *out_loss);
// Sequences of seq tokens from here on: planned, not compiled again, and plans are kept by length.
// Parameters and the optimizer stay; all inputs must be given again.
ASP_API ASP_MUST_USE asp_status asp_trainer_resize(asp_trainer *t, int64_t seq);
// Several steps as one batch.  Adds loss and gradients of the last step to a sum; at the last one
// gradients become those of the mean, each step weighted by its labels that count (option weigh =
// tokens) or all alike (batches), and *out_loss (NULL is allowed) the mean loss.  Needs the option
// accumulate = 2 or more, which sets memory aside; how many steps there are is the caller's.
ASP_API ASP_MUST_USE asp_status asp_trainer_accumulate(asp_trainer *t, bool last, double *out_loss);
// How many labels of the present inputs count in the losses, on all replicas.
ASP_API ASP_MUST_USE asp_status asp_trainer_targets(asp_trainer *t, int64_t *out_targets);
// AdamW on the gradients of the last step.  lr < 0: by the schedule of the options lr, warmup,
// steps.  out_norm (NULL is allowed): the global gradient norm before clipping.
ASP_API ASP_MUST_USE asp_status asp_trainer_update(asp_trainer *t, double lr, double *out_norm);
// Copies one parameter, gradient or state out of rank 0, or into all ranks, in the parameter's
// dtype; bytes must be what asp_compiled_param says.
ASP_API ASP_MUST_USE asp_status asp_trainer_read(asp_trainer *t, asp_slab slab, const char *name,
                                                 void *out_data, size_t bytes);
ASP_API ASP_MUST_USE asp_status asp_trainer_write(asp_trainer *t, asp_slab slab, const char *name,
                                                  const void *data, size_t bytes);
// folder/step-000040 with parameters (*.safetensors), optimizer and state; appears whole or not at
// all.  Loading takes the newest whole one, which must be of this model and these options; after a
// failure to load, fill or load again before the next step.
ASP_API ASP_MUST_USE asp_status asp_trainer_save(asp_trainer *t, const char *folder);
ASP_API ASP_MUST_USE asp_status asp_trainer_load(asp_trainer *t, const char *folder);
ASP_API int64_t asp_trainer_updates(const asp_trainer *t);         // so far
ASP_API int64_t asp_trainer_exchanged_bytes(const asp_trainer *t); // received by rank 0 so far

#ifdef __cplusplus
}
#endif
