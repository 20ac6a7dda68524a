// The building half of autosp.h: a graph made call by call.  Each call parses its texts with the
// pieces of the graph-text parser, checks its arguments, and inserts typed nodes through
// op/build.c; what an op takes stands in ir/op.def alone.  Neighbours: front.h (asp_model),
// ir/parse.c, train/compiled.c (what becomes of a model).
//
// Every call runs in an asp_guard.  The first failure is kept in the model with its message, since
// a graph that misses a node is of no use.  SPDX-License-Identifier: Apache-2.0
#include "front/front.h"

#include <stdlib.h>

#define MAX_NAME 200 // of values: a suffix that makes them unique still reads back

// ---- calls -------------------------------------------------------------------------------------

// What the building calls take and give, each some of it.
typedef struct build_call {
    asp_model *m;
    const char *op, *name, *type, *attrs, *text;
    double std;
    int64_t number;
    size_t n;
    const asp_value *in;
    asp_val out;
} build_call;

static asp_status keep_failure(asp_model *m, asp_status s)
{
    m->failed = s;
    memcpy(m->message, m->cx->message, sizeof m->message);
    return s;
}

// The handle of the call's result, 0 where it fails or the model has.
static asp_value call(asp_model *m, asp_guarded_fn *body, build_call *c)
{
    if (!m || asp_model_status(m) < 0) return 0;
    c->m = m;
    asp_status s = asp_guard(m->cx, body, c);
    if (s < 0) {
        keep_failure(m, s);
        return 0;
    }
    return c->out.i ? (asp_value)m->serial << 32 | c->out.i : 0;
}

asp_status asp_model_status(asp_model *m)
{
    if (!m) return ASP_ERR_USAGE;
    if (m->failed < 0) memcpy(m->cx->message, m->message, sizeof m->message);
    return m->failed;
}

static asp_status want_text(asp_ctx *cx, const char *what, const char *text)
{
    return text ? ASP_OK : asp_fail(cx, ASP_ERR_USAGE, "%s is NULL; give a text", what);
}

static asp_status read_value(const asp_model *m, const char *what, asp_value v, asp_val *out)
{
    uint32_t i = (uint32_t)v, serial = (uint32_t)(v >> 32);
    if (v == 0) return asp_fail(m->cx, ASP_ERR_USAGE, "%s is no value", what);
    if (serial != m->serial)
        return asp_fail(m->cx, ASP_ERR_USAGE, "%s is a value of another model than %s", what,
                        m->program.graph->name);
    if (i == 0 || i >= m->program.graph->vals.n)
        return asp_fail(m->cx, ASP_ERR_USAGE, "%s: model %s has no such value", what,
                        m->program.graph->name);
    *out = (asp_val){i};
    return ASP_OK;
}

// ---- ops ---------------------------------------------------------------------------------------

static asp_status find_op(asp_ctx *cx, const char *name, bool declared, asp_op *out_op)
{
    ASP_TRY(want_text(cx, "the op's name", name));
    if (!asp_op_find(name, strlen(name), out_op))
        return asp_fail(cx, ASP_ERR_INPUT, "there is no op '%.60s'; asp_op_name lists them", name);
    if (asp_op_has(*out_op, ASP_DECLARED) == declared) return ASP_OK;
    return asp_fail(cx, ASP_ERR_USAGE,
                    declared ? "the result type of %s follows from its operands: use asp_model_op"
                             : "the result type of %s must be given: use asp_model_declare",
                    name);
}

static asp_status read_attrs(asp_graph *g, asp_op op, const char *text, const void **out_attr)
{
    return asp_attr_parse(g, op, text ? text : "", out_attr);
}

static asp_status read_operands(const asp_model *m, asp_op op, const build_call *c, asp_val *out)
{
    const asp_op_info *info = &asp_ops[op];
    char what[64];
    if (c->n < info->min_in || c->n > info->max_in)
        return asp_fail(m->cx, ASP_ERR_USAGE, "%s takes %u to %u operands, not %zu", info->name,
                        info->min_in, info->max_in, c->n);
    if (c->n && !c->in)
        return asp_fail(m->cx, ASP_ERR_USAGE, "%s: the operands are NULL", info->name);
    for (size_t i = 0; i < c->n; i++) {
        snprintf(what, sizeof what, "%s: operand %zu", info->name, i);
        ASP_TRY(read_value(m, what, c->in[i], &out[i]));
    }
    return ASP_OK;
}

static asp_status build_op(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    asp_model *m = c->m;
    asp_op op;
    const void *attr;
    asp_val in[ASP_MAX_OPERANDS];
    ASP_TRY(find_op(cx, c->op, false, &op));
    ASP_TRY(read_operands(m, op, c, in));
    ASP_TRY(read_attrs(m->program.graph, op, c->attrs, &attr));
    c->out = asp_build(&m->b, op, attr, (uint32_t)c->n, in);
    return m->b.status;
}

asp_value asp_model_op(asp_model *m, const char *op, const char *attrs, size_t n,
                       const asp_value *in)
{
    return call(m, build_op, &(build_call){.op = op, .attrs = attrs, .n = n, .in = in});
}

static asp_status declare(build_call *c, asp_op op, const void *attr, const char *what)
{
    asp_model *m = c->m;
    asp_type type;
    ASP_TRY(want_text(m->cx, "the type", c->type));
    ASP_TRY(asp_type_parse(m->program.graph, what, c->type, &type));
    c->out = asp_build_declared(&m->b, op, attr, &type);
    return m->b.status;
}

static asp_status build_declared(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    asp_op op;
    const void *attr;
    char what[80];
    ASP_TRY(find_op(cx, c->op, true, &op));
    ASP_TRY(read_attrs(c->m->program.graph, op, c->attrs, &attr));
    snprintf(what, sizeof what, "type of %s", c->op);
    return declare(c, op, attr, what);
}

asp_value asp_model_declare(asp_model *m, const char *op, const char *type, const char *attrs)
{
    return call(m, build_declared, &(build_call){.op = op, .type = type, .attrs = attrs});
}

// Inputs and parameters are shown under their names where these are names in graph text, too.
static asp_status declare_named(build_call *c, asp_op op, const void *attr)
{
    char what[128];
    snprintf(what, sizeof what, "type of %.100s", c->name);
    ASP_TRY(declare(c, op, attr, what));
    if (asp_is_name(c->name, MAX_NAME)) asp_graph_name(c->m->program.graph, c->out, c->name);
    return ASP_OK;
}

static asp_status build_input(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    ASP_TRY(want_text(cx, "the input's name", c->name));
    asp_input_attr a = {.name = c->name, .role = c->text ? c->text : ""};
    return declare_named(c, ASP_OP_input, &a);
}

asp_value asp_model_input(asp_model *m, const char *name, const char *type, const char *role)
{
    return call(m, build_input, &(build_call){.name = name, .type = type, .text = role});
}

static asp_status build_param(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    ASP_TRY(want_text(cx, "the parameter's name", c->name));
    ASP_TRY(want_text(cx, "the parameter's init", c->text));
    if (!(c->std >= 0 && c->std <= 1e30))
        return asp_fail(cx, ASP_ERR_USAGE,
                        "%.200s: std is %g; a number that is not negative is wanted", c->name,
                        c->std);
    asp_param_attr a = {.name = c->name, .init = c->text, .std = c->std};
    return declare_named(c, ASP_OP_param, &a);
}

asp_value asp_model_param(asp_model *m, const char *name, const char *type, const char *init,
                          double std)
{
    return call(m, build_param,
                &(build_call){.name = name, .type = type, .text = init, .std = std});
}

// ---- values ------------------------------------------------------------------------------------

static asp_status find_result(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    asp_graph *g = c->m->program.graph;
    asp_val v;
    ASP_TRY(read_value(c->m, "asp_model_result", c->in[0], &v));
    const asp_node_info *info = asp_val_node(g, v);
    if (c->n >= info->n_out)
        return asp_fail(cx, ASP_ERR_USAGE, "%s has %u results; there is no result %zu",
                        asp_node_str(g, asp_val_at(g, v)->node), info->n_out, c->n);
    c->out = (asp_val){info->first.i + (uint32_t)c->n};
    return ASP_OK;
}

asp_value asp_model_result(asp_model *m, asp_value v, size_t i)
{
    return call(m, find_result, &(build_call){.in = &v, .n = i});
}

static asp_status find_name(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    ASP_TRY(want_text(cx, "the value's name", c->name));
    c->out = asp_graph_find(c->m->program.graph, c->name);
    return ASP_OK;
}

asp_value asp_model_find(asp_model *m, const char *name)
{
    return call(m, find_name, &(build_call){.name = name});
}

static asp_status set_where(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    ASP_TRY(want_text(cx, "where", c->text));
    c->m->b.loc = asp_copy_str(&c->m->program.graph->arena, c->text);
    return ASP_OK;
}

void asp_model_at(asp_model *m, const char *where)
{
    call(m, set_where, &(build_call){.text = where});
}

static asp_status set_name(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    asp_val v;
    ASP_TRY(want_text(cx, "the value's name", c->name));
    ASP_TRY(read_value(c->m, "asp_model_name", c->in[0], &v));
    if (!asp_is_name(c->name, MAX_NAME))
        return asp_fail(cx, ASP_ERR_USAGE,
                        "'%.100s' is no name: at most %d letters, digits, '_' and '.', the first "
                        "no digit",
                        c->name, MAX_NAME);
    asp_graph_name(c->m->program.graph, v, c->name);
    return ASP_OK;
}

void asp_model_name(asp_model *m, asp_value v, const char *name)
{
    call(m, set_name, &(build_call){.in = &v, .name = name});
}

static asp_status set_loss(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    asp_graph *g = c->m->program.graph;
    asp_val v;
    ASP_TRY(read_value(c->m, "the loss", c->in[0], &v));
    const asp_type *t = asp_val_type(g, v);
    if (t->rank != 0 || !asp_dtypes[t->dtype].is_float)
        return asp_fail(cx, ASP_ERR_SHAPE, "the loss is %s, not a single floating-point number",
                        asp_type_str(g, t));
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (strcmp(g->outputs.at[i].name, "loss") == 0)
            return asp_fail(cx, ASP_ERR_USAGE, "model %s has a loss already; add the two up",
                            g->name);
    asp_graph_add_output(g, v, "loss");
    return ASP_OK;
}

void asp_model_loss(asp_model *m, asp_value v) { call(m, set_loss, &(build_call){.in = &v}); }

static asp_status set_ranks(asp_ctx *cx, void *arg)
{
    build_call *c = arg;
    if (c->number < 1 || c->number > ASP_MAX_RANKS)
        return asp_fail(cx, ASP_ERR_USAGE, "a graph is split for 1 to %d ranks, not %lld",
                        ASP_MAX_RANKS, (long long)c->number);
    c->m->program.graph->ranks = c->number;
    return ASP_OK;
}

void asp_model_split(asp_model *m, int64_t ranks)
{
    call(m, set_ranks, &(build_call){.number = ranks});
}

const char *asp_op_name(size_t i) { return i < ASP_OP_COUNT ? asp_ops[i].name : NULL; }

// ---- whole models ------------------------------------------------------------------------------

typedef struct open_call {
    const char *name, *text;
    size_t bytes;
    asp_model *m; // made, its graph not yet
} open_call;

// Makes the graph with body; *out_model is the caller's.
static asp_status open_model(asp_ctx *cx, asp_guarded_fn *body, open_call *c, asp_model **out_model)
{
    if (!cx) return ASP_ERR_USAGE;
    if (!out_model) return asp_fail(cx, ASP_ERR_USAGE, "there is no place for the model: NULL");
    c->m = calloc(1, sizeof *c->m);
    if (!c->m) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for a model");
    c->m->cx = cx;
    c->m->serial = ++cx->n_models;
    asp_arena_init(&c->m->text, cx);
    asp_status s = asp_guard(cx, body, c);
    if (s < 0) {
        asp_model_destroy(c->m);
        return s;
    }
    c->m->b = (asp_builder){.g = c->m->program.graph, .loc = ""};
    *out_model = c->m;
    return ASP_OK;
}

static asp_status create_graph(asp_ctx *cx, void *arg)
{
    open_call *c = arg;
    ASP_TRY(want_text(cx, "the model's name", c->name));
    if (!asp_is_name(c->name, 100))
        return asp_fail(
            cx, ASP_ERR_USAGE,
            "'%.100s' is no name for a model: at most 100 letters, digits, '_' and '.', "
            "the first no digit",
            c->name);
    c->m->program.graph = asp_graph_create(cx, c->name);
    return ASP_OK;
}

asp_status asp_model_create(asp_ctx *cx, const char *name, asp_model **out_model)
{
    return open_model(cx, create_graph, &(open_call){.name = name}, out_model);
}

static asp_status load_program(asp_ctx *cx, void *arg)
{
    open_call *c = arg;
    ASP_TRY(want_text(cx, "the model's path", c->name));
    ASP_TRY(want_text(cx, "dtype", c->text));
    if (strcmp(c->text, "f32") != 0 && strcmp(c->text, "f64") != 0)
        return asp_fail(cx, ASP_ERR_USAGE, "dtype is f32 or f64, not '%.40s'", c->text);
    return asp_front_load(cx, c->name, strcmp(c->text, "f64") == 0 ? ASP_F64 : ASP_F32,
                          &c->m->program);
}

asp_status asp_model_load(asp_ctx *cx, const char *path, const char *dtype, asp_model **out_model)
{
    return open_model(cx, load_program, &(open_call){.name = path, .text = dtype}, out_model);
}

static asp_status parse_program(asp_ctx *cx, void *arg)
{
    open_call *c = arg;
    ASP_TRY(want_text(cx, "the file's name", c->name));
    ASP_TRY(want_text(cx, "the graph text", c->text));
    return asp_front_parse(cx, c->name, c->text, c->bytes, &c->m->program);
}

asp_status asp_model_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                           asp_model **out_model)
{
    return open_model(cx, parse_program, &(open_call){.name = file, .text = text, .bytes = bytes},
                      out_model);
}

void asp_model_destroy(asp_model *m)
{
    if (!m) return;
    asp_program_fini(&m->program);
    asp_arena_fini(&m->text);
    free(m);
}

// ---- texts -------------------------------------------------------------------------------------

typedef struct text_call {
    asp_model *m;
    asp_value v;
    const char *out;
} text_call;

static asp_status give_text(asp_model *m, asp_guarded_fn *body, text_call *c, const char **out_text)
{
    ASP_TRY(asp_model_status(m));
    if (!out_text) return asp_fail(m->cx, ASP_ERR_USAGE, "there is no place for the text: NULL");
    asp_arena_reset(&m->text);
    c->m = m;
    ASP_TRY(asp_guard(m->cx, body, c));
    *out_text = c->out;
    return ASP_OK;
}

static asp_status print_graph(asp_ctx *cx, void *arg)
{
    (void)cx;
    text_call *c = arg;
    asp_text t;
    asp_text_init(&t, &c->m->text);
    asp_graph_print(c->m->program.graph, &t);
    c->out = t.at;
    return ASP_OK;
}

asp_status asp_model_text(asp_model *m, const char **out_text)
{
    return give_text(m, print_graph, &(text_call){0}, out_text);
}

static asp_status print_type(asp_ctx *cx, void *arg)
{
    (void)cx;
    text_call *c = arg;
    asp_val v;
    ASP_TRY(read_value(c->m, "asp_model_type", c->v, &v));
    asp_graph *g = c->m->program.graph;
    c->out = asp_copy_str(&c->m->text, asp_type_str(g, asp_val_type(g, v)));
    return ASP_OK;
}

asp_status asp_model_type(asp_model *m, asp_value v, const char **out_text)
{
    return give_text(m, print_type, &(text_call){.v = v}, out_text);
}
