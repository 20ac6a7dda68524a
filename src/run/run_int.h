// The plan from the inside.  Inside src/run only.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "kern/rowprog.h"
#include "pass/tile.h"
#include "run/run.h"

// A place in a rank's memory; no operand is at a negative one.
#define ASP_NOWHERE (-1)
// What replicas exchange before their gradients: weighted loss, weight, targets.
#define ASP_SHARE_WORDS 3
// The location of the steps that sum gradients over ranks.
#define ASP_GRADIENTS_LOC "gradients"

typedef enum asp_step_kind {
    ASP_STEP_KERNEL,
    ASP_STEP_ROWS,
    ASP_STEP_SCALE,  // gradients by the weight of their replica
    ASP_STEP_UPDATE, // of a parameter by its gradient
    ASP_STEP_ALL_TO_ALL,
    ASP_STEP_ALL_REDUCE,
    ASP_STEP_WEIGH,      // the mean loss of all replicas, and this one's weight in it
    ASP_STEP_ROTATE,     // begins a rotation
    ASP_STEP_AWAIT,      // ends the oldest one that has begun
    ASP_STEP_WRITE_FILE, // begins to write its operand to the rank's file
    ASP_STEP_READ_FILE,  // begins to read it from there
    ASP_STEP_AWAIT_FILE  // ends the oldest of these that has begun
} asp_step_kind;

// One entry of the step program.
typedef struct asp_step {
    asp_step_kind kind;
    const char *op, *loc; // for messages and profiles; on the plan's arena
    bool backward;
    bool everyone;              // ALL_REDUCE, WEIGH: of all replicas, not of one
    asp_kernel *fn;             // KERNEL
    const asp_kcall *call;      // KERNEL, UPDATE, exchanges: shapes; data is bound when it runs
    const asp_rowprog *program; // ROWS
    int overwrites; // KERNEL, ALL_REDUCE: operand whose memory the first result may take; -1: none
    int n_places;
    int64_t *places;  // KERNEL: operands, then results; ROWS: by slot; exchanges: operand, result;
                      // UPDATE: parameter, gradient, both states
    int64_t *strides; // by place, of a loop: bytes from one chunk to the next; NULL: all 0
    int64_t trips;    // runs of one program run: those of its loop, or 1
    int64_t work, work_bytes;
    int64_t carry;   // KERNEL: memory that goes with it through a tile's chunks (kern.h)
    int64_t file_at; // WRITE_FILE, READ_FILE: where in the file; the call's operand says how much
    double flops;    // of one run
    asp_cost_class cost;
    int64_t touched_bytes; // of its operands and results, in one run
} asp_step;

static inline bool asp_step_is_exchange(const asp_step *s)
{
    return s->kind >= ASP_STEP_ALL_TO_ALL && s->kind <= ASP_STEP_AWAIT;
}

// Does the rank's team run it?
static inline bool asp_step_is_of_team(const asp_step *s) { return s->kind <= ASP_STEP_UPDATE; }

// Steps first .. end - 1 run once for each chunk of a tile, chunks first_chunk and the following.
typedef struct asp_loop {
    uint32_t first, end;
    int64_t trips, first_chunk;
} asp_loop;

// What lies in the arena, for reports.
typedef struct asp_plan_block {
    const char *loc, *op;
    asp_mem_kind kind;
    int64_t bytes, offset; // from the arena's start
    uint32_t first, last;  // steps
} asp_plan_block;

struct asp_plan {
    asp_arena arena; // owns everything
    asp_run_options options;
    int64_t ranks, replicas; // ranks of each
    asp_dtype dtype;         // of gradients and states
    asp_dtype param_dtype;   // the same, or bf16
    ASP_VEC(asp_plan_param) params;
    ASP_VEC(asp_plan_input) inputs;
    ASP_VEC(asp_plan_output) outputs;
    ASP_VEC(asp_step) steps;
    ASP_VEC(asp_loop) loops; // in the order of their steps
    ASP_VEC(asp_plan_block) blocks;
    uint32_t peak_step;
    int64_t slab_count;
    int64_t slab_offset[ASP_SLABS]; // by asp_slab; ASP_NOWHERE: there is none
    int64_t arena_offset;           // where the arena starts in the rank's memory
    int64_t loss;                   // place of the loss
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
    bool local;           // holds one chunk of a tile; else whole, and alive for all its chunks
    uint32_t moved;       // lives in this storage instead, which it overwrites; 0 = in its own
    const char *loc, *op;
} asp_storage;

// The chunks being planned: `n` rows each, of a tile that has `rows`, behind `from` rows.
typedef struct asp_chunk {
    uint32_t tile; // 0: none, values are whole
    asp_size rows;
    int64_t n, from;
    bool moves; // one of many: places move on by n rows
} asp_chunk;

// Where a step's place lies in its storage, and how it moves from one chunk to the next.
typedef struct asp_offset {
    int64_t bytes, stride;
    int64_t part; // bytes of it that a chunk touches; 0: the storage whole
} asp_offset;

// The steps of a tile, all its loops.
typedef struct asp_tile_span {
    uint32_t first, last;
} asp_tile_span;

// A parameter whose update is a step of the program, due behind the last node that reads it or
// touches its gradient.
typedef struct asp_due_update {
    uint32_t param, gradient; // storages
    uint32_t next;            // of those due behind the same node, number + 1; 0: none
} asp_due_update;

typedef struct asp_planner {
    asp_ctx *cx;
    asp_graph *g;
    asp_arena scratch;
    asp_plan *plan;
    uint32_t *storage_of;            // by value; 0 = none: a temporary of a row program
    ASP_VEC(asp_storage) storages;   // 0 unused
    ASP_VEC(uint32_t) step_storage;  // storages of each step's places, in order of the steps
    ASP_VEC(asp_offset) step_offset; // of the same
    ASP_VEC(uint32_t) step_work;     // storage of each step's scratch; 0 = none
    ASP_VEC(uint32_t) step_carry;    // storage of what goes through its chunks; 0 = none
    ASP_VEC(uint32_t) step_tile;     // number of its tile in tiles; 0 = none
    ASP_VEC(asp_tile_span) tiles;    // 0 unused
    asp_chunk chunk;
    bool *local;                 // by value: made in a tile, and read nowhere else
    uint32_t *carry_of;          // by value: the storage that its chunks hand on; 0 = none
    ASP_VEC(asp_node) rotations; // begun; those before n_awaited are awaited
    uint32_t n_awaited;
    ASP_VEC(asp_due_update) updates; // by parameter; of options.fuses
    uint32_t *due; // by node: the first that is due behind it, number + 1; 0: none
} asp_planner;

asp_status asp_planner_tensor(asp_planner *p, asp_val v,
                              asp_tensor *out_tensor); // shape at plan time; data NULL
// Sizes of a type now, of a chunk's rows while one is planned.
asp_status asp_planner_dims(asp_planner *p, const asp_type *t, int64_t *out_dim);
uint32_t asp_planner_new_storage(asp_planner *p, asp_mem_kind kind, int64_t bytes, asp_node n);
// The storage that this one's values lie in: itself, or the one it overwrites.
uint32_t asp_planner_home(const asp_planner *p, uint32_t storage);
// In this order: memplan.c gives outputs and values storages of their own, program.c makes the
// steps, memplan.c places storages.
asp_status asp_planner_separate_outputs(asp_planner *p);
asp_status asp_planner_assign_storages(asp_planner *p);
asp_status asp_planner_build_steps(asp_planner *p);
asp_step *asp_planner_add_step(asp_planner *p, asp_step_kind kind, asp_node n, const char *op);
void asp_planner_add_place(asp_planner *p, asp_step *s, asp_val v);
void asp_planner_add_storage(asp_planner *p, asp_step *s, uint32_t storage, asp_offset at);
// The step, or steps, of a node and of those that share its group; gives the node behind them.
asp_status asp_planner_add_node(asp_planner *p, asp_node n, asp_node *out_next);
// The communicator's form of an exchange with this result.
asp_all_to_all asp_a2a_of(const asp_a2a_attr *a, const asp_tensor *result);
void asp_planner_add_work(asp_planner *p, asp_step *s, int64_t bytes);
// rows.c: the nodes from first on that share its group as one step; gives the node behind them.
asp_status asp_planner_add_group(asp_planner *p, asp_node first, asp_node *out_next);
// gradients.c: where sums over ranks and updates stand.  Which updates are due where (behind
// asp_planner_assign_storages); the steps due behind the nodes from first to before end; the steps
// behind all others.
asp_status asp_planner_find_updates(asp_planner *p);
void asp_planner_add_due(asp_planner *p, asp_node first, asp_node end);
void asp_planner_add_last(asp_planner *p);
// offload.c: some of what is kept is written to a file and read again.
void asp_planner_offload(asp_planner *p);
// loops.c: tiles.  What stays inside of each (before storages are assigned); its steps.
asp_status asp_planner_find_local(asp_planner *p);
asp_status asp_planner_add_tile(asp_planner *p, asp_node first, asp_node *out_next);
asp_offset asp_planner_offset(asp_planner *p, asp_val v);
asp_status asp_planner_place(asp_planner *p);

// ---- update.c ----------------------------------------------------------------------------------

// Scratch of an update step of so many elements.
int64_t asp_update_work_bytes(int64_t count);

typedef struct asp_update_run {
    const asp_adamw_step_args *args;
    const asp_optim_kernels *kernels;
    asp_dtype dtype; // of the parameter
    int64_t first;   // where the parameter stands in its slab, in elements
    int64_t count;
    bool decays;
    void *at[4];            // parameter, gradient, both states
    double *squares;        // the scratch
    struct asp_span *spans; // by thread; NULL: not traced
} asp_update_run;
// Updates and gives the sum of the gradient's squares.
double asp_update(asp_team *team, const asp_update_run *u);
