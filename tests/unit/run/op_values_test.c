// Ops on given numbers, in f64 and f32, against values worked out by hand.  Neighbours:
// op_harness_test.c (derivatives).  SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"
#include "run/run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define MOST 40

// Nodes that end with %y of this shape and these dims; T stands for the float type.  Operands %a
// and %b are parameters, %i is an i64 input; their numbers follow.
typedef struct sample {
    const char *nodes, *shape, *dims;
    double a[MOST], b[MOST], i[MOST], y[MOST];
} sample;

#define PARAM(name, shape) "%" name " : T[" shape "] = param {name = \"" name "\"}\n"
#define INPUT(shape) "%i : i64[" shape "] = input {name = \"i\"}\n"

static const sample samples[] = {
    {PARAM("a", "6") "%y : T[6] = relu %a\n",
     "6",
     "0",
     {-2, -0.5, 0, 0.5, 3, 7},
     {0},
     {0},
     {0, 0, 0, 0.5, 3, 7}},
    {PARAM("a", "3") "%y : T[3] = gelu %a\n",
     "3",
     "0",
     {-1, 0, 2},
     {0},
     {0},
     {-0.15865525393145705, 0, 1.9544997361036416}},
    {PARAM("a", "3") "%y : T[3] = gelu_tanh %a\n",
     "3",
     "0",
     {-1, 0, 2},
     {0},
     {0},
     {-0.15880800939172324, 0, 1.954597694087775}},
    {PARAM("a", "3") "%y : T[3] = elu %a {alpha = 2}\n",
     "3",
     "0",
     {-1, 0, 3},
     {0},
     {0},
     {-1.2642411176571153, 0, 3}},
    // log(1 + e^3) / 3 at 1, itself beyond the threshold
    {PARAM("a", "3") "%y : T[3] = softplus %a {beta = 3, threshold = 4}\n",
     "3",
     "0",
     {0, 1, 2},
     {0},
     {0},
     {0.23104906018664842, 1.016195783857914, 2}},
    {PARAM("a", "2, 3") "%y : T[2, 3] = softmax %a {dim = 1}\n",
     "2, 3",
     "0, 1",
     {0, 0.6931471805599453, 1.0986122886681098, 1000, 1000, 1000},
     {0},
     {0},
     {1 / 6.0, 2 / 6.0, 3 / 6.0, 1 / 3.0, 1 / 3.0, 1 / 3.0}},
    {PARAM("a", "3, 2") "%y : T[3, 2] = softmax %a {dim = 0}\n",
     "3, 2",
     "0, 1",
     {0, 1000, 0.6931471805599453, 1000, 1.0986122886681098, 1000},
     {0},
     {0},
     {1 / 6.0, 1 / 3.0, 2 / 6.0, 1 / 3.0, 3 / 6.0, 1 / 3.0}},
    {PARAM("a", "1, 3") "%y : T[1, 3] = log_softmax %a {dim = 1}\n",
     "1, 3",
     "0, 1",
     {0, 0.6931471805599453, 1.0986122886681098},
     {0},
     {0},
     {-1.791759469228055, -1.0986122886681098, -0.6931471805599453}},
    {PARAM("a", "1, 4") "%y : T[1, 4] = layer_norm %a {eps = 0}\n",
     "1, 4",
     "0, 1",
     {1, 3, 1, 3},
     {0},
     {0},
     {-1, 1, -1, 1}},
    {PARAM("a", "2, 2") PARAM("b", "2, 2") "%y : T[2, 2] = layer_norm %a, %b {eps = 0, dims = 2}\n",
     "2, 2",
     "0, 1",
     {1, 3, 3, 1},
     {1, 2, 3, 4},
     {0},
     {-1, 2, 3, -4}},
    // Two batches of b for one of a.
    {PARAM("a", "1, 2, 2") PARAM("b", "2, 2, 1") "%y : T[2, 2, 1] = matmul %a, %b\n",
     "2, 2, 1",
     "0, 1, 2",
     {1, 2, 3, 4},
     {1, 1, 10, 1},
     {0},
     {3, 7, 12, 34}},
    {PARAM("a", "2") PARAM("b", "2, 3") "%y : T[3] = matmul %a, %b\n",
     "3",
     "0",
     {1, 10},
     {1, 2, 3, 4, 5, 6},
     {0},
     {41, 52, 63}},
    {PARAM("a", "2") PARAM("b", "2") "%y : T[] = matmul %a, %b\n",
     "",
     "",
     {1, 10},
     {3, 4},
     {0},
     {43}},
    {PARAM("a", "1, 2, 3") PARAM("b", "1, 2, 2") "%y : T[1, 3, 2] = bmm %a, %b {ta = true}\n",
     "1, 3, 2",
     "0, 1, 2",
     {1, 2, 3, 4, 5, 6},
     {1, 0, 0, 1},
     {0},
     {1, 4, 2, 5, 3, 6}},
    // einsum: a batch of products, an implied result, an outer product, a sum, dims by "...".
    {PARAM("a", "1, 2, 3") PARAM("b", "1, 2, 2") "%y : T[1, 3, 2] = einsum %a, %b {equation = "
                                                 "\"bki,bkj->bij\"}\n",
     "1, 3, 2",
     "0, 1, 2",
     {1, 2, 3, 4, 5, 6},
     {1, 0, 0, 1},
     {0},
     {1, 4, 2, 5, 3, 6}},
    {PARAM("a", "2, 2") PARAM("b", "2, 3") "%y : T[2, 3] = einsum %a, %b {equation = \"ik, kj\"}\n",
     "2, 3",
     "0, 1",
     {1, 10, 0, 1},
     {1, 2, 3, 4, 5, 6},
     {0},
     {41, 52, 63, 4, 5, 6}},
    {PARAM("a", "2") PARAM("b", "3") "%y : T[3, 2] = einsum %a, %b {equation = \"i,j->ji\"}\n",
     "3, 2",
     "0, 1",
     {1, 10},
     {1, 2, 3},
     {0},
     {1, 10, 2, 20, 3, 30}},
    {PARAM("a", "2, 3") "%y : T[3] = einsum %a {equation = \"ij->j\"}\n",
     "3",
     "0",
     {1, 2, 3, 4, 5, 6},
     {0},
     {0},
     {5, 7, 9}},
    {PARAM("a", "2, 1, 2") PARAM("b", "2, 2") "%y : T[2, 1, 2] = einsum %a, %b {equation = "
                                              "\"...i,oi->...o\"}\n",
     "2, 1, 2",
     "0, 1, 2",
     {1, 2, 3, 4},
     {1, 0, 1, 1},
     {0},
     {1, 3, 3, 7}},
    // Case 37: mean 4.5, biased variance 5.25; the running variance takes 6.
    {PARAM("a", "1, 1, 8") "%y, %m, %v : T[1, 1, 8], T[1], T[1] = batch_norm %a\n",
     "1, 1, 8",
     "0, 1, 2",
     {1, 2, 3, 4, 5, 6, 7, 8},
     {0},
     {0},
     {-1.52752377686809, -1.0910884120486357, -0.6546530472291814, -0.21821768240972714,
      0.21821768240972714, 0.6546530472291814, 1.0910884120486357, 1.52752377686809}},
    {PARAM("a", "1, 1, 8")
         PARAM("b", "1") "%o, %m, %v : T[1, 1, 8], T[1], T[1] = batch_norm %a, %b, "
                         "%b, %b, %b\n%y : T[1] = sub %v, %m\n",
     "1",
     "0",
     {1, 2, 3, 4, 5, 6, 7, 8},
     {2},
     {0},
     {0.15}},
    {PARAM("a", "1, 4, 1") PARAM("b", "4") "%y : T[1, 4, 1] = group_norm %a, %b {groups = 2, eps = "
                                           "0}\n",
     "1, 4, 1",
     "0, 1, 2",
     {1, 3, 10, 30},
     {1, 2, 3, 4},
     {0},
     {-1, 2, -3, 4}},
    // Comparisons, and what reads bools.
    {PARAM("a", "3") PARAM("b", "3") "%c : bool[3] = le %a, %b\n%y : T[3] = cast %c {to = T}\n",
     "3",
     "0",
     {1, 2, 3},
     {2, 2, 2},
     {0},
     {1, 1, 0}},
    {PARAM("a", "2, 1") PARAM("b", "3") "%g : bool[2, 3] = gt %a, %b\n%e : bool[2, 3] = ne %a, %b\n"
                                        "%n : bool[2, 3] = logical_not %g\n"
                                        "%c : bool[2, 3] = logical_and %n, %e\n"
                                        "%y : T[2, 3] = where %c, %a, %b\n",
     "2, 3",
     "0, 1",
     {1, 2},
     {1, 2, 3},
     {0},
     {1, 1, 1, 1, 2, 2}},
    {INPUT("2, 3") "%z : i64[] = constant {value = 2}\n%c : bool[2, 3] = lt %i, %z\n"
                   "%d : bool[2] = any %c {dims = [1]}\n%e : bool[2] = all %c {dims = [1]}\n"
                   "%f : bool[2] = eq %d, %e\n%y : T[2] = cast %f {to = T}\n",
     "2",
     "0",
     {0},
     {0},
     {1, 2, 3, 1, 0, 1},
     {0, 1}},
    // Integers: floor, the sign of the divisor, exact beyond 2^53.
    {INPUT("6") "%z : i64[] = constant {value = 3}\n%q : i64[6] = floor_divide %i, %z\n"
                "%y : T[6] = cast %q {to = T}\n",
     "6",
     "0",
     {0},
     {0},
     {7, 6, 1, -1, -6, -7},
     {2, 2, 0, -1, -2, -3}},
    {INPUT("6") "%z : i64[] = constant {value = -3}\n%q : i64[6] = remainder %i, %z\n"
                "%y : T[6] = cast %q {to = T}\n",
     "6",
     "0",
     {0},
     {0},
     {7, 6, 1, -1, -6, -7},
     {-2, 0, -2, -1, 0, -1}},
    {INPUT("2") "%m : i64[2] = mul %i, %i\n%p : i64[2] = add_scalar %m {value = 1}\n"
                "%d : i64[2] = sub %p, %m\n%y : T[2] = cast %d {to = T}\n",
     "2",
     "0",
     {0},
     {0},
     {3037000499, 5},
     {1, 1}},
    {INPUT("4") "%z : i64[] = constant {value = 0}\n%p : i64[4] = minimum %i, %z\n"
                "%q : i64[4] = abs %p\n%r : i64[4] = clamp %q {max = 2}\n%s : i64[4] = neg %r\n"
                "%t : i64[] = sum %s {dims = [0]}\n%y : T[] = cast %t {to = T}\n",
     "",
     "",
     {0},
     {0},
     {-1, -5, 3, 0},
     {-3}},
    {PARAM("a", "4") PARAM("b", "4") "%y : T[4] = remainder %a, %b\n",
     "4",
     "0",
     {7, -7, 7, -7},
     {3, 3, -3, -3},
     {0},
     {1, 2, -2, -1}},
    {PARAM("a", "3") "%y : T[3] = sign %a\n", "3", "0", {-3, 0, 2}, {0}, {0}, {-1, 0, 1}},
    // Reductions.
    {PARAM("a", "2, 3") "%y, %k : T[2], i64[2] = max_dim %a {dim = 1}\n",
     "2",
     "0",
     {1, 5, 5, 2, 0, 1},
     {0},
     {0},
     {5, 2}},
    {PARAM("a",
           "2, 3") "%v, %k : T[2], i64[2] = max_dim %a {dim = 1}\n%y : T[2] = cast %k {to = T}\n",
     "2",
     "0",
     {1, 5, 5, 2, 0, 1},
     {0},
     {0},
     {1, 0}},
    {PARAM("a", "2, 3") "%k : i64[1, 3] = argmin %a {dim = 0, keep = true}\n"
                        "%y : T[1, 3] = cast %k {to = T}\n",
     "1, 3",
     "0, 1",
     {1, 5, 5, 2, 0, 5},
     {0},
     {0},
     {0, 1, 0}},
    {PARAM("a", "2, 3") "%y : T[3] = amin %a {dims = [0]}\n",
     "3",
     "0",
     {1, 5, 5, 2, 0, 1},
     {0},
     {0},
     {1, 0, 1}},
    {PARAM("a", "2, 3") "%y : T[2, 1] = mean %a {dims = [1], keep = true}\n",
     "2, 1",
     "0, 1",
     {1, 2, 6, 0, 0, 3},
     {0},
     {0},
     {3, 1}},
    {PARAM("a", "4") "%y : T[] = var %a {dims = [0]}\n",
     "",
     "",
     {1, 2, 3, 6},
     {0},
     {0},
     {14 / 3.0}},
    {PARAM("a", "4") "%y : T[] = var %a {dims = [0], correction = 0}\n",
     "",
     "",
     {1, 2, 3, 6},
     {0},
     {0},
     {3.5}},
    {PARAM("a", "1, 2") "%y : T[1] = logsumexp %a {dims = [1]}\n",
     "1",
     "0",
     {1000, 1000.6931471805599453},
     {0},
     {0},
     {1001.0986122886681098}},
};

typedef struct job {
    const sample *s;
    const char *type;
} job;

// loss = sum(y * w) with w a parameter: its gradient is y.
static asp_status compile(asp_ctx *cx, const job *j, asp_plan **out_plan)
{
    char text[2048], *to = text;
    asp_graph *g;
    to += snprintf(to, sizeof text, "graph t {\n");
    for (const char *s = j->s->nodes; *s; s++) {
        bool is_type = *s == 'T' && (s[1] == '[' || s[1] == '}');
        to += snprintf(to, 8, "%.*s", is_type ? 3 : 1, is_type ? j->type : s);
    }
    snprintf(to, 512,
             "%%w : %s[%s] = param {name = \"w\"}\n%%yw : %s[%s] = mul %%y, %%w\n"
             "%%loss : %s[] = sum %%yw {dims = [%s]}\nreturn \"loss\" = %%loss\n}\n",
             j->type, j->s->shape, j->type, j->s->shape, j->type, j->s->dims);
    asp_pass_options options = {.ranks = 1, .sp = "auto", .ac = "none"};
    asp_run_options run_options = {.threads = 2};
    ASP_TRY(asp_graph_parse(cx, "sample", text, strlen(text), &g));
    asp_status status = asp_graph_typecheck(g);
    if (status == ASP_OK) status = asp_passes_run(cx, g, ASP_PIPELINE_JOINT, &options, NULL);
    if (status == ASP_OK) status = asp_plan_create(cx, g, &run_options, out_plan);
    asp_graph_destroy(g);
    return status;
}

static void put(void *slab, bool is_f64, int64_t at, double x)
{
    if (is_f64)
        ((double *)slab)[at] = x;
    else
        ((float *)slab)[at] = (float)x;
}

static double get(const void *slab, bool is_f64, int64_t at)
{
    return is_f64 ? ((const double *)slab)[at] : (double)((const float *)slab)[at];
}

static asp_status one_rank(void *arg, asp_comm *comm, asp_ctx *cx)
{
    const job *j = arg;
    const bool is_f64 = strcmp(j->type, "f64") == 0;
    asp_plan *plan;
    asp_team *team;
    asp_rank *r;
    double loss;
    ASP_TRY(compile(cx, j, &plan));
    ASP_TRY(asp_team_create(cx, 2, -1, &team));
    ASP_TRY(asp_rank_create(cx, plan, comm, team, &r));
    void *params = asp_rank_slab(r, ASP_SLAB_PARAM);
    const asp_plan_param *w = NULL;
    for (int p = 0; p < asp_plan_n_params(plan); p++) {
        const asp_plan_param *a = asp_plan_get_param(plan, p);
        if (*a->name == 'w') w = a;
        for (int64_t e = 0; e < a->count; e++)
            put(params, is_f64, a->offset + e,
                *a->name == 'a'   ? j->s->a[e]
                : *a->name == 'b' ? j->s->b[e]
                                  : 1);
    }
    for (int k = 0; k < asp_plan_n_inputs(plan); k++) {
        int64_t *at = asp_rank_input(r, k), n = asp_plan_get_input(plan, k)->bytes / 8;
        for (int64_t e = 0; e < n; e++) at[e] = (int64_t)j->s->i[e];
    }
    ASP_TRY(asp_rank_step(r, &loss));
    assert_non_null(w);
    for (int64_t e = 0; e < w->count; e++) {
        double y = get(asp_rank_slab(r, ASP_SLAB_GRAD), is_f64, w->offset + e), want = j->s->y[e];
        if (!(fabs(y - want) <= (is_f64 ? 1e-14 : 4e-7) * fmax(1, fabs(want))))
            fail_msg("%s%s: element %lld is %.17g, not %.17g", j->s->nodes, j->type, (long long)e,
                     y, want);
    }
    asp_rank_destroy(r);
    asp_team_destroy(team);
    asp_plan_destroy(plan);
    return ASP_OK;
}

static void ops_give_the_values_worked_out_by_hand(void **state)
{
    (void)state;
    static const char *const types[] = {"f64", "f32"};
    for (size_t i = 0; i < ASP_COUNT_OF(samples); i++) {
        for (size_t t = 0; t < ASP_COUNT_OF(types); t++) {
            asp_ctx cx;
            asp_ctx_init(&cx);
            job j = {&samples[i], types[t]};
            if (asp_ranks_run(&cx, ASP_COMM_thread, 1, one_rank, &j) < 0)
                fail_msg("%s%s: %s", samples[i].nodes, types[t], cx.message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ops_give_the_values_worked_out_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
