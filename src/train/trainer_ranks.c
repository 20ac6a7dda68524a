// The ranks' side of a trainer: what they are told to do, and how they wait for it.  Neighbours:
// trainer.c (who tells them), seat.c (what a rank holds).  SPDX-License-Identifier: Apache-2.0
#include "train/trainer_int.h"

#include <math.h>
#include <string.h>

// ---- commands ----------------------------------------------------------------------------------

static bool speaks(const asp_member *m) { return asp_comm_rank(m->comm) == 0; }

static void clear_states(asp_member *m)
{
    const asp_plan *p = m->t->plan;
    size_t bytes = (size_t)(asp_plan_slab_count(p) * asp_dtypes[asp_plan_dtype(p)].bytes);
    memset(asp_rank_slab(m->seat.rank, ASP_SLAB_M), 0, bytes);
    memset(asp_rank_slab(m->seat.rank, ASP_SLAB_V), 0, bytes);
}

asp_status asp_do_fill(asp_member *m, asp_ctx *cx)
{
    (void)cx;
    asp_train_initialise(m->seat.rank, m->t->plan, m->seat.team, m->t->seed);
    clear_states(m);
    m->sum = (asp_accumulated){0};
    return ASP_OK;
}

asp_status asp_do_load_weights(asp_member *m, asp_ctx *cx)
{
    return asp_train_load_weights(cx, m->seat.rank, m->t->plan, m->t->c->program.weights);
}

asp_status asp_do_replan(asp_member *m, asp_ctx *cx)
{
    (void)cx;
    return asp_rank_replan(m->seat.rank, m->t->plan);
}

// Of the inputs that a rank has.
static asp_status count_targets(asp_member *m, asp_ctx *cx, asp_rank *r, int64_t *out_targets)
{
    if (!m->seat.targets) ASP_TRY(asp_targets_open(cx, m->t->c->targets, &m->seat.targets));
    return asp_targets_count(m->seat.targets, cx, m->t->plan, r, out_targets);
}

static bool weighs_by_tokens(const asp_trainer *t)
{
    return strcmp(t->c->options.weigh, "tokens") == 0;
}

asp_status asp_do_step(asp_member *m, asp_ctx *cx)
{
    const asp_train_options *o = &m->t->c->options;
    const int64_t replica = asp_comm_rank(m->comm) / o->ranks;
    asp_rank *r = m->seat.rank;
    double loss = (double)NAN;
    int64_t n = 0;
    if (o->dp > 1) ASP_TRY(count_targets(m, cx, r, &n));
    asp_rank_give_share(
        r, (asp_share){.weight = weighs_by_tokens(m->t) ? (double)n : 1, .targets = n});
    asp_rank_seed(r, m->t->seed, (uint64_t)(m->t->updates * o->dp + replica));
    ASP_TRY(asp_rank_step(r, &loss));
    if (speaks(m)) m->t->loss = loss;
    return ASP_OK;
}

// The ranks are parked, so that one may read what the others were given.
asp_status asp_do_count(asp_member *m, asp_ctx *cx)
{
    asp_trainer *t = m->t;
    const int64_t ranks = t->c->options.ranks;
    int64_t n, sum = 0;
    if (!speaks(m)) return ASP_OK;
    for (int64_t first = 0; first < t->ranks; first += ranks) {
        ASP_TRY(count_targets(m, cx, t->members[first].seat.rank, &n));
        sum += n;
    }
    t->targets = sum;
    return ASP_OK;
}

asp_status asp_do_accumulate(asp_member *m, asp_ctx *cx)
{
    asp_trainer *t = m->t;
    int64_t n = asp_rank_shares(m->seat.rank).targets; // of all replicas
    if (t->c->options.dp == 1) ASP_TRY(count_targets(m, cx, m->seat.rank, &n));
    asp_accumulate(&m->sum, m->seat.rank, t->plan, m->seat.team, t->loss, n, weighs_by_tokens(t));
    if (!t->last) return ASP_OK;
    const double loss = asp_accumulate_end(&m->sum, m->seat.rank, t->plan, m->seat.team);
    if (speaks(m)) t->norm = loss;
    m->sum = (asp_accumulated){0};
    return ASP_OK;
}

asp_status asp_do_update(asp_member *m, asp_ctx *cx)
{
    (void)cx;
    asp_trainer *t = m->t;
    asp_adamw a = asp_train_adamw(&t->c->options, t->lr);
    const double norm = asp_adamw_step(&a, &m->seat, t->plan, t->updates);
    if (speaks(m)) t->norm = norm;
    return ASP_OK;
}

// ---- ranks -------------------------------------------------------------------------------------

// The next command; NULL to leave.  *seen counts those that this rank took.
static asp_command_fn *next_command(asp_trainer *t, uint64_t *seen)
{
    pthread_mutex_lock(&t->lock);
    while (t->n_posted == *seen && !t->failing) pthread_cond_wait(&t->wake, &t->lock);
    asp_command_fn *f = t->failing ? NULL : t->command;
    *seen = t->n_posted;
    pthread_mutex_unlock(&t->lock);
    return f;
}

static void tell_done(asp_member *m)
{
    asp_trainer *t = m->t;
    pthread_mutex_lock(&t->lock);
    if (speaks(m)) t->exchanged = asp_train_exchanged(m->comm);
    t->n_done++;
    if (t->n_done == t->ranks) pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

static asp_status serve(asp_ctx *cx, void *arg)
{
    asp_member *m = arg;
    const asp_compiled *c = m->t->c;
    uint64_t seen = 0;
    ASP_TRY(asp_seat_open(cx, c->plan, m->comm, c->options.threads, -1, &m->seat));
    for (asp_command_fn *f; (f = next_command(m->t, &seen)) != NULL;) {
        ASP_TRY(f(m, cx));
        tell_done(m);
    }
    return ASP_OK;
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    asp_trainer *t = arg;
    asp_member *m = &t->members[asp_comm_rank(comm)];
    m->comm = comm;
    asp_status s = asp_guard(cx, serve, m);
    if (s < 0) { // ranks that wait for a command do not meet this one any more
        pthread_mutex_lock(&t->lock);
        t->failing = true;
        pthread_cond_broadcast(&t->wake);
        pthread_mutex_unlock(&t->lock);
    }
    asp_seat_close(&m->seat);
    return s;
}

static asp_status run_ranks(asp_ctx *cx, void *arg)
{
    asp_trainer *t = arg;
    return asp_ranks_run(cx, ASP_COMM_thread, t->ranks, rank_main, t);
}

void *asp_trainer_main(void *arg)
{
    asp_trainer *t = arg;
    asp_status s = asp_guard(&t->thread_cx, run_ranks, t);
    pthread_mutex_lock(&t->lock);
    t->ended = true;
    t->ended_with = s;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

asp_status asp_trainer_command(asp_trainer *t, asp_command_fn *f)
{
    pthread_mutex_lock(&t->lock);
    t->command = f;
    t->n_posted++;
    t->n_done = 0;
    pthread_cond_broadcast(&t->wake);
    while (t->n_done < t->ranks && !t->ended) pthread_cond_wait(&t->wake, &t->lock);
    bool ended = t->ended;
    pthread_mutex_unlock(&t->lock);
    return ended ? asp_fail(t->cx, t->ended_with, "%s", t->thread_cx.message) : ASP_OK;
}
