// Row programs of a 30M Llama (hidden 512, ffn 1408) and the other row-wise kernels, as fractions
// of the rate of a[i] = b[i] + s c[i] on as many threads, measured in turns: necessary bytes over
// time, medians.  Arrays of f32, then of bf16.  `bench_rows [threads [rounds [print]]]`.
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/half.h"
#include "kern/optim.h"
#include "kern/rowprog.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MOST_ROUNDS 64
#define TURNS 5
#define ROWS 4096
#define TRIAD ((int64_t)1 << 23) // floats an array

// ---- the groups --------------------------------------------------------------------------------

typedef struct group {
    asp_rowval vals[40];
    asp_rowinstr ops[40];
    int n_vals, n_ops, n_slots;
} group;

static int in(group *g, asp_rowkind kind)
{
    g->vals[g->n_vals] = (asp_rowval){kind, g->n_slots++};
    return g->n_vals++;
}

static int op(group *g, asp_rowop op, asp_rowkind kind, int a, int b)
{
    g->vals[g->n_vals] = (asp_rowval){kind, -1};
    g->ops[g->n_ops++] = (asp_rowinstr){op, {a, b}, g->n_vals, 0.001953125};
    return g->n_vals++;
}
static void out(group *g, int v) { g->vals[v].slot = g->n_slots++; }

#define FULL(name, a, b) op(g, ASP_ROWOP_##name, ASP_ROW_FULL, a, b)
#define ROW(name, a, b) op(g, ASP_ROWOP_##name, ASP_ROW_ROW, a, b)
#define VECTOR(name, a, b) op(g, ASP_ROWOP_##name, ASP_ROW_VECTOR, a, b)

// h = x + d, y = h r w
static void norm(group *g)
{
    int x = in(g, ASP_ROW_FULL), d = in(g, ASP_ROW_FULL), w = in(g, ASP_ROW_VECTOR);
    int h = FULL(add, x, d), mean = ROW(mul_scalar, ROW(sum_cols, FULL(mul, h, h), 0), 0);
    int r = ROW(rsqrt, ROW(add_scalar, mean, 0), 0), y = FULL(mul, FULL(mul, h, r), w);
    out(g, h), out(g, r), out(g, y);
}

// The derivative of y = (x r) w as the pass builds it, with the residual's.
static void norm_grad(group *g)
{
    int x = in(g, ASP_ROW_FULL), dy = in(g, ASP_ROW_FULL), res = in(g, ASP_ROW_FULL);
    int w = in(g, ASP_ROW_VECTOR), r = in(g, ASP_ROW_ROW);
    int xr = FULL(mul, x, r), dw = VECTOR(sum_rows, FULL(mul, dy, xr), 0), dxr = FULL(mul, dy, w);
    int dr = ROW(sum_cols, FULL(mul, dxr, x), 0), cube = ROW(mul, ROW(mul, r, r), r);
    int dm = ROW(mul_scalar, ROW(mul, dr, ROW(mul_scalar, cube, 0)), 0);
    int spread = FULL(copy, dm, 0), t = FULL(mul, spread, x);
    int dx = FULL(add, FULL(add, FULL(mul, dxr, r), t), t);
    out(g, dw), out(g, FULL(add, dx, res));
}

static void swiglu(group *g)
{
    int a = in(g, ASP_ROW_FULL), b = in(g, ASP_ROW_FULL);
    out(g, FULL(mul, FULL(silu, a, 0), b));
}

static void swiglu_grad(group *g)
{
    int a = in(g, ASP_ROW_FULL), b = in(g, ASP_ROW_FULL), dy = in(g, ASP_ROW_FULL);
    int du = FULL(mul, dy, FULL(silu, a, 0));
    out(g, FULL(silu_grad, a, FULL(mul, dy, b))), out(g, du);
}

static void one_add(group *g)
{
    int a = in(g, ASP_ROW_FULL), b = in(g, ASP_ROW_FULL);
    out(g, FULL(add, a, b));
}

// ---- timing ------------------------------------------------------------------------------------

typedef struct job {
    const asp_rowprog *program;
    const asp_kern_row *row;
    asp_kcall call;
    void *ptrs[16];
    void *work;
    const asp_optim_kernels *optim;
    int64_t n;
} job;

static void work(void *arg, asp_worker *w)
{
    const job *j = arg;
    if (j->program) {
        asp_rowprog_run(j->program, j->ptrs, j->work, w);
    } else if (j->row) {
        j->row->fn(&j->call, w);
    } else {
        const asp_adamw_step_args a = {.scale = 1,
                                       .beta1 = .9,
                                       .beta2 = .95,
                                       .rate = 1e-3,
                                       .correct = 1,
                                       .eps = 1e-8,
                                       .decay = 1e-4};
        for (int64_t c; (c = asp_team_next(w, j->n >> 16)) >= 0;) {
            float *p[4];
            for (int i = 0; i < 4; i++) p[i] = (float *)j->ptrs[i] + (c << 16);
            j->optim->adamw_f32(&a, p[0], p[1], p[2], p[3], 1 << 16);
        }
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float number(int64_t i) { return (float)((i * 7919) % 1000) * 0.002f - 1.0f; }

static void *numbers(int64_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 }; // as a rank's memory has them
    const size_t whole = (size_t)asp_round_up(bytes + 1, HUGE_PAGE);
    float *p = aligned_alloc(HUGE_PAGE, whole);
    if (!p) abort();
    madvise(p, whole, MADV_HUGEPAGE);
    for (int64_t i = 0; i < bytes / 4; i++) p[i] = number(i);
    return p;
}

static void *half_numbers(int64_t n)
{
    uint16_t *p = numbers(2 * n);
    for (int64_t i = 0; i < n; i++) p[i] = asp_to_bf16(number(i));
    return p;
}

typedef struct bench {
    asp_ctx cx;
    asp_arena arena;
    asp_team *team;
    int rounds;
    bool print;
    float *triad[3];
} bench;

static void triad_work(void *arg, asp_worker *w)
{
    float *const *at = arg;
    float *restrict a = at[0];
    const float *restrict x = at[1], *restrict y = at[2];
    const int64_t from = TRIAD * w->thread / w->n_threads,
                  end = TRIAD * (w->thread + 1) / w->n_threads;
    for (int64_t i = from; i < end; i++) a[i] = x[i] + 0.5f * y[i];
}

static double seconds_of(bench *b, asp_team_fn *fn, void *arg)
{
    const double t0 = asp_seconds();
    asp_team_run(b->team, fn, arg);
    return asp_seconds() - t0;
}

// In turns, so that operands are cold; a round has the best of a few turns of each.
static void measure(bench *b, const char *name, job *j, int64_t bytes, int64_t elements)
{
    double rates[MOST_ROUNDS], share[MOST_ROUNDS];
    for (int r = 0; r < b->rounds; r++) {
        double best = HUGE_VAL, triad_best = HUGE_VAL;
        for (int turn = 0; turn < TURNS; turn++) {
            triad_best = fmin(triad_best, seconds_of(b, triad_work, b->triad));
            best = fmin(best, seconds_of(b, work, j));
        }
        rates[r] = 1e-9 * (double)bytes / best;
        share[r] = rates[r] / (12e-9 * TRIAD / triad_best);
    }
    qsort(rates, (size_t)b->rounds, sizeof *rates, by_value);
    qsort(share, (size_t)b->rounds, sizeof *share, by_value);
    printf("%-24s %7.2f GB/s  %6.3f ns/element  %.2f of triad\n", name, rates[b->rounds / 2],
           (double)bytes / (double)elements / rates[b->rounds / 2], share[b->rounds / 2]);
}

static void bench_group(bench *b, const char *name, void (*make)(group *), int64_t cols, bool half)
{
    group g = {.n_vals = 0};
    job j = {.program = NULL};
    bool halves[16] = {false};
    make(&g);
    for (int i = 0; half && i < g.n_vals; i++)
        if (g.vals[i].slot >= 0 && g.vals[i].kind == ASP_ROW_FULL) halves[g.vals[i].slot] = true;
    const asp_rowdesc d = {ROWS, cols, g.n_slots, g.n_vals, g.n_ops, halves, g.vals, g.ops};
    const char *wrong = asp_rowdesc_check(&d);
    if (wrong) fprintf(stderr, "%s: %s\n", name, wrong), abort();
    j.program = asp_rowprog_build(&b->arena, &d, asp_isa_best());
    for (int i = 0; i < g.n_slots; i++)
        j.ptrs[i] = halves[i] ? half_numbers(ROWS * cols) : numbers(ROWS * cols * 4);
    j.work = numbers(asp_rowprog_work_bytes(j.program, asp_team_size(b->team)));
    measure(b, name, &j, asp_rowprog_traffic_bytes(j.program), ROWS * cols);
    if (b->print) {
        asp_text t;
        asp_text_init(&t, &b->arena);
        asp_rowprog_print(j.program, &t);
        printf("%s", t.at);
    }
    for (int i = 0; i < g.n_slots; i++) free(j.ptrs[i]);
    free(j.work);
}

static void bench_groups(bench *b, bool half)
{
    printf("%s\n", half ? "arrays of bf16" : "arrays of f32");
    bench_group(b, "add", one_add, 512, half);
    bench_group(b, "residual + rms_norm", norm, 512, half);
    bench_group(b, "rms_norm grad", norm_grad, 512, half);
    bench_group(b, "swiglu", swiglu, 1408, half);
    bench_group(b, "swiglu grad", swiglu_grad, 1408, half);
}

static asp_tensor tensor(asp_dtype dtype, int rank, const int64_t *dim)
{
    asp_tensor t = {.dtype = dtype, .rank = rank};
    memcpy(t.dim, dim, (size_t)rank * sizeof *dim);
    t.data = numbers(asp_tensor_count(&t) * asp_dtypes[dtype].bytes);
    return t;
}
#define TENSOR(dtype, ...) \
    tensor(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]){__VA_ARGS__})

static void bench_kernel(bench *b, asp_op op, asp_kcall *k, int64_t bytes)
{
    job j = {.row = asp_kern_choose(op, k->out[0].dtype)};
    const int64_t want = j.row->work ? j.row->work(k, asp_team_size(b->team)) : 0;
    k->work = numbers(want);
    j.call = *k;
    measure(b, asp_ops[op].name, &j, bytes, asp_tensor_count(&k->in[0]));
    free(k->work);
    for (int i = 0; i < k->n_in; i++) free(k->in[i].data);
    for (int i = 0; i < k->n_out; i++) free(k->out[i].data);
}

static void bench_kernels(bench *b)
{
    enum { HEADS = 8, WIDTH = 64, VOCAB = 4096, N = ROWS * HEADS * WIDTH };
    const asp_permute_attr swap = {.perm = {4, {0, 2, 1, 3}}};
    asp_kcall k = {.attr = &swap, .n_in = 1, .n_out = 1};
    k.in[0] = TENSOR(ASP_F32, 1, ROWS, HEADS, WIDTH);
    k.out[0] = TENSOR(ASP_F32, 1, HEADS, ROWS, WIDTH);
    bench_kernel(b, ASP_OP_permute, &k, (int64_t)8 * N);

    const asp_rotary_attr turn = {.inverse = false};
    k = (asp_kcall){.attr = &turn, .n_in = 3, .n_out = 1};
    k.in[0] = TENSOR(ASP_F32, 1, HEADS, ROWS, WIDTH);
    k.in[1] = TENSOR(ASP_F32, ROWS, WIDTH / 2);
    k.in[2] = TENSOR(ASP_F32, ROWS, WIDTH / 2);
    k.out[0] = TENSOR(ASP_F32, 1, HEADS, ROWS, WIDTH);
    bench_kernel(b, ASP_OP_rotary, &k, (int64_t)8 * N);

    const asp_nll_attr labels = {.ignore = -100};
    k = (asp_kcall){.attr = &labels, .n_in = 2, .n_out = 2};
    k.in[0] = TENSOR(ASP_F32, ROWS, VOCAB);
    k.in[1] = TENSOR(ASP_I64, ROWS);
    k.out[0] = TENSOR(ASP_F32, 1);
    k.out[1] = TENSOR(ASP_F32, ROWS);
    for (int64_t i = 0; i < ROWS; i++) ((int64_t *)k.in[1].data)[i] = i % VOCAB;
    bench_kernel(b, ASP_OP_nll, &k, (int64_t)4 * ROWS * VOCAB);

    k = (asp_kcall){.attr = &labels, .n_in = 4, .n_out = 1};
    k.in[0] = TENSOR(ASP_F32, ROWS, VOCAB);
    k.in[1] = TENSOR(ASP_F32, ROWS);
    k.in[2] = TENSOR(ASP_I64, ROWS);
    k.in[3] = TENSOR(ASP_F32, 1);
    k.out[0] = TENSOR(ASP_F32, ROWS, VOCAB);
    for (int64_t i = 0; i < ROWS; i++) ((int64_t *)k.in[2].data)[i] = i % VOCAB;
    bench_kernel(b, ASP_OP_nll_grad, &k, (int64_t)8 * ROWS * VOCAB);
}

static void bench_adamw(bench *b)
{
    job j = {.optim = asp_optim_choose(asp_isa_best()), .n = (int64_t)1 << 23};
    for (int i = 0; i < 4; i++) {
        float *p = j.ptrs[i] = numbers(j.n * 4);
        for (int64_t l = 0; i == 3 && l < j.n; l++) p[l] = p[l] * p[l];
    }
    measure(b, "adamw", &j, j.n * 28, j.n);
    for (int i = 0; i < 4; i++) free(j.ptrs[i]);
}

int main(int argc, char **argv)
{
    bench b = {.rounds = argc > 2 ? (int)asp_max(1, asp_min(MOST_ROUNDS, atoi(argv[2]))) : 7};
    b.print = argc > 3;
    asp_ctx_init(&b.cx);
    asp_arena_init(&b.arena, &b.cx);
    if (asp_team_create(&b.cx, argc > 1 ? atoi(argv[1]) : 1, 0, &b.team) < 0) {
        fprintf(stderr, "%s\n", b.cx.message);
        return 1;
    }
    for (int i = 0; i < 3; i++) b.triad[i] = numbers(TRIAD * 4);
    bench_groups(&b, false);
    bench_kernels(&b);
    bench_adamw(&b);
    bench_groups(&b, true);
    for (int i = 0; i < 3; i++) free(b.triad[i]);
    asp_team_destroy(b.team);
    asp_arena_fini(&b.arena);
    return 0;
}
