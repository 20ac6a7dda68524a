// The longest sequence that trains under a cap, measured by running one whole step at that length:
// a row for each policy.
//   bench_trainability [model=30m] [cap MiB beside parameters, gradients and optimizer=384]
//                      [ranks=2] [threads of a rank=1] [rows to run, as 1,4: 0 plans only=0]
// Models: 30m (8 layers of 512, ffn 1408, 4,096 words), 110m (12 layers of 768, ffn 2048, 32,000
// words), 8b1 (one layer of Llama-3.1-8B, 32,000 words).  The first row is a graph written by hand
// for the ranks (baselines/llama.c) with PyTorch's cut.  The longest length comes from plans alone;
// then a process of its own allocates the ranks, runs forward and backward and walks over the
// optimizer's states, and its growth is compared with the plan.  Neighbours: train/fit.c (the
// search), support/growth.c (the measurement).  SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/llama.h"
#include "bench/support/growth.h"
#include "bench/support/llama.h"
#include "train/train.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB 1048576.0
#define OFFLOAD "/tmp"

typedef struct shape {
    const char *name;
    llama_sizes sizes;
} shape;

static const shape shapes[] = {
    {"30m", {512, 8, 8, 8, 64, 1408, 4096}},
    {"110m", {768, 12, 12, 12, 64, 2048, 32000}},
    {"8b1", {4096, 1, 32, 8, 128, 14336, 32000}},
};

typedef struct row {
    const char *name, *ac;
    int64_t tile;
    bool by_hand, offload, fused;
} row;

static const row rows[] = {
    {.name = "by hand, default", .ac = "default", .by_hand = true},
    {.name = "none", .ac = "none"},
    {.name = "default", .ac = "default"},
    {.name = "sac", .ac = "sac"},
    {.name = "layer", .ac = "layer"},
    {.name = "budget", .ac = "budget"},
    {.name = "sac + tile", .ac = "sac", .tile = 512},
    {.name = "layer + tile", .ac = "layer", .tile = 512},
    {.name = "budget + tile", .ac = "budget", .tile = 512},
    {.name = "... + fused optimizer", .ac = "budget", .tile = 512, .fused = true},
    {.name = "budget + tile + offload", .ac = "budget", .tile = 512, .offload = true},
    {.name = "... + fused optimizer", .ac = "budget", .tile = 512, .offload = true, .fused = true},
};

typedef struct run {
    const shape *s;
    int64_t cap, ranks;
    int threads;
    asp_graph *compiled, *by_hand; // joint
    const asp_graph *joint;        // of the row
    asp_compile_options options;
    asp_plan *plan;
} run;

static int64_t states(const asp_plan *p)
{
    const asp_plan_report *r = asp_plan_get_report(p);
    return r->bytes_by_kind[ASP_MEM_PARAM] + r->bytes_by_kind[ASP_MEM_GRAD] +
           r->bytes_by_kind[ASP_MEM_OPTIMIZER];
}

static asp_status compile_joint(asp_ctx *cx, void *arg)
{
    run *x = arg;
    return llama_joint(cx, &x->s->sizes, &x->options, &x->compiled);
}

static asp_status compile_by_hand(asp_ctx *cx, void *arg)
{
    run *x = arg;
    const llama_sizes *s = &x->s->sizes;
    const baseline_shape b = {.layers = (int)s->layers,
                              .heads = (int)s->heads,
                              .kv_heads = (int)s->kv_heads,
                              .width = (int)s->head_dim,
                              .ffn = (int)s->ffn,
                              .vocab = (int)s->vocab};
    asp_compile_options o = x->options;
    o.sp = "none";
    asp_model *m = baseline_llama(cx, &b, BASELINE_ULYSSES, (int)x->ranks);
    if (!m) return ASP_ERR_INPUT; // the message is there
    asp_status r = asp_compile_joint(cx, m->program.graph, &o, NULL, &x->by_hand);
    asp_model_destroy(m);
    return r;
}

// The longest sequence of a policy, and its plan.
static asp_status find_longest(asp_ctx *cx, void *arg)
{
    run *x = arg;
    asp_compile_options alone = x->options; // what is there beside the cap
    alone.ac = "none";
    alone.tile = 0;
    alone.fuse_optimizer = false;
    alone.offload = NULL;
    alone.seq = 64 * x->ranks;
    ASP_TRY(asp_compile_plan(cx, x->joint, &alone, NULL, &x->plan));
    x->options.memory = states(x->plan) + x->cap;
    asp_plan_destroy(x->plan);
    x->plan = NULL;
    ASP_TRY(asp_train_longest(cx, x->joint, &x->options, x->options.memory, &x->options.seq));
    if (x->options.seq == 0) return ASP_OK;
    return asp_compile_plan(cx, x->joint, &x->options, NULL, &x->plan);
}

// In a process of its own: what it says stands behind the row.  false: the step did not end well,
// or took more than 2 % over the plan.
static bool run_step(run *x)
{
    fflush(stdout);
    const pid_t child = fork();
    int status = 0;
    if (child == 0) {
        asp_ctx cx;
        growth g = {0};
        asp_ctx_init(&cx);
        asp_status s = growth_of_step(&cx, x->plan, x->threads, &g);
        if (s < 0) fprintf(stderr, "%s\n", cx.message);
        const double grown = (double)g.bytes;
        const double planned = (double)asp_plan_get_report(x->plan)->process_bytes;
        printf("  measured %9.1f MiB of %9.1f planned (%.3f), %7.1f s", grown / MIB, planned / MIB,
               grown / planned, g.seconds);
        fflush(stdout);
        _exit(s < 0 || grown > 1.02 * planned);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static bool one_row(run *x, const row *r, bool runs, double *first)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    x->joint = r->by_hand ? x->by_hand : x->compiled;
    x->options.sp = r->by_hand ? "none" : "ulysses";
    x->options.ac = r->ac;
    x->options.tile = r->tile;
    x->options.fuse_optimizer = r->fused;
    x->options.offload = r->offload ? OFFLOAD : NULL;
    x->plan = NULL;
    printf("%-24s", r->name);
    if (asp_guard(&cx, find_longest, x) < 0) {
        printf(" not available: %.100s\n", cx.message);
        return false;
    }
    const double seq = (double)x->options.seq;
    if (*first == 0) *first = seq;
    printf(" S %8.0f  %5.2fx", seq, *first > 0 ? seq / *first : 0);
    bool good = true;
    if (x->plan && runs) good = run_step(x);
    printf("%s%s\n", x->plan ? "  binds: " : "  does not fit",
           x->plan ? asp_plan_get_report(x->plan)->peak_at : "");
    fflush(stdout);
    asp_plan_destroy(x->plan);
    return good;
}

// Is the number in a list like 1,4?
static bool is_in(const char *list, int number)
{
    for (const char *s = list; *s; s += strspn(s, ",")) {
        if (atoi(s) == number) return true;
        s += strcspn(s, ",");
    }
    return false;
}

static bool compile_both(asp_ctx *cx, run *x)
{
    return asp_guard(cx, compile_joint, x) == ASP_OK && asp_guard(cx, compile_by_hand, x) == ASP_OK;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "30m", *to_run = argc > 5 ? argv[5] : "0";
    run x = {.cap = (argc > 2 ? atoll(argv[2]) : 384) << 20,
             .ranks = argc > 3 ? atoll(argv[3]) : 2,
             .threads = argc > 4 ? atoi(argv[4]) : 1};
    for (size_t i = 0; i < ASP_COUNT_OF(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0) x.s = &shapes[i];
    if (!x.s || x.ranks < 1 || x.threads < 1) {
        fprintf(stderr, "models: 30m, 110m, 8b1; ranks and threads from 1\n");
        return 2;
    }
    x.options = (asp_compile_options){.ranks = x.ranks,
                                      .batch = 1,
                                      .seq = 4096 * x.ranks,
                                      .threads = x.threads,
                                      .sp = "ulysses",
                                      .ac = "none",
                                      .backend = ASP_COMM_thread,
                                      .optimizer = true};
    asp_ctx cx;
    asp_ctx_init(&cx);
    bool good = compile_both(&cx, &x);
    if (!good) fprintf(stderr, "%s\n", cx.message);
    printf("%s, %lld MiB a rank beside parameters, gradients and optimizer, %lld ranks x %d "
           "threads, f32\n",
           name, (long long)(x.cap >> 20), (long long)x.ranks, x.threads);
    double first = 0;
    for (size_t i = 0; x.by_hand && i < ASP_COUNT_OF(rows); i++)
        good &= one_row(&x, &rows[i], is_in(to_run, (int)i + 1), &first);
    asp_graph_destroy(x.compiled);
    asp_graph_destroy(x.by_hand);
    return !good;
}
