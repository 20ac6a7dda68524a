// See remat_builder.h.  SPDX-License-Identifier: Apache-2.0
#include "unit/flow/support/remat_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

void rb_init(remat_builder *b, asp_ctx *cx, asp_arena *a)
{
    *b = (remat_builder){.cx = cx, .arena = a};
}

static uint32_t add_value(remat_builder *b, const char *name, int64_t bytes, uint32_t flags,
                          int64_t redo)
{
    uint32_t v = b->values.n;
    ASP_PUSH(b->arena, &b->values, (asp_remat_value){.bytes = bytes, .root = v, .flags = flags});
    ASP_PUSH(b->arena, &b->names, name);
    ASP_PUSH(b->arena, &b->keep, flags & ASP_REMAT_STATIC ? 0 : bytes);
    ASP_PUSH(b->arena, &b->redo, redo);
    return v;
}

uint32_t rb_input(remat_builder *b, const char *name, int64_t bytes, uint32_t flags)
{
    b->n_inputs++;
    return add_value(b, name, bytes, flags, ASP_FLOW_INF);
}

uint32_t rb_add_op(remat_builder *b, const char *name, asp_remat_class kind, int64_t bytes,
                   const uint32_t *reads, size_t n_reads)
{
    asp_remat_op o = {.kind = kind,
                      .fusible = kind == ASP_REMAT_POINTWISE || kind == ASP_REMAT_VIEW ||
                                 kind == ASP_REMAT_REDUCTION,
                      .block = -1,
                      .first_read = b->reads.n,
                      .n_reads = (uint32_t)n_reads,
                      .first_result = b->values.n,
                      .n_results = 1};
    for (size_t i = 0; i < n_reads; i++) ASP_PUSH(b->arena, &b->reads, reads[i]);
    ASP_PUSH(b->arena, &b->ops, o);
    return add_value(b, name, bytes, 0, 0);
}

uint32_t rb_result(remat_builder *b, const char *name, int64_t bytes)
{
    b->ops.at[b->ops.n - 1].n_results++;
    return add_value(b, name, bytes, 0, 0);
}

uint32_t rb_add_backward(remat_builder *b, int64_t bytes, const uint32_t *reads, size_t n_reads)
{
    uint32_t v = rb_add_op(b, "gradient", ASP_REMAT_OTHER, bytes, reads, n_reads);
    b->ops.at[b->ops.n - 1].backward = true;
    b->values.at[v].flags |= ASP_REMAT_BACKWARD_OUTPUT;
    return v;
}

asp_remat_op *rb_maker(remat_builder *b, uint32_t value)
{
    for (uint32_t i = 0; i < b->ops.n; i++) {
        asp_remat_op *o = &b->ops.at[i];
        if (value >= o->first_result && value - o->first_result < o->n_results) return o;
    }
    fail_msg("value %u is an input", value);
    return NULL;
}

void rb_ban(remat_builder *b, uint32_t value) { b->redo.at[value] = ASP_FLOW_INF; }

void rb_view(remat_builder *b, uint32_t value)
{
    uint32_t from = b->reads.at[rb_maker(b, value)->first_read];
    b->values.at[value].root = b->values.at[from].root;
}

asp_remat_program rb_program(const remat_builder *b)
{
    return (asp_remat_program){.values = b->values.at,
                               .n_values = b->values.n,
                               .n_inputs = b->n_inputs,
                               .ops = b->ops.at,
                               .n_ops = b->ops.n,
                               .reads = b->reads.at,
                               .n_reads = b->reads.n,
                               .names = b->names.at};
}

asp_remat_choice rb_cut(const remat_builder *b)
{
    asp_remat_program p = rb_program(b);
    asp_remat_choice c;
    if (asp_remat_cut(b->cx, b->arena, &p, b->keep.at, b->redo.at, &c) != ASP_OK)
        fail_msg("%s", b->cx->message);
    return c;
}

bool rb_has(const asp_remat_choice *c, uint32_t value)
{
    for (uint32_t i = 0; i < c->n_saved; i++)
        if (c->saved[i] == value) return true;
    return false;
}
