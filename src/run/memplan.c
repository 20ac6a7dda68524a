// The memory plan: which storage each value has, how long it lives, where it lies.  Exact before
// anything runs.
//
// A rank's memory is one block: parameters | gradients | optimizer states | sums | inputs | arena.
// The arena holds everything with a limited life: activations, cotangents, scratch; flow/pack.h
// lays it out.  Views share their operand's storage; values that only a row program sees have none;
// gradients of parameters are written straight into the gradient slab, or lie in the arena too
// where the program updates parameters itself (gradients.c).  Exchanges block until every peer has
// read (comm/comm.h), so an operand need not outlive its step.  Neighbours: program.c (steps),
// executor.c. SPDX-License-Identifier: Apache-2.0
#include "flow/pack.h"
#include "op/op.h"
#include "run/run_int.h"

#include <stdlib.h>

static const char *const kind_names[] = {"parameters", "gradients",   "optimizer",
                                         "inputs",     "activations", "workspace"};
const char *asp_mem_kind_name(asp_mem_kind k) { return kind_names[k]; }

uint32_t asp_planner_new_storage(asp_planner *p, asp_mem_kind kind, int64_t bytes, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    ASP_PUSH(&p->scratch, &p->storages,
             (asp_storage){.kind = kind,
                           .bytes = bytes,
                           .place = ASP_NOWHERE,
                           .loc = info->loc,
                           .op = asp_ops[info->op].name});
    return p->storages.n - 1;
}

static int64_t bytes_of(const asp_tensor *t)
{
    return asp_tensor_count(t) * asp_dtypes[t->dtype].bytes;
}

static asp_status add_param(asp_planner *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    const asp_param_attr *a = info->attr;
    asp_plan *plan = p->plan;
    asp_tensor t;
    ASP_TRY(asp_planner_tensor(p, info->first, &t));
    if (plan->params.n && t.dtype != plan->param_dtype)
        return asp_fail(p->cx, ASP_ERR_UNSUPPORTED,
                        "parameter %s is %s but others are %s; one dtype is wanted", a->name,
                        asp_dtypes[t.dtype].name, asp_dtypes[plan->param_dtype].name);
    plan->param_dtype = t.dtype;
    plan->dtype = t.dtype == ASP_BF16 ? ASP_F32 : t.dtype;
    asp_plan_param param = {.name = asp_copy_str(&plan->arena, a->name),
                            .init = asp_copy_str(&plan->arena, a->init),
                            .std = a->std,
                            .count = asp_tensor_count(&t),
                            .offset = plan->slab_count,
                            .rank = t.rank};
    memcpy(param.dim, t.dim, sizeof t.dim);
    ASP_PUSH(&plan->arena, &plan->params, param);
    p->storage_of[info->first.i] = asp_planner_new_storage(p, ASP_MEM_PARAM, bytes_of(&t), n);
    p->storages.at[p->storages.n - 1].place = param.offset * asp_dtypes[t.dtype].bytes;
    plan->slab_count += asp_round_up(param.count, ASP_PACK_ALIGN / asp_dtypes[t.dtype].bytes);
    return ASP_OK;
}

int asp_batch_dim(asp_graph *g, const asp_type *t)
{
    const asp_size batch = asp_size_sym(g, "B");
    for (uint32_t d = 0; d < t->rank; d++)
        if (asp_size_equal(t->dim[d], batch)) return (int)d;
    return -1;
}

static asp_status add_input(asp_planner *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    const asp_input_attr *a = info->attr;
    asp_tensor t;
    ASP_TRY(asp_planner_tensor(p, info->first, &t));
    asp_plan_input input = {.name = asp_copy_str(&p->plan->arena, a->name),
                            .role = asp_copy_str(&p->plan->arena, a->role),
                            .dtype = t.dtype,
                            .rank = t.rank,
                            .batch = asp_batch_dim(p->g, asp_val_type(p->g, info->first)),
                            .bytes = bytes_of(&t)};
    memcpy(input.dim, t.dim, sizeof t.dim);
    ASP_PUSH(&p->plan->arena, &p->plan->inputs, input);
    p->storage_of[info->first.i] = asp_planner_new_storage(p, ASP_MEM_INPUT, input.bytes, n);
    return ASP_OK;
}

// read_outside[v]: v is read by another step than the one that makes it, or leaves the graph.
static bool *find_read_outside(asp_planner *p)
{
    bool *outside = ASP_NEW_ARRAY(&p->scratch, bool, p->g->vals.n);
    ASP_FOR_NODES (p->g, n) {
        const asp_node_info *info = asp_node_at(p->g, n);
        for (uint32_t i = 0; i < info->n_in; i++) {
            uint32_t maker = asp_val_node(p->g, info->in[i])->group;
            outside[info->in[i].i] |= maker == 0 || maker != info->group;
        }
    }
    for (uint32_t i = 0; i < p->g->outputs.n; i++) outside[p->g->outputs.at[i].val.i] = true;
    return outside;
}

static asp_status add_values(asp_planner *p, asp_node n, const bool *read_outside)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    if (asp_op_has(info->op, ASP_ALIAS)) {
        p->storage_of[info->first.i] = p->storage_of[info->in[0].i];
        return ASP_OK;
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_val v = asp_node_result(p->g, n, i);
        if (p->local[v.i] || (info->group && !read_outside[v.i])) continue;
        asp_tensor t;
        ASP_TRY(asp_planner_tensor(p, v, &t));
        p->storage_of[v.i] = asp_planner_new_storage(p, ASP_MEM_ACTIVATION, bytes_of(&t), n);
    }
    return ASP_OK;
}

static asp_plan_param *find_param(asp_plan *plan, const asp_map *index, const char *name)
{
    uint32_t i = asp_map_find(index, name, strlen(name));
    return i == UINT32_MAX ? NULL : &plan->params.at[i];
}

// The value whose memory v is.
static asp_val root_of(const asp_graph *g, asp_val v)
{
    while (asp_op_has(asp_val_node(g, v)->op, ASP_ALIAS)) v = asp_val_node(g, v)->in[0];
    return v;
}

// A gradient stands in its parameter's slab.  One that is another's too (of w1 and w2 in w1 + w2),
// a parameter or an input is copied there.
asp_status asp_planner_separate_outputs(asp_planner *p)
{
    asp_graph *g = p->g;
    bool *taken = ASP_NEW_ARRAY(&p->scratch, bool, g->vals.n);
    asp_builder b = {.g = g, .loc = ASP_GRADIENTS_LOC};
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        asp_val v = g->outputs.at[i].val, root = root_of(g, v);
        asp_op op = asp_val_node(g, root)->op;
        bool given = op == ASP_OP_param || op == ASP_OP_input;
        if (!given && !taken[root.i]) {
            taken[root.i] = true;
            continue;
        }
        asp_cast_attr same = {.to = asp_val_type(g, v)->dtype};
        g->outputs.at[i].val = ASP_B1(&b, cast, &same, v);
    }
    return b.status;
}

static asp_status bind_outputs(asp_planner *p)
{
    asp_plan *plan = p->plan;
    asp_map index;
    asp_map_init(&index, &p->scratch);
    for (uint32_t i = 0; i < plan->params.n; i++) {
        bool added;
        asp_map_add(&index, plan->params.at[i].name, strlen(plan->params.at[i].name), &added);
        if (!added)
            return asp_fail(p->cx, ASP_ERR_INPUT, "two parameters are named %s",
                            plan->params.at[i].name);
    }
    for (uint32_t i = 0; i < p->g->outputs.n; i++) {
        const asp_output *o = &p->g->outputs.at[i];
        asp_plan_param *param = find_param(plan, &index, o->name);
        if (!param) continue;
        asp_storage *s = &p->storages.at[p->storage_of[o->val.i]];
        ASP_CHECK(s->kind == ASP_MEM_ACTIVATION);
        s->kind = ASP_MEM_GRAD;
        if (plan->options.fuses) continue; // its place is found with the others'
        s->place = plan->slab_offset[ASP_SLAB_GRAD] + param->offset * asp_dtypes[plan->dtype].bytes;
    }
    return ASP_OK;
}

// What is whole lives from the first chunk of a tile that touches it to the last.
static void touch(asp_planner *p, uint32_t storage, uint32_t step)
{
    asp_storage *x = &p->storages.at[storage];
    asp_tile_span span = {step, step};
    if (p->step_tile.at[step] && !x->local) span = p->tiles.at[p->step_tile.at[step]];
    if (!x->lives) x->first = span.first;
    x->lives = true;
    x->last = span.last;
}

// What has a limited life.
static bool is_in_arena(const asp_planner *p, const asp_storage *s)
{
    return s->lives && (s->kind == ASP_MEM_ACTIVATION || s->kind == ASP_MEM_WORKSPACE ||
                        (s->kind == ASP_MEM_GRAD && p->plan->options.fuses));
}

// Steps read and write the storages of their places; what leaves the graph lives to the end, but
// for a gradient that an update of the program is the last to read.
static void find_lives(asp_planner *p)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->plan->steps.n; i++) {
        asp_step *s = &p->plan->steps.at[i];
        for (int k = 0; k < s->n_places && !s->places; k++, at++)
            touch(p, p->step_storage.at[at], i);
        if (p->step_carry.at[i]) touch(p, p->step_carry.at[i], i);
    }
    for (uint32_t i = 0; i < p->g->outputs.n; i++) {
        asp_storage *x = &p->storages.at[p->storage_of[p->g->outputs.at[i].val.i]];
        if (x->kind != ASP_MEM_GRAD) x->last = p->plan->steps.n - 1;
    }
}

uint32_t asp_planner_home(const asp_planner *p, uint32_t storage)
{
    while (p->storages.at[storage].moved) storage = p->storages.at[storage].moved;
    return storage;
}

static bool allows(const asp_step *s, int result, int operand)
{
    if (s->kind == ASP_STEP_ROWS) return asp_rowprog_may_overwrite(s->program, result, operand);
    return s->overwrites == operand && s->call->n_in == result;
}

// Is a storage touched by another step of the same loop, before this step or behind it?
static bool is_touched(const asp_planner *p, uint32_t home, uint32_t step, const uint32_t *storages,
                       bool behind)
{
    const uint32_t tile = p->step_tile.at[step];
    const asp_loop *loop = NULL;
    for (uint32_t i = 0; i < p->plan->loops.n; i++)
        if (p->plan->loops.at[i].first <= step && step < p->plan->loops.at[i].end)
            loop = &p->plan->loops.at[i];
    ASP_CHECK(tile && loop);
    const uint32_t *at = behind ? storages + p->plan->steps.at[step].n_places : storages;
    while (behind ? ++step < loop->end : step-- > loop->first) {
        const int n = p->plan->steps.at[step].n_places;
        if (!behind) at -= n;
        for (int k = 0; k < n; k++)
            if (asp_planner_home(p, at[k]) == home) return true;
        if (behind) at += n;
    }
    return false;
}

// Does the step make storage y first, or read x last?  In a loop what is whole is made and read by
// every chunk in turn, each its own rows: the order within a chunk decides.
static bool makes(const asp_planner *p, uint32_t step, const uint32_t *storages, uint32_t y)
{
    const asp_storage *s = &p->storages.at[y];
    if (!p->step_tile.at[step] || s->local) return s->first == step;
    return s->first == p->tiles.at[p->step_tile.at[step]].first &&
           !is_touched(p, y, step, storages, false);
}

static bool reads_last(const asp_planner *p, uint32_t step, const uint32_t *storages, uint32_t x)
{
    const asp_storage *s = &p->storages.at[x];
    if (!p->step_tile.at[step] || s->local) return s->first < step && s->last == step;
    const asp_tile_span span = p->tiles.at[p->step_tile.at[step]];
    return s->first < span.first && s->last == span.last && !is_touched(p, x, step, storages, true);
}

// Place k of a step makes its storage; may it take the memory of the operand at place j, which dies
// here?  All places in that memory must be operands that allow it, at the same rows.
static bool may_take(const asp_planner *p, uint32_t step, const uint32_t *storages, int k, int j)
{
    const asp_step *s = &p->plan->steps.at[step];
    const asp_offset *offsets = p->step_offset.at + (storages - p->step_storage.at);
    uint32_t in = asp_planner_home(p, storages[j]);
    const asp_storage *x = &p->storages.at[in], *y = &p->storages.at[storages[k]];
    if (x->kind != ASP_MEM_ACTIVATION || x->bytes != y->bytes || x->local != y->local ||
        !reads_last(p, step, storages, in))
        return false;
    for (int i = 0; i < s->n_places; i++) {
        if (asp_planner_home(p, storages[i]) != in) continue;
        bool made_here = p->storages.at[storages[i]].kind == ASP_MEM_ACTIVATION &&
                         makes(p, step, storages, storages[i]);
        bool aligned =
            offsets[i].bytes == offsets[k].bytes && offsets[i].stride == offsets[k].stride;
        if (made_here || !aligned || !allows(s, k, i)) return false;
    }
    return true;
}

// Results take the memory of operands of the same size that die with the step, where its kernel
// allows that: d(logits) that of the logits, the results of SwiGLU's derivative that of its
// operands.
static void reuse_in_place(asp_planner *p)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->plan->steps.n; i++) {
        const asp_step *s = &p->plan->steps.at[i];
        if (s->places) continue;
        const uint32_t *storages = &p->step_storage.at[at];
        at += (uint32_t)s->n_places;
        for (int k = 0; k < s->n_places; k++) {
            asp_storage *y = &p->storages.at[storages[k]];
            if (y->kind != ASP_MEM_ACTIVATION || y->moved || !makes(p, i, storages, storages[k]))
                continue;
            for (int j = 0; j < s->n_places && !y->moved; j++)
                if (j != k && may_take(p, i, storages, k, j))
                    y->moved = asp_planner_home(p, storages[j]);
            if (!y->moved) continue;
            p->storages.at[y->moved].last = y->last;
            y->lives = false;
        }
    }
}

// What packing must never do; looked at where passes are verified too.
static void check_no_overlap(const asp_block_life *b, uint32_t n, int64_t height)
{
    for (uint32_t i = 0; i < n; i++) {
        ASP_CHECK(b[i].offset >= 0 && b[i].offset + b[i].bytes <= height);
        for (uint32_t j = 0; j < i; j++) {
            bool together = b[i].first <= b[j].last && b[j].first <= b[i].last;
            ASP_CHECK(!together || b[i].offset + b[i].bytes <= b[j].offset ||
                      b[j].offset + b[j].bytes <= b[i].offset);
        }
    }
}

static asp_status lay_out_arena(asp_planner *p)
{
    asp_plan *plan = p->plan;
    uint32_t n = 0;
    asp_block_life *blocks = ASP_NEW_ARRAY(&p->scratch, asp_block_life, p->storages.n);
    uint32_t *storage = ASP_NEW_ARRAY(&p->scratch, uint32_t, p->storages.n);
    for (uint32_t i = 1; i < p->storages.n; i++) {
        const asp_storage *s = &p->storages.at[i];
        if (!is_in_arena(p, s)) continue;
        storage[n] = i;
        blocks[n++] = (asp_block_life){.bytes = s->bytes, .first = s->first, .last = s->last};
    }
    asp_pack_result r;
    ASP_TRY(asp_pack(&p->scratch, blocks, n, plan->steps.n, &r));
    if (p->cx->verify_each_pass) check_no_overlap(blocks, n, r.height);
    ASP_RESERVE(&plan->arena, &plan->blocks, n);
    for (uint32_t i = 0; i < n; i++) {
        asp_storage *x = &p->storages.at[storage[i]];
        x->place = plan->arena_offset + blocks[i].offset;
        plan->blocks.at[plan->blocks.n++] =
            (asp_plan_block){.loc = asp_copy_str(&plan->arena, x->loc), // the graph may die
                             .op = x->op,
                             .kind = x->kind,
                             .bytes = x->bytes,
                             .offset = blocks[i].offset,
                             .first = x->first,
                             .last = x->last};
    }
    plan->peak_step = r.at_step;
    plan->report.arena_bytes = r.height;
    plan->report.max_live_bytes = r.max_live;
    const asp_step *s = &plan->steps.at[r.at_step];
    plan->report.peak_at =
        asp_printf(&plan->arena, "%s: %s (step %u of %u)", *s->loc ? s->loc : "program", s->op,
                   r.at_step + 1, plan->steps.n);
    for (uint32_t i = 1; i < p->storages.n; i++) {
        const asp_storage *x = &p->storages.at[i];
        if (!is_in_arena(p, x) || x->first > r.at_step || r.at_step > x->last) continue;
        plan->report.bytes_by_kind[x->kind] += asp_round_up(x->bytes, ASP_PACK_ALIGN);
        if (!plan->steps.at[x->first].backward && plan->steps.at[x->last].backward)
            plan->report.kept_bytes += asp_round_up(x->bytes, ASP_PACK_ALIGN);
        asp_live live = {.loc = x->loc, .op = x->op, .bytes = x->bytes, .kind = x->kind};
        int at =
            plan->report.n_largest < ASP_MAX_LIVE ? plan->report.n_largest++ : ASP_MAX_LIVE - 1;
        if (at == ASP_MAX_LIVE - 1 && plan->report.largest[at].bytes >= live.bytes) continue;
        for (; at > 0 && plan->report.largest[at - 1].bytes < live.bytes; at--)
            plan->report.largest[at] = plan->report.largest[at - 1];
        plan->report.largest[at] = live;
    }
    for (int i = 0; i < plan->report.n_largest; i++) { // the graph may die before the plan
        plan->report.largest[i].loc = asp_copy_str(&plan->arena, plan->report.largest[i].loc);
    }
    return ASP_OK;
}

static int64_t place_of(const asp_planner *p, uint32_t storage)
{
    return storage ? p->storages.at[asp_planner_home(p, storage)].place : ASP_NOWHERE;
}

static void resolve_places(asp_planner *p)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->plan->steps.n; i++) {
        asp_step *s = &p->plan->steps.at[i];
        s->work = place_of(p, p->step_work.at[i]);
        s->carry = place_of(p, p->step_carry.at[i]);
        if (s->places) continue;
        s->places = ASP_NEW_ARRAY(&p->plan->arena, int64_t, s->n_places);
        for (int k = 0; k < s->n_places; k++, at++) {
            const asp_offset offset = p->step_offset.at[at];
            s->places[k] = place_of(p, p->step_storage.at[at]) + offset.bytes;
            ASP_CHECK(s->places[k] >= 0);
            if (!offset.stride) continue;
            if (!s->strides) s->strides = ASP_NEW_ARRAY(&p->plan->arena, int64_t, s->n_places);
            s->strides[k] = offset.stride;
        }
    }
}

// The parts before the arena, one behind the other.
static void lay_out_fixed(asp_planner *p)
{
    asp_plan *plan = p->plan;
    const int64_t slab = plan->slab_count * asp_dtypes[plan->dtype].bytes,
                  params = plan->slab_count * asp_dtypes[plan->param_dtype].bytes;
    int64_t at = 0;
    for (int i = 0; i < ASP_SLABS; i++) {
        const bool present[ASP_SLABS] = {[ASP_SLAB_PARAM] = true,
                                         [ASP_SLAB_GRAD] = !plan->options.fuses,
                                         [ASP_SLAB_M] = plan->options.optimizer,
                                         [ASP_SLAB_V] = plan->options.optimizer,
                                         [ASP_SLAB_SUM] = plan->options.accumulates};
        plan->slab_offset[i] = present[i] ? at : ASP_NOWHERE;
        if (present[i]) at += i == ASP_SLAB_PARAM ? params : slab;
    }
    plan->report.bytes_by_kind[ASP_MEM_PARAM] = params;
    plan->report.bytes_by_kind[ASP_MEM_GRAD] = plan->options.fuses ? 0 : slab;
    if (plan->options.accumulates) plan->report.bytes_by_kind[ASP_MEM_GRAD] += slab;
    plan->report.bytes_by_kind[ASP_MEM_OPTIMIZER] = plan->options.optimizer ? 2 * slab : 0;
    uint32_t next = 0;
    for (uint32_t i = 1; i < p->storages.n; i++) {
        asp_storage *s = &p->storages.at[i];
        if (s->kind != ASP_MEM_INPUT) continue;
        s->place = plan->inputs.at[next++].offset = at;
        at += asp_round_up(s->bytes, ASP_PACK_ALIGN);
        plan->report.bytes_by_kind[ASP_MEM_INPUT] += s->bytes;
    }
    plan->arena_offset = asp_round_up(at, 4096);
}

asp_status asp_planner_place(asp_planner *p)
{
    find_lives(p);
    reuse_in_place(p);
    ASP_TRY(lay_out_arena(p));
    resolve_places(p);
    p->plan->report.rank_bytes = p->plan->arena_offset + p->plan->report.arena_bytes;
    return ASP_OK;
}

asp_status asp_planner_assign_storages(asp_planner *p)
{
    const bool *outside = find_read_outside(p);
    ASP_TRY(asp_planner_find_local(p));
    p->plan->dtype = p->plan->param_dtype = ASP_F32;
    ASP_FOR_NODES (p->g, n) {
        asp_op op = asp_node_at(p->g, n)->op;
        if (op == ASP_OP_param)
            ASP_TRY(add_param(p, n));
        else if (op == ASP_OP_input)
            ASP_TRY(add_input(p, n));
        else
            ASP_TRY(add_values(p, n, outside));
    }
    lay_out_fixed(p);
    return bind_outputs(p);
}
