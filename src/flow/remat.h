// Which forward values to keep for the backward pass and which to compute again, on a plain
// description of a joint forward + backward program: no graph, no op names, so both hosts use it.
//
// Way: describe -> asp_remat_choose (a set of saved values) -> asp_remat_emit (the new order of
// ops)
// -> asp_remat_simulate (exact bytes).  Each value is computed again at most once, just before its
// first backward reader.
// Neighbours: maxflow.h (solver), pass/remat.c (describes a graph and rebuilds it); inside:
// remat_graph.c (readers, distances), remat_rules.c (bans, weights), remat_network.c (the cut),
// remat.c (policies), remat_emit.c, remat_simulate.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

#define ASP_REMAT_NONE UINT32_MAX

// ---- the description -----------------------------------------------------------------------

typedef enum asp_remat_class {
    ASP_REMAT_POINTWISE, // anything cheap without a class of its own
    ASP_REMAT_VIEW,      // the result is an operand's storage in another shape: free
    ASP_REMAT_REDUCTION,
    ASP_REMAT_GEMM,
    ASP_REMAT_ATTENTION,
    ASP_REMAT_COLLECTIVE,
    ASP_REMAT_RANDOM, // repeating it gives other numbers (random ops that replay are POINTWISE)
    ASP_REMAT_CONCAT, // every producer can be fused into it
    ASP_REMAT_PICK,   // one value of a tuple value; ops with several results need none
    ASP_REMAT_OTHER,  // gathers, scatters, scans, softmax, ...
} asp_remat_class;

// Of values.
#define ASP_REMAT_STATIC 1u           // input that lives for the whole run (parameter, buffer)
#define ASP_REMAT_TRAINED 2u          // input whose gradient is wanted
#define ASP_REMAT_TANGENT 4u          // input of the backward pass
#define ASP_REMAT_FORWARD_OUTPUT 8u   // what the forward pass returns
#define ASP_REMAT_BACKWARD_OUTPUT 16u // what the backward pass returns (gradients)
#define ASP_REMAT_TUPLE 32u           // has no storage and cannot be saved; read by PICK ops only
#define ASP_REMAT_SIZE 64u            // a number, not a tensor
#define ASP_REMAT_SEQUENCE 128u       // a dim of it is the sequence: it grows with the context
#define ASP_REMAT_MUST_SAVE 256u      // never computed again (kept if backward needs it at all)
#define ASP_REMAT_MUST_RECOMPUTE 512u // never kept

typedef struct asp_remat_value {
    int64_t bytes; // of this value as read: elements x element size, also for views
    uint32_t root; // the value that owns its storage; itself for an owner
    uint32_t flags;
} asp_remat_value;

typedef struct asp_remat_op {
    asp_remat_class kind;
    bool backward;  // depends on a tangent (or on the loss's seed)
    bool fusible;   // joins neighbours in one pass over memory, and is cheap enough to repeat
    bool absorbs;   // is not fusible itself but reads fused producers without their being written
    bool intensive; // PyTorch calls it compute-intensive (asp_remat_fraction alone reads it)
    int32_t block;  // number of the layer; -1: before, after, or in no layer
    uint32_t first_read, n_reads;     // in reads[]
    uint32_t n_named;                 // the last of them: PyTorch's rule for reductions skips these
    uint32_t first_result, n_results; // in values[]
    int64_t time_ps;                  // of running it once
    int64_t scratch;                  // bytes that are there only while it runs
    int64_t flops;                    // that PyTorch's counter has a formula for; 0: none
} asp_remat_op;

// Values 0 .. n_inputs-1 are inputs; the rest are the ops' results in the order of ops, without
// gaps.  ops is the order of the program: each reads only what stands before it.
typedef struct asp_remat_program {
    const asp_remat_value *values;
    uint32_t n_values, n_inputs;
    const asp_remat_op *ops;
    uint32_t n_ops;
    const uint32_t *reads; // values
    uint32_t n_reads;
    const char *const *names; // of values, for messages; may be NULL
} asp_remat_program;

// ---- choosing ------------------------------------------------------------------------------

typedef enum asp_remat_policy {
    ASP_REMAT_KEEP_ALL, // "none": everything the backward reads
    ASP_REMAT_DEFAULT,  // PyTorch's minimum cut with its bans and weights
    ASP_REMAT_SAC,      // the same without the bans on GEMM ops, on sequence-long values that the
                        // backward would have to write, and on readers far apart of tables that no
                        // trained value goes into; attention and collectives stay banned
    ASP_REMAT_LAYER,    // of each block only what it reads from outside; outside blocks as DEFAULT
} asp_remat_policy;

typedef struct asp_remat_choice {
    const uint32_t *saved; // values, ascending; inputs that the backward reads are among them
    uint32_t n_saved;
    int64_t cut; // value of the minimum cut; 0 where the policy solves none
} asp_remat_choice;

// Fails naming the values when one can be neither kept nor computed again, and when the description
// breaks its rules.  The result lives on the arena.
asp_status asp_remat_choose(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                            asp_remat_policy policy, asp_remat_choice *out_choice);

// PyTorch's memory budget, 0 <= fraction <= 1 of what `default` saves beyond the inputs: 1 is
// `default`, 0 saves the inputs alone.  Between them a knapsack over banned values by bytes and
// FLOPs says which bans fall; it knows neither time nor the peak, and like PyTorch's it may let a
// random op be repeated, which asp_remat_emit then refuses.
asp_status asp_remat_fraction(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                              double fraction, asp_remat_choice *out_choice);

// The bare cut: keep[v] is the price of saving v, redo[v] of computing it again (both >= 0;
// ASP_FLOW_INF: impossible).  An op with several results is repeated as a whole: redo of its first
// result counts once, of the others not at all.  Among equal sets the one nearest the backward.
asp_status asp_remat_cut(asp_ctx *cx, asp_arena *a, const asp_remat_program *p, const int64_t *keep,
                         const int64_t *redo, asp_remat_choice *out_choice);

// Of what is kept: equal on ranks that decide alike.
uint64_t asp_remat_hash(const uint32_t *saved, uint32_t n_saved);

// One program for ranks whose sizes differ: of each value and op the largest bytes and time, so
// that all of them, given the same list, decide alike.  The programs must be equal otherwise.
asp_status asp_remat_join(asp_ctx *cx, asp_arena *a, const asp_remat_program *const *programs,
                          uint32_t n, asp_remat_program *out_program);

// ---- the new program -----------------------------------------------------------------------

typedef struct asp_remat_step {
    uint32_t op;
    bool repeated; // the forward part runs this op too: a clone
} asp_remat_step;

// steps[0 .. n_forward) compute the forward outputs and the saved values; the rest is the backward.
// A backward step reads a saved value (or an input) as the forward left it, any other value from
// the backward part.  Ops that nothing needs are gone.
typedef struct asp_remat_schedule {
    const asp_remat_step *steps;
    uint32_t n_steps, n_forward;
} asp_remat_schedule;

asp_status asp_remat_emit(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                          const uint32_t *saved, uint32_t n_saved, asp_remat_schedule *out);

// ---- what it costs -------------------------------------------------------------------------

#define ASP_REMAT_FUSED 1u        // values inside chains of fusible ops take no bytes
#define ASP_REMAT_KEEP_OUTPUTS 2u // forward outputs live through the backward as well
#define ASP_REMAT_SIDEWAYS 4u // with FUSED: ops that share a source are one loop (remat_sideways.c)

typedef struct asp_remat_cost {
    int64_t saved_bytes;                 // by storage; without inputs
    int64_t forward_peak, backward_peak; // storages alive, those a step makes, and its scratch;
                                         // without inputs
    int64_t peak;                        // the larger
    uint32_t peak_step;                  // the first step that reaches it
    int64_t repeated_ps;
    uint32_t repeated_ops, repeated_gemms, repeated_attentions, repeated_collectives;
} asp_remat_cost;

// A storage lives from the step that makes it to its last reader; saved ones to the last backward
// reader, outputs of the backward to the end.
void asp_remat_simulate(asp_arena *a, const asp_remat_program *p, const uint32_t *saved,
                        uint32_t n_saved, const asp_remat_schedule *s, uint32_t options,
                        asp_remat_cost *out_cost);

// ---- under a budget ------------------------------------------------------------------------

typedef struct asp_remat_candidate {
    const uint32_t *saved; // ascending
    uint32_t n_saved;
    asp_remat_cost cost;
    const char
        *from; // "none", "default", "sac", "layer": that policy; "exact", "chain": the search
} asp_remat_candidate;

// Choices that no other beats in time and peak, the fastest first: peaks fall, times rise.
typedef struct asp_remat_frontier {
    const asp_remat_candidate *at;
    uint32_t n;
    uint32_t n_tried, n_segments;
    bool exact; // every choice was considered
} asp_remat_frontier;

// options: ASP_REMAT_FUSED, ASP_REMAT_KEEP_OUTPUTS.  The fixed policies are among what is tried.
asp_status asp_remat_frontier_find(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                                   uint32_t options, asp_remat_frontier *out_frontier);
// The fastest whose peak is at most `bytes`, or NULL.
const asp_remat_candidate *asp_remat_frontier_best(const asp_remat_frontier *f, int64_t bytes);
// The same in one call; ASP_ERR_LIMIT with the smallest peak there is when none fits.
asp_status asp_remat_budget(asp_ctx *cx, asp_arena *a, const asp_remat_program *p, uint32_t options,
                            int64_t bytes, asp_remat_candidate *out_candidate);
// A lower bound on what any choice repeats, in ps, for each of n budgets (Lagrange's, from cuts at
// many prices): how far an answer can be from the best.  Takes longer than the search.
asp_status asp_remat_bound(asp_ctx *cx, const asp_remat_program *p, uint32_t options,
                           const int64_t *budgets, uint32_t n, double *out_ps);
