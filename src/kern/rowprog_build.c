// Row programs, second half of the compiler: stages, tile, registers, steps.
//
// A stage ends where a sum of rows is awaited: RMSNorm is stage 0 (the sum of squares) and stage 1
// (the scaling), both run on a few rows at a time so that stage 1 reads them from L1.  Temporaries
// of a tile share registers by liveness.  Neighbours: rowprog_join.c (first half), rowprog_run.c
// (who executes).  SPDX-License-Identifier: Apache-2.0
#include "kern/rowprog_join.h"

#define TILE_ELEMENTS 2048  // of one register where tiles need not hold whole rows
#define WHOLE_ROW 8192      // longest row that is kept whole for a second stage
#define UNIT_ELEMENTS 32768 // what a thread claims at once, about
#define REGISTER_GAP 16     // floats; registers of 8 KiB each would meet in the cache

typedef struct build {
    asp_arena *arena;
    asp_rowprog *p;
    asp_rowcode_list list;
    const bool *half;        // by slot: bf16; NULL: none
    asp_rowwhen *when;       // of each code
    int *stage;              // of each code
    int *made_by, *last_use; // of each value: step, -1
    bool *after;             // value waits for a sum over rows
    int *avail;              // stage in which a value may be read
    asp_rowloc *loc;         // of each value
    int64_t *partials;       // of each value that is a sum: where its partials are
    ASP_VEC(int) order;      // codes by when and stage; TREE and BLOCKS steps are -1 - code
    ASP_VEC(asp_rowstep) steps;
} build;

static asp_rowkind kind_of(const build *b, int v) { return b->list.vals.at[v].kind; }
static int64_t pad(int64_t floats) { return asp_round_up(floats, 16); }
static bool is_sum(const asp_rowcode *c)
{
    return c->form == ASP_CODE_SUM || c->form == ASP_CODE_MUL_SUM ||
           c->form == ASP_CODE_MUL_MUL_SUM;
}

// ---- stages ------------------------------------------------------------------------------------

static void place_code(build *b, uint32_t i)
{
    const asp_rowcode *c = &b->list.codes.at[i];
    int stage = 0;
    bool after = false;
    for (int k = 0; k < c->n_in; k++) {
        stage = stage > b->avail[c->in[k]] ? stage : b->avail[c->in[k]];
        after |= b->after[c->in[k]];
    }
    asp_rowkind kind = kind_of(b, is_sum(c) ? c->in[0] : c->out[0]);
    bool rows = is_sum(c) || kind == ASP_ROW_FULL || kind == ASP_ROW_ROW;
    b->when[i] = !rows                               ? (after ? ASP_WHEN_AFTER : ASP_WHEN_BEFORE)
                 : !is_sum(c) && kind == ASP_ROW_ROW ? ASP_WHEN_ROWS
                 : kind == ASP_ROW_ROW               ? ASP_WHEN_ROWS
                                                     : ASP_WHEN_TILE;
    b->stage[i] = rows ? stage : 0;
    bool down = is_sum(c) && c->op == ASP_ROWOP_sum_rows;
    for (int k = 0; k < c->n_out; k++) {
        b->after[c->out[k]] = after || down;
        b->avail[c->out[k]] = stage + (is_sum(c) && !down);
        if (rows && !down && b->avail[c->out[k]] >= b->p->n_stages)
            b->p->n_stages = b->avail[c->out[k]] + 1;
    }
}

static bool is_down(const asp_rowcode *c) { return is_sum(c) && c->op == ASP_ROWOP_sum_rows; }

// Appends the codes of one kind of place, in their order: sums over rows, the others, or both.
static void put_some(build *b, asp_rowwhen when, int stage, bool downs, bool others)
{
    for (uint32_t i = 0; i < b->list.codes.n; i++) {
        const asp_rowcode *c = &b->list.codes.at[i];
        if (c->dead || b->stage[i] != stage || !(is_down(c) ? downs : others)) continue;
        bool tree = when == ASP_WHEN_TREE && is_sum(c) && c->op == ASP_ROWOP_sum_cols;
        if (tree)
            ASP_PUSH(b->arena, &b->order, -1 - (int)i);
        else if (b->when[i] == when)
            ASP_PUSH(b->arena, &b->order, (int)i);
    }
}

static bool sums_along_rows(const build *b, int stage)
{
    for (uint32_t i = 0; i < b->list.codes.n; i++) {
        const asp_rowcode *c = &b->list.codes.at[i];
        if (!c->dead && b->stage[i] == stage && is_sum(c) && !is_down(c)) return true;
    }
    return false;
}

// Sums over rows walk down a few columns at a time, which no prefetcher follows.  Where the stage
// has a sum along rows, whose results are for later stages, they stand behind it and find their
// operands in the cache; elsewhere a result may overwrite what they read.
static void put_order(build *b, asp_rowwhen when, int stage)
{
    const bool apart = sums_along_rows(b, stage);
    put_some(b, when, stage, !apart, true);
    if (apart) put_some(b, when, stage, true, false);
}

static void order_codes(build *b)
{
    asp_rowprog *p = b->p;
    asp_rowstage *stages = ASP_NEW_ARRAY(b->arena, asp_rowstage, p->n_stages);
    put_order(b, ASP_WHEN_BEFORE, 0);
    p->before_end = (int)b->order.n;
    for (int s = 0; s < p->n_stages; s++) {
        stages[s].rows = (int)b->order.n;
        put_order(b, ASP_WHEN_ROWS, s);
        stages[s].tile = (int)b->order.n;
        put_order(b, ASP_WHEN_TILE, s);
        stages[s].tree = (int)b->order.n;
        put_order(b, ASP_WHEN_TREE, s);
        stages[s].end = (int)b->order.n;
    }
    p->stages = stages;
    p->blocks = (int)b->order.n;
    for (uint32_t i = 0; i < b->list.codes.n; i++) {
        const asp_rowcode *c = &b->list.codes.at[i];
        if (!c->dead && is_sum(c) && c->op == ASP_ROWOP_sum_rows)
            ASP_PUSH(b->arena, &b->order, -1 - (int)i);
    }
    p->after = (int)b->order.n;
    put_order(b, ASP_WHEN_AFTER, 0);
    p->n_steps = (int)b->order.n;
}

// ---- tile --------------------------------------------------------------------------------------

// What a program does, as far as its tile depends on it.
typedef struct shape {
    bool row_sums, down_sums; // sums of rows, sums over rows
    bool row_values;          // makes or reads one number a row
    bool vectors;             // makes or reads values shared by all rows
} shape;

static shape shape_of(const build *b)
{
    shape s = {0};
    for (uint32_t i = 0; i < b->list.codes.n; i++) {
        const asp_rowcode *c = &b->list.codes.at[i];
        if (c->dead) continue;
        s.row_sums |= is_sum(c) && c->op == ASP_ROWOP_sum_cols;
        s.down_sums |= is_sum(c) && c->op == ASP_ROWOP_sum_rows;
        for (int k = 0; k < c->n_in + c->n_out; k++) {
            asp_rowkind kind = kind_of(b, k < c->n_in ? c->in[k] : c->out[k - c->n_in]);
            s.row_values |= kind == ASP_ROW_ROW;
            s.vectors |= kind == ASP_ROW_VECTOR;
        }
    }
    return s;
}

static int64_t power_of_2_below(int64_t n)
{
    int64_t p = 1;
    while (p * 2 <= n) p *= 2;
    return p;
}

static void choose_tile(build *b, int64_t tile_cols, int64_t tile_rows)
{
    asp_rowprog *p = b->p;
    shape s = shape_of(b);
    if (!s.row_sums && !s.down_sums && !s.row_values && !s.vectors) { // rows do not matter
        p->cols *= p->rows;
        p->rows = 1;
    }
    bool whole = p->cols <= (p->n_stages > 1 ? WHOLE_ROW : TILE_ELEMENTS);
    p->tile_cols = tile_cols ? tile_cols : whole ? p->cols : TILE_ELEMENTS;
    p->tile_cols = asp_min(p->tile_cols, p->cols);
    p->tile_rows = 1;
    if (p->tile_cols == p->cols)
        p->tile_rows = power_of_2_below(asp_max(1, TILE_ELEMENTS / p->cols));
    if (tile_rows) p->tile_rows = tile_rows;
    if (s.down_sums) p->tile_rows = power_of_2_below(asp_min(p->tile_rows, ASP_ROW_BLOCK));
    p->unit_rows = asp_round_up(asp_max(1, UNIT_ELEMENTS / p->cols), p->tile_rows);
    if (s.down_sums) p->unit_rows = ASP_ROW_BLOCK;
    p->unit_cols = p->cols;
    if (!s.row_sums && !s.row_values && p->cols > UNIT_ELEMENTS)
        p->unit_cols = asp_round_up(UNIT_ELEMENTS, p->tile_cols);
}

// ---- registers ---------------------------------------------------------------------------------

static void find_uses(build *b)
{
    for (uint32_t v = 0; v < b->list.vals.n; v++) b->made_by[v] = b->last_use[v] = -1;
    for (int i = 0; i < (int)b->order.n; i++) {
        int at = b->order.at[i];
        if (at < 0) continue; // reads partials
        const asp_rowcode *c = &b->list.codes.at[at];
        for (int k = 0; k < c->n_in; k++) b->last_use[c->in[k]] = i;
        for (int k = 0; k < c->n_out; k++)
            if (!is_sum(c)) b->made_by[c->out[k]] = i;
    }
}

static int stage_at(const build *b, int step)
{
    int s = 0;
    while (s + 1 < b->p->n_stages && step >= b->p->stages[s].end) s++;
    return s;
}

// A temporary that a later stage reads must hold whole rows when tiles do not.
static bool is_wide(const build *b, int v)
{
    return b->p->tile_cols < b->p->cols && b->last_use[v] >= 0 &&
           stage_at(b, b->last_use[v]) > stage_at(b, b->made_by[v]);
}

static bool is_tile_temp(const build *b, int v)
{
    return kind_of(b, v) == ASP_ROW_FULL && b->list.vals.at[v].slot < 0 && b->made_by[v] >= 0;
}

// Linear scan: an op's result may take the register of an operand that dies there, since every
// primitive reads element i before it writes element i.
static void assign_registers(build *b)
{
    asp_rowprog *p = b->p;
    ASP_VEC(int64_t) idle = {0};
    const int64_t size = pad(p->tile_rows * p->tile_cols) + REGISTER_GAP;
    for (int i = 0; i < (int)b->order.n; i++) {
        if (b->order.at[i] < 0) continue;
        const asp_rowcode *c = &b->list.codes.at[b->order.at[i]];
        for (int k = 0; k < c->n_in; k++) {
            int v = c->in[k];
            bool again = (k > 0 && c->in[0] == v) || (k > 1 && c->in[1] == v);
            if (is_tile_temp(b, v) && !is_wide(b, v) && b->last_use[v] == i && !again)
                ASP_PUSH(b->arena, &idle, b->loc[v].offset);
        }
        for (int k = 0; k < c->n_out; k++) {
            int v = c->out[k];
            if (is_sum(c) || !is_tile_temp(b, v)) continue;
            bool wide = is_wide(b, v);
            b->loc[v] = (asp_rowloc){
                .base = ASP_BASE_THREAD, .c = wide, .stride = wide ? p->cols : p->tile_cols};
            if (!wide && idle.n) {
                b->loc[v].offset = idle.at[--idle.n];
            } else {
                b->loc[v].offset = p->thread_floats;
                p->thread_floats += wide ? pad(p->tile_rows * p->cols) + REGISTER_GAP : size;
            }
            if (b->last_use[v] < 0 && !wide) ASP_PUSH(b->arena, &idle, b->loc[v].offset);
        }
    }
}

// Slots, constants, temporaries of other kinds, partial sums.
static void locate(build *b)
{
    asp_rowprog *p = b->p;
    for (int v = 0; v < (int)b->list.vals.n; v++) {
        const asp_rowval *val = &b->list.vals.at[v];
        asp_rowloc *l = &b->loc[v];
        const asp_rowkind kind = val->kind;
        bool full = kind == ASP_ROW_FULL, row = kind == ASP_ROW_ROW;
        if (full && val->slot < 0) continue; // a register
        *l = (asp_rowloc){.base = ASP_BASE_SLOT,
                          .offset = val->slot,
                          .r = full ? p->cols : row,
                          .c = full || kind == ASP_ROW_VECTOR,
                          .stride = full ? p->cols : row,
                          .half = val->slot >= 0 && b->half && b->half[val->slot]};
        if (val->slot >= 0) continue;
        if (v >= p->n_described && v < p->n_described + p->n_constants) {
            l->base = ASP_BASE_CONSTANT;
            l->offset = v - p->n_described;
        } else if (row) {
            l->base = ASP_BASE_THREAD;
            l->offset = p->thread_floats;
            l->r = 0;
            p->thread_floats += pad(p->tile_rows);
        } else {
            l->base = ASP_BASE_SHARED;
            l->offset = p->shared_floats;
            p->shared_floats += pad(kind == ASP_ROW_VECTOR ? p->cols : 1);
        }
    }
}

// Where a sum's partials lie: of rows in the thread's memory, over rows in the program's.
static asp_rowloc locate_partials(build *b, const asp_rowcode *c)
{
    asp_rowprog *p = b->p;
    if (c->op == ASP_ROWOP_sum_cols) {
        asp_rowloc l = {
            .base = ASP_BASE_THREAD, .offset = p->thread_floats, .stride = ASP_ROW_PARTIALS};
        p->thread_floats += p->tile_rows * ASP_ROW_PARTIALS;
        return l;
    }
    bool number = kind_of(b, c->out[0]) == ASP_ROW_NUMBER;
    int64_t width = pad(number ? 1 : p->cols);
    asp_rowloc l = {.base = ASP_BASE_SHARED,
                    .offset = p->shared_floats,
                    .c = !number,
                    .stride = width,
                    .block = width};
    p->shared_floats += asp_ceil_div(p->rows, ASP_ROW_BLOCK) * width;
    return l;
}

// ---- steps -------------------------------------------------------------------------------------

static const char *const chain_names[ASP_CHAIN1_COUNT][ASP_CHAIN2_COUNT] = {
#define SECOND(first) \
    [ASP_CHAIN1_##first] = {#first ".add", #first ".sub", #first ".rsub", #first ".mul"},
    ASP_CHAIN_FIRST(SECOND)
#undef SECOND
};

static int form(const build *b, const asp_rowcode *c, int k, asp_rowkind result)
{
    return asp_rowcode_is_v(&b->list, c->in[k], result) ? ASP_FORM_V : ASP_FORM_S;
}

static asp_prim *prim_of(const build *b, const asp_rowcode *c, const char **out_name)
{
    const asp_row_prims *t = b->p->prims;
    const asp_rowkind result = is_sum(c) ? ASP_ROW_FULL : kind_of(b, c->out[0]);
    const bool down = c->op == ASP_ROWOP_sum_rows;
    *out_name = asp_rowop_name(c->op);
    switch (c->form) {
    case ASP_CODE_PLAIN:
        if (c->op == ASP_ROWOP_load_half) return t->load_half;
        if (c->op == ASP_ROWOP_store_half) return t->store_half;
        if (c->op == ASP_ROWOP_round_store) return t->round_store;
        if (c->n_in == 1) return t->unary[c->op][form(b, c, 0, result)];
        return t->binary[c->op][form(b, c, 0, result)][form(b, c, 1, result)];
    case ASP_CODE_CHAIN:
        *out_name = chain_names[c->first][c->second];
        return t->chain[c->first][c->second][form(b, c, 1, result)][form(b, c, 2, result)];
    case ASP_CODE_SILU_MUL: *out_name = "silu.mul"; return t->silu_mul;
    case ASP_CODE_SILU_GRAD_MUL: *out_name = "silu_grad.mul"; return t->silu_grad_mul;
    case ASP_CODE_SILU_BOTH: *out_name = "silu_grad.mul+silu.mul"; return t->silu_both;
    case ASP_CODE_SUM: return down ? t->sum_rows : t->sum_cols;
    case ASP_CODE_MUL_SUM:
        *out_name = down ? "mul.sum_rows" : "mul.sum_cols";
        return (down ? t->mul_sum_rows : t->mul_sum_cols)[form(b, c, 1, result)];
    case ASP_CODE_MUL_MUL_SUM:
        *out_name = "mul.mul.sum_rows";
        return t->mul_mul_sum_rows[form(b, c, 1, result)][form(b, c, 2, result)];
    case ASP_CODE_NORM_GRAD: *out_name = "norm_grad"; return t->norm_grad[form(b, c, 1, result)];
    }
    return NULL;
}

static asp_rowstep step_of(build *b, int i)
{
    const asp_rowcode *c = &b->list.codes.at[i];
    asp_rowstep s = {.when = b->when[i], .stage = b->stage[i], .n_in = c->n_in, .n_out = c->n_out};
    s.prim = prim_of(b, c, &s.name);
    ASP_CHECK(s.prim != NULL);
    s.flat = !is_sum(c) && s.when == ASP_WHEN_TILE;
    for (int k = 0; k < c->n_in; k++) {
        s.in[k] = c->in[k];
        s.at[k] = b->loc[c->in[k]];
        asp_rowkind kind = kind_of(b, c->in[k]);
        s.flat &= kind == ASP_ROW_FULL || kind == ASP_ROW_NUMBER;
    }
    for (int k = 0; k < c->n_out; k++) {
        s.out[k] = c->out[k];
        s.to[k] = b->loc[c->out[k]];
    }
    if (is_sum(c)) {
        s.to[0] = locate_partials(b, c);
        s.zero_tile = c->op == ASP_ROWOP_sum_cols;
        s.zero_block = !s.zero_tile;
        s.down = s.zero_block && kind_of(b, c->in[0]) == ASP_ROW_ROW;
        b->p->any_zero_block |= s.zero_block;
    }
    return s;
}

// The step that ends the sum of code i: adds its partials.
static asp_rowstep end_step(const build *b, int i, const asp_rowloc *partials)
{
    const asp_rowcode *c = &b->list.codes.at[i];
    bool tree = c->op == ASP_ROWOP_sum_cols;
    return (asp_rowstep){.prim = tree ? b->p->prims->tree : b->p->prims->sum_blocks,
                         .name = tree ? "tree" : "sum_blocks",
                         .when = tree ? ASP_WHEN_TREE : ASP_WHEN_BLOCKS,
                         .stage = b->stage[i],
                         .n_in = 1,
                         .n_out = 1,
                         .in = {c->out[0]},
                         .out = {c->out[0]},
                         .at = {*partials},
                         .to = {b->loc[c->out[0]]}};
}

static void make_steps(build *b)
{
    asp_rowloc *partials = ASP_NEW_ARRAY(b->arena, asp_rowloc, b->list.codes.n);
    for (uint32_t i = 0; i < b->order.n; i++) {
        int at = b->order.at[i];
        if (at < 0) {
            ASP_PUSH(b->arena, &b->steps, end_step(b, -1 - at, &partials[-1 - at]));
        } else {
            ASP_PUSH(b->arena, &b->steps, step_of(b, at));
            if (is_sum(&b->list.codes.at[at])) partials[at] = b->steps.at[i].to[0];
        }
    }
    b->p->steps = b->steps.at;
}

// ---- all of it ---------------------------------------------------------------------------------

static const asp_row_prims *prims_of(asp_isa isa)
{
    switch (isa) {
    case ASP_ISA_GENERIC: break;
#if defined(__x86_64__)
    case ASP_ISA_AVX2: return &asp_row_prims_avx2;
    case ASP_ISA_AVX512: return &asp_row_prims_avx512;
#else
    case ASP_ISA_AVX2:
    case ASP_ISA_AVX512: break;
#endif
    }
    return &asp_row_prims_generic;
}

const asp_rowprog *asp_rowprog_build_with(asp_arena *a, const asp_rowdesc *d, asp_isa isa,
                                          int64_t tile_cols, int64_t tile_rows, bool join)
{
    ASP_CHECK(asp_rowdesc_check(d) == NULL);
    asp_rowprog *p = ASP_NEW(a, asp_rowprog);
    build b = {.arena = a, .p = p, .list = {.arena = a}, .half = d->half};
    *p = (asp_rowprog){.prims = prims_of(isa),
                       .rows = d->rows,
                       .cols = d->cols,
                       .n_slots = d->n_slots,
                       .n_described = d->n_vals,
                       .n_stages = 1};
    asp_rowcode_load(&b.list, d, join);
    p->vals = b.list.vals.at;
    p->constants = b.list.constants.at;
    p->n_constants = (int)b.list.constants.n;
    uint32_t n_vals = b.list.vals.n, n_codes = b.list.codes.n;
    b.when = ASP_NEW_ARRAY(a, asp_rowwhen, n_codes + 1);
    b.stage = ASP_NEW_ARRAY(a, int, n_codes + 1);
    b.made_by = ASP_NEW_ARRAY(a, int, n_vals + 1);
    b.last_use = ASP_NEW_ARRAY(a, int, n_vals + 1);
    b.avail = ASP_NEW_ARRAY(a, int, n_vals + 1);
    b.after = ASP_NEW_ARRAY(a, bool, n_vals + 1);
    b.loc = ASP_NEW_ARRAY(a, asp_rowloc, n_vals + 1);
    for (int v = 0; v < d->n_vals; v++)
        if (d->vals[v].slot >= 0)
            p->traffic_bytes += (d->half && d->half[d->vals[v].slot] ? 2 : 4) *
                                asp_rowkind_count(p, d->vals[v].kind);
    for (uint32_t i = 0; i < n_codes; i++)
        if (!b.list.codes.at[i].dead) place_code(&b, i);
    order_codes(&b);
    choose_tile(&b, tile_cols, tile_rows);
    find_uses(&b);
    locate(&b);
    assign_registers(&b);
    make_steps(&b);
    p->thread_floats = pad(p->thread_floats);
    p->shared_floats = pad(p->shared_floats);
    return p;
}

const asp_rowprog *asp_rowprog_build(asp_arena *a, const asp_rowdesc *d, asp_isa isa)
{
    return asp_rowprog_build_with(a, d, isa, 0, 0, true);
}

int64_t asp_rowprog_work_bytes(const asp_rowprog *p, int n_threads)
{
    return (p->shared_floats + n_threads * p->thread_floats) * 4;
}

int64_t asp_rowprog_traffic_bytes(const asp_rowprog *p) { return p->traffic_bytes; }

static bool is_full_slot(const asp_rowprog *p, const asp_rowloc *l, int slot, bool *out_half)
{
    if (l->base != ASP_BASE_SLOT || l->offset != slot || l->c != 1 || l->r != p->cols) return false;
    *out_half = l->half;
    return true;
}

// Tiles are disjoint and each is one thread's from the first stage to the last, so the order of the
// steps decides; a primitive reads element i of all operands before it writes element i of any.
bool asp_rowprog_may_overwrite(const asp_rowprog *p, int out, int in)
{
    int written = -1, read = -1;
    bool half_in = false, half_out = false;
    for (int i = 0; i < p->n_steps; i++) {
        const asp_rowstep *s = &p->steps[i];
        for (int k = 0; k < s->n_in; k++)
            if (is_full_slot(p, &s->at[k], in, &half_in)) read = i;
        for (int k = 0; k < s->n_out; k++)
            if (is_full_slot(p, &s->to[k], out, &half_out)) written = i;
    }
    return read >= 0 && read <= written && half_in == half_out;
}
