// The program that a set of saved values means:
//
//   forward   the ops that forward outputs and saved values need, in the old order
//   backward  the backward ops in the old order; before each, the forward ops that its operands
//             still miss, in the old order.  An op is repeated once and its results stay until
//             their last reader, so that nothing is made earlier than its first need.
//
// O(ops + reads).  Neighbours: remat.h (contract), remat_simulate.c (bytes of the result).
// SPDX-License-Identifier: Apache-2.0
#include "flow/remat_int.h"

#include <stdlib.h>

typedef struct remat_emitter {
    const asp_remat_program *p;
    uint32_t *producer; // by value; ASP_REMAT_NONE: an input
    bool *saved;        // by value; inputs count as saved
    bool *forward;      // by op: runs in the forward part
    bool *needed;       // by op: runs in the backward part
    bool *done;         // by op: stands in the backward part already
    uint32_t *stack, *missing;
    asp_remat_step *steps;
    uint32_t n_steps;
} emitter;

remat_emitter *remat_emitter_create(asp_arena *a, const asp_remat_program *p)
{
    emitter *made = ASP_NEW(a, emitter), e = {.p = p};
    e.producer = ASP_NEW_ARRAY(a, uint32_t, p->n_values);
    e.saved = ASP_NEW_ARRAY(a, bool, p->n_values);
    e.forward = ASP_NEW_ARRAY(a, bool, p->n_ops);
    e.needed = ASP_NEW_ARRAY(a, bool, p->n_ops);
    e.done = ASP_NEW_ARRAY(a, bool, p->n_ops);
    e.stack = ASP_NEW_ARRAY(a, uint32_t, p->n_ops);
    e.missing = ASP_NEW_ARRAY(a, uint32_t, p->n_ops);
    e.steps = ASP_NEW_ARRAY(a, asp_remat_step, 2 * (size_t)p->n_ops);
    for (uint32_t v = 0; v < p->n_inputs; v++) e.producer[v] = ASP_REMAT_NONE;
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t r = 0; r < p->ops[i].n_results; r++)
            e.producer[p->ops[i].first_result + r] = i;
    *made = e;
    return made;
}

static void clear(emitter *e)
{
    const asp_remat_program *p = e->p;
    memset(e->saved, 0, p->n_values * sizeof *e->saved);
    memset(e->saved, 1, p->n_inputs * sizeof *e->saved);
    memset(e->forward, 0, p->n_ops * sizeof *e->forward);
    memset(e->needed, 0, p->n_ops * sizeof *e->needed);
    memset(e->done, 0, p->n_ops * sizeof *e->done);
    e->n_steps = 0;
}

static asp_status mark_saved(asp_ctx *cx, emitter *e, const uint32_t *saved, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = saved[i];
        ASP_CHECK(v < e->p->n_values);
        e->saved[v] = true;
        if (e->producer[v] == ASP_REMAT_NONE) continue;
        if (e->p->ops[e->producer[v]].backward || e->p->values[v].flags & ASP_REMAT_TUPLE)
            return asp_fail(cx, ASP_ERR_INPUT, "recompute: value %u cannot be saved", v);
        e->forward[e->producer[v]] = true;
    }
    return ASP_OK;
}

// Walks back from the forward's ends: readers stand behind producers, so one sweep does.
static void close_forward(emitter *e)
{
    for (uint32_t i = e->p->n_ops; i-- > 0;) {
        const asp_remat_op *o = &e->p->ops[i];
        for (uint32_t r = 0; r < o->n_results; r++)
            if (e->p->values[o->first_result + r].flags & ASP_REMAT_FORWARD_OUTPUT)
                e->forward[i] = true;
        if (!e->forward[i]) continue;
        for (uint32_t r = 0; r < o->n_reads; r++) {
            uint32_t from = e->producer[e->p->reads[o->first_read + r]];
            if (from != ASP_REMAT_NONE) e->forward[from] = true;
        }
    }
}

static void close_backward(emitter *e)
{
    for (uint32_t i = e->p->n_ops; i-- > 0;) {
        const asp_remat_op *o = &e->p->ops[i];
        for (uint32_t r = 0; r < o->n_results; r++) {
            uint32_t v = o->first_result + r;
            if (e->p->values[v].flags & ASP_REMAT_BACKWARD_OUTPUT && !e->saved[v])
                e->needed[i] = true;
        }
        if (!e->needed[i]) continue;
        for (uint32_t r = 0; r < o->n_reads; r++) {
            uint32_t v = e->p->reads[o->first_read + r];
            if (!e->saved[v]) e->needed[e->producer[v]] = true;
        }
    }
}

static int ascending(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

// The op and what it still misses, in order.
static asp_status add_with_missing(asp_ctx *cx, emitter *e, uint32_t op)
{
    uint32_t depth = 0, n = 0;
    e->done[op] = true;
    e->stack[depth++] = op;
    while (depth > 0) {
        uint32_t i = e->stack[--depth];
        const asp_remat_op *o = &e->p->ops[i];
        e->missing[n++] = i;
        for (uint32_t r = 0; r < o->n_reads; r++) {
            uint32_t v = e->p->reads[o->first_read + r];
            if (e->saved[v] || e->done[e->producer[v]]) continue;
            e->done[e->producer[v]] = true;
            e->stack[depth++] = e->producer[v];
        }
    }
    if (n > 1) qsort(e->missing, n, sizeof *e->missing, ascending);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t it = e->missing[i];
        bool repeated = e->forward[it];
        if (repeated && e->p->ops[it].kind == ASP_REMAT_RANDOM)
            return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                            "recompute: op %u draws random numbers that a repetition would not "
                            "give again; save its results",
                            it);
        e->steps[e->n_steps++] = (asp_remat_step){.op = it, .repeated = repeated};
    }
    return ASP_OK;
}

asp_status remat_emitter_run(asp_ctx *cx, remat_emitter *e, const uint32_t *saved, uint32_t n_saved,
                             asp_remat_schedule *out)
{
    const asp_remat_program *p = e->p;
    clear(e);
    ASP_TRY(mark_saved(cx, e, saved, n_saved));
    close_forward(e);
    close_backward(e);
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (e->forward[i]) e->steps[e->n_steps++] = (asp_remat_step){.op = i};
    uint32_t n_forward = e->n_steps;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (e->needed[i] && p->ops[i].backward) ASP_TRY(add_with_missing(cx, e, i));
    for (uint32_t i = 0; i < p->n_ops; i++) // gradients that depend on no tangent
        if (e->needed[i] && !e->done[i]) ASP_TRY(add_with_missing(cx, e, i));
    *out = (asp_remat_schedule){.steps = e->steps, .n_steps = e->n_steps, .n_forward = n_forward};
    return ASP_OK;
}

asp_status asp_remat_emit(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                          const uint32_t *saved, uint32_t n_saved, asp_remat_schedule *out)
{
    return remat_emitter_run(cx, remat_emitter_create(a, p), saved, n_saved, out);
}
