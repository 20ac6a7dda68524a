// What it costs to keep less, where attention is most of a step: a budget of half of what `none`
// takes, and tiles; what selective recomputation brings to the length, and what it keeps of
// attention and of MLPs.
//   bench_price [seq=6144] [rounds=3] [ranks=1] [cap MiB of the lengths=96]
// Steps of all plans take turns in one process; the figures are medians of processor time, which
// other work on the machine does not add to.  A Llama of 4 layers of 128, 4 heads, f32.
// Neighbours: trainability.c (lengths), support/llama.h.  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "bench/support/llama.h"
#include "pass/remat.h"
#include "train/train.h"

#include <stdlib.h>
#include <time.h>

#define MIB 1048576.0
#define MOST_ROUNDS 15
#define TILE 512

static const llama_sizes sizes = {128, 4, 4, 4, 32, 344, 256};

typedef enum plan_id { NONE, HALF, TILED, DEFAULT, SAC, SAC_TILED, FORWARD, N_PLANS } plan_id;

static const struct {
    const char *name, *ac;
    int64_t tile;
    bool forward; // no derivative
} plans[N_PLANS] = {
    [NONE] = {"none", "none", 0, false},
    [HALF] = {"budget of half of none's memory", "budget", 0, false},
    [TILED] = {"none, tiles of 512", "none", TILE, false},
    [DEFAULT] = {"default (sequence parallel only)", "default", 0, false},
    [SAC] = {"sac", "sac", 0, false},
    [SAC_TILED] = {"sac, tiles of 512", "sac", TILE, false},
    [FORWARD] = {"the forward alone", "none", 0, true},
};

typedef struct bench {
    int64_t seq, ranks, cap;
    int rounds;
    asp_plan *plan[N_PLANS];
    double seconds[N_PLANS][MOST_ROUNDS];
} bench;

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t bytes_of(const asp_plan *p) { return asp_plan_get_report(p)->rank_bytes; }

// ---- plans -------------------------------------------------------------------------------------

static asp_compile_options options_of(const bench *b, plan_id id)
{
    return (asp_compile_options){.ranks = b->ranks,
                                 .batch = 1,
                                 .seq = b->seq,
                                 .threads = 1,
                                 .sp = "ulysses",
                                 .ac = plans[id].ac,
                                 .tile = plans[id].tile,
                                 .inference = plans[id].forward,
                                 .backend = ASP_COMM_thread,
                                 .optimizer = !plans[id].forward};
}

static asp_status make_plans(asp_ctx *cx, void *arg)
{
    bench *b = arg;
    for (plan_id id = NONE; id < N_PLANS; id++) {
        asp_compile_options o = options_of(b, id);
        asp_graph *joint;
        if (id == HALF) o.memory = bytes_of(b->plan[NONE]) / 2;
        ASP_TRY(llama_joint(cx, &sizes, &o, &joint));
        ASP_TRY(asp_compile_plan(cx, joint, &o, NULL, &b->plan[id]));
        asp_graph_destroy(joint);
    }
    if (bytes_of(b->plan[HALF]) * 2 > bytes_of(b->plan[NONE]))
        return asp_fail(cx, ASP_ERR_LIMIT, "half of none's memory is too little");
    return ASP_OK;
}

// ---- steps -------------------------------------------------------------------------------------

static void fill(asp_rank *r, const asp_plan *p)
{
    float *w = asp_rank_slab(r, ASP_SLAB_PARAM);
    for (int64_t i = 0; i < asp_plan_slab_count(p); i++) w[i] = (float)(i % 17 - 8) * 0.01f;
    for (int k = 0; k < asp_plan_n_inputs(p); k++) {
        int64_t *at = asp_rank_input(r, k);
        for (int64_t i = 0; i < asp_plan_get_input(p, k)->bytes / 8; i++) at[i] = i % 251;
    }
}

static asp_status take_turns(bench *b, asp_rank *const *r, asp_comm *comm)
{
    for (int round = -1; round < b->rounds; round++) { // -1: every page is touched
        for (plan_id id = NONE; id < N_PLANS; id++) {
            double loss;
            ASP_TRY(asp_comm_barrier(comm));
            const double began = processor_seconds();
            ASP_TRY(asp_rank_step(r[id], &loss));
            ASP_TRY(asp_comm_barrier(comm));
            if (asp_comm_rank(comm) == 0 && round >= 0)
                b->seconds[id][round] = processor_seconds() - began;
        }
    }
    return ASP_OK;
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    bench *b = arg;
    asp_team *team;
    asp_rank *r[N_PLANS] = {0};
    ASP_TRY(asp_team_create(cx, 1, -1, &team));
    asp_status s = ASP_OK;
    for (plan_id id = NONE; s == ASP_OK && id < N_PLANS; id++) {
        s = asp_rank_create(cx, b->plan[id], comm, team, &r[id]);
        if (s == ASP_OK) fill(r[id], b->plan[id]);
    }
    if (s == ASP_OK) s = take_turns(b, r, comm);
    for (plan_id id = NONE; id < N_PLANS; id++) asp_rank_destroy(r[id]);
    asp_team_destroy(team);
    return s;
}

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(bench *b, plan_id id)
{
    qsort(b->seconds[id], (size_t)b->rounds, sizeof(double), ascending);
    return b->seconds[id][b->rounds / 2];
}

// Of the FLOPs of products and attention, forward and backward.
static double attention_share(const bench *b)
{
    const llama_sizes *z = &sizes;
    const double s = (double)b->seq, width = (double)(z->heads * z->head_dim);
    const double attention = 7 * s * s * width * (double)z->layers;
    const double weights =
        (double)(z->layers * (2 * z->hidden * (z->heads + z->kv_heads) * z->head_dim +
                              3 * z->hidden * z->ffn) +
                 z->hidden * z->vocab);
    return attention / (attention + 6 * s * weights);
}

static void show_steps(bench *b)
{
    const double none = median(b, NONE), forward = median(b, FORWARD);
    printf("S %lld, %lld ranks: attention is %.1f %% of FLOPs\n", (long long)b->seq,
           (long long)b->ranks, 100 * attention_share(b));
    for (plan_id id = NONE; id < N_PLANS; id++)
        printf("  %-34s %8.3f s  %+6.2f %%  %9.2f MiB a rank\n", plans[id].name, median(b, id),
               100 * (median(b, id) / none - 1), (double)bytes_of(b->plan[id]) / MIB);
    printf("  tiles of 512 add to none %+.2f %%, to sac %+.2f %%; backward of sac, of default's: "
           "%.3f\n",
           100 * (median(b, TILED) / none - 1), 100 * (median(b, SAC_TILED) / median(b, SAC) - 1),
           (median(b, SAC) - forward) / (median(b, DEFAULT) - forward));
}

// ---- what is kept, how long it gets ------------------------------------------------------------

#define PARTS 3
static const char *const parts[PARTS] = {"self_attn", "mlp", ""}; // "": all, those included

// Bytes that a policy keeps for the backward of what the layers' attentions and MLPs make.
static asp_status kept_by(asp_ctx *cx, const bench *b, asp_remat_policy policy, double *out_mib)
{
    asp_arena a;
    asp_graph *g;
    asp_compile_options o = options_of(b, NONE);
    asp_pass_options passes = {.ranks = o.ranks,
                               .sp = o.sp,
                               .ac = "none",
                               .env = {.at = {{"S", o.seq}, {"B", o.batch}}, .n = 2}};
    asp_remat_description x;
    asp_remat_choice c;
    asp_arena_init(&a, cx);
    ASP_TRY(llama_joint(cx, &sizes, &o, &g));
    asp_pass px = {.cx = cx, .scratch = &a, .options = &passes};
    ASP_TRY(asp_remat_describe(&px, &a, g, &x));
    ASP_TRY(asp_remat_choose(cx, &a, &x.program, policy, &c));
    bool *seen = ASP_NEW_ARRAY(&a, bool, x.program.n_values);
    for (int i = 0; i < PARTS; i++) out_mib[i] = 0;
    for (uint32_t k = 0; k < c.n_saved; k++) {
        const uint32_t root = x.program.values[c.saved[k]].root;
        if (seen[root] || root < x.program.n_inputs) continue;
        seen[root] = true;
        const char *loc = asp_val_node(g, x.val_of[root])->loc;
        for (int i = 0; i < PARTS; i++)
            if (strstr(loc, parts[i])) out_mib[i] += (double)x.program.values[root].bytes / MIB;
    }
    asp_graph_destroy(g);
    asp_arena_fini(&a);
    return ASP_OK;
}

static asp_status longest(asp_ctx *cx, const bench *b, const char *ac, int64_t *out_seq)
{
    asp_graph *joint;
    asp_compile_options o = options_of(b, NONE);
    asp_plan *p;
    o.ranks = 2;
    o.seq = 128;
    ASP_TRY(llama_joint(cx, &sizes, &o, &joint));
    ASP_TRY(asp_compile_plan(cx, joint, &o, NULL, &p));
    const asp_plan_report *r = asp_plan_get_report(p);
    const int64_t states = r->bytes_by_kind[ASP_MEM_PARAM] + r->bytes_by_kind[ASP_MEM_GRAD] +
                           r->bytes_by_kind[ASP_MEM_OPTIMIZER];
    asp_plan_destroy(p);
    o.ac = ac;
    o.memory = states + b->cap;
    ASP_TRY(asp_train_longest(cx, joint, &o, o.memory, out_seq));
    asp_graph_destroy(joint);
    return ASP_OK;
}

static asp_status show_kept(asp_ctx *cx, void *arg)
{
    const bench *b = arg;
    static const struct {
        const char *ac;
        asp_remat_policy policy;
    } of[] = {{"default", ASP_REMAT_DEFAULT}, {"sac", ASP_REMAT_SAC}, {"layer", ASP_REMAT_LAYER}};
    double mib[PARTS], first[PARTS] = {0};
    int64_t seq, first_seq = 0;
    printf("kept for the backward, MiB a rank; the longest sequence of 2 ranks in %.0f MiB\n",
           (double)b->cap / MIB);
    for (size_t i = 0; i < ASP_COUNT_OF(of); i++) {
        ASP_TRY(kept_by(cx, b, of[i].policy, mib));
        ASP_TRY(longest(cx, b, of[i].ac, &seq));
        if (i == 0) memcpy(first, mib, sizeof mib), first_seq = seq;
        printf("  %-8s attention %8.2f (/ %.2f)  MLP %8.2f (/ %.2f)  all %8.2f (/ %.2f)  S %7lld "
               "(%.2f times)\n",
               of[i].ac, mib[0], first[0] / mib[0], mib[1], first[1] / mib[1], mib[2],
               first[2] / mib[2], (long long)seq, (double)seq / (double)first_seq);
    }
    return ASP_OK;
}

int main(int argc, char **argv)
{
    bench b = {.seq = argc > 1 ? atoll(argv[1]) : 6144,
               .rounds = argc > 2 ? atoi(argv[2]) : 3,
               .ranks = argc > 3 ? atoll(argv[3]) : 1,
               .cap = (argc > 4 ? atoll(argv[4]) : 96) << 20};
    asp_ctx cx;
    asp_ctx_init(&cx);
    if (b.rounds < 1 || b.rounds > MOST_ROUNDS || b.seq < 64 || b.ranks < 1) {
        fprintf(stderr, "1 to %d rounds, sequences from 64 tokens, ranks from 1\n", MOST_ROUNDS);
        return 2;
    }
    asp_status s = asp_guard(&cx, show_kept, &b);
    if (s == ASP_OK) s = asp_guard(&cx, make_plans, &b);
    if (s == ASP_OK) s = asp_ranks_run(&cx, ASP_COMM_thread, (int)b.ranks, rank_main, &b);
    if (s == ASP_OK)
        show_steps(&b);
    else
        fprintf(stderr, "%s\n", cx.message);
    return s != ASP_OK;
}
