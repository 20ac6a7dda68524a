// Training: what to do (options), the optimizer, data order, checkpoints, the loop, what is said
// about it. Neighbours: front/ (the model), run/ (plan and ranks), cli/ (who asks).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "front/front.h"
#include "io/tokens.h"
#include "run/compile.h"

// What checkpoints keep of the options, by number: ASP_SETTING_seq, ...
typedef enum asp_setting {
#define SETTING(kind, field, option, change) ASP_SETTING_##field,
#include "train/settings.def"
#undef SETTING
    ASP_SETTING_COUNT
} asp_setting;

// The C type of each kind of option.
#define ASP_OPTION_str const char *
#define ASP_OPTION_i64 int64_t
#define ASP_OPTION_bytes int64_t
#define ASP_OPTION_f64 double
#define ASP_OPTION_flag bool
#define ASP_OPTION_seq int64_t
#define ASP_OPTION_dtype asp_dtype
#define ASP_OPTION_comm asp_comm_backend

// A field a row of train_options.def, the data, and what was chosen.  model NULL: that of the
// checkpoint; seq 0: the longest that fits memory; memory 0: no limit.
typedef struct asp_train_options {
#define OPTION(kind, field, name, arg, standard, help) ASP_OPTION_##kind field;
#include "train/train_options.def"
#undef OPTION
    const char *const *data; // borrowed
    int n_data;
    uint32_t given;       // bit i: the user chose setting i; a resumed run takes the others over
    bool threads_given;   // otherwise asp_train_threads(ranks)
    const char *strategy; // what sp = auto came to in the run that goes on; NULL: to be chosen
} asp_train_options;

// A row of a table of options, whoever's struct it fills.
typedef asp_status asp_option_fn(asp_ctx *cx, const char *name, const char *value, void *out_field);
typedef struct asp_option {
    const char *name, *arg, *standard, *help; // standard NULL: none; arg NULL: a flag
    size_t offset;                            // of the field
    asp_option_fn *read;
} asp_option;
#define ASP_OPTION_ROW(T, kind, field, name, arg, standard, help)               \
    {                                                                           \
        name, arg, standard, help, offsetof(T, field), asp_option_##kind##_read \
    }
asp_option_fn asp_option_str_read, asp_option_i64_read, asp_option_bytes_read, asp_option_f64_read,
    asp_option_flag_read, asp_option_seq_read, asp_option_dtype_read, asp_option_comm_read;

extern const asp_option asp_train_option_rows[]; // of asp_train_options; ends with a NULL name
// Row of this name, or NULL.
const asp_option *asp_option_find(const asp_option *rows, const char *name, size_t n);
asp_status asp_train_options_init(asp_ctx *cx, asp_train_options *out_options); // the standards
// What the user chose; str values are borrowed.
asp_status asp_train_option_choose(asp_ctx *cx, const asp_option *row, const char *value,
                                   asp_train_options *o);
// Fills in threads and checks the rest.
asp_status asp_train_options_settle(asp_ctx *cx, asp_train_options *o);

const char *asp_setting_option(int setting);          // "weight-decay"
int64_t asp_train_threads(int64_t ranks);             // the cores divided by the ranks
int64_t asp_train_world(const asp_train_options *o);  // the ranks of all replicas
int64_t asp_train_batch(const asp_train_options *o);  // sequences of one replica
const char *asp_train_sp(const asp_train_options *o); // --sp, or what auto came to before
// Tokens of a chunk that --tile says; 0: off, -1: auto, -2: it says nothing.
int64_t asp_train_tile(const asp_train_options *o);
bool asp_train_half_params(const asp_train_options *o); // --master none
// Numbers and words in range?  Names the option.
asp_status asp_train_check(asp_ctx *cx, const asp_train_options *o);

// ---- what is said -------------------------------------------------------------------------------

// Text for people to `text` and one JSON record a line to `json`; either may be NULL.
typedef struct asp_report {
    FILE *text, *json;
    bool live; // text is a terminal: the step line is rewritten in place
} asp_report;

typedef struct asp_step_report {
    int64_t step, steps, tokens; // of this step
    int64_t targets;             // labels that counted in its loss
    double loss, grad_norm, lr, seconds;
    double exchange_seconds; // in which rank 0 did nothing but exchange and wait for it
    double mfu;              // of the machine's fma rate, as the machine file or the table has it
    int64_t exchanged_bytes, process_bytes;
} asp_step_report;

typedef struct asp_checkpoint asp_checkpoint; // below

typedef struct asp_verify_report {
    int64_t ranks;
    double loss_1, loss_p, loss_rel;
    const char *worst_grad; // name
    double worst_grad_rel;
    bool params_equal; // bit-equal on all ranks after the optimizer step
    double loss_bound, grad_bound;
    bool ok;
} asp_verify_report;

// max_seq: 0 where it was not asked for.
void asp_report_plan(const asp_report *r, const asp_plan *p, const asp_train_options *o,
                     int64_t seq, double compile_ms, int64_t max_seq);
// After the plan: where a resumed run goes on, and what is not as it was.
void asp_report_resume(const asp_report *r, const asp_checkpoint *c, const asp_train_options *o);
void asp_report_step(const asp_report *r, const asp_step_report *s);
void asp_report_verify(const asp_report *r, const asp_verify_report *v);
// predicted against measured: memory of the process, exchanged bytes of a step.
void asp_report_summary(const asp_report *r, const asp_plan *p, double first_loss, double last_loss,
                        int64_t process_bytes, int64_t exchanged_bytes, int64_t offloaded_bytes);
void asp_report_end(const asp_report *r, bool ok);

// ---- planning -----------------------------------------------------------------------------------

// Plans the program at o->seq, or at the longest sequence that fits o->memory when that is 0.  Over
// the budget: refused with the longest S that would fit.  out_seq, out_compile_ms may not be NULL.
asp_status asp_train_plan(asp_ctx *cx, const asp_graph *module, const asp_train_options *o,
                          asp_plan **out_plan, int64_t *out_seq, double *out_compile_ms);
// The longest S, a multiple of P, whose plan takes at most `memory` bytes a rank; 0 when none does.
asp_status asp_train_longest(asp_ctx *cx, const asp_graph *joint, const asp_compile_options *o,
                             int64_t memory, int64_t *out_seq);
// The same to within `slack` of the answer, from a length on that may fit; 0 where it does not.
asp_status asp_train_longer(asp_ctx *cx, const asp_graph *joint, const asp_compile_options *o,
                            int64_t memory, int64_t from, double slack, int64_t *out_seq);
#define ASP_TRAIN_TILE_ROWS 512 // of --tile auto: products run at full rate, a chunk is small
asp_compile_options asp_train_compile_options(const asp_train_options *o, int64_t seq);

// What would make the longest sequence longer, the most first.
#define ASP_MOST_LEVERS 8
typedef struct asp_lever {
    char says[96]; // the options to add
    int64_t seq;   // the longest sequence with them, to within 1 %
} asp_lever;
typedef struct asp_levers {
    int64_t memory, seq; // the longest as things are
    int n;
    asp_lever at[ASP_MOST_LEVERS];
} asp_levers;
// plan: of the longest sequence, seq, as asp_train_plan found it for the options.
asp_status asp_train_levers(asp_ctx *cx, const asp_graph *module, const asp_train_options *o,
                            const asp_plan *plan, int64_t seq, asp_levers *out_levers);
void asp_report_levers(const asp_report *r, const asp_levers *l);

// ---- parts of a step ----------------------------------------------------------------------------

// Fresh parameters from the seed, the same on every rank: normal(0, std), ones or zeros.
void asp_train_initialise(asp_rank *r, const asp_plan *p, asp_team *team, uint64_t seed);
// A program with buffers has no fresh weights: its buffers' values are nowhere.
asp_status asp_train_refuse_buffers(asp_ctx *cx, const asp_plan *p);
// Parameters and buffers from safetensors under their names.
asp_status asp_train_load_weights(asp_ctx *cx, asp_rank *r, const asp_plan *p, const char *path);
// The i-th micro-batch of a run, all replicas' counted: windows of the stream chosen by (seed, i).
// Labels are the tokens themselves.
asp_status asp_train_fill_inputs(asp_ctx *cx, asp_rank *r, const asp_plan *p, const asp_tokens *t,
                                 uint64_t seed, int64_t i);

// How many labels count in the losses of a batch.  The text of a graph that counts them, made once
// from the program; a rank reads it and counts what its inputs hold.  A program whose losses count
// no labels (mean squared error) has all its tokens for targets.
typedef struct asp_targets asp_targets;
asp_status asp_targets_text(asp_arena *a, const asp_graph *module, const asp_train_options *o,
                            const char **out_text);
asp_status asp_targets_open(asp_ctx *cx, const char *text, asp_targets **out_targets);
void asp_targets_close(asp_targets *t); // NULL is allowed
asp_status asp_targets_count(asp_targets *t, asp_ctx *cx, const asp_plan *p, asp_rank *r,
                             int64_t *out_count);

// A step of several micro-batches: the mean of their losses and gradients, each weighted by its
// targets (option weigh = tokens: the loss of all of them at once) or all alike (batches).  Zero it
// to begin.
typedef struct asp_accumulated {
    double loss, weight; // sums so far
    int64_t targets;
} asp_accumulated;
// Behind asp_rank_step; the plan has a slab for sums.
void asp_accumulate(asp_accumulated *a, asp_rank *r, const asp_plan *p, asp_team *team, double loss,
                    int64_t targets, bool by_tokens);
// Gradients become those of the mean.  The mean loss; NaN where nothing counted.
double asp_accumulate_end(const asp_accumulated *a, asp_rank *r, const asp_plan *p, asp_team *team);

// AdamW with decoupled weight decay (Loshchilov & Hutter 2019) on tensors of two or more
// dimensions, after scaling gradients so that their global norm is at most clip (0: no clipping).
typedef struct asp_adamw {
    double lr, beta1, beta2, eps, weight_decay, clip;
    uint64_t seed; // of the run: parameters of bf16 are rounded by it (kern/optim.h)
} asp_adamw;
// Linear warmup, then cosine to a tenth.
double asp_train_lr(const asp_train_options *o, int64_t step);

// ---- checkpoints --------------------------------------------------------------------------------

// folder/step-000040 with config.json (or model.ir), model.safetensors, optimizer.safetensors and
// state.json; appears whole or not at all.
asp_status asp_checkpoint_write(asp_ctx *cx, asp_rank *r, const asp_plan *p, const asp_program *m,
                                const asp_train_options *o, int64_t step, uint64_t data_hash);

// The newest whole checkpoint of a folder.  Texts lie on the arena it was found with.
struct asp_checkpoint {
    const char *folder;      // of the step
    int64_t step;            // steps done
    const char *model;       // in that folder
    const char *const *data; // the files it was trained on
    int n_data;
    const char *data_hash, *model_hash;
    const char *changes; // settings that differ, "" for none
    const char *damaged; // lines about newer ones that are not whole
    uint64_t identity;   // the same on all ranks that found the same
};
// Finds it in o->resume and settles the options: what the user did not set is the checkpoint's.
asp_status asp_checkpoint_find(asp_arena *a, asp_train_options *o, asp_checkpoint *out_checkpoint);
// Is it of this model and data?
asp_status asp_checkpoint_match(asp_arena *a, const asp_checkpoint *c, const asp_train_options *o,
                                const asp_program *m, uint64_t data_hash);
asp_status asp_checkpoint_load(asp_ctx *cx, const asp_checkpoint *c, asp_rank *r,
                               const asp_plan *p);
// Can a checkpoint be written there?  Makes the folder.
asp_status asp_checkpoint_folder(asp_ctx *cx, const char *folder);

// ---- whole commands -----------------------------------------------------------------------------

asp_status asp_train(asp_ctx *cx, const asp_train_options *o, const asp_report *report);
// One step on 1 rank and on P: loss, every gradient, every parameter after the optimizer.
// ASP_ERR_CHECK beyond the bound.
asp_status asp_verify(asp_ctx *cx, const asp_train_options *o, const asp_report *report);
