// From a scheduled joint graph to a running rank: the plan (sizes known, memory exact, kernels
// chosen, nothing executed) and the executor.  Neighbours: pass/ (who made the graph), kern/ and
// comm/ (what runs), train/ (who steps). SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "cost/cost.h"
#include "ir/ir.h"
#include "kern/optim.h"

// ---- what to plan for --------------------------------------------------------------------------

typedef struct asp_run_options {
    asp_env env; // values of S, B
    int threads; // of one rank
    asp_comm_backend backend;
    int64_t replicas; // of the graph's ranks, each with a batch of its own; 0: 1
    bool optimizer;   // two states per parameter besides parameter and gradient
    bool accumulates; // and a sum of gradients: ASP_SLAB_SUM
    bool fuses;       // the program updates each parameter once its gradient is whole; there is no
                      // ASP_SLAB_GRAD
    const char *offload;             // folder for what is away in between, or NULL
    const char *gemm;                // provider, or NULL: the best there is
    const struct asp_choice *choice; // kept by the plan; NULL: none
} asp_run_options;

// ---- the plan ----------------------------------------------------------------------------------

typedef enum asp_mem_kind {
    ASP_MEM_PARAM,
    ASP_MEM_GRAD,
    ASP_MEM_OPTIMIZER,
    ASP_MEM_INPUT,
    ASP_MEM_ACTIVATION, // and other values between ops
    ASP_MEM_WORKSPACE,  // scratch of kernels and of the communicator
    ASP_MEM_KIND_COUNT
} asp_mem_kind;
const char *asp_mem_kind_name(asp_mem_kind k);

// A trained tensor.  The parameter, gradient and optimizer slabs have the same layout: offset is in
// elements from a slab's start.
typedef struct asp_plan_param {
    const char *name, *init;
    double std;
    int64_t count, offset;
    int rank;
    int64_t dim[ASP_MAX_RANK];
} asp_plan_param;

typedef struct asp_plan_input {
    const char *name, *role;
    asp_dtype dtype;
    int rank;
    int64_t dim[ASP_MAX_RANK];
    int batch;             // the dim of the batch's sequences; -1: there is none
    int64_t bytes, offset; // in the rank's memory
} asp_plan_input;

// A value that the program returns beside the loss and gradients.
typedef struct asp_plan_output {
    const char *name;
    asp_dtype dtype;
    int rank;
    int64_t dim[ASP_MAX_RANK]; // whole, or of a rank's part (asp_compile_options.whole_outputs)
    int64_t bytes, offset;     // in the rank's memory
} asp_plan_output;

// One kind of exchange in one step of one rank.
typedef struct asp_plan_exchange {
    asp_comm_op op;
    const char *what; // "forward", "backward", "repeated" (a forward one once more), "gradients"
    int64_t count;
    int64_t bytes; // received from other ranks, by rank 0
} asp_plan_exchange;

typedef struct asp_live {
    const char *loc, *op; // what made it
    int64_t bytes;
    asp_mem_kind kind;
} asp_live;
#define ASP_MAX_LIVE 10

typedef struct asp_plan_report {
    int64_t bytes_by_kind[ASP_MEM_KIND_COUNT]; // activation and workspace: what lives at the peak
    int64_t rank_bytes;                        // all that a rank allocates: slabs, inputs, arena
    int64_t process_bytes; // predicted growth of the process, all its ranks and what they start
    int64_t arena_bytes,
        max_live_bytes;    // height of the arena and the lower bound: the rest is fragmentation
    const char *peak_at;   // "layers.3.mlp: gemm_tn (step 214 of 600)"
    int64_t offload_bytes; // of one rank's file: written once a step, and read once
    int64_t kept_bytes;    // at the peak: made in the forward for the backward
    int64_t tile_rows;     // of a chunk of what is tiled; 0: nothing is
    asp_live largest[ASP_MAX_LIVE]; // at the peak
    int n_largest;
    asp_plan_exchange exchanges[16];
    int n_exchanges;
    double flops;          // of one rank and step
    double repeated_flops; // of these: computed again for the backward
    int n_steps;
} asp_plan_report;

typedef struct asp_plan asp_plan;

// ---- strategies to choose from (choose.c, price.c) ----

// One step of a plan by the models of cost/: the slowest rank's time.
typedef struct asp_price {
    double seconds;
    double exchange_seconds; // of these: copies, messages, and waiting for other ranks
    int64_t exchanges;       // beside those of gradients, which all strategies have
    int64_t received_bytes;  // in these, by rank 0
} asp_price;

#define ASP_CANDIDATE_NAME_BYTES 64
#define ASP_CANDIDATE_WHY_BYTES 200

typedef struct asp_candidate {
    char sp[ASP_CANDIDATE_NAME_BYTES]; // as --sp takes it
    char why[ASP_CANDIDATE_WHY_BYTES]; // why it is none; "": it is one
    asp_price price;
    int64_t rank_bytes;
} asp_candidate;

// What --sp auto weighed for one sequence length.
#define ASP_MAX_CANDIDATES 24
typedef struct asp_choice {
    int n, chosen;
    asp_candidate at[ASP_MAX_CANDIDATES];
} asp_choice;

// The dimension of a type that counts the sequences of a batch, B and nothing else; -1: there is
// none.
int asp_batch_dim(asp_graph *g, const asp_type *t);
// g: a scheduled joint graph (pass/pass.h), which the plan does not keep; outputs named like
// parameters are their gradients.  The plan is immutable and owned by the caller.  Fails when a
// size does not come out (S not divisible, overflow).
asp_status asp_plan_create(asp_ctx *cx, asp_graph *g, const asp_run_options *options,
                           asp_plan **out_plan);
void asp_plan_destroy(asp_plan *p); // NULL is allowed
const asp_plan_report *asp_plan_get_report(const asp_plan *p);
// Of the plan, with its ranks on devices that are linked so.  Nothing runs; the same on all ranks.
asp_price asp_plan_price(const asp_plan *p, const asp_device *d, const asp_links *links);
// How its strategy was chosen; n = 0: it was given.
const asp_choice *asp_plan_get_choice(const asp_plan *p);
int64_t asp_plan_ranks(const asp_plan *p); // of a replica
int64_t asp_plan_replicas(const asp_plan *p);
int64_t asp_plan_world(const asp_plan *p);   // the ranks of all replicas
asp_dtype asp_plan_dtype(const asp_plan *p); // of gradients, states, and the loss
// Of a slab: the same, but for parameters of bf16.
asp_dtype asp_plan_slab_dtype(const asp_plan *p, asp_slab slab);
const asp_env *asp_plan_env(const asp_plan *p); // the sizes that it was made for
int asp_plan_n_params(const asp_plan *p);
const asp_plan_param *asp_plan_get_param(const asp_plan *p, int i);
int64_t asp_plan_slab_count(const asp_plan *p); // elements of a slab, padding included
bool asp_plan_fuses_optimizer(const asp_plan *p);
int asp_plan_n_inputs(const asp_plan *p);
const asp_plan_input *asp_plan_get_input(const asp_plan *p, int i);
int asp_plan_n_outputs(const asp_plan *p);
const asp_plan_output *asp_plan_get_output(const asp_plan *p, int i);
// Of the list of steps: equal on ranks that may meet.  cx: the calling rank's.
uint64_t asp_plan_hash(asp_ctx *cx, const asp_plan *p);
void asp_plan_print(const asp_plan *p, asp_text *t); // one line a step
// What lives when: JSON {steps, values}, or an SVG picture of the arena over time.
void asp_plan_put_timeline(const asp_plan *p, bool picture, asp_text *t);

// ---- a rank ------------------------------------------------------------------------------------

typedef struct asp_rank asp_rank;

// Allocates the rank's memory (checked; parameters, gradients and states are zero).  plan, comm and
// team are borrowed.  comm: of the plan's world; neighbours are the ranks of a replica.
asp_status asp_rank_create(asp_ctx *cx, const asp_plan *plan, asp_comm *comm, asp_team *team,
                           asp_rank **out_rank);
void asp_rank_destroy(asp_rank *r); // NULL is allowed
// Goes on with another plan of the same program (other sizes): parameters, gradients and states
// stay, inputs are to be filled again.
asp_status asp_rank_replan(asp_rank *r, const asp_plan *plan);

// Behind those of autosp.h: the sum over micro-batches so far.
#define ASP_SLAB_SUM ((asp_slab)4)
#define ASP_SLABS 5

// slab_count elements; GRAD only without options.fuses, M and V only with options.optimizer, SUM
// with options.accumulates
void *asp_rank_slab(asp_rank *r, asp_slab slab);
void *asp_rank_input(asp_rank *r, int i); // the i-th input's memory: whole on every rank

const void *asp_rank_output(const asp_rank *r, int i); // the i-th output's, after a step

// What random ops draw from: the same on all ranks, another step each time.  0 and 0 unless set.
void asp_rank_seed(asp_rank *r, uint64_t seed, uint64_t step);

// One forward and backward pass over the inputs; gradients are summed over ranks.  Collective.  The
// first one of a plan begins with a comparison: sizes, inputs and parameters that are not those of
// the other ranks end all with the same message, before anything is exchanged (inputs: of the other
// ranks of the replica).
asp_status asp_rank_step(asp_rank *r, double *out_loss);

// With options.fuses: the numbers of the next steps' updates (until they are given, parameters
// stay as they are), and the global norm of the last step's gradients.
void asp_rank_update_by(asp_rank *r, const asp_adamw_step_args *args);
double asp_rank_gradient_norm(const asp_rank *r);

int64_t asp_rank_offloaded(const asp_rank *r); // bytes written and read since it was created
// What a replica brings to the next step, the same on its ranks: loss and gradients of the step are
// the means over replicas, weighted so.  A weight of 0 leaves the replica out.  weight 1 unless
// set.
typedef struct asp_share {
    double weight;
    int64_t targets; // labels that count in its loss; only added up
} asp_share;
void asp_rank_give_share(asp_rank *r, asp_share share);
asp_share asp_rank_shares(const asp_rank *r); // the sums over replicas, of the last step

double asp_rank_exchange_seconds(const asp_rank *r); // waited for in the last asp_rank_step

// The next asp_rank_step is timed, step by step and thread by thread.
asp_status asp_rank_trace(asp_rank *r);
// What runs beside the program belongs to the trace too: from begin (asp_seconds) to now.
void asp_rank_trace_phase(asp_rank *r, const char *name, double begin);
// By op: calls, ms, share, GFLOP/s; where the time went.  Nothing without a trace.
void asp_rank_print_profile(const asp_rank *r, asp_text *t);
// The trace as events of the Trace Event Format, each with a comma and a line of its own.
void asp_rank_put_events(const asp_rank *r, asp_text *t);
