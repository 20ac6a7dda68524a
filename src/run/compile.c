// The whole way from a module-level graph to a plan.  Neighbours: compile.h (contract),
// pass/runner.c, plan.c. SPDX-License-Identifier: Apache-2.0
#include "run/compile_int.h"

static asp_env sizes(const asp_graph *g, const asp_compile_options *o)
{
    asp_env env = {.at = {{"S", o->seq}, {"B", o->batch}}, .n = 2};
    asp_env_fill(&env, &g->examples);
    return env;
}

static asp_pass_options pass_options(const asp_graph *g, const asp_compile_options *o)
{
    return (asp_pass_options){.ranks = o->ranks,
                              .sp = o->sp,
                              .ac = o->ac,
                              .tile = o->tile,
                              .recompute = o->recompute,
                              .save = o->save,
                              .dtype = o->dtype,
                              .half_params = o->half_params,
                              .whole_outputs = o->whole_outputs,
                              .env = sizes(g, o)};
}

// Is the graph what one of P ranks runs already?
static bool is_split_by_hand(const asp_compile_options *o)
{
    return o->skip_sp || (o->sp && strcmp(o->sp, "none") == 0);
}

static asp_status check_ranks(asp_ctx *cx, const asp_graph *g, const asp_compile_options *o)
{
    if (!is_split_by_hand(o) && g->ranks != 1)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "graph %s is split for %lld ranks already; give --sp none --ranks %lld",
                        g->name, (long long)g->ranks, (long long)g->ranks);
    if (is_split_by_hand(o) && g->ranks != o->ranks)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--sp none: graph %s is written for %lld rank%s, not %lld; give --ranks "
                        "%lld, or let --sp auto split it",
                        g->name, (long long)g->ranks, g->ranks == 1 ? "" : "s", (long long)o->ranks,
                        (long long)g->ranks);
    return ASP_OK;
}

asp_device asp_compile_device(const asp_machine *m, const asp_compile_options *o)
{
    return asp_device_of_rank(m, (int)(o->ranks * asp_max(o->replicas, 1)), o->threads);
}

static asp_status compile_as(asp_ctx *cx, const asp_graph *module,
                             const asp_compile_options *options, const asp_pass_trace *trace,
                             asp_graph **out_joint)
{
    asp_pass_options o = pass_options(module, options);
    asp_machine machine;
    ASP_TRY(asp_machine_find(cx, &machine));
    const asp_device device = asp_compile_device(&machine, options);
    o.device = &device;
    ASP_TRY(check_ranks(cx, module, options));
    asp_graph *g = asp_graph_clone(module);
    asp_status s = asp_graph_typecheck(g);
    if (s == ASP_OK && !is_split_by_hand(options))
        s = asp_passes_run(cx, g, ASP_PIPELINE_SHARD, &o, trace);
    const char *joint = options->inference ? ASP_PIPELINE_FORWARD : ASP_PIPELINE_JOINT;
    if (s == ASP_OK) s = asp_passes_run(cx, g, joint, &o, trace);
    if (s < 0) {
        asp_graph_destroy(g);
        return s;
    }
    *out_joint = g;
    return ASP_OK;
}

asp_status asp_compile_joint(asp_ctx *cx, const asp_graph *module,
                             const asp_compile_options *options, const asp_pass_trace *trace,
                             asp_graph **out_joint)
{
    asp_compile_options o = *options;
    asp_choice choice = {0};
    if (options->choice) *options->choice = choice;
    const bool open = !o.sp || strcmp(o.sp, "auto") == 0;
    if (!open || o.skip_sp || o.ranks <= 1)
        return compile_as(cx, module, options, trace, out_joint);
    asp_graph *joint;
    ASP_TRY(check_ranks(cx, module, options));
    ASP_TRY(asp_compile_choose(cx, module, options, &choice, &joint));
    if (options->choice) *options->choice = choice;
    if (!trace) {
        *out_joint = joint;
        return ASP_OK;
    }
    asp_graph_destroy(joint);
    o.sp = choice.at[choice.chosen].sp; // once more, watched
    return compile_as(cx, module, &o, trace, out_joint);
}

asp_status asp_compile_choice(asp_ctx *cx, const asp_graph *joint,
                              const asp_compile_options *options, const asp_pass_options *passes,
                              const asp_pass_trace *trace, asp_plan **out_plan)
{
    asp_run_options run = {.env = passes->env,
                           .threads = options->threads,
                           .backend = options->backend,
                           .replicas = options->replicas,
                           .optimizer = options->optimizer,
                           .accumulates = options->accumulates,
                           .fuses = options->fuse_optimizer,
                           .offload = options->offload,
                           .gemm = options->gemm,
                           .choice = options->choice};
    asp_graph *g = asp_graph_clone(joint);
    asp_status s = asp_passes_run(cx, g, ASP_PIPELINE_PLAN, passes, trace);
    if (s == ASP_OK) s = asp_plan_create(cx, g, &run, out_plan);
    asp_graph_destroy(g);
    return s;
}

// As pass/place.c has it for the length that it sees.
static asp_status check_seq(asp_ctx *cx, const asp_graph *g, const asp_compile_options *o)
{
    if (is_split_by_hand(o) || o->seq >= g->ranks) return ASP_OK;
    return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                    "a sequence of %lld tokens cannot be split over %lld ranks; use %lld or fewer "
                    "ranks",
                    (long long)o->seq, (long long)g->ranks, (long long)asp_max(1, o->seq));
}

static asp_status plan_tiled(asp_ctx *cx, const asp_graph *joint,
                             const asp_compile_options *options, const asp_pass_trace *trace,
                             asp_plan **out_plan)
{
    ASP_TRY(check_seq(cx, joint, options));
    asp_pass_options o = pass_options(joint, options);
    if (!options->ac || strcmp(options->ac, "budget") != 0)
        return asp_compile_choice(cx, joint, options, &o, trace, out_plan);
    asp_machine machine;
    ASP_TRY(asp_machine_find(cx, &machine));
    const asp_device device = asp_compile_device(&machine, options);
    o.device = &device;
    return asp_compile_budget(cx, joint, options, &o, trace, out_plan);
}

// Tiles come first: what the choice of recomputation sees are their edges.
asp_status asp_compile_plan(asp_ctx *cx, const asp_graph *joint, const asp_compile_options *options,
                            const asp_pass_trace *trace, asp_plan **out_plan)
{
    if (options->tile <= 0) return plan_tiled(cx, joint, options, trace, out_plan);
    const asp_pass_options o = pass_options(joint, options);
    asp_graph *g = asp_graph_clone(joint);
    asp_status s = asp_passes_run(cx, g, ASP_PIPELINE_TILE, &o, trace);
    if (s == ASP_OK) s = plan_tiled(cx, g, options, trace, out_plan);
    asp_graph_destroy(g);
    return s;
}

asp_status asp_compile(asp_ctx *cx, const asp_graph *module, const asp_compile_options *options,
                       const asp_pass_trace *trace, asp_plan **out_plan)
{
    asp_graph *joint;
    ASP_TRY(asp_compile_joint(cx, module, options, trace, &joint));
    asp_status s = asp_compile_plan(cx, joint, options, trace, out_plan);
    asp_graph_destroy(joint);
    return s;
}
