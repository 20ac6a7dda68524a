// The whole way from a module-level graph to a plan: passes, then sizes, memory, kernels.
// Neighbours: pass/pass.h, run.h. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass/pass.h"
#include "run/run.h"

typedef struct asp_compile_options {
    int64_t ranks, batch, seq; // P, B, S, all of one replica
    int64_t replicas;          // of the P ranks; 0: 1
    int threads;               // of one rank
    int64_t tile;              // rows of a chunk of what is tiled; 0: nothing is
    const char *sp, *ac;       // pass/pass.h; sp "none": the graph is split by hand,
                         // its ranks are P; "mixed": what the cut of pass place prefers, per op
    const char *recompute, *save; // pass/pass.h
    asp_dtype dtype;              // bf16: products and what lives long, of an f32 program
    bool half_params;             // pass/pass.h
    asp_comm_backend backend;
    bool optimizer;
    bool accumulates;    // gradients of micro-batches are added up
    bool fuse_optimizer; // run.h: options.fuses
    const char *offload; // run.h
    bool whole_outputs;  // what the program returns is whole on every rank, not a rank's part
    bool inference;      // no loss, no gradients: what the program returns
    bool skip_sp;     // leave the sequence-parallel passes out (P = 1 only): for tests that compare
    const char *gemm; // provider or NULL
    const char *links; // cost/cost.h; NULL: those of the machine file
    int64_t memory;    // what a rank may take, for sp "auto" and ac "budget"; 0: no limit
    struct asp_smallest *smallest; // ac "budget": one that fits or else the smallest there is, by
                                   // what is known there; NULL: the fastest that fits
    asp_choice *choice; // what sp "auto" weighed, filled by asp_compile_joint and kept by plans
                        // that are made with it; NULL: nobody asks
} asp_compile_options;

// module: a single-device program (front/front.h); not changed.  trace may be NULL.  *out_plan is
// the caller's.
asp_status asp_compile(asp_ctx *cx, const asp_graph *module, const asp_compile_options *options,
                       const asp_pass_trace *trace, asp_plan **out_plan);

// sp "auto": compiles the program under every strategy that there is for so many ranks, prices the
// plans (run.h) at the options' sizes, and gives the joint graph of the quickest that fits, the
// caller's (choose.c).  Fails where none can be compiled.
asp_status asp_compile_choose(asp_ctx *cx, const asp_graph *module,
                              const asp_compile_options *options, asp_choice *out_choice,
                              asp_graph **out_joint);

// The two halves of it, for whoever plans many sizes: everything that does not depend on S, then
// everything that does.  The joint graph is the caller's and is not changed by asp_compile_plan.
asp_status asp_compile_joint(asp_ctx *cx, const asp_graph *module,
                             const asp_compile_options *options, const asp_pass_trace *trace,
                             asp_graph **out_joint);
// With ac "budget" it is the fastest program that takes at most `memory` bytes a rank, or the
// smallest there is where none does: its report says which.
asp_status asp_compile_plan(asp_ctx *cx, const asp_graph *joint, const asp_compile_options *options,
                            const asp_pass_trace *trace, asp_plan **out_plan);

// Which choices of --ac budget are said to be the smallest: found by the first plan that asks, then
// known for all lengths (and graphs of the same form) until they are forgotten.
typedef struct asp_smallest asp_smallest;
asp_smallest *asp_smallest_create(asp_ctx *cx);
void asp_smallest_destroy(asp_smallest *s); // NULL is allowed
void asp_smallest_forget(asp_smallest *s);
uint64_t asp_smallest_hash(const asp_smallest *s); // of what is known; 0: nothing

// Plans of one program by size: compiled once, planned when a size comes for the first time.  Used
// by one thread at a time.
typedef struct asp_plans asp_plans;
asp_status asp_plans_create(asp_ctx *cx, const asp_graph *module,
                            const asp_compile_options *options, asp_plans **out_plans);
void asp_plans_destroy(asp_plans *p); // and its plans; NULL is allowed
// Of sequences of seq tokens, the batch as it was; the plan belongs to p.
asp_status asp_plans_get(asp_plans *p, asp_ctx *cx, int64_t seq, const asp_plan **out_plan);
