// The program as the rules read it: one node a value, and one more for an op with several results
// (its results then are picks of it, as in an FX graph).  Inside flow/ only; contract: remat.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "flow/remat.h"

typedef struct remat_node {
    uint32_t value; // NONE: the op node of an op with several results
    uint32_t op;    // NONE: an input
    asp_remat_class kind;
    uint32_t flags;      // of the value, or of all results together
    int64_t bytes;       // as the rules charge them
    int64_t named_bytes; // of operands that the rule for reductions skips
    bool is_input, fusible, tuple, intensive;
    bool forward;      // an input of the forward, or needed for a forward output
    bool backward;     // depends on a tangent
    uint32_t distance; // to the backward; see remat_graph.c
    uint32_t order;    // among the forward nodes; NONE for the others
    uint32_t first_read, n_reads, first_user, n_users;
} remat_node;

typedef struct remat_graph {
    const asp_remat_program *program;
    remat_node *nodes; // in the order of the program
    uint32_t n;
    uint32_t *reads, *users; // nodes, each once, ascending
    uint32_t *node_of_value; // by value
    uint32_t *by_order;      // forward nodes
    uint32_t n_forward;
    uint32_t *producer; // by value: op, or NONE
} remat_graph;

#define REMAT_FAR 1000000000u // distance of what the backward never reads

// Checks the description first.  Everything lives on the arena.
asp_status remat_graph_build(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                             remat_graph *out_graph);

// Can consumer read producer without its being written to memory?
bool remat_fuses(const remat_node *producer, const remat_node *consumer);

// Which of the bans hold.
typedef struct remat_bans_of {
    bool sac;           // products may be computed again, and sequence-long values written
    bool tables;        // readers of what no trained value goes into are never far
    bool no_shape;      // nothing is banned for where its readers stand or what they are
    bool any_op;        // only what PyTorch calls compute-intensive is banned for what it is
    const bool *spared; // by node: not banned, whatever the rules say; NULL: none
} remat_bans_of;

// What the rules forbid to compute again (by node), and what saving costs (by node).
bool *remat_bans(asp_arena *a, const remat_graph *g, const remat_bans_of *rules);
// The cut with these bans.
asp_status remat_choose_by_rules(asp_ctx *cx, asp_arena *a, const remat_graph *g,
                                 const remat_bans_of *rules, asp_remat_choice *out_choice);
int64_t remat_weight(const remat_graph *g, uint32_t node);

// The cut on nodes; keep and redo by node.
asp_status remat_solve(asp_ctx *cx, asp_arena *a, const remat_graph *g, const int64_t *keep,
                       const int64_t *redo, asp_remat_choice *out_choice);

// The items of most value whose weights are `levels` at most, in floats as PyTorch adds them.
void remat_knapsack(asp_arena *a, const int64_t *weights, const float *values, uint32_t n,
                    int64_t levels, bool *out_in);

// Emitting and simulating one choice after the other: what does not depend on the choice is made
// once.  A schedule is valid until the emitter's next run.
typedef struct remat_emitter remat_emitter;
remat_emitter *remat_emitter_create(asp_arena *a, const asp_remat_program *p);
asp_status remat_emitter_run(asp_ctx *cx, remat_emitter *e, const uint32_t *saved, uint32_t n_saved,
                             asp_remat_schedule *out);
typedef struct remat_simulator remat_simulator;
remat_simulator *remat_simulator_create(asp_arena *a, const asp_remat_program *p);
// live: by step, what is alive at it and what it makes; or NULL.
void remat_simulator_run(remat_simulator *h, const uint32_t *saved, uint32_t n_saved,
                         const asp_remat_schedule *s, uint32_t options, int64_t *live,
                         asp_remat_cost *out_cost);

// One half of a program, for remat_sideways.c.
typedef struct remat_steps {
    const asp_remat_step *steps;
    uint32_t n;
    const int64_t *joins;               // by step: the bytes it makes where it is a loop; else 0
    const uint32_t *first_read, *reads; // by step, n + 1: the written values it reads
    const uint32_t *made_at;            // by value: its step, or NONE
} remat_steps;
typedef struct remat_sideways remat_sideways;
remat_sideways *remat_sideways_create(asp_arena *a, const asp_remat_program *p);
// order: the steps as they run; group: by place in it, equal for those that are one loop, or NONE.
void remat_sideways_run(remat_sideways *w, const remat_steps *in, uint32_t *order, uint32_t *group);

// By node: does the value depend on a trained parameter?  (remat_segments.c)
bool *remat_find_activations(asp_arena *a, const remat_graph *g);

typedef struct remat_segments {
    asp_arena *arena;
    uint32_t n;
    uint32_t *ends;     // by segment but the last: the narrow value it ends with
    uint32_t *of_op;    // by forward op: its segment, or NONE
    uint32_t *window;   // by backward op: the segment whose values it reads
    uint32_t **domain;  // by segment: its nodes, ascending
    uint32_t *n_domain; // of them
    uint32_t *type;     // by segment: equal for equal structure
} remat_segments;
remat_segments *remat_segments_find(asp_arena *a, const remat_graph *g);

const char *remat_name(asp_arena *a, const remat_graph *g, uint32_t node);
