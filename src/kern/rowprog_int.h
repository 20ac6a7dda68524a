// What the compiler of row programs, their executor and their primitives share.  Inside src/kern
// only.  Neighbours: rowprog.h (contract).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/rowprog.h"

#define ASP_ROW_PARTIALS 64 // of a row's sum
#define ASP_ROW_BLOCK 64    // rows that a sum over rows adds in order
#define ASP_PRIM_INPUTS 5   // of a primitive, at most

// ---- primitives --------------------------------------------------------------------------------

// One primitive on a tile of rows x n; floats, but for what load_half reads, and store_half and
// round_store write. An operand of form V is read element by element, its rows stride floats apart
// (0: the same row again); of form S it is one number a row, stride floats apart.
typedef struct asp_prim_args {
    int64_t rows, n;
    const float *in[ASP_PRIM_INPUTS];
    int64_t stride[ASP_PRIM_INPUTS];
    float *out[2];
    int64_t out_stride[2];
} asp_prim_args;
typedef void asp_prim(const asp_prim_args *g);

enum { ASP_FORM_V, ASP_FORM_S };
// a op b for add .. mul and then (a op b) op c, c after or before: the ops that join in chains.
#define ASP_CHAIN_FIRST(X) X(add) X(sub) X(mul)
#define ASP_CHAIN_SECOND(X) X(add) X(sub) X(rsub) X(mul)
#define ASP_PRIM_BINARY(X) \
    X(add)                 \
    X(sub)                 \
    X(mul)                 \
    X(div) X(silu_grad) X(relu_grad) X(tanh_grad) X(sigmoid_grad) X(gelu_grad) X(gelu_tanh_grad)
#define ASP_PRIM_UNARY(X) \
    X(copy)               \
    X(round_half) X(neg) X(exp) X(rsqrt) X(silu) X(relu) X(tanh) X(sigmoid) X(gelu) X(gelu_tanh)

#define ASP_X(name) ASP_CHAIN1_##name,
enum { ASP_CHAIN_FIRST(ASP_X) ASP_CHAIN1_COUNT };
#undef ASP_X
#define ASP_X(name) ASP_CHAIN2_##name,
enum { ASP_CHAIN_SECOND(ASP_X) ASP_CHAIN2_COUNT };
#undef ASP_X

// The primitives of one instruction set.  Indices [2] are forms of the operands.
typedef struct asp_row_prims {
    asp_prim *load_half, *store_half; // bf16 in[0]; bf16 out[0]
    asp_prim *round_store;            // rounded out[0], bf16 out[1]
    asp_prim *unary[ASP_ROWOP_COUNT][2];
    asp_prim *binary[ASP_ROWOP_COUNT][2][2];                   // never [S][S]
    asp_prim *chain[ASP_CHAIN1_COUNT][ASP_CHAIN2_COUNT][2][2]; // (a V, b, c)
    asp_prim *silu_mul;                                        // silu(a) * b
    asp_prim *silu_grad_mul;                                   // silu_grad(a, b * c)
    asp_prim *silu_both;       // out0 = silu_grad(a, b * c), out1 = silu(a) * b: one exponential
    asp_prim *sum_cols;        // adds to 64 partials a row (out: rows x 64)
    asp_prim *mul_sum_cols[2]; // the same of a * b, b's form
    asp_prim *sum_rows;        // adds to out (n)
    asp_prim *mul_sum_rows[2];
    asp_prim *mul_mul_sum_rows[2][2]; // (a b) c, a V
    asp_prim *norm_grad[2];           // ((a b + t) + t) + d with t = s x: a V, b, x V, s S, d V
    asp_prim *tree;                   // in: rows x 64 partials, out: one number a row
    asp_prim *sum_blocks;             // out (n) = sum of the rows of in, in order, in double
} asp_row_prims;

extern const asp_row_prims asp_row_prims_generic;
#if defined(__x86_64__)
extern const asp_row_prims asp_row_prims_avx2, asp_row_prims_avx512;
#endif

// ---- compiled programs -------------------------------------------------------------------------

// Where a primitive's operand lies: base + offset, plus row * r + column * c floats for the tile at
// (row, column).
typedef enum asp_rowbase {
    ASP_BASE_SLOT,    // ptrs[offset]
    ASP_BASE_THREAD,  // the thread's registers
    ASP_BASE_SHARED,  // the program's temporaries outside the rows, partial sums
    ASP_BASE_CONSTANT // in the program
} asp_rowbase;

typedef struct asp_rowloc {
    asp_rowbase base;
    int64_t offset; // slot number, or floats
    int64_t r, c;   // floats a row, floats a column of the whole array
    int64_t stride; // between rows of the tile, floats
    int64_t block;  // floats a block of 64 rows (partial sums over rows), else 0
    bool half;      // a slot of bf16: elements where floats are said
} asp_rowloc;

typedef enum asp_rowwhen {
    ASP_WHEN_BEFORE, // once, before the rows
    ASP_WHEN_ROWS,   // at the start of a stage, on one number a row of the tile
    ASP_WHEN_TILE,   // in a stage, for each chunk of columns
    ASP_WHEN_TREE,   // at the end of a stage: makes the sums of rows of their partials
    ASP_WHEN_BLOCKS, // once, after the rows: adds the blocks of sums over rows
    ASP_WHEN_AFTER   // once, after that
} asp_rowwhen;

typedef struct asp_rowstep {
    asp_prim *prim;
    const char *name;
    asp_rowwhen when;
    int stage;
    int n_in, n_out;
    int in[ASP_PRIM_INPUTS], out[2]; // values, for the dump
    asp_rowloc at[ASP_PRIM_INPUTS], to[2];
    bool flat;       // whole rows of the tile may be taken as one
    bool zero_tile;  // partial sums of rows: zeroed at the stage's start
    bool zero_block; // partial sums over rows: zeroed at the block's start
    bool down;       // sums ROW values over rows: rows x 1
} asp_rowstep;

// Steps of one stage: [rows, tile) on one number a row, [tile, tree) on tiles, [tree, end) sums.
typedef struct asp_rowstage {
    int rows, tile, tree, end;
} asp_rowstage;

// What depends on a sum of rows waits for it in the next stage; all stages run on one tile of rows
// while it is in cache.
struct asp_rowprog {
    const asp_row_prims *prims;
    int64_t rows, cols;
    int64_t tile_rows, tile_cols; // of the registers; a tile holds whole rows if tile_cols = cols
    int64_t unit_rows, unit_cols; // what a thread claims at once
    int n_slots, n_described, n_constants, n_steps, n_stages;
    const asp_rowval *vals; // of the description, constants, then of the compiler
    const asp_rowstep *steps;
    const asp_rowstage *stages;
    int before_end, blocks,
        after; // steps [0, before_end), stages, [blocks, after), [after, n_steps)
    const float *constants;
    bool any_zero_block;
    int64_t thread_floats, shared_floats; // multiples of 16
    int64_t traffic_bytes;
};

const char *asp_rowop_name(asp_rowop op);
int asp_rowop_operands(asp_rowop op);

static inline int64_t asp_rowkind_count(const asp_rowprog *p, asp_rowkind kind)
{
    const int64_t counts[] = {p->rows * p->cols, p->rows, p->cols, 1};
    return counts[kind];
}
