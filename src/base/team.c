// A pool of threads that run one function in step.  Neighbours: team.h (contract).
//
// A run publishes (fn, arg) and raises `epoch`; workers that see it call fn and lower `busy`.
// Waiting is: look a bounded number of times, then give the processor away, then sleep on a
// condition variable, so that more threads than cores still make progress.
// SPDX-License-Identifier: Apache-2.0
#include "base/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define SPINS 2000
#define YIELDS 50

struct asp_team {
    int n_threads, n_started;
    int first_cpu;
    bool pins; // of a team that pins its threads: what the creator was allowed before
    cpu_set_t allowed;
    pthread_t creator;
    asp_team_fn *fn; // of the current run; written before epoch is raised
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    bool stop;
    _Alignas(ASP_CACHE_LINE) _Atomic uint32_t epoch;
    _Alignas(ASP_CACHE_LINE) _Atomic int busy; // workers that have not finished the current run
    _Alignas(ASP_CACHE_LINE) _Atomic int64_t next_chunk;
    _Alignas(ASP_CACHE_LINE) _Atomic int arrived; // at the barrier
    _Alignas(ASP_CACHE_LINE) _Atomic uint32_t phase;
    struct member {
        asp_team *team;
        int thread;
        pthread_t id;
    } * members;
};

static void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

// Flush-to-zero and denormals-are-zero: a denormal costs a hundred cycles and carries nothing.
static unsigned flush_denormals(void)
{
#if defined(__x86_64__)
    unsigned old = _mm_getcsr();
    _mm_setcsr(old | 0x8040);
    return old;
#else
    return 0;
#endif
}

static void restore_denormals(unsigned old)
{
#if defined(__x86_64__)
    _mm_setcsr(old);
#else
    (void)old;
#endif
}

// Pins thread i to the (first_cpu + i)-th of the CPUs that the process may use; best effort.  The
// set is that from before the creator was pinned, because threads inherit the mask of their
// creator.
static void pin(const asp_team *t, int thread)
{
    if (!t->pins) return;
    int want = (t->first_cpu + thread) % CPU_COUNT(&t->allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &t->allowed) || want-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

static uint32_t wait_for_epoch(asp_team *t, uint32_t seen)
{
    for (int i = 0; i < SPINS + YIELDS; i++) {
        uint32_t epoch = atomic_load_explicit(&t->epoch, memory_order_acquire);
        if (epoch != seen) return epoch;
        if (i < SPINS)
            relax();
        else
            sched_yield();
    }
    pthread_mutex_lock(&t->lock);
    while (atomic_load_explicit(&t->epoch, memory_order_acquire) == seen)
        pthread_cond_wait(&t->wake, &t->lock);
    pthread_mutex_unlock(&t->lock);
    return atomic_load_explicit(&t->epoch, memory_order_acquire);
}

static void *worker_main(void *arg)
{
    struct member *m = arg;
    asp_team *t = m->team;
    asp_worker w = {.team = t, .thread = m->thread, .n_threads = t->n_threads};
    uint32_t seen = 0;
    pin(t, m->thread);
    flush_denormals();
    for (;;) {
        seen = wait_for_epoch(t, seen);
        if (t->stop) return NULL;
        t->fn(t->arg, &w);
        if (atomic_fetch_sub_explicit(&t->busy, 1, memory_order_acq_rel) != 1) continue;
        pthread_mutex_lock(&t->lock); // the caller may be asleep
        pthread_cond_signal(&t->done);
        pthread_mutex_unlock(&t->lock);
    }
}

static void publish(asp_team *t)
{
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add_explicit(&t->epoch, 1, memory_order_release);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

static void wait_until_idle(asp_team *t)
{
    for (int i = 0; i < SPINS + YIELDS; i++) {
        if (atomic_load_explicit(&t->busy, memory_order_acquire) == 0) return;
        if (i < SPINS)
            relax();
        else
            sched_yield();
    }
    pthread_mutex_lock(&t->lock);
    while (atomic_load_explicit(&t->busy, memory_order_acquire) != 0)
        pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

asp_status asp_team_create(asp_ctx *cx, int n_threads, int first_cpu, asp_team **out_team)
{
    if (n_threads < 1 || n_threads > 1024)
        return asp_fail(cx, ASP_ERR_USAGE, "%d threads a rank; 1 to 1024 are possible", n_threads);
    asp_team *t = aligned_alloc(ASP_CACHE_LINE, sizeof *t);
    struct member *members = calloc((size_t)n_threads, sizeof *members);
    if (!t || !members) {
        free(t);
        free(members);
        return asp_fail(cx, ASP_ERR_NOMEM, "no memory for a team of %d threads", n_threads);
    }
    memset(t, 0, sizeof *t);
    t->n_threads = n_threads;
    t->n_started = 1;
    t->first_cpu = first_cpu;
    t->members = members;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    t->creator = pthread_self();
    t->pins = first_cpu >= 0 && sched_getaffinity(0, sizeof t->allowed, &t->allowed) == 0 &&
              CPU_COUNT(&t->allowed) > 0;
    pin(t, 0);
    for (int i = 1; i < n_threads; i++) {
        members[i] = (struct member){.team = t, .thread = i};
        if (pthread_create(&members[i].id, NULL, worker_main, &members[i]) != 0) {
            asp_team_destroy(t);
            return asp_fail(cx, ASP_ERR_NOMEM, "the system refused thread %d of %d", i + 1,
                            n_threads);
        }
        t->n_started++;
    }
    *out_team = t;
    return ASP_OK;
}

void asp_team_destroy(asp_team *t)
{
    if (!t) return;
    t->stop = true;
    publish(t);
    for (int i = 1; i < t->n_started; i++) pthread_join(t->members[i].id, NULL);
    if (t->pins && pthread_equal(t->creator, pthread_self()))
        pthread_setaffinity_np(t->creator, sizeof t->allowed, &t->allowed);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->lock);
    free(t->members);
    free(t);
}

int asp_team_size(const asp_team *t) { return t->n_threads; }

void asp_team_run(asp_team *t, asp_team_fn *fn, void *arg)
{
    asp_worker w = {.team = t, .thread = 0, .n_threads = t->n_threads};
    unsigned old = flush_denormals();
    atomic_store_explicit(&t->next_chunk, 0, memory_order_relaxed);
    if (t->n_threads > 1) {
        t->fn = fn;
        t->arg = arg;
        atomic_store_explicit(&t->busy, t->n_threads - 1, memory_order_relaxed);
        publish(t);
    }
    fn(arg, &w);
    if (t->n_threads > 1) wait_until_idle(t);
    restore_denormals(old);
}

int64_t asp_team_next(asp_worker *w, int64_t n_chunks)
{
    int64_t i = atomic_fetch_add_explicit(&w->team->next_chunk, 1, memory_order_relaxed);
    return i < n_chunks ? i : -1;
}

void asp_team_barrier(asp_worker *w)
{
    asp_team *t = w->team;
    uint32_t phase = atomic_load_explicit(&t->phase, memory_order_acquire);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) == t->n_threads - 1) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&t->next_chunk, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&t->phase, 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&t->phase, memory_order_acquire) == phase; i++) {
        if (i < SPINS)
            relax();
        else
            sched_yield();
    }
}
