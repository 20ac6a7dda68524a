// What the backends share.  Neighbours: comm.h (contract), comm.c (front), move.c (copies, sums),
// thread.c and mpi.c (backends).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/part.h"
#include "comm/comm.h"

// all_reduce up to this many bytes: everybody receives everything, one round; beyond: slices.
#define ASP_COMM_SMALL_BYTES 4096
// The mpi backend sums slices in blocks of this size, so that its scratch stays small.
#define ASP_COMM_BLOCK_BYTES ((int64_t)1 << 20)

// ---- exchanges, cut into pieces (move.c) ---------------------------------------------------

// A dim over all ranks, and the room each rank has for its part of it.
typedef struct asp_exchange_dim {
    int64_t whole, room;
} asp_exchange_dim;

// An array before (source) or after (target) an exchange is [outer][one][middle][two][inner]; one
// and two are the split and the gathered dim in the order in which they stand.
typedef struct asp_exchange {
    int64_t outer, middle, inner_bytes;
    asp_exchange_dim split, gather;
    int ranks;
    bool split_first, zero_tail;
} asp_exchange;

// Fails where a dim does not exist or does not fit.
asp_status asp_exchange_build(asp_ctx *cx, const asp_tensor *x, const asp_all_to_all *a, int ranks,
                              asp_exchange *out_exchange);
int64_t asp_exchange_received_bytes(const asp_exchange *e, int rank); // from other ranks

// outer * rows runs of bytes, each contiguous: what one rank sends to another.
typedef struct asp_runs {
    int64_t outer, rows, run_bytes;
} asp_runs;

asp_runs asp_exchange_runs(const asp_exchange *e, int from, int to);
static inline int64_t asp_runs_bytes(asp_runs r) { return r.outer * r.rows * r.run_bytes; }

// Runs of bytes that stand in an array at regular distances.
typedef struct asp_strip {
    char *at;
    int64_t outer_stride, row_stride; // bytes
} asp_strip;

asp_strip asp_exchange_source(const asp_exchange *e, const void *x, int to);
asp_strip asp_exchange_target(const asp_exchange *e, void *y, int from);
// What this rank's part of the split dim leaves of its room in y.
void asp_exchange_fill_tail(const asp_exchange *e, void *y, int rank);
asp_strip asp_runs_packed(asp_runs r, void *at);
// The strip is one contiguous stretch.
bool asp_runs_whole(asp_runs r, asp_strip s);

// One copy of outer * rows runs.
typedef struct asp_piece {
    asp_strip to, from;
    int64_t outer, rows, run_bytes;
    bool counted; // from another rank
} asp_piece;

asp_piece asp_piece_strips(asp_runs r, asp_strip to, asp_strip from, bool counted);
asp_piece asp_piece_bytes(void *to, const void *from, int64_t bytes, bool counted);
// Copies all pieces, on the team when there is one and enough to do.  Returns the bytes of the
// counted pieces, added up where they are copied.
int64_t asp_move(asp_team *team, const asp_piece *pieces, int n_pieces);

// y[i] = x[0][i] + x[1][i] + ... for i in 0 .. count - 1, in this order, denormals flushed.  y may
// be one of the x.
void asp_sum(asp_team *team, asp_dtype dtype, const void *const *x, int n_x, int64_t count,
             void *y);

// First element of rank r's slice of count elements; r == ranks gives count.
static inline int64_t asp_slice_begin(int64_t count, int ranks, int r)
{
    return asp_part_of(count, ranks, r).at;
}

// ---- backends ------------------------------------------------------------------------------

// Arguments were checked by comm.c; counts are kept by the backends, at their copies.
typedef struct asp_comm_vtable {
    asp_status (*all_to_all)(asp_comm *c, asp_team *team, const asp_exchange *e, const void *x,
                             void *y, void *work);
    asp_status (*all_reduce)(asp_comm *c, asp_team *team, const void *x, asp_dtype dtype,
                             int64_t count, void *y, void *work);
    asp_status (*all_gather)(asp_comm *c, asp_team *team, const void *x, int64_t bytes, void *y);
    asp_status (*broadcast)(asp_comm *c, asp_team *team, void *data, int64_t bytes);
    asp_status (*barrier)(asp_comm *c);
    // by: 1 .. ranks - 1
    asp_status (*rotate_begin)(asp_comm *c, const void *x, int64_t bytes, int by, void *y);
    asp_status (*rotate_await)(asp_comm *c, asp_team *team);
    void (*rotate_cancel)(asp_comm *c);
    // out[r] = value of rank r; not counted.
    asp_status (*gather_words)(asp_comm *c, uint64_t value, uint64_t *out);
    // Ends all ranks; together: all ranks found the same failure and report it as one.
    void (*abort)(asp_comm *c, asp_status s, const char *message, bool together);
    // Of `ranks` neighbours, which divide all; freed with c, whose `group` it becomes.
    asp_status (*open_group)(asp_comm *c, int ranks, asp_comm **out_group);
} asp_comm_vtable;

struct asp_comm { // first member of each backend's own
    const asp_comm_vtable *ops;
    asp_ctx *cx; // borrowed: the rank's
    int rank, ranks;
    int first;       // of a group: its rank 0 among all
    asp_comm *group; // owned: this rank's group; NULL: nobody asked
    asp_comm_backend kind;
    asp_comm_counts counts; // without those of the group
    int rotations;          // under way
    uint64_t *words;        // borrowed: ranks of them, for agree
};

asp_status asp_thread_ranks_run(asp_ctx *cx, int ranks, asp_rank_fn *fn, void *arg);
asp_status asp_mpi_ranks_refuse(asp_ctx *cx, asp_status s);
asp_status asp_mpi_ranks_run(asp_ctx *cx, int ranks, asp_rank_fn *fn, void *arg);
bool asp_mpi_is_built(void);

// Calls fn inside an asp_guard; a failure without a message gets the status' name.
asp_status asp_rank_call(asp_rank_fn *fn, void *arg, asp_comm *comm, asp_ctx *rank_cx);
