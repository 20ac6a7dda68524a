// Random graphs of row-wise ops, products and sums: grouped, absorbed and in place they give the
// bits of their ops run one by one.  SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"
#include "run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define WIDTH 12
#define MAX_VALS 64
#define MAX_PARAMS 16

static uint32_t seed;

static uint32_t pick(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

// ---- a graph -----------------------------------------------------------------------------------

typedef struct maker {
    asp_builder b;
    asp_val full[MAX_VALS], row[MAX_VALS], vector[MAX_VALS]; // values of [S, 12], [S, 1], [12]
    uint32_t n_full, n_row, n_vector, n_params;
} maker;

static asp_val declare(maker *m, asp_op op, const void *attr, uint32_t rank, asp_size a, asp_size b)
{
    asp_type t = {.dtype = ASP_F32, .rank = rank, .dim = {a, b}};
    return asp_build_declared(&m->b, op, attr, &t);
}

static asp_val parameter(maker *m, uint32_t rank)
{
    char name[16];
    asp_size width = asp_size_num(m->b.g, WIDTH);
    snprintf(name, sizeof name, "p%u", m->n_params++);
    return declare(m, ASP_OP_param, &(asp_param_attr){.name = name, .init = "normal"}, rank, width,
                   width);
}

// A new parameter whose "gradient" is v.
static void give_out(maker *m, asp_val v, uint32_t rank)
{
    char name[16];
    if (m->n_params == MAX_PARAMS) return;
    snprintf(name, sizeof name, "p%u", m->n_params);
    parameter(m, rank);
    asp_graph_add_output(m->b.g, v, name);
}

static asp_val any(const asp_val *vals, uint32_t n)
{
    return vals[pick(2) ? n - 1 - pick(n < 4 ? n : 4) : pick(n)]; // recent ones are likely
}

static asp_val small_or_full(maker *m)
{
    switch (pick(6)) {
    case 0: return m->n_row ? any(m->row, m->n_row) : any(m->full, m->n_full);
    case 1: return m->n_vector ? any(m->vector, m->n_vector) : any(m->full, m->n_full);
    default: return any(m->full, m->n_full);
    }
}

static void add_op(maker *m)
{
    static const asp_op binary[] = {ASP_OP_add, ASP_OP_sub, ASP_OP_mul};
    static const asp_op unary[] = {ASP_OP_neg, ASP_OP_silu};
    asp_val x = any(m->full, m->n_full), y = any(m->full, m->n_full), z = small_or_full(m);
    asp_val operands[] = {x, z};
    switch (pick(12)) {
    case 0:
        m->row[m->n_row++] =
            ASP_B1(&m->b, sum, (&(asp_sum_attr){.dims = {.n = 1, .at = {1}}, .keep = true}), x);
        return;
    case 1: {
        asp_val v = ASP_B1(&m->b, sum, (&(asp_sum_attr){.dims = {.n = 1, .at = {0}}}), x);
        m->vector[m->n_vector++] = v;
        give_out(m, v, 1);
        return;
    }
    case 2: give_out(m, ASP_B2(&m->b, gemm_tn, NULL, x, y), 2); return;
    case 3: x = ASP_B2(&m->b, gemm_nt, NULL, x, parameter(m, 2)); break;
    case 4: x = ASP_B2(&m->b, silu_grad, NULL, x, y); break;
    case 5: x = asp_build(&m->b, unary[pick(2)], NULL, 1, &x); break;
    case 6:
        if (m->n_row) {
            asp_val r = any(m->row, m->n_row);
            m->row[m->n_row++] = asp_build_scaled(&m->b, ASP_B2(&m->b, mul, NULL, r, r), 0.25);
            return;
        }
        x = asp_build_scaled(&m->b, x, 0.5);
        break;
    default: x = asp_build(&m->b, binary[pick(3)], NULL, 2, operands); break;
    }
    m->full[m->n_full++] = x;
}

static asp_graph *random_graph(asp_ctx *cx)
{
    maker m = {.b = {.g = asp_graph_create(cx, "random"), .loc = "x"}};
    asp_graph *g = m.b.g;
    asp_size S = asp_size_sym(g, "S"), width = asp_size_num(g, WIDTH);
    for (uint32_t i = 0; i < 3; i++) {
        char name[] = {'x', (char)('0' + i), 0};
        m.full[m.n_full++] =
            declare(&m, ASP_OP_input, &(asp_input_attr){.name = name, .role = ""}, 2, S, width);
    }
    for (uint32_t i = 0, n = 5 + pick(30); i < n && m.n_params < MAX_PARAMS - 1; i++) add_op(&m);
    asp_sum_attr all = {.dims = {.n = 2, .at = {0, 1}}};
    asp_graph_add_output(g, ASP_B1(&m.b, sum, &all, m.full[m.n_full - 1]), "loss");
    give_out(&m, ASP_B2(&m.b, gemm_tn, NULL, m.full[m.n_full - 1], m.full[m.n_full - 2]), 2);
    if (m.b.status < 0) fail_msg("%s", cx->message);
    return g;
}

// ---- running it --------------------------------------------------------------------------------

typedef struct outcome {
    double loss;
    float *gradients; // malloc
    int64_t count;
    uint32_t steps;
} outcome;

typedef struct job {
    const asp_plan *plan;
    int threads;
    outcome *out;
} job;

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    asp_team *team;
    asp_rank *r;
    ASP_TRY(asp_team_create(cx, j->threads, -1, &team));
    ASP_TRY(asp_rank_create(cx, j->plan, comm, team, &r));
    float *w = asp_rank_slab(r, ASP_SLAB_PARAM);
    for (int64_t i = 0; i < j->out->count; i++) w[i] = (float)((i * 37 % 23) - 11) / 40;
    for (int k = 0; k < asp_plan_n_inputs(j->plan); k++) {
        float *x = asp_rank_input(r, k);
        int64_t n = asp_plan_get_input(j->plan, k)->bytes / (int64_t)sizeof *x;
        for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 29 + k * 7) % 31 - 15) / 16;
    }
    for (int step = 0; step < 2; step++) ASP_TRY(asp_rank_step(r, &j->out->loss));
    memcpy(j->out->gradients, asp_rank_slab(r, ASP_SLAB_GRAD), (size_t)j->out->count * sizeof *w);
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return ASP_OK;
}

static outcome run(asp_ctx *cx, const asp_graph *graph, const char *passes, int threads)
{
    asp_graph *g = asp_graph_clone(graph);
    asp_env env = {.at = {{"S", 70}}, .n = 1};
    asp_pass_options o = {.ranks = 1, .env = env};
    asp_run_options options = {.env = env, .threads = threads};
    asp_plan *plan = NULL;
    if (asp_passes_run(cx, g, passes, &o, NULL) < 0 || asp_plan_create(cx, g, &options, &plan) < 0)
        fail_msg("%s", cx->message);
    outcome out = {.count = asp_plan_slab_count(plan),
                   .steps = (uint32_t)asp_plan_get_report(plan)->n_steps};
    out.gradients = calloc((size_t)out.count, sizeof *out.gradients);
    job j = {plan, threads, &out};
    if (asp_ranks_run(cx, ASP_COMM_thread, 1, rank_main, &j) < 0) fail_msg("%s", cx->message);
    asp_plan_destroy(plan);
    asp_graph_destroy(g);
    return out;
}

static bool is_nan(float x) { return x != x; }

static void grouping_changes_no_bit(void **state)
{
    (void)state;
    uint32_t single = 0, grouped = 0;
    for (uint32_t i = 0; i < 250; i++) {
        asp_ctx cx;
        asp_ctx_init(&cx);
        cx.verify_each_pass = i < 40;
        seed = i + 1;
        asp_graph *g = random_graph(&cx);
        outcome a = run(&cx, g, "dce", 1), b = run(&cx, g, "dce,fuse,absorb,dce", 1 + (int)i % 3);
        assert_int_equal(a.count, b.count);
        for (int64_t k = 0; k < a.count; k++) {
            bool same = memcmp(&a.gradients[k], &b.gradients[k], sizeof(float)) == 0 ||
                        (is_nan(a.gradients[k]) && is_nan(b.gradients[k]));
            if (!same)
                fail_msg("seed %u, element %lld: %.9g, one by one %.9g", i + 1, (long long)k,
                         (double)b.gradients[k], (double)a.gradients[k]);
        }
        assert_true(a.loss == b.loss || (a.loss != a.loss && b.loss != b.loss));
        single += a.steps;
        grouped += b.steps;
        free(a.gradients);
        free(b.gradients);
        asp_graph_destroy(g);
    }
    assert_true(grouped < single);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(grouping_changes_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
