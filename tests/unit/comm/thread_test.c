// The thread backend and a rank alone: conformance, failures of one rank, the byte formulas by
// hand. SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

static void conforms(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < ASP_COUNT_OF(ranks); i++) {
        asp_ctx cx;
        asp_ctx_init(&cx);
        asp_status s = asp_ranks_run(&cx, ASP_COMM_thread, ranks[i], conformance, NULL);
        assert_string_equal(cx.message, "");
        assert_int_equal(s, ASP_OK);
    }
}

static asp_status map_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    (void)arg;
    return sp_case_16_map(cx, comm);
}

// (The processes of mpi_test do the same among all else.)
static void sp_case_16(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_status s = asp_ranks_run(&cx, ASP_COMM_thread, 2, map_main, NULL);
    assert_string_equal(cx.message, "");
    assert_int_equal(s, ASP_OK);
}

static void bytes_by_hand(void **state)
{
    (void)state;
    assert_int_equal(asp_comm_bytes(ASP_COMM_all_to_all, 16, 4, 2, 0), 32);
    assert_int_equal(asp_comm_bytes(ASP_COMM_all_to_all, 16, 4, 8, 5), 56);
    assert_int_equal(asp_comm_bytes(ASP_COMM_all_to_all, 16, 4, 1, 0), 0);
    assert_int_equal(asp_comm_bytes(ASP_COMM_all_reduce, 1, 4, 8, 3), 28);      // 7 others' value
    assert_int_equal(asp_comm_bytes(ASP_COMM_all_reduce, 2000, 4, 2, 0), 8000); // 2 x 8000 / 2
    // 2001 on 2 ranks: slices 1001 and 1000; rank 0 takes 1001 and 1000, rank 1 1000 and 1001.
    assert_int_equal(asp_comm_bytes(ASP_COMM_all_reduce, 2001, 4, 2, 0), 8004);
    // 2002 on 4: slices 501, 501, 500, 500; 3 x 500 to add, 1502 to take.
    assert_int_equal(asp_comm_bytes(ASP_COMM_all_reduce, 2002, 4, 4, 2), 4 * (1500 + 1502));
    assert_int_equal(asp_comm_bytes(ASP_COMM_all_gather, 5, 8, 3, 1), 80);
    assert_int_equal(asp_comm_bytes(ASP_COMM_broadcast, 5, 8, 3, 1), 40);
    assert_int_equal(asp_comm_bytes(ASP_COMM_broadcast, 5, 8, 3, 0), 0);
    asp_ctx cx;
    asp_ctx_init(&cx);
    int64_t received, room;
    // 6 rows to 4 ranks (2, 2, 1, 1), 10 columns gathered (3, 3, 2, 2), of 8 bytes.
    const asp_tensor x = {.dtype = ASP_F64, .rank = 2, .dim = {6, 3}};
    const asp_all_to_all a = {.split = 0, .gather = 1, .whole = 10};
    for (int r = 0; r < 4; r++) {
        assert_int_equal(
            asp_comm_all_to_all_cost(&cx, ASP_COMM_mpi, &x, &a, 4, r, &received, &room), ASP_OK);
        assert_int_equal(received, r < 2 ? 2 * 7 * 8 : 1 * 8 * 8);
        assert_int_equal(room, 2 * 64); // a piece of 2 x 3 to send, one to receive
    }
    assert_int_equal(asp_comm_all_to_all_cost(&cx, ASP_COMM_thread, &x, &a, 4, 0, &received, &room),
                     ASP_OK);
    assert_int_equal(room, 0);
    // A block of 1 MiB from each of three peers.
    assert_int_equal(asp_comm_work_bytes(ASP_COMM_mpi, ASP_COMM_all_reduce, 8 << 20, 4, 4),
                     3 << 20);
}

// ---- failures ------------------------------------------------------------------------------

typedef struct fault {
    int rank;
    int kind;
    const char *message;
} fault;

enum { RETURNS_ERROR, FAILS_LATE, LEAVES_THREAD, NO_MEMORY, ABORTS, DISAGREES, OTHER_OP };

static void nap(void)
{
    struct timespec t = {0, 30000000};
    nanosleep(&t, NULL);
}

static asp_status misbehave(const fault *f, asp_comm *comm, asp_ctx *cx)
{
    float v[2000] = {0};
    switch (f->kind) {
    case FAILS_LATE:
        nap(); // by now the others are asleep
        return asp_fail(cx, ASP_ERR_LIMIT, "too much to hold");
    case RETURNS_ERROR: return asp_fail(cx, ASP_ERR_LIMIT, "too much to hold");
    case LEAVES_THREAD: pthread_exit(NULL);
    case NO_MEMORY: {
        asp_arena a;
        asp_arena_init(&a, cx);
        cx->fail_allocation = 1;
        ASP_NEW(&a, int);
        return ASP_OK;
    }
    case ABORTS:
        asp_comm_abort(comm, ASP_ERR_IO, "the disk is gone");
        return asp_comm_barrier(comm);
    case DISAGREES: return asp_comm_agree(comm, "the list", 7);
    case OTHER_OP: return asp_comm_all_reduce(comm, NULL, v, ASP_F32, 2000, v, NULL);
    }
    return ASP_OK;
}

static asp_status faulty(void *arg, asp_comm *comm, asp_ctx *cx)
{
    const fault *f = arg;
    float x[64], y[64];
    for (int i = 0; i < 50; i++) ASP_TRY(asp_comm_all_reduce(comm, NULL, x, ASP_F32, 0, y, NULL));
    if (asp_comm_rank(comm) == f->rank) return misbehave(f, comm, cx);
    if (f->kind == DISAGREES) return asp_comm_agree(comm, "the list", 5);
    // Would wait for ever without the rank that left.
    return asp_comm_barrier(comm);
}

static void one_rank_fails(void **state)
{
    (void)state;
    static const fault faults[] = {
        {2, RETURNS_ERROR, "rank 2: too much to hold"},
        {0, FAILS_LATE, "rank 0: too much to hold"},
        {1, LEAVES_THREAD, "rank 1: its thread ended before its work did"},
        {3, ABORTS, "rank 3: the disk is gone"},
        {3, NO_MEMORY, "rank 3: the machine refused memory for the compiler's own tables"},
        {2, DISAGREES,
         "the ranks do not agree on the list: rank 2 has 0000000000000007, rank 0 has "
         "0000000000000005; start every rank with the same program, options and data"},
        {0, DISAGREES,
         "the ranks do not agree on the list: rank 0 has 0000000000000007, rank 1 has "
         "0000000000000005; start every rank with the same program, options and data"},
        {1, OTHER_OP,
         "the ranks' programs differ: rank 1 is at all_reduce of 8000 bytes, rank 0 at barrier of "
         "0 bytes"},
    };
    static const asp_status want[] = {ASP_ERR_LIMIT, ASP_ERR_LIMIT, ASP_ERR_PEER, ASP_ERR_IO,
                                      ASP_ERR_NOMEM, ASP_ERR_PEER,  ASP_ERR_PEER, ASP_ERR_PEER};
    for (size_t i = 0; i < ASP_COUNT_OF(faults); i++) {
        asp_ctx cx;
        asp_ctx_init(&cx);
        fault f = faults[i];
        asp_status s = asp_ranks_run(&cx, ASP_COMM_thread, 4, faulty, &f);
        assert_string_equal(cx.message, f.message);
        assert_int_equal(s, want[i]);
    }
}

static asp_status alone_fails(void *arg, asp_comm *comm, asp_ctx *cx)
{
    (void)arg, (void)comm;
    return asp_fail(cx, ASP_ERR_INPUT, "nothing to read");
}

static void a_rank_alone(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    assert_int_equal(asp_ranks_run(&cx, ASP_COMM_thread, 1, alone_fails, NULL), ASP_ERR_INPUT);
    assert_string_equal(cx.message, "nothing to read");
    assert_int_equal(asp_ranks_run(&cx, ASP_COMM_thread, 0, alone_fails, NULL), ASP_ERR_USAGE);
    assert_string_equal(cx.message, "--ranks 0: there must be 1 or more");
}

static void backends_by_name(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_comm_backend b;
    assert_int_equal(asp_comm_backend_find(&cx, "mpi", &b), ASP_OK);
    assert_string_equal(asp_comm_backend_name(b), "mpi");
    assert_int_equal(asp_comm_backend_find(&cx, "nccl", &b), ASP_ERR_USAGE);
    assert_string_equal(cx.message, "--comm nccl: there is `thread` and `mpi`");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conforms),      cmocka_unit_test(sp_case_16),
        cmocka_unit_test(bytes_by_hand), cmocka_unit_test(one_rank_fails),
        cmocka_unit_test(a_rank_alone),  cmocka_unit_test(backends_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
