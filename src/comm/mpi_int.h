// What the files of the mpi backend share: mpi.c (messages and operations), mpi_fail.c (how a job
// fails), mpi_ranks.c (how it begins and ends).  Only they know mpi.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm_int.h"

#ifdef ASP_HAVE_MPI

#include <mpi.h>

// What a failed rank tells the others.
typedef struct note {
    int status, rank, together;
    char text[ASP_MESSAGE_BYTES];
} note;

// A process of the job.
typedef struct process {
    uint64_t host;
    int64_t pid;    // 0: not watched
    int64_t status; // what it found before it came here; < 0: it has no rank to run
} process;

typedef struct rotation {
    const void *x;
    void *y;
    int64_t bytes;
    int to, from;
    MPI_Request requests[2];
} rotation;

// What all communicators of this process share: the messages, and how it fails.
typedef struct job {
    MPI_Comm data, control;
    int rank, ranks;
    process *peers;     // owned: ranks of them
    MPI_Request *notes; // owned: ranks of them
    bool watch;         // false while ranks may end normally
    bool ended;         // a failure is known; note holds it
    bool told;          // this rank sent notes of its own
    int speaker;        // rank whose process reports the failure
    note note;          // the failure that stands
    note mine;          // what this rank sent; must outlive the sends
    asp_ctx cx;         // the rank's
} job;

typedef struct mpi_comm {
    asp_comm base;
    job *job;       // owned by the communicator of all ranks
    char *small;    // owned: ranks * ASP_COMM_SMALL_BYTES, for sums of little
    const void **x; // owned: ranks of them
    rotation rotations[ASP_COMM_ROTATIONS]; // number n at n mod ASP_COMM_ROTATIONS
    uint64_t begun, awaited;
} mpi_comm;

// mpi_fail.c
int64_t asp_mpi_now_us(void);
void asp_mpi_sleep_us(int64_t us);
bool asp_mpi_is_alive(const process *p); // of this host
// Fails with the failure that stands.
asp_status asp_mpi_ended(job *j);
// Makes n the failure that stands, which `speaker` reports.
void asp_mpi_stand(job *j, const note *n, int speaker);
asp_status asp_mpi_error(job *j, const char *what, int error);
// Waits for messages; fails when a peer has.
asp_status asp_mpi_wait(job *j, MPI_Request *requests, int n);
// Of the vtable: sends this rank's failure to all others; the lowest of several stands.
void asp_mpi_abort(asp_comm *base, asp_status s, const char *message, bool together);

// mpi.c
extern const asp_comm_vtable asp_mpi_ops;
asp_status asp_mpi_barrier(asp_comm *base);

// mpi_ranks.c, of the vtable
asp_status asp_mpi_open_group(asp_comm *base, int ranks, asp_comm **out_group);

#endif
