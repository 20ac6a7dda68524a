// Programs of ops that cut, look up, carry a state, convolve and drop, on 1 rank and on several:
// the same loss and gradients; kept or computed again, the same bits.  Cases 21, 30 and 37 of the
// acceptance list.  SPDX-License-Identifier: Apache-2.0
#include "run/compile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

// %x (B, S, 8) -> %y (B, S, 8), or another shape that %loss is made of.
typedef struct program {
    const char *name, *nodes;
} program;

static const char before[] = "%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
                             "%table : f64[13, 8] = param {name = \"table\"}\n"
                             "%w : f64[8, 8] = param {name = \"w\"}\n"
                             "%e : f64[B, S, 8] = embedding %ids, %table @ \"layers.0.embed\"\n"
                             "%x : f64[B, S, 8] = linear %e, %w @ \"layers.0.in\"\n";
static const char behind[] = "%v : f64[8, 8] = param {name = \"v\"}\n"
                             "%z : f64[B, S, 8] = linear %y, %v @ \"layers.1.out\"\n"
                             "%zx : f64[B, S, 8] = mul %z, %x\n"
                             "%loss : f64[] = sum %zx {dims = [0, 1, 2]}\n";

static const program programs[] = {
    {"dropout", "%a : f64[B, S, 8] = silu %x @ \"layers.1.act\"\n"
                "%y : f64[B, S, 8] = dropout %a {p = 0.3, site = 1} @ \"layers.1.drop\"\n"},
    {"dropout of heads",
     "%h : f64[B, S, 4, 2] = view %x {shape = [B, S, 4, 2]}\n"
     "%p : f64[B, 4, S, 2] = permute %h {perm = [0, 2, 1, 3]}\n"
     "%o, %l : f64[B, 4, S, 2], f64[B, 4, S] = sdpa %p, %p, %p @ \"layers.1.attn\"\n"
     "%d : f64[B, 4, S, 2] = dropout %o {p = 0.5, site = 2} @ \"layers.1.drop\"\n"
     "%o2, %l2 : f64[B, 4, S, 2], f64[B, 4, S] = sdpa %d, %d, %d @ \"layers.1.attn\"\n"
     "%r : f64[B, S, 4, 2] = permute %o2 {perm = [0, 2, 1, 3]}\n"
     "%y : f64[B, S, 8] = view %r {shape = [B, S, 8]}\n"},
    {"dropout of rows", "%f : f64[B*S, 8] = view %x {shape = [B*S, 8]}\n"
                        "%d : f64[B*S, 8] = dropout %f {p = 0.5, site = 2}\n"
                        "%y : f64[B, S, 8] = view %d {shape = [B, S, 8]}\n"},
    {"dropout of all tokens but the last",
     "%s : f64[B, S - 1, 8] = slice %x {dim = 1, end = S - 1}\n"
     "%d : f64[B, S - 1, 8] = dropout %s {p = 0.5, site = 2}\n"
     "%sq : f64[B, S - 1, 8] = mul %d, %d\n"
     "%one : f64[] = sum %sq {dims = [0, 1, 2]}\n"
     "%y : f64[B, S, 8] = mul %x, %one\n"},
    {"convolution", "%t : f64[B, 8, S] = permute %x {perm = [0, 2, 1]}\n"
                    "%k : f64[8, 1, 3] = param {name = \"k\"}\n"
                    "%b : f64[8] = param {name = \"b\"}\n"
                    "%c : f64[B, 8, S] = conv1d %t, %k, %b {groups = 0, left = 2}\n"
                    "%y : f64[B, S, 8] = permute %c {perm = [0, 2, 1]}\n"},
    {"cumsum", "%y : f64[B, S, 8] = cumsum %x {dim = 1}\n"},
    {"scan", "%g : f64[B, S, 8] = sigmoid %x\n%y : f64[B, S, 8] = scan %g, %x {dim = 1}\n"},
    {"token shift", "%y : f64[B, S, 8] = shift %x {by = -1, fill = 0, dim = 1}\n"},
    {"roll and flip", "%f : f64[B, S, 8] = flip %x {dim = 1}\n"
                      "%y : f64[B, S, 8] = roll %f {dim = 1, by = 2}\n"},
    {"pieces", "%p, %q, %r : f64[B, S, 2], f64[B, S, 3], f64[B, S, 3] = split_sizes %x {dim = 2, "
               "sizes = [2, 3, 3]}\n"
               "%m : f64[B, S, 3] = mul %q, %r\n"
               "%y : f64[B, S, 8] = cat %p, %m, %q {dim = 2}\n"},
    {"stack and unbind", "%h : f64[B, S, 2, 4] = view %x {shape = [B, S, 2, 4]}\n"
                         "%p, %q : f64[B, S, 4], f64[B, S, 4] = unbind %h {dim = 2}\n"
                         "%m : f64[B, S, 4] = mul %p, %q\n"
                         "%s : f64[B, S, 2, 4] = stack %m, %p {dim = 2}\n"
                         "%y : f64[B, S, 8] = view %s {shape = [B, S, 8]}\n"},
    {"routing", "%t, %i : f64[B, S, 2], i64[B, S, 2] = topk %x {dim = 2, k = 2}\n"
                "%none : f64[B, S, 8] = mul_scalar %x {value = 0}\n"
                "%y : f64[B, S, 8] = scatter %none, %i, %t {dim = 2}\n"},
    {"gather", "%one : i64[B, S, 1] = view %ids {shape = [B, S, 1]}\n"
               "%big : f64[B, S, 16] = cat %x, %x {dim = 2}\n"
               "%g : f64[B, S, 1] = gather %big, %one {dim = 2}\n"
               "%y : f64[B, S, 8] = mul %x, %g\n"},
    {"positions", "%i : i64[S] = iota\n%pos : f64[16, 8] = param {name = \"pos\"}\n"
                  "%p : f64[S, 8] = index_select %pos, %i\n"
                  "%y : f64[B, S, 8] = mul %x, %p\n"},
    {"last token", "%l : f64[B, 8] = select %x {dim = 1, at = S - 1}\n"
                   "%o : f64[B, 1, 8] = view %l {shape = [B, 1, 8]}\n"
                   "%y : f64[B, S, 8] = mul %x, %o\n"},
};

typedef struct result {
    double loss, gradients[1024];
    int64_t count;
} result;

typedef struct job {
    asp_plan *plan;
    result *out;
    int64_t seq;
    const char *sp; // NULL: ulysses
} job;

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    asp_team *team;
    asp_rank *r;
    double loss = 0;
    const int64_t n = asp_plan_slab_count(j->plan);
    ASP_TRY(asp_team_create(cx, 1, -1, &team));
    ASP_TRY(asp_rank_create(cx, j->plan, comm, team, &r));
    double *p = asp_rank_slab(r, ASP_SLAB_PARAM);
    for (int k = 0; k < asp_plan_n_params(j->plan); k++) {
        const asp_plan_param *a = asp_plan_get_param(j->plan, k);
        for (int64_t i = 0; i < a->count; i++)
            p[a->offset + i] = 0.6 * sin(1.7 * (double)i + 0.3 + (double)strlen(a->name));
    }
    int64_t *ids = asp_rank_input(r, 0);
    for (int64_t i = 0; i < 2 * j->seq; i++) ids[i] = (i * i * 3 + i * 7 + 5) % 13;
    asp_rank_seed(r, 5, 3);
    asp_status s = asp_rank_step(r, &loss);
    if (s == ASP_OK && asp_comm_rank(comm) == 0) {
        assert_true(n <= (int64_t)ASP_COUNT_OF(j->out->gradients));
        j->out->loss = loss;
        j->out->count = n;
        memcpy(j->out->gradients, asp_rank_slab(r, ASP_SLAB_GRAD), (size_t)n * sizeof(double));
    }
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return s;
}

static asp_status compile(asp_ctx *cx, void *arg, const program *p, int64_t ranks, const char *ac)
{
    job *j = arg;
    char text[4096];
    asp_graph *g;
    snprintf(text, sizeof text, "graph t {\n%s%s%sreturn \"loss\" = %%loss\n}\n", before, p->nodes,
             behind);
    ASP_TRY(asp_graph_parse(cx, p->name, text, strlen(text), &g));
    asp_compile_options o = {.ranks = ranks,
                             .batch = 2,
                             .seq = j->seq,
                             .threads = 1,
                             .sp = j->sp ? j->sp : "ulysses",
                             .ac = ac,
                             .backend = ASP_COMM_thread};
    asp_status s = asp_compile(cx, g, &o, NULL, &j->plan);
    asp_graph_destroy(g);
    return s;
}

typedef struct compile_job {
    job *j;
    const program *p;
    int64_t ranks;
    const char *ac;
} compile_job;

static asp_status compile_main(asp_ctx *cx, void *arg)
{
    compile_job *c = arg;
    return compile(cx, c->j, c->p, c->ranks, c->ac);
}

static asp_status run(asp_ctx *cx, const program *p, int64_t ranks, int64_t seq, const char *ac,
                      result *out)
{
    job j = {.out = out, .seq = seq, .sp = strcmp(ac, "ring") == 0 ? ac : NULL};
    if (j.sp) ac = "none";
    compile_job c = {&j, p, ranks, ac};
    ASP_TRY(asp_guard(cx, compile_main, &c));
    asp_status s = asp_ranks_run(cx, ASP_COMM_thread, (int)ranks, rank_main, &j);
    asp_plan_destroy(j.plan);
    return s;
}

static result run_well(const program *p, int64_t ranks, int64_t seq, const char *ac)
{
    asp_ctx cx;
    result r = {0};
    asp_ctx_init(&cx);
    cx.verify_each_pass = true;
    if (run(&cx, p, ranks, seq, ac, &r) < 0)
        fail_msg("%s, %lld ranks, S %lld: %s", p->name, (long long)ranks, (long long)seq,
                 cx.message);
    return r;
}

static void ranks_agree_with_one_device(void **state)
{
    static const int64_t seqs[] = {11, 8}, counts[] = {2, 3, 4};
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(programs); i++)
        for (size_t s = 0; s < ASP_COUNT_OF(seqs); s++) {
            const program *p = &programs[i];
            const result one = run_well(p, 1, seqs[s], "none");
            double largest = 0;
            for (int64_t k = 0; k < one.count; k++) largest = fmax(largest, fabs(one.gradients[k]));
            assert_true(largest > 1e-3);
            for (size_t c = 0; c < ASP_COUNT_OF(counts); c++) {
                const result many = run_well(p, counts[c], seqs[s], "none");
                if (!(fabs(many.loss - one.loss) <= 1e-12 * fabs(one.loss)))
                    fail_msg("%s, %lld ranks, S %lld: loss %.17g, %.17g on 1", p->name,
                             (long long)counts[c], (long long)seqs[s], many.loss, one.loss);
                for (int64_t k = 0; k < one.count; k++)
                    if (!(fabs(many.gradients[k] - one.gradients[k]) <= 1e-12 * largest))
                        fail_msg("%s, %lld ranks, S %lld: gradient %lld is %g, %g on 1", p->name,
                                 (long long)counts[c], (long long)seqs[s], (long long)k,
                                 many.gradients[k], one.gradients[k]);
            }
        }
}

// Around a ring, rows in zig-zag order: the same numbers are drawn.
static void rings_agree_with_one_device(void **state)
{
    (void)state;
    for (int64_t ranks = 2; ranks <= 4; ranks++) {
        const result one = run_well(&programs[1], 1, 13, "none");
        const result many = run_well(&programs[1], ranks, 13, "ring");
        assert_true(fabs(many.loss - one.loss) <= 1e-12 * fabs(one.loss));
        for (int64_t k = 0; k < one.count; k++)
            assert_true(fabs(many.gradients[k] - one.gradients[k]) <= 1e-11);
    }
}

// Dropout is drawn again, not kept: the same bits.
static void computing_again_changes_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int64_t ranks = 1; ranks <= 2; ranks++) {
            const result kept = run_well(&programs[i], ranks, 11, "none");
            const result sac = run_well(&programs[i], ranks, 11, "sac");
            const result layer = run_well(&programs[i], ranks, 11, "layer");
            assert_true(kept.loss == sac.loss && kept.loss == layer.loss);
            const size_t bytes = (size_t)kept.count * sizeof(double);
            assert_memory_equal(kept.gradients, sac.gradients, bytes);
            assert_memory_equal(kept.gradients, layer.gradients, bytes);
        }
}

static const program *program_named(const char *name)
{
    for (size_t i = 0; i < ASP_COUNT_OF(programs); i++)
        if (strcmp(programs[i].name, name) == 0) return &programs[i];
    fail_msg("no program %s", name);
    return NULL;
}

// Case 21: a table of 16 positions has no 17th.
static void places_outside_are_refused(void **state)
{
    (void)state;
    for (int64_t ranks = 1; ranks <= 2; ranks++) {
        asp_ctx cx;
        result r;
        asp_ctx_init(&cx);
        assert_int_equal(run(&cx, program_named("positions"), ranks, 17, "none", &r),
                         ASP_ERR_INPUT);
        if (!strstr(cx.message, "index_select") || !strstr(cx.message, "outside"))
            fail_msg("%s", cx.message);
    }
}

// A sequence too short for what is cut from it is refused when the plan is made.
static void sizes_that_do_not_come_out_are_refused(void **state)
{
    (void)state;
    const program p = {"cut", "%c : f64[B, 8, 8] = slice %x {dim = 1, start = 3, end = 11}\n"
                              "%s : f64[B, 1, 8] = sum %c {dims = [1], keep = true}\n"
                              "%y : f64[B, S, 8] = mul %x, %s\n"};
    asp_ctx cx;
    result r;
    asp_ctx_init(&cx);
    run_well(&p, 1, 11, "none");
    assert_int_equal(run(&cx, &p, 1, 10, "none", &r), ASP_ERR_SHAPE);
    if (!strstr(cx.message, "slice") || !strstr(cx.message, "3 to 11")) fail_msg("%s", cx.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_agree_with_one_device),
        cmocka_unit_test(rings_agree_with_one_device),
        cmocka_unit_test(computing_again_changes_no_bit),
        cmocka_unit_test(places_outside_are_refused),
        cmocka_unit_test(sizes_that_do_not_come_out_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
