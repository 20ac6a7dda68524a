// Small Llamas compiled and stepped once.  Neighbours: tiny.h.  SPDX-License-Identifier: Apache-2.0
#include "tiny.h"

#include <math.h>
#include <stdlib.h>

tiny tiny_default(void)
{
    return (tiny){.layers = 2,
                  .heads = 4,
                  .kv_heads = 2,
                  .hidden = 32,
                  .ffn = 48,
                  .vocab = 31,
                  .dtype = ASP_F64,
                  .batch = 2,
                  .seq = 16,
                  .ranks = 1,
                  .threads = 1,
                  .ac = "none",
                  .sp = "ulysses",
                  .steps = 1,
                  .labels = "uneven",
                  .skip_sp = true};
}

// A fixed function of the index: no generator to agree on.
static double wave(int64_t i, double scale)
{
    return scale * sin(0.7 + 1.3 * (double)(i % 1009) + 0.01 * (double)(i / 1009));
}

static void set(void *slab, asp_dtype dtype, int64_t i, double v)
{
    if (dtype == ASP_F64)
        ((double *)slab)[i] = v;
    else
        ((float *)slab)[i] = (float)v;
}

static double get(const void *slab, asp_dtype dtype, int64_t i)
{
    return dtype == ASP_F64 ? ((const double *)slab)[i] : (double)((const float *)slab)[i];
}

typedef struct job {
    const tiny *t;
    const asp_plan *plan;
    int64_t element;
    double by;
    tiny_result *result;
} job;

static void fill_parameters(const job *j, asp_rank *r)
{
    void *slab = asp_rank_slab(r, ASP_SLAB_PARAM);
    for (int p = 0; p < asp_plan_n_params(j->plan); p++) {
        const asp_plan_param *a = asp_plan_get_param(j->plan, p);
        bool norm = strcmp(a->init, "ones") == 0;
        double scale = norm ? 0.2 : 1.5 / sqrt((double)a->dim[a->rank - 1]);
        for (int64_t i = 0; i < a->count; i++)
            set(slab, j->t->dtype, a->offset + i,
                (norm ? 1.0 : 0.0) + wave(i * 7 + p * 131, scale));
    }
    if (j->element >= 0)
        set(slab, j->t->dtype, j->element, get(slab, j->t->dtype, j->element) + j->by);
}

static bool counts(const tiny *t, int64_t s, int64_t i)
{
    if (strcmp(t->labels, "none") == 0) return false;
    if (strcmp(t->labels, "all") == 0) return true;
    if (strcmp(t->labels, "empty-shard") == 0 && s < t->seq / 2 + 1) return false;
    return i % 5 != 0 && !(s > t->seq / 4 && s < t->seq / 2 && i % 2);
}

static void fill_inputs(const job *j, asp_rank *r)
{
    for (int k = 0; k < asp_plan_n_inputs(j->plan); k++) {
        const asp_plan_input *in = asp_plan_get_input(j->plan, k);
        int64_t *at = asp_rank_input(r, k);
        for (int64_t i = 0; i < in->dim[0] * in->dim[1]; i++) {
            int64_t token = (i * i * 3 + i * 7 + 5) % j->t->vocab;
            bool ignored = strcmp(in->role, "labels") == 0 && !counts(j->t, i % in->dim[1], i);
            at[i] = ignored ? -100 : token;
        }
    }
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    asp_team *team;
    asp_rank *r;
    double loss = (double)NAN;
    ASP_TRY(asp_team_create(cx, j->t->threads, -1, &team));
    ASP_TRY(asp_rank_create(cx, j->plan, comm, team, &r));
    fill_parameters(j, r);
    fill_inputs(j, r);
    for (int step = 0; step < j->t->steps; step++) ASP_TRY(asp_rank_step(r, &loss));
    if (asp_comm_rank(comm) == 0) {
        j->result->loss = loss;
        j->result->counted = asp_comm_counted(comm);
        j->result->offloaded = asp_rank_offloaded(r);
        const void *slab = asp_rank_slab(r, ASP_SLAB_GRAD);
        for (int64_t i = 0; i < j->result->count; i++)
            j->result->gradients[i] = get(slab, j->t->dtype, i);
    }
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return ASP_OK;
}

typedef struct compile_job {
    const tiny *t;
    asp_plan *plan;
} compile_job;

// asp_compile without pass fuse.
static asp_status compile_unfused(asp_ctx *cx, const asp_graph *g, const asp_compile_options *o,
                                  asp_plan **out_plan)
{
    asp_graph *joint;
    asp_pass_options passes = {.ranks = o->ranks,
                               .sp = o->sp,
                               .ac = o->ac,
                               .tile = o->tile,
                               .env = {.at = {{"S", o->seq}, {"B", o->batch}}, .n = 2}};
    asp_run_options run = {.env = passes.env, .threads = o->threads, .backend = o->backend};
    ASP_TRY(asp_compile_joint(cx, g, o, NULL, &joint));
    asp_status s = asp_passes_run(cx, joint, "tile,remat,ring", &passes, NULL);
    if (s == ASP_OK) s = asp_plan_create(cx, joint, &run, out_plan);
    asp_graph_destroy(joint);
    return s;
}

static asp_status compile_tiny(asp_ctx *cx, void *arg)
{
    compile_job *j = arg;
    const tiny *t = j->t;
    asp_hf_config c = {.vocab = t->vocab,
                       .hidden = t->hidden,
                       .layers = t->layers,
                       .heads = t->heads,
                       .kv_heads = t->kv_heads,
                       .head_dim = t->hidden / t->heads,
                       .intermediate = t->ffn,
                       .rope_theta = 100,
                       .norm_eps = 1e-5,
                       .initializer_range = 0.02,
                       .window = t->window,
                       .tied = t->tied};
    if (t->window) memset(c.windowed, 0xff, sizeof c.windowed);
    asp_compile_options o = {.ranks = t->ranks,
                             .batch = t->batch,
                             .seq = t->seq,
                             .threads = t->threads,
                             .sp = t->sp,
                             .ac = t->ac,
                             .tile = t->tile,
                             .memory = t->memory,
                             .offload = t->offload,
                             .backend = ASP_COMM_thread,
                             .skip_sp = t->skip_sp};
    asp_graph *g;
    ASP_TRY(asp_front_hf(cx, &c, t->dtype, &g));
    asp_status s =
        t->unfused ? compile_unfused(cx, g, &o, &j->plan) : asp_compile(cx, g, &o, NULL, &j->plan);
    asp_graph_destroy(g);
    return s;
}

asp_plan *tiny_plan(asp_ctx *cx, const tiny *t)
{
    compile_job c = {.t = t};
    if (asp_guard(cx, compile_tiny, &c) < 0) fail_msg("%s", cx->message);
    return c.plan;
}

tiny_result tiny_run(const tiny *t, int64_t element, double by)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    cx.verify_each_pass = element < 0 && !t->quick;
    asp_plan *plan = tiny_plan(&cx, t);
    tiny_result result = {.count = asp_plan_slab_count(plan), .n_params = asp_plan_n_params(plan)};
    result.gradients = calloc((size_t)result.count, sizeof(double));
    result.report = *asp_plan_get_report(plan);
    for (int p = 0; p < result.n_params; p++) {
        result.offset[p] = asp_plan_get_param(plan, p)->offset;
        result.length[p] = asp_plan_get_param(plan, p)->count;
    }
    job j = {.t = t, .plan = plan, .element = element, .by = by, .result = &result};
    if (asp_ranks_run(&cx, ASP_COMM_thread, (int)t->ranks, rank_main, &j) < 0)
        fail_msg("%s", cx.message);
    asp_plan_destroy(plan);
    result.report.peak_at = NULL;
    return result;
}

void tiny_free(tiny_result *r) { free(r->gradients); }

static double norm(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(sum);
}

double tiny_gradient_error(const tiny_result *a, const tiny_result *b)
{
    double worst = 0, all = norm(a->gradients, NULL, a->count);
    for (int p = 0; p < a->n_params; p++) {
        const double *x = a->gradients + a->offset[p], *y = b->gradients + b->offset[p];
        double error = norm(x, y, a->length[p]),
               scale = fmax(norm(x, NULL, a->length[p]), 0.01 * all);
        worst = fmax(worst, scale > 0 ? error / scale : error);
    }
    return worst;
}
