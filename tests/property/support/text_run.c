// Neighbours: text_run.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "property/support/text_run.h"

#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

typedef struct job {
    const text_case *c;
    asp_plan *plan;
    text_result *result;
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

static void fill(const job *j, asp_rank *r)
{
    double *params = asp_rank_slab(r, ASP_SLAB_PARAM);
    for (int p = 0; p < asp_plan_n_params(j->plan); p++) {
        const asp_plan_param *a = asp_plan_get_param(j->plan, p);
        bool one = strstr(a->name, "norm") != NULL;
        for (int64_t i = 0; i < a->count; i++)
            params[a->offset + i] = (one ? 1 : 0) + 0.5 * uniform(j->c->seed, a->name, i);
    }
    for (int k = 0; k < asp_plan_n_inputs(j->plan); k++) {
        const asp_plan_input *in = asp_plan_get_input(j->plan, k);
        int64_t *at = asp_rank_input(r, k), count = in->bytes / 8, s = in->dim[1];
        for (int64_t i = 0; i < count; i++) {
            uint64_t x = mixed(j->c->seed, in->name, i);
            at[i] = (int64_t)(x % (uint64_t)j->c->vocab);
            bool far = j->c->empty_from && i % s >= j->c->empty_from;
            if (strcmp(in->role, "labels") == 0 && (x >> 40) % 5 == 0) at[i] = -100;
            if (strcmp(in->role, "labels") == 0 && far) at[i] = -100;
            if (strcmp(in->name, "segments") == 0) at[i] = i % s / 3; // documents of three tokens
            if (strcmp(in->name, "keep") == 0) at[i] = i % s != 1 || (x >> 20) % 2;
        }
    }
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
    if (s == ASP_OK && asp_comm_rank(comm) == 0) {
        const double *slab = asp_rank_slab(r, ASP_SLAB_GRAD);
        j->result->loss = loss;
        for (int p = 0; p < j->result->n; p++) {
            const asp_plan_param *a = asp_plan_get_param(j->plan, p);
            text_gradient *g = &j->result->grad[p];
            for (int64_t i = 0; i < a->count; i++) g->at[i] = slab[a->offset + i];
        }
    }
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
                             .sp = c->sp,
                             .ac = c->ac,
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
        }
        r.status = asp_ranks_run(&cx, ASP_COMM_thread, (int)c->ranks, rank_main, &j);
        asp_plan_destroy(j.plan);
        r.report.peak_at = NULL;
    }
    snprintf(r.message, sizeof r.message, "%.500s", r.status < 0 ? cx.message : "");
    return r;
}

void text_free(text_result *r)
{
    for (int p = 0; p < r->n; p++) free(r->grad[p].at);
}

static double norm(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(sum);
}

double text_gradient_error(const text_result *a, const text_result *b)
{
    double all = 0, worst = 0;
    for (int p = 0; p < a->n; p++) all += pow(norm(a->grad[p].at, NULL, a->grad[p].count), 2);
    all = sqrt(all);
    for (int p = 0; p < a->n; p++)
        for (int q = 0; q < b->n; q++) {
            if (strcmp(a->grad[p].name, b->grad[q].name) != 0) continue;
            double d = norm(a->grad[p].at, b->grad[q].at, a->grad[p].count);
            double scale = fmax(norm(a->grad[p].at, NULL, a->grad[p].count), 0.01 * all);
            if (!isfinite(d) || !isfinite(scale)) return (double)NAN;
            if (scale > 0) worst = fmax(worst, d / scale);
        }
    return worst;
}
