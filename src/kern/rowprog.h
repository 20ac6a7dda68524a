// Row programs: a group of row-wise ops run in one pass over memory, as a list of vector primitives
// over tiles that stay in cache.  f32; arrays in memory may be bf16.  Neighbours: rowop.def (the
// primitives), pass/fuse (who groups nodes), run/ (who calls them); rowprog.c compiles,
// rowprog_run.c executes, rowprog_isa.c holds the primitives.  SPDX-License-Identifier: Apache-2.0
//
// Bits: a program gives the bits of its ops run one by one, whatever the grouping, the tile, the
// number of threads or the instruction set.  In a row, element i goes to partial sum i mod 64, and
// the 64 are added by one fixed tree; over rows, blocks of 64 rows are summed in order, then the
// blocks in order.  Every intermediate is rounded to f32 as if it had been stored.
// An array of bf16 is widened as it is read and rounded as it is written; ops that read it behind
// its maker read it rounded.
#pragma once

#include "ir/ir.h"
#include "kern/kern.h"

typedef enum asp_rowop {
#define ROWOP(name, n_in, doc) ASP_ROWOP_##name,
#include "kern/rowop.def"
#undef ROWOP
} asp_rowop;
enum {
#define ROWOP(name, n_in, doc) +1
    ASP_ROWOP_COUNT = 0
#include "kern/rowop.def"
#undef ROWOP
};
// The primitive of the same name and meaning as an op of the graph (add ... silu_grad); false where
// there is none.
bool asp_rowop_of(asp_op op, asp_rowop *out_rowop);

// ---- the plain description ---------------------------------------------------------------------

// Shape of a value in a program over rows x cols.  A smaller one is broadcast where an op wants a
// larger one: result FULL takes any kinds, ROW takes ROW and NUMBER, VECTOR takes VECTOR and
// NUMBER.
typedef enum asp_rowkind {
    ASP_ROW_FULL,   // rows x cols
    ASP_ROW_ROW,    // rows: one number a row
    ASP_ROW_VECTOR, // cols: shared by all rows
    ASP_ROW_NUMBER  // 1
} asp_rowkind;

typedef struct asp_rowval {
    asp_rowkind kind;
    int slot; // index into ptrs of asp_rowprog_run; -1: a temporary that never reaches memory
} asp_rowval;

// Each value is the result of at most one op, and ops come after those that make their operands.  A
// value with a slot is an input of the program when no op makes it, else an output, which later ops
// may read too.
typedef struct asp_rowinstr {
    asp_rowop op;
    int in[2]; // values
    int out;
    double value; // of add_scalar, mul_scalar; rounded to f32
} asp_rowinstr;

typedef struct asp_rowdesc {
    int64_t rows, cols; // >= 1
    int n_slots, n_vals, n_ops;
    const bool *half;        // by slot: the array is bf16; NULL: none is.  Borrowed
    const asp_rowval *vals;  // borrowed
    const asp_rowinstr *ops; // borrowed
} asp_rowdesc;

// NULL when the description is sound, else what is wrong with it (static text).  Beside the rules
// above: what depends on a sum over rows may be VECTOR or NUMBER only (a FULL or ROW value would
// need a second pass: begin a new program there), and a program has at most ASP_ROW_MAX_VALS
// values.
const char *asp_rowdesc_check(const asp_rowdesc *d);
#define ASP_ROW_MAX_VALS 256

// One op of the graph as a description, slots 0 .. n_in - 1 its operands, n_in its result: all
// pointwise ops, sum and expand on f32, casts between f32 and bf16, where the broadcast is one of
// the kinds above after merging dimensions.  k gives shapes and attributes; data pointers are not
// read.  false: no single program does it, use the kernel of the op.
bool asp_rowdesc_wrap(asp_arena *a, asp_op op, const asp_kcall *k, asp_rowdesc *out_desc);

// ---- the compiled program ----------------------------------------------------------------------

typedef struct asp_rowprog asp_rowprog;

// On the arena; the description may die.  An unsound description is a bug of the caller.
const asp_rowprog *asp_rowprog_build(asp_arena *a, const asp_rowdesc *d, asp_isa isa);
int64_t asp_rowprog_work_bytes(const asp_rowprog *p, int n_threads);
// Bytes read from and written to memory by one run, each input and output once.
int64_t asp_rowprog_traffic_bytes(const asp_rowprog *p);
void asp_rowprog_print(const asp_rowprog *p, asp_text *t);

// May output slot `out` be the memory of input slot `in`?  Both are FULL, and in every tile the
// input is last read before or by the step that writes the output.
bool asp_rowprog_may_overwrite(const asp_rowprog *p, int out, int in);

// Every thread of the team calls it.  ptrs[slot] are the arrays; outputs overlap neither inputs nor
// each other (ops may run in another order than described), but an output may be an input that
// may_overwrite allows it, each input taken once.  work: work_bytes(p, n_threads), 64-byte aligned.
void asp_rowprog_run(const asp_rowprog *p, void *const *ptrs, void *work, asp_worker *w);

// Tests only: as build, but with this tile (columns a multiple of 64, or 0 for the usual) and
// without joining primitives.
const asp_rowprog *asp_rowprog_build_with(asp_arena *a, const asp_rowdesc *d, asp_isa isa,
                                          int64_t tile_cols, int64_t tile_rows, bool join);
