// Reads a recomputation program from JSON: one object, its "nodes" in the order of the program.
//
//   {"name": "q", "op": "gemm", "bytes": 8, "reads": ["x", "w"], "time_ps": 40, "block": 0}
//   {"op": "attention", "reads": ["q", "k", "v"], "results": [{"name": "o", "bytes": 8}, ...]}
//   {"name": "x", "op": "input", "bytes": 8, "flags": ["static"]}
//
// A node that is read before it stands is refused: as a cycle where it is one.
// O(nodes + reads).  Neighbours: remat_json.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "flow/remat_json.h"

#include "base/json.h"
#include "flow/maxflow.h"

#define MOST_NODES 4000000u
#define MOST_RESULTS 64u
#define MOST_BYTES (INT64_C(1) << 48)
#define MOST_TIME (INT64_C(1) << 52) // ps: more than an hour

static const char *const class_names[] = {
    [ASP_REMAT_POINTWISE] = "pointwise", [ASP_REMAT_VIEW] = "view",
    [ASP_REMAT_REDUCTION] = "reduction", [ASP_REMAT_GEMM] = "gemm",
    [ASP_REMAT_ATTENTION] = "attention", [ASP_REMAT_COLLECTIVE] = "collective",
    [ASP_REMAT_RANDOM] = "random",       [ASP_REMAT_CONCAT] = "concat",
    [ASP_REMAT_PICK] = "pick",           [ASP_REMAT_OTHER] = "other",
};

static const struct {
    const char *name;
    uint32_t flag;
} flag_names[] = {{"static", ASP_REMAT_STATIC},
                  {"trained", ASP_REMAT_TRAINED},
                  {"tangent", ASP_REMAT_TANGENT},
                  {"output", ASP_REMAT_FORWARD_OUTPUT},
                  {"gradient", ASP_REMAT_BACKWARD_OUTPUT},
                  {"tuple", ASP_REMAT_TUPLE},
                  {"size", ASP_REMAT_SIZE},
                  {"sequence", ASP_REMAT_SEQUENCE},
                  {"save", ASP_REMAT_MUST_SAVE},
                  {"recompute", ASP_REMAT_MUST_RECOMPUTE}};

typedef struct reader {
    asp_ctx *cx;
    asp_arena *a;
    const char *file;
    json_t *nodes;
    asp_map names;  // of values
    uint32_t *at;   // by name: its value
    uint32_t *node; // by name: the node that makes it
    ASP_VEC(asp_remat_value) values;
    ASP_VEC(asp_remat_op) ops;
    ASP_VEC(uint32_t) reads;
    ASP_VEC(const char *) value_names;
    ASP_VEC(int64_t) keep, redo;
    uint32_t n_inputs;
} reader;

// ---- names ---------------------------------------------------------------------------------

static asp_status add_name(reader *r, const json_t *o, uint32_t node)
{
    const char *name;
    bool added;
    ASP_TRY(asp_json_str(r->cx, r->file, o, "name", NULL, &name));
    asp_map_add(&r->names, name, strlen(name), &added);
    if (!added) return asp_fail(r->cx, ASP_ERR_INPUT, "%s: two nodes are called %s", r->file, name);
    r->node[r->names.n - 1] = node;
    return ASP_OK;
}

static asp_status add_names(reader *r)
{
    size_t i;
    json_t *o, *x;
    json_array_foreach(r->nodes, i, o)
    {
        json_t *results = json_object_get(o, "results");
        size_t k, n = results ? json_array_size(results) : 1;
        if (!json_is_object(o) || (results && (!json_is_array(results) || n > MOST_RESULTS)))
            return asp_fail(r->cx, ASP_ERR_INPUT,
                            "%s: node %zu is no object, or its results are no list of at most %u",
                            r->file, i, MOST_RESULTS);
        if (!results) {
            ASP_TRY(add_name(r, o, (uint32_t)i));
            continue;
        }
        json_array_foreach(results, k, x)
        {
            if (!json_is_object(x))
                return asp_fail(r->cx, ASP_ERR_INPUT, "%s: a result of node %zu is no object",
                                r->file, i);
            ASP_TRY(add_name(r, x, (uint32_t)i));
        }
    }
    return ASP_OK;
}

static asp_status find_name(const reader *r, const json_t *x, uint32_t *out_name)
{
    const char *name = json_string_value(x);
    if (!name) return asp_fail(r->cx, ASP_ERR_INPUT, "%s: reads is a list of names", r->file);
    *out_name = asp_map_find(&r->names, name, strlen(name));
    if (*out_name == UINT32_MAX)
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: no node is called %s", r->file, name);
    return ASP_OK;
}

// Does node `from` read, perhaps through others, what node `to` makes?
static bool depends(const reader *r, uint32_t from, uint32_t to)
{
    uint32_t n_nodes = (uint32_t)json_array_size(r->nodes), depth = 0;
    bool *seen = ASP_NEW_ARRAY(r->a, bool, n_nodes);
    uint32_t *stack = ASP_NEW_ARRAY(r->a, uint32_t, n_nodes);
    stack[depth++] = from;
    seen[from] = true;
    while (depth > 0) {
        size_t k;
        json_t *x, *reads = json_object_get(json_array_get(r->nodes, stack[--depth]), "reads");
        json_array_foreach(reads, k, x)
        {
            const char *name = json_string_value(x);
            uint32_t at = name ? asp_map_find(&r->names, name, strlen(name)) : UINT32_MAX;
            if (at == UINT32_MAX) continue;
            if (r->node[at] == to) return true;
            if (!seen[r->node[at]]) stack[depth++] = r->node[at];
            seen[r->node[at]] = true;
        }
    }
    return false;
}

static asp_status refuse_order(const reader *r, uint32_t node, const char *name)
{
    uint32_t at = asp_map_find(&r->names, name, strlen(name));
    if (r->node[at] == node || depends(r, r->node[at], node))
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: node %u and %s read each other: a program has no cycle", r->file, node,
                        name);
    return asp_fail(r->cx, ASP_ERR_INPUT,
                    "%s: node %u reads %s, which is made later; nodes stand in the order in which "
                    "they run",
                    r->file, node, name);
}

// ---- values --------------------------------------------------------------------------------

static const char *name_of(const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    return name ? name : "a node without a name";
}

static asp_status read_bounded(const reader *r, const json_t *o, const char *key, int64_t most,
                               int64_t *out)
{
    const int64_t zero = 0;
    ASP_TRY(asp_json_i64(r->cx, r->file, o, key, &zero, out));
    if (*out >= 0 && *out <= most) return ASP_OK;
    return asp_fail(r->cx, ASP_ERR_INPUT, "%s: %s of %s is %lld; 0 to %lld are possible", r->file,
                    key, name_of(o), (long long)*out, (long long)most);
}

// A price of the bare cut: a number, or "inf".
static asp_status read_price(const reader *r, const json_t *o, const char *key, int64_t standard,
                             int64_t *out)
{
    json_t *x = json_object_get(o, key);
    *out = standard;
    if (!x) return ASP_OK;
    if (json_is_string(x) && strcmp(json_string_value(x), "inf") == 0) {
        *out = ASP_FLOW_INF;
        return ASP_OK;
    }
    return read_bounded(r, o, key, INT64_C(1) << 56, out);
}

static asp_status read_flags(const reader *r, const json_t *o, uint32_t *out_flags)
{
    size_t i;
    json_t *x, *list = json_object_get(o, "flags");
    *out_flags = 0;
    json_array_foreach(list, i, x)
    {
        const char *name = json_string_value(x);
        size_t k = 0;
        while (name && k < ASP_COUNT_OF(flag_names) && strcmp(flag_names[k].name, name) != 0) k++;
        if (!name || k == ASP_COUNT_OF(flag_names))
            return asp_fail(r->cx, ASP_ERR_INPUT, "%s: there is no flag %s", r->file,
                            name ? name : "of that kind");
        *out_flags |= flag_names[k].flag;
    }
    return ASP_OK;
}

static asp_status read_root(const reader *r, const json_t *o, uint32_t *out_root)
{
    uint32_t name;
    json_t *alias = json_object_get(o, "alias");
    if (!alias) return ASP_OK;
    ASP_TRY(find_name(r, alias, &name));
    if (r->at[name] == UINT32_MAX)
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: %s shares the storage of %s, which is made later", r->file, name_of(o),
                        json_string_value(alias));
    *out_root = r->values.at[r->at[name]].root;
    return ASP_OK;
}

static asp_status add_value(reader *r, const json_t *o, bool is_input, int64_t time)
{
    asp_remat_value v = {.root = r->values.n};
    const char *name;
    int64_t keep, redo;
    ASP_TRY(asp_json_str(r->cx, r->file, o, "name", NULL, &name));
    ASP_TRY(read_bounded(r, o, "bytes", MOST_BYTES, &v.bytes));
    ASP_TRY(read_flags(r, o, &v.flags));
    ASP_TRY(read_root(r, o, &v.root));
    if (is_input && v.flags & ASP_REMAT_MUST_RECOMPUTE)
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: %s is an input and cannot be computed again, as its flag recompute "
                        "wants; drop the flag",
                        r->file, name);
    ASP_TRY(read_price(r, o, "keep", v.flags & ASP_REMAT_STATIC ? 0 : v.bytes, &keep));
    ASP_TRY(read_price(r, o, "again", is_input ? ASP_FLOW_INF : time, &redo));
    r->at[asp_map_find(&r->names, name, strlen(name))] = r->values.n;
    ASP_PUSH(r->a, &r->values, v);
    ASP_PUSH(r->a, &r->value_names, asp_copy_str(r->a, name));
    ASP_PUSH(r->a, &r->keep, keep);
    ASP_PUSH(r->a, &r->redo, redo);
    return ASP_OK;
}

// ---- ops -----------------------------------------------------------------------------------

static asp_status read_class(const reader *r, const json_t *o, asp_remat_class *out)
{
    const char *name;
    ASP_TRY(asp_json_str(r->cx, r->file, o, "op", NULL, &name));
    for (size_t i = 0; i < ASP_COUNT_OF(class_names); i++) {
        if (strcmp(class_names[i], name) != 0) continue;
        *out = (asp_remat_class)i;
        return ASP_OK;
    }
    return asp_fail(r->cx, ASP_ERR_INPUT,
                    "%s: there is no op '%.40s'; input, pointwise, view, reduction, gemm, "
                    "attention, collective, random, concat, pick and other are known",
                    r->file, name);
}

static asp_status read_operands(reader *r, const json_t *o, uint32_t node, asp_remat_op *op)
{
    size_t i;
    json_t *x;
    op->first_read = r->reads.n;
    json_t *reads = json_object_get(o, "reads");
    json_array_foreach(reads, i, x)
    {
        uint32_t name;
        ASP_TRY(find_name(r, x, &name));
        if (r->at[name] == UINT32_MAX) return refuse_order(r, node, json_string_value(x));
        ASP_PUSH(r->a, &r->reads, r->at[name]);
    }
    op->n_reads = r->reads.n - op->first_read;
    return ASP_OK;
}

static asp_status read_op(reader *r, const json_t *o, uint32_t node)
{
    const int64_t no_block = -1;
    const bool no = false;
    asp_remat_op op = {.first_result = r->values.n};
    int64_t block, named;
    size_t i;
    json_t *x, *results = json_object_get(o, "results");
    ASP_TRY(read_class(r, o, &op.kind));
    bool cheap = op.kind == ASP_REMAT_POINTWISE || op.kind == ASP_REMAT_VIEW ||
                 op.kind == ASP_REMAT_REDUCTION || op.kind == ASP_REMAT_PICK;
    bool heavy = op.kind == ASP_REMAT_GEMM || op.kind == ASP_REMAT_ATTENTION;
    ASP_TRY(asp_json_bool(r->cx, r->file, o, "backward", &no, &op.backward));
    ASP_TRY(asp_json_bool(r->cx, r->file, o, "fusible", &cheap, &op.fusible));
    ASP_TRY(asp_json_bool(r->cx, r->file, o, "absorbs", &no, &op.absorbs));
    ASP_TRY(asp_json_bool(r->cx, r->file, o, "intensive", &heavy, &op.intensive));
    ASP_TRY(asp_json_i64(r->cx, r->file, o, "block", &no_block, &block));
    ASP_TRY(read_bounded(r, o, "time_ps", MOST_TIME, &op.time_ps));
    if (!json_object_get(o, "time_ps")) op.time_ps = -1; // by its FLOPs and bytes
    ASP_TRY(read_bounded(r, o, "flops", INT64_MAX, &op.flops));
    ASP_TRY(read_bounded(r, o, "scratch", MOST_BYTES, &op.scratch));
    ASP_TRY(read_bounded(r, o, "named", INT32_MAX, &named));
    op.block = (int32_t)asp_max(-1, asp_min(block, INT32_MAX));
    op.n_named = (uint32_t)named;
    ASP_TRY(read_operands(r, o, node, &op));
    const int64_t time = asp_max(0, op.time_ps);
    if (!results) ASP_TRY(add_value(r, o, false, time));
    json_array_foreach(results, i, x) ASP_TRY(add_value(r, x, false, time));
    op.n_results = r->values.n - op.first_result;
    ASP_PUSH(r->a, &r->ops, op);
    return ASP_OK;
}

static bool is_input(const json_t *o)
{
    const char *op = json_string_value(json_object_get(o, "op"));
    return op && strcmp(op, "input") == 0;
}

static asp_status read_nodes(reader *r)
{
    size_t i;
    json_t *o;
    json_array_foreach(r->nodes, i, o)
    {
        if (!is_input(o)) continue;
        if (json_object_get(o, "results") || json_object_get(o, "reads"))
            return asp_fail(r->cx, ASP_ERR_INPUT, "%s: node %zu is an input and reads nothing",
                            r->file, i);
        ASP_TRY(add_value(r, o, true, 0));
        r->n_inputs++;
    }
    json_array_foreach(r->nodes, i, o) if (!is_input(o)) ASP_TRY(read_op(r, o, (uint32_t)i));
    return ASP_OK;
}

// ---- the file ------------------------------------------------------------------------------

static asp_status read_wishes(const reader *r, const json_t *o, asp_remat_file *f)
{
    const int64_t zero = 0;
    const double none = -1;
    const bool no = false;
    const char *policy;
    ASP_TRY(asp_json_str(r->cx, r->file, o, "policy", "", &policy));
    ASP_TRY(asp_json_i64(r->cx, r->file, o, "budget", &zero, &f->budget));
    ASP_TRY(asp_json_f64(r->cx, r->file, o, "fraction", &none, &f->fraction));
    ASP_TRY(asp_json_bool(r->cx, r->file, o, "fused", &no, &f->fused));
    ASP_TRY(asp_json_bool(r->cx, r->file, o, "sideways", &no, &f->sideways));
    if (f->budget < 0)
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: budget is %lld bytes", r->file,
                        (long long)f->budget);
    f->policy = *policy ? asp_copy_str(r->a, policy) : NULL;
    return ASP_OK;
}

static asp_status read_rate(const reader *r, const json_t *o, const char *key, double *out)
{
    ASP_TRY(asp_json_f64(r->cx, r->file, o, key, NULL, out));
    if (*out >= 1 && *out <= 1e18) return ASP_OK;
    return asp_fail(r->cx, ASP_ERR_INPUT, "%s: the rate %s is %g; 1 to 1e18 are possible", r->file,
                    key, *out);
}

static asp_status read_times(const reader *r, const json_t *o, const asp_remat_program *p)
{
    const json_t *rates = json_object_get(o, "rates");
    asp_remat_rates x;
    if (rates) {
        ASP_TRY(read_rate(r, rates, "gemm", &x.gemm));
        ASP_TRY(read_rate(r, rates, "attention", &x.attention));
        ASP_TRY(read_rate(r, rates, "memory", &x.memory));
        ASP_TRY(read_rate(r, rates, "link", &x.link));
    }
    asp_remat_fill_times(p, r->ops.at, rates ? &x : NULL);
    return ASP_OK;
}

static asp_status read_file(reader *r, json_t *o, asp_remat_file *out)
{
    r->nodes = json_object_get(o, "nodes");
    size_t n = json_array_size(r->nodes), room = 0, i;
    json_t *x;
    if (!json_is_array(r->nodes) || n == 0 || n > MOST_NODES)
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: nodes is no list of 1 to %u nodes", r->file,
                        MOST_NODES);
    json_array_foreach(r->nodes, i, x)
    {
        json_t *results = json_object_get(x, "results");
        room += results ? json_array_size(results) : 1;
    }
    r->at = ASP_NEW_ARRAY(r->a, uint32_t, room);
    r->node = ASP_NEW_ARRAY(r->a, uint32_t, room);
    for (i = 0; i < room; i++) r->at[i] = UINT32_MAX;
    asp_map_init(&r->names, r->a);
    ASP_TRY(add_names(r));
    ASP_TRY(read_nodes(r));
    ASP_TRY(read_wishes(r, o, out));
    out->program = (asp_remat_program){.values = r->values.at,
                                       .n_values = r->values.n,
                                       .n_inputs = r->n_inputs,
                                       .ops = r->ops.at,
                                       .n_ops = r->ops.n,
                                       .reads = r->reads.at,
                                       .n_reads = r->reads.n,
                                       .names = r->value_names.at};
    out->keep = r->keep.at;
    out->redo = r->redo.at;
    return read_times(r, o, &out->program);
}

asp_status asp_remat_parse(asp_ctx *cx, asp_arena *a, const char *file, const char *text,
                           size_t bytes, asp_remat_file *out_file)
{
    reader r = {.cx = cx, .a = a, .file = file};
    asp_remat_file f = {0};
    json_t *o;
    ASP_TRY(asp_json_parse(cx, file, text, bytes, &o));
    asp_status s = read_file(&r, o, &f);
    json_decref(o);
    if (s == ASP_OK) *out_file = f;
    return s;
}
