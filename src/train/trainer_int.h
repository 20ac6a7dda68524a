// Between the parts of a trainer: trainer.c (its user's side), trainer_ranks.c (its ranks').
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/train_int.h"

#include <pthread.h>

typedef struct asp_member {
    asp_trainer *t;
    asp_comm *comm;
    asp_seat seat;
    asp_accumulated sum;
} asp_member;

typedef asp_status asp_command_fn(asp_member *m, asp_ctx *cx);

struct asp_trainer {
    const asp_compiled *c;   // borrowed
    asp_ctx *cx;             // the user's, borrowed
    const asp_plan *plan;    // of the compiled program, or one of plans
    const asp_id_range *ids; // by input
    int64_t seq;
    asp_plans *plans; // of other lengths; owned, NULL until one is asked for
    asp_arena arena;  // of their ids
    int ranks;
    asp_member *members; // owned, by rank
    bool *given;         // owned, by input
    bool has_gradients;
    int64_t updates;

    pthread_t thread; // runs the ranks
    asp_ctx thread_cx;
    asp_status ended_with;

    pthread_mutex_t lock; // of what follows
    pthread_cond_t wake;
    asp_command_fn *command; // NULL: leave
    uint64_t n_posted;
    int n_done; // ranks that did the posted one
    bool failing, ended;

    // What commands take and leave.
    uint64_t seed;
    double lr, loss, norm; // norm: also the mean loss of micro-batches
    int64_t exchanged, targets;
    bool last;
};

// What ranks can be told to do, each on its own thread.
asp_command_fn asp_do_fill, asp_do_load_weights, asp_do_replan, asp_do_step, asp_do_count,
    asp_do_accumulate, asp_do_update;

// Posts a command and waits until all ranks have done it or the trainer has ended.  On the user's
// thread.
asp_status asp_trainer_command(asp_trainer *t, asp_command_fn *f);
// The thread of a trainer, that is given to it: runs the ranks until they are told to leave.
void *asp_trainer_main(void *trainer);
