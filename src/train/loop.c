// The training loop of one run: load, plan, start the ranks, step.  Neighbours: train.h (contract),
// checkpoint.c, adamw.c, inputs.c. SPDX-License-Identifier: Apache-2.0
#include "train/train_int.h"

#include <math.h>

typedef struct loop {
    const asp_train_options *o;
    const asp_report *report;
    asp_arena arena;           // what the checkpoint says
    asp_checkpoint checkpoint; // where o->resume
    asp_program program;
    asp_tokens *tokens;
    asp_plan *plan;
    const char *targets; // text of the graph that counts them
    uint64_t data_hash;
    int64_t seq; // as planned
    bool max_seq_asked;
    double compile_ms;
    int64_t n_steps;     // taken by this run
    bool began;          // the ranks did
    bool speaks;         // rank 0 runs in this process
    int64_t anon_before; // of the process, before ranks allocate
    double peak_flops;   // a second, of all ranks
    asp_text **traces;   // by rank, those of this process; each on its rank's arena
    double first_loss, last_loss;
    int64_t offloaded_bytes;                // of one pass over the program
    int64_t process_bytes, exchanged_bytes; // measured: growth after the first step; of one step
} loop;

static asp_status start(loop *l, asp_rank *r, asp_team *team, asp_comm *comm, asp_ctx *cx,
                        int64_t *out_step)
{
    *out_step = l->checkpoint.step;
    ASP_TRY(asp_comm_agree(comm, "the step program", asp_plan_hash(cx, l->plan)));
    ASP_TRY(asp_comm_agree(comm, "the training data", l->data_hash));
    ASP_TRY(asp_comm_agree(comm, "the checkpoint", l->checkpoint.identity));
    if (l->o->resume) return asp_checkpoint_load(cx, &l->checkpoint, r, l->plan);
    if (l->program.weights) return asp_train_load_weights(cx, r, l->plan, l->program.weights);
    ASP_TRY(asp_train_refuse_buffers(cx, l->plan));
    asp_train_initialise(r, l->plan, team, (uint64_t)l->o->seed);
    return ASP_OK;
}

static asp_status one_step(loop *l, const asp_seat *seat, asp_comm *comm, asp_ctx *cx, int64_t step)
{
    asp_rank *r = seat->rank;
    const asp_train_options *o = l->o;
    asp_adamw a = asp_train_adamw(o, asp_train_lr(o, step));
    double began = asp_seconds();
    int64_t exchanged = asp_train_exchanged(comm), offloaded = asp_rank_offloaded(r);
    const asp_batches batches = {.o = o, .plan = l->plan, .tokens = l->tokens};
    asp_gathered all;
    asp_adamw_prepare(&a, seat, l->plan, step);
    ASP_TRY(asp_train_gradients(cx, &batches, seat, comm, step, &all));
    const double loss = all.loss;
    exchanged = asp_train_exchanged(comm) - exchanged;
    offloaded = asp_rank_offloaded(r) - offloaded;
    double updates_from = asp_seconds();
    const double norm = asp_adamw_step(&a, seat, l->plan, step);
    asp_rank_trace_phase(r, "optimizer", updates_from);
    ASP_TRY(asp_comm_barrier(comm)); // all memory of the process is in use now
    if (asp_comm_rank(comm) != 0) return ASP_OK;
    if (l->process_bytes == 0) {
        l->process_bytes = asp_process_anon_bytes() - l->anon_before;
        l->first_loss = loss;
    }
    l->last_loss = loss;
    l->n_steps++;
    l->exchanged_bytes = exchanged / o->accumulate;
    l->offloaded_bytes = offloaded / o->accumulate;
    const asp_plan_input *in = asp_plan_get_input(l->plan, 0);
    const double seconds = asp_seconds() - began;
    const double flops =
        asp_plan_get_report(l->plan)->flops * (double)(asp_train_world(o) * o->accumulate);
    asp_step_report s = {.step = step + 1,
                         .steps = o->steps,
                         .tokens =
                             o->accumulate * o->dp * (in->bytes / asp_dtypes[in->dtype].bytes),
                         .targets = all.targets,
                         .loss = loss,
                         .grad_norm = norm,
                         .lr = a.lr,
                         .seconds = seconds,
                         .exchange_seconds = all.exchange_seconds,
                         .mfu = flops / seconds / l->peak_flops,
                         .exchanged_bytes = exchanged,
                         .process_bytes = asp_process_anon_bytes() - l->anon_before};
    asp_report_step(l->report, &s);
    if (!isfinite(loss) || !isfinite(norm))
        return asp_fail(cx, ASP_ERR_CHECK,
                        "step %lld: the loss is %g and the gradient norm %g; lower --lr, raise "
                        "--warmup, or clip with --clip 1",
                        (long long)step + 1, loss, norm);
    return ASP_OK;
}

static asp_status steps(loop *l, const asp_seat *seat, asp_comm *comm, asp_ctx *cx)
{
    asp_rank *r = seat->rank;
    const asp_train_options *o = l->o;
    int64_t step;
    ASP_TRY(start(l, r, seat->team, comm, cx, &step));
    if (o->out && asp_comm_rank(comm) == 0) // all input was read: what is refused leaves no folder
        ASP_TRY(asp_checkpoint_folder(cx, o->out));
    for (; step < o->steps; step++) {
        if ((o->profile || o->trace) && step == o->steps - 1) ASP_TRY(asp_rank_trace(r));
        ASP_TRY(one_step(l, seat, comm, cx, step));
        bool due = step + 1 == o->steps ||
                   (o->checkpoint_every > 0 && (step + 1) % o->checkpoint_every == 0);
        if (o->out && due && asp_comm_rank(comm) == 0)
            ASP_TRY(asp_checkpoint_write(cx, r, l->plan, &l->program, o, step + 1, l->data_hash));
    }
    return ASP_OK;
}

// ---- traces ------------------------------------------------------------------------------------

static void print_profile(const loop *l, asp_rank *r, asp_ctx *cx)
{
    asp_arena a;
    asp_text t;
    asp_arena_init(&a, cx);
    asp_text_init(&t, &a);
    asp_rank_print_profile(r, &t);
    if (l->report->text && t.n) fprintf(l->report->text, "profile   rank 0, last step\n%s", t.at);
    asp_arena_fini(&a);
}

// The traces of the process's ranks as one file; rank 0's has the name that was asked for, that of
// another process's rank i ends with .ranki.
static asp_status write_traces(const loop *l, asp_ctx *cx, asp_arena *a, int first)
{
    asp_text all;
    char path[4096];
    asp_text_init(&all, a);
    asp_put(&all, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (int i = 0; i < asp_train_world(l->o); i++)
        if (l->traces[i]) asp_put_bytes(&all, l->traces[i]->at, l->traces[i]->n);
    if (all.at[all.n - 2] == ',') all.n -= 2; // of the last event
    asp_put(&all, "\n]}\n");
    snprintf(path, sizeof path, first ? "%s.rank%d" : "%s", l->o->trace, first);
    return asp_file_write_whole(cx, path, all.at, all.n);
}

static asp_status share_trace(loop *l, asp_rank *r, asp_comm *comm, asp_ctx *cx)
{
    const int rank = asp_comm_rank(comm);
    asp_arena a;
    asp_text t;
    asp_arena_init(&a, cx);
    asp_text_init(&t, &a);
    asp_rank_put_events(r, &t);
    l->traces[rank] = &t;
    asp_status s = asp_comm_barrier(comm);
    if (s == ASP_OK && (rank == 0 || asp_comm_kind(comm) != ASP_COMM_thread))
        s = write_traces(l, cx, &a, rank);
    if (s == ASP_OK) s = asp_comm_barrier(comm); // the others' texts are read
    l->traces[rank] = NULL;
    asp_arena_fini(&a);
    return s;
}

// ---- a rank ------------------------------------------------------------------------------------

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    loop *l = arg;
    asp_seat seat;
    int first_cpu =
        asp_comm_kind(comm) == ASP_COMM_thread ? asp_comm_rank(comm) * (int)l->o->threads : -1;
    if (asp_comm_rank(comm) == 0) {
        l->speaks = true;
        asp_report_plan(l->report, l->plan, l->o, l->seq, l->compile_ms,
                        l->max_seq_asked ? l->seq : 0);
        if (l->o->resume) {
            fputs(l->checkpoint.damaged, stderr);
            asp_report_resume(l->report, &l->checkpoint, l->o);
        }
        l->anon_before = asp_process_anon_bytes();
    }
    ASP_TRY(asp_comm_barrier(comm)); // nobody allocates before memory was looked at
    ASP_TRY(asp_seat_open(cx, l->plan, comm, l->o->threads, first_cpu, &seat));
    asp_status s = asp_targets_open(cx, l->targets, &seat.targets);
    if (s == ASP_OK) s = steps(l, &seat, comm, cx);
    if (s == ASP_OK && l->o->profile && asp_comm_rank(comm) == 0) print_profile(l, seat.rank, cx);
    if (s == ASP_OK && l->o->trace) s = share_trace(l, seat.rank, comm, cx);
    if (s == ASP_OK) s = asp_comm_barrier(comm); // rank 0 still looks at the process's memory
    asp_seat_close(&seat);
    return s;
}

// All that the ranks start from: options settled, model planned, data open.  *o belongs to the
// caller's frame.
static asp_status prepare(asp_ctx *cx, loop *l, asp_train_options *o)
{
    if (o->resume) ASP_TRY(asp_checkpoint_find(&l->arena, o, &l->checkpoint));
    const char *trained_on = o->resume && o->data == l->checkpoint.data ? l->checkpoint.folder : "";
    l->max_seq_asked = o->seq == 0;
    ASP_TRY(asp_front_load(cx, o->model, o->dtype, &l->program));
    ASP_TRY(asp_train_plan(cx, l->program.graph, o, &l->plan, &l->seq, &l->compile_ms));
    ASP_TRY(asp_targets_text(&l->arena, l->program.graph, o, &l->targets));
    o->seq = l->seq;
    asp_status s = asp_tokens_open(cx, o->data, o->n_data, l->seq,
                                   l->program.vocab ? l->program.vocab : INT64_MAX, &l->tokens);
    if (s < 0 && *trained_on)
        return asp_note(cx, s, "the data of %s is not as it was; give it with --data", trained_on);
    ASP_TRY(s);
    l->data_hash = asp_tokens_hash(l->tokens);
    l->traces = ASP_NEW_ARRAY(&l->arena, asp_text *, (size_t)asp_train_world(o));
    asp_machine machine;
    ASP_TRY(asp_machine_find(cx, &machine));
    const int64_t world = asp_train_world(o);
    l->peak_flops =
        1e9 * (double)world * asp_device_of_rank(&machine, (int)world, (int)o->threads).fma_gflops;
    if (o->resume)
        ASP_TRY(asp_checkpoint_match(&l->arena, &l->checkpoint, o, &l->program, l->data_hash));
    return ASP_OK;
}

static asp_status run(asp_ctx *cx, loop *l, asp_train_options *o)
{
    asp_status s = prepare(cx, l, o);
    if (s < 0) return asp_ranks_refuse(cx, o->comm, s);
    l->began = true;
    ASP_TRY(asp_ranks_run(cx, o->comm, (int)asp_train_world(o), rank_main, l));
    if (l->speaks && l->n_steps > 0)
        asp_report_summary(l->report, l->plan, l->first_loss, l->last_loss, l->process_bytes,
                           l->exchanged_bytes, l->offloaded_bytes);
    return ASP_OK;
}

asp_status asp_train(asp_ctx *cx, const asp_train_options *options, const asp_report *report)
{
    asp_train_options o = *options;
    loop l = {.o = &o, .report = report};
    asp_arena_init(&l.arena, cx);
    asp_status s = run(cx, &l, &o);
    // The one process that speaks for all has rank 0, or before that the message.
    if (l.began ? l.speaks : cx->message[0] != 0) asp_report_end(report, s == ASP_OK);
    asp_plan_destroy(l.plan);
    asp_tokens_close(l.tokens);
    asp_program_fini(&l.program);
    asp_arena_fini(&l.arena);
    return s;
}
