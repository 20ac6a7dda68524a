// Passes: one file each, one row each in pass.def; the runner.  A pass takes a graph and edits it.
// Neighbours: pass.def (rows), runner.c, op/op.h (what ops mean), docs/add-a-pass.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cost/cost.h"
#include "op/op.h"

// What the user asked for; read by passes, never written.
typedef struct asp_pass_options {
    int64_t ranks;                          // P >= 1
    const char *sp;                         // "auto", "ulysses", "ring", "hybrid:UxR"
    const char *ac;                         // "none", "default", "sac", "layer" or "budget"
    const char *recompute, *save;           // the user's marks (remat_marks.c); NULL: none
    const struct asp_remat_candidate *keep; // of --ac budget: this choice; NULL: the fastest that
    int64_t budget;                         // ... takes at most so many bytes
    int64_t tile;                           // rows of a chunk of what is tiled; 0: nothing is
    bool whole_outputs; // what is returned beside the loss is whole on every rank
    asp_env env;        // S, B, ...: what sizes are at plan time; empty where nothing is planned
    asp_dtype dtype;    // f32 or f64: of everything; bf16: pass cast has something to do
    bool half_params;   // ... and parameters are bf16 themselves
    bool kept;          // the graph is a framework's: nodes that need not change stay as they are
    const asp_device *device; // one rank's, for prices of --sp auto; NULL: as if measured nowhere
} asp_pass_options;

// One run of one pass.
typedef struct asp_pass {
    asp_ctx *cx;
    asp_arena *scratch; // reset after every pass
    const asp_pass_options *options;
    uint32_t changes; // the pass counts its edits
} asp_pass;

typedef asp_status asp_pass_fn(asp_pass *px, asp_graph *g);

typedef struct asp_pass_info {
    const char *name;
    asp_pass_fn *run;
    const char *doc;
} asp_pass_info;
extern const asp_pass_info asp_passes[]; // ends with a NULL name

#define PASS(name, doc) asp_pass_fn asp_pass_##name;
#include "pass/pass.def"
#undef PASS

// What to print while passes run: after the pass of this name ("all": after each), to text.
typedef struct asp_pass_trace {
    const char *print_after; // NULL: nothing
    asp_text *text;
} asp_pass_trace;

// Runs a pipeline such as "lower,grad,dce".  An unknown name is refused with the list of names.
// With cx->verify_each_pass every result is verified, typechecked, printed, parsed and compared.
// trace may be NULL.
asp_status asp_passes_run(asp_ctx *cx, asp_graph *g, const char *pipeline,
                          const asp_pass_options *options, const asp_pass_trace *trace);

// The pipelines: module graph -> sharded module graph -> joint graph -> scheduled joint graph.
#define ASP_PIPELINE_SHARD "canonicalise,masks,dce,loss,place,shard,dce,check"
#define ASP_PIPELINE_KEPT \
    "canonicalise,masks,grouped,head,loss,place,shard,dce,check" // with options.kept
#define ASP_PIPELINE_JOINT "lower,grad,cse,dce,cast"
#define ASP_PIPELINE_TILE "tile"
#define ASP_PIPELINE_FORWARD "lower,cse,dce,cast" // in its place where nothing is trained
#define ASP_PIPELINE_PLAN "remat,ring,fuse,absorb,dce"

// The name of the value at which the backward starts: the cotangent of the loss.  What depends on
// it is backward.
#define ASP_SEED_NAME "seed"

// What pass remat puts behind the location of a node that computes something again.
#define ASP_AGAIN_SUFFIX ".again"

// Builds what a MODULE node is made of before it; map[v.i] = what replaces its result v.  The node
// stays in the list.
asp_status asp_lower_node(asp_pass *px, asp_graph *g, asp_node n, asp_val *map);

// For passes that rewire many values at once: map[v.i] = the value to read instead of v (none: v
// itself).  Applies to all operands and outputs in one sweep.
void asp_graph_rewire(asp_graph *g, const asp_val *map);
