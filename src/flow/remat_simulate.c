// Bytes alive at every step of an emitted program, by storage: views have none of their own, inputs
// none at all (they live anyway).  The forward starts empty and ends with saved values and outputs;
// the backward starts with the saved storages.
//
// With ASP_REMAT_FUSED some values stay unwritten: a fusible, not reducing, not kept one whose
// readers are all fusible or absorb it, and which is made from at most four written values.  Its
// sources then live to its readers.  And a fusible op may write its result over an operand of the
// same size that dies there.  An op's scratch counts at its step alone.  With ASP_REMAT_SIDEWAYS
// the steps run in the order of remat_sideways.c, where several can be one loop: their results are
// there at once, and none lies over an operand that two of them read. Neighbours: remat.h
// (contract), remat_emit.c (the steps).  SPDX-License-Identifier: Apache-2.0
#include "flow/remat_int.h"

#define NONE ASP_REMAT_NONE
#define MOST_SOURCES 4
#define REDUCES_BY 4

typedef ASP_VEC(uint32_t) id_list;

typedef struct readers {
    uint32_t *first; // by value, into ops; n_values + 2 entries
    uint32_t *ops;
} readers;

// One half of the program being simulated.
typedef struct remat_simulator {
    asp_arena *arena;
    const asp_remat_program *p;
    readers readers;
    const asp_remat_step *steps;
    uint32_t n;
    const bool *keep;     // by storage: alive at the end
    bool *alive;          // by storage
    uint32_t *last;       // by storage: last step that reads or makes it, or NONE
    uint32_t *step_of;    // by op: its step, or NONE
    uint32_t *made_at;    // by value: the step that makes it, or NONE
    bool *unwritten;      // by value
    uint32_t *first_read; // by step, into reads; n + 1 entries
    id_list reads;        // of the steps: written values, each once
    id_list todo;
    int64_t *live;                             // by step: alive plus made; or NULL
    bool *kept, *ends_forward, *ends_backward; // by storage, of the whole
    remat_sideways *sideways;                  // NULL: steps run as they stand
    asp_remat_step *moved;                     // steps in another order
    uint32_t *order, *group; // of them: where each stood, and what loop it is in, or NONE
    int64_t *joins;          // by step
} half;

static readers find_readers(asp_arena *a, const asp_remat_program *p)
{
    readers r;
    r.first = ASP_NEW_ARRAY(a, uint32_t, (size_t)p->n_values + 2);
    r.ops = ASP_NEW_ARRAY(a, uint32_t, p->n_reads);
    uint32_t *end = r.first + 1; // while filling, one further: ends up as first
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < p->ops[i].n_reads; k++)
            r.first[p->reads[p->ops[i].first_read + k] + 2]++;
    for (uint32_t v = 1; v < p->n_values; v++) r.first[v + 1] += r.first[v];
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < p->ops[i].n_reads; k++)
            r.ops[end[p->reads[p->ops[i].first_read + k]]++] = i;
    return r;
}

static uint32_t root(const half *h, uint32_t v) { return h->p->values[v].root; }

static bool is_view(const half *h, uint32_t v) { return root(h, v) != v; }

static bool takes_bytes(const half *h, uint32_t v)
{
    return v >= h->p->n_inputs && !is_view(h, v) && !(h->p->values[v].flags & ASP_REMAT_TUPLE);
}

static const asp_remat_op *op_at(const half *h, uint32_t step)
{
    return &h->p->ops[h->steps[step].op];
}

// ---- which values stay unwritten -----------------------------------------------------------

static bool reduces(const half *h, const asp_remat_op *o)
{
    int64_t sum = 0;
    for (uint32_t r = 0; r < o->n_reads; r++)
        sum += h->p->values[h->p->reads[o->first_read + r]].bytes;
    return h->p->values[o->first_result].bytes * REDUCES_BY < sum;
}

// Every reader in this half, through views too, takes the value without its being written.
static bool readers_take_unwritten(half *h, uint32_t value)
{
    uint32_t n_readers = 0;
    h->todo.n = 0;
    ASP_PUSH(h->arena, &h->todo, value);
    while (h->todo.n > 0) {
        uint32_t v = h->todo.at[--h->todo.n];
        for (uint32_t u = h->readers.first[v]; u < h->readers.first[v + 1]; u++) {
            const asp_remat_op *o = &h->p->ops[h->readers.ops[u]];
            if (h->step_of[h->readers.ops[u]] == NONE) continue;
            n_readers += v == value;
            if (o->n_results == 1 && is_view(h, o->first_result))
                ASP_PUSH(h->arena, &h->todo, o->first_result);
            else if (!o->fusible && !o->absorbs)
                return false;
        }
    }
    return n_readers > 0;
}

static bool stays_unwritten(half *h, uint32_t step)
{
    const asp_remat_op *o = op_at(h, step);
    if (o->n_results != 1) return false;
    uint32_t v = o->first_result;
    if (is_view(h, v)) return h->unwritten[root(h, v)];
    return o->fusible && takes_bytes(h, v) && !reduces(h, o) && !h->keep[v] &&
           h->reads.n - h->first_read[step] <= MOST_SOURCES && readers_take_unwritten(h, v);
}

static void add_read(half *h, uint32_t step, uint32_t v)
{
    for (uint32_t i = h->first_read[step]; i < h->reads.n; i++)
        if (h->reads.at[i] == v) return;
    ASP_PUSH(h->arena, &h->reads, v);
}

// An unwritten operand stands for what it was made from.
static void find_reads(half *h, bool fused)
{
    for (uint32_t s = 0; s < h->n; s++) {
        const asp_remat_op *o = op_at(h, s);
        h->first_read[s] = h->reads.n;
        for (uint32_t r = 0; r < o->n_reads; r++) {
            uint32_t v = h->p->reads[o->first_read + r], from = h->made_at[v];
            if (!h->unwritten[v]) {
                add_read(h, s, v);
                continue;
            }
            for (uint32_t i = h->first_read[from]; i < h->first_read[from + 1]; i++)
                add_read(h, s, h->reads.at[i]);
        }
        h->first_read[s + 1] = h->reads.n;
        if (fused && stays_unwritten(h, s)) h->unwritten[o->first_result] = true;
    }
}

// ---- liveness ------------------------------------------------------------------------------

static bool is_unwritten_step(const half *h, uint32_t step)
{
    const asp_remat_op *o = op_at(h, step);
    return o->n_results == 1 && h->unwritten[o->first_result];
}

static void find_last(half *h)
{
    for (uint32_t v = 0; v < h->p->n_values; v++) h->last[v] = NONE;
    for (uint32_t s = 0; s < h->n; s++) {
        const asp_remat_op *o = op_at(h, s);
        if (is_unwritten_step(h, s)) continue;
        for (uint32_t r = 0; r < o->n_results; r++) h->last[root(h, o->first_result + r)] = s;
        for (uint32_t i = h->first_read[s]; i < h->first_read[s + 1]; i++)
            h->last[root(h, h->reads.at[i])] = s;
    }
}

static bool dies(const half *h, uint32_t storage, uint32_t step)
{
    return h->alive[storage] && h->last[storage] == step && !h->keep[storage];
}

// Frees a storage that this step is the last to touch; returns its bytes.
static int64_t release(half *h, uint32_t storage, uint32_t step)
{
    if (!dies(h, storage, step)) return 0;
    h->alive[storage] = false;
    return h->p->values[storage].bytes;
}

typedef struct high_water {
    int64_t bytes;
    uint32_t step;
} high_water;

static int64_t made_at_step(const half *h, uint32_t step)
{
    const asp_remat_op *o = op_at(h, step);
    int64_t made = 0;
    for (uint32_t r = 0; r < o->n_results; r++) {
        uint32_t v = o->first_result + r;
        if (takes_bytes(h, v) && !h->alive[v]) made += h->p->values[v].bytes;
    }
    return made;
}

// How many of the steps first .. end-1 read the storage.
static uint32_t count_readers(const half *h, uint32_t storage, uint32_t first, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t s = first; s < end; s++) {
        uint32_t i = h->first_read[s];
        while (i < h->first_read[s + 1] && root(h, h->reads.at[i]) != storage) i++;
        n += i < h->first_read[s + 1];
    }
    return n;
}

// Does an operand of that size die here, whose place the result may take?
static bool writes_in_place(const half *h, uint32_t step, int64_t made, uint32_t first,
                            uint32_t end)
{
    if (!op_at(h, step)->fusible) return false;
    for (uint32_t i = h->first_read[step]; i < h->first_read[step + 1]; i++) {
        uint32_t from = root(h, h->reads.at[i]);
        if (h->alive[from] && h->last[from] >= first && h->last[from] < end && !h->keep[from] &&
            h->p->values[from].bytes == made && count_readers(h, from, first, end) == 1)
            return true;
    }
    return false;
}

static uint32_t loop_end(const half *h, uint32_t step)
{
    uint32_t end = step + 1;
    if (h->sideways && h->group[step] != NONE)
        while (end < h->n && h->group[end] == h->group[step]) end++;
    return end;
}

static void set_live(half *h, uint32_t step, int64_t live)
{
    if (h->live) h->live[h->sideways ? h->order[step] : step] = live;
}

// What the steps make, results that lie over operands apart; scratch with it.
static int64_t begin_steps(half *h, uint32_t first, uint32_t end, bool fused, int64_t *out_grows)
{
    int64_t made = 0, scratch = 0;
    *out_grows = 0;
    for (uint32_t s = first; s < end; s++) {
        int64_t one = made_at_step(h, s);
        made += one;
        *out_grows += fused && writes_in_place(h, s, one, first, end) ? 0 : one;
        scratch = asp_max(scratch, op_at(h, s)->scratch);
    }
    *out_grows += scratch;
    for (uint32_t s = first; s < end; s++) {
        const asp_remat_op *o = op_at(h, s);
        for (uint32_t r = 0; r < o->n_results; r++)
            if (takes_bytes(h, o->first_result + r)) h->alive[o->first_result + r] = true;
    }
    return made;
}

static int64_t end_step(half *h, uint32_t step)
{
    const asp_remat_op *o = op_at(h, step);
    int64_t freed = 0;
    for (uint32_t i = h->first_read[step]; i < h->first_read[step + 1]; i++)
        freed += release(h, root(h, h->reads.at[i]), step);
    for (uint32_t r = 0; r < o->n_results; r++)
        freed += release(h, root(h, o->first_result + r), step);
    return freed;
}

static high_water find_peak(half *h, int64_t live, bool fused)
{
    high_water peak = {live, 0};
    for (uint32_t s = 0, end; s < h->n; s = end) {
        int64_t grows;
        end = loop_end(h, s);
        if (is_unwritten_step(h, s)) {
            set_live(h, s, live);
            continue;
        }
        int64_t made = begin_steps(h, s, end, fused, &grows);
        if (live + grows > peak.bytes)
            peak = (high_water){live + grows, h->sideways ? h->order[s] : s};
        for (uint32_t i = s; i < end; i++) set_live(h, i, live + grows);
        live += made;
        for (uint32_t i = s; i < end; i++) live -= end_step(h, i);
    }
    return peak;
}

static void read_steps(half *h, bool fused)
{
    const asp_remat_program *p = h->p;
    for (uint32_t v = 0; v < p->n_values; v++) {
        h->made_at[v] = NONE;
        h->unwritten[v] = false;
    }
    for (uint32_t i = 0; i < p->n_ops; i++) h->step_of[i] = NONE;
    for (uint32_t s = 0; s < h->n; s++) {
        const asp_remat_op *o = op_at(h, s);
        h->step_of[h->steps[s].op] = s;
        for (uint32_t r = 0; r < o->n_results; r++) h->made_at[o->first_result + r] = s;
    }
    h->reads.n = 0;
    find_reads(h, fused);
}

static void move_sideways(half *h)
{
    for (uint32_t s = 0; s < h->n; s++) {
        const asp_remat_op *o = op_at(h, s);
        bool loop = o->fusible && o->n_results == 1 && !is_unwritten_step(h, s) && !reduces(h, o) &&
                    takes_bytes(h, o->first_result);
        h->joins[s] = loop ? h->p->values[o->first_result].bytes : 0;
    }
    const remat_steps in = {.steps = h->steps,
                            .n = h->n,
                            .joins = h->joins,
                            .first_read = h->first_read,
                            .reads = h->reads.at,
                            .made_at = h->made_at};
    remat_sideways_run(h->sideways, &in, h->order, h->group);
    for (uint32_t s = 0; s < h->n; s++) h->moved[s] = h->steps[h->order[s]];
    h->steps = h->moved;
}

// start: storages alive before, or NULL.
static high_water simulate_half(half *h, const bool *start, uint32_t options)
{
    const asp_remat_program *p = h->p;
    bool fused = options & ASP_REMAT_FUSED;
    int64_t live = 0;
    for (uint32_t v = 0; v < p->n_values; v++) {
        h->alive[v] = start && start[v];
        if (h->alive[v]) live += p->values[v].bytes;
    }
    read_steps(h, fused);
    if (h->sideways) {
        move_sideways(h);
        read_steps(h, fused);
    }
    find_last(h);
    return find_peak(h, live, fused);
}

static void prepare_sideways(half *h)
{
    const asp_remat_program *p = h->p;
    if (h->moved) return;
    h->moved = ASP_NEW_ARRAY(h->arena, asp_remat_step, p->n_ops);
    h->order = ASP_NEW_ARRAY(h->arena, uint32_t, p->n_ops);
    h->group = ASP_NEW_ARRAY(h->arena, uint32_t, p->n_ops);
    h->joins = ASP_NEW_ARRAY(h->arena, int64_t, p->n_ops);
}

remat_simulator *remat_simulator_create(asp_arena *a, const asp_remat_program *p)
{
    half *made = ASP_NEW(a, half), h = {.arena = a, .p = p, .readers = find_readers(a, p)};
    h.alive = ASP_NEW_ARRAY(a, bool, p->n_values);
    h.last = ASP_NEW_ARRAY(a, uint32_t, p->n_values);
    h.step_of = ASP_NEW_ARRAY(a, uint32_t, p->n_ops);
    h.made_at = ASP_NEW_ARRAY(a, uint32_t, p->n_values);
    h.unwritten = ASP_NEW_ARRAY(a, bool, p->n_values);
    h.first_read = ASP_NEW_ARRAY(a, uint32_t, 2 * (size_t)p->n_ops + 1);
    h.kept = ASP_NEW_ARRAY(a, bool, p->n_values);
    h.ends_forward = ASP_NEW_ARRAY(a, bool, p->n_values);
    h.ends_backward = ASP_NEW_ARRAY(a, bool, p->n_values);
    *made = h;
    return made;
}

// ---- the whole -----------------------------------------------------------------------------

static void count_repeated(const asp_remat_program *p, const asp_remat_schedule *s,
                           asp_remat_cost *c)
{
    for (uint32_t i = s->n_forward; i < s->n_steps; i++) {
        const asp_remat_op *o = &p->ops[s->steps[i].op];
        if (!s->steps[i].repeated) continue;
        c->repeated_ps += o->time_ps;
        c->repeated_ops += o->kind != ASP_REMAT_VIEW && o->kind != ASP_REMAT_PICK;
        c->repeated_gemms += o->kind == ASP_REMAT_GEMM;
        c->repeated_attentions += o->kind == ASP_REMAT_ATTENTION;
        c->repeated_collectives += o->kind == ASP_REMAT_COLLECTIVE;
    }
}

// Which storages live on at the ends of both halves.
static int64_t mark_ends(half *h, const uint32_t *saved, uint32_t n_saved, uint32_t options)
{
    const asp_remat_program *p = h->p;
    int64_t bytes = 0;
    memset(h->kept, 0, p->n_values * sizeof *h->kept);
    memset(h->ends_forward, 0, p->n_values * sizeof *h->ends_forward);
    memset(h->ends_backward, 0, p->n_values * sizeof *h->ends_backward);
    for (uint32_t i = 0; i < n_saved; i++) {
        uint32_t storage = p->values[saved[i]].root;
        if (storage < p->n_inputs || h->kept[storage]) continue;
        h->kept[storage] = h->ends_forward[storage] = true;
        bytes += p->values[storage].bytes;
    }
    for (uint32_t v = 0; v < p->n_values; v++) {
        uint32_t storage = p->values[v].root, flags = p->values[v].flags;
        if (storage < p->n_inputs) continue;
        if (flags & ASP_REMAT_BACKWARD_OUTPUT) h->ends_backward[storage] = true;
        if (!(flags & ASP_REMAT_FORWARD_OUTPUT)) continue;
        h->ends_forward[storage] = true;
        if (options & ASP_REMAT_KEEP_OUTPUTS) h->kept[storage] = h->ends_backward[storage] = true;
    }
    return bytes;
}

void remat_simulator_run(remat_simulator *h, const uint32_t *saved, uint32_t n_saved,
                         const asp_remat_schedule *s, uint32_t options, int64_t *live,
                         asp_remat_cost *out_cost)
{
    asp_remat_cost c = {.saved_bytes = mark_ends(h, saved, n_saved, options)};
    bool sideways = options & ASP_REMAT_SIDEWAYS;
    if (sideways && !h->sideways) h->sideways = remat_sideways_create(h->arena, h->p);
    if (sideways) prepare_sideways(h);
    h->steps = s->steps;
    h->n = s->n_forward;
    h->keep = h->ends_forward;
    h->live = live;
    high_water forward = simulate_half(h, NULL, options);
    h->steps = s->steps + s->n_forward;
    h->n = s->n_steps - s->n_forward;
    h->keep = h->ends_backward;
    h->live = live ? live + s->n_forward : NULL;
    high_water backward = simulate_half(h, h->kept, options);
    c.forward_peak = forward.bytes;
    c.backward_peak = backward.bytes;
    c.peak = asp_max(forward.bytes, backward.bytes);
    c.peak_step = forward.bytes >= backward.bytes ? forward.step : s->n_forward + backward.step;
    count_repeated(h->p, s, &c);
    *out_cost = c;
}

void asp_remat_simulate(asp_arena *a, const asp_remat_program *p, const uint32_t *saved,
                        uint32_t n_saved, const asp_remat_schedule *s, uint32_t options,
                        asp_remat_cost *out_cost)
{
    remat_simulator_run(remat_simulator_create(a, p), saved, n_saved, s, options, NULL, out_cost);
}
