// The longest sequence that trains under a cap, measured by running one whole step at that length:
// a row for each policy.
//   bench_trainability [model=30m] [cap MiB beside parameters, gradients and optimizer=384]
//                      [ranks=2] [threads of a rank=1] [most tokens to run, 0: plan only=0]
// Models: 30m (8 layers of 512, ffn 1408, 4,096 words), 110m (12 layers of 768, ffn 2048, 32,000
// words), 8b1 (one layer of Llama-3.1-8B, 32,000 words).  The longest length comes from plans
// alone; then a process of its own allocates the ranks, runs forward, backward and a walk over the
// optimizer's states, and its growth is compared with the plan.  Rows above the given length are
// planned only.  Neighbours: train/fit.c (the search), memory.c (one measurement).
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "front/front.h"
#include "train/train.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB 1048576.0

typedef struct shape {
    const char *name;
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
} shape;

static const shape shapes[] = {
    {"30m", 512, 8, 8, 8, 64, 1408, 4096},
    {"110m", 768, 12, 12, 12, 64, 2048, 32000},
    {"8b1", 4096, 1, 32, 8, 128, 14336, 32000},
};

typedef struct row {
    const char *name, *ac;
    int64_t tile;
} row;

static const row rows[] = {
    {"ulysses, none", "none", 0},
    {"ulysses, default", "default", 0},
    {"sac", "sac", 0},
    {"layer", "layer", 0},
    {"budget", "budget", 0},
    {"none + tile", "none", 512},
    {"sac + tile", "sac", 512},
    {"layer + tile", "layer", 512},
    {"budget + tile", "budget", 512},
};

typedef struct run {
    const shape *s;
    int64_t cap, ranks;
    int threads;
    asp_graph *joint;
    asp_compile_options options;
    asp_plan *plan;
    int64_t before, after;
} run;

// Bytes of RssAnon in /proc/self/status; 0 where the system has none.
static int64_t resident(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %lld kB", &kib) == 1) break;
    if (f) fclose(f);
    return kib * 1024;
}

static int64_t states(const asp_plan *p)
{
    const asp_plan_report *r = asp_plan_get_report(p);
    return r->bytes_by_kind[ASP_MEM_PARAM] + r->bytes_by_kind[ASP_MEM_GRAD] +
           r->bytes_by_kind[ASP_MEM_OPTIMIZER];
}

static asp_status compile_joint(asp_ctx *cx, void *arg)
{
    run *x = arg;
    const shape *s = x->s;
    asp_hf_config c = {.vocab = s->vocab,
                       .hidden = s->hidden,
                       .layers = s->layers,
                       .heads = s->heads,
                       .kv_heads = s->kv_heads,
                       .head_dim = s->head_dim,
                       .intermediate = s->ffn,
                       .rope_theta = 10000,
                       .norm_eps = 1e-5,
                       .initializer_range = 0.02};
    asp_graph *g;
    ASP_TRY(asp_front_hf(cx, &c, ASP_F32, &g));
    asp_status r = asp_compile_joint(cx, g, &x->options, NULL, &x->joint);
    asp_graph_destroy(g);
    return r;
}

// The longest sequence of a policy, and its plan.
static asp_status find_longest(asp_ctx *cx, void *arg)
{
    run *x = arg;
    x->options.seq = 64 * x->ranks;
    ASP_TRY(asp_compile_plan(cx, x->joint, &x->options, NULL, &x->plan));
    const int64_t memory = states(x->plan) + x->cap;
    asp_plan_destroy(x->plan);
    x->plan = NULL;
    ASP_TRY(asp_train_longest(cx, x->joint, &x->options, memory, &x->options.seq));
    if (x->options.seq == 0) return ASP_OK;
    return asp_compile_plan(cx, x->joint, &x->options, NULL, &x->plan);
}

static void fill(asp_rank *r, const asp_plan *p)
{
    float *w = asp_rank_slab(r, ASP_SLAB_PARAM), *m = asp_rank_slab(r, ASP_SLAB_M),
          *v = asp_rank_slab(r, ASP_SLAB_V);
    for (int64_t i = 0; i < asp_plan_slab_count(p); i++)
        w[i] = (float)(i % 17 - 8) * 0.01f, m[i] = v[i] = 0;
    for (int k = 0; k < asp_plan_n_inputs(p); k++) {
        int64_t *at = asp_rank_input(r, k);
        for (int64_t i = 0; i < asp_plan_get_input(p, k)->bytes / 8; i++) at[i] = i % 251;
    }
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    run *x = arg;
    asp_team *team;
    asp_rank *r;
    double loss;
    ASP_TRY(asp_team_create(cx, x->threads, -1, &team));
    ASP_TRY(asp_rank_create(cx, x->plan, comm, team, &r));
    fill(r, x->plan);
    ASP_TRY(asp_rank_step(r, &loss));
    ASP_TRY(asp_comm_barrier(comm));
    if (asp_comm_rank(comm) == 0) x->after = resident();
    ASP_TRY(asp_comm_barrier(comm));
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return ASP_OK;
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
        asp_ctx_init(&cx);
        x->before = resident();
        const double start = asp_seconds();
        asp_status s = asp_ranks_run(&cx, ASP_COMM_thread, (int)x->ranks, rank_main, x);
        if (s < 0) fprintf(stderr, "%s\n", cx.message);
        const double grown = (double)(x->after - x->before);
        const double planned = (double)asp_plan_get_report(x->plan)->process_bytes;
        printf("  measured %9.1f MiB of %9.1f planned (%.3f), %7.1f s", grown / MIB, planned / MIB,
               grown / planned, asp_seconds() - start);
        fflush(stdout);
        _exit(s < 0 || grown > 1.02 * planned);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static bool one_row(run *x, const row *r, int64_t most, double *first)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    x->options.ac = r->ac;
    x->options.tile = r->tile;
    x->plan = NULL;
    printf("%-18s", r->name);
    if (asp_guard(&cx, find_longest, x) < 0) {
        printf(" not available: %.100s\n", cx.message);
        return true;
    }
    const double seq = (double)x->options.seq;
    if (*first == 0) *first = seq;
    printf(" S %8.0f  %5.2fx", seq, *first > 0 ? seq / *first : 0);
    bool good = true;
    if (x->plan && x->options.seq <= most) good = run_step(x);
    printf("%s%s\n", x->plan ? "  binds: " : "  does not fit",
           x->plan ? asp_plan_get_report(x->plan)->peak_at : "");
    asp_plan_destroy(x->plan);
    return good;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "30m";
    run x = {.cap = (argc > 2 ? atoll(argv[2]) : 384) << 20,
             .ranks = argc > 3 ? atoll(argv[3]) : 2,
             .threads = argc > 4 ? atoi(argv[4]) : 1};
    const int64_t most = argc > 5 ? atoll(argv[5]) : 0;
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
    if (asp_guard(&cx, compile_joint, &x) < 0) {
        fprintf(stderr, "%s\n", cx.message);
        return 1;
    }
    printf("%s, %lld MiB a rank beside parameters, gradients and optimizer, %lld ranks x %d "
           "threads, f32\n",
           name, (long long)(x.cap >> 20), (long long)x.ranks, x.threads);
    bool good = true;
    double first = 0;
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) good &= one_row(&x, &rows[i], most, &first);
    asp_graph_destroy(x.joint);
    return !good;
}
