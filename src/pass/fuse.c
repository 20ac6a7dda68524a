// pass/fuse.c: group row-wise nodes into row programs, which run in one pass over memory.
//
//   %1 : f32[B, S, 8] = mul %x, %x                              %1 ... group 1
//   %2 : f32[B, S, 1] = sum %1 {dims = [2], keep = true}   ->   %2 ... group 1
//   %3 : f32[B, S, 8] = mul %x, %2                              %3 ... group 1
//
// A group has a domain, rows x cols: the leading dims and the last dim of its widest values.
// Relative to it every value is FULL (the domain), ROW (last dim 1), VECTOR (the last dim alone) or
// NUMBER.  The walk goes once down the list.  A node joins the open groups that make its operands
// or that just read them too, merging them when there are several; a node outside that reads a
// value of a group closes it, so that a group can run where its last member stands: all it reads
// comes before, all that reads it comes after.  Members are then moved there.  A product that
// nothing reads, the gradient of a weight, closes no group: it can wait until the group has run.
// Pointwise ops, sums over the last dim, sums over the rows and broadcasts can be members, in f32,
// and casts between f32 and bf16, so that bf16 is what the program reads and writes;
// a value summed over the rows is ready only when the program has ended, so reading it closes the
// group as well.  Values read by members alone never reach memory.  O(nodes).  Neighbours:
// kern/rowprog.h (what runs it), run/program.c (who builds it).  SPDX-License-Identifier:
// Apache-2.0
#include "pass/fuse.h"

#define NONE UINT32_MAX

static_assert(ASP_MAX_GROUP * 4 < ASP_ROW_MAX_VALS, "a group must fit a program");

typedef struct group {
    uint32_t parent; // union-find; itself when it is a root
    bool closed;
    bool has_sum; // its domain is fixed by a sum
    asp_type domain;
    uint32_t tile; // of all members
    uint32_t n_members;
    uint32_t work; // steps that ran outside of groups before its last member
    asp_node last; // where it runs
} group;

typedef struct fuser {
    asp_graph *g;
    asp_arena *scratch;
    ASP_VEC(group) groups;
    uint32_t *group_of;        // by node; NONE = alone
    uint32_t *reader_of;       // by value: the group of the last member that reads it; NONE
    bool *is_read;             // by value: a node reads it
    uint32_t work;             // steps outside of groups so far
    ASP_VEC(asp_node) waiting; // products that let groups stay open
} fuser;

bool asp_row_kind(asp_graph *g, const asp_type *domain, const asp_type *t, asp_rowkind *out_kind)
{
    asp_size one = asp_size_num(g, 1);
    uint32_t last = domain->rank - 1;
    asp_type as_f32 = *t;
    if (t->dtype != ASP_F32 && t->dtype != ASP_BF16) return false;
    as_f32.dtype = domain->dtype;
    *out_kind = ASP_ROW_FULL;
    if (asp_type_equal(&as_f32, domain)) return true;
    *out_kind = ASP_ROW_NUMBER;
    if (t->rank == 0) return true;
    *out_kind = ASP_ROW_VECTOR;
    if (t->rank == 1 && asp_size_equal(t->dim[0], domain->dim[last])) return true;
    *out_kind = ASP_ROW_ROW;
    bool row = t->rank == domain->rank && asp_size_equal(t->dim[last], one);
    for (uint32_t d = 0; row && d < last; d++) row = asp_size_equal(t->dim[d], domain->dim[d]);
    return row;
}

asp_row_member asp_row_member_of(const asp_graph *g, asp_node n)
{
    const asp_node_info *info = asp_node_at(g, n);
    asp_rowop op;
    if (info->op == ASP_OP_expand || info->op == ASP_OP_cast) return ASP_MEMBER_POINTWISE;
    if (asp_op_has(info->op, ASP_POINTWISE))
        return asp_rowop_of(info->op, &op) ? ASP_MEMBER_POINTWISE : ASP_MEMBER_NO;
    if (info->op != ASP_OP_sum) return ASP_MEMBER_NO;
    const asp_sum_attr *a = info->attr;
    uint32_t rank = asp_val_type(g, info->in[0])->rank;
    if (rank < 2) return ASP_MEMBER_NO;
    if (a->keep)
        return a->dims.n == 1 && a->dims.at[0] == (int64_t)rank - 1 ? ASP_MEMBER_SUM_COLS
                                                                    : ASP_MEMBER_NO;
    bool leading = a->dims.n == rank - 1;
    for (uint32_t i = 0; leading && i < a->dims.n; i++) leading = a->dims.at[i] == i;
    return leading ? ASP_MEMBER_SUM_ROWS : ASP_MEMBER_NO;
}

bool asp_row_domain(asp_graph *g, asp_node n, asp_type *out_domain)
{
    const asp_node_info *info = asp_node_at(g, n);
    asp_row_member member = asp_row_member_of(g, n);
    if (member == ASP_MEMBER_NO) return false;
    *out_domain = *asp_val_type(g, member == ASP_MEMBER_POINTWISE ? info->first : info->in[0]);
    const bool cast = info->op == ASP_OP_cast;
    if (cast && out_domain->dtype == ASP_BF16) out_domain->dtype = ASP_F32;
    if (out_domain->dtype != ASP_F32 || out_domain->rank < 2) return false;
    asp_rowkind kind;
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_type *t = asp_val_type(g, info->in[i]);
        if (!cast && t->dtype != ASP_F32) return false;
        if (!asp_row_kind(g, out_domain, t, &kind)) return false;
    }
    return true;
}

bool asp_row_join(asp_graph *g, const asp_type *a, const asp_type *b, asp_type *out_domain)
{
    asp_rowkind kind;
    if (asp_row_kind(g, a, b, &kind) && (kind == ASP_ROW_FULL || kind == ASP_ROW_ROW))
        *out_domain = *a;
    else if (asp_row_kind(g, b, a, &kind) && kind == ASP_ROW_ROW)
        *out_domain = *b;
    else
        return false;
    return true;
}

static uint32_t root(fuser *f, uint32_t i)
{
    while (f->groups.at[i].parent != i) {
        f->groups.at[i].parent = f->groups.at[f->groups.at[i].parent].parent;
        i = f->groups.at[i].parent;
    }
    return i;
}

static uint32_t group_of_val(fuser *f, asp_val v)
{
    uint32_t i = f->group_of[asp_val_at(f->g, v)->node.i];
    return i == NONE ? NONE : root(f, i);
}

static uint32_t open_group(fuser *f, const asp_type *domain)
{
    ASP_PUSH(f->scratch, &f->groups, (group){.parent = f->groups.n, .domain = *domain});
    return f->groups.n - 1;
}

static void merge(fuser *f, uint32_t into, uint32_t from)
{
    f->groups.at[from].parent = into;
    f->groups.at[into].n_members += f->groups.at[from].n_members;
    f->groups.at[into].has_sum |= f->groups.at[from].has_sum;
}

static bool is_sum_rows(fuser *f, asp_val v)
{
    return asp_row_member_of(f->g, asp_val_at(f->g, v)->node) == ASP_MEMBER_SUM_ROWS;
}

// Does n read a sum over rows of group c?  It is ready only when c has ended, so n cannot live
// there.
static bool reads_end_of(fuser *f, asp_node n, uint32_t c)
{
    const asp_node_info *info = asp_node_at(f->g, n);
    for (uint32_t i = 0; i < info->n_in; i++)
        if (is_sum_rows(f, info->in[i]) && group_of_val(f, info->in[i]) == c) return true;
    return false;
}

// May n, with a group of n_members over *domain so far, live in group c too?  Sums fix the domain:
// theirs is what they sum.
static bool fits(fuser *f, asp_node n, uint32_t c, uint32_t n_members, asp_type *domain)
{
    const group *p = &f->groups.at[c];
    asp_type joined;
    if (p->tile != asp_node_at(f->g, n)->tile) return false;
    if (p->closed || p->n_members + n_members > ASP_MAX_GROUP || reads_end_of(f, n, c))
        return false;
    if (!asp_row_join(f->g, domain, &p->domain, &joined)) return false;
    bool sum = asp_row_member_of(f->g, n) != ASP_MEMBER_POINTWISE;
    if (sum && !asp_type_equal(&joined, asp_val_type(f->g, asp_node_at(f->g, n)->in[0])))
        return false;
    if (p->has_sum && !asp_type_equal(&joined, &p->domain)) return false;
    *domain = joined;
    return true;
}

// The group of a member that read v since the last step outside of groups: v is in cache still.
static uint32_t group_beside(fuser *f, asp_val v)
{
    if (f->reader_of[v.i] == NONE) return NONE;
    uint32_t c = root(f, f->reader_of[v.i]);
    return f->groups.at[c].work == f->work ? c : NONE;
}

static void join(fuser *f, asp_node n, asp_type domain)
{
    const asp_node_info *info = asp_node_at(f->g, n);
    bool sum = asp_row_member_of(f->g, n) != ASP_MEMBER_POINTWISE;
    uint32_t own = NONE, n_members = 1;
    for (uint32_t i = 0; i < 2 * info->n_in; i++) {
        asp_val v = info->in[i % info->n_in];
        uint32_t c = i < info->n_in ? group_of_val(f, v) : group_beside(f, v);
        if (c == NONE || c == own || !fits(f, n, c, n_members, &domain)) continue;
        n_members += f->groups.at[c].n_members;
        if (own == NONE)
            own = c;
        else
            merge(f, own, c);
    }
    if (own == NONE) own = open_group(f, &domain);
    group *p = &f->groups.at[own];
    p->domain = domain;
    p->has_sum |= sum;
    p->tile = info->tile;
    p->n_members++;
    p->work = f->work;
    p->last = n;
    f->group_of[n.i] = own;
    for (uint32_t i = 0; i < info->n_in; i++) f->reader_of[info->in[i].i] = own;
}

static bool may_wait(const fuser *f, const asp_node_info *info)
{
    return asp_ops[info->op].cost == ASP_COST_GEMM && !f->is_read[info->first.i];
}

static void close_what_is_read_from_outside(fuser *f, asp_node n)
{
    const asp_node_info *info = asp_node_at(f->g, n);
    uint32_t own = f->group_of[n.i] == NONE ? NONE : root(f, f->group_of[n.i]);
    if (own == NONE && may_wait(f, info)) {
        ASP_PUSH(f->scratch, &f->waiting, n);
        return;
    }
    for (uint32_t i = 0; i < info->n_in; i++) {
        uint32_t c = group_of_val(f, info->in[i]);
        if (c != NONE && c != own) f->groups.at[c].closed = true;
        ASP_ASSERT(c == NONE || c != own || !is_sum_rows(f, info->in[i]));
    }
    f->work += own == NONE && info->n_in > 0 && !asp_op_has(info->op, ASP_ALIAS);
}

// Products that stand before the end of a group they read go behind it, in their order.
static void place_waiting(fuser *f)
{
    uint32_t *order = ASP_NEW_ARRAY(f->scratch, uint32_t, f->g->nodes.n), n_nodes = 0;
    asp_node *end = ASP_NEW_ARRAY(f->scratch, asp_node, f->groups.n + 1); // what stands behind it
    ASP_FOR_NODES (f->g, n) order[n.i] = ++n_nodes;
    for (uint32_t i = 0; i < f->waiting.n; i++) {
        asp_node n = f->waiting.at[i];
        const asp_node_info *info = asp_node_at(f->g, n);
        uint32_t latest = NONE;
        for (uint32_t k = 0; k < info->n_in; k++) {
            uint32_t c = group_of_val(f, info->in[k]);
            if (c == NONE || order[f->groups.at[c].last.i] < order[n.i]) continue;
            ASP_CHECK(f->groups.at[c].tile == info->tile); // else the group was not open
            if (latest == NONE ||
                order[f->groups.at[c].last.i] > order[f->groups.at[latest].last.i])
                latest = c;
        }
        if (latest == NONE) continue;
        asp_node *behind = &end[latest];
        if (!behind->i) *behind = f->groups.at[latest].last;
        asp_graph_move_before(f->g, n, asp_node_at(f->g, *behind)->next);
        *behind = n;
    }
}

// Numbers the groups in the order in which they run and moves members to the place of the last one;
// single nodes stay alone.
static uint32_t place_members(fuser *f)
{
    uint32_t *number = ASP_NEW_ARRAY(f->scratch, uint32_t, f->groups.n + 1), n_groups = 0,
             n_nodes = 0;
    asp_node *order = ASP_NEW_ARRAY(f->scratch, asp_node, f->g->n_nodes);
    ASP_FOR_NODES (f->g, n) {
        uint32_t own = f->group_of[n.i] == NONE ? NONE : root(f, f->group_of[n.i]);
        if (own != NONE && f->groups.at[own].n_members > 1) order[n_nodes++] = n;
        if (own != NONE && f->groups.at[own].n_members > 1 && f->groups.at[own].last.i == n.i)
            number[own] = ++n_groups;
    }
    for (uint32_t i = 0; i < n_nodes; i++) {
        uint32_t own = root(f, f->group_of[order[i].i]);
        asp_node_at(f->g, order[i])->group = number[own];
        asp_graph_move_before(f->g, order[i], f->groups.at[own].last);
    }
    return n_groups;
}

asp_status asp_pass_fuse(asp_pass *px, asp_graph *g)
{
    fuser f = {.g = g, .scratch = px->scratch};
    f.group_of = ASP_NEW_ARRAY(px->scratch, uint32_t, g->nodes.n);
    f.reader_of = ASP_NEW_ARRAY(px->scratch, uint32_t, g->vals.n);
    f.is_read = ASP_NEW_ARRAY(px->scratch, bool, g->vals.n);
    for (uint32_t i = 0; i < g->nodes.n; i++) f.group_of[i] = NONE;
    for (uint32_t i = 0; i < g->vals.n; i++) f.reader_of[i] = NONE;
    ASP_FOR_NODES (g, n)
        for (uint32_t i = 0; i < asp_node_at(g, n)->n_in; i++)
            f.is_read[asp_node_at(g, n)->in[i].i] = true;
    ASP_FOR_NODES (g, n) {
        asp_type domain;
        if (asp_row_domain(g, n, &domain)) join(&f, n, domain);
        close_what_is_read_from_outside(&f, n);
    }
    px->changes += place_members(&f);
    place_waiting(&f);
    return ASP_OK;
}
