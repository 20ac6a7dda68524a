// The running half of autosp.h: P ranks as threads that wait for commands.  A thread of the trainer
// runs asp_ranks_run; each rank opens its seat and then walks commands in step with the others. The
// user's thread posts one command at a time and sleeps until all ranks have done it, so between
// calls the ranks are parked and their memory may be read and written from outside.
//
//   user      post fill ......... wait | copy inputs | post step ........ wait | read gradients
//   rank i    open seat, fill .. done -> sleep ......... step .......... done -> sleep
//
// A rank that fails ends the trainer: the others leave, asp_ranks_run returns its status, and every
// later call says so.  Here is the user's side.  Neighbours: trainer_ranks.c (the ranks'),
// compiled.c (the plan), loop.c (the same parts as one run), comm/thread.c.
// SPDX-License-Identifier: Apache-2.0
#include "train/trainer_int.h"

#include <math.h>
#include <stdlib.h>

static asp_status check_alive(asp_trainer *t)
{
    if (!t) return ASP_ERR_USAGE;
    pthread_mutex_lock(&t->lock);
    bool ended = t->ended;
    pthread_mutex_unlock(&t->lock);
    return ended ? asp_fail(t->cx, t->ended_with, "the trainer has ended: %.3900s",
                            t->thread_cx.message)
                 : ASP_OK;
}

static asp_status start(asp_trainer *t)
{
    const asp_compiled *c = t->c;
    t->members = calloc((size_t)t->ranks, sizeof *t->members);
    t->given = calloc((size_t)asp_plan_n_inputs(c->plan) + 1, sizeof *t->given);
    if (!t->members || !t->given) return asp_fail(t->cx, ASP_ERR_NOMEM, "no memory for a trainer");
    for (int i = 0; i < t->ranks; i++) t->members[i].t = t;
    t->seed = (uint64_t)c->options.seed;
    if (pthread_create(&t->thread, NULL, asp_trainer_main, t) != 0) // from here on the lock counts
        return asp_fail(t->cx, ASP_ERR_NOMEM, "the system refused a thread");
    asp_status s = asp_trainer_command(t, c->program.weights ? asp_do_load_weights : asp_do_fill);
    if (s < 0) pthread_join(t->thread, NULL);
    return s;
}

static void free_trainer(asp_trainer *t)
{
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t->members);
    free(t->given);
    asp_plans_destroy(t->plans);
    asp_arena a = t->arena;
    asp_arena_fini(&a);
    free(t);
}

asp_status asp_trainer_create(const asp_compiled *c, asp_trainer **out_trainer)
{
    if (!c) return ASP_ERR_USAGE;
    if (!out_trainer)
        return asp_fail(c->cx, ASP_ERR_USAGE, "there is no place for the trainer: NULL");
    if (c->options.comm != ASP_COMM_thread)
        return asp_fail(c->cx, ASP_ERR_UNSUPPORTED,
                        "comm = %s: ranks of a trainer are threads of this process; `autosp train "
                        "--comm %s` runs processes",
                        asp_comm_backend_name(c->options.comm),
                        asp_comm_backend_name(c->options.comm));
    if (c->options.fuse_optimizer)
        return asp_fail(
            c->cx, ASP_ERR_UNSUPPORTED,
            "fuse-optimizer: a trainer keeps gradients for its user, and these are gone "
            "when a step ends; `autosp train --fuse-optimizer` needs none");
    asp_trainer *t = calloc(1, sizeof *t);
    if (!t) return asp_fail(c->cx, ASP_ERR_NOMEM, "no memory for a trainer");
    t->c = c;
    t->cx = c->cx;
    t->plan = c->plan;
    t->ids = c->ids;
    t->seq = c->options.seq;
    asp_arena_init(&t->arena, t->cx);
    t->ranks = (int)asp_train_world(&c->options);
    asp_ctx_init(&t->thread_cx);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    asp_status s = start(t);
    if (s < 0) {
        free_trainer(t);
        return s;
    }
    *out_trainer = t;
    return ASP_OK;
}

void asp_trainer_destroy(asp_trainer *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->command = NULL;
    t->n_posted++;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    free_trainer(t);
}

asp_status asp_trainer_fill(asp_trainer *t, uint64_t seed)
{
    ASP_TRY(check_alive(t));
    t->seed = seed;
    t->updates = 0;
    t->has_gradients = false;
    return asp_trainer_command(t, asp_do_fill);
}

typedef struct resize_call {
    asp_trainer *t;
    int64_t seq;
    const asp_plan *plan;
    const asp_id_range *ids;
} resize_call;

static asp_status plan_length(asp_ctx *cx, void *arg)
{
    resize_call *call = arg;
    asp_trainer *t = call->t;
    const asp_compiled *c = t->c;
    const asp_env env = {.at = {{"S", call->seq}, {"B", asp_train_batch(&c->options)}}, .n = 2};
    call->plan = c->plan;
    call->ids = c->ids;
    if (call->seq == c->options.seq) return ASP_OK;
    ASP_TRY(asp_front_check_positions(cx, c->program.graph, &env));
    const asp_compile_options o = asp_train_compile_options(&c->options, c->options.seq);
    if (!t->plans) ASP_TRY(asp_plans_create(cx, c->program.graph, &o, &t->plans));
    ASP_TRY(asp_plans_get(t->plans, cx, call->seq, &call->plan));
    const int64_t bytes = asp_plan_get_report(call->plan)->rank_bytes;
    if (c->options.memory > 0 && bytes > c->options.memory)
        return asp_fail(cx, ASP_ERR_LIMIT,
                        "sequences of %lld tokens take %lld bytes a rank, and memory is %lld",
                        (long long)call->seq, (long long)bytes, (long long)c->options.memory);
    call->ids = asp_compiled_id_ranges(c, call->plan, call->seq, &t->arena);
    return ASP_OK;
}

asp_status asp_trainer_resize(asp_trainer *t, int64_t seq)
{
    ASP_TRY(check_alive(t));
    if (seq < 1)
        return asp_fail(t->cx, ASP_ERR_USAGE, "a sequence of %lld tokens is none", (long long)seq);
    if (seq == t->seq) return ASP_OK;
    resize_call call = {.t = t, .seq = seq};
    ASP_TRY(asp_guard(t->cx, plan_length, &call));
    t->plan = call.plan;
    t->ids = call.ids;
    t->seq = seq;
    memset(t->given, 0, (size_t)asp_plan_n_inputs(t->plan) * sizeof *t->given);
    return asp_trainer_command(t, asp_do_replan);
}

asp_status asp_trainer_step(asp_trainer *t, double *out_loss)
{
    ASP_TRY(check_alive(t));
    if (!out_loss) return asp_fail(t->cx, ASP_ERR_USAGE, "there is no place for the loss: NULL");
    for (int i = 0; i < asp_plan_n_inputs(t->plan); i++)
        if (!t->given[i])
            return asp_fail(t->cx, ASP_ERR_USAGE, "input %s was not given; asp_trainer_input does",
                            asp_plan_get_input(t->plan, i)->name);
    ASP_TRY(asp_trainer_command(t, asp_do_step));
    t->has_gradients = true;
    *out_loss = t->loss;
    return ASP_OK;
}

asp_status asp_trainer_accumulate(asp_trainer *t, bool last, double *out_loss)
{
    ASP_TRY(check_alive(t));
    if (t->c->options.accumulate < 2)
        return asp_fail(t->cx, ASP_ERR_USAGE,
                        "there is no place for a sum of gradients; compile with accumulate = 2");
    if (!t->has_gradients)
        return asp_fail(t->cx, ASP_ERR_USAGE,
                        "there are no gradients to add; asp_trainer_step makes them");
    t->last = last;
    ASP_TRY(asp_trainer_command(t, asp_do_accumulate));
    t->has_gradients = last;
    if (last && out_loss) *out_loss = t->norm;
    return ASP_OK;
}

asp_status asp_trainer_targets(asp_trainer *t, int64_t *out_targets)
{
    ASP_TRY(check_alive(t));
    if (!out_targets)
        return asp_fail(t->cx, ASP_ERR_USAGE, "there is no place for the count: NULL");
    ASP_TRY(asp_trainer_command(t, asp_do_count));
    *out_targets = t->targets;
    return ASP_OK;
}

asp_status asp_trainer_update(asp_trainer *t, double lr, double *out_norm)
{
    ASP_TRY(check_alive(t));
    if (!isfinite(lr)) return asp_fail(t->cx, ASP_ERR_USAGE, "lr is %g, not a number to use", lr);
    if (!t->has_gradients)
        return asp_fail(t->cx, ASP_ERR_USAGE,
                        "there are no gradients to update with; asp_trainer_step makes them");
    t->lr = lr < 0 ? asp_train_lr(&t->c->options, t->updates) : lr;
    ASP_TRY(asp_trainer_command(t, asp_do_update));
    t->updates++;
    t->has_gradients = false;
    if (out_norm) *out_norm = t->norm;
    return ASP_OK;
}

int64_t asp_trainer_updates(const asp_trainer *t) { return t ? t->updates : -1; }
int64_t asp_trainer_exchanged_bytes(const asp_trainer *t) { return t ? t->exchanged : -1; }

// ---- tensors -----------------------------------------------------------------------------------

static asp_status check_bytes(asp_ctx *cx, const char *name, const void *data, size_t bytes,
                              int64_t want)
{
    if (!data) return asp_fail(cx, ASP_ERR_USAGE, "%s: the data is NULL", name);
    if (bytes == (size_t)want) return ASP_OK;
    return asp_fail(cx, ASP_ERR_USAGE, "%s takes %lld bytes, not %zu", name, (long long)want,
                    bytes);
}

// What replica number `replica` of dp gets of an input: its part of the dim of the batch, or all.
static void take_part(const asp_plan_input *in, const void *data, int64_t dp, int64_t replica,
                      void *out)
{
    int64_t outer = 1;
    if (in->batch < 0) dp = 1, replica = 0;
    for (int d = 0; d < in->batch; d++) outer *= in->dim[d];
    const int64_t run = in->bytes / outer; // one stretch of the part
    for (int64_t i = 0; i < outer; i++)
        memcpy((char *)out + i * run, (const char *)data + (i * dp + replica) * run, (size_t)run);
}

asp_status asp_trainer_input(asp_trainer *t, const char *name, const void *data, size_t bytes)
{
    ASP_TRY(check_alive(t));
    const asp_plan *p = t->plan;
    int i = 0;
    while (name && i < asp_plan_n_inputs(p) && strcmp(asp_plan_get_input(p, i)->name, name) != 0)
        i++;
    if (!name || i == asp_plan_n_inputs(p))
        return asp_fail(t->cx, ASP_ERR_USAGE, "the program reads no input '%.200s'",
                        name ? name : "NULL");
    const asp_plan_input *in = asp_plan_get_input(p, i);
    const int64_t dp = t->c->options.dp;
    ASP_TRY(check_bytes(t->cx, name, data, bytes, in->batch < 0 ? in->bytes : in->bytes * dp));
    char *part = malloc((size_t)in->bytes);
    if (!part) return asp_fail(t->cx, ASP_ERR_NOMEM, "no memory for a part of input %s", name);
    asp_status s = ASP_OK;
    for (int64_t replica = 0; replica < dp && s == ASP_OK; replica++) {
        take_part(in, data, dp, replica, part);
        s = asp_train_check_input(t->cx, in, &t->ids[i], part);
    }
    for (int r = 0; r < t->ranks && s == ASP_OK; r++)
        take_part(in, data, dp, r / t->c->options.ranks,
                  asp_rank_input(t->members[r].seat.rank, i));
    free(part);
    t->given[i] = s == ASP_OK;
    return s;
}

// Where a parameter lies in a slab of rank 0, and how many bytes it has.
static asp_status find_param(asp_trainer *t, asp_slab slab, const char *name, const void *data,
                             size_t bytes, int64_t *out_offset)
{
    ASP_TRY(check_alive(t));
    const asp_plan *p = t->plan;
    if ((int)slab < ASP_SLAB_PARAM || (int)slab > ASP_SLAB_V)
        return asp_fail(t->cx, ASP_ERR_USAGE, "there is no slab %d", (int)slab);
    const int64_t size = asp_dtypes[asp_plan_slab_dtype(p, slab)].bytes;
    for (int i = 0; name && i < asp_plan_n_params(p); i++) {
        const asp_plan_param *x = asp_plan_get_param(p, i);
        if (strcmp(x->name, name) != 0) continue;
        ASP_TRY(check_bytes(t->cx, name, data, bytes, x->count * size));
        *out_offset = x->offset * size;
        return ASP_OK;
    }
    return asp_fail(t->cx, ASP_ERR_USAGE, "the program has no parameter '%.200s'",
                    name ? name : "NULL");
}

static char *slab_of(const asp_trainer *t, int rank, asp_slab slab)
{
    return asp_rank_slab(t->members[rank].seat.rank, slab);
}

asp_status asp_trainer_read(asp_trainer *t, asp_slab slab, const char *name, void *out_data,
                            size_t bytes)
{
    int64_t offset;
    ASP_TRY(find_param(t, slab, name, out_data, bytes, &offset));
    memcpy(out_data, slab_of(t, 0, slab) + offset, bytes);
    return ASP_OK;
}

asp_status asp_trainer_write(asp_trainer *t, asp_slab slab, const char *name, const void *data,
                             size_t bytes)
{
    int64_t offset;
    ASP_TRY(find_param(t, slab, name, data, bytes, &offset));
    for (int r = 0; r < t->ranks; r++) memcpy(slab_of(t, r, slab) + offset, data, bytes);
    if (slab == ASP_SLAB_GRAD) t->has_gradients = true;
    return ASP_OK;
}

// ---- checkpoints -------------------------------------------------------------------------------

typedef struct file_call {
    asp_trainer *t;
    const char *folder;
} file_call;

static asp_status save(asp_ctx *cx, void *arg)
{
    const file_call *f = arg;
    const asp_compiled *c = f->t->c;
    asp_train_options o = c->options;
    o.out = f->folder;
    ASP_TRY(asp_checkpoint_folder(cx, f->folder));
    return asp_checkpoint_write(cx, f->t->members[0].seat.rank, f->t->plan, &c->program, &o,
                                f->t->updates, 0);
}

asp_status asp_trainer_save(asp_trainer *t, const char *folder)
{
    ASP_TRY(check_alive(t));
    if (!folder) return asp_fail(t->cx, ASP_ERR_USAGE, "the folder is NULL");
    return asp_guard(t->cx, save, &(file_call){t, folder});
}

// The data is the user's business: any is right.
static asp_status find_and_load(asp_arena *a, asp_trainer *t, const char *folder)
{
    asp_checkpoint found;
    asp_train_options o = t->c->options;
    o.resume = folder;
    o.given = UINT32_MAX; // it is planned already: what may not differ is refused
    ASP_TRY(asp_checkpoint_find(a, &o, &found));
    uint64_t data = strtoull(found.data_hash, NULL, 16);
    ASP_TRY(asp_checkpoint_match(a, &found, &o, &t->c->program, data));
    for (int r = 0; r < t->ranks; r++)
        ASP_TRY(asp_checkpoint_load(a->cx, &found, t->members[r].seat.rank, t->plan));
    t->updates = found.step;
    t->has_gradients = false;
    return ASP_OK;
}

static asp_status load(asp_ctx *cx, void *arg)
{
    const file_call *f = arg;
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_status s = find_and_load(&a, f->t, f->folder);
    asp_arena_fini(&a);
    return s;
}

asp_status asp_trainer_load(asp_trainer *t, const char *folder)
{
    ASP_TRY(check_alive(t));
    if (!folder) return asp_fail(t->cx, ASP_ERR_USAGE, "the folder is NULL");
    return asp_guard(t->cx, load, &(file_call){t, folder});
}
