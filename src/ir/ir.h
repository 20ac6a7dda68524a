// The graph: symbolic sizes, types, ops and their attributes, nodes and values, the text form.
// Neighbours: op.def and attr.def (the tables), op/op.h (what each op means), docs/ir.md (the
// language). SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"
#include "base/dtype.h"

#define ASP_MAX_RANKS 65536 // that a graph may be split for

typedef struct asp_graph asp_graph;

// ---- sizes -------------------------------------------------------------------------------------

// An exact expression over named symbols: a sum of terms, each a rational number times powers of
// symbols and of ceil(a/b). Interned per graph: two sizes are equal expressions iff their handles
// are equal.  The zero handle is the number 0.
typedef struct asp_size {
    uint32_t i;
} asp_size;

// What the symbols stand for when a plan is made.
typedef struct asp_env {
    struct {
        const char *symbol; // borrowed
        int64_t value;
    } at[8];
    int n;
} asp_env;

// Adds the symbols of more that env does not have, as many as it can hold.
void asp_env_fill(asp_env *env, const asp_env *more);

asp_size asp_size_num(asp_graph *g, int64_t n);
asp_size asp_size_sym(asp_graph *g, const char *name);
asp_size asp_size_add(asp_graph *g, asp_size a, asp_size b);
asp_size asp_size_sub(asp_graph *g, asp_size a, asp_size b);
asp_size asp_size_mul(asp_graph *g, asp_size a, asp_size b);
// a / b where b is one term (a number, symbols).  Exactness is checked when it is evaluated.  Fails
// on 0 and on sums.
asp_status asp_size_div(asp_graph *g, asp_size a, asp_size b, asp_size *out_size);
// Is b a times an expression, as expressions?  B divides B*S and 4 divides 8; 2 does not divide S,
// but B divides B*S/2.
bool asp_size_divides(asp_graph *g, asp_size a, asp_size b, asp_size *out_quotient);
asp_size asp_size_ceil_div(asp_graph *g, asp_size a, asp_size b);
bool asp_size_is_num(const asp_graph *g, asp_size s, int64_t *out_n); // true for a plain integer
static inline bool asp_size_equal(asp_size a, asp_size b) { return a.i == b.i; }
// Names of the symbols of a graph's sizes, at most `most`, in the order they were met; borrowed.
int asp_size_symbols(const asp_graph *g, const char **out_names, int most);
bool asp_size_mentions(const asp_graph *g, asp_size s, const char *symbol);
// Fails on overflow, on a symbol without a value and on a division that leaves a rest, naming the
// expression and the values.
asp_status asp_size_eval(const asp_graph *g, asp_size s, const asp_env *env, int64_t *out_value);
void asp_size_put(asp_text *t, const asp_graph *g, asp_size s);
const char *asp_size_str(asp_graph *g, asp_size s); // on the graph's arena
// Numbers up to 2^53 and no overflow: what is printed is read again.
bool asp_size_fits_text(const asp_graph *g, asp_size s);

// ---- types -------------------------------------------------------------------------------------

typedef struct asp_type {
    asp_dtype dtype;
    uint32_t rank;
    asp_size dim[ASP_MAX_RANK]; // outermost first
} asp_type;

bool asp_type_equal(const asp_type *a, const asp_type *b);
asp_size asp_type_count(asp_graph *g, const asp_type *t);  // number of elements
const char *asp_type_str(asp_graph *g, const asp_type *t); // "f32[B, S, 512]"

// ---- ops and attributes ------------------------------------------------------------------------

typedef enum asp_op_kind { ASP_MODULE, ASP_PRIMITIVE, ASP_TERMINAL } asp_op_kind;

typedef enum asp_op_flag {
    ASP_DECLARED = 1,   // the result type is given, not inferred
    ASP_POINTWISE = 2,  // element by element, operands broadcast from the right
    ASP_ALIAS = 4,      // the result is the operand's memory
    ASP_COLLECTIVE = 8, // ranks meet here
    ASP_INSERTED = 16,  // only passes make it
    ASP_EARLY = 32      // MODULE: lowered before placement, so that counts are of whole tensors
} asp_op_flag;

// How an op's time is priced (cost/).
typedef enum asp_cost_class {
    ASP_COST_FREE,
    ASP_COST_STREAM, // bytes read and written
    ASP_COST_GEMM,
    ASP_COST_SDPA,
    ASP_COST_SDPA_GRAD,
    ASP_COST_LINK // bytes over the link
} asp_cost_class;

typedef enum asp_op {
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) ASP_OP_##name,
#include "ir/op.def"
#undef OP
} asp_op;
enum {
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) +1
    ASP_OP_COUNT = 0
#include "ir/op.def"
#undef OP
};

typedef struct asp_ints {
    uint32_t n;
    int64_t at[ASP_MAX_RANK];
} asp_ints;

typedef struct asp_sizes {
    uint32_t n;
    asp_size at[ASP_MAX_RANK];
} asp_sizes;

// The C type of each kind of attribute field.
#define ASP_KINDS(X)     \
    X(i64, int64_t)      \
    X(f64, double)       \
    X(bool, bool)        \
    X(str, const char *) \
    X(dtype, asp_dtype)  \
    X(size, asp_size)    \
    X(sizes, asp_sizes)  \
    X(ints, asp_ints)

typedef enum asp_kind {
#define ASP_X(kind, ctype) ASP_KIND_##kind,
    ASP_KINDS(ASP_X)
#undef ASP_X
} asp_kind;

#define ASP_CTYPE_i64 int64_t
#define ASP_CTYPE_f64 double
#define ASP_CTYPE_bool bool
#define ASP_CTYPE_str const char *
#define ASP_CTYPE_dtype asp_dtype
#define ASP_CTYPE_size asp_size
#define ASP_CTYPE_sizes asp_sizes
#define ASP_CTYPE_ints asp_ints

// asp_norm_attr { double eps; }, ... from attr.def.  A struct without fields still has a size in C:
// one unused byte.
#define ATTRS(name, ...)               \
    typedef struct asp_##name##_attr { \
        char unused_;                  \
        __VA_ARGS__                    \
    } asp_##name##_attr;
#define FIELD(kind, name, ...) ASP_CTYPE_##kind name;
#include "ir/attr.def"
#undef ATTRS
#undef FIELD

typedef struct asp_field {
    const char *name;
    asp_kind kind;
    size_t offset; // in the attribute struct, and in attr_default
} asp_field;

typedef struct asp_op_info {
    const char *name;
    asp_op_kind kind;
    uint32_t min_in, max_in;
    uint32_t flags;
    asp_cost_class cost;
    const char *rule; // NULL: none, or given by a function
    bool rule_fn;
    size_t attr_bytes;
    const asp_field *(*fields)(void); // ends with a NULL name
    const void *attr_default;         // every field at its default
    const char *attr_name;
    const char *doc;
} asp_op_info;

extern const asp_op_info asp_ops[]; // ASP_OP_COUNT rows
bool asp_op_find(const char *name, size_t n, asp_op *out_op);
static inline bool asp_op_has(asp_op op, asp_op_flag flag)
{
    return (asp_ops[op].flags & flag) != 0;
}
bool asp_attr_equal(asp_op op, const void *a, const void *b); // of one graph

// ---- nodes and values --------------------------------------------------------------------------

// Handles into the graph's dense arrays; 0 is none.
typedef struct asp_val {
    uint32_t i;
} asp_val;
typedef struct asp_node {
    uint32_t i;
} asp_node;

typedef struct asp_node_info {
    asp_op op;
    uint32_t n_in, n_out;
    asp_val *in;      // owned by the graph's arena
    asp_val first;    // results are first.i .. first.i + n_out - 1
    const void *attr; // the op's attribute struct, never NULL; owned by the graph's arena
    const char *loc;  // where the user wrote it: "layers.3.attn"; "" when unknown
    uint32_t group;   // nodes of one row program share it (pass/fuse); 0 = alone
    uint32_t tile;    // nodes that run chunk by chunk together share it (pass/tile); 0 = whole
    asp_node prev, next;
} asp_node_info;

typedef struct asp_val_info {
    asp_node node;
    uint32_t result; // which result of it
    asp_type type;
    const char *name; // unique in the graph, or NULL: printed as a number
} asp_val_info;

typedef struct asp_output {
    asp_val val;
    const char *name; // "loss", or a parameter's name for its gradient; "" allowed
} asp_output;

struct asp_graph {
    asp_ctx *cx;     // borrowed
    asp_arena arena; // owns everything below
    const char *name;
    int64_t ranks;     // 1, or the P that the program was split for
    int64_t tile_rows; // rows of a chunk of what is tiled (pass/tile.h); 0 where nothing is
    asp_env
        examples; // what symbols are where nobody says otherwise (an imported graph's); not text
    struct asp_size_table *sizes;
    ASP_VEC(asp_node_info) nodes; // 0 unused; removed nodes have op input and no place in the list
    ASP_VEC(asp_val_info) vals;   // 0 unused
    ASP_VEC(asp_output) outputs;
    asp_map names; // of values
    asp_node head, tail;
    uint32_t n_nodes; // in the list
};

// The graph is owned by the caller.  Small allocations leave through asp_guard.
asp_graph *asp_graph_create(asp_ctx *cx, const char *name);
void asp_graph_destroy(asp_graph *g); // NULL is allowed
asp_graph *asp_graph_clone(const asp_graph *g);

static inline asp_node_info *asp_node_at(const asp_graph *g, asp_node n)
{
    ASP_ASSERT(n.i > 0 && n.i < g->nodes.n);
    return &g->nodes.at[n.i];
}
static inline asp_val_info *asp_val_at(const asp_graph *g, asp_val v)
{
    ASP_ASSERT(v.i > 0 && v.i < g->vals.n);
    return &g->vals.at[v.i];
}
static inline const asp_type *asp_val_type(const asp_graph *g, asp_val v)
{
    return &asp_val_at(g, v)->type;
}
static inline asp_node_info *asp_val_node(const asp_graph *g, asp_val v)
{
    return asp_node_at(g, asp_val_at(g, v)->node);
}
// The values of a node's attributes that are sizes, in the order of their fields; on the arena.
asp_status asp_node_sizes(asp_arena *a, const asp_graph *g, asp_node n, const asp_env *env,
                          const int64_t **out_sizes);
static inline asp_val asp_node_result(const asp_graph *g, asp_node n, uint32_t i)
{
    ASP_ASSERT(i < asp_node_at(g, n)->n_out);
    return (asp_val){asp_node_at(g, n)->first.i + i};
}

#define ASP_FOR_NODES(g, n) for (asp_node n = (g)->head; n.i; n = asp_node_at(g, n)->next)
#define ASP_FOR_NODES_REVERSE(g, n) for (asp_node n = (g)->tail; n.i; n = asp_node_at(g, n)->prev)

// All edits go through these.  attr is copied (strings too); NULL means defaults.  before = none
// appends at the end.
asp_node asp_graph_insert(asp_graph *g, asp_node before, asp_op op, const void *attr, uint32_t n_in,
                          const asp_val *in, uint32_t n_out, const asp_type *types,
                          const char *loc);
void asp_graph_remove(asp_graph *g, asp_node n); // its results must have no readers left
void asp_graph_set_input(asp_graph *g, asp_node n, uint32_t i, asp_val v);
void asp_graph_set_attr(asp_graph *g, asp_node n, const void *attr);
void asp_graph_set_op(asp_graph *g, asp_node n, asp_op op); // one with the same kind of attributes
void asp_graph_set_type(asp_graph *g, asp_val v, const asp_type *type);
void asp_graph_replace_uses(asp_graph *g, asp_val old,
                            asp_val by); // every reader and output; O(nodes)
void asp_graph_move_before(asp_graph *g, asp_node n, asp_node before);
void asp_graph_add_output(asp_graph *g, asp_val v, const char *name);
void asp_graph_name(asp_graph *g, asp_val v,
                    const char *name); // made unique by a suffix when taken
void asp_graph_move_name(asp_graph *g, asp_val from, asp_val to); // from has none then
asp_val asp_graph_find(const asp_graph *g, const char *name);     // none when absent
const char *asp_val_str(asp_graph *g, asp_val v);                 // "%x" or "%17", for messages
const char *asp_node_str(asp_graph *g, asp_node n); // "rms_norm (layers.3.norm)", for messages

// uses[v.i] = how many operands and outputs read v; on the arena given.
uint32_t *asp_graph_count_uses(const asp_graph *g, asp_arena *a);
uint64_t asp_graph_hash(const asp_graph *g); // of the text form
// Block a location belongs to: the number in "layers.3.attn" -> 3; -1 where there is none.
int64_t asp_loc_block(const char *loc);

// ---- text --------------------------------------------------------------------------------------

void asp_graph_print(const asp_graph *g, asp_text *t);
// file is for messages: "file:line:column: what".
asp_status asp_graph_parse(asp_ctx *cx, const char *file, const char *text, size_t n,
                           asp_graph **out_graph);
// Pieces of the text form, for graphs built by hand: "f32[B, S/2, 512]"; "scale = 0.5, causal =
// true"
// ("": defaults), on the graph's arena.  what: stands for the file in messages.
asp_status asp_type_parse(asp_graph *g, const char *what, const char *text, asp_type *out_type);
asp_status asp_attr_parse(asp_graph *g, asp_op op, const char *text, const void **out_attr);
// At most max letters, digits, '_' and '.', the first no digit: reads back as a name.
bool asp_is_name(const char *s, size_t max);
void asp_graph_print_dot(const asp_graph *g, asp_text *t);
// Structure: operands defined before use, list and arrays agree, operand counts, dtype and rank
// bounds.  Reports every violation.
asp_status asp_graph_verify(asp_graph *g);
