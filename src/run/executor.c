// One rank: its memory, and the walk over the step program.  Neighbours: run.h (contract),
// program.c (who made the steps). SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "run/run_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

struct asp_rank {
    asp_ctx *cx;          // borrowed
    const asp_plan *plan; // borrowed
    asp_comm *comm;       // borrowed
    asp_team *team;       // borrowed
    char *memory;         // plan->report.rank_bytes, mapped
    size_t mapped_bytes;
    double *seconds; // by step, when tracing; owned
    uint64_t seed, step;
};

asp_status asp_rank_create(asp_ctx *cx, const asp_plan *plan, asp_comm *comm, asp_team *team,
                           asp_rank **out_rank)
{
    asp_rank *r = calloc(1, sizeof *r);
    if (!r) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for a rank");
    *r = (asp_rank){.cx = cx, .plan = plan, .comm = comm, .team = team};
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
    *out_rank = r;
    return ASP_OK;
}

void asp_rank_destroy(asp_rank *r)
{
    if (!r) return;
    munmap(r->memory, r->mapped_bytes);
    free(r->seconds);
    free(r);
}

void *asp_rank_slab(asp_rank *r, asp_slab slab)
{
    ASP_CHECK(r->plan->slab_offset[slab] >= 0);
    return r->memory + r->plan->slab_offset[slab];
}

void *asp_rank_input(asp_rank *r, int i) { return r->memory + r->plan->inputs.at[i].offset; }

void asp_rank_seed(asp_rank *r, uint64_t seed, uint64_t step)
{
    r->seed = seed;
    r->step = step;
}

// ---- steps
// ---------------------------------------------------------------------------------------

static void *at(const asp_rank *r, int64_t place) { return place < 0 ? NULL : r->memory + place; }

typedef struct kernel_run {
    asp_kernel *fn;
    asp_kcall call;
} kernel_run;

static void run_kernel(void *arg, asp_worker *w)
{
    const kernel_run *k = arg;
    k->fn(&k->call, w);
}

typedef struct rows_run {
    const asp_rowprog *program;
    void *ptrs[ASP_ROW_MAX_VALS];
    void *work;
} rows_run;

static void run_rows(void *arg, asp_worker *w)
{
    const rows_run *x = arg;
    asp_rowprog_run(x->program, x->ptrs, x->work, w);
}

static void bind(const asp_rank *r, const asp_step *s, asp_kcall *call)
{
    *call = *s->call;
    call->seed = r->seed;
    call->step = r->step;
    call->rank = asp_comm_rank(r->comm);
    call->ranks = asp_comm_ranks(r->comm);
    for (int i = 0; i < call->n_in; i++) call->in[i].data = at(r, s->places[i]);
    for (int i = 0; i < call->n_out; i++) call->out[i].data = at(r, s->places[call->n_in + i]);
    call->work = at(r, s->work);
    call->work_bytes = s->work_bytes;
}

static asp_status step_kernel(asp_rank *r, const asp_step *s)
{
    kernel_run k = {.fn = s->fn};
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
    rows_run x = {.program = s->program, .work = at(r, s->work)};
    for (int i = 0; i < s->n_places; i++) x.ptrs[i] = at(r, s->places[i]);
    asp_team_run(r->team, run_rows, &x);
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
    return asp_comm_all_reduce(r->comm, r->team, call.in[0].data, call.in[0].dtype,
                               asp_tensor_count(&call.in[0]), call.out[0].data, call.work);
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

// By asp_step_kind.
static asp_status (*const run_step[])(asp_rank *r, const asp_step *s) = {
    step_kernel, step_rows, step_all_to_all, step_all_reduce, step_rotate, step_await};

static asp_status run_steps(asp_rank *r)
{
    for (uint32_t i = 0; i < r->plan->steps.n; i++) {
        const asp_step *s = &r->plan->steps.at[i];
        double start = r->seconds ? asp_seconds() : 0;
        ASP_TRY_NOTE(r->cx, run_step[s->kind](r, s), "step %u, %s (%s)", i, s->op, s->loc);
        if (r->seconds) r->seconds[i] = asp_seconds() - start;
    }
    return ASP_OK;
}

asp_status asp_rank_step(asp_rank *r, double *out_loss)
{
    asp_status s = run_steps(r);
    if (s < 0) asp_comm_rotate_cancel(r->comm); // the rank's memory may be freed next
    ASP_TRY(s);
    const void *loss = at(r, r->plan->loss);
    if (loss)
        *out_loss =
            r->plan->dtype == ASP_F64 ? *(const double *)loss : (double)*(const float *)loss;
    return ASP_OK;
}

// ---- profile
// -------------------------------------------------------------------------------------

void asp_rank_trace(asp_rank *r, bool on)
{
    free(r->seconds);
    r->seconds = on ? calloc(r->plan->steps.n, sizeof *r->seconds) : NULL;
}

typedef struct profile_row {
    const char *op;
    int calls;
    double seconds, flops;
} profile_row;

static int slower_first(const void *x, const void *y)
{
    const profile_row *a = x, *b = y;
    return a->seconds > b->seconds ? -1 : a->seconds < b->seconds;
}

void asp_rank_print_profile(const asp_rank *r, asp_text *t)
{
    profile_row rows[ASP_OP_COUNT + 2]; // beside ops: row programs, awaits
    int n = 0;
    double total = 0;
    for (uint32_t i = 0; r->seconds && i < r->plan->steps.n; i++) {
        const asp_step *s = &r->plan->steps.at[i];
        int k = 0;
        while (k < n && strcmp(rows[k].op, s->op) != 0) k++;
        if (k == n) rows[n++] = (profile_row){.op = s->op};
        rows[k].calls++;
        rows[k].seconds += r->seconds[i];
        rows[k].flops += s->flops;
        total += r->seconds[i];
    }
    qsort(rows, (size_t)n, sizeof rows[0], slower_first);
    for (int k = 0; k < n; k++)
        asp_put(t, "%-16s %5d calls %9.2f ms %5.1f %% %8.1f GFLOP/s\n", rows[k].op, rows[k].calls,
                rows[k].seconds * 1e3, total > 0 ? 100 * rows[k].seconds / total : 0,
                rows[k].seconds > 0 ? rows[k].flops / rows[k].seconds / 1e9 : 0);
}
