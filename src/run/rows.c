// Row programs out of the groups of pass fuse: which values are slots, in which order the ops
// stand.  Neighbours: pass/fuse.h (who may be a member), kern/rowprog.h (what is built), program.c
// (who asks).
//
// The order matters to memory alone: a result can take the memory of an operand that no later op of
// the program reads (kern/rowprog.h).  Members are cut into trees: a root and the temporaries that
// only it reads.  Roots that never reach memory go first, then the one that is the last reader of
// an operand, and so on.  The derivative of SwiGLU, dp, g, u -> p, dg, du, runs in place that way.
// SPDX-License-Identifier: Apache-2.0
#include "pass/fuse.h"
#include "run/run_int.h"

typedef struct row_builder {
    asp_planner *p;
    asp_type domain;
    asp_step *step;
    asp_map index_of; // value -> index in vals
    ASP_VEC(asp_rowval) vals;
    ASP_VEC(bool) half; // by slot
    ASP_VEC(asp_rowinstr) ops;
} row_builder;

// ---- order -------------------------------------------------------------------------------------

#define NONE UINT32_MAX

typedef struct member {
    asp_node node;
    uint32_t maker[2]; // members that make its operands
    uint32_t readers;  // members that read its result
    uint32_t reader;   // one of them
    uint32_t root;     // of its tree
    bool stored;       // its result reaches memory
    bool whole;        // ... and is of the domain's shape
    bool done;
} member;

typedef struct orderer {
    row_builder *b;
    member *m;
    uint32_t n;
    asp_node *out; // in the new order
    uint32_t n_out;
} orderer;

static const asp_node_info *info_of(const orderer *o, uint32_t i)
{
    return asp_node_at(o->b->p->g, o->m[i].node);
}

static bool is_whole(const row_builder *b, asp_val v)
{
    asp_rowkind kind;
    return asp_row_kind(b->p->g, &b->domain, asp_val_type(b->p->g, v), &kind) &&
           kind == ASP_ROW_FULL;
}

static void describe(orderer *o)
{
    asp_map made;
    asp_map_init(&made, &o->b->p->scratch);
    for (uint32_t i = 0; i < o->n; i++) {
        member *m = &o->m[i];
        const asp_node_info *info = info_of(o, i);
        bool added;
        for (uint32_t k = 0; k < info->n_in; k++) {
            m->maker[k] = asp_map_find(&made, &info->in[k].i, sizeof info->in[k].i);
            if (m->maker[k] == NONE) continue;
            o->m[m->maker[k]].readers++;
            o->m[m->maker[k]].reader = i;
        }
        for (uint32_t k = info->n_in; k < 2; k++) m->maker[k] = NONE;
        asp_map_add(&made, &info->first.i, sizeof info->first.i, &added);
        m->stored = o->b->p->storage_of[info->first.i] != 0;
        m->whole = is_whole(o->b, info->first);
    }
    for (uint32_t i = o->n; i-- > 0;) {
        bool inner = o->m[i].readers == 1 && !o->m[i].stored && o->m[i].whole;
        o->m[i].root = inner ? o->m[o->m[i].reader].root : i;
    }
}

static bool is_ready(const orderer *o, uint32_t root)
{
    for (uint32_t i = 0; i < o->n; i++)
        for (int k = 0; o->m[i].root == root && k < 2; k++) {
            uint32_t maker = o->m[i].maker[k];
            if (maker != NONE && o->m[maker].root != root && !o->m[maker].done) return false;
        }
    return true;
}

static bool is_read_elsewhere(const orderer *o, asp_val v, uint32_t root)
{
    for (uint32_t i = 0; i < o->n; i++) {
        const asp_node_info *info = info_of(o, i);
        if (o->m[i].root == root || o->m[i].done) continue;
        for (uint32_t k = 0; k < info->n_in; k++)
            if (info->in[k].i == v.i) return true;
    }
    return false;
}

// Is the tree the last reader of an operand from outside that is as large as its result?
static bool may_overwrite(const orderer *o, uint32_t root)
{
    if (!o->m[root].stored || !o->m[root].whole) return false;
    for (uint32_t i = 0; i < o->n; i++) {
        const asp_node_info *info = info_of(o, i);
        for (uint32_t k = 0; o->m[i].root == root && k < info->n_in; k++)
            if (o->m[i].maker[k] == NONE && is_whole(o->b, info->in[k]) &&
                !is_read_elsewhere(o, info->in[k], root))
                return true;
    }
    return false;
}

static uint32_t choose_root(const orderer *o)
{
    uint32_t first = NONE, in_place = NONE;
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->m[i].root != i || o->m[i].done || !is_ready(o, i)) continue;
        if (!o->m[i].stored) return i;
        if (first == NONE) first = i;
        if (in_place == NONE && may_overwrite(o, i)) in_place = i;
    }
    return in_place != NONE ? in_place : first;
}

static void order_members(orderer *o)
{
    describe(o);
    while (o->n_out < o->n) {
        uint32_t root = choose_root(o);
        ASP_CHECK(root != NONE);
        for (uint32_t i = 0; i < o->n; i++) {
            if (o->m[i].root != root) continue;
            o->m[i].done = true;
            o->out[o->n_out++] = o->m[i].node;
        }
    }
}

// ---- the description ---------------------------------------------------------------------------

static int row_value(row_builder *b, asp_val v)
{
    bool added;
    uint32_t i = asp_map_add(&b->index_of, &v.i, sizeof v.i, &added);
    if (!added) return (int)i;
    asp_rowval r = {.slot = -1};
    ASP_CHECK(asp_row_kind(b->p->g, &b->domain, asp_val_type(b->p->g, v), &r.kind));
    if (b->p->storage_of[v.i]) {
        r.slot = b->step->n_places;
        ASP_PUSH(&b->p->scratch, &b->half, asp_val_type(b->p->g, v)->dtype == ASP_BF16);
        asp_planner_add_place(b->p, b->step, v);
    }
    ASP_PUSH(&b->p->scratch, &b->vals, r);
    return (int)i;
}

static void row_instr(row_builder *b, asp_node n)
{
    const asp_node_info *info = asp_node_at(b->p->g, n);
    asp_rowinstr r = {.op = ASP_ROWOP_copy};
    switch (asp_row_member_of(b->p->g, n)) {
    case ASP_MEMBER_POINTWISE:
        if (info->op == ASP_OP_cast && asp_val_type(b->p->g, info->first)->dtype == ASP_BF16)
            r.op = ASP_ROWOP_round_half;
        else
            asp_rowop_of(info->op, &r.op); // expand and casts to f32 are none: they stay copies
        break;
    case ASP_MEMBER_SUM_COLS: r.op = ASP_ROWOP_sum_cols; break;
    case ASP_MEMBER_SUM_ROWS: r.op = ASP_ROWOP_sum_rows; break;
    case ASP_MEMBER_NO: ASP_CHECK(false); // a node of a group is a member
    }
    if (info->op == ASP_OP_add_scalar || info->op == ASP_OP_mul_scalar)
        r.value = ((const asp_scalar_attr *)info->attr)->value;
    for (uint32_t i = 0; i < info->n_in; i++) r.in[i] = row_value(b, info->in[i]);
    r.out = row_value(b, info->first);
    ASP_PUSH(&b->p->scratch, &b->ops, r);
}

// The group's nodes into o, its domain into the builder; gives the node behind them.
static asp_node collect(orderer *o, asp_node first)
{
    row_builder *b = o->b;
    asp_graph *g = b->p->g;
    uint32_t group = asp_node_at(g, first)->group;
    asp_node n = first;
    ASP_CHECK(asp_row_domain(g, first, &b->domain));
    for (; n.i && asp_node_at(g, n)->group == group; n = asp_node_at(g, n)->next, o->n++) {
        asp_type own;
        ASP_CHECK(asp_row_domain(g, n, &own) && asp_row_join(g, &b->domain, &own, &b->domain));
    }
    o->m = ASP_NEW_ARRAY(&b->p->scratch, member, o->n);
    o->out = ASP_NEW_ARRAY(&b->p->scratch, asp_node, o->n);
    uint32_t i = 0;
    for (asp_node x = first; x.i != n.i; x = asp_node_at(g, x)->next) o->m[i++].node = x;
    return n;
}

asp_status asp_planner_add_group(asp_planner *p, asp_node first, asp_node *out_next)
{
    row_builder b = {.p = p};
    orderer o = {.b = &b};
    asp_map_init(&b.index_of, &p->scratch);
    *out_next = collect(&o, first);
    order_members(&o);
    b.step = asp_planner_add_step(p, ASP_STEP_ROWS, first, "rows");
    for (uint32_t i = 0; i < o.n; i++) row_instr(&b, o.out[i]);
    asp_rowdesc d = {.rows = 1,
                     .n_slots = b.step->n_places,
                     .n_vals = (int)b.vals.n,
                     .n_ops = (int)b.ops.n,
                     .half = b.half.at,
                     .vals = b.vals.at,
                     .ops = b.ops.at};
    int64_t dim[ASP_MAX_RANK];
    ASP_TRY(asp_planner_dims(p, &b.domain, dim));
    for (uint32_t i = 0; i + 1 < b.domain.rank; i++) d.rows *= dim[i];
    d.cols = dim[b.domain.rank - 1];
    b.step->program = asp_rowprog_build(&p->plan->arena, &d, asp_isa_best());
    asp_planner_add_work(p, b.step,
                         asp_rowprog_work_bytes(b.step->program, p->plan->options.threads));
    return ASP_OK;
}
