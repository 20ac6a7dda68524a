// A team of threads that runs one kernel at a time, all threads in step.  Neighbours: kern/kern.h
// (what runs on it), run/ (who owns one team per rank).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

typedef struct asp_team asp_team;

// What one thread of a team sees while it runs a function.
typedef struct asp_worker {
    asp_team *team; // borrowed
    int thread;     // 0 .. n_threads - 1; 0 is the thread that called asp_team_run
    int n_threads;
} asp_worker;

typedef void asp_team_fn(void *arg, asp_worker *w);

// n_threads >= 1, the caller included.  first_cpu >= 0 pins thread i to the allowed CPU number
// (first_cpu + i) modulo the CPUs that the calling thread may use, itself (thread 0) until
// asp_team_destroy; -1 leaves threads free.  Denormals are flushed (FTZ + DAZ) in every thread of
// the team while it runs.
asp_status asp_team_create(asp_ctx *cx, int n_threads, int first_cpu, asp_team **out_team);
void asp_team_destroy(asp_team *team); // NULL is allowed
int asp_team_size(const asp_team *team);

// Runs fn on every thread, the caller being thread 0, and returns when all are done.  No
// allocation; idle workers spin briefly, then sleep.  One call at a time per team.
void asp_team_run(asp_team *team, asp_team_fn *fn, void *arg);

// Inside fn.  The next unclaimed chunk in 0 .. n_chunks - 1, or -1 when all are claimed; chunks
// start afresh after each asp_team_barrier and each asp_team_run.  The grid of chunks must not
// depend on the number of threads: then neither do the bits.
int64_t asp_team_next(asp_worker *w, int64_t n_chunks);
// Inside fn: waits for all threads of the team.
void asp_team_barrier(asp_worker *w);
