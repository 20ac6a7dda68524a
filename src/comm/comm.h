// The communicator: P ranks that run the same list of operations in the same order.
//
// A rank is a function call that gets its communicator; asp_ranks_run makes the ranks and returns
// one status for all of them.  Backends (comm.def): `thread` (ranks in this process) and `mpi`; one
// rank alone gets the `self` backend, which moves nothing.  All backends give the same bits.
// Neighbours: kern/kern.h (tensors), run/ (who calls), comm.c (checks, formulas), move.c (copies
// and sums), thread.c, mpi.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/dtype.h"
#include "base/team.h"
#include "kern/kern.h"

typedef struct asp_comm asp_comm; // one per rank; used by the thread that runs the rank

typedef enum asp_comm_backend {
#define COMM_BACKEND(name, doc) ASP_COMM_##name,
#define COMM_OP(name, formula, doc)
#include "comm/comm.def"
} asp_comm_backend;

typedef enum asp_comm_op {
#define COMM_BACKEND(name, doc)
#define COMM_OP(name, formula, doc) ASP_COMM_##name,
#include "comm/comm.def"
} asp_comm_op;
enum {
#define COMM_BACKEND(name, doc)
#define COMM_OP(name, formula, doc) +1
    ASP_COMM_OP_COUNT = 0
#include "comm/comm.def"
};

// "thread" or "mpi"; fails naming the text and what there is.
asp_status asp_comm_backend_find(asp_ctx *cx, const char *name, asp_comm_backend *out_backend);
const char *asp_comm_backend_name(asp_comm_backend b);
bool asp_comm_is_built(asp_comm_backend b);   // mpi may be missing
const char *asp_comm_op_name(asp_comm_op op); // "all_to_all"

// ---- ranks ---------------------------------------------------------------------------------

// What a rank runs.  rank_cx is the rank's own context, inside an asp_guard; arg is shared by all
// ranks of a process.  An error it returns ends all ranks: those that wait in an operation, and
// those that enter the next one, get ASP_ERR_PEER.
typedef asp_status asp_rank_fn(void *arg, asp_comm *comm, asp_ctx *rank_cx);

// Runs fn on `ranks` ranks and returns when all have ended: ASP_OK, or the status of the rank that
// failed first with its message behind "rank N: ".
//   thread  starts the threads (16 MiB of stack) and joins them; ranks == 1 calls fn here.
//   mpi     calls fn once in this process, which is one of `ranks` that mpirun started; a different
//           number is refused naming both.  Once per process: MPI is initialised and finalised
//           inside.  On failure the message stands in one process only, that of the failed rank or,
//           when it is gone, the lowest one left; the others return ASP_ERR_PEER with an empty
//           message, so whoever prints non-empty messages prints one.  After a failure the process
//           must end soon, without a further call, with an exit code other than 0: mpirun then ends
//           the rest.
asp_status asp_ranks_run(asp_ctx *cx, asp_comm_backend backend, int ranks, asp_rank_fn *fn,
                         void *arg);

// In place of asp_ranks_run, by a process that has failed before its rank could run: `s` (< 0) with
// the context's message.  Returns s; with mpi it ends the other processes too, and the message then
// stands in one process only, as above, however many have found the same.
asp_status asp_ranks_refuse(asp_ctx *cx, asp_comm_backend backend, asp_status s);

int asp_comm_rank(const asp_comm *comm);
int asp_comm_ranks(const asp_comm *comm);
asp_comm_backend asp_comm_kind(const asp_comm *comm); // thread for a rank alone

// The communicator of this rank's group of `ranks` neighbours, which divide all ranks: 0 .. ranks -
// 1, the next `ranks`, and so on.  All ranks ask, for one and the same size; it is comm itself
// where the group is all, else it dies with comm.  Operations on it are among the group; a failure
// still ends all ranks.
asp_status asp_comm_group(asp_comm *comm, int ranks, asp_comm **out_group);

// ---- operations ----------------------------------------------------------------------------

// All of them block, and all ranks call the same ones in the same order with the same shapes.  On
// return nobody reads the caller's arrays any more.  Failures go to the rank's context.  team (or
// NULL) helps with large copies.  work: asp_comm_work_bytes of scratch, 64-byte aligned; may be
// NULL when that is 0.

// An exchange: `split` is whole on every rank and is cut into parts, `gather` is in parts
// (base/part.h) and becomes whole.
typedef struct asp_all_to_all {
    int split, gather; // dims, different
    int64_t whole;     // of dim gather over all ranks; 0: ranks times what the operand has
    int ranks;         // of a group of neighbouring ranks that exchange among themselves; 0: all
    int64_t split_unit, gather_unit; // so many items stay together (heads of a group); 0 means 1
    bool zero_tail; // what the tail of split is filled with: zeros, else copies of the last element
                    // (zeros again where a rank has none)
} asp_all_to_all;

// y = for r = 0, 1, ...: part asp_comm_rank of rank r's x along dim `split`, put one after the
// other along dim `gather`; of the parts that are gathered the tail is left out.  x and y are
// contiguous and do not overlap.  The inverse swaps split and gather.
asp_status asp_comm_all_to_all(asp_comm *comm, asp_team *team, const asp_tensor *x,
                               const asp_all_to_all *a, const asp_tensor *y, void *work);

// y = x of rank 0 + x of rank 1 + ..., added in this order in the dtype (f32, f64, i64), denormals
// flushed; the same bits on all ranks.  y may be x; otherwise they do not overlap.
asp_status asp_comm_all_reduce(asp_comm *comm, asp_team *team, const void *x, asp_dtype dtype,
                               int64_t count, void *y, void *work);

// y (ranks * bytes) = the x of all ranks in order.  x may stand at its place in y.
asp_status asp_comm_all_gather(asp_comm *comm, asp_team *team, const void *x, int64_t bytes,
                               void *y);

// Rotations are begun, and awaited in the order in which they were begun; work goes on between.
// begin: x (bytes) goes to rank + by, y (bytes) comes from rank - by, both modulo the ranks, by no
// multiple of them.  x must not change and y not be touched until it was awaited: then y is there
// and nobody reads x any more.  At most ASP_COMM_ROTATIONS are under way.
#define ASP_COMM_ROTATIONS 16
asp_status asp_comm_rotate_begin(asp_comm *comm, const void *x, int64_t bytes, int64_t by, void *y);
asp_status asp_comm_rotate_await(asp_comm *comm, asp_team *team);
// After a failure, before the arrays of rotations under way are freed: nobody reads them any more.
void asp_comm_rotate_cancel(asp_comm *comm);

// data (bytes) of rank 0 on all ranks.
asp_status asp_comm_broadcast(asp_comm *comm, asp_team *team, void *data, int64_t bytes);

asp_status asp_comm_barrier(asp_comm *comm);

// Before step 1: fails on all ranks, naming `what` ("the list of collectives") and the rank whose
// hash differs.
asp_status asp_comm_agree(asp_comm *comm, const char *what, uint64_t hash);

// Ends all ranks as if fn had returned `status` (< 0) with this message.  A rank whose fn returns
// an error need not call it.
void asp_comm_abort(asp_comm *comm, asp_status status, const char *message);

// ---- bytes ---------------------------------------------------------------------------------

// Bytes that rank `rank` receives from other ranks in one operation on its array of count elements
// of elem_bytes each: the formulas of comm.def.  For all_to_all (where all parts are of one size),
// all_reduce and all_gather it sends as many.  For all_gather, count is that of x.
int64_t asp_comm_bytes(asp_comm_op op, int64_t count, int64_t elem_bytes, int ranks, int rank);

// Of an all_to_all on x, which needs no data: bytes that `rank` receives, exactly, and bytes of
// scratch that it wants (the same on all ranks).  Fails as the operation would.
asp_status asp_comm_all_to_all_cost(asp_ctx *cx, asp_comm_backend backend, const asp_tensor *x,
                                    const asp_all_to_all *a, int ranks, int rank,
                                    int64_t *out_received_bytes, int64_t *out_work_bytes);

// Bytes of scratch that any other op wants on such an array (the same on all ranks).
int64_t asp_comm_work_bytes(asp_comm_backend backend, asp_comm_op op, int64_t count,
                            int64_t elem_bytes, int ranks);

// What was really copied from other ranks so far, counted at the copies, and how often each
// operation ran, in the rank's group too.  agree is not counted.
typedef struct asp_comm_counts {
    int64_t calls[ASP_COMM_OP_COUNT];
    int64_t bytes[ASP_COMM_OP_COUNT];
} asp_comm_counts;

asp_comm_counts asp_comm_counted(const asp_comm *comm);
