// Exported PyTorch graphs: JSON (one node an ATen call) to a module-level graph.
//
//   {"name": "v9", "op": "aten.neg.default", "args": [{"ref": "v8"}], "out": {...}, "layer": ...}
//     row of aten.def:  ATEN("aten.neg.default", 0, unary, neg, "x:t")
//     %v9 : f64[2, S, 8] = neg %v8 @ "layers.0.self_attn at modeling_llama.py:165"
//
// What each node gives is compared with the type that the file declares, sizes as expressions.
// Hostile input: nothing of the file is believed; every message names file, node, op and where the
// user wrote it. Neighbours: front.h (contract), aten.def (the rows), aten_args.c (arguments),
// load.c (who calls). SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

#include <ctype.h>

#define MAX_NAME 200

const aten_row aten_rows[] = {
#define ATEN(overload, flags, fn, op, params) {overload, flags, aten_##fn, ASP_OP_##op, params},
#include "front/aten.def"
#undef ATEN
    {0}};
const uint32_t aten_row_count = ASP_COUNT_OF(aten_rows) - 1;

const aten_row *aten_find(const char *overload)
{
    uint32_t low = 0, high = aten_row_count; // the rows are in order: tests/unit/front/aten_test.c
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = strcmp(overload, aten_rows[middle].overload);
        if (order == 0) return &aten_rows[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void asp_front_put_aten(asp_text *t)
{
    asp_put(t, "| ATen overload | becomes |\n| --- | --- |\n");
    for (const aten_row *r = aten_rows; r->overload; r++)
        asp_put(t, "| `%s` | %s |\n", r->overload, asp_ops[r->op].name);
}

// ---- names -------------------------------------------------------------------------------------

// What graph text can hold as a value's name.
static bool is_name(const char *s)
{
    size_t n = strlen(s);
    if (n == 0 || n > MAX_NAME || isdigit((unsigned char)*s)) return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_' && *s != '.') return false;
    return true;
}

static asp_status add_name(aten_import *m, const char *name, aten_value value)
{
    bool added;
    asp_map_add(&m->names, name, strlen(name), &added);
    if (!added) return asp_fail(m->cx, ASP_ERR_INPUT, "%s is defined twice", name);
    ASP_PUSH(&m->arena, &m->values, value);
    return ASP_OK;
}

static asp_status read_name(aten_import *m, const json_t *o, const char **out)
{
    if (!json_is_object(o)) return asp_fail(m->cx, ASP_ERR_INPUT, "must be an object");
    ASP_TRY(asp_json_str(m->cx, m->file, o, "name", NULL, out));
    if (is_name(*out)) return ASP_OK;
    return asp_fail(m->cx, ASP_ERR_INPUT,
                    "\"%.80s\" is no name: letters, digits, '_' and '.', at most %d, no digit "
                    "first",
                    *out, MAX_NAME);
}

static uint32_t new_memory(aten_import *m, const char *changed_by)
{
    ASP_PUSH(&m->arena, &m->memories, (aten_memory){.changed_by = changed_by});
    return m->memories.n - 1;
}

// ---- symbols and inputs ------------------------------------------------------------------------

static asp_status read_symbols(aten_import *m, const json_t *symbols)
{
    if (!json_is_object(symbols))
        return asp_fail(m->cx, ASP_ERR_INPUT, "\"symbols\" must be an object: {\"S\": 24}");
    for (void *i = json_object_iter((json_t *)(uintptr_t)symbols); i;
         i = json_object_iter_next((json_t *)(uintptr_t)symbols, i)) {
        const char *name = json_object_iter_key(i);
        const json_t *v = json_object_iter_value(i);
        if (!is_name(name) || strchr(name, '.') || strlen(name) > 31 ||
            strcmp(name, "overflow") == 0 || strcmp(name, "ceil") == 0 ||
            strcmp(name, "float") == 0)
            return asp_fail(m->cx, ASP_ERR_INPUT, "\"%.40s\" is no symbol for a size", name);
        if (!json_is_integer(v) || json_integer_value(v) < 1)
            return asp_fail(m->cx, ASP_ERR_INPUT, "the symbol %s needs a positive example value",
                            name);
        if (m->g->examples.n == (int)ASP_COUNT_OF(m->g->examples.at))
            return asp_fail(m->cx, ASP_ERR_UNSUPPORTED, "more than %zu symbols",
                            ASP_COUNT_OF(m->g->examples.at));
        m->g->examples.at[m->g->examples.n].symbol = asp_copy_str(&m->g->arena, name);
        m->g->examples.at[m->g->examples.n++].value = json_integer_value(v);
    }
    return ASP_OK;
}

static const struct {
    const char *theirs, *ours;
} roles[] = {{"input_ids", "tokens"},     {"labels", "labels"},     {"positions", "positions"},
             {"padding_mask", "padding"}, {"segments", "segments"}, {"buffer", "buffer"},
             {"other", "other"}};

static const char *role_of(const char *theirs)
{
    for (size_t i = 0; i < ASP_COUNT_OF(roles); i++)
        if (strcmp(roles[i].theirs, theirs) == 0) return roles[i].ours;
    return NULL;
}

static asp_status read_input(aten_import *m, const json_t *o)
{
    const char *name, *role;
    asp_type type;
    asp_val v;
    ASP_TRY(read_name(m, o, &name));
    ASP_TRY(asp_json_str(m->cx, m->file, o, "role", NULL, &role));
    ASP_TRY_NOTE(m->cx, aten_type(m, o, &type), "%s", name);
    m->b.loc = "";
    if (strcmp(role, "param") == 0) {
        bool vector = type.rank == 1;
        asp_param_attr a = {
            .name = name, .init = vector ? "ones" : "normal", .std = vector ? 0 : 0.02};
        if (!asp_dtypes[type.dtype].is_float)
            return asp_fail(m->cx, ASP_ERR_UNSUPPORTED, "%s: a parameter of whole numbers", name);
        v = asp_build_declared(&m->b, ASP_OP_param, &a, &type);
    } else {
        asp_input_attr a = {.name = name, .role = role_of(role)};
        if (!a.role)
            return asp_fail(m->cx, ASP_ERR_INPUT,
                            "%s: role \"%.40s\" is none of param, buffer, input_ids, labels, "
                            "positions, padding_mask, segments, other",
                            name, role);
        v = asp_build_declared(&m->b, ASP_OP_input, &a, &type);
    }
    ASP_TRY_NOTE(m->cx, m->b.status, "%s", name);
    asp_graph_name(m->g, v, name);
    asp_val *at = asp_copy_bytes(&m->arena, &v, sizeof v);
    return add_name(m, name, (aten_value){.at = at, .n = 1, .memory = new_memory(m, NULL)});
}

// ---- nodes -------------------------------------------------------------------------------------

// "layers.3.mlp at modeling_llama.py:165": the module path, then the user's file and line.
static const char *location(aten_import *m, const json_t *o)
{
    const char *layer = json_string_value(json_object_get(o, "layer"));
    const char *line = json_string_value(json_object_get(o, "line"));
    size_t n = 0;
    for (int colons = 0; line && line[n] && n < 100; n++)
        if (line[n] == ':' && ++colons == 2) break;
    return asp_printf(&m->arena, "%.200s%s%.*s", layer ? layer : "",
                      n == 0            ? ""
                      : layer && *layer ? " at "
                                        : "at ",
                      (int)n, line ? line : "");
}

static asp_status read_declared(aten_call *c, const json_t *out)
{
    aten_import *m = c->m;
    c->is_list = json_is_array(out);
    size_t n = c->is_list ? json_array_size(out) : 1;
    if (n < 1 || n > ATEN_MAX_RESULTS)
        return asp_fail(m->cx, ASP_ERR_UNSUPPORTED, "%zu results; 1 to %d are supported", n,
                        ATEN_MAX_RESULTS);
    asp_type *types = ASP_NEW_ARRAY(&m->arena, asp_type, n);
    for (size_t i = 0; i < n; i++)
        ASP_TRY_NOTE(m->cx, aten_type(m, c->is_list ? json_array_get(out, i) : out, &types[i]),
                     "out");
    c->type = types;
    c->n_types = (uint32_t)n;
    return ASP_OK;
}

// The translation must give what the file declares: the importer is checked at every node.
static asp_status check_results(aten_call *c)
{
    aten_import *m = c->m;
    if (c->out.n != c->n_types)
        return asp_fail(m->cx, ASP_ERR_INPUT, "has %u results; the file declares %u", c->out.n,
                        c->n_types);
    for (uint32_t i = 0; i < c->out.n; i++) {
        const asp_type *have = asp_val_type(m->g, c->out.at[i]);
        if (!asp_type_equal(have, &c->type[i]))
            return asp_fail(m->cx, ASP_ERR_INPUT, "result %u is %s; the file declares %s", i,
                            asp_type_str(m->g, have), asp_type_str(m->g, &c->type[i]));
    }
    return ASP_OK;
}

// Nor may sizes on the way to it leave what graph text can hold.
static asp_status check_sizes(aten_import *m, asp_node last)
{
    for (asp_node n = last.i ? asp_node_at(m->g, last)->next : m->g->head; n.i;
         n = asp_node_at(m->g, n)->next)
        for (uint32_t i = 0; i < asp_node_at(m->g, n)->n_out; i++) {
            const asp_type *t = asp_val_type(m->g, asp_node_result(m->g, n, i));
            for (uint32_t d = 0; d < t->rank; d++)
                if (!asp_size_fits_text(m->g, t->dim[d]))
                    return asp_fail(m->cx, ASP_ERR_LIMIT, "a size on the way, %s, is too large",
                                    asp_size_str(m->g, t->dim[d]));
        }
    return ASP_OK;
}

// What the row's flags say of the memory of the results.
static asp_status settle_memory(aten_call *c, const json_t *args, aten_value *value)
{
    aten_import *m = c->m;
    const aten_arg *first = &c->arg[0];
    if (c->row->flags & ATEN_IN_PLACE) {
        const char *target = json_string_value(json_object_get(json_array_get(args, 0), "ref"));
        uint32_t i = target ? asp_map_find(&m->names, target, strlen(target)) : UINT32_MAX;
        if (i == UINT32_MAX) return asp_fail(m->cx, ASP_ERR_INPUT, "changes nothing in place");
        asp_op op = asp_val_node(m->g, m->values.at[i].at[0])->op;
        if (op == ASP_OP_input || op == ASP_OP_param)
            return asp_fail(m->cx, ASP_ERR_UNSUPPORTED,
                            "changes %s, which the program is given, in place", target);
        asp_val *at = asp_copy_bytes(&m->arena, value->at, sizeof *at);
        value->memory = first->memory;
        value->version = ++m->memories.at[first->memory].version;
        m->memories.at[first->memory].changed_by = c->name;
        m->values.at[i] = *value;
        m->values.at[i].at = at;
        return ASP_OK;
    }
    bool view = c->row->flags & ATEN_VIEW && first->kind == ATEN_TENSOR;
    value->apart = value->list && !view;
    value->memory = view ? first->memory : new_memory(m, NULL);
    for (uint32_t i = 1; value->apart && i < value->n; i++) new_memory(m, NULL);
    value->version = m->memories.at[value->memory].version;
    return ASP_OK;
}

// For an edit list each node of the file has nodes of its own: what it passes on is a cast to what
// it is.
static asp_status own_results(aten_call *c, asp_node last)
{
    aten_import *m = c->m;
    for (uint32_t i = 0; m->source && i < c->out.n; i++) {
        asp_val v = c->out.at[i];
        if (asp_val_at(m->g, v)->node.i > last.i) continue;
        asp_cast_attr same = {.to = asp_val_type(m->g, v)->dtype};
        c->out.at[i] = ASP_B1(&m->b, cast, &same, v);
    }
    return m->b.status;
}

static asp_status finish_node(aten_call *c, asp_node last, const json_t *args)
{
    aten_import *m = c->m;
    ASP_TRY(own_results(c, last));
    ASP_TRY(check_results(c));
    for (uint32_t i = 0; i < c->out.n; i++)
        if (!asp_val_at(m->g, c->out.at[i])->name)
            asp_graph_name(m->g, c->out.at[i],
                           c->is_list ? asp_printf(&m->arena, "%s.%u", c->name, i) : c->name);
    aten_value value = {.at = c->out.at, .n = c->out.n, .list = c->is_list};
    ASP_TRY(settle_memory(c, args, &value));
    aten_source_end(m, c->out.at, c->out.n, c->is_list);
    return add_name(m, c->name, value);
}

// An op that is not in the table: its results are given, like inputs.  That it reads nothing which
// would be split is for asp_aten_unknown's caller to see to.
static asp_status take_unknown(aten_call *c, const json_t *args, const json_t *kwargs)
{
    aten_import *m = c->m;
    aten_arg ignored;
    for (size_t i = 0; i < json_array_size(args); i++)
        ASP_TRY(aten_any_argument(c, json_array_get(args, i), &ignored));
    for (void *i = json_object_iter((json_t *)(uintptr_t)kwargs); i;
         i = json_object_iter_next((json_t *)(uintptr_t)kwargs, i))
        ASP_TRY(aten_any_argument(c, json_object_iter_value(i), &ignored));
    for (uint32_t i = 0; i < c->n_types; i++) {
        const char *name = c->is_list ? asp_printf(&m->arena, "%s.%u", c->name, i) : c->name;
        asp_input_attr a = {.name = name, .role = "other"};
        aten_give(c, asp_build_declared(&m->b, ASP_OP_input, &a, &c->type[i]));
    }
    static const aten_row unknown = {.overload = "", .flags = 0, .params = ""};
    c->row = &unknown;
    return m->b.status;
}

// {"op": "getitem", "args": [{"ref": LIST}, INDEX]}
static asp_status read_getitem(aten_import *m, const char *name, const json_t *args)
{
    const char *list = json_string_value(json_object_get(json_array_get(args, 0), "ref"));
    const json_t *index = json_array_get(args, 1);
    uint32_t i = list ? asp_map_find(&m->names, list, strlen(list)) : UINT32_MAX;
    if (i == UINT32_MAX || !m->values.at[i].list || !json_is_integer(index))
        return asp_fail(m->cx, ASP_ERR_INPUT, "picks from a list above by a whole number");
    aten_value v = m->values.at[i];
    if (json_integer_value(index) < 0 || json_integer_value(index) >= v.n)
        return asp_fail(m->cx, ASP_ERR_INPUT, "picks %lld of the %u results of %s",
                        (long long)json_integer_value(index), v.n, list);
    v.at += json_integer_value(index);
    if (v.apart) v.memory += (uint32_t)json_integer_value(index);
    v.n = 1;
    v.list = false;
    aten_source_begin(m, name, "getitem", NULL);
    aten_source_end(m, v.at, 1, false);
    return add_name(m, name, v);
}

static bool has_size_of_data(const char *op)
{
    static const char *const names[] = {
        "nonzero",  "argwhere",           "masked_select", "unique",   "_unique",
        "_unique2", "unique_consecutive", "unique_dim",    "bincount", "_local_scalar_dense",
        "item"};
    if (strcmp(op, "aten.repeat_interleave.Tensor") == 0) return true;
    for (size_t i = 0; i < ASP_COUNT_OF(names); i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(op, "aten.", 5) == 0 && strncmp(op + 5, names[i], n) == 0 && op[5 + n] == '.')
            return true;
    }
    return false;
}

static asp_status translate(aten_import *m, const char *name, const char *op, const json_t *o)
{
    const json_t *args = json_object_get(o, "args"), *kwargs = json_object_get(o, "kwargs");
    if (!json_is_array(args) || (kwargs && !json_is_object(kwargs)))
        return asp_fail(m->cx, ASP_ERR_INPUT, "\"args\" is a list, \"kwargs\" an object");
    if (strcmp(op, "getitem") == 0) return read_getitem(m, name, args);
    aten_call *c = ASP_NEW(&m->arena, aten_call);
    *c = (aten_call){.m = m, .row = aten_find(op), .name = name};
    if (!c->row && !m->source && has_size_of_data(op))
        return asp_fail(m->cx, ASP_ERR_UNSUPPORTED,
                        "how large its result is depends on data, and sizes are known before a "
                        "program runs; keep the whole and use where, or multiply by the mask");
    if (!c->row && !m->source)
        return asp_fail(m->cx, ASP_ERR_UNSUPPORTED,
                        "this op is not supported; `autosp docs aten` lists those that are");
    aten_source_begin(m, name, op, c->row);
    ASP_TRY(read_declared(c, json_object_get(o, "out")));
    asp_node last = m->g->tail;
    if (!c->row)
        ASP_TRY(take_unknown(c, args, kwargs));
    else {
        ASP_TRY(aten_decode(c, args, kwargs));
        c->row->fn(c);
    }
    ASP_TRY(m->b.status);
    ASP_TRY(check_sizes(m, last));
    return finish_node(c, last, args);
}

static asp_status read_node(aten_import *m, const json_t *o)
{
    const char *name, *op;
    ASP_TRY(read_name(m, o, &name));
    ASP_TRY(asp_json_str(m->cx, m->file, o, "op", NULL, &op));
    m->b.loc = location(m, o);
    name = asp_copy_str(&m->arena, name);
    asp_status s = translate(m, name, op, o);
    if (s >= 0) return s;
    return asp_note(m->cx, s, "node %s, %.100s%s%s%s", name, op, *m->b.loc ? " (" : "", m->b.loc,
                    *m->b.loc ? ")" : "");
}

// ---- the file ----------------------------------------------------------------------------------

static asp_status find_output(aten_import *m, const json_t *outputs, size_t i, const char **name,
                              asp_val *out)
{
    *name = json_string_value(json_object_get(json_array_get(outputs, i), "ref"));
    uint32_t at = *name ? asp_map_find(&m->names, *name, strlen(*name)) : UINT32_MAX;
    if (at == UINT32_MAX || m->values.at[at].list)
        return asp_fail(m->cx, ASP_ERR_INPUT, "\"outputs\"[%zu] must be {\"ref\": %s}", i,
                        i ? "a value" : "the loss");
    *out = m->values.at[at].at[0];
    return ASP_OK;
}

// All that is asked for; a loss among it is the first.
static asp_status read_all_outputs(aten_import *m, const json_t *outputs)
{
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        const char *name;
        asp_val v;
        ASP_TRY(find_output(m, outputs, i, &name, &v));
        const asp_type *t = asp_val_type(m->g, v);
        const bool loss = i == 0 && t->rank == 0 && asp_dtypes[t->dtype].is_float;
        asp_graph_add_output(m->g, v, loss ? "loss" : asp_printf(&m->g->arena, "output%zu", i));
    }
    return ASP_OK;
}

// The first output is the loss.  The others (logits, hidden states) are for a caller that a
// training program does not have, unless the file says that they are wanted whole.
static asp_status read_outputs(aten_import *m, const json_t *file)
{
    const json_t *outputs = json_object_get(file, "outputs");
    const char *name;
    asp_val v;
    if (m->source && json_is_true(json_object_get(file, "whole"))) {
        m->source->whole = true;
        return read_all_outputs(m, outputs);
    }
    ASP_TRY(find_output(m, outputs, 0, &name, &v));
    const asp_type *t = asp_val_type(m->g, v);
    if (t->rank != 0 || !asp_dtypes[t->dtype].is_float)
        return asp_fail(m->cx, ASP_ERR_UNSUPPORTED,
                        "the first output, %s, is %s; a training graph gives its loss first, a "
                        "floating-point scalar",
                        name, asp_type_str(m->g, t));
    asp_graph_add_output(m->g, v, "loss");
    return ASP_OK;
}

static asp_status read_array(aten_import *m, const json_t *file, const char *key,
                             asp_status (*read)(aten_import *m, const json_t *item))
{
    const json_t *list = json_object_get(file, key);
    if (!json_is_array(list)) return asp_fail(m->cx, ASP_ERR_INPUT, "\"%s\" must be a list", key);
    for (size_t i = 0; i < json_array_size(list); i++)
        ASP_TRY_NOTE(m->cx, read(m, json_array_get(list, i)), "%s[%zu]", key, i);
    return ASP_OK;
}

// Where the framework runs the graph.  Kernels of ours are for CPUs.
static asp_status read_device(aten_import *m, const json_t *file)
{
    const char *device;
    ASP_TRY(asp_json_str(m->cx, m->file, file, "device", "", &device));
    m->source->own_kernels = strcmp(device, "cpu") == 0 && m->dtype == ASP_F32;
    return ASP_OK;
}

static asp_status read_file(aten_import *m, const json_t *file)
{
    int64_t version;
    const char *name;
    ASP_TRY(asp_json_i64(m->cx, m->file, file, "version", NULL, &version));
    if (version != 1)
        return asp_fail(m->cx, ASP_ERR_UNSUPPORTED, "version %lld; this program reads version 1",
                        (long long)version);
    ASP_TRY(asp_json_str(m->cx, m->file, file, "name", "graph", &name));
    if (is_name(name) && strlen(name) < 128) m->g->name = asp_copy_str(&m->g->arena, name);
    ASP_TRY(read_symbols(m, json_object_get(file, "symbols")));
    ASP_TRY(read_array(m, file, "inputs", read_input));
    ASP_TRY(read_array(m, file, "nodes", read_node));
    if (m->source) ASP_TRY(read_device(m, file));
    return read_outputs(m, file);
}

static asp_status import(asp_ctx *cx, const char *file, const json_t *json, asp_dtype dtype,
                         int64_t ranks, asp_aten_source *source, asp_graph **out_graph)
{
    aten_import m = {.cx = cx, .file = file, .dtype = dtype, .source = source};
    m.g = asp_graph_create(cx, "graph");
    m.g->ranks = ranks;
    m.b = (asp_builder){.g = m.g, .loc = ""};
    asp_arena_init(&m.arena, cx);
    asp_map_init(&m.names, &m.arena);
    asp_status s = read_file(&m, json);
    if (s >= 0 && source)
        aten_source_finish(&m, (uint32_t)json_array_size(json_object_get(json, "outputs")));
    asp_arena_fini(&m.arena);
    if (s < 0) {
        asp_graph_destroy(m.g);
        return asp_note(cx, s, "%s", file);
    }
    *out_graph = m.g;
    return ASP_OK;
}

asp_status asp_front_aten_kept(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                               asp_dtype dtype, int64_t ranks, asp_graph **out_graph,
                               asp_aten_source **out_source)
{
    json_t *json;
    asp_arena a;
    ASP_TRY(asp_json_parse(cx, file, text, bytes, &json));
    asp_arena_init(&a, cx);
    asp_aten_source *source = ASP_NEW(&a, asp_aten_source); // lies on its own arena
    source->arena = a;
    source->hash = asp_hash(text, bytes, 0);
    asp_status s = import(cx, file, json, dtype, ranks, source, out_graph);
    json_decref(json);
    if (s < 0)
        asp_aten_source_destroy(source);
    else
        *out_source = source;
    return s;
}

bool asp_front_is_aten(const json_t *file) { return json_is_array(json_object_get(file, "nodes")); }

asp_status asp_front_aten(asp_ctx *cx, const char *file, const json_t *json, asp_dtype dtype,
                          asp_graph **out_graph)
{
    return import(cx, file, json, dtype, 1, NULL, out_graph);
}
