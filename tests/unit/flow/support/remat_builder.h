// Small recomputation programs, written down op by op.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "flow/maxflow.h"
#include "flow/remat.h"

typedef struct remat_builder {
    asp_ctx *cx;
    asp_arena *arena;
    ASP_VEC(asp_remat_value) values;
    ASP_VEC(asp_remat_op) ops;
    ASP_VEC(uint32_t) reads;
    ASP_VEC(const char *) names;
    ASP_VEC(int64_t) keep, redo; // prices of the bare cut, by value
    uint32_t n_inputs;
} remat_builder;

void rb_init(remat_builder *b, asp_ctx *cx, asp_arena *a);
// Inputs first.  Kept at the price of their bytes, impossible to redo.
uint32_t rb_input(remat_builder *b, const char *name, int64_t bytes, uint32_t flags);
// An op with one result, kept at the price of its bytes, redone for nothing.
#define rb_op(b, name, kind, bytes, ...)                       \
    rb_add_op(b, name, kind, bytes, (uint32_t[]){__VA_ARGS__}, \
              sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
uint32_t rb_add_op(remat_builder *b, const char *name, asp_remat_class kind, int64_t bytes,
                   const uint32_t *reads, size_t n_reads);
// One more result of the op added last.
uint32_t rb_result(remat_builder *b, const char *name, int64_t bytes);
// An op of the backward with one gradient of `bytes` as a result.
#define rb_backward(b, bytes, ...)                       \
    rb_add_backward(b, bytes, (uint32_t[]){__VA_ARGS__}, \
                    sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
uint32_t rb_add_backward(remat_builder *b, int64_t bytes, const uint32_t *reads, size_t n_reads);

asp_remat_op *rb_maker(remat_builder *b, uint32_t value);
void rb_ban(remat_builder *b, uint32_t value);  // may not be redone
void rb_view(remat_builder *b, uint32_t value); // shares its first operand's storage
asp_remat_program rb_program(const remat_builder *b);
// The bare cut; fails the test on an error.  Inputs of price 0 are left out of the result.
asp_remat_choice rb_cut(const remat_builder *b);
bool rb_has(const asp_remat_choice *c, uint32_t value);
