// How long the whole pipeline takes for a Llama (8b: Llama-3.1-8B shapes), pass by pass, and what
// it needs: the figures of "a plan is made in 1.5 s and 300 MB, and near linear in the layers".
//   bench_compile [model=8b] [layers=32] [seq=131072] [ranks=8] [ac=layer] [batch=1]
// SPDX-License-Identifier: Apache-2.0
#include "front/front.h"
#include "run/compile.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

typedef struct args {
    const char *model;
    int64_t layers, seq, ranks, batch;
    const char *ac;
} args;

static double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static double told(const char *what, double since)
{
    double now = ms();
    printf("  %-14s %8.1f ms\n", what, now - since);
    return now;
}

static asp_status run_passes(asp_ctx *cx, asp_graph *g, const char *pipeline,
                             const asp_pass_options *o)
{
    for (const char *at = pipeline; *at;) {
        char name[64];
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        at += n + (at[n] == ',');
        double start = ms();
        ASP_TRY(asp_passes_run(cx, g, name, o, NULL));
        told(name, start);
    }
    return ASP_OK;
}

static void show(const asp_plan_report *r)
{
    char a[32], b[32];
    for (int k = 0; k < ASP_MEM_KIND_COUNT; k++)
        printf("  %-12s %s\n", asp_mem_kind_name(k),
               asp_human_bytes(a, sizeof a, r->bytes_by_kind[k]));
    printf("  arena %s, live %s (%.2f %%), steps %d\n  peak at %s\n",
           asp_human_bytes(a, sizeof a, r->arena_bytes),
           asp_human_bytes(b, sizeof b, r->max_live_bytes),
           100.0 * (double)(r->arena_bytes - r->max_live_bytes) / (double)r->max_live_bytes,
           r->n_steps, r->peak_at);
    for (int i = 0; i < r->n_largest; i++)
        printf("    %-10s %-12s %s\n", asp_human_bytes(a, sizeof a, r->largest[i].bytes),
               r->largest[i].op, r->largest[i].loc);
    for (int i = 0; i < r->n_exchanges; i++)
        printf("  %s %s: %lld, %s\n", asp_comm_op_name(r->exchanges[i].op), r->exchanges[i].what,
               (long long)r->exchanges[i].count,
               asp_human_bytes(a, sizeof a, r->exchanges[i].bytes));
    printf("  %.3g FLOP\n", r->flops);
}

static const struct {
    const char *name;
    asp_hf_config config;
} models[] = {
    {"8b", {.vocab = 128256, .hidden = 4096, .heads = 32, .kv_heads = 8, .intermediate = 14336}},
    {"30m", {.vocab = 4096, .hidden = 512, .heads = 8, .kv_heads = 8, .intermediate = 1408}},
    {"demo", {.vocab = 256, .hidden = 192, .heads = 6, .kv_heads = 2, .intermediate = 512}},
};

static asp_status find_model(asp_ctx *cx, const char *name, asp_hf_config *out_config)
{
    for (size_t i = 0; i < ASP_COUNT_OF(models); i++) {
        if (strcmp(models[i].name, name) != 0) continue;
        *out_config = models[i].config;
        out_config->head_dim = out_config->hidden / out_config->heads;
        out_config->rope_theta = 500000;
        out_config->norm_eps = 1e-5;
        out_config->initializer_range = 0.02;
        return ASP_OK;
    }
    return asp_fail(cx, ASP_ERR_USAGE, "model %s is not 8b, 30m or demo", name);
}

static asp_status measure(asp_ctx *cx, void *arg)
{
    const args *x = arg;
    asp_hf_config c;
    ASP_TRY(find_model(cx, x->model, &c));
    c.layers = x->layers;
    asp_pass_options o = {.ranks = x->ranks,
                          .sp = "ulysses",
                          .ac = x->ac,
                          .env = {.at = {{"S", x->seq}, {"B", x->batch}}, .n = 2}};
    asp_run_options run = {
        .env = o.env, .threads = 1, .backend = ASP_COMM_thread, .optimizer = true};
    asp_graph *g;
    asp_plan *plan;
    double begin = ms(), at = begin;
    ASP_TRY(asp_front_hf(cx, &c, ASP_F32, &g));
    told("front", at);
    ASP_TRY(run_passes(cx, g, ASP_PIPELINE_SHARD "," ASP_PIPELINE_JOINT "," ASP_PIPELINE_PLAN, &o));
    at = ms();
    ASP_TRY(asp_plan_create(cx, g, &run, &plan));
    at = told("plan", at);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("  whole          %8.1f ms, %u nodes, %ld MiB\n", at - begin, g->n_nodes,
           u.ru_maxrss / 1024);
    show(asp_plan_get_report(plan));
    asp_plan_destroy(plan);
    asp_graph_destroy(g);
    return ASP_OK;
}

int main(int argc, char **argv)
{
    args x = {.model = argc > 1 ? argv[1] : "8b",
              .layers = argc > 2 ? atoll(argv[2]) : 32,
              .seq = argc > 3 ? atoll(argv[3]) : 131072,
              .ranks = argc > 4 ? atoll(argv[4]) : 8,
              .ac = argc > 5 ? argv[5] : "layer",
              .batch = argc > 6 ? atoll(argv[6]) : 1};
    asp_ctx cx;
    asp_ctx_init(&cx);
    if (asp_guard(&cx, measure, &x) < 0) fprintf(stderr, "%s\n", cx.message);
    return 0;
}
