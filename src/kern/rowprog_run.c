// Executes row programs: units of rows are claimed by threads, each unit goes tile by tile through
// the stages.  Neighbours: rowprog_build.c (what the steps are), rowprog_isa.c (the primitives).
// SPDX-License-Identifier: Apache-2.0
#include "kern/rowprog_int.h"

// One thread's view of a run.
typedef struct run {
    const asp_rowprog *p;
    float *const *slots;
    float *shared, *thread;
} run;

static float *address(const run *u, const asp_rowloc *l, int64_t r, int64_t c)
{
    int64_t at = r * l->r + c * l->c + r / ASP_ROW_BLOCK * l->block;
    switch (l->base) {
    case ASP_BASE_SLOT: // bf16: for load_half and store_half alone, which know
        return l->half ? (float *)(void *)((uint16_t *)(void *)u->slots[l->offset] + at)
                       : u->slots[l->offset] + at;
    case ASP_BASE_THREAD: return u->thread + l->offset + at;
    case ASP_BASE_SHARED: return u->shared + l->offset + at;
    case ASP_BASE_CONSTANT: break;
    }
    return (float *)(uintptr_t)(u->p->constants + l->offset); // only read
}

// The tile at (r, c) of rows x n; one number a row: rows = 1, n = the number of rows.
static void step(const run *u, const asp_rowstep *s, int64_t r, int64_t c, int64_t rows, int64_t n)
{
    asp_prim_args g = {.rows = rows, .n = n};
    for (int k = 0; k < s->n_in; k++) {
        g.in[k] = address(u, &s->at[k], r, c);
        g.stride[k] = s->at[k].stride;
    }
    for (int k = 0; k < s->n_out; k++) {
        g.out[k] = address(u, &s->to[k], r, c);
        g.out_stride[k] = s->to[k].stride;
    }
    if (s->flat && n == u->p->cols) {
        g.rows = 1;
        g.n = rows * n;
    }
    s->prim(&g);
}

static void zero(const run *u, const asp_rowstep *s, int64_t r, int64_t c, int64_t floats)
{
    memset(address(u, &s->to[0], r, c), 0, (size_t)floats * sizeof(float));
}

// All stages on rows r .. r + rows - 1 and the columns of the unit.
static void run_rows(const run *u, int64_t r, int64_t rows, int64_t first, int64_t end)
{
    const asp_rowprog *p = u->p;
    for (int i = 0; i < p->n_stages; i++) {
        const asp_rowstage *stage = &p->stages[i];
        for (int s = stage->rows; s < stage->tile; s++) {
            if (p->steps[s].down)
                step(u, &p->steps[s], r, 0, rows, 1);
            else
                step(u, &p->steps[s], r, 0, 1, rows);
        }
        for (int s = stage->tile; s < stage->tree; s++)
            if (p->steps[s].zero_tile) zero(u, &p->steps[s], r, 0, rows * ASP_ROW_PARTIALS);
        for (int64_t c = first; c < end; c += p->tile_cols)
            for (int s = stage->tile; s < stage->tree; s++)
                step(u, &p->steps[s], r, c, rows, asp_min(p->tile_cols, end - c));
        for (int s = stage->tree; s < stage->end; s++) step(u, &p->steps[s], r, 0, rows, 1);
    }
}

static void run_unit(const run *u, int64_t unit)
{
    const asp_rowprog *p = u->p;
    const int64_t across = asp_ceil_div(p->cols, p->unit_cols);
    const int64_t r = unit / across * p->unit_rows, c = unit % across * p->unit_cols;
    const int64_t r_end = asp_min(p->rows, r + p->unit_rows);
    const int64_t c_end = asp_min(p->cols, c + p->unit_cols);
    if (p->any_zero_block)
        for (int s = p->before_end; s < p->blocks; s++) {
            const asp_rowstep *t = &p->steps[s];
            if (t->zero_block) zero(u, t, r, c, t->down ? 1 : c_end - c);
        }
    for (int64_t at = r; at < r_end; at += p->tile_rows)
        run_rows(u, at, asp_min(p->tile_rows, r_end - at), c, c_end);
}

// Columns that one claim adds up.
#define BLOCK_COLS 512

static void add_blocks(const run *u, asp_worker *w)
{
    const asp_rowprog *p = u->p;
    const int64_t chunks = asp_ceil_div(p->cols, BLOCK_COLS);
    const int64_t n_blocks = asp_ceil_div(p->rows, ASP_ROW_BLOCK);
    int64_t i;
    while ((i = asp_team_next(w, chunks * (p->after - p->blocks))) >= 0) {
        const asp_rowstep *s = &p->steps[p->blocks + i / chunks];
        const int64_t c = i % chunks * BLOCK_COLS;
        if (s->at[0].c)
            step(u, s, 0, c, n_blocks, asp_min(BLOCK_COLS, p->cols - c));
        else if (c == 0)
            step(u, s, 0, 0, n_blocks, 1);
    }
}

// A few values shared by all rows, on one thread.
static void run_alone(const run *u, int from, int end)
{
    const asp_rowprog *p = u->p;
    for (int s = from; s < end; s++) {
        asp_rowkind kind = p->vals[p->steps[s].out[0]].kind;
        asp_rowstep one = p->steps[s];
        one.flat = false;
        step(u, &one, 0, 0, 1, kind == ASP_ROW_VECTOR ? p->cols : 1);
    }
}

void asp_rowprog_run(const asp_rowprog *p, void *const *ptrs, void *work, asp_worker *w)
{
    float *slots[ASP_ROW_MAX_VALS], *floats = work;
    for (int i = 0; i < p->n_slots; i++) slots[i] = ptrs[i];
    const run u = {p, slots, floats, floats + p->shared_floats + w->thread * p->thread_floats};
    if (p->before_end) {
        if (w->thread == 0) run_alone(&u, 0, p->before_end);
        asp_team_barrier(w);
    }
    const int64_t units = asp_ceil_div(p->rows, p->unit_rows) * asp_ceil_div(p->cols, p->unit_cols);
    int64_t i;
    while ((i = asp_team_next(w, units)) >= 0) run_unit(&u, i);
    if (p->blocks == p->n_steps) return;
    asp_team_barrier(w);
    add_blocks(&u, w);
    if (p->after == p->n_steps) return;
    asp_team_barrier(w);
    if (w->thread == 0) run_alone(&u, p->after, p->n_steps);
}
