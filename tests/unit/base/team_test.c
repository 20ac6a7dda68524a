// The team: every chunk once, barriers that separate, many short runs, more threads than cores.
// SPDX-License-Identifier: Apache-2.0
#include "base/team.h"

#include <sched.h>
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

typedef struct place {
    cpu_set_t set[4];
    double denormal[4];
    _Atomic int runs;
} place;

static void look_around(void *arg, asp_worker *w)
{
    place *p = arg;
    volatile double tiny = 0x1p-1022;
    p->denormal[w->thread] = tiny / 2;
    sched_getaffinity(0, sizeof p->set[0], &p->set[w->thread]);
    atomic_fetch_add(&p->runs, 1);
}

// Each thread on one CPU, neighbours on different ones where there are two; the caller is let go.
static void threads_are_pinned_until_the_team_ends(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_team *team;
    cpu_set_t before, after, overlap;
    static place p;
    asp_ctx_init(&cx);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int first = 0; first < 3; first += 2) {
        assert_int_equal(asp_team_create(&cx, 4, first, &team), ASP_OK);
        asp_team_run(team, look_around, &p);
        asp_team_destroy(team);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(CPU_COUNT(&p.set[i]), 1);
            CPU_AND(&overlap, &p.set[i], &before);
            assert_true(CPU_EQUAL(&overlap, &p.set[i]));
            if (i > 0 && CPU_COUNT(&before) > 1) assert_false(CPU_EQUAL(&p.set[i], &p.set[i - 1]));
        }
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
}

static void denormals_are_flushed_only_in_the_team(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_team *team;
    place p = {.runs = 0};
    asp_ctx_init(&cx);
    assert_int_equal(asp_team_create(&cx, 4, -1, &team), ASP_OK);
    for (int round = 0; round < 2; round++) asp_team_run(team, look_around, &p);
    asp_team_destroy(team);
    assert_int_equal(p.runs, 8);
#if defined(__x86_64__)
    for (int i = 0; i < 4; i++) assert_true(p.denormal[i] == 0);
#endif
    volatile double tiny = 0x1p-1022;
    assert_true(tiny / 2 > 0);
}

// The grid of chunks is the program's, so what a chunk computes does not depend on the threads.
static void sum_in_chunks(void *arg, asp_worker *w)
{
    double *partial = arg;
    for (int64_t c; (c = asp_team_next(w, 64)) >= 0;) {
        double sum = 0;
        for (int i = 0; i < 1000; i++) sum += 1.0 / (double)(1 + c * 1000 + i);
        partial[c] = sum;
    }
    asp_team_barrier(w);
    for (int step = 1; step < 64; step *= 2) { // a fixed tree, a barrier a level
        for (int64_t c; (c = asp_team_next(w, 64 / (2 * step))) >= 0;)
            partial[c * 2 * step] += partial[c * 2 * step + step];
        asp_team_barrier(w);
    }
}

static void bits_do_not_depend_on_the_threads(void **state)
{
    (void)state;
    asp_ctx cx;
    double one[64], many[64];
    asp_ctx_init(&cx);
    for (int threads = 1; threads <= 9; threads += 2) {
        asp_team *team;
        assert_int_equal(asp_team_create(&cx, threads, -1, &team), ASP_OK);
        asp_team_run(team, sum_in_chunks, threads == 1 ? one : many);
        if (threads > 1) assert_memory_equal(one, many, sizeof one);
        asp_team_destroy(team);
    }
    // H(64000) = ln 64000 + gamma + 1 / 128000 - ...
    assert_true(one[0] > 11.643861839722 && one[0] < 11.643861839724);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_is_claimed_once),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(threads_are_pinned_until_the_team_ends),
        cmocka_unit_test(denormals_are_flushed_only_in_the_team),
        cmocka_unit_test(bits_do_not_depend_on_the_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
