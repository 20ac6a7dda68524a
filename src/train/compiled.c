// The compiling half of autosp.h: a model, options as text, a plan that answers questions.  Thin
// over asp_train_plan and asp_report_plan, so that what it says is what `autosp plan` says.
// Neighbours: front/builder.c (models), train_options.c (the table of options), trainer.c (who runs
// it). SPDX-License-Identifier: Apache-2.0
#include "train/train_int.h"

#include <ctype.h>
#include <stdlib.h>

// ---- options -----------------------------------------------------------------------------------

// Options of the table that calls of their own stand for.
static bool has_a_call(const char *name)
{
    static const char *const names[] = {"model",   "out",   "resume",
                                        "profile", "trace", "checkpoint-every"};
    for (size_t i = 0; i < ASP_COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

// The text from s up to end without spaces around it; on the arena.
static const char *trimmed(asp_arena *a, const char *s, const char *end)
{
    while (s < end && isspace((unsigned char)*s)) s++;
    while (s < end && isspace((unsigned char)end[-1])) end--;
    char *t = asp_alloc_bytes(a, (size_t)(end - s) + 1, 1);
    memcpy(t, s, (size_t)(end - s));
    return t;
}

// "seq = 128"
static asp_status read_option(asp_arena *a, const char *s, const char *end, asp_train_options *o)
{
    asp_ctx *cx = a->cx;
    const char *equals = memchr(s, '=', (size_t)(end - s));
    if (!equals)
        return asp_fail(cx, ASP_ERR_USAGE, "options: '%.60s' is not written as name = value",
                        trimmed(a, s, end));
    const char *name = trimmed(a, s, equals), *value = trimmed(a, equals + 1, end);
    const asp_option *r = asp_option_find(asp_train_option_rows, name, strlen(name));
    if (!r || has_a_call(name))
        return asp_fail(cx, ASP_ERR_USAGE,
                        "options: there is no option '%.60s' here; autosp.h lists them at "
                        "asp_model_compile",
                        name);
    if (strcmp(name, "dtype") == 0 && strcmp(value, "bf16") != 0)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "options: dtype = %.20s is what the model's tensors say; here it is bf16 "
                        "or left out",
                        value);
    return asp_train_option_choose(cx, r, value, o);
}

static asp_status read_options(asp_arena *a, const char *text, asp_train_options *out)
{
    asp_train_options o;
    ASP_TRY(asp_train_options_init(a->cx, &o));
    for (const char *s = text, *end; *s; s = *end ? end + 1 : end) {
        end = s + strcspn(s, ",");
        if (*trimmed(a, s, end)) ASP_TRY(read_option(a, s, end, &o));
    }
    ASP_TRY(asp_train_options_settle(a->cx, &o));
    *out = o;
    return ASP_OK;
}

// ---- texts -------------------------------------------------------------------------------------

// What the report says, as a text on the arena: of the plan for people, or its JSON record.
static asp_status say(asp_compiled *c, bool json, double compile_ms, int64_t max_seq,
                      const char **out_text)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return asp_fail(c->cx, ASP_ERR_NOMEM, "no memory for the plan's text");
    asp_report r = {.text = json ? NULL : f, .json = json ? f : NULL};
    asp_report_plan(&r, c->plan, &c->options, c->options.seq, compile_ms, max_seq);
    bool whole = fclose(f) == 0;
    char *copy = whole ? asp_try_alloc_bytes(&c->arena, n + 1, 1) : NULL;
    if (copy) memcpy(copy, text, n);
    if (copy && json && n && copy[n - 1] == '\n') copy[n - 1] = 0; // one record, no line
    free(text);
    if (!copy) return asp_fail(c->cx, ASP_ERR_NOMEM, "no memory for the plan's text");
    *out_text = copy;
    return ASP_OK;
}

static asp_status fill_texts(asp_compiled *c, double compile_ms, int64_t max_seq)
{
    asp_text t;
    ASP_TRY(say(c, false, compile_ms, max_seq, &c->text));
    ASP_TRY(say(c, true, compile_ms, max_seq, &c->json));
    asp_text_init(&t, &c->arena);
    asp_plan_print(c->plan, &t);
    c->steps = t.at;
    return ASP_OK;
}

// ---- compiling ---------------------------------------------------------------------------------

static asp_val find_input(const asp_graph *g, const char *name)
{
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        if (info->op == ASP_OP_input &&
            strcmp(((const asp_input_attr *)info->attr)->name, name) == 0)
            return info->first;
    }
    return (asp_val){0};
}

const asp_id_range *asp_compiled_id_ranges(const asp_compiled *c, const asp_plan *p, int64_t seq,
                                           asp_arena *a)
{
    const asp_graph *g = c->program.graph;
    asp_env env = {.at = {{"S", seq}, {"B", asp_train_batch(&c->options)}}, .n = 2};
    int n = asp_plan_n_inputs(p);
    asp_id_range *ids = ASP_NEW_ARRAY(a, asp_id_range, n);
    for (int i = 0; i < n; i++) {
        asp_val v = find_input(g, asp_plan_get_input(p, i)->name);
        ids[i] = v.i ? asp_front_id_range(g, &env, v, a) : (asp_id_range){.below = INT64_MAX};
    }
    return ids;
}

typedef struct compile_call {
    asp_model *m;
    const char *options;
    asp_compiled *c;
} compile_call;

static asp_status fill(asp_ctx *cx, const compile_call *call, asp_compiled *c)
{
    double ms;
    int64_t seq;
    ASP_TRY(read_options(&c->arena, call->options ? call->options : "", &c->options));
    ASP_TRY(asp_front_check(cx, call->m->program.graph));
    c->program = asp_program_clone(&call->m->program);
    c->options.model = c->program.graph->name;
    ASP_TRY(asp_train_plan(cx, c->program.graph, &c->options, &c->plan, &seq, &ms));
    int64_t max_seq = c->options.seq == 0 ? seq : 0;
    c->options.seq = seq;
    if (c->options.dtype != ASP_BF16) c->options.dtype = asp_plan_dtype(c->plan);
    c->ids = asp_compiled_id_ranges(c, c->plan, seq, &c->arena);
    ASP_TRY(asp_targets_text(&c->arena, c->program.graph, &c->options, &c->targets));
    return fill_texts(c, ms, max_seq);
}

// Made inside the guard, which takes all of it back where memory is refused.
static asp_status compile(asp_ctx *cx, void *arg)
{
    compile_call *call = arg;
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_compiled *c = ASP_NEW(&a, asp_compiled); // lies on its own arena
    c->cx = cx;
    c->arena = a;
    asp_status s = fill(cx, call, c);
    if (s == ASP_OK)
        call->c = c;
    else
        asp_compiled_destroy(c);
    return s;
}

asp_status asp_model_compile(asp_model *m, const char *options, asp_compiled **out_compiled)
{
    ASP_TRY(asp_model_status(m));
    if (!out_compiled)
        return asp_fail(m->cx, ASP_ERR_USAGE, "there is no place for the compiled program: NULL");
    compile_call call = {.m = m, .options = options};
    ASP_TRY(asp_guard(m->cx, compile, &call));
    *out_compiled = call.c;
    return ASP_OK;
}

void asp_compiled_destroy(asp_compiled *c)
{
    if (!c) return;
    asp_arena a = c->arena;
    asp_plan_destroy(c->plan);
    asp_program_fini(&c->program);
    asp_arena_fini(&a);
}

// ---- questions ---------------------------------------------------------------------------------

const char *asp_compiled_text(const asp_compiled *c) { return c ? c->text : NULL; }
const char *asp_compiled_json(const asp_compiled *c) { return c ? c->json : NULL; }
const char *asp_compiled_steps(const asp_compiled *c) { return c ? c->steps : NULL; }
int64_t asp_compiled_seq(const asp_compiled *c) { return c ? c->options.seq : -1; }

int64_t asp_compiled_bytes(const asp_compiled *c, const char *kind)
{
    if (!c || !kind) return -1;
    const asp_plan_report *r = asp_plan_get_report(c->plan);
    if (strcmp(kind, "rank") == 0) return r->rank_bytes;
    if (strcmp(kind, "process") == 0) return r->process_bytes;
    for (int k = 0; k < ASP_MEM_KIND_COUNT; k++)
        if (strcmp(kind, asp_mem_kind_name((asp_mem_kind)k)) == 0) return r->bytes_by_kind[k];
    return -1;
}

bool asp_compiled_exchange(const asp_compiled *c, size_t i, asp_exchange_info *out_info)
{
    if (!c || !out_info) return false;
    const asp_plan_report *r = asp_plan_get_report(c->plan);
    if (i >= (size_t)r->n_exchanges) return false;
    const asp_plan_exchange *x = &r->exchanges[i];
    *out_info = (asp_exchange_info){asp_comm_op_name(x->op), x->what, x->count, x->bytes};
    return true;
}

static void describe(asp_tensor_info *out, const char *name, const char *role, asp_dtype dtype,
                     int rank, const int64_t *dim)
{
    static_assert(ASP_COUNT_OF(out->dim) >= ASP_MAX_RANK, "all dimensions have a place");
    *out = (asp_tensor_info){.name = name,
                             .dtype = asp_dtypes[dtype].name,
                             .role = role,
                             .bytes = asp_dtypes[dtype].bytes,
                             .rank = rank};
    for (int d = 0; d < rank; d++) {
        out->dim[d] = dim[d];
        out->bytes *= dim[d]; // the plan has the sum of all, so it does not overflow
    }
}

bool asp_compiled_param(const asp_compiled *c, size_t i, asp_tensor_info *out_info)
{
    if (!c || !out_info || i >= (size_t)asp_plan_n_params(c->plan)) return false;
    const asp_plan_param *p = asp_plan_get_param(c->plan, (int)i);
    describe(out_info, p->name, "", asp_plan_slab_dtype(c->plan, ASP_SLAB_PARAM), p->rank, p->dim);
    return true;
}

bool asp_compiled_input(const asp_compiled *c, size_t i, asp_tensor_info *out_info)
{
    if (!c || !out_info || i >= (size_t)asp_plan_n_inputs(c->plan)) return false;
    const asp_plan_input *p = asp_plan_get_input(c->plan, (int)i);
    int64_t dim[ASP_MAX_RANK];
    memcpy(dim, p->dim, sizeof dim);
    if (p->batch >= 0) dim[p->batch] *= c->options.dp; // of all replicas
    describe(out_info, p->name, p->role, p->dtype, p->rank, dim);
    return true;
}
