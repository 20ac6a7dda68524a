// The front of the communicator: names, byte formulas, checks of arguments, the comparison before
// step 1, and the backend of a rank alone.  Neighbours: comm.h (contract), thread.c and mpi.c
// (backends), move.c (copies).  SPDX-License-Identifier: Apache-2.0
#include "comm/comm_int.h"

// ---- names ---------------------------------------------------------------------------------

static const char *const backend_names[] = {
#define COMM_BACKEND(name, doc) #name,
#define COMM_OP(name, formula, doc)
#include "comm/comm.def"
};

static const char *const op_names[] = {
#define COMM_BACKEND(name, doc)
#define COMM_OP(name, formula, doc) #name,
#include "comm/comm.def"
};

asp_status asp_comm_backend_find(asp_ctx *cx, const char *name, asp_comm_backend *out_backend)
{
    for (size_t i = 0; i < ASP_COUNT_OF(backend_names); i++) {
        if (strcmp(name, backend_names[i]) != 0) continue;
        *out_backend = (asp_comm_backend)i;
        return ASP_OK;
    }
    return asp_fail(cx, ASP_ERR_USAGE, "--comm %s: there is `thread` and `mpi`", name);
}

const char *asp_comm_backend_name(asp_comm_backend b) { return backend_names[b]; }
bool asp_comm_is_built(asp_comm_backend b) { return b != ASP_COMM_mpi || asp_mpi_is_built(); }
const char *asp_comm_op_name(asp_comm_op op) { return op_names[op]; }

int asp_comm_rank(const asp_comm *comm) { return comm->rank; }
int asp_comm_ranks(const asp_comm *comm) { return comm->ranks; }
asp_comm_backend asp_comm_kind(const asp_comm *comm) { return comm->kind; }

asp_comm_counts asp_comm_counted(const asp_comm *comm)
{
    asp_comm_counts sum = comm->counts;
    for (int i = 0; comm->group && i < ASP_COMM_OP_COUNT; i++) {
        sum.calls[i] += comm->group->counts.calls[i];
        sum.bytes[i] += comm->group->counts.bytes[i];
    }
    return sum;
}

asp_status asp_comm_group(asp_comm *comm, int ranks, asp_comm **out_group)
{
    if (ranks < 1 || comm->ranks % ranks != 0)
        return asp_fail(comm->cx, ASP_ERR_USAGE, "%d ranks are no groups of %d", comm->ranks,
                        ranks);
    if (ranks == comm->ranks) {
        *out_group = comm;
        return ASP_OK;
    }
    if (!comm->group) ASP_TRY(comm->ops->open_group(comm, ranks, &comm->group));
    ASP_CHECK(comm->group->ranks == ranks); // one division
    *out_group = comm->group;
    return ASP_OK;
}

// ---- formulas ------------------------------------------------------------------------------

int64_t asp_comm_bytes(asp_comm_op op, int64_t count, int64_t elem_bytes, int ranks, int rank)
{
    int64_t bytes = count * elem_bytes;
    if (ranks == 1) return 0;
    switch (op) {
    case ASP_COMM_all_to_all: return bytes / ranks * (ranks - 1); // parts of one size
    case ASP_COMM_all_reduce: {
        int64_t slice =
            (asp_slice_begin(count, ranks, rank + 1) - asp_slice_begin(count, ranks, rank)) *
            elem_bytes;
        if (bytes <= ASP_COMM_SMALL_BYTES) return bytes * (ranks - 1);
        return slice * (ranks - 1) + bytes - slice;
    }
    case ASP_COMM_all_gather: return bytes * (ranks - 1);
    case ASP_COMM_broadcast: return rank == 0 ? 0 : bytes;
    case ASP_COMM_rotate: return bytes;
    case ASP_COMM_barrier: return 0;
    }
    return 0;
}

int64_t asp_comm_work_bytes(asp_comm_backend backend, asp_comm_op op, int64_t count,
                            int64_t elem_bytes, int ranks)
{
    if (backend == ASP_COMM_thread || ranks == 1) return 0;
    int64_t bytes = count * elem_bytes;
    if (op == ASP_COMM_all_reduce && bytes > ASP_COMM_SMALL_BYTES) { // a block from every peer
        int64_t slice = asp_round_up(asp_ceil_div(count, ranks) * elem_bytes, ASP_CACHE_LINE);
        return asp_min(slice, ASP_COMM_BLOCK_BYTES) * (ranks - 1);
    }
    return 0;
}

// ---- checked calls -------------------------------------------------------------------------

static bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
    return p < q ? q - p < (uint64_t)a_bytes : p - q < (uint64_t)b_bytes;
}

static asp_status check_result(asp_comm *c, const asp_tensor *x, const asp_all_to_all *a,
                               const asp_exchange *e, const asp_tensor *y)
{
    bool fits = y->rank == x->rank && y->dtype == x->dtype;
    for (int i = 0; i < x->rank && fits; i++) {
        int64_t want = x->dim[i];
        if (i == a->split) want = e->split.room * asp_max(1, a->split_unit);
        if (i == a->gather) want = e->gather.whole * asp_max(1, a->gather_unit);
        fits = y->dim[i] == want;
    }
    if (!fits)
        return asp_fail(c->cx, ASP_ERR_SHAPE,
                        "all_to_all: the result must have dim %d cut by %d ranks, dim %d gathered, "
                        "and the operand's dtype",
                        a->split, c->ranks, a->gather);
    int64_t elem = asp_dtypes[x->dtype].bytes;
    if (overlap(x->data, asp_tensor_count(x) * elem, y->data, asp_tensor_count(y) * elem))
        return asp_fail(c->cx, ASP_ERR_USAGE, "all_to_all: operand and result overlap");
    return ASP_OK;
}

asp_status asp_comm_all_to_all(asp_comm *comm, asp_team *team, const asp_tensor *x,
                               const asp_all_to_all *a, const asp_tensor *y, void *work)
{
    asp_exchange e;
    const int group = a->ranks ? a->ranks : comm->ranks;
    if (comm->ranks % group != 0)
        return asp_fail(comm->cx, ASP_ERR_USAGE, "all_to_all: %d ranks are no groups of %d",
                        comm->ranks, group);
    ASP_TRY(asp_exchange_build(comm->cx, x, a, group, &e));
    ASP_TRY(check_result(comm, x, a, &e, y));
    comm->counts.calls[ASP_COMM_all_to_all]++;
    return comm->ops->all_to_all(comm, team, &e, x->data, y->data, work);
}

asp_status asp_comm_all_to_all_cost(asp_ctx *cx, asp_comm_backend backend, const asp_tensor *x,
                                    const asp_all_to_all *a, int ranks, int rank,
                                    int64_t *out_received_bytes, int64_t *out_work_bytes)
{
    asp_exchange e;
    if (a->ranks) ranks = a->ranks;
    ASP_TRY(asp_exchange_build(cx, x, a, ranks, &e));
    *out_received_bytes = asp_exchange_received_bytes(&e, rank % ranks);
    *out_work_bytes = 0;
    if (backend == ASP_COMM_thread || ranks == 1) return ASP_OK;
    // A piece packed, a piece to unpack: the largest is that of rank 0 to rank 0.
    int64_t piece = asp_runs_bytes(asp_exchange_runs(&e, 0, 0));
    *out_work_bytes = 2 * asp_round_up(piece, ASP_CACHE_LINE);
    return ASP_OK;
}

asp_status asp_comm_all_reduce(asp_comm *comm, asp_team *team, const void *x, asp_dtype dtype,
                               int64_t count, void *y, void *work)
{
    if (dtype != ASP_F32 && dtype != ASP_F64 && dtype != ASP_I64)
        return asp_fail(comm->cx, ASP_ERR_UNSUPPORTED,
                        "all_reduce of %s: sums are made in f32, f64 and i64; cast before",
                        asp_dtypes[dtype].name);
    int64_t bytes = count * asp_dtypes[dtype].bytes;
    if (x != y && overlap(x, bytes, y, bytes))
        return asp_fail(comm->cx, ASP_ERR_USAGE, "all_reduce: operand and result overlap in part");
    comm->counts.calls[ASP_COMM_all_reduce]++;
    return comm->ops->all_reduce(comm, team, x, dtype, count, y, work);
}

asp_status asp_comm_all_gather(asp_comm *comm, asp_team *team, const void *x, int64_t bytes,
                               void *y)
{
    comm->counts.calls[ASP_COMM_all_gather]++;
    return comm->ops->all_gather(comm, team, x, bytes, y);
}

asp_status asp_comm_broadcast(asp_comm *comm, asp_team *team, void *data, int64_t bytes)
{
    comm->counts.calls[ASP_COMM_broadcast]++;
    return comm->ops->broadcast(comm, team, data, bytes);
}

asp_status asp_comm_barrier(asp_comm *comm)
{
    comm->counts.calls[ASP_COMM_barrier]++;
    return comm->ops->barrier(comm);
}

asp_status asp_comm_rotate_begin(asp_comm *comm, const void *x, int64_t bytes, int64_t by, void *y)
{
    if (comm->ranks > 1 && by % comm->ranks == 0)
        return asp_fail(comm->cx, ASP_ERR_USAGE, "rotate by %lld of %d ranks moves nothing",
                        (long long)by, comm->ranks);
    if (comm->rotations == ASP_COMM_ROTATIONS)
        return asp_fail(comm->cx, ASP_ERR_LIMIT, "more than %d rotations are under way",
                        ASP_COMM_ROTATIONS);
    if (overlap(x, bytes, y, bytes))
        return asp_fail(comm->cx, ASP_ERR_USAGE, "rotate: operand and result overlap");
    comm->counts.calls[ASP_COMM_rotate]++;
    comm->rotations++;
    by = (by % comm->ranks + comm->ranks) % comm->ranks;
    return comm->ops->rotate_begin(comm, x, bytes, (int)by, y);
}

asp_status asp_comm_rotate_await(asp_comm *comm, asp_team *team)
{
    ASP_CHECK(comm->rotations > 0);
    ASP_TRY(comm->ops->rotate_await(comm, team));
    comm->rotations--;
    return ASP_OK;
}

void asp_comm_rotate_cancel(asp_comm *comm)
{
    if (comm->rotations > 0) comm->ops->rotate_cancel(comm);
}

void asp_comm_abort(asp_comm *comm, asp_status status, const char *message)
{
    ASP_CHECK(status < 0);
    comm->ops->abort(comm, status, message, false);
}

// The rank that stands alone: one that differs from rank 0, or rank 0 when all others agree.
static int odd_rank(const uint64_t *hash, int ranks)
{
    int first = 1;
    while (hash[first] == hash[0]) first++;
    if (first > 1 || ranks == 2) return first;
    for (int r = 2; r < ranks; r++)
        if (hash[r] != hash[1]) return hash[r] == hash[0] ? 1 : r;
    return 0;
}

asp_status asp_comm_agree(asp_comm *comm, const char *what, uint64_t hash)
{
    uint64_t *all = comm->words;
    ASP_TRY(comm->ops->gather_words(comm, hash, all));
    bool same = true;
    for (int r = 1; r < comm->ranks; r++) same = same && all[r] == all[0];
    if (same) return ASP_OK;
    int odd = odd_rank(all, comm->ranks), other = odd == 0 ? 1 : 0;
    asp_status s = asp_fail(
        comm->cx, ASP_ERR_PEER,
        "the ranks do not agree on %s: rank %d has %016llx, rank %d has %016llx; start every rank "
        "with the same program, options and data",
        what, odd, (unsigned long long)all[odd], other, (unsigned long long)all[other]);
    comm->ops->abort(comm, s, comm->cx->message, true);
    return s;
}

// ---- a rank alone --------------------------------------------------------------------------

static asp_status self_all_to_all(asp_comm *c, asp_team *team, const asp_exchange *e, const void *x,
                                  void *y, void *work)
{
    (void)c, (void)work;
    asp_piece p = asp_piece_bytes(y, x, asp_runs_bytes(asp_exchange_runs(e, 0, 0)), false);
    asp_move(team, &p, 1);
    return ASP_OK;
}

static asp_status self_copy(asp_team *team, const void *x, int64_t bytes, void *y)
{
    asp_piece p = asp_piece_bytes(y, x, bytes, false);
    if (x != y) asp_move(team, &p, 1);
    return ASP_OK;
}

static asp_status self_all_reduce(asp_comm *c, asp_team *team, const void *x, asp_dtype dtype,
                                  int64_t count, void *y, void *work)
{
    (void)c, (void)work;
    return self_copy(team, x, count * asp_dtypes[dtype].bytes, y);
}

static asp_status self_all_gather(asp_comm *c, asp_team *team, const void *x, int64_t bytes,
                                  void *y)
{
    (void)c;
    return self_copy(team, x, bytes, y);
}

static asp_status self_broadcast(asp_comm *c, asp_team *team, void *data, int64_t bytes)
{
    (void)c, (void)team, (void)data, (void)bytes;
    return ASP_OK;
}

static asp_status self_barrier(asp_comm *c)
{
    (void)c;
    return ASP_OK;
}

static asp_status self_rotate_begin(asp_comm *c, const void *x, int64_t bytes, int by, void *y)
{
    (void)c, (void)by;
    return self_copy(NULL, x, bytes, y);
}

static asp_status self_rotate_await(asp_comm *c, asp_team *team)
{
    (void)c, (void)team;
    return ASP_OK;
}

static void self_rotate_cancel(asp_comm *c) { (void)c; }

static asp_status self_gather_words(asp_comm *c, uint64_t value, uint64_t *out)
{
    (void)c;
    out[0] = value;
    return ASP_OK;
}

// Nobody else to end; the rank returns its own failure.
static void self_abort(asp_comm *c, asp_status s, const char *message, bool together)
{
    (void)c, (void)s, (void)message, (void)together;
}

// One rank is no groups of less: asp_comm_group does not ask.
static asp_status self_open_group(asp_comm *c, int ranks, asp_comm **out_group)
{
    (void)ranks, (void)out_group;
    return asp_fail(c->cx, ASP_ERR_USAGE, "one rank has no groups");
}

static const asp_comm_vtable self_ops = {self_all_to_all,   self_all_reduce,    self_all_gather,
                                         self_broadcast,    self_barrier,       self_rotate_begin,
                                         self_rotate_await, self_rotate_cancel, self_gather_words,
                                         self_abort,        self_open_group};

// ---- running -------------------------------------------------------------------------------

typedef struct rank_call {
    asp_rank_fn *fn;
    void *arg;
    asp_comm *comm;
} rank_call;

static asp_status rank_body(asp_ctx *cx, void *arg)
{
    rank_call *call = arg;
    return call->fn(call->arg, call->comm, cx);
}

asp_status asp_rank_call(asp_rank_fn *fn, void *arg, asp_comm *comm, asp_ctx *rank_cx)
{
    rank_call call = {fn, arg, comm};
    asp_status s = asp_guard(rank_cx, rank_body, &call);
    if (s < 0 && !rank_cx->message[0]) return asp_fail(rank_cx, s, "%s", asp_status_name(s));
    return s;
}

static asp_status run_alone(asp_ctx *cx, asp_rank_fn *fn, void *arg)
{
    uint64_t word;
    asp_ctx rank_cx;
    asp_ctx_init(&rank_cx);
    rank_cx.verify_each_pass = cx->verify_each_pass;
    asp_comm comm = {.ops = &self_ops, .cx = &rank_cx, .ranks = 1, .words = &word};
    asp_status s = asp_rank_call(fn, arg, &comm, &rank_cx);
    return s < 0 ? asp_fail(cx, s, "%s", rank_cx.message) : s;
}

asp_status asp_ranks_refuse(asp_ctx *cx, asp_comm_backend backend, asp_status s)
{
    ASP_CHECK(s < 0);
    return backend == ASP_COMM_mpi ? asp_mpi_ranks_refuse(cx, s) : s;
}

asp_status asp_ranks_run(asp_ctx *cx, asp_comm_backend backend, int ranks, asp_rank_fn *fn,
                         void *arg)
{
    if (ranks < 1) return asp_fail(cx, ASP_ERR_USAGE, "--ranks %d: there must be 1 or more", ranks);
    if (backend == ASP_COMM_mpi) return asp_mpi_ranks_run(cx, ranks, fn, arg);
    return ranks == 1 ? run_alone(cx, fn, arg) : asp_thread_ranks_run(cx, ranks, fn, arg);
}
