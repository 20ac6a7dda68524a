// One of several processes fails, exits or is killed: all end within 10 s, and what is printed
// names the rank.  The program starts itself under mpirun; every process is one rank.
// SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define RANKS 4

typedef struct fault {
    const char *how;
    int rank;
    const char *said; // must be printed; where all fail, by whichever was first
    int times;        // so often; 0: at least once, by mpirun or by us
    bool others_busy; // the others compute instead of waiting
} fault;

static const fault faults[] = {
    {"returns", 2, "rank 2: no such shard", 1, false},
    {"returns", 0, "rank 0: no such shard", 1, false},
    {"returns", 1, "rank 1: no such shard", 1, true},
    {"all", -1, ": no such shard", 1, false},
    {"disagrees", 1, "do not agree on the list of collectives: rank 1", 1, false},
    {"aborts", 3, "rank 3: the disk is gone", 1, false},
    {"exit", 1, "rank 1", 0, false},
    {"exit", 3, "rank 3", 0, true},
    {"_exit", 2, "rank 2", 0, false},
    {"SIGKILL", 1, "rank 1", 0, false},
    {"SIGKILL", 0, "rank 0", 0, true},
    {"SIGSEGV", 3, "rank 3", 0, false},
};

static char self[4096];

static asp_status fail_as(const fault *f, asp_comm *comm, asp_ctx *cx)
{
    if (strcmp(f->how, "exit") == 0) exit(0);
    if (strcmp(f->how, "_exit") == 0) _exit(0);
    if (strcmp(f->how, "SIGKILL") == 0) raise(SIGKILL);
    if (strcmp(f->how, "SIGSEGV") == 0) raise(SIGSEGV);
    if (strcmp(f->how, "disagrees") == 0) return asp_comm_agree(comm, "the list of collectives", 8);
    if (strcmp(f->how, "aborts") == 0) {
        asp_comm_abort(comm, ASP_ERR_IO, "the disk is gone");
        return asp_comm_barrier(comm);
    }
    return asp_fail(cx, ASP_ERR_INPUT, "no such shard");
}

// A few good rounds, so that the fault falls into a run; then one rank fails.
static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    const fault *f = arg;
    static float x[50000];
    int64_t room = asp_comm_work_bytes(ASP_COMM_mpi, ASP_COMM_all_reduce, 50000, 4, RANKS);
    void *work = aligned_alloc(64, (size_t)asp_round_up(room, 64));
    asp_status s = ASP_OK;
    for (int i = 0; i < 3 && s >= 0; i++)
        s = asp_comm_all_reduce(comm, NULL, x, ASP_F32, 50000, x, work);
    if (s >= 0 && (asp_comm_rank(comm) == f->rank || f->rank < 0)) {
        s = fail_as(f, comm, cx);
    } else if (s >= 0 && f->others_busy) {
        sleep(60);
    } else if (s >= 0) {
        s = strcmp(f->how, "disagrees") == 0 ? asp_comm_agree(comm, "the list of collectives", 4)
                                             : ASP_OK;
        for (int i = 0; i < 3 && s >= 0; i++)
            s = asp_comm_all_reduce(comm, NULL, x, ASP_F32, 50000, x, work);
    }
    free(work);
    return s;
}

// What the command line does: prints a message that is not empty, leaves with 3.
static int as_rank(const fault *f)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    fault copy = *f;
    asp_status s = asp_ranks_run(&cx, ASP_COMM_mpi, RANKS, rank_main, &copy);
    if (cx.message[0]) fprintf(stderr, "autosp: %s\n", cx.message);
    return s < 0 ? 3 : 0;
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    while ((text = strstr(text, what)) != NULL) {
        text += strlen(what);
        n++;
    }
    return n;
}

static void one_fault(size_t i)
{
    const fault *f = &faults[i];
    char command[8192], out[32768];
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 timeout -k 1 10 mpirun -n %d --oversubscribe "
             "--allow-run-as-root '%s' rank %zu 2>&1",
             RANKS, self, i);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = fread(out, 1, sizeof out - 1, p);
    out[n] = '\0';
    int status = pclose(p);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, times = occurrences(out, f->said);
    bool late = code == 124 || (code == 137 && strcmp(f->how, "SIGKILL") != 0);
    bool right = code != 0 && !late && times >= 1;
    right = right && (f->times == 0 || (times == f->times && occurrences(out, "autosp:") == 1));
    right = right && occurrences(out, "autosp:") <= 1;
    if (!right || getenv("ASP_TEST_SHOW"))
        print_error("%s of rank %d%s: exit status %d, it said:\n%s\n", f->how, f->rank,
                    f->others_busy ? ", the others busy" : "", code, out);
    assert_true(right);
}

static void all_end_and_name_the_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(faults); i++) one_fault(i);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0) return as_rank(&faults[atoi(argv[2])]);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return 1;
    self[n] = '\0';
    if (!asp_comm_is_built(ASP_COMM_mpi) || system("mpirun --version >/dev/null 2>&1") != 0)
        return 77; // CTest's word for skipped (tests.cmake)
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_end_and_name_the_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
