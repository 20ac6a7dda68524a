// The step program: one entry per node, row program or exchange, kernels chosen, operands as
// storages. Neighbours: run_int.h, memplan.c (turns storages into places), executor.c (runs it).
// SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"
#include "pass/fuse.h"
#include "run/run_int.h"

asp_status asp_planner_dims(asp_planner *p, const asp_type *t, int64_t *out_dim)
{
    asp_tile_shape s;
    for (uint32_t d = 0; d < t->rank; d++)
        ASP_TRY(asp_size_eval(p->g, t->dim[d], &p->plan->options.env, &out_dim[d]));
    if (!p->chunk.tile || !asp_tile_shape_of(p->g, t, &s)) return ASP_OK;
    for (uint32_t d = 0; d < s.lead; d++) out_dim[d] = d + 1 == s.lead ? p->chunk.n : 1;
    return ASP_OK;
}

asp_status asp_planner_tensor(asp_planner *p, asp_val v, asp_tensor *out_tensor)
{
    const asp_type *t = asp_val_type(p->g, v);
    asp_tensor x = {.dtype = t->dtype, .rank = (int)t->rank};
    int64_t count = 1;
    ASP_TRY(asp_planner_dims(p, t, x.dim));
    for (uint32_t d = 0; d < t->rank; d++) {
        if (x.dim[d] < 1)
            return asp_fail(p->cx, ASP_ERR_SHAPE, "%s: %s is %lld; every size must be at least 1",
                            asp_node_str(p->g, asp_val_at(p->g, v)->node),
                            asp_size_str(p->g, t->dim[d]), (long long)x.dim[d]);
        if (asp_mul_overflows(count, x.dim[d], &count) || count > INT64_C(1) << 56)
            return asp_fail(p->cx, ASP_ERR_LIMIT, "%s is too large",
                            asp_node_str(p->g, asp_val_at(p->g, v)->node));
    }
    *out_tensor = x;
    return ASP_OK;
}

asp_step *asp_planner_add_step(asp_planner *p, asp_step_kind kind, asp_node n, const char *op)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    asp_arena *a = &p->plan->arena;
    ASP_PUSH(a, &p->plan->steps,
             (asp_step){.kind = kind,
                        .op = op,
                        .loc = asp_copy_str(a, info->loc),
                        .trips = 1,
                        .work = ASP_NOWHERE,
                        .carry = ASP_NOWHERE,
                        .cost = ASP_COST_STREAM,
                        .overwrites = -1});
    ASP_PUSH(&p->scratch, &p->step_work, 0);
    ASP_PUSH(&p->scratch, &p->step_carry, 0);
    ASP_PUSH(&p->scratch, &p->step_tile, p->chunk.tile ? p->tiles.n - 1 : 0);
    return &p->plan->steps.at[p->plan->steps.n - 1];
}

void asp_planner_add_storage(asp_planner *p, asp_step *s, uint32_t storage, asp_offset at)
{
    ASP_CHECK(storage);
    ASP_PUSH(&p->scratch, &p->step_storage, storage);
    ASP_PUSH(&p->scratch, &p->step_offset, at);
    s->n_places++;
}

void asp_planner_add_place(asp_planner *p, asp_step *s, asp_val v)
{
    asp_planner_add_storage(p, s, p->storage_of[v.i], asp_planner_offset(p, v));
}

static asp_status call_of(asp_planner *p, asp_node n, asp_kcall **out_call)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    asp_kcall *call = ASP_NEW(&p->plan->arena, asp_kcall);
    *call = (asp_kcall){
        .n_in = (int)info->n_in, .n_out = (int)info->n_out, .ranks = (int)p->plan->ranks};
    call->attr = asp_copy_bytes(&p->plan->arena, info->attr, asp_ops[info->op].attr_bytes);
    for (const asp_field *f = asp_ops[info->op].fields(); f->name; f++) {
        if (f->kind != ASP_KIND_str) continue; // the graph may die before the plan
        const char **s = (const char **)((uintptr_t)call->attr + f->offset);
        *s = asp_copy_str(&p->plan->arena, *s);
    }
    ASP_TRY(asp_node_sizes(&p->plan->arena, p->g, n, &p->plan->options.env, &call->sizes));
    for (uint32_t i = 0; i < info->n_in; i++)
        ASP_TRY(asp_planner_tensor(p, info->in[i], &call->in[i]));
    for (uint32_t i = 0; i < info->n_out; i++)
        ASP_TRY(asp_planner_tensor(p, asp_node_result(p->g, n, i), &call->out[i]));
    *out_call = call;
    return ASP_OK;
}

static void add_operands(asp_planner *p, asp_step *s, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    for (uint32_t i = 0; i < info->n_in; i++) asp_planner_add_place(p, s, info->in[i]);
    for (uint32_t i = 0; i < info->n_out; i++)
        asp_planner_add_place(p, s, asp_node_result(p->g, n, i));
}

void asp_planner_add_work(asp_planner *p, asp_step *s, int64_t bytes)
{
    if (bytes <= 0) return;
    uint32_t step = p->plan->steps.n - 1;
    s->work_bytes = bytes;
    ASP_PUSH(&p->scratch, &p->storages,
             (asp_storage){.kind = ASP_MEM_WORKSPACE,
                           .bytes = bytes,
                           .first = step,
                           .last = step,
                           .lives = true,
                           .loc = s->loc,
                           .op = s->op});
    p->step_work.at[step] = p->storages.n - 1;
}

// Kernels, beside row programs, that may write their result over the operand of the same shape.
static int overwrites(asp_op op)
{
    if (op == ASP_OP_softmax_grad || op == ASP_OP_log_softmax_grad) return 1;
    if (op == ASP_OP_sdpa_grad) return 3; // dq over out
    bool first = op == ASP_OP_nll_grad || op == ASP_OP_rotary || op == ASP_OP_all_reduce ||
                 op == ASP_OP_merge_attention || op == ASP_OP_softmax || op == ASP_OP_log_softmax ||
                 op == ASP_OP_mask_tail;
    return first ? 0 : -1;
}

asp_all_to_all asp_a2a_of(const asp_a2a_attr *a, const asp_tensor *result)
{
    return (asp_all_to_all){.ranks = (int)a->ranks,
                            .split = (int)a->split,
                            .gather = (int)a->gather,
                            .whole = result->dim[a->gather],
                            .split_unit = a->split_unit,
                            .gather_unit = a->gather_unit,
                            .zero_tail = a->zero};
}

static asp_status exchange_work(asp_planner *p, asp_op op, const asp_kcall *call,
                                int64_t *out_bytes)
{
    const asp_tensor *x = &call->in[0];
    int64_t received;
    if (op == ASP_OP_all_to_all) {
        asp_all_to_all a = asp_a2a_of(call->attr, &call->out[0]);
        return asp_comm_all_to_all_cost(p->cx, p->plan->options.backend, x, &a, (int)p->plan->ranks,
                                        0, &received, out_bytes);
    }
    *out_bytes =
        asp_comm_work_bytes(p->plan->options.backend, ASP_COMM_all_reduce, asp_tensor_count(x),
                            asp_dtypes[x->dtype].bytes, (int)p->plan->ranks);
    return ASP_OK;
}

// ---- rotations -------------------------------------------------------------------------------

// A rotation begins where its node stands; its end stands before the first step that reads what has
// come, as late as can be, so that what is between hides it.  Both steps name operand and result:
// neither memory is given to others before the end.

static void add_await(asp_planner *p)
{
    asp_node n = p->rotations.at[p->n_awaited++];
    asp_step *s = asp_planner_add_step(p, ASP_STEP_AWAIT, n, "await");
    asp_planner_add_place(p, s, asp_node_at(p->g, n)->in[0]);
    asp_planner_add_place(p, s, asp_node_at(p->g, n)->first);
}

static void add_rotation(asp_planner *p, asp_node n, asp_kcall *call)
{
    if (p->rotations.n - p->n_awaited == ASP_COMM_ROTATIONS) add_await(p);
    asp_step *s = asp_planner_add_step(p, ASP_STEP_ROTATE, n, asp_ops[ASP_OP_rotate].name);
    s->call = call;
    asp_planner_add_place(p, s, asp_node_at(p->g, n)->in[0]);
    asp_planner_add_place(p, s, asp_node_at(p->g, n)->first);
    ASP_PUSH(&p->scratch, &p->rotations, n);
}

// Awaits what node n reads.
static void await_operands(asp_planner *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    for (uint32_t i = 0; i < info->n_in; i++)
        for (uint32_t r = p->rotations.n; r > p->n_awaited; r--) {
            asp_val came = asp_node_at(p->g, p->rotations.at[r - 1])->first;
            if (p->storage_of[came.i] != p->storage_of[info->in[i].i]) continue;
            while (p->n_awaited < r) add_await(p);
        }
}

static asp_status add_exchange(asp_planner *p, asp_node n, asp_kcall *call)
{
    asp_op op = asp_node_at(p->g, n)->op;
    if (op == ASP_OP_rotate) {
        add_rotation(p, n, call);
        return ASP_OK;
    }
    bool all_to_all = op == ASP_OP_all_to_all;
    int64_t work;
    ASP_TRY(exchange_work(p, op, call, &work));
    asp_step *s = asp_planner_add_step(p, all_to_all ? ASP_STEP_ALL_TO_ALL : ASP_STEP_ALL_REDUCE, n,
                                       asp_ops[op].name);
    s->call = call;
    s->overwrites = overwrites(op);
    add_operands(p, s, n);
    asp_planner_add_work(p, s, work);
    return ASP_OK;
}

// Sizes are known now: the node runs as a constant.
static asp_status size_as_constant(asp_planner *p, asp_node n, asp_kcall *call)
{
    const asp_size_attr *a = asp_node_at(p->g, n)->attr;
    asp_constant_attr *c = ASP_NEW(&p->plan->arena, asp_constant_attr);
    int64_t size;
    ASP_TRY(asp_size_eval(p->g, a->size, &p->plan->options.env, &size));
    c->value = (double)size;
    call->attr = c;
    return ASP_OK;
}

// A node that runs alone: as a row program of one op where that is possible, else on the kernel of
// the table.
static asp_status add_single(asp_planner *p, asp_node n)
{
    asp_op op = asp_node_at(p->g, n)->op;
    asp_kcall *call;
    asp_rowdesc d;
    ASP_TRY(call_of(p, n, &call));
    if (op == ASP_OP_size_value) {
        ASP_TRY(size_as_constant(p, n, call));
        op = ASP_OP_constant;
    }
    if (asp_op_has(op, ASP_COLLECTIVE)) return add_exchange(p, n, call);
    asp_step *s = asp_planner_add_step(p, ASP_STEP_KERNEL, n, asp_ops[op].name);
    s->call = call;
    s->flops = asp_flops_call(op, call);
    s->cost = asp_ops[op].cost;
    s->overwrites = overwrites(op);
    add_operands(p, s, n);
    if (asp_rowdesc_wrap(&p->scratch, op, call, &d)) {
        s->kind = ASP_STEP_ROWS;
        s->program = asp_rowprog_build(&p->plan->arena, &d, asp_isa_best());
        asp_planner_add_work(p, s, asp_rowprog_work_bytes(s->program, p->plan->options.threads));
        return ASP_OK;
    }
    const asp_kern_row *row = asp_kern_choose(op, call->n_out ? call->out[0].dtype : ASP_F32);
    ASP_CHECK(row != NULL);
    s->fn = row->fn;
    ASP_TRY(asp_kern_prepare(p->cx, &p->plan->arena, row, p->plan->options.gemm,
                             p->plan->options.threads, call));
    asp_planner_add_work(p, s, call->work_bytes);
    return ASP_OK;
}

// ---- the list ----------------------------------------------------------------------------------

// What steps read and write, each place as often as it is named.
static void count_touched(asp_planner *p)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->plan->steps.n; i++) {
        asp_step *s = &p->plan->steps.at[i];
        for (int j = 0; j < s->n_places; j++, at++) {
            const int64_t part = p->step_offset.at[at].part;
            s->touched_bytes += part ? part : p->storages.at[p->step_storage.at[at]].bytes;
        }
    }
}

static bool is_step(asp_op op)
{
    return op != ASP_OP_input && op != ASP_OP_param && !asp_op_has(op, ASP_ALIAS);
}

asp_status asp_planner_add_node(asp_planner *p, asp_node n, asp_node *out_next)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    *out_next = info->next;
    if (!is_step(info->op)) return ASP_OK;
    if (asp_ops[info->op].kind == ASP_MODULE)
        return asp_fail(p->cx, ASP_ERR_INPUT,
                        "%s is a module op; run the pass `lower` before planning",
                        asp_node_str(p->g, n));
    asp_node member = n;
    do {
        await_operands(p, member);
        member = asp_node_at(p->g, member)->next;
    } while (info->group && member.i && asp_node_at(p->g, member)->group == info->group);
    if (info->group) return asp_planner_add_group(p, n, out_next);
    ASP_TRY_NOTE(p->cx, add_single(p, n), "planning %s", asp_node_str(p->g, n));
    return ASP_OK;
}

asp_status asp_planner_build_steps(asp_planner *p)
{
    bool backward = false;
    for (asp_node n = p->g->head, next; n.i; n = next) {
        const asp_node_info *info = asp_node_at(p->g, n);
        uint32_t before = p->plan->steps.n;
        backward |= asp_val_at(p->g, info->first)->name &&
                    strcmp(asp_val_at(p->g, info->first)->name, ASP_SEED_NAME) == 0;
        if (info->tile)
            ASP_TRY(asp_planner_add_tile(p, n, &next));
        else
            ASP_TRY(asp_planner_add_node(p, n, &next));
        for (uint32_t i = before; i < p->plan->steps.n; i++)
            p->plan->steps.at[i].backward = backward;
        asp_planner_add_due(p, n, next);
    }
    while (p->n_awaited < p->rotations.n) add_await(p);
    count_touched(p);
    asp_planner_add_last(p);
    return ASP_OK;
}
