// The mpi backend: this program starts itself under mpirun, where every process runs the
// conformance suite as one rank.  Nothing to do where there is no mpirun or no MPI in the build.
// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

static char self[4096];

static int as_rank(int ranks)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    asp_status s = asp_ranks_run(&cx, ASP_COMM_mpi, ranks, conformance, NULL);
    if (cx.message[0]) printf("%s\n", cx.message);
    fflush(stdout);
    return s < 0 ? 3 : 0;
}

// Exit status of `ranks` processes; what they said goes to out.
static int start(int processes, int ranks, char *out, size_t out_bytes)
{
    char command[8192];
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 timeout -k 5 60 mpirun -n %d --oversubscribe "
             "--allow-run-as-root '%s' rank %d 2>&1",
             processes, self, ranks);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(out, 1, out_bytes - 1, f);
    out[n] = '\0';
    while (fgetc(f) != EOF) {
    }
    return pclose(f);
}

static bool has_mpi(void)
{
    return asp_comm_is_built(ASP_COMM_mpi) && system("mpirun --version >/dev/null 2>&1") == 0;
}

static void conforms(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < ASP_COUNT_OF(ranks); i++) {
        char out[16384];
        int status = start(ranks[i], ranks[i], out, sizeof out);
        if (status) print_error("%d ranks: %s\n", ranks[i], out);
        assert_int_equal(status, 0);
    }
}

static void other_number_of_ranks(void **state)
{
    (void)state;
    char out[16384];
    assert_int_not_equal(start(2, 4, out, sizeof out), 0);
    const char *want = "4 ranks (--ranks times --dp), but MPI started 2 processes";
    const char *at = strstr(out, want);
    assert_non_null(at);
    assert_null(strstr(at + 1, want)); // once
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0) return as_rank(atoi(argv[2]));
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return 1;
    self[n] = '\0';
    if (!has_mpi()) return 77; // CTest's word for skipped (CMakeLists.txt)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conforms),
        cmocka_unit_test(other_number_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
