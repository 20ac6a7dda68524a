// Where gradients are summed over ranks, and where the program updates parameters itself.
//
//   %dw : f32[8, 8] = gemm_tn %dy, %x              gemm_tn   -> dw, in the slab of gradients
//   %dx : f32[S, 8] = gemm_nn %dy, %w        ->    gemm_nn
//   ...                                            ...
//                                                  all_reduce   of the slab, bucket by bucket
//
// With options.fuses the gradient lies in the arena among the activations, and dies early:
//
//                                                  gemm_tn   -> dw, in the arena
//                                                  gemm_nn
//                                                  all_reduce   of dw
//                                                  update       w, dw, both states of w
//
// An update stands behind the last node that reads its parameter or touches its gradient, so every
// rank has the same list in the same order.  Sums and updates go element by element: parameters
// have the bits they would have with a slab.  O(nodes). Neighbours: program.c (the other steps),
// update.c (runs them), memplan.c. SPDX-License-Identifier: Apache-2.0
#include "run/run_int.h"

#define BUCKET_BYTES ((int64_t)8 << 20) // of gradients in one all-reduce

// ---- sums over ranks ---------------------------------------------------------------------------

// Of `count` elements of the gradients from `at` on, which stand in `storage`.
static void add_sum(asp_planner *p, uint32_t storage, int64_t at, int64_t count)
{
    asp_plan *plan = p->plan;
    const int64_t bytes = asp_dtypes[plan->dtype].bytes;
    const asp_offset offset = {.bytes = at * bytes, .part = count * bytes};
    asp_kcall *call = ASP_NEW(&plan->arena, asp_kcall);
    *call = (asp_kcall){
        .n_in = 1, .n_out = 1, .in = {{.dtype = plan->dtype, .rank = 1, .dim = {count}}}};
    call->out[0] = call->in[0];
    asp_step *s = asp_planner_add_step(p, ASP_STEP_ALL_REDUCE, p->g->tail, "all_reduce");
    s->loc = ASP_GRADIENTS_LOC;
    s->backward = s->everyone = true;
    s->call = call;
    asp_planner_add_storage(p, s, storage, offset);
    asp_planner_add_storage(p, s, storage, offset);
    asp_planner_add_work(p, s,
                         asp_comm_work_bytes(plan->options.backend, ASP_COMM_all_reduce, count,
                                             bytes, (int)asp_plan_world(plan)));
}

static void add_sums(asp_planner *p, uint32_t storage, int64_t count)
{
    const int64_t bucket = BUCKET_BYTES / asp_dtypes[p->plan->dtype].bytes;
    for (int64_t at = 0; asp_plan_world(p->plan) > 1 && at < count; at += bucket)
        add_sum(p, storage, at, asp_min(bucket, count - at));
}

// With replicas: what their mean loss is, and gradients by their weight in it.
static void add_weights(asp_planner *p, uint32_t slab)
{
    asp_plan *plan = p->plan;
    asp_kcall *call = ASP_NEW(&plan->arena, asp_kcall);
    *call = (asp_kcall){.n_in = 1, .in = {{.dtype = ASP_F64, .rank = 1, .dim = {ASP_SHARE_WORDS}}}};
    asp_step *s = asp_planner_add_step(p, ASP_STEP_WEIGH, p->g->tail, "weigh");
    s->loc = ASP_GRADIENTS_LOC;
    s->backward = s->everyone = true;
    s->call = call;
    s = asp_planner_add_step(p, ASP_STEP_SCALE, p->g->tail, "scale");
    s->loc = ASP_GRADIENTS_LOC;
    s->backward = true;
    s->touched_bytes = 2 * plan->slab_count * asp_dtypes[plan->dtype].bytes;
    asp_planner_add_storage(p, s, slab, (asp_offset){0});
}

// The slab of gradients whole, padding included.
void asp_planner_add_last(asp_planner *p)
{
    asp_plan *plan = p->plan;
    if (plan->options.fuses || plan->slab_count == 0) return;
    const uint32_t slab = asp_planner_new_storage(
        p, ASP_MEM_GRAD, plan->slab_count * asp_dtypes[plan->dtype].bytes, p->g->tail);
    p->storages.at[slab].place = plan->slab_offset[ASP_SLAB_GRAD];
    if (plan->replicas > 1) add_weights(p, slab);
    add_sums(p, slab, plan->slab_count);
}

// ---- updates -----------------------------------------------------------------------------------

static asp_status find_gradients(asp_planner *p)
{
    asp_map outputs;
    asp_map_init(&outputs, &p->scratch);
    for (uint32_t i = 0; i < p->g->outputs.n; i++) {
        const char *name = p->g->outputs.at[i].name;
        bool added;
        asp_map_add(&outputs, name, strlen(name), &added);
    }
    ASP_FOR_NODES (p->g, n) {
        const asp_node_info *info = asp_node_at(p->g, n);
        if (info->op != ASP_OP_param) continue;
        const char *name = ((const asp_param_attr *)info->attr)->name;
        const uint32_t i = asp_map_find(&outputs, name, strlen(name));
        if (i == UINT32_MAX)
            return asp_fail(p->cx, ASP_ERR_UNSUPPORTED,
                            "parameter %s has no gradient to be updated with; leave "
                            "--fuse-optimizer out",
                            name);
        const asp_due_update u = {.param = p->storage_of[info->first.i],
                                  .gradient = p->storage_of[p->g->outputs.at[i].val.i]};
        ASP_PUSH(&p->scratch, &p->updates, u);
    }
    return ASP_OK;
}

asp_status asp_planner_find_updates(asp_planner *p)
{
    if (!p->plan->options.optimizer)
        return asp_fail(p->cx, ASP_ERR_USAGE, "--fuse-optimizer: there is no optimizer to fuse");
    ASP_TRY(find_gradients(p));
    uint32_t *of = ASP_NEW_ARRAY(&p->scratch, uint32_t, p->storages.n); // number + 1
    asp_node *last = ASP_NEW_ARRAY(&p->scratch, asp_node, p->updates.n + 1);
    p->due = ASP_NEW_ARRAY(&p->scratch, uint32_t, p->g->nodes.n);
    for (uint32_t i = 0; i < p->updates.n; i++)
        of[p->updates.at[i].param] = of[p->updates.at[i].gradient] = i + 1;
    ASP_FOR_NODES (p->g, n) {
        const asp_node_info *info = asp_node_at(p->g, n);
        for (uint32_t i = 0; i < info->n_in; i++) last[of[p->storage_of[info->in[i].i]]] = n;
        for (uint32_t i = 0; i < info->n_out; i++)
            last[of[p->storage_of[asp_node_result(p->g, n, i).i]]] = n;
    }
    for (uint32_t i = p->updates.n; i > 0; i--) {
        p->updates.at[i - 1].next = p->due[last[i].i];
        p->due[last[i].i] = i;
    }
    return ASP_OK;
}

static void add_state(asp_planner *p, asp_step *s, asp_slab slab, const asp_plan_param *param)
{
    const int64_t bytes = asp_dtypes[p->plan->dtype].bytes;
    const uint32_t x =
        asp_planner_new_storage(p, ASP_MEM_OPTIMIZER, param->count * bytes, p->g->tail);
    p->storages.at[x].place = p->plan->slab_offset[slab] + param->offset * bytes;
    asp_planner_add_storage(p, s, x, (asp_offset){0});
}

static void add_update(asp_planner *p, uint32_t i)
{
    const asp_due_update u = p->updates.at[i];
    const asp_plan_param *param = &p->plan->params.at[i];
    add_sums(p, u.gradient, param->count);
    asp_kcall *call = ASP_NEW(&p->plan->arena, asp_kcall);
    *call = (asp_kcall){.n_in = 1, .in = {{.dtype = p->plan->param_dtype, .rank = param->rank}}};
    memcpy(call->in[0].dim, param->dim, sizeof param->dim);
    asp_step *s = asp_planner_add_step(p, ASP_STEP_UPDATE, p->g->tail, "update");
    s->loc = param->name;
    s->backward = true;
    s->call = call;
    asp_planner_add_storage(p, s, u.param, (asp_offset){0});
    asp_planner_add_storage(p, s, u.gradient, (asp_offset){0});
    add_state(p, s, ASP_SLAB_M, param);
    add_state(p, s, ASP_SLAB_V, param);
    asp_planner_add_work(p, s, asp_update_work_bytes(param->count));
}

void asp_planner_add_due(asp_planner *p, asp_node first, asp_node end)
{
    for (asp_node n = first; p->due && n.i != end.i; n = asp_node_at(p->g, n)->next)
        for (uint32_t i = p->due[n.i]; i; i = p->updates.at[i - 1].next) add_update(p, i - 1);
}
