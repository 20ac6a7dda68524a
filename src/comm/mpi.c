// Ranks as processes started by mpirun: point-to-point messages of at most 1 GiB, in pairs (to rank
// me + s, from rank me - s, for s = 1, 2, ...), sums by move.c in rank order.
// Neighbours: comm_int.h (contract), mpi_fail.c (waiting, failures), mpi_ranks.c, move.c.
// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_int.h"

#ifdef ASP_HAVE_MPI

#define MESSAGE_BYTES ((int64_t)1 << 30)
#define TAG_DATA 1
#define TAG_ROTATION 3

// Sends to one rank while receiving from another; lengths may differ, 0 means nothing.
static asp_status swap(mpi_comm *c, int to, const void *out, int64_t out_bytes, int from, void *in,
                       int64_t in_bytes)
{
    for (int64_t at = 0; at < asp_max(out_bytes, in_bytes); at += MESSAGE_BYTES) {
        MPI_Request requests[2];
        int n = 0, error = MPI_SUCCESS;
        int64_t in_n = asp_min(MESSAGE_BYTES, in_bytes - at);
        int64_t out_n = asp_min(MESSAGE_BYTES, out_bytes - at);
        if (in_n > 0)
            error = MPI_Irecv((char *)in + at, (int)in_n, MPI_BYTE, c->base.first + from, TAG_DATA,
                              c->job->data, &requests[n++]);
        if (error == MPI_SUCCESS && out_n > 0)
            error = MPI_Isend((const char *)out + at, (int)out_n, MPI_BYTE, c->base.first + to,
                              TAG_DATA, c->job->data, &requests[n++]);
        if (error != MPI_SUCCESS) return asp_mpi_error(c->job, "sending to a peer", error);
        ASP_TRY(asp_mpi_wait(c->job, requests, n));
    }
    return ASP_OK;
}

static int after(const mpi_comm *c, int step) { return (c->base.rank + step) % c->base.ranks; }
static int before(const mpi_comm *c, int step)
{
    return (c->base.rank - step + c->base.ranks) % c->base.ranks;
}

// ---- operations ----------------------------------------------------------------------------

// A piece is packed and unpacked only where it does not stand in one stretch.
static asp_status swap_piece(mpi_comm *c, asp_team *team, const asp_exchange *e, int step,
                             const void *x, void *y, char *work)
{
    const int n = e->ranks, me = c->base.rank % n, first = c->base.rank - me; // in the group
    const int to = (me + step) % n, from = (me - step + n) % n;
    asp_runs sent = asp_exchange_runs(e, me, to), received = asp_exchange_runs(e, from, me);
    asp_strip out = asp_exchange_source(e, x, to), in = asp_exchange_target(e, y, from);
    asp_strip arrived = in;
    if (!asp_runs_whole(sent, out)) {
        asp_strip packed = asp_runs_packed(sent, work);
        asp_piece p = asp_piece_strips(sent, packed, out, false);
        asp_move(team, &p, 1);
        out = packed;
    }
    if (!asp_runs_whole(received, in))
        arrived =
            asp_runs_packed(received, work + asp_round_up(asp_runs_bytes(sent), ASP_CACHE_LINE));
    ASP_TRY(swap(c, first + to, out.at, asp_runs_bytes(sent), first + from, arrived.at,
                 asp_runs_bytes(received)));
    c->base.counts.bytes[ASP_COMM_all_to_all] += asp_runs_bytes(received);
    if (arrived.at != in.at) {
        asp_piece p = asp_piece_strips(received, in, arrived, false);
        asp_move(team, &p, 1);
    }
    return ASP_OK;
}

static asp_status mpi_all_to_all(asp_comm *base, asp_team *team, const asp_exchange *e,
                                 const void *x, void *y, void *work)
{
    mpi_comm *c = (mpi_comm *)base;
    if (c->job->ended) return asp_mpi_ended(c->job);
    const int me = base->rank % e->ranks;
    asp_piece own = asp_piece_strips(asp_exchange_runs(e, me, me), asp_exchange_target(e, y, me),
                                     asp_exchange_source(e, x, me), false);
    asp_move(team, &own, 1);
    for (int s = 1; s < e->ranks; s++) ASP_TRY(swap_piece(c, team, e, s, x, y, work));
    asp_exchange_fill_tail(e, y, me);
    return ASP_OK;
}

// All ranks' bytes at out + rank * bytes; this rank's are already there.
static asp_status gather(mpi_comm *c, char *out, int64_t bytes, int64_t *counted)
{
    for (int s = 1; s < c->base.ranks; s++) {
        int from = before(c, s);
        ASP_TRY(swap(c, after(c, s), out + c->base.rank * bytes, bytes, from, out + from * bytes,
                     bytes));
        *counted += bytes;
    }
    return ASP_OK;
}

static asp_status reduce_small(mpi_comm *c, const void *x, asp_dtype dtype, int64_t count, void *y)
{
    int64_t bytes = count * asp_dtypes[dtype].bytes;
    memcpy(c->small + c->base.rank * bytes, x, (size_t)bytes);
    ASP_TRY(gather(c, c->small, bytes, &c->base.counts.bytes[ASP_COMM_all_reduce]));
    for (int r = 0; r < c->base.ranks; r++) c->x[r] = c->small + r * bytes;
    asp_sum(NULL, dtype, c->x, c->base.ranks, count, y);
    return ASP_OK;
}

// The part of slice `rank` that is block number `block` of all slices.
typedef struct stretch {
    int64_t at, bytes;
} stretch;

static stretch block_of_slice(int64_t count, int64_t elem, int ranks, int rank, int64_t block)
{
    int64_t begin = asp_slice_begin(count, ranks, rank) * elem;
    int64_t end = asp_slice_begin(count, ranks, rank + 1) * elem;
    int64_t at = asp_min(begin + block * ASP_COMM_BLOCK_BYTES, end);
    return (stretch){at, asp_min(ASP_COMM_BLOCK_BYTES, end - at)};
}

// Adds up this rank's slice, block by block: the peers' parts arrive in work.
static asp_status reduce_slice(mpi_comm *c, asp_team *team, const char *x, asp_dtype dtype,
                               int64_t count, char *y, char *work)
{
    int64_t elem = asp_dtypes[dtype].bytes;
    int ranks = c->base.ranks, me = c->base.rank;
    int64_t longest = asp_ceil_div(count, ranks) * elem;
    int64_t room = asp_min(asp_round_up(longest, ASP_CACHE_LINE), ASP_COMM_BLOCK_BYTES);
    for (int64_t b = 0; b * ASP_COMM_BLOCK_BYTES < longest; b++) {
        stretch mine = block_of_slice(count, elem, ranks, me, b);
        for (int s = 1; s < ranks; s++) {
            int to = after(c, s), from = before(c, s);
            stretch theirs = block_of_slice(count, elem, ranks, to, b);
            char *in = work + (s - 1) * room;
            ASP_TRY(swap(c, to, x + theirs.at, theirs.bytes, from, in, mine.bytes));
            c->base.counts.bytes[ASP_COMM_all_reduce] += mine.bytes;
            c->x[from] = in;
        }
        c->x[me] = x + mine.at;
        asp_sum(team, dtype, c->x, ranks, mine.bytes / elem, y + mine.at);
    }
    return ASP_OK;
}

static asp_status mpi_all_reduce(asp_comm *base, asp_team *team, const void *x, asp_dtype dtype,
                                 int64_t count, void *y, void *work)
{
    mpi_comm *c = (mpi_comm *)base;
    int64_t elem = asp_dtypes[dtype].bytes;
    if (c->job->ended) return asp_mpi_ended(c->job);
    if (count * elem <= ASP_COMM_SMALL_BYTES) return reduce_small(c, x, dtype, count, y);
    ASP_TRY(reduce_slice(c, team, x, dtype, count, y, work));
    int64_t own = asp_slice_begin(count, base->ranks, base->rank) * elem;
    int64_t own_end = asp_slice_begin(count, base->ranks, base->rank + 1) * elem;
    for (int s = 1; s < base->ranks; s++) {
        int from = before(c, s);
        int64_t at = asp_slice_begin(count, base->ranks, from) * elem;
        int64_t end = asp_slice_begin(count, base->ranks, from + 1) * elem;
        ASP_TRY(
            swap(c, after(c, s), (char *)y + own, own_end - own, from, (char *)y + at, end - at));
        base->counts.bytes[ASP_COMM_all_reduce] += end - at;
    }
    return ASP_OK;
}

static asp_status mpi_all_gather(asp_comm *base, asp_team *team, const void *x, int64_t bytes,
                                 void *y)
{
    mpi_comm *c = (mpi_comm *)base;
    if (c->job->ended) return asp_mpi_ended(c->job);
    char *own = (char *)y + base->rank * bytes;
    asp_piece p = asp_piece_bytes(own, x, bytes, false);
    if (x != own) asp_move(team, &p, 1);
    return gather(c, y, bytes, &base->counts.bytes[ASP_COMM_all_gather]);
}

static asp_status mpi_broadcast(asp_comm *base, asp_team *team, void *data, int64_t bytes)
{
    (void)team;
    mpi_comm *c = (mpi_comm *)base;
    if (c->job->ended) return asp_mpi_ended(c->job);
    if (base->rank > 0) {
        ASP_TRY(swap(c, 0, NULL, 0, 0, data, bytes));
        base->counts.bytes[ASP_COMM_broadcast] += bytes;
        return ASP_OK;
    }
    for (int r = 1; r < base->ranks; r++) ASP_TRY(swap(c, r, data, bytes, r, NULL, 0));
    return ASP_OK;
}

// Dissemination: after the round of distance s a rank has heard of the 2 s before it.
asp_status asp_mpi_barrier(asp_comm *base)
{
    mpi_comm *c = (mpi_comm *)base;
    if (c->job->ended) return asp_mpi_ended(c->job);
    for (int s = 1; s < base->ranks; s *= 2) {
        char out = 0, in;
        ASP_TRY(swap(c, after(c, s), &out, 1, before(c, s), &in, 1));
    }
    return ASP_OK;
}

// The first message of each direction is under way until the rotation is awaited.
static asp_status mpi_rotate_begin(asp_comm *base, const void *x, int64_t bytes, int by, void *y)
{
    mpi_comm *c = (mpi_comm *)base;
    if (c->job->ended) return asp_mpi_ended(c->job);
    rotation *r = &c->rotations[c->begun++ % ASP_COMM_ROTATIONS];
    int n = (int)asp_min(MESSAGE_BYTES, bytes);
    *r = (rotation){.x = x, .y = y, .bytes = bytes, .to = after(c, by), .from = before(c, by)};
    int error = MPI_Irecv(y, n, MPI_BYTE, base->first + r->from, TAG_ROTATION, c->job->data,
                          &r->requests[0]);
    if (error == MPI_SUCCESS)
        error = MPI_Isend(x, n, MPI_BYTE, base->first + r->to, TAG_ROTATION, c->job->data,
                          &r->requests[1]);
    return error == MPI_SUCCESS ? ASP_OK : asp_mpi_error(c->job, "sending to a peer", error);
}

static asp_status mpi_rotate_await(asp_comm *base, asp_team *team)
{
    (void)team;
    mpi_comm *c = (mpi_comm *)base;
    if (c->job->ended) return asp_mpi_ended(c->job);
    rotation *r = &c->rotations[c->awaited++ % ASP_COMM_ROTATIONS];
    ASP_TRY(asp_mpi_wait(c->job, r->requests, 2));
    int64_t at = asp_min(MESSAGE_BYTES, r->bytes);
    ASP_TRY(swap(c, r->to, (const char *)r->x + at, r->bytes - at, r->from, (char *)r->y + at,
                 r->bytes - at));
    if (r->from != base->rank) base->counts.bytes[ASP_COMM_rotate] += r->bytes;
    return ASP_OK;
}

// The process ends; MPI is not called again.
static void mpi_rotate_cancel(asp_comm *base) { base->rotations = 0; }

static asp_status mpi_gather_words(asp_comm *base, uint64_t value, uint64_t *out)
{
    mpi_comm *c = (mpi_comm *)base;
    int64_t uncounted = 0;
    if (c->job->ended) return asp_mpi_ended(c->job);
    out[base->rank] = value;
    return gather(c, (char *)out, sizeof value, &uncounted);
}

const asp_comm_vtable asp_mpi_ops = {mpi_all_to_all,   mpi_all_reduce,    mpi_all_gather,
                                     mpi_broadcast,    asp_mpi_barrier,   mpi_rotate_begin,
                                     mpi_rotate_await, mpi_rotate_cancel, mpi_gather_words,
                                     asp_mpi_abort,    asp_mpi_open_group};

#endif
