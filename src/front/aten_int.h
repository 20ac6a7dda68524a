// The importer of exported PyTorch graphs, inside: a graph being built, a node's call with its
// arguments decoded, the functions that translate one.  Neighbours: aten.def (rows), aten.c (the
// file), aten_args.c (arguments), aten_shape.c, aten_math.c and aten_model.c (translations).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "front/front.h"

// ---- values ------------------------------------------------------------------------------------

// What a name of the file stands for.  Values that may share memory have one memory; an in-place op
// raises its version, and what was made before may not be read any more.
typedef struct aten_value {
    const asp_val *at; // results
    uint32_t n;
    bool list; // read by getitem alone
    uint32_t memory, version;
    bool apart; // a list whose result i has memory + i: no pieces of one tensor
} aten_value;

typedef struct aten_memory {
    uint32_t version;
    const char *changed_by; // the node, for messages
} aten_memory;

// A node of the file, remembered for the edit list.
typedef struct aten_read {
    const char *name; // as its arguments say
    asp_val val;
} aten_read;

typedef struct aten_made {
    const char *name, *overload, *loc;
    const struct aten_row *row; // NULL: getitem, or an op that is not in the table
    uint32_t first, end;        // nodes of the graph that it became: first .. end - 1
    const asp_val *at;          // results
    uint32_t n;
    bool list;
    ASP_VEC(aten_read) reads;
} aten_made;

// What the graph was when it had just been read.  Passes keep the indices of nodes and values.
struct asp_aten_source {
    asp_arena arena; // owns everything below, and the struct
    ASP_VEC(aten_made) made;
    uint64_t hash;       // of the file's text
    uint32_t *maker;     // by node: index + 1 in made; 0: an input
    asp_node_info *node; // by node, with its operands
    asp_type *type;      // by value
    const char **name;   // by value: how the file calls it, or NULL
    uint32_t n_nodes, n_vals;
    uint32_t n_outputs; // of the file
    bool whole;         // all of them are wanted, whole on every rank
    bool own_kernels;   // run where the framework's values are: of 32 bits, on a CPU
};

typedef struct aten_import {
    asp_ctx *cx;
    asp_aten_source *source; // NULL: the file is not asked about again
    asp_arena arena;         // of the import alone
    const char *file;
    asp_graph *g;
    asp_builder b;
    asp_dtype dtype; // what floating-point tensors of any width become
    int64_t n_sites; // of dropout: each has random numbers of its own
    asp_map names;
    ASP_VEC(aten_value) values; // in the order of names
    ASP_VEC(aten_memory) memories;
} aten_import;

// ---- arguments ---------------------------------------------------------------------------------

typedef enum aten_kind {
    ATEN_NONE, // null, or left out without a default
    ATEN_TENSOR,
    ATEN_NUMBER, // whole, floating, or made of sizes
    ATEN_BOOL,
    ATEN_STRING,
    ATEN_DTYPE,
    ATEN_LIST,
    ATEN_IGNORED // device, layout
} aten_kind;

typedef struct aten_arg {
    aten_kind kind;
    asp_val val; // TENSOR
    bool is_float, is_const;
    asp_size size; // NUMBER: whole numbers and expressions
    double num;    // NUMBER: with is_const
    bool flag;     // BOOL
    const char *text;
    asp_dtype dtype;     // as the program computes: f32 for bf16, ...
    uint32_t n;          // LIST
    struct aten_arg *at; // its items; no lists among them
    uint32_t memory;     // TENSOR
} aten_arg;

#define ATEN_MAX_ARGS 20
#define ATEN_MAX_RESULTS 4096

typedef struct aten_row aten_row;

typedef struct aten_call {
    aten_import *m;
    const aten_row *row;
    const char *name;            // of the node
    aten_arg arg[ATEN_MAX_ARGS]; // in the order of the row's parameters
    const asp_type *type;        // of each result, as the file declares it
    uint32_t n_types;
    bool is_list; // the file declares a list
    ASP_VEC(asp_val) out;
} aten_call;

typedef void aten_fn(aten_call *c);

typedef enum aten_flag {
    ATEN_VIEW = 1,     // the result may be the first operand's memory
    ATEN_IN_PLACE = 2, // the first operand is changed; what shares its memory is void
    ATEN_LIKE = 4      // the result's shape is read off an operand
} aten_flag;

struct aten_row {
    const char *overload;
    uint32_t flags;
    aten_fn *fn;
    asp_op op; // what fn builds where it serves several rows
    const char *params;
};
extern const aten_row aten_rows[]; // ends with a NULL overload
extern const uint32_t aten_row_count;
const aten_row *aten_find(const char *overload);

// Functions of the rows.
#define ATEN(overload, flags, fn, op, params) aten_fn aten_##fn;
#include "front/aten.def"
#undef ATEN

// Decodes args and kwargs by the row's parameters.  Messages name the argument.
asp_status aten_decode(aten_call *c, const json_t *args, const json_t *kwargs);
asp_status aten_any_argument(aten_call *c, const json_t *v, aten_arg *out);
// "2*S-2", 7, {"sym": ...} and dtypes of the file.
asp_status aten_size(aten_import *m, const json_t *v, asp_size *out);
asp_status aten_type(aten_import *m, const json_t *v, asp_type *out);
asp_status aten_dtype(aten_import *m, const char *name, asp_dtype *out);
// The name of the row's parameter of this index, in buf; NULL behind the last.
const char *aten_param_name(const aten_row *row, uint32_t index, char buf[32]);

// ---- the source of a graph (aten_source.c) -----------------------------------------------------

void aten_source_begin(aten_import *m, const char *name, const char *overload, const aten_row *row);
void aten_source_read(aten_import *m, const char *name, asp_val v);
void aten_source_end(aten_import *m, const asp_val *at, uint32_t n, bool list);
void aten_source_finish(aten_import *m, uint32_t n_outputs);

// ---- for the translating functions -------------------------------------------------------------

// The first failure stays in the builder's status; later calls do nothing, so that a function needs
// no checks.
void aten_refuse(aten_call *c, const char *fmt, ...) ASP_PRINTF(2, 3);
static inline bool aten_ok(const aten_call *c) { return c->m->b.status >= 0; }
const asp_type *aten_type_of(aten_call *c, asp_val v); // a scalar after a failure
void aten_give(aten_call *c, asp_val v);               // the next result

int64_t aten_int(aten_call *c, uint32_t arg);                // a constant whole number
double aten_f64(aten_call *c, uint32_t arg);                 // a constant number
uint32_t aten_dim(aten_call *c, int64_t dim, uint32_t rank); // negative from the end
uint32_t aten_dim_arg(aten_call *c, uint32_t arg, uint32_t rank);
bool aten_given(const aten_call *c, uint32_t arg);
asp_dtype aten_dtype_or(const aten_call *c, uint32_t arg, asp_dtype standard);

// x as dtype (x itself when it is), of a scalar, expanded to a shape.
asp_val aten_cast(aten_call *c, asp_val x, asp_dtype to);
asp_val aten_scalar(aten_call *c, const aten_arg *a, asp_dtype dtype); // a 0-d tensor
asp_val aten_reshape(aten_call *c, asp_val x, const asp_type *shape);
asp_val aten_slice(aten_call *c, asp_val x, uint32_t dim, asp_size start, asp_size length);
