// Is a budget kept?  Budgets in even steps from the smallest that is feasible to what `none` takes:
// what the plan says, and by how much a process grew that ran one step under it.
//   bench_budgets [model=all] [budgets=20] [ranks=2] [threads of a rank=1]
// Models: mha, gqa, vocab (a wide head), deep.  A process a measurement.  Fails where a plan is
// over its budget, where the growth is over what the budget allows or below 0.97 of the plan, where
// peaks or FLOPs are not monotone, and where less than the smallest is not refused.
// Neighbours: run/budget.c (who chooses), support/growth.c (the measurement), memory.c.
// SPDX-License-Identifier: Apache-2.0
#include "bench/support/growth.h"
#include "bench/support/llama.h"
#include "run/compile.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB 1048576.0
#define LEAST 0.97 // of the plan

typedef struct shape {
    const char *name;
    int64_t seq;
    llama_sizes sizes;
} shape;

static const shape shapes[] = {
    {"mha", 1024, {192, 4, 8, 8, 24, 512, 256}},
    {"gqa", 1536, {192, 4, 8, 2, 24, 640, 256}},
    {"vocab", 768, {128, 3, 4, 4, 32, 344, 8192}},
    {"deep", 768, {128, 10, 4, 4, 32, 344, 256}},
};

typedef struct run {
    const shape *s;
    asp_graph *joint;
    asp_compile_options options;
    asp_plan *plan;
} run;

static asp_status compile_joint(asp_ctx *cx, void *arg)
{
    run *x = arg;
    return llama_joint(cx, &x->s->sizes, &x->options, &x->joint);
}

static asp_status plan(asp_ctx *cx, void *arg)
{
    run *x = arg;
    return asp_compile_plan(cx, x->joint, &x->options, NULL, &x->plan);
}

static asp_plan *plan_under(run *x, const char *ac, int64_t memory)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    x->options.ac = ac;
    x->options.memory = memory;
    if (asp_guard(&cx, plan, x) == ASP_OK) return x->plan;
    fprintf(stderr, "%s\n", cx.message);
    exit(2);
}

// Bytes that the process grew by, measured in one of its own; -1 where the step failed.
static int64_t measure(const run *x, const asp_plan *p)
{
    int tube[2], status;
    int64_t bytes = -1;
    fflush(stdout);
    if (pipe(tube) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
        asp_ctx cx;
        growth g = {0};
        asp_ctx_init(&cx);
        const bool ok = growth_of_step(&cx, p, x->options.threads, &g) == ASP_OK &&
                        write(tube[1], &g.bytes, sizeof g.bytes) == sizeof g.bytes;
        if (!ok) fprintf(stderr, "%s\n", cx.message);
        _exit(!ok);
    }
    close(tube[1]);
    if (child < 0 || read(tube[0], &bytes, sizeof bytes) != sizeof bytes) bytes = -1;
    close(tube[0]);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                   WEXITSTATUS(status) == 0
               ? bytes
               : -1;
}

typedef struct last {
    int64_t measured;
    double flops;
} last;

static bool one_budget(run *x, int64_t budget, last *before)
{
    asp_plan *p = plan_under(x, "budget", budget);
    const asp_plan_report *r = asp_plan_get_report(p);
    const int64_t beside = r->process_bytes - x->options.ranks * r->rank_bytes;
    const double allowed = (double)(x->options.ranks * budget + beside);
    const double measured = (double)measure(x, p), planned = (double)r->process_bytes;
    const bool keeps =
        r->rank_bytes <= budget && measured <= allowed && measured >= LEAST * planned;
    // Pages and stacks of the process itself differ by a little from run to run.
    const bool monotone =
        r->flops <= before->flops * 1.0001 && measured >= 0.995 * (double)before->measured;
    printf("%-6s %9.2f MiB allowed  %9.2f planned  %9.2f measured (%.3f)  %8.3f GFLOP again%s%s\n",
           x->s->name, allowed / MIB, planned / MIB, measured / MIB, measured / planned,
           r->repeated_flops / 1e9, keeps ? "" : "  NOT KEPT", monotone ? "" : "  NOT MONOTONE");
    *before = (last){(int64_t)measured, r->flops};
    asp_plan_destroy(p);
    return keeps && monotone;
}

static bool one_model(run *x, int n)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    if (asp_guard(&cx, compile_joint, x) < 0) {
        fprintf(stderr, "%s\n", cx.message);
        return false;
    }
    asp_plan *p = plan_under(x, "none", 0);
    const int64_t most = asp_plan_get_report(p)->rank_bytes;
    asp_plan_destroy(p);
    p = plan_under(x, "budget", 1); // none fits: the smallest
    const int64_t least = asp_plan_get_report(p)->rank_bytes;
    asp_plan_destroy(p);
    last before = {0, 1e300};
    bool good = least < most;
    for (int i = 0; i < n; i++)
        good &= one_budget(x, least + (most - least) / (n - 1) * i + (i + 1 == n ? n : 0), &before);
    p = plan_under(x, "budget", least - 1); // what is beyond its budget is refused by who asked
    if (asp_plan_get_report(p)->rank_bytes < least) {
        printf("%-6s less than the smallest was found: NOT KEPT\n", x->s->name);
        good = false;
    }
    asp_plan_destroy(p);
    asp_graph_destroy(x->joint);
    return good;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "all";
    const int n = argc > 2 ? atoi(argv[2]) : 20;
    bool good = true, known = false;
    for (size_t i = 0; i < ASP_COUNT_OF(shapes); i++) {
        run x = {.s = &shapes[i]};
        x.options = (asp_compile_options){.ranks = argc > 3 ? atoll(argv[3]) : 2,
                                          .batch = 1,
                                          .seq = shapes[i].seq,
                                          .threads = argc > 4 ? atoi(argv[4]) : 1,
                                          .sp = "ulysses",
                                          .ac = "none",
                                          .backend = ASP_COMM_thread,
                                          .optimizer = true};
        if (strcmp(name, "all") != 0 && strcmp(name, shapes[i].name) != 0) continue;
        known = true;
        if (n < 2 || x.options.ranks < 1 || x.options.threads < 1) break;
        good &= one_model(&x, n);
    }
    if (!known || n < 2)
        fprintf(stderr, "models: all, mha, gqa, vocab, deep; at least 2 budgets\n");
    return !known || n < 2 ? 2 : !good;
}
