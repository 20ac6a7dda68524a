// What a step starts from: fresh or loaded parameters, and the batch.  Neighbours: train.h
// (contract), base/philox.h. SPDX-License-Identifier: Apache-2.0
#include "base/half.h"
#include "base/philox.h"
#include "train/train_int.h"

#define CHUNK ((int64_t)1 << 14)
#define DATA_STREAM UINT64_MAX // apart from the parameters' streams 0, 1, ...

typedef struct init_job {
    void *slab;
    asp_dtype dtype;
    const asp_plan_param *param;
    asp_philox random;
    int kind; // 0: zeros, 1: ones, 2: normal
} init_job;

static void init_main(void *arg, asp_worker *w)
{
    const init_job *j = arg;
    const asp_plan_param *p = j->param;
    for (int64_t c; (c = asp_team_next(w, asp_ceil_div(p->count, CHUNK))) >= 0;) {
        for (int64_t i = c * CHUNK; i < asp_min(p->count, (c + 1) * CHUNK); i++) {
            double v = j->kind == 2 ? p->std * asp_philox_normal(j->random, (uint64_t)i) : j->kind;
            if (j->dtype == ASP_F64)
                ((double *)j->slab)[p->offset + i] = v;
            else if (j->dtype == ASP_BF16)
                ((uint16_t *)j->slab)[p->offset + i] = asp_to_bf16((float)v);
            else
                ((float *)j->slab)[p->offset + i] = (float)v;
        }
    }
}

void asp_train_initialise(asp_rank *r, const asp_plan *p, asp_team *team, uint64_t seed)
{
    for (int i = 0; i < asp_plan_n_params(p); i++) {
        const asp_plan_param *a = asp_plan_get_param(p, i);
        int kind = strcmp(a->init, "normal") == 0 ? 2 : strcmp(a->init, "ones") == 0;
        init_job j = {asp_rank_slab(r, ASP_SLAB_PARAM),
                      asp_plan_slab_dtype(p, ASP_SLAB_PARAM),
                      a,
                      {seed, (uint64_t)i},
                      kind};
        asp_team_run(team, init_main, &j);
    }
}

asp_status asp_train_load_slab(asp_arena *a, asp_rank *r, const asp_plan *p, asp_slab slab,
                               const char *prefix, const asp_safetensors *s)
{
    const asp_dtype to = asp_plan_slab_dtype(p, slab);
    char *at = asp_rank_slab(r, slab);
    for (int i = 0; i < asp_plan_n_params(p); i++) {
        const asp_plan_param *x = asp_plan_get_param(p, i);
        const char *name = asp_printf(a, "%s%s", prefix, x->name);
        const asp_st_tensor *t;
        ASP_TRY(asp_safetensors_want(s, name, x->rank, x->dim, &t));
        ASP_TRY(asp_st_convert(a->cx, t, to, at + x->offset * asp_dtypes[to].bytes));
    }
    return ASP_OK;
}

static bool is_buffer(const asp_plan_input *in) { return strcmp(in->role, "buffer") == 0; }

static asp_status load_buffers(asp_ctx *cx, asp_rank *r, const asp_plan *p,
                               const asp_safetensors *s)
{
    for (int k = 0; k < asp_plan_n_inputs(p); k++) {
        const asp_plan_input *in = asp_plan_get_input(p, k);
        const asp_st_tensor *t;
        if (!is_buffer(in)) continue;
        if (!asp_dtypes[in->dtype].is_float)
            return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                            "buffer %s is %s; floating-point ones are read", in->name,
                            asp_dtypes[in->dtype].name);
        ASP_TRY(asp_safetensors_want(s, in->name, in->rank, in->dim, &t));
        ASP_TRY(asp_st_convert(cx, t, in->dtype, asp_rank_input(r, k)));
    }
    return ASP_OK;
}

asp_status asp_train_refuse_buffers(asp_ctx *cx, const asp_plan *p)
{
    for (int k = 0; k < asp_plan_n_inputs(p); k++)
        if (is_buffer(asp_plan_get_input(p, k)))
            return asp_fail(cx, ASP_ERR_INPUT,
                            "input %s is a buffer of the model, and there is no model.safetensors "
                            "beside the graph that holds its values; autosp.export writes both",
                            asp_plan_get_input(p, k)->name);
    return ASP_OK;
}

asp_status asp_train_load_weights(asp_ctx *cx, asp_rank *r, const asp_plan *p, const char *path)
{
    asp_arena a;
    asp_safetensors s;
    asp_arena_init(&a, cx);
    asp_status status = asp_safetensors_open(&a, path, &s);
    if (status == ASP_OK) {
        status = asp_train_load_slab(&a, r, p, ASP_SLAB_PARAM, "", &s);
        if (status == ASP_OK) status = load_buffers(cx, r, p, &s);
        asp_safetensors_close(&s);
    }
    asp_arena_fini(&a);
    return status;
}

// Every rank of a replica fills the same whole batch: what a rank needs of it is the program's
// business.
asp_status asp_train_fill_inputs(asp_ctx *cx, asp_rank *r, const asp_plan *p, const asp_tokens *t,
                                 uint64_t seed, int64_t i)
{
    for (int k = 0; k < asp_plan_n_inputs(p); k++) {
        const asp_plan_input *in = asp_plan_get_input(p, k);
        if (is_buffer(in)) continue; // came with the weights
        bool tokens = strcmp(in->role, "tokens") == 0 || strcmp(in->role, "labels") == 0;
        bool positions = strcmp(in->role, "positions") == 0;
        if (in->dtype != ASP_I64 || in->rank < 1 || in->rank > 2 || !(tokens || positions))
            return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                            "input %s: roles that can be filled from data are tokens, labels and "
                            "positions, i64[B, S]",
                            in->name);
        int64_t length = in->dim[in->rank - 1], batch = in->rank == 2 ? in->dim[0] : 1;
        int64_t *at = asp_rank_input(r, k);
        for (int64_t b = 0; b < batch; b++, at += length) {
            uint64_t starts = (uint64_t)(asp_tokens_count(t) - length + 1);
            int64_t start = (int64_t)asp_philox_below((asp_philox){seed, DATA_STREAM},
                                                      (uint64_t)(i * batch + b), starts);
            if (tokens) asp_tokens_window(t, start, length, at);
            for (int64_t s = 0; positions && s < length; s++) at[s] = s;
        }
    }
    return ASP_OK;
}
