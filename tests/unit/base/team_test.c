// The team: every chunk once, barriers that separate, many short runs, more threads than cores.
// SPDX-License-Identifier: Apache-2.0
#include "base/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <cmocka.h>

#define CHUNKS 257

typedef struct job {
    _Atomic int claimed[CHUNKS], again[CHUNKS];
    _Atomic int early; // second-phase work seen before the first phase was complete
} job;

static void claim_twice(void *arg, asp_worker *w)
{
    job *j = arg;
    for (int64_t i; (i = asp_team_next(w, CHUNKS)) >= 0;) atomic_fetch_add(&j->claimed[i], 1);
    asp_team_barrier(w);
    for (int i = 0; i < CHUNKS; i++)
        if (atomic_load(&j->claimed[i]) != 1) atomic_fetch_add(&j->early, 1);
    for (int64_t i; (i = asp_team_next(w, CHUNKS)) >= 0;) atomic_fetch_add(&j->again[i], 1);
}

static void every_chunk_is_claimed_once(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    for (int threads = 1; threads <= 5; threads++) {
        asp_team *team;
        assert_int_equal(asp_team_create(&cx, threads, -1, &team), ASP_OK);
        assert_int_equal(asp_team_size(team), threads);
        for (int round = 0; round < 200; round++) {
            static job j;
            memset((void *)&j, 0, sizeof j);
            asp_team_run(team, claim_twice, &j);
            assert_int_equal(j.early, 0);
            for (int i = 0; i < CHUNKS; i++) assert_int_equal(j.claimed[i] + 10 * j.again[i], 11);
        }
        asp_team_destroy(team);
    }
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_team *team = NULL;
    asp_ctx_init(&cx);
    assert_int_equal(asp_team_create(&cx, 0, -1, &team), ASP_ERR_USAGE);
    assert_string_equal(cx.message, "0 threads a rank; 1 to 1024 are possible");
    assert_null(team);
    asp_team_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_is_claimed_once),
        cmocka_unit_test(wrong_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
