// Verification: the user's own program for one step on 1 rank and on P, loss, every gradient, every
// parameter after the optimizer. Neighbours: train.h (contract), loop.c (the same parts in a run).
// SPDX-License-Identifier: Apache-2.0
#include "train/train_int.h"

#include <math.h>
#include <stdlib.h>

#define ASP_VERIFY_MAX_RANKS 1024

typedef struct side {
    const asp_train_options *o;
    const asp_program *program;
    const asp_tokens *tokens;
    const char *targets; // text of the graph that counts them
    asp_plan *plan;
    double loss;
    double *gradients; // slab_count, rank 0's; owned
    bool params_equal; // set by rank 0
} side;

static asp_status take_step(side *d, const asp_seat *seat, asp_comm *comm, asp_ctx *cx)
{
    asp_rank *r = seat->rank;
    asp_team *team = seat->team;
    const asp_train_options *o = d->o;
    asp_adamw a = asp_train_adamw(o, o->lr);
    const asp_batches batches = {.o = o, .plan = d->plan, .tokens = d->tokens};
    asp_gathered all_batches;
    const int64_t n = asp_plan_slab_count(d->plan),
                  size = asp_dtypes[asp_plan_slab_dtype(d->plan, ASP_SLAB_PARAM)].bytes;
    if (d->program->weights) {
        ASP_TRY(asp_train_load_weights(cx, r, d->plan, d->program->weights));
    } else {
        ASP_TRY(asp_train_refuse_buffers(cx, d->plan));
        asp_train_initialise(r, d->plan, team, (uint64_t)o->seed);
    }
    ASP_TRY(asp_train_gradients(cx, &batches, seat, comm, 0, &all_batches));
    const void *g = asp_rank_slab(r, ASP_SLAB_GRAD);
    for (int64_t i = 0; asp_comm_rank(comm) == 0 && i < n; i++)
        d->gradients[i] = asp_plan_dtype(d->plan) == ASP_F64 ? ((const double *)g)[i]
                                                             : (double)((const float *)g)[i];
    asp_adamw_step(&a, seat, d->plan, 0);
    uint64_t mine = asp_hash(asp_rank_slab(r, ASP_SLAB_PARAM), (size_t)(n * size), 0),
             all[ASP_VERIFY_MAX_RANKS];
    ASP_TRY(asp_comm_all_gather(comm, team, &mine, sizeof mine, all));
    if (asp_comm_rank(comm) != 0) return ASP_OK;
    d->loss = all_batches.loss;
    d->params_equal = true;
    for (int i = 1; i < asp_comm_ranks(comm); i++) d->params_equal &= all[i] == all[0];
    return ASP_OK;
}

static asp_status side_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    side *d = arg;
    asp_seat seat;
    ASP_TRY(asp_seat_open(cx, d->plan, comm, d->o->threads, -1, &seat));
    asp_status s = asp_targets_open(cx, d->targets, &seat.targets);
    if (s == ASP_OK) s = take_step(d, &seat, comm, cx);
    asp_seat_close(&seat);
    return s;
}

static asp_status run_side(asp_ctx *cx, side *d, const asp_graph *module, int64_t seq)
{
    asp_train_options o = *d->o;
    int64_t at;
    double ms;
    o.seq = seq;
    if (strcmp(o.ac, "budget") != 0) o.memory = 0;
    ASP_TRY(asp_train_plan(cx, module, &o, &d->plan, &at, &ms));
    d->gradients = calloc((size_t)asp_plan_slab_count(d->plan), sizeof *d->gradients);
    if (!d->gradients) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for a copy of the gradients");
    const asp_train_options *whole = d->o;
    d->o = &o; // while its ranks run
    asp_status s = asp_ranks_run(cx, ASP_COMM_thread, (int)asp_train_world(&o), side_main, d);
    d->o = whole;
    return s;
}

static double norm(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(sum);
}

// The error of a parameter's gradient is measured against its norm, or 1 % of the norm of all where
// that is larger.  In bf16 a sum in another order may round an element the other way, by 4e-3 of
// it.
static void compare(const side *one, const side *many, bool half, asp_verify_report *v)
{
    double all = norm(one->gradients, NULL, asp_plan_slab_count(one->plan));
    v->worst_grad = "";
    for (int i = 0; i < asp_plan_n_params(one->plan); i++) {
        const asp_plan_param *p = asp_plan_get_param(one->plan, i);
        const double *x = one->gradients + p->offset, *y = many->gradients + p->offset;
        double error = norm(x, y, p->count), scale = fmax(norm(x, NULL, p->count), 0.01 * all);
        double relative = scale > 0 ? error / scale : error;
        if (i > 0 && relative <= v->worst_grad_rel) continue;
        v->worst_grad = p->name;
        v->worst_grad_rel = relative;
    }
    bool f64 = asp_plan_dtype(one->plan) == ASP_F64;
    v->loss_1 = one->loss;
    v->loss_p = many->loss;
    bool both_nan = isnan(one->loss) && isnan(many->loss);
    v->loss_rel = both_nan ? 0 : fabs(one->loss - many->loss) / fmax(fabs(one->loss), 1e-300);
    v->loss_bound = f64 ? 1e-12 : half ? 1e-3 : 1e-6;
    v->grad_bound = f64 ? 1e-11 : half ? 2e-2 : 1e-5;
    v->params_equal = many->params_equal;
    v->ok = v->loss_rel <= v->loss_bound && v->worst_grad_rel <= v->grad_bound && v->params_equal;
}

static asp_status verify(asp_arena *a, const asp_train_options *o, const asp_report *report,
                         asp_program *program, asp_tokens **tokens, side *one, side *many)
{
    asp_ctx *cx = a->cx;
    asp_train_options alone = *o;
    const int64_t world = asp_train_world(o);
    const char *targets;
    // Replicas one after the other: micro-batches.
    alone.ranks = alone.dp = 1;
    alone.batch = asp_train_batch(o);
    alone.accumulate *= o->dp;
    if (strcmp(o->ac, "budget") == 0) alone.ac = "none", alone.memory = 0; // no budget of its own
    alone.threads = asp_min(o->threads * world, 64);
    if (world > ASP_VERIFY_MAX_RANKS)
        return asp_fail(cx, ASP_ERR_USAGE, "verify runs at most %d ranks in one process",
                        ASP_VERIFY_MAX_RANKS);
    if (o->fuse_optimizer)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "verify compares gradients, which --fuse-optimizer lets go; leave it out "
                        "(parameters have the same bits with it)");
    if (o->seq == 0)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "verify needs --seq N: it runs the program on one rank too");
    ASP_TRY(asp_front_load(cx, o->model, o->dtype, program));
    ASP_TRY(asp_tokens_open(cx, o->data, o->n_data, o->seq,
                            program->vocab ? program->vocab : INT64_MAX, tokens));
    ASP_TRY(asp_targets_text(a, program->graph, o, &targets));
    *one = (side){.o = &alone, .program = program, .tokens = *tokens, .targets = targets};
    *many = (side){.o = o, .program = program, .tokens = *tokens, .targets = targets};
    ASP_TRY(run_side(cx, many, program->graph, o->seq));
    ASP_TRY(run_side(cx, one, program->graph, o->seq));
    asp_verify_report v = {.ranks = world};
    compare(one, many, o->dtype == ASP_BF16, &v);
    asp_report_verify(report, &v);
    if (v.ok) return ASP_OK;
    return asp_fail(cx, ASP_ERR_CHECK,
                    "%lld ranks do not give what 1 rank gives: loss differs by %.2e (bound %.0e), "
                    "the gradient of %s by %.2e (bound %.0e)",
                    (long long)world, v.loss_rel, v.loss_bound, v.worst_grad, v.worst_grad_rel,
                    v.grad_bound);
}

asp_status asp_verify(asp_ctx *cx, const asp_train_options *o, const asp_report *report)
{
    asp_program program = {0};
    asp_tokens *tokens = NULL;
    side one = {0}, many = {0};
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_status s = verify(&a, o, report, &program, &tokens, &one, &many);
    asp_report_end(report, s == ASP_OK);
    free(one.gradients);
    free(many.gradients);
    asp_plan_destroy(one.plan);
    asp_plan_destroy(many.plan);
    asp_tokens_close(tokens);
    asp_program_fini(&program);
    asp_arena_fini(&a);
    return s;
}
