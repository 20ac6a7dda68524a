// The plan from the inside.  Inside src/run only.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "kern/rowprog.h"
#include "run/run.h"

// A place in a rank's memory; no operand is at a negative one.
#define ASP_NOWHERE (-1)
// The location of the steps that sum gradients over ranks.
#define ASP_GRADIENTS_LOC "gradients"

typedef enum asp_step_kind {
    ASP_STEP_KERNEL,
    ASP_STEP_ROWS,
    ASP_STEP_ALL_TO_ALL,
    ASP_STEP_ALL_REDUCE,
    ASP_STEP_ROTATE, // begins a rotation
    ASP_STEP_AWAIT   // ends the oldest one that has begun
} asp_step_kind;

// One entry of the step program.
typedef struct asp_step {
    asp_step_kind kind;
    const char *op, *loc; // for messages and profiles; on the plan's arena
    bool backward;
    asp_kernel *fn;             // KERNEL
    const asp_kcall *call;      // KERNEL, exchanges: shapes; data is bound when it runs
    const asp_rowprog *program; // ROWS
    int overwrites; // KERNEL, ALL_REDUCE: operand whose memory the first result may take; -1: none
    int n_places;
    int64_t *places; // KERNEL: operands, then results; ROWS: by slot; exchanges: operand, result
    int64_t work, work_bytes;
    double flops;
    asp_cost_class cost;
    int64_t touched_bytes; // of its operands and results
} asp_step;

static inline bool asp_step_is_exchange(const asp_step *s)
{
    return s->kind != ASP_STEP_KERNEL && s->kind != ASP_STEP_ROWS;
}

struct asp_plan {
    asp_arena arena; // owns everything
    asp_run_options options;
    int64_t ranks;
    asp_dtype dtype;
    ASP_VEC(asp_plan_param) params;
    ASP_VEC(asp_plan_input) inputs;
    ASP_VEC(asp_step) steps;
    int64_t slab_count;
    int64_t slab_offset[4]; // by asp_slab; ASP_NOWHERE without optimizer
    int64_t arena_offset;   // where the arena starts in the rank's memory
    int64_t loss;           // place of the loss
    asp_plan_report report;
    asp_choice choice; // n = 0: nothing was chosen
};

// While the plan is made.  A storage is a piece of memory that several values may share (views).
typedef struct asp_storage {
    asp_mem_kind kind;
    int64_t bytes;
    int64_t place;        // in the rank's memory, once known
    uint32_t first, last; // steps
    bool lives;           // read or written by a step
    uint32_t moved;       // lives in this storage instead, which it overwrites; 0 = in its own
    const char *loc, *op;
} asp_storage;

typedef struct asp_planner {
    asp_ctx *cx;
    asp_graph *g;
    asp_arena scratch;
    asp_plan *plan;
    uint32_t *storage_of;           // by value; 0 = none: a temporary of a row program
    ASP_VEC(asp_storage) storages;  // 0 unused
    ASP_VEC(uint32_t) step_storage; // storages of each step's places, in order of the steps
    ASP_VEC(uint32_t) step_work;    // storage of each step's scratch; 0 = none
    ASP_VEC(asp_node) rotations;    // begun; those before n_awaited are awaited
    uint32_t n_awaited;
} asp_planner;

asp_status asp_planner_tensor(asp_planner *p, asp_val v,
                              asp_tensor *out_tensor); // shape at plan time; data NULL
// The storage that this one's values lie in: itself, or the one it overwrites.
uint32_t asp_planner_home(const asp_planner *p, uint32_t storage);
// In this order: memplan.c gives outputs and values storages of their own, program.c makes the
// steps, memplan.c places storages.
asp_status asp_planner_separate_outputs(asp_planner *p);
asp_status asp_planner_assign_storages(asp_planner *p);
asp_status asp_planner_build_steps(asp_planner *p);
asp_step *asp_planner_add_step(asp_planner *p, asp_step_kind kind, asp_node n, const char *op);
void asp_planner_add_place(asp_planner *p, asp_step *s, asp_val v);
// The communicator's form of an exchange with this result.
asp_all_to_all asp_a2a_of(const asp_a2a_attr *a, const asp_tensor *result);
void asp_planner_add_work(asp_planner *p, asp_step *s, int64_t bytes);
// rows.c: the nodes from first on that share its group as one step; gives the node behind them.
asp_status asp_planner_add_group(asp_planner *p, asp_node first, asp_node *out_next);
asp_status asp_planner_place(asp_planner *p);
