// One rank: its memory, and the walk over the step program.  Neighbours: run.h (contract),
// program.c (who made the steps). SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "run/spill.h"
#include "run/trace.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

struct asp_rank {
    asp_ctx *cx;          // borrowed
    const asp_plan *plan; // borrowed
    asp_comm *world;      // borrowed
    asp_comm *comm;       // borrowed: of the replica's ranks
    asp_team *team;       // borrowed
    char *memory;         // plan->report.rank_bytes, mapped
    size_t mapped_bytes;
    asp_trace *trace;        // NULL: not asked for; owned
    asp_spill *spill;        // of plan->options.offload, or NULL; owned
    int64_t spilled;         // bytes that files before this one moved
    double exchange_seconds; // of the last pass over the program
    uint64_t seed, step;
    int64_t trip, chunk;        // of the loop being run; 0, 0 outside
    bool agreed;                // the ranks start from the same
    asp_share share, shares;    // of this replica; of all, in the last step
    double mean_loss;           // of all replicas
    asp_adamw_step_args update; // of plan->options.fuses
    double squares;             // of the gradients of the last pass, summed
};

// The file for what the plan keeps away; the one before goes.
static asp_status open_spill(asp_rank *r, const asp_plan *plan)
{
    const int64_t bytes = plan->report.offload_bytes;
    if (r->spill) r->spilled += asp_spill_moved(r->spill);
    asp_spill_destroy(r->spill);
    r->spill = NULL;
    return bytes ? asp_spill_create(r->cx, plan->options.offload, bytes, &r->spill) : ASP_OK;
}

asp_status asp_rank_create(asp_ctx *cx, const asp_plan *plan, asp_comm *comm, asp_team *team,
                           asp_rank **out_rank)
{
    asp_rank *r = calloc(1, sizeof *r);
    if (!r) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for a rank");
    *r = (asp_rank){.cx = cx, .plan = plan, .world = comm, .comm = comm, .team = team};
    r->update = (asp_adamw_step_args){.scale = 1, .correct = 1, .eps = 1};
    r->share.weight = 1;
    asp_status grouped =
        plan->replicas > 1 ? asp_comm_group(comm, (int)plan->ranks, &r->comm) : ASP_OK;
    if (grouped < 0) {
        free(r);
        return grouped;
    }
    r->mapped_bytes = (size_t)asp_round_up(plan->report.rank_bytes, 4096);
    r->memory =
        mmap(NULL, r->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->memory == MAP_FAILED) {
        char size[32];
        asp_status s =
            asp_fail(cx, ASP_ERR_NOMEM, "the system refused the rank's %s: %s",
                     asp_human_bytes(size, sizeof size, plan->report.rank_bytes), strerror(errno));
        free(r);
        return s;
    }
    madvise(r->memory, r->mapped_bytes, MADV_HUGEPAGE); // a hint: matrices span many pages
    const asp_status s = open_spill(r, plan);
    if (s < 0) {
        asp_rank_destroy(r);
        return s;
    }
    *out_rank = r;
    return ASP_OK;
}

asp_status asp_rank_replan(asp_rank *r, const asp_plan *plan)
{
    const size_t bytes = (size_t)asp_round_up(plan->report.rank_bytes, 4096);
    ASP_CHECK(plan->slab_count == r->plan->slab_count && plan->dtype == r->plan->dtype &&
              plan->param_dtype == r->plan->param_dtype &&
              plan->options.optimizer == r->plan->options.optimizer &&
              plan->options.fuses == r->plan->options.fuses && plan->ranks == r->plan->ranks &&
              plan->replicas == r->plan->replicas);
    if (bytes > r->mapped_bytes) {
        void *memory = mremap(r->memory, r->mapped_bytes, bytes, MREMAP_MAYMOVE);
        char size[32];
        if (memory == MAP_FAILED)
            return asp_fail(r->cx, ASP_ERR_NOMEM, "the system refused the rank's %s: %s",
                            asp_human_bytes(size, sizeof size, plan->report.rank_bytes),
                            strerror(errno));
        r->memory = memory;
        r->mapped_bytes = bytes;
    }
    ASP_TRY(open_spill(r, plan));
    asp_trace_destroy(r->trace);
    r->trace = NULL;
    r->plan = plan;
    r->agreed = false;
    return ASP_OK;
}

void asp_rank_destroy(asp_rank *r)
{
    if (!r) return;
    asp_spill_destroy(r->spill); // it may still move this memory
    munmap(r->memory, r->mapped_bytes);
    asp_trace_destroy(r->trace);
    free(r);
}

void *asp_rank_slab(asp_rank *r, asp_slab slab)
{
    ASP_CHECK(r->plan->slab_offset[slab] >= 0);
    return r->memory + r->plan->slab_offset[slab];
}

void *asp_rank_input(asp_rank *r, int i) { return r->memory + r->plan->inputs.at[i].offset; }

const void *asp_rank_output(const asp_rank *r, int i)
{
    return r->memory + r->plan->outputs.at[i].offset;
}

void asp_rank_seed(asp_rank *r, uint64_t seed, uint64_t step)
{
    r->seed = seed;
    r->step = step;
}

void asp_rank_update_by(asp_rank *r, const asp_adamw_step_args *args) { r->update = *args; }

double asp_rank_gradient_norm(const asp_rank *r) { return sqrt(r->squares); }
void asp_rank_give_share(asp_rank *r, asp_share share) { r->share = share; }
asp_share asp_rank_shares(const asp_rank *r) { return r->shares; }

// ---- steps -------------------------------------------------------------------------------------

static void *at(const asp_rank *r, int64_t place) { return place < 0 ? NULL : r->memory + place; }

static void *operand(const asp_rank *r, const asp_step *s, int i)
{
    return at(r, s->places[i] + (s->strides ? s->strides[i] * r->trip : 0));
}

typedef struct kernel_run {
    asp_kernel *fn;
    asp_kcall call;
    asp_span *spans; // by thread; NULL: not traced
} kernel_run;

static void run_kernel(void *arg, asp_worker *w)
{
    const kernel_run *k = arg;
    if (k->spans) k->spans[w->thread].begin = asp_seconds();
    k->fn(&k->call, w);
    if (k->spans) k->spans[w->thread].end = asp_seconds();
}

typedef struct rows_run {
    const asp_rowprog *program;
    void *ptrs[ASP_ROW_MAX_VALS];
    void *work;
    asp_span *spans;
} rows_run;

static void run_rows(void *arg, asp_worker *w)
{
    const rows_run *x = arg;
    if (x->spans) x->spans[w->thread].begin = asp_seconds();
    asp_rowprog_run(x->program, x->ptrs, x->work, w);
    if (x->spans) x->spans[w->thread].end = asp_seconds();
}

static asp_span *spans_of(const asp_rank *r, const asp_step *s)
{
    return asp_trace_threads(r->trace, (uint32_t)(s - r->plan->steps.at));
}

static void bind(const asp_rank *r, const asp_step *s, asp_kcall *call)
{
    *call = *s->call;
    call->seed = r->seed;
    call->step = r->step;
    call->rank = asp_comm_rank(r->comm);
    call->ranks = asp_comm_ranks(r->comm);
    call->chunk = r->chunk;
    call->carry = at(r, s->carry);
    for (int i = 0; i < call->n_in; i++) call->in[i].data = operand(r, s, i);
    for (int i = 0; i < call->n_out; i++) call->out[i].data = operand(r, s, call->n_in + i);
    call->work = at(r, s->work);
    call->work_bytes = s->work_bytes;
}

static asp_status step_kernel(asp_rank *r, const asp_step *s)
{
    kernel_run k = {.fn = s->fn, .spans = spans_of(r, s)};
    atomic_int bad_index = 0;
    bind(r, s, &k.call);
    k.call.bad_index = &bad_index;
    asp_team_run(r->team, run_kernel, &k);
    if (!bad_index) return ASP_OK;
    return asp_fail(r->cx, ASP_ERR_INPUT,
                    "an index lies outside of the dimension that it looks up; nothing was read "
                    "there, but the result has no meaning");
}

static asp_status step_rows(asp_rank *r, const asp_step *s)
{
    rows_run x = {.program = s->program, .work = at(r, s->work), .spans = spans_of(r, s)};
    for (int i = 0; i < s->n_places; i++) x.ptrs[i] = operand(r, s, i);
    asp_team_run(r->team, run_rows, &x);
    return ASP_OK;
}

static asp_status step_update(asp_rank *r, const asp_step *s)
{
    const asp_tensor *x = &s->call->in[0];
    const int64_t bytes = s->places[0] - r->plan->slab_offset[ASP_SLAB_PARAM];
    asp_update_run u = {.args = &r->update,
                        .kernels = asp_optim_choose(asp_isa_best()),
                        .dtype = x->dtype,
                        .first = bytes / asp_dtypes[x->dtype].bytes,
                        .count = asp_tensor_count(x),
                        .decays = x->rank >= 2,
                        .squares = at(r, s->work),
                        .spans = spans_of(r, s)};
    for (int i = 0; i < s->n_places; i++) u.at[i] = operand(r, s, i);
    r->squares += asp_update(r->team, &u);
    return ASP_OK;
}

static asp_status step_all_to_all(asp_rank *r, const asp_step *s)
{
    asp_kcall call;
    bind(r, s, &call);
    asp_all_to_all a = asp_a2a_of(call.attr, &call.out[0]);
    return asp_comm_all_to_all(r->comm, r->team, &call.in[0], &a, &call.out[0], call.work);
}

static asp_status step_all_reduce(asp_rank *r, const asp_step *s)
{
    asp_kcall call;
    bind(r, s, &call);
    return asp_comm_all_reduce(s->everyone ? r->world : r->comm, r->team, call.in[0].data,
                               call.in[0].dtype, asp_tensor_count(&call.in[0]), call.out[0].data,
                               call.work);
}

static asp_status step_rotate(asp_rank *r, const asp_step *s)
{
    const asp_tensor *x = &s->call->in[0];
    const asp_rotate_attr *a = s->call->attr;
    return asp_comm_rotate_begin(r->comm, at(r, s->places[0]),
                                 asp_tensor_count(x) * asp_dtypes[x->dtype].bytes, a->by,
                                 at(r, s->places[1]));
}

static asp_status step_await(asp_rank *r, const asp_step *s)
{
    (void)s;
    return asp_comm_rotate_await(r->comm, r->team);
}

static asp_status step_file(asp_rank *r, const asp_step *s)
{
    const bool writes = s->kind == ASP_STEP_WRITE_FILE;
    asp_spill_begin(r->spill, writes, at(r, s->places[0]), s->file_at, s->call->in[0].dim[0]);
    return ASP_OK;
}

static asp_status step_await_file(asp_rank *r, const asp_step *s)
{
    (void)s;
    return asp_spill_await(r->spill, r->cx);
}

// ---- replicas ----------------------------------------------------------------------------------

static double loss_of(const asp_rank *r)
{
    const void *loss = at(r, r->plan->loss);
    if (!loss) return 0;
    return r->plan->dtype == ASP_F64 ? *(const double *)loss : (double)*(const float *)loss;
}

// One rank speaks for a replica: so the sums do not depend on how many it has.  A loss of weight 0
// may be 0/0.
static asp_status step_weigh(asp_rank *r, const asp_step *s)
{
    double x[ASP_SHARE_WORDS] = {0};
    (void)s;
    if (asp_comm_rank(r->comm) == 0) {
        x[0] = r->share.weight > 0 ? r->share.weight * loss_of(r) : 0;
        x[1] = r->share.weight;
        x[2] = (double)r->share.targets;
    }
    ASP_TRY(asp_comm_all_reduce(r->world, NULL, x, ASP_F64, ASP_SHARE_WORDS, x, NULL));
    r->mean_loss = x[0] / x[1];
    r->shares = (asp_share){.weight = x[1], .targets = (int64_t)x[2]};
    return ASP_OK;
}

typedef struct scale_run {
    void *slab;
    double by;
    int64_t count;
    asp_dtype dtype;
    asp_span *spans;
} scale_run;

#define SCALE_CHUNK ((int64_t)1 << 16)

static void run_scale(void *arg, asp_worker *w)
{
    const scale_run *x = arg;
    if (x->spans) x->spans[w->thread].begin = asp_seconds();
    for (int64_t c; (c = asp_team_next(w, asp_ceil_div(x->count, SCALE_CHUNK))) >= 0;) {
        const int64_t end = asp_min(x->count, (c + 1) * SCALE_CHUNK);
        double *d = x->slab;
        float *f = x->slab;
        for (int64_t i = c * SCALE_CHUNK; i < end; i++) { // by 0: even what is no number
            if (x->dtype == ASP_F64)
                d[i] = x->by > 0 ? d[i] * x->by : 0;
            else
                f[i] = x->by > 0 ? f[i] * (float)x->by : 0;
        }
    }
    if (x->spans) x->spans[w->thread].end = asp_seconds();
}

static asp_status step_scale(asp_rank *r, const asp_step *s)
{
    scale_run x = {.slab = asp_rank_slab(r, ASP_SLAB_GRAD),
                   .by = r->shares.weight > 0 ? r->share.weight / r->shares.weight : 0,
                   .count = r->plan->slab_count,
                   .dtype = r->plan->dtype,
                   .spans = spans_of(r, s)};
    asp_team_run(r->team, run_scale, &x);
    return ASP_OK;
}

// ---- the walk ----------------------------------------------------------------------------------

// By asp_step_kind.
static asp_status (*const run_step[])(asp_rank *r, const asp_step *s) = {
    step_kernel, step_rows,   step_scale, step_update, step_all_to_all, step_all_reduce,
    step_weigh,  step_rotate, step_await, step_file,   step_file,       step_await_file};

static asp_status run_range(asp_rank *r, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const asp_step *s = &r->plan->steps.at[i];
        const bool exchange = asp_step_is_exchange(s);
        asp_span span = {r->trace || exchange ? asp_seconds() : 0, 0};
        ASP_TRY_NOTE(r->cx, run_step[s->kind](r, s), "step %u, %s (%s)", i, s->op, s->loc);
        if (!r->trace && !exchange) continue;
        span.end = asp_seconds();
        if (exchange) r->exchange_seconds += span.end - span.begin;
        if (r->trace) r->trace->steps[i] = span;
    }
    return ASP_OK;
}

static asp_status run_loop(asp_rank *r, const asp_loop *l)
{
    asp_status s = ASP_OK;
    const double begin = r->trace ? asp_seconds() : 0;
    for (int64_t t = 0; t < l->trips && s == ASP_OK; t++) {
        r->trip = t;
        r->chunk = l->first_chunk + t;
        s = run_range(r, l->first, l->end);
        if (r->trace) asp_trace_add_chunk(r->trace, l, t);
    }
    if (r->trace) asp_trace_end_loop(r->trace, l, begin);
    r->trip = r->chunk = 0;
    return s;
}

static asp_status run_steps(asp_rank *r)
{
    const asp_plan *p = r->plan;
    uint32_t at = 0;
    r->exchange_seconds = r->squares = 0;
    for (uint32_t i = 0; i < p->loops.n; i++) {
        ASP_TRY(run_range(r, at, p->loops.at[i].first));
        ASP_TRY(run_loop(r, &p->loops.at[i]));
        at = p->loops.at[i].end;
    }
    return run_range(r, at, p->steps.n);
}

// Before anything is exchanged: peers that were given other numbers would mix them unnoticed.
static asp_status agree(asp_rank *r)
{
    const asp_plan *p = r->plan;
    uint64_t sizes = 0, inputs = 0;
    if (r->agreed || asp_comm_ranks(r->world) == 1) return ASP_OK;
    for (uint32_t i = 0; i < p->inputs.n; i++) {
        const asp_plan_input *in = &p->inputs.at[i];
        sizes = asp_hash(in->dim, (size_t)in->rank * sizeof in->dim[0], sizes);
        inputs = asp_hash(asp_rank_input(r, (int)i), (size_t)in->bytes, inputs);
    }
    const size_t bytes = (size_t)(p->slab_count * asp_dtypes[p->param_dtype].bytes);
    ASP_TRY(asp_comm_agree(r->world, "the sizes of the inputs", sizes));
    ASP_TRY(asp_comm_agree(r->comm, "the inputs of the first step", inputs));
    ASP_TRY(asp_comm_agree(r->world, "the parameters before the first step",
                           asp_hash(asp_rank_slab(r, ASP_SLAB_PARAM), bytes, 0)));
    r->agreed = true;
    return ASP_OK;
}

asp_status asp_rank_step(asp_rank *r, double *out_loss)
{
    ASP_TRY(agree(r));
    asp_status s = run_steps(r);
    if (s < 0) { // the rank's memory may be freed next
        asp_comm_rotate_cancel(r->comm);
        if (r->spill) asp_spill_cancel(r->spill);
    }
    ASP_TRY(s);
    if (r->plan->loss >= 0) *out_loss = r->plan->replicas > 1 ? r->mean_loss : loss_of(r);
    return ASP_OK;
}

int64_t asp_rank_offloaded(const asp_rank *r)
{
    return r->spilled + (r->spill ? asp_spill_moved(r->spill) : 0);
}

double asp_rank_exchange_seconds(const asp_rank *r) { return r->exchange_seconds; }

// ---- trace -------------------------------------------------------------------------------------

asp_status asp_rank_trace(asp_rank *r)
{
    asp_trace_destroy(r->trace);
    r->trace = NULL;
    return asp_trace_create(r->cx, r->plan, asp_team_size(r->team), &r->trace);
}

void asp_rank_trace_phase(asp_rank *r, const char *name, double begin)
{
    asp_trace *t = r->trace;
    if (!t || t->n_phases == ASP_TRACE_PHASES) return;
    t->phases[t->n_phases].name = name;
    t->phases[t->n_phases++].span = (asp_span){begin, asp_seconds()};
}

void asp_rank_print_profile(const asp_rank *r, asp_text *t)
{
    if (r->trace) asp_trace_print(r->trace, r->plan, t);
}

void asp_rank_put_events(const asp_rank *r, asp_text *t)
{
    if (r->trace) asp_trace_events(r->trace, r->plan, asp_comm_rank(r->world), t);
}
