// The search for a budget: shared by remat_options.c, remat_chain.c, remat_exact.c, remat_bound.c
// and remat_budget.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "flow/remat_int.h"

typedef ASP_VEC(uint32_t) remat_values;

typedef ASP_VEC(asp_remat_candidate) remat_candidates;

// Emits and simulates one set after the other.
typedef struct remat_trial {
    const asp_remat_program *program;
    remat_emitter *emitter;
    remat_simulator *simulator;
    uint32_t options;            // ASP_REMAT_FUSED, ...
    asp_remat_schedule schedule; // of the last run
    int64_t *live;               // by its steps
} remat_trial;
remat_trial remat_trial_make(asp_arena *a, const asp_remat_program *p, uint32_t options);
asp_status remat_trial_run(asp_ctx *cx, remat_trial *t, const uint32_t *saved, uint32_t n,
                           asp_remat_cost *out_cost);
// ASP_IN_PROGRESS, and no message, where the set cannot be emitted: it would repeat a random op.
asp_status remat_trial_run_quietly(asp_ctx *cx, remat_trial *t, const uint32_t *saved, uint32_t n,
                                   asp_remat_cost *out_cost);

// One way to treat a span.
typedef struct remat_option {
    const uint32_t *kept; // positions in the domains of the span's segments, one after the other
    uint32_t n;
    int64_t bytes; // kept
    int64_t ps;    // repeated
    int64_t need;  // bytes alive while the span runs, beyond what earlier segments keep
} remat_option;

// Segments of these types one after the other, wherever they stand.
typedef struct remat_span {
    uint32_t first, len; // where it was measured
    ASP_VEC(remat_option) options;
    uint32_t *use, n_use; // options that no other beats
} remat_span;

typedef struct remat_search {
    asp_arena *arena;
    asp_arena scratch; // reset by each cut
    remat_graph graph;
    remat_segments *segments;
    remat_trial trial;
    ASP_VEC(asp_remat_candidate) fixed; // the policies, simulated
    remat_values globals;               // what is kept of what belongs to no segment
    uint32_t longest;                   // segments of a span at most
    uint32_t most_beside;               // savable values of a span for points beside the hull
    remat_span **spans, **span_of;      // all; by first segment x longest + length - 1
    uint32_t n_spans;
    uint32_t *position;   // by node: in the span being cut, or NONE
    int64_t *kept_before; // by segment: what those before it keep where nothing is given up
    int64_t *gradients;   // by segment: bytes of gradients made before its window
    uint32_t *list, list_cap;
} remat_search;

// Finds spans and their options.  ASP_IN_PROGRESS: a segment has no choice at all.
asp_status remat_options_find(asp_ctx *cx, remat_search *s);
uint32_t remat_span_value(const remat_search *s, uint32_t first, uint32_t position);
void remat_add_option_values(const remat_search *s, uint32_t first, const remat_option *o,
                             remat_values *out);

// ---- remat_chain.c -------------------------------------------------------------------------

// "With `need` bytes the segments from here on take `ps` more."
typedef struct remat_chain_point {
    int64_t need, ps;
    uint32_t option; // of the span that begins here
    uint32_t len;    // of that span
    uint32_t next;   // point of the segment behind it
} remat_chain_point;
typedef struct remat_chain {
    remat_chain_point **points; // by segment, needs rising and times falling
    uint32_t *n_points;
} remat_chain;
// most: targets beyond it are of no interest.
remat_chain remat_chain_solve(const remat_search *s, int64_t most, uint32_t buckets);
// What point `i` of the first segment keeps.
void remat_chain_values(const remat_search *s, const remat_chain *c, uint32_t i, remat_values *out);

// ---- remat_exact.c -------------------------------------------------------------------------

#define REMAT_EXACT_MOST 16u // values: beyond it the tree is too large

// Values whose keeping may matter, all of them; false where they are too many.
bool remat_exact_candidates(const remat_search *s, remat_values *out);
// All choices among them that no other beats in peak and time.
asp_status remat_exact_find(asp_ctx *cx, remat_search *s, const remat_values *values,
                            remat_candidates *out);

// ---- remat_polish.c ------------------------------------------------------------------------

// Adds what small changes make of the choices.  steps: of ops to be simulated at most.
asp_status remat_polish(asp_ctx *cx, remat_search *s, remat_candidates *all, int64_t steps,
                        bool thorough);

// ---- remat_budget.c ------------------------------------------------------------------------

#define REMAT_EXACT 1u  // branch and bound where the program is small
#define REMAT_SEARCH 2u // segments and the chain where that has not decided
// As asp_remat_frontier_find, by these ways: for tests that compare them.
asp_status remat_frontier_by(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                             uint32_t options, uint32_t ways, asp_remat_frontier *out_frontier);
