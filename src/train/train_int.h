// Shared inside src/train only.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "io/safetensors.h"
#include "train/train.h"

// Every parameter's tensor of the plan, by its name behind a prefix, into a slab.
asp_status asp_train_load_slab(asp_arena *a, asp_rank *r, const asp_plan *p, asp_slab slab,
                               const char *prefix, const asp_safetensors *s);

// ---- seat.c --------------------------------------------------------------------------------

// What a rank works with; made and torn down in its own thread.
typedef struct asp_seat {
    asp_team *team;
    asp_rank *rank;
    double *squares;      // of the gradients, by chunk of the slab; owned
    asp_targets *targets; // counts labels; owned, NULL until somebody opens it
} asp_seat;
// first_cpu: as asp_team_create has it.  After a failure there is nothing to close.
asp_status asp_seat_open(asp_ctx *cx, const asp_plan *p, asp_comm *comm, int64_t threads,
                         int first_cpu, asp_seat *out_seat);
void asp_seat_close(asp_seat *s);
asp_adamw asp_train_adamw(const asp_train_options *o, double lr);
int64_t asp_adamw_chunks(const asp_plan *p); // how many squares
// Before a pass over the program: how it updates parameters, if it does so itself.
void asp_adamw_prepare(const asp_adamw *a, const asp_seat *seat, const asp_plan *p, int64_t step);
// An update from the gradients, unless the program has made it; step counts from 0.  Returns their
// global norm before clipping.
double asp_adamw_step(const asp_adamw *a, const asp_seat *seat, const asp_plan *p, int64_t step);
int64_t asp_train_exchanged(const asp_comm *comm); // bytes received so far

// ---- batches.c -----------------------------------------------------------------------------

// Where the sequences of a run come from.
typedef struct asp_batches {
    const asp_train_options *o;
    const asp_plan *plan;
    const asp_tokens *tokens;
} asp_batches;

// What the micro-batches of a step come to, on all replicas.
typedef struct asp_gathered {
    double loss, exchange_seconds;
    int64_t targets; // on rank 0, and where there are several batches
} asp_gathered;
// Leaves the mean of their gradients.  The seat's targets are open.
asp_status asp_train_gradients(asp_ctx *cx, const asp_batches *b, const asp_seat *seat,
                               asp_comm *comm, int64_t step, asp_gathered *out);
// Can batches of this program be shared out over replicas?
asp_status asp_check_replicas(asp_ctx *cx, const asp_graph *module, const asp_train_options *o);

// ---- compiled.c ----------------------------------------------------------------------------

// What autosp.h calls a compiled program.
struct asp_compiled {
    asp_ctx *cx;               // borrowed
    asp_arena arena;           // owns the texts below
    asp_train_options options; // settled; seq as planned
    asp_program program;       // a copy of the model's; owned
    asp_plan *plan;            // owned
    const asp_id_range *ids;   // by input of the plan
    const char *text, *json, *steps;
    const char *targets; // text of the graph that counts them
};
// Which numbers each input of a plan of the program at this length may hold; on the arena.
const asp_id_range *asp_compiled_id_ranges(const asp_compiled *c, const asp_plan *p, int64_t seq,
                                           asp_arena *a);

// ---- check_inputs.c ------------------------------------------------------------------------

// What is given for an input, of its type: ids in range, segments in order.
asp_status asp_train_check_input(asp_ctx *cx, const asp_plan_input *in, const asp_id_range *ids,
                                 const void *data);

// ---- train_options.c ---------------------------------------------------------------------------

// A dtype that --dtype takes; false: none of that name.
bool asp_train_dtype(const char *word, asp_dtype *out);

// ---- settings.c ----------------------------------------------------------------------------

// `, "name": value` for each row of settings.def.  strategy: what --sp auto came to, or NULL.
void asp_settings_put(asp_text *t, const asp_train_options *o, const char *strategy);
// What o leaves open, from the state of a checkpoint in `folder`; refuses what may not differ.
// *out_changes: what differs and may, as "--lr 0.1 -> 0.2, ..."; on the arena.
asp_status asp_settings_resume(asp_arena *a, const char *folder, const json_t *state,
                               asp_train_options *o, const char **out_changes);

// ---- checkpoint.c --------------------------------------------------------------------------

#define ASP_CHECKPOINT_FILES 2
extern const char *const asp_checkpoint_files[ASP_CHECKPOINT_FILES]; // those with a hash
asp_status asp_checkpoint_hash_file(asp_ctx *cx, const char *path, uint64_t *out_hash);
uint64_t asp_checkpoint_hash_model(asp_arena *a, const asp_program *m);
// The steps of the checkpoints in a folder, newest first.
asp_status asp_checkpoint_steps(asp_arena *a, const char *folder, int64_t **out_steps, int *out_n);
const char *asp_checkpoint_step_folder(asp_arena *a, const char *folder, int64_t step);
