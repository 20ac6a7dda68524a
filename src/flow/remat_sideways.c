// The order in which a compiler runs a program that also fuses sideways: element-wise ops that read
// a value in common and make values of one size become one loop, so that their results are there at
// once, where the first of them stands.
//
//   a = silu(g) * u          reads g, u          [a, du, dg]  what lies between moves before it
//   w = matmul(t, a)                             w = matmul(t, a)
//   du = d * silu(g)         reads d, g          ...
//   dg = d * u * silu'(g)    reads d, g, u
//
// A step joins where it stands near (Inductor joins the nearest first) and all it reads can be made
// before without the loop's own results; else it stays where it is.
// O(steps x readers of what they read), each hoist at most HOISTS deep.
// Neighbours: remat_simulate.c (who asks, and has the bytes).  SPDX-License-Identifier: Apache-2.0
#include "flow/remat_int.h"

#define NONE ASP_REMAT_NONE
#define HOISTS 64u
#define NEAR 32u
#define MOST_MEMBERS 32u

typedef enum step_state { WAITS, IN_PROGRESS, DONE } step_state;

struct remat_sideways {
    asp_arena *arena;
    const asp_remat_program *p;
    const remat_steps *in;
    step_state *state;         // by step
    uint32_t *order, *group;   // what is made
    uint32_t n;                // of order
    uint32_t *first;           // by value, into readers; of written values alone
    ASP_VEC(uint32_t) readers; // steps, ascending
};
typedef remat_sideways walk;

remat_sideways *remat_sideways_create(asp_arena *a, const asp_remat_program *p)
{
    walk *w = ASP_NEW(a, walk);
    w->arena = a;
    w->p = p;
    w->state = ASP_NEW_ARRAY(a, step_state, p->n_ops);
    w->first = ASP_NEW_ARRAY(a, uint32_t, (size_t)p->n_values + 2);
    return w;
}

static void find_readers(walk *w)
{
    const remat_steps *in = w->in;
    uint32_t *first = w->first, *end = first + 1; // while filling, one further: ends up as first
    memset(first, 0, ((size_t)w->p->n_values + 2) * sizeof *first);
    w->readers.n = 0;
    for (uint32_t i = 0; i < in->first_read[in->n]; i++) {
        first[in->reads[i] + 2]++;
        ASP_PUSH(w->arena, &w->readers, 0);
    }
    for (uint32_t v = 1; v < w->p->n_values; v++) first[v + 1] += first[v];
    for (uint32_t s = 0; s < in->n; s++)
        for (uint32_t i = in->first_read[s]; i < in->first_read[s + 1]; i++)
            w->readers.at[end[in->reads[i]]++] = s;
}

static void run(walk *w, uint32_t step, uint32_t group)
{
    w->state[step] = DONE;
    w->group[w->n] = group;
    w->order[w->n++] = step;
}

// All that the step reads is made; false where it cannot be before the loop that asks.
static bool prepare(walk *w, uint32_t step, uint32_t depth)
{
    const asp_remat_op *o = &w->p->ops[w->in->steps[step].op];
    if (depth == HOISTS) return false;
    for (uint32_t r = 0; r < o->n_reads; r++) {
        uint32_t maker = w->in->made_at[w->p->reads[o->first_read + r]];
        if (maker == NONE || w->state[maker] == DONE) continue;
        if (w->state[maker] == IN_PROGRESS) return false;
        w->state[maker] = IN_PROGRESS;
        bool ready = prepare(w, maker, depth + 1);
        w->state[maker] = WAITS;
        if (!ready) return false;
        run(w, maker, NONE);
    }
    return true;
}

// Adds to the loop what shares a source with this member.
static void extend(walk *w, uint32_t member, uint32_t *members, uint32_t *n)
{
    const remat_steps *in = w->in;
    for (uint32_t i = in->first_read[member]; i < in->first_read[member + 1]; i++) {
        uint32_t v = in->reads[i];
        for (uint32_t k = w->first[v]; k < w->first[v + 1]; k++) {
            uint32_t s = w->readers.at[k];
            if (*n == MOST_MEMBERS) return;
            if (w->state[s] != WAITS || s > member + NEAR || in->joins[s] != in->joins[member])
                continue;
            w->state[s] = IN_PROGRESS;
            if (prepare(w, s, 0))
                members[(*n)++] = s;
            else
                w->state[s] = WAITS;
        }
    }
}

void remat_sideways_run(remat_sideways *w, const remat_steps *in, uint32_t *order, uint32_t *group)
{
    uint32_t members[MOST_MEMBERS], n;
    w->in = in;
    w->order = order;
    w->group = group;
    w->n = 0;
    for (uint32_t s = 0; s < in->n; s++) w->state[s] = WAITS;
    find_readers(w);
    for (uint32_t s = 0; s < in->n; s++) {
        if (w->state[s] == DONE) continue;
        n = 1;
        members[0] = s;
        w->state[s] = IN_PROGRESS;
        for (uint32_t i = 0; in->joins[s] > 0 && i < n; i++) extend(w, members[i], members, &n);
        for (uint32_t i = 0; i < n; i++) run(w, members[i], n > 1 ? s : NONE);
    }
}
