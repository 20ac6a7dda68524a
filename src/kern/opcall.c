// autosp.h's single ops: one op of the table by its kernel, on memory of the caller's.  For
// frameworks whose graphs hold ops of ours: what a call is (types, attributes) is settled once, as
// a graph of one node, and then run as often as wanted.
//
//   sdpa {causal = true, mask = "q - k <= 511"} on f32[1, 8, 4096, 64], ...   ->   out, lse
//
// Neighbours: autosp.h (contract), kern.h (kernels), run/ (who runs whole programs).
// SPDX-License-Identifier: Apache-2.0
#include "kern/kern.h"
#include "op/op.h"

#include <stdlib.h>

#define MOST_THREADS 1024

struct asp_call {
    asp_ctx *cx;     // borrowed
    asp_arena arena; // owns what follows and the struct
    asp_graph *g;    // owned: the types, the attributes
    asp_node node;
    const asp_kern_row *row;
    asp_kcall call;
    asp_team *team; // owned
    void *work;     // owned
    atomic_int bad_index;
    const char *type[ASP_MAX_OPERANDS]; // of results, as text
};

typedef struct create_args {
    const char *op, *attrs, *const *types;
    size_t n;
    int threads;
    int64_t rank, ranks;
    asp_call *c;
} create_args;

// ---- what is called ----------------------------------------------------------------------------

static asp_status find_op(asp_ctx *cx, const char *name, asp_op *out)
{
    for (int i = 0; i < ASP_OP_COUNT; i++) {
        if (strcmp(asp_ops[i].name, name) != 0) continue;
        *out = (asp_op)i;
        if (asp_kern_ref((asp_op)i)) return ASP_OK;
        return asp_fail(cx, ASP_ERR_USAGE, "%s is not run by a kernel", name);
    }
    return asp_fail(cx, ASP_ERR_USAGE, "there is no op '%.40s'; `autosp docs ops` lists them",
                    name);
}

static asp_status tensor_of(asp_call *c, asp_val v, asp_tensor *out)
{
    const asp_type *t = asp_val_type(c->g, v);
    int64_t bytes = asp_dtypes[t->dtype].bytes;
    *out = (asp_tensor){.dtype = t->dtype, .rank = (int)t->rank};
    for (uint32_t d = 0; d < t->rank; d++)
        if (!asp_size_is_num(c->g, t->dim[d], &out->dim[d]) || out->dim[d] < 1 ||
            asp_mul_overflows(bytes, out->dim[d], &bytes))
            return asp_fail(c->cx, ASP_ERR_SHAPE, "%s: %s is no type of numbers",
                            asp_node_str(c->g, c->node), asp_type_str(c->g, t));
    return ASP_OK;
}

static asp_status build(asp_call *c, const create_args *args)
{
    asp_val in[ASP_MAX_OPERANDS];
    asp_builder b = {.g = c->g, .loc = ""};
    const void *attr;
    asp_op op;
    ASP_TRY(find_op(c->cx, args->op, &op));
    if (args->n > ASP_MAX_OPERANDS)
        return asp_fail(c->cx, ASP_ERR_USAGE, "%s of %zu operands; %d at most", args->op, args->n,
                        ASP_MAX_OPERANDS);
    ASP_TRY(asp_attr_parse(c->g, op, args->attrs ? args->attrs : "", &attr));
    for (size_t i = 0; i < args->n; i++) {
        asp_type t;
        if (!args->types[i]) return asp_fail(c->cx, ASP_ERR_USAGE, "type %zu is NULL", i);
        ASP_TRY(asp_type_parse(c->g, "type", args->types[i], &t));
        const asp_input_attr input = {.name = asp_printf(&c->arena, "x%zu", i), .role = ""};
        in[i] = asp_build_declared(&b, ASP_OP_input, &input, &t);
    }
    const asp_val out = asp_build(&b, op, attr, (uint32_t)args->n, in);
    ASP_TRY(b.status);
    c->node = asp_val_at(c->g, out)->node;
    return ASP_OK;
}

static asp_status prepare(asp_call *c, const create_args *args)
{
    const asp_node_info *info = asp_node_at(c->g, c->node);
    const asp_env none = {0};
    c->call = (asp_kcall){.attr = info->attr,
                          .n_in = (int)info->n_in,
                          .n_out = (int)info->n_out,
                          .rank = (int)args->rank,
                          .ranks = (int)args->ranks,
                          .bad_index = &c->bad_index};
    ASP_TRY(asp_node_sizes(&c->arena, c->g, c->node, &none, &c->call.sizes));
    for (uint32_t i = 0; i < info->n_in; i++) ASP_TRY(tensor_of(c, info->in[i], &c->call.in[i]));
    for (uint32_t i = 0; i < info->n_out; i++) {
        const asp_val v = asp_node_result(c->g, c->node, i);
        ASP_TRY(tensor_of(c, v, &c->call.out[i]));
        c->type[i] = asp_copy_str(&c->arena, asp_type_str(c->g, asp_val_type(c->g, v)));
    }
    c->row = asp_kern_choose(info->op, c->call.out[0].dtype);
    ASP_TRY(asp_kern_prepare(c->cx, &c->arena, c->row, NULL, args->threads, &c->call));
    if (c->call.work_bytes == 0) return ASP_OK;
    const int64_t bytes = asp_round_up(c->call.work_bytes, 64);
    c->call.work = c->work = aligned_alloc(64, (size_t)bytes);
    if (!c->work)
        return asp_fail(c->cx, ASP_ERR_NOMEM, "%s: no memory for %lld bytes of scratch",
                        asp_node_str(c->g, c->node), (long long)bytes);
    return ASP_OK;
}

static asp_status make(asp_call *c, const create_args *args)
{
    ASP_TRY(build(c, args));
    ASP_TRY(prepare(c, args));
    return asp_team_create(c->cx, args->threads, -1, &c->team);
}

static asp_status create(asp_ctx *cx, void *arg)
{
    create_args *args = arg;
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_call *c = ASP_NEW(&a, asp_call); // lies on its own arena
    c->cx = cx;
    c->arena = a;
    c->g = asp_graph_create(cx, "call");
    c->g->ranks = args->ranks;
    const asp_status s = make(c, args);
    if (s == ASP_OK)
        args->c = c;
    else
        asp_call_destroy(c);
    return s;
}

asp_status asp_call_create(asp_ctx *cx, const char *op, const char *attrs, size_t n,
                           const char *const *types, int threads, int64_t rank, int64_t ranks,
                           asp_call **out_call)
{
    if (!cx) return ASP_ERR_USAGE;
    if (!op || (n && !types) || !out_call)
        return asp_fail(cx, ASP_ERR_USAGE, "op, types or out_call is NULL");
    if (threads < 1 || threads > MOST_THREADS)
        return asp_fail(cx, ASP_ERR_USAGE, "%d threads; 1 to %d", threads, MOST_THREADS);
    if (rank < 0 || rank >= ranks || ranks > ASP_MAX_RANKS)
        return asp_fail(cx, ASP_ERR_USAGE, "rank %lld of %lld", (long long)rank, (long long)ranks);
    create_args args = {.op = op,
                        .attrs = attrs,
                        .types = types,
                        .n = n,
                        .threads = threads,
                        .rank = rank,
                        .ranks = ranks};
    ASP_TRY(asp_guard(cx, create, &args));
    *out_call = args.c;
    return ASP_OK;
}

void asp_call_destroy(asp_call *c)
{
    if (!c) return;
    asp_team_destroy(c->team);
    free(c->work);
    asp_graph_destroy(c->g);
    asp_arena a = c->arena; // it lies there itself
    asp_arena_fini(&a);
}

const char *asp_call_type(const asp_call *c, size_t i)
{
    return c && i < (size_t)c->call.n_out ? c->type[i] : NULL;
}

// ---- running -----------------------------------------------------------------------------------

static void work(void *arg, asp_worker *w)
{
    const asp_call *c = arg;
    c->row->fn(&c->call, w);
}

static asp_status take(asp_call *c, const char *what, int n, void *const *data, asp_tensor *out)
{
    for (int i = 0; i < n; i++) {
        if (!data || !data[i] || (uintptr_t)data[i] % 64)
            return asp_fail(c->cx, ASP_ERR_USAGE, "%s: %s %d is not aligned to 64 bytes",
                            asp_ops[c->row->op].name, what, i);
        out[i].data = data[i];
    }
    return ASP_OK;
}

asp_status asp_call_run(asp_call *c, void *const *in, void *const *out, uint64_t seed,
                        uint64_t step)
{
    if (!c) return ASP_ERR_USAGE;
    ASP_TRY(take(c, "operand", c->call.n_in, in, c->call.in));
    ASP_TRY(take(c, "result", c->call.n_out, out, c->call.out));
    c->call.seed = seed, c->call.step = step;
    atomic_store(&c->bad_index, 0);
    asp_team_run(c->team, work, c);
    if (atomic_load(&c->bad_index))
        return asp_fail(c->cx, ASP_ERR_INPUT, "%s: an index is out of range",
                        asp_ops[c->row->op].name);
    return ASP_OK;
}
