// An interpreter for checks on small sizes: one thread, reference kernels, nothing is freed before
// the arena is.  Neighbours: interpret.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "pass/interpret.h"

#define MAX_BYTES ((int64_t)64 << 20) // of one value

typedef struct interpreter {
    asp_graph *g;
    asp_arena *arena;
    const asp_env *env;
    asp_team *team;
    asp_tensor *val;
} interpreter;

static asp_status tensor_of(interpreter *p, asp_val v)
{
    const asp_type *t = asp_val_type(p->g, v);
    asp_tensor x = {.dtype = t->dtype, .rank = (int)t->rank};
    int64_t bytes = asp_dtypes[t->dtype].bytes;
    for (uint32_t d = 0; d < t->rank; d++) {
        ASP_TRY(asp_size_eval(p->g, t->dim[d], p->env, &x.dim[d]));
        if (x.dim[d] < 1 || asp_mul_overflows(bytes, x.dim[d], &bytes) || bytes > MAX_BYTES)
            return asp_fail(p->g->cx, ASP_ERR_UNSUPPORTED, "%s is not a size to try a mask on",
                            asp_type_str(p->g, t));
    }
    char *data = asp_alloc_bytes(p->arena, (size_t)bytes + 64, 1);
    x.data = data + (64 - (uintptr_t)data % 64);
    p->val[v.i] = x;
    return ASP_OK;
}

typedef struct job {
    asp_kernel *fn;
    const asp_kcall *call;
} job;

static void work(void *arg, asp_worker *w)
{
    const job *j = arg;
    j->fn(j->call, w);
}

static asp_status run_kernel(interpreter *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    const asp_kern_row *row = asp_kern_ref(info->op);
    const int64_t *sizes;
    atomic_int bad_index = 0;
    if (!row || asp_ops[info->op].cost == ASP_COST_GEMM)
        return asp_fail(p->g->cx, ASP_ERR_UNSUPPORTED, "%s is not interpreted",
                        asp_node_str(p->g, n));
    ASP_TRY(asp_node_sizes(p->arena, p->g, n, p->env, &sizes));
    asp_kcall call = {.attr = info->attr,
                      .sizes = sizes,
                      .n_in = (int)info->n_in,
                      .n_out = (int)info->n_out,
                      .ranks = 1,
                      .bad_index = &bad_index};
    for (uint32_t i = 0; i < info->n_in; i++) call.in[i] = p->val[info->in[i].i];
    for (uint32_t i = 0; i < info->n_out; i++) call.out[i] = p->val[info->first.i + i];
    ASP_TRY(asp_kern_prepare(p->g->cx, p->arena, row, NULL, 1, &call));
    char *scratch = asp_alloc_bytes(p->arena, (size_t)call.work_bytes + 64, 1);
    call.work = scratch + (64 - (uintptr_t)scratch % 64);
    asp_team_run(p->team, work, &(job){row->fn, &call});
    if (atomic_load(&bad_index))
        return asp_fail(p->g->cx, ASP_ERR_UNSUPPORTED, "%s: an index is out of range",
                        asp_node_str(p->g, n));
    return ASP_OK;
}

static asp_status run_node(interpreter *p, asp_node n, asp_interpret_fill *fill, void *arg)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    for (uint32_t i = 0; i < info->n_out; i++) ASP_TRY(tensor_of(p, asp_node_result(p->g, n, i)));
    asp_tensor *out = &p->val[info->first.i];
    if (info->op == ASP_OP_input || info->op == ASP_OP_param) {
        fill(arg, info, out);
        return ASP_OK;
    }
    if (info->op == ASP_OP_size_value) {
        const asp_size size = ((const asp_size_attr *)info->attr)->size;
        int64_t value;
        ASP_TRY(asp_size_eval(p->g, size, p->env, &value));
        if (out->dtype == ASP_I64) *(int64_t *)out->data = value;
        if (out->dtype == ASP_F32) *(float *)out->data = (float)value;
        if (out->dtype == ASP_F64) *(double *)out->data = (double)value;
        return ASP_OK;
    }
    if (asp_op_has(info->op, ASP_ALIAS)) {
        out->data = p->val[info->in[0].i].data;
        return ASP_OK;
    }
    return run_kernel(p, n);
}

asp_status asp_interpret(asp_graph *g, asp_arena *a, const asp_env *env, asp_interpret_fill *fill,
                         void *arg, asp_tensor **out_vals)
{
    interpreter p = {
        .g = g, .arena = a, .env = env, .val = ASP_NEW_ARRAY(a, asp_tensor, g->vals.n)};
    asp_status s = asp_team_create(g->cx, 1, -1, &p.team);
    for (asp_node n = g->head; s == ASP_OK && n.i; n = asp_node_at(g, n)->next)
        s = run_node(&p, n, fill, arg);
    asp_team_destroy(p.team);
    if (s == ASP_OK) *out_vals = p.val;
    return s;
}
