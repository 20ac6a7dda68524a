// Makes a plan and answers questions about it.  Neighbours: run.h (contract), memplan.c, program.c.
// SPDX-License-Identifier: Apache-2.0
#include "kern/gemm.h"
#include "pass/pass.h"
#include "run/run_int.h"

// What a process takes besides its ranks' memory, measured on Linux with glibc: stacks, tables,
// libraries' own buffers.
#define PROCESS_BASE_BYTES ((int64_t)1 << 20)
#define THREAD_BYTES ((int64_t)96 << 10)

static void count_exchange(asp_plan *plan, asp_comm_op op, const char *what, int64_t bytes)
{
    asp_plan_report *r = &plan->report;
    int i = 0;
    while (i < r->n_exchanges &&
           (r->exchanges[i].op != op || strcmp(r->exchanges[i].what, what) != 0))
        i++;
    ASP_CHECK(i < (int)ASP_COUNT_OF(r->exchanges));
    if (i == r->n_exchanges)
        r->exchanges[r->n_exchanges++] = (asp_plan_exchange){.op = op, .what = what};
    r->exchanges[i].count++;
    r->exchanges[i].bytes += bytes;
}

static const char *purpose_of(const asp_step *s)
{
    size_t n = strlen(s->loc), suffix = strlen(ASP_AGAIN_SUFFIX);
    if (strcmp(s->loc, ASP_GRADIENTS_LOC) == 0) return "gradients";
    if (n >= suffix && strcmp(s->loc + n - suffix, ASP_AGAIN_SUFFIX) == 0) return "repeated";
    return s->backward ? "backward" : "forward";
}

static bool exchange_of(asp_step_kind kind, asp_comm_op *out_op)
{
    static const struct {
        asp_step_kind kind;
        asp_comm_op op;
    } table[] = {{ASP_STEP_ALL_TO_ALL, ASP_COMM_all_to_all},
                 {ASP_STEP_ALL_REDUCE, ASP_COMM_all_reduce},
                 {ASP_STEP_WEIGH, ASP_COMM_all_reduce},
                 {ASP_STEP_ROTATE, ASP_COMM_rotate}};
    for (size_t i = 0; i < ASP_COUNT_OF(table); i++) {
        if (table[i].kind != kind) continue;
        *out_op = table[i].op;
        return true;
    }
    return false;
}

// From other ranks, by one.
static int64_t received_bytes(const asp_plan *plan, const asp_step *s, int rank)
{
    const asp_tensor *x = &s->call->in[0];
    const int ranks = (int)(s->everyone ? asp_plan_world(plan) : plan->ranks);
    int64_t bytes = 0, work;
    asp_comm_op op;
    if (exchange_of(s->kind, &op) && op != ASP_COMM_all_to_all)
        return asp_comm_bytes(op, asp_tensor_count(x), asp_dtypes[x->dtype].bytes, ranks, rank);
    asp_all_to_all a = asp_a2a_of(s->call->attr, &s->call->out[0]);
    ASP_CHECK(asp_comm_all_to_all_cost(plan->arena.cx, plan->options.backend, x, &a, ranks, rank,
                                       &bytes, &work) == ASP_OK);
    return bytes;
}

// Of a thread, for products alone.
static int64_t library_bytes(const asp_step *s)
{
    const bool product = s->kind == ASP_STEP_KERNEL && s->cost == ASP_COST_GEMM && s->call->plan;
    return product ? ((const asp_gemm_plan *)s->call->plan)->library_bytes : 0;
}

static void fill_report(asp_plan *plan)
{
    asp_plan_report *r = &plan->report;
    r->n_steps = (int)plan->steps.n;
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        const asp_step *s = &plan->steps.at[i];
        const double flops = s->flops * (double)s->trips;
        r->flops += flops;
        if (strcmp(purpose_of(s), "repeated") == 0) r->repeated_flops += flops;
        asp_comm_op op;
        if (exchange_of(s->kind, &op))
            count_exchange(plan, op, purpose_of(s), received_bytes(plan, s, 0));
    }
    int64_t library = 0;
    for (uint32_t i = 0; i < plan->steps.n; i++)
        library = asp_max(library, library_bytes(&plan->steps.at[i]));
    int64_t here = plan->options.backend == ASP_COMM_thread ? asp_plan_world(plan) : 1;
    r->process_bytes = here * (asp_round_up(r->rank_bytes, 4096) +
                               plan->options.threads * (THREAD_BYTES + library)) +
                       PROCESS_BASE_BYTES;
}

// Gradients stand in their slab.
static asp_status add_output(asp_planner *p, const asp_output *o)
{
    asp_plan *plan = p->plan;
    const asp_storage *s = &p->storages.at[asp_planner_home(p, p->storage_of[o->val.i])];
    asp_tensor t;
    if (s->kind == ASP_MEM_GRAD) return ASP_OK;
    if (strcmp(o->name, "loss") == 0) {
        plan->loss = s->place;
        return ASP_OK;
    }
    ASP_TRY(asp_planner_tensor(p, o->val, &t));
    asp_plan_output x = {.name = asp_copy_str(&plan->arena, o->name),
                         .dtype = t.dtype,
                         .rank = t.rank,
                         .bytes = asp_tensor_count(&t) * asp_dtypes[t.dtype].bytes,
                         .offset = s->place};
    memcpy(x.dim, t.dim, sizeof t.dim);
    ASP_PUSH(&plan->arena, &plan->outputs, x);
    return ASP_OK;
}

static asp_status make(asp_planner *p)
{
    ASP_TRY(asp_planner_separate_outputs(p));
    p->storage_of = ASP_NEW_ARRAY(&p->scratch, uint32_t, p->g->vals.n);
    ASP_PUSH(&p->scratch, &p->storages, (asp_storage){0});
    ASP_PUSH(&p->scratch, &p->tiles, (asp_tile_span){0});
    ASP_TRY(asp_planner_assign_storages(p));
    if (p->plan->options.fuses) ASP_TRY(asp_planner_find_updates(p));
    ASP_TRY(asp_planner_build_steps(p));
    if (p->plan->options.offload) asp_planner_offload(p);
    if (p->plan->steps.n == 0)
        return asp_fail(p->cx, ASP_ERR_INPUT, "graph %s computes nothing", p->g->name);
    ASP_TRY(asp_planner_place(p));
    for (uint32_t i = 0; i < p->g->outputs.n; i++) ASP_TRY(add_output(p, &p->g->outputs.at[i]));
    fill_report(p->plan);
    return ASP_OK;
}

asp_status asp_plan_create(asp_ctx *cx, asp_graph *g, const asp_run_options *options,
                           asp_plan **out_plan)
{
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_plan *plan = ASP_NEW(&a, asp_plan); // lies on its own arena
    plan->arena = a;
    plan->options = *options;
    plan->ranks = g->ranks;
    plan->replicas = asp_max(options->replicas, 1);
    plan->loss = ASP_NOWHERE;
    plan->report.tile_rows = g->tile_rows;
    if (options->choice) plan->choice = *options->choice;
    plan->options.choice = NULL;
    if (options->offload) plan->options.offload = asp_copy_str(&plan->arena, options->offload);
    for (int i = 0; i < options->env.n; i++)
        plan->options.env.at[i].symbol = asp_copy_str(&plan->arena, options->env.at[i].symbol);
    asp_planner p = {.cx = cx, .g = g, .plan = plan};
    asp_arena_init(&p.scratch, cx);
    asp_status s = make(&p);
    asp_arena_fini(&p.scratch);
    if (s < 0) {
        asp_plan_destroy(plan);
        return s;
    }
    *out_plan = plan;
    return ASP_OK;
}

void asp_plan_destroy(asp_plan *p)
{
    if (!p) return;
    asp_arena a = p->arena;
    asp_arena_fini(&a);
}

const asp_plan_report *asp_plan_get_report(const asp_plan *p) { return &p->report; }
const asp_choice *asp_plan_get_choice(const asp_plan *p) { return &p->choice; }
int64_t asp_plan_ranks(const asp_plan *p) { return p->ranks; }
int64_t asp_plan_replicas(const asp_plan *p) { return p->replicas; }
int64_t asp_plan_world(const asp_plan *p) { return p->ranks * p->replicas; }
asp_dtype asp_plan_dtype(const asp_plan *p) { return p->dtype; }

asp_dtype asp_plan_slab_dtype(const asp_plan *p, asp_slab slab)
{
    return slab == ASP_SLAB_PARAM ? p->param_dtype : p->dtype;
}

const asp_env *asp_plan_env(const asp_plan *p) { return &p->options.env; }
int asp_plan_n_params(const asp_plan *p) { return (int)p->params.n; }
const asp_plan_param *asp_plan_get_param(const asp_plan *p, int i) { return &p->params.at[i]; }
int64_t asp_plan_slab_count(const asp_plan *p) { return p->slab_count; }
bool asp_plan_fuses_optimizer(const asp_plan *p) { return p->options.fuses; }
int asp_plan_n_inputs(const asp_plan *p) { return (int)p->inputs.n; }
const asp_plan_input *asp_plan_get_input(const asp_plan *p, int i) { return &p->inputs.at[i]; }
int asp_plan_n_outputs(const asp_plan *p) { return (int)p->outputs.n; }
const asp_plan_output *asp_plan_get_output(const asp_plan *p, int i) { return &p->outputs.at[i]; }

void asp_plan_print(const asp_plan *p, asp_text *t)
{
    for (uint32_t i = 0; i < p->steps.n; i++) {
        const asp_step *s = &p->steps.at[i];
        asp_put(t, "%5u %-12s", i, s->op);
        for (int k = 0; k < s->n_places; k++) asp_put(t, " %lld", (long long)s->places[k]);
        if (s->work_bytes)
            asp_put(t, " scratch %lld bytes at %lld", (long long)s->work_bytes, (long long)s->work);
        if (s->trips > 1) asp_put(t, " %lld chunks", (long long)s->trips);
        asp_put(t, "  @ %s\n", s->loc);
    }
}

uint64_t asp_plan_hash(asp_ctx *cx, const asp_plan *p)
{
    asp_arena a;
    asp_text t;
    asp_arena_init(&a, cx);
    asp_text_init(&t, &a);
    asp_put(&t, "ranks %lld, replicas %lld\n", (long long)p->ranks, (long long)p->replicas);
    asp_plan_print(p, &t);
    uint64_t hash = asp_hash(t.at, t.n, 0);
    asp_arena_fini(&a);
    return hash;
}
