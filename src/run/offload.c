// What each layer keeps of the layer before it leaves the memory between forward and backward
// (--offload), as steps of the program:
//
//   forward   layer 0 | write x0 | layer 1 | await x0, write x1 | layer 2 | await x1, write x2 |
//   ... backward  ... fetch x2 | layer 3 | await x2, fetch x1 | layer 2 | await x1, fetch x0 |
//   layer 1 ...
//
// A value is away when a layer makes it and a later one reads it, in the forward and again in the
// backward, and at least one other layer runs in between; so that of the last layer stays, and so
// do tables that all layers read.  Its storage becomes two: one up to the end of the write, one
// from the begin of the read on.  At most one write and one read are under way, so that two values
// are there at any time, however many layers there are.  Steps go between steps, never into a tile.
// O(steps).  Neighbours: program.c (the steps), memplan.c (places both storages), spill.c.
// SPDX-License-Identifier: Apache-2.0
#include "run/run_int.h"

#include <stdlib.h>

#define NONE UINT32_MAX

typedef struct away {
    uint32_t storage, fetched; // before and behind
    uint32_t written, wanted;  // behind this step it goes, before this one it must be there
    int64_t at;                // in the file
} away;

typedef struct offloader {
    asp_planner *p;
    uint32_t *first, *last_forward, *first_backward; // by storage: steps, NONE
    bool *between; // by storage: another layer makes than reads it
    bool *leaves;  // by storage
    ASP_VEC(away) away;
    // The steps anew.
    ASP_VEC(asp_step) steps;
    ASP_VEC(uint32_t) storages, works, carries, tiles;
    ASP_VEC(asp_offset) offsets;
} offloader;

static int64_t block_of(const offloader *o, uint32_t step)
{
    return asp_loc_block(o->p->plan->steps.at[step].loc);
}

static asp_tile_span span_of(const offloader *o, uint32_t step)
{
    const uint32_t tile = o->p->step_tile.at[step];
    return tile ? o->p->tiles.at[tile] : (asp_tile_span){step, step};
}

static void touch(offloader *o, uint32_t storage, uint32_t step)
{
    const asp_tile_span s = span_of(o, step);
    if (o->first[storage] == NONE) o->first[storage] = step;
    if (o->p->plan->steps.at[step].backward) {
        if (o->first_backward[storage] == NONE) o->first_backward[storage] = s.first;
        return;
    }
    o->last_forward[storage] = s.last;
    o->between[storage] |= block_of(o, step) != block_of(o, o->first[storage]);
}

static void find_touches(offloader *o)
{
    asp_planner *p = o->p;
    uint32_t at = 0;
    for (uint32_t i = 1; i < p->storages.n; i++)
        o->first[i] = o->last_forward[i] = o->first_backward[i] = NONE;
    for (uint32_t i = 0; i < p->plan->steps.n; i++)
        for (int k = 0; k < p->plan->steps.at[i].n_places; k++)
            touch(o, p->step_storage.at[at++], i);
    for (uint32_t i = 0; i < p->g->outputs.n; i++)
        o->leaves[p->storage_of[p->g->outputs.at[i].val.i]] = true;
}

// Does another layer run in the forward behind `from`, so that all of it is run between the two?
// (The backward makes tables again that are said to be of the first layer.)
static bool is_far(const offloader *o, uint32_t from, uint32_t to)
{
    const int64_t a = block_of(o, from), b = block_of(o, to);
    for (uint32_t i = from + 1; i < to; i++) {
        const int64_t c = block_of(o, i);
        if (!o->p->plan->steps.at[i].backward && c >= 0 && c != a && c != b) return true;
    }
    return false;
}

static int by_write(const void *x, const void *y)
{
    const away *a = x, *b = y;
    return a->written != b->written ? (a->written > b->written) - (a->written < b->written)
                                    : (a->storage > b->storage) - (a->storage < b->storage);
}

static void choose(offloader *o)
{
    asp_planner *p = o->p;
    for (uint32_t i = 1; i < p->storages.n; i++) {
        const asp_storage *x = &p->storages.at[i];
        if (x->kind != ASP_MEM_ACTIVATION || x->local || o->leaves[i] || !o->between[i]) continue;
        if (o->last_forward[i] == NONE || o->first_backward[i] == NONE ||
            o->first_backward[i] < o->last_forward[i] ||
            !is_far(o, o->last_forward[i], o->first_backward[i]))
            continue;
        ASP_PUSH(
            &p->scratch, &o->away,
            ((away){.storage = i, .written = o->last_forward[i], .wanted = o->first_backward[i]}));
    }
    if (o->away.n) qsort(o->away.at, o->away.n, sizeof *o->away.at, by_write);
    for (uint32_t i = 0; i < o->away.n; i++) {
        away *a = &o->away.at[i];
        asp_storage x = p->storages.at[a->storage];
        a->at = p->plan->report.offload_bytes;
        p->plan->report.offload_bytes += x.bytes;
        ASP_PUSH(&p->scratch, &p->storages, x);
        a->fetched = p->storages.n - 1;
    }
}

// ---- steps -------------------------------------------------------------------------------------

static void add_step(offloader *o, asp_step_kind kind, const char *op, const away *a,
                     uint32_t storage)
{
    asp_plan *plan = o->p->plan;
    const asp_storage *x = &o->p->storages.at[storage];
    asp_kcall *call = ASP_NEW(&plan->arena, asp_kcall);
    *call = (asp_kcall){.n_in = 1, .in = {{.dtype = ASP_I64, .rank = 1, .dim = {x->bytes}}}};
    const asp_step s = {.kind = kind,
                        .op = op,
                        .loc = asp_copy_str(&plan->arena, x->loc),
                        .call = call,
                        .trips = 1,
                        .n_places = 1,
                        .file_at = a->at,
                        .work = ASP_NOWHERE,
                        .carry = ASP_NOWHERE,
                        .overwrites = -1};
    ASP_PUSH(&o->p->scratch, &o->steps, s);
    ASP_PUSH(&o->p->scratch, &o->storages, storage);
    ASP_PUSH(&o->p->scratch, &o->offsets, (asp_offset){0});
    ASP_PUSH(&o->p->scratch, &o->works, 0);
    ASP_PUSH(&o->p->scratch, &o->carries, 0);
    ASP_PUSH(&o->p->scratch, &o->tiles, 0);
}

static void add_write(offloader *o, uint32_t i)
{
    const away *a = &o->away.at[i];
    if (i > 0) add_step(o, ASP_STEP_AWAIT_FILE, "await_file", a - 1, a[-1].storage);
    add_step(o, ASP_STEP_WRITE_FILE, "write_file", a, a->storage);
}

static void add_fetch(offloader *o, const away *a)
{
    add_step(o, ASP_STEP_READ_FILE, "read_file", a, a->fetched);
}

static int by_want(const void *x, const void *y)
{
    const away *const *a = x, *const *b = y;
    return (*a)->wanted != (*b)->wanted
               ? ((*a)->wanted > (*b)->wanted) - ((*a)->wanted < (*b)->wanted)
               : by_write(*b, *a);
}

// The first step of the backward that is of a layer: the head's has the most to keep.
static uint32_t find_turn(const offloader *o, uint32_t wanted)
{
    const asp_plan *plan = o->p->plan;
    for (uint32_t i = 0; i < wanted; i++)
        if (plan->steps.at[i].backward && block_of(o, i) >= 0) return span_of(o, i).first;
    return wanted;
}

// Copies step `i` with its places, those of what was away renamed.
static void copy_step(offloader *o, uint32_t i, uint32_t at, const uint32_t *fetched)
{
    asp_planner *p = o->p;
    const asp_step s = p->plan->steps.at[i];
    for (int k = 0; k < s.n_places; k++) {
        const uint32_t x = p->step_storage.at[at + (uint32_t)k];
        ASP_PUSH(&p->scratch, &o->storages, s.backward && fetched[x] ? fetched[x] : x);
        ASP_PUSH(&p->scratch, &o->offsets, p->step_offset.at[at + (uint32_t)k]);
    }
    const uint32_t work = p->step_work.at[i];
    if (work) p->storages.at[work].first = p->storages.at[work].last = o->steps.n;
    ASP_PUSH(&p->scratch, &o->steps, s);
    ASP_PUSH(&p->scratch, &o->works, work);
    ASP_PUSH(&p->scratch, &o->carries, p->step_carry.at[i]);
    ASP_PUSH(&p->scratch, &o->tiles, p->step_tile.at[i]);
}

static void rebuild(offloader *o)
{
    asp_planner *p = o->p;
    const uint32_t n = o->away.n, n_steps = p->plan->steps.n;
    uint32_t *moved = ASP_NEW_ARRAY(&p->scratch, uint32_t, n_steps + 1); // old step -> new
    uint32_t *fetched = ASP_NEW_ARRAY(&p->scratch, uint32_t, p->storages.n);
    const away **wanted = ASP_NEW_ARRAY(&p->scratch, const away *, n);
    uint32_t at = 0, written = 0, begun = 0, awaited = 0;
    for (uint32_t i = 0; i < n; i++) {
        wanted[i] = &o->away.at[i];
        fetched[o->away.at[i].storage] = o->away.at[i].fetched;
    }
    qsort(wanted, n, sizeof *wanted, by_want);
    const uint32_t turn = find_turn(o, wanted[0]->wanted);
    for (uint32_t i = 0; i < n_steps; i++) {
        if (i == turn) {
            add_step(o, ASP_STEP_AWAIT_FILE, "await_file", &o->away.at[n - 1],
                     o->away.at[n - 1].storage);
            add_fetch(o, wanted[begun++]);
        }
        while (awaited < n && wanted[awaited]->wanted == i) {
            add_step(o, ASP_STEP_AWAIT_FILE, "await_file", wanted[awaited],
                     wanted[awaited]->fetched);
            awaited++;
            if (begun < n) add_fetch(o, wanted[begun++]);
        }
        moved[i] = o->steps.n;
        copy_step(o, i, at, fetched);
        at += (uint32_t)p->plan->steps.at[i].n_places;
        while (written < n && o->away.at[written].written == i) add_write(o, written++);
    }
    for (uint32_t i = 0; i < p->plan->loops.n; i++) {
        asp_loop *l = &p->plan->loops.at[i];
        l->end = moved[l->end - 1] + 1;
        l->first = moved[l->first];
    }
    for (uint32_t i = 1; i < p->tiles.n; i++) {
        p->tiles.at[i].last = moved[p->tiles.at[i].last];
        p->tiles.at[i].first = moved[p->tiles.at[i].first];
    }
}

// The planner goes on with the new lists.
static void take_over(offloader *o)
{
    asp_planner *p = o->p;
    bool backward = false;
    p->plan->steps.n = 0;
    for (uint32_t i = 0; i < o->steps.n; i++) {
        asp_step s = o->steps.at[i];
        backward |= s.backward;
        s.backward = backward;
        ASP_PUSH(&p->plan->arena, &p->plan->steps, s);
    }
    memcpy(&p->step_storage, &o->storages, sizeof o->storages);
    memcpy(&p->step_offset, &o->offsets, sizeof o->offsets);
    memcpy(&p->step_work, &o->works, sizeof o->works);
    memcpy(&p->step_carry, &o->carries, sizeof o->carries);
    memcpy(&p->step_tile, &o->tiles, sizeof o->tiles);
}

void asp_planner_offload(asp_planner *p)
{
    offloader o = {.p = p};
    o.first = ASP_NEW_ARRAY(&p->scratch, uint32_t, p->storages.n);
    o.last_forward = ASP_NEW_ARRAY(&p->scratch, uint32_t, p->storages.n);
    o.first_backward = ASP_NEW_ARRAY(&p->scratch, uint32_t, p->storages.n);
    o.between = ASP_NEW_ARRAY(&p->scratch, bool, p->storages.n);
    o.leaves = ASP_NEW_ARRAY(&p->scratch, bool, p->storages.n);
    find_touches(&o);
    choose(&o);
    if (o.away.n == 0) return;
    rebuild(&o);
    take_over(&o);
}
