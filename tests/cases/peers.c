// Ranks that do not start from the same, or of which one fails: all end with the same message.
// Neighbours: tests/cli/mpi_test.py (the same of processes), tests/fault/comm_fault_test.c (ranks
// that exit or are killed).  SPDX-License-Identifier: Apache-2.0
#include "cases/support/decoder.h"

#include "base/file.h"

#include <stdlib.h>

#define MOST 8 // ranks

typedef enum wrong { ONE_ID, OTHER_LENGTH, ONE_PARAMETER, ID_IN_STEP_2, MEMORY_IN_STEP_2 } wrong;

typedef struct job {
    asp_plan *plan, *longer; // the longer one is for sequences of 9
    wrong what;
    int odd; // the rank that has it
    asp_status status[MOST];
    char message[MOST][512];
    bool unchanged[MOST];    // parameters
    int64_t exchanged[MOST]; // calls of the communicator
} job;

static asp_status steps(job *j, asp_rank *r, bool odd, asp_ctx *cx)
{
    double loss;
    int64_t *ids = asp_rank_input(r, 0);
    double *w = asp_rank_slab(r, ASP_SLAB_PARAM);
    for (int i = 0; i < 16; i++) ids[i] = i;
    for (int i = 0; i < 400; i++) w[i] = i * 0.01;
    if (odd && j->what == ONE_ID) ids[13] = 3;
    if (odd && j->what == ONE_PARAMETER) w[399] = 7;
    ASP_TRY(asp_rank_step(r, &loss));
    for (int i = 0; odd && j->what == ID_IN_STEP_2 && i < 16; i++) ids[i] = 1000000;
    if (odd && j->what == MEMORY_IN_STEP_2)
        return asp_fail(cx, ASP_ERR_NOMEM, "the system refused 64 GiB");
    return asp_rank_step(r, &loss);
}

static int64_t calls_of(const asp_comm *comm)
{
    const asp_comm_counts c = asp_comm_counted(comm);
    int64_t n = 0;
    for (int i = 0; i < ASP_COMM_OP_COUNT; i++) n += c.calls[i];
    return n;
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    const int me = asp_comm_rank(comm);
    const bool odd = me == j->odd;
    asp_team *team;
    asp_rank *r;
    ASP_TRY(asp_team_create(cx, 1, -1, &team));
    const asp_plan *plan = odd && j->what == OTHER_LENGTH ? j->longer : j->plan;
    asp_status s = asp_rank_create(cx, plan, comm, team, &r);
    if (s == ASP_OK) {
        j->status[me] = s = steps(j, r, odd, cx);
        snprintf(j->message[me], sizeof j->message[me], "%.500s", cx->message);
        const double *w = asp_rank_slab(r, ASP_SLAB_PARAM);
        j->unchanged[me] = true;
        for (int i = 0; i < 399; i++) j->unchanged[me] &= w[i] == i * 0.01;
        j->exchanged[me] = calls_of(comm);
        asp_rank_destroy(r);
    }
    asp_team_destroy(team);
    return s;
}

typedef struct plan_call {
    const char *text, *sp;
    int64_t ranks, seq;
    asp_plan *plan;
} plan_call;

static asp_status compile(asp_ctx *cx, void *arg)
{
    plan_call *c = arg;
    asp_graph *g;
    const asp_compile_options o = {.ranks = c->ranks,
                                   .batch = 2,
                                   .seq = c->seq,
                                   .threads = 1,
                                   .sp = c->sp,
                                   .ac = "none",
                                   .backend = ASP_COMM_thread};
    ASP_TRY(asp_graph_parse(cx, "program", c->text, strlen(c->text), &g));
    asp_status s = asp_compile(cx, g, &o, NULL, &c->plan);
    asp_graph_destroy(g);
    return s;
}

static asp_plan *planned(const char *text, const char *sp, int64_t ranks, int64_t seq)
{
    asp_ctx cx;
    plan_call c = {.text = text, .sp = sp, .ranks = ranks, .seq = seq};
    asp_ctx_init(&cx);
    if (asp_guard(&cx, compile, &c) < 0) fail_msg("%s", cx.message);
    return c.plan;
}

// Attention, so that ranks exchange in the forward already.
static const char program[] =
    "graph t {\n%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
    "%w : f64[40, 10] = param {name = \"w\"}\n%e : f64[B, S, 10] = embedding %ids, %w\n"
    "%v : f64[B, S, 5, 2] = view %e {shape = [B, S, 5, 2]}\n"
    "%q : f64[B, 5, S, 2] = permute %v {perm = [0, 2, 1, 3]}\n"
    "%o, %l : f64[B, 5, S, 2], f64[B, 5, S] = sdpa %q, %q, %q {scale = 0.7} @ \"attn\"\n"
    "%loss : f64[] = sum %o {dims = [0, 1, 2, 3]}\nreturn \"loss\" = %loss\n}\n";

static const char *const strategies[] = {"ulysses", "ring", "auto"};

// Runs; gives what is said at the end.
static asp_status run(job *j, const char *sp, int ranks, char *said, size_t bytes)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    j->plan = planned(program, sp, ranks, 8);
    j->longer = planned(program, sp, ranks, 9);
    asp_status s = asp_ranks_run(&cx, ASP_COMM_thread, ranks, rank_main, j);
    snprintf(said, bytes, "%.1000s", cx.message);
    asp_plan_destroy(j->plan);
    asp_plan_destroy(j->longer);
    return s;
}

static void disagree(wrong what, const char *words)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (size_t i = 0; i < ASP_COUNT_OF(strategies); i++) {
            char said[1024];
            job j = {.what = what, .odd = ranks - 1};
            assert_int_equal(run(&j, strategies[i], ranks, said, sizeof said), ASP_ERR_PEER);
            if (!strstr(said, words)) fail_msg("'%s' is not in '%s'", words, said);
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(j.status[r], ASP_ERR_PEER);
                assert_string_equal(j.message[r], j.message[0]);
                assert_non_null(strstr(said, j.message[r]));
                assert_true(j.unchanged[r]);
                assert_int_equal(j.exchanged[r], 0);
            }
        }
}

static void sp_case_42(void **state)
{
    (void)state;
    disagree(ONE_ID, "the ranks do not agree on the inputs of the first step: rank ");
    disagree(OTHER_LENGTH, "the ranks do not agree on the sizes of the inputs: rank ");
    disagree(ONE_PARAMETER,
             "the ranks do not agree on the parameters before the first step: rank ");
}

static void fails(wrong what, asp_status want, const char *words)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (size_t i = 0; i < ASP_COUNT_OF(strategies); i++) {
            char said[1024], rank[32];
            job j = {.what = what, .odd = ranks / 2};
            const double began = asp_seconds();
            assert_int_equal(run(&j, strategies[i], ranks, said, sizeof said), want);
            assert_true(asp_seconds() - began < 10);
            snprintf(rank, sizeof rank, "rank %d: ", j.odd);
            if (strncmp(said, rank, strlen(rank)) != 0 || !strstr(said, words))
                fail_msg("'%s' and '%s' are not in '%s'", rank, words, said);
            for (int r = 0; r < ranks; r++)
                assert_int_equal(j.status[r], r == j.odd ? want : ASP_ERR_PEER);
        }
}

static void sp_case_46(void **state)
{
    (void)state;
    fails(ID_IN_STEP_2, ASP_ERR_INPUT, "an index lies outside");
    fails(MEMORY_IN_STEP_2, ASP_ERR_NOMEM, "the system refused 64 GiB");
}

static asp_status nothing(void *arg, asp_comm *comm, asp_ctx *cx)
{
    (void)arg, (void)comm, (void)cx;
    fail_msg("a rank runs");
    return ASP_OK;
}

// No ranks, and fewer than none; tests/cli/mpi_test.py has numbers that mpirun did not start.
static void sp_case_41(void **state)
{
    (void)state;
    static const int ranks[] = {0, -1};
    for (int i = 0; i < 2; i++) {
        asp_ctx cx;
        char number[16];
        asp_ctx_init(&cx);
        assert_int_equal(asp_ranks_run(&cx, ASP_COMM_thread, ranks[i], nothing, NULL),
                         ASP_ERR_USAGE);
        snprintf(number, sizeof number, "%d", ranks[i]);
        assert_non_null(strstr(cx.message, number));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sp_case_41), cmocka_unit_test(sp_case_42),
                                       cmocka_unit_test(sp_case_46)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
