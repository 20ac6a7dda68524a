// Neighbours: text_run.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "property/support/text_run.h"

#include "base/philox.h"
#include "train/train_int.h"

#include <math.h>
#include <stdlib.h>

typedef struct job {
    const text_case *c;
    asp_plan *plan;
    text_result *result;
    uint64_t bits[64]; // of each rank's loss and gradients
} job;

// A number of (seed, name, index): splitmix64, so that nothing of ours makes the reference values.
static uint64_t mixed(uint64_t seed, const char *name, int64_t i)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)i * UINT64_C(0xbf58476d1ce4e5b9);
    for (const char *s = name; *s; s++) x = (x ^ (uint8_t)*s) * UINT64_C(0x100000001b3);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double uniform(uint64_t seed, const char *name, int64_t i)
{
    return (double)(mixed(seed, name, i) >> 11) / 9007199254740992.0 * 2 - 1;
}

static const text_value *given(const text_case *c, const char *name, int64_t count)
{
    for (const text_value *v = c->given; v && v->name; v++) {
        if (strcmp(v->name, name) != 0) continue;
        if (v->count == count) return v;
        fprintf(stderr, "%s takes %lld numbers, not %lld\n", name, (long long)count,
                (long long)v->count);
        abort();
    }
    return NULL;
}

static void fill_params(const job *j, double *slab)
{
    for (int p = 0; p < asp_plan_n_params(j->plan); p++) {
        const asp_plan_param *a = asp_plan_get_param(j->plan, p);
        const text_value *v = given(j->c, a->name, a->count);
        bool one = strstr(a->name, "norm") != NULL;
        for (int64_t i = 0; i < a->count; i++) {
            double x = v ? v->at[i] : (one ? 1 : 0) + 0.5 * uniform(j->c->seed, a->name, i);
            slab[a->offset + i] = x * (1 + j->c->nudge * uniform(j->c->seed + 1, a->name, i));
        }
        if (j->c->moved && strcmp(j->c->moved, a->name) == 0)
            slab[a->offset + j->c->moved_at] += j->c->moved_by;
    }
}

static int64_t drawn(const text_case *c, const asp_plan_input *in, int64_t i)
{
    int64_t s = in->dim[1];
    uint64_t x = mixed(c->seed, in->name, i);
    bool far = c->empty_from && i % s >= c->empty_from;
    if (strcmp(in->role, "labels") == 0 && ((x >> 40) % 5 == 0 || far)) return -100;
    if (strcmp(in->name, "segments") == 0) return i % s / 3; // documents of three tokens
    if (strcmp(in->name, "keep") == 0) return i % s != 1 || (x >> 20) % 2;
    return (int64_t)(x % (uint64_t)c->vocab);
}

static void fill_input(const job *j, const asp_plan_input *in, void *at)
{
    int64_t count = in->bytes / asp_dtypes[in->dtype].bytes;
    const text_value *v = given(j->c, in->name, count);
    for (int64_t i = 0; i < count; i++) {
        if (in->dtype == ASP_F64)
            ((double *)at)[i] = v ? v->at[i] : uniform(j->c->seed, in->name, i);
        else if (in->dtype == ASP_BOOL)
            ((uint8_t *)at)[i] =
                v ? v->at[i] != 0 : (uint8_t)(mixed(j->c->seed, in->name, i) >> 63);
        else
            ((int64_t *)at)[i] = v ? (int64_t)v->at[i] : drawn(j->c, in, i);
    }
}

static void fill(const job *j, asp_rank *r)
{
    fill_params(j, asp_rank_slab(r, ASP_SLAB_PARAM));
    for (int k = 0; k < asp_plan_n_inputs(j->plan); k++)
        fill_input(j, asp_plan_get_input(j->plan, k), asp_rank_input(r, k));
}

// Every rank's own numbers; padding of slabs left out.
static uint64_t bits_of(const job *j, const double *slab, double loss)
{
    uint64_t bits = asp_hash(&loss, sizeof loss, 0);
    for (int p = 0; p < asp_plan_n_params(j->plan); p++) {
        const asp_plan_param *a = asp_plan_get_param(j->plan, p);
        bits = asp_hash(slab + a->offset, (size_t)a->count * sizeof *slab, bits);
    }
    return bits;
}

// Plain steps of 0.1, and AdamW's.  Its eps is large, so that noise beside a gradient of 0 does not
// become a step.
static asp_status update(job *j, asp_comm *comm, asp_ctx *cx, asp_team *team, asp_rank *r)
{
    const asp_adamw a = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-2, .weight_decay = 0.1};
    double *w = asp_rank_slab(r, ASP_SLAB_PARAM);
    const double *g = asp_rank_slab(r, ASP_SLAB_GRAD);
    const bool keeps = asp_comm_rank(comm) == 0;
    for (int p = 0; keeps && p < j->result->n; p++) {
        const asp_plan_param *x = asp_plan_get_param(j->plan, p);
        double *to = j->result->grad[p].sgd;
        for (int64_t i = 0; i < x->count; i++) to[i] = w[x->offset + i] - 0.1 * g[x->offset + i];
    }
    double *squares = calloc((size_t)asp_adamw_chunks(j->plan) + 1, sizeof *squares);
    if (!squares) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for the gradient norm");
    const asp_seat seat = {.team = team, .rank = r, .squares = squares};
    const double norm = asp_adamw_step(&a, &seat, j->plan, 0);
    free(squares);
    j->bits[asp_comm_rank(comm)] += bits_of(j, w, norm);
    for (int p = 0; keeps && p < j->result->n; p++) {
        const asp_plan_param *x = asp_plan_get_param(j->plan, p);
        memcpy(j->result->grad[p].adamw, w + x->offset, (size_t)x->count * sizeof *w);
    }
    return ASP_OK;
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    asp_team *team;
    asp_rank *r;
    double loss = (double)NAN;
    ASP_TRY(asp_team_create(cx, j->c->threads, -1, &team));
    ASP_TRY(asp_rank_create(cx, j->plan, comm, team, &r));
    fill(j, r);
    asp_status s = asp_rank_step(r, &loss);
    j->bits[asp_comm_rank(comm)] = bits_of(j, asp_rank_slab(r, ASP_SLAB_GRAD), loss);
    if (s == ASP_OK && asp_comm_rank(comm) == 0) {
        const double *slab = asp_rank_slab(r, ASP_SLAB_GRAD);
        j->result->loss = loss;
        for (int p = 0; p < j->result->n; p++) {
            const asp_plan_param *a = asp_plan_get_param(j->plan, p);
            text_gradient *g = &j->result->grad[p];
            for (int64_t i = 0; i < a->count; i++) g->at[i] = slab[a->offset + i];
        }
    }
    if (s == ASP_OK && j->c->update) s = update(j, comm, cx, team, r);
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return s;
}

static asp_status compile(asp_ctx *cx, void *arg)
{
    job *j = arg;
    const text_case *c = j->c;
    asp_graph *g;
    asp_compile_options o = {.ranks = c->ranks,
                             .batch = c->batch,
                             .seq = c->seq,
                             .threads = c->threads,
                             .tile = c->tile,
                             .sp = c->sp,
                             .ac = c->ac,
                             .dtype = c->dtype,
                             .optimizer = c->update,
                             .backend = ASP_COMM_thread};
    ASP_TRY(asp_graph_parse(cx, "program", c->text, strlen(c->text), &g));
    asp_status s = asp_compile(cx, g, &o, NULL, &j->plan);
    asp_graph_destroy(g);
    return s;
}

text_result text_run(const text_case *c)
{
    asp_ctx cx;
    text_result r = {0};
    job j = {.c = c, .result = &r};
    asp_ctx_init(&cx);
    r.status = asp_guard(&cx, compile, &j);
    if (r.status == ASP_OK) {
        r.n = asp_plan_n_params(j.plan);
        r.report = *asp_plan_get_report(j.plan);
        for (int p = 0; p < r.n; p++) {
            const asp_plan_param *a = asp_plan_get_param(j.plan, p);
            snprintf(r.grad[p].name, sizeof r.grad[p].name, "%s", a->name);
            r.grad[p].count = a->count;
            r.grad[p].at = calloc((size_t)a->count, sizeof(double));
            r.grad[p].sgd = c->update ? calloc((size_t)a->count, sizeof(double)) : NULL;
            r.grad[p].adamw = c->update ? calloc((size_t)a->count, sizeof(double)) : NULL;
        }
        r.status = asp_ranks_run(&cx, ASP_COMM_thread, (int)c->ranks, rank_main, &j);
        asp_plan_destroy(j.plan);
        r.ranks_agree = true;
        for (int i = 1; i < c->ranks; i++) r.ranks_agree &= j.bits[i] == j.bits[0];
        r.report.peak_at = NULL;
    }
    snprintf(r.message, sizeof r.message, "%.500s", r.status < 0 ? cx.message : "");
    return r;
}

void text_free(text_result *r)
{
    for (int p = 0; p < r->n; p++) {
        free(r->grad[p].at);
        free(r->grad[p].sgd);
        free(r->grad[p].adamw);
    }
}

static double norm(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(sum);
}

typedef const double *numbers_fn(const text_gradient *g);
static const double *gradient_of(const text_gradient *g) { return g->at; }
static const double *sgd_of(const text_gradient *g) { return g->sgd; }
static const double *adamw_of(const text_gradient *g) { return g->adamw; }

static double error_of(const text_result *a, const text_result *b, numbers_fn *of)
{
    double all = 0, worst = 0;
    for (int p = 0; p < a->n; p++) all += pow(norm(of(&a->grad[p]), NULL, a->grad[p].count), 2);
    all = sqrt(all);
    for (int p = 0; p < a->n; p++)
        for (int q = 0; q < b->n; q++) {
            if (strcmp(a->grad[p].name, b->grad[q].name) != 0) continue;
            double d = norm(of(&a->grad[p]), of(&b->grad[q]), a->grad[p].count);
            double scale = fmax(norm(of(&a->grad[p]), NULL, a->grad[p].count), 0.01 * all);
            if (!isfinite(d) || !isfinite(scale)) return (double)NAN;
            if (scale > 0) worst = fmax(worst, d / scale);
        }
    return worst;
}

double text_gradient_error(const text_result *a, const text_result *b)
{
    return error_of(a, b, gradient_of);
}

double text_update_error(const text_result *a, const text_result *b)
{
    const double sgd = error_of(a, b, sgd_of), adamw = error_of(a, b, adamw_of);
    return sgd >= adamw || isnan(sgd) ? sgd : adamw;
}
