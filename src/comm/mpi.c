// Ranks as processes started by mpirun: point-to-point messages of at most 1 GiB, in pairs (to rank
// me + s, from rank me - s, for s = 1, 2, ...), sums by move.c in rank order.  Waiting is polling,
// so that every wait also sees a peer's failure:
//   - a rank that fails sends its message to all others (a note) and leaves;
//   - a process on this host that is gone without a note (killed, or left by exit) is noticed by
//     its number within a second;  on other hosts it is mpirun that ends the job.
// After a failure MPI is not called again and not finalised: arrays of unfinished messages are
// gone. Neighbours: comm_int.h (contract), move.c.  The only file that knows mpi.h; without
// ASP_HAVE_MPI it is one refusal.  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "comm/comm_int.h"

#ifndef ASP_HAVE_MPI

bool asp_mpi_is_built(void) { return false; }

asp_status asp_mpi_ranks_refuse(asp_ctx *cx, asp_status s)
{
    (void)cx;
    return s;
}

asp_status asp_mpi_ranks_run(asp_ctx *cx, int ranks, asp_rank_fn *fn, void *arg)
{
    (void)ranks, (void)fn, (void)arg;
    return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                    "--comm mpi: this autosp was built without MPI; install libopenmpi-dev and "
                    "openmpi-bin and build it again, or use --comm thread");
}

#else

#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

bool asp_mpi_is_built(void) { return true; }

#define MESSAGE_BYTES ((int64_t)1 << 30)
#define TAG_DATA 1
#define TAG_NOTE 2
#define TAG_ROTATION 3

// Polling: this often as fast as can be, then yielding, after a while with short sleeps.
#define FAST_POLLS 1000
#define POLLS_PER_LOOK 64
#define SLEEP_AFTER_US 2000
#define SLEEP_US 50
#define LOOK_AT_PEERS_US 200000

#define SEND_NOTES_US 1000000 // a failed rank leaves by then, read or unread
#define TIE_US 300000         // two ranks that fail within this time are one failure
#define LAST_WORD_US 2000000  // silent ranks let the speaking one end first

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

typedef struct mpi_comm {
    asp_comm base;
    MPI_Comm data, control;
    process *peers;     // owned: ranks of them
    char *small;        // owned: ranks * ASP_COMM_SMALL_BYTES, for sums of little
    const void **x;     // owned: ranks of them
    MPI_Request *notes; // owned: ranks of them
    rotation rotations[ASP_COMM_ROTATIONS]; // number n at n mod ASP_COMM_ROTATIONS
    uint64_t begun, awaited;
    bool watch;  // false while ranks may end normally
    bool ended;  // a failure is known; note holds it
    bool told;   // this rank sent notes of its own
    int speaker; // rank whose process reports the failure
    note note;   // the failure that stands
    note mine;   // what this rank sent; must outlive the sends
    asp_ctx cx;
} mpi_comm;

// ---- failing -------------------------------------------------------------------------------

static int64_t now_us(void) { return (int64_t)(asp_seconds() * 1e6); }

static void sleep_us(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static bool alive(const process *p) { return kill((pid_t)p->pid, 0) == 0 || errno == EPERM; }

static asp_status ended(mpi_comm *c)
{
    const note *n = &c->note;
    if (n->together) return asp_fail(&c->cx, ASP_ERR_PEER, "%.4000s", n->text);
    return asp_fail(&c->cx, ASP_ERR_PEER, "rank %d failed: %.4000s", n->rank, n->text);
}

static void stand(mpi_comm *c, const note *n, int speaker)
{
    c->note = *n;
    c->speaker = speaker;
    c->ended = true;
}

// Takes a note that has arrived; one from a lower rank displaces a higher one.
static bool take_note(mpi_comm *c)
{
    int there = 0;
    MPI_Status from;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTE, c->control, &there, &from) != MPI_SUCCESS || !there)
        return false;
    note n;
    if (MPI_Recv(&n, (int)sizeof n, MPI_BYTE, from.MPI_SOURCE, TAG_NOTE, c->control,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    n.text[sizeof n.text - 1] = '\0';
    if (!c->ended || n.rank < c->note.rank) stand(c, &n, n.rank);
    return true;
}

// Finds a process of this host that is gone; the lowest living rank speaks for it.
static bool miss_peer(mpi_comm *c)
{
    int gone = -1, speaker = c->base.rank;
    for (int r = 0; r < c->base.ranks; r++) {
        const process *p = &c->peers[r];
        bool here = p->pid == 0 || alive(p);
        if (!here && gone < 0) gone = r;
        if (here && r < speaker) speaker = r;
    }
    if (gone < 0 || take_note(c)) return gone >= 0;
    note n = {.status = ASP_ERR_PEER, .rank = gone};
    snprintf(n.text, sizeof n.text,
             "its process %lld ended before its work did (killed, or left by exit)",
             (long long)c->peers[gone].pid);
    stand(c, &n, speaker);
    return true;
}

// Sends this rank's failure to all others and lets the lowest of several failures stand.
static void mpi_abort(asp_comm *base, asp_status s, const char *message, bool together)
{
    mpi_comm *c = (mpi_comm *)base;
    while (take_note(c)) {
    }
    if (c->ended || c->told) return;
    c->told = true;
    // Where all found the same, rank 0 speaks.
    c->mine = (note){.status = s, .rank = together ? 0 : base->rank, .together = together};
    snprintf(c->mine.text, sizeof c->mine.text, "%s", message);
    stand(c, &c->mine, c->mine.rank);
    // Short messages are on their way at once, whether the peer looks or not.
    int n = 0, bytes = (int)(offsetof(note, text) + strlen(c->mine.text) + 1);
    for (int r = 0; r < base->ranks; r++) {
        if (r == base->rank) continue;
        if (MPI_Isend(&c->mine, bytes, MPI_BYTE, r, TAG_NOTE, c->control, &c->notes[n]) ==
            MPI_SUCCESS)
            n++;
    }
    int64_t start = now_us();
    for (int sent = 0;;) {
        take_note(c);
        if (!sent && MPI_Testall(n, c->notes, &sent, MPI_STATUSES_IGNORE) != MPI_SUCCESS) sent = 1;
        int64_t passed = now_us() - start;
        bool tie_over = c->mine.rank == 0 || passed > TIE_US;
        if ((sent && tie_over) || passed > SEND_NOTES_US) break;
        sleep_us(SLEEP_US);
    }
}

// ---- messages ------------------------------------------------------------------------------

static asp_status mpi_error(mpi_comm *c, const char *what, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(error, text, &n);
    return asp_fail(&c->cx, ASP_ERR_PEER, "%s: MPI says: %s", what, text);
}

// One look beside the messages; false when a failure is known.
static bool all_well(mpi_comm *c, int64_t *looked_us)
{
    if (take_note(c)) return false;
    int64_t now = now_us();
    if (!c->watch || now - *looked_us < LOOK_AT_PEERS_US) return true;
    *looked_us = now;
    return !miss_peer(c);
}

static asp_status wait_requests(mpi_comm *c, MPI_Request *requests, int n)
{
    int64_t start = now_us(), looked = start;
    for (int64_t polls = 0;; polls++) {
        int done = 0, error = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        if (error != MPI_SUCCESS) return mpi_error(c, "waiting for a peer", error);
        if (done) return ASP_OK;
        if (polls % POLLS_PER_LOOK == POLLS_PER_LOOK - 1 && !all_well(c, &looked)) return ended(c);
        if (polls < FAST_POLLS) continue;
        if (now_us() - start < SLEEP_AFTER_US)
            sched_yield();
        else
            sleep_us(SLEEP_US);
    }
}

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
            error = MPI_Irecv((char *)in + at, (int)in_n, MPI_BYTE, from, TAG_DATA, c->data,
                              &requests[n++]);
        if (error == MPI_SUCCESS && out_n > 0)
            error = MPI_Isend((const char *)out + at, (int)out_n, MPI_BYTE, to, TAG_DATA, c->data,
                              &requests[n++]);
        if (error != MPI_SUCCESS) return mpi_error(c, "sending to a peer", error);
        ASP_TRY(wait_requests(c, requests, n));
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
    if (c->ended) return ended(c);
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
    if (c->ended) return ended(c);
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
    if (c->ended) return ended(c);
    char *own = (char *)y + base->rank * bytes;
    asp_piece p = asp_piece_bytes(own, x, bytes, false);
    if (x != own) asp_move(team, &p, 1);
    return gather(c, y, bytes, &base->counts.bytes[ASP_COMM_all_gather]);
}

static asp_status mpi_broadcast(asp_comm *base, asp_team *team, void *data, int64_t bytes)
{
    (void)team;
    mpi_comm *c = (mpi_comm *)base;
    if (c->ended) return ended(c);
    if (base->rank > 0) {
        ASP_TRY(swap(c, 0, NULL, 0, 0, data, bytes));
        base->counts.bytes[ASP_COMM_broadcast] += bytes;
        return ASP_OK;
    }
    for (int r = 1; r < base->ranks; r++) ASP_TRY(swap(c, r, data, bytes, r, NULL, 0));
    return ASP_OK;
}

// Dissemination: after the round of distance s a rank has heard of the 2 s before it.
static asp_status mpi_barrier(asp_comm *base)
{
    mpi_comm *c = (mpi_comm *)base;
    if (c->ended) return ended(c);
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
    if (c->ended) return ended(c);
    rotation *r = &c->rotations[c->begun++ % ASP_COMM_ROTATIONS];
    int n = (int)asp_min(MESSAGE_BYTES, bytes);
    *r = (rotation){.x = x, .y = y, .bytes = bytes, .to = after(c, by), .from = before(c, by)};
    int error = MPI_Irecv(y, n, MPI_BYTE, r->from, TAG_ROTATION, c->data, &r->requests[0]);
    if (error == MPI_SUCCESS)
        error = MPI_Isend(x, n, MPI_BYTE, r->to, TAG_ROTATION, c->data, &r->requests[1]);
    return error == MPI_SUCCESS ? ASP_OK : mpi_error(c, "sending to a peer", error);
}

static asp_status mpi_rotate_await(asp_comm *base, asp_team *team)
{
    (void)team;
    mpi_comm *c = (mpi_comm *)base;
    if (c->ended) return ended(c);
    rotation *r = &c->rotations[c->awaited++ % ASP_COMM_ROTATIONS];
    ASP_TRY(wait_requests(c, r->requests, 2));
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
    if (c->ended) return ended(c);
    out[base->rank] = value;
    return gather(c, (char *)out, sizeof value, &uncounted);
}

static const asp_comm_vtable mpi_ops = {
    mpi_all_to_all,   mpi_all_reduce,   mpi_all_gather,    mpi_broadcast,    mpi_barrier,
    mpi_rotate_begin, mpi_rotate_await, mpi_rotate_cancel, mpi_gather_words, mpi_abort};

// ---- running -------------------------------------------------------------------------------

static asp_status start_mpi(asp_ctx *cx, bool *out_own)
{
    int running = 0, finished = 0, level = 0;
    MPI_Finalized(&finished);
    if (finished)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--comm mpi: MPI has ended in this process and cannot start again; run "
                        "one job per process");
    MPI_Initialized(&running);
    *out_own = !running;
    if (!running && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return asp_fail(cx, ASP_ERR_UNSUPPORTED, "--comm mpi: MPI does not start here");
    if (running) MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED)
        return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                        "--comm mpi: this MPI does not allow threads beside its own (level %d)",
                        level);
    return ASP_OK;
}

// Every rank learns who the others are; processes that this one can see are watched.
static void meet_peers(mpi_comm *c, asp_status status)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int n = 0;
    MPI_Get_processor_name(name, &n);
    process me = {asp_hash(name, (size_t)n, 0), getpid(), status};
    MPI_Allgather(&me, (int)sizeof me, MPI_BYTE, c->peers, (int)sizeof me, MPI_BYTE, c->control);
    for (int r = 0; r < c->base.ranks; r++) {
        process *p = &c->peers[r];
        if (r == c->base.rank || p->host != me.host || !alive(p)) p->pid = 0;
    }
}

static asp_status open_comm(asp_ctx *cx, asp_status before, mpi_comm *c)
{
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t n = (size_t)ranks;
    *c = (mpi_comm){.peers = calloc(n, sizeof *c->peers),
                    .small = malloc(n * ASP_COMM_SMALL_BYTES),
                    .x = calloc(n, sizeof *c->x),
                    .notes = calloc(n, sizeof *c->notes)};
    c->base = (asp_comm){.ops = &mpi_ops,
                         .cx = &c->cx,
                         .rank = rank,
                         .ranks = ranks,
                         .kind = ASP_COMM_mpi,
                         .words = calloc(n, sizeof(uint64_t))};
    c->cx.verify_each_pass = cx->verify_each_pass;
    if (!c->peers || !c->small || !c->x || !c->notes || !c->base.words)
        return asp_fail(cx, ASP_ERR_NOMEM, "rank %d: the machine refused memory for %d ranks", rank,
                        ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &c->data);
    MPI_Comm_dup(MPI_COMM_WORLD, &c->control);
    MPI_Comm_set_errhandler(c->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(c->control, MPI_ERRORS_RETURN);
    meet_peers(c, before);
    c->watch = true;
    return ASP_OK;
}

static void free_comm(mpi_comm *c)
{
    free(c->peers);
    free(c->small);
    free(c->x);
    free(c->notes);
    free(c->base.words);
    free(c);
}

// mpirun ends the job as soon as one process leaves with an error: let the speaking one go first,
// so that its message is out.
static void let_speak(const mpi_comm *c, int speaker)
{
    const process *p = &c->peers[speaker];
    int64_t start = now_us();
    while (now_us() - start < LAST_WORD_US && (p->pid == 0 || alive(p))) sleep_us(1000);
}

static asp_status report(asp_ctx *cx, const mpi_comm *c)
{
    const note *n = &c->note;
    if (c->speaker != c->base.rank) {
        let_speak(c, c->speaker);
        cx->message[0] = '\0';
        return ASP_ERR_PEER;
    }
    if (n->together || c->base.ranks == 1)
        return asp_fail(cx, (asp_status)n->status, "%.4000s", n->text);
    return asp_fail(cx, (asp_status)n->status, "rank %d: %.4000s", n->rank, n->text);
}

// The given number of ranks against the processes there are; all find the same.
static asp_status check_ranks(mpi_comm *c, int ranks)
{
    if (ranks == c->base.ranks) return ASP_OK;
    return asp_fail(&c->cx, ASP_ERR_USAGE,
                    "--ranks %d, but MPI started %d process%s; start it as mpirun -n %d", ranks,
                    c->base.ranks, c->base.ranks == 1 ? "" : "es", ranks);
}

// Runs the rank; on success nobody leaves before all have come.
static asp_status run_rank(mpi_comm *c, asp_rank_fn *fn, void *arg)
{
    asp_status s = asp_rank_call(fn, arg, &c->base, &c->cx);
    if (s < 0) return s;
    if (c->ended) return ended(c);
    // A peer that has left the first barrier waits in the second, one that has left that may be
    // gone.
    ASP_TRY(mpi_barrier(&c->base));
    c->watch = false;
    ASP_TRY(mpi_barrier(&c->base));
    return s;
}

// Some have failed before their ranks could run: the lowest of them speaks, for all if all have.
static bool refused_before(const asp_ctx *cx, mpi_comm *c)
{
    int first = -1, failed = 0;
    for (int r = 0; r < c->base.ranks; r++) {
        if (c->peers[r].status >= 0) continue;
        if (first < 0) first = r;
        failed++;
    }
    if (first < 0) return false;
    note n = {
        .status = (int)c->peers[first].status, .rank = first, .together = failed == c->base.ranks};
    if (first == c->base.rank) snprintf(n.text, sizeof n.text, "%s", cx->message);
    stand(c, &n, first);
    return true;
}

static asp_status open_mpi(asp_ctx *cx, asp_status before, bool *out_own, mpi_comm **out_comm)
{
    ASP_TRY(start_mpi(cx, out_own));
    mpi_comm *c = calloc(1, sizeof *c);
    if (!c) return asp_fail(cx, ASP_ERR_NOMEM, "the machine refused memory for a rank");
    asp_status s = open_comm(cx, before, c);
    if (s < 0)
        free_comm(c);
    else
        *out_comm = c;
    return s;
}

asp_status asp_mpi_ranks_refuse(asp_ctx *cx, asp_status s)
{
    mpi_comm *c;
    bool own_mpi;
    asp_ctx opening;
    asp_ctx_init(&opening);
    if (open_mpi(&opening, s, &own_mpi, &c) < 0) return s; // alone with its message
    if (refused_before(cx, c)) s = report(cx, c);
    free_comm(c);
    return s;
}

asp_status asp_mpi_ranks_run(asp_ctx *cx, int ranks, asp_rank_fn *fn, void *arg)
{
    mpi_comm *c;
    bool own_mpi;
    ASP_TRY(open_mpi(cx, ASP_OK, &own_mpi, &c));
    asp_status s = ASP_OK;
    if (refused_before(cx, c)) {
        s = report(cx, c);
        free_comm(c);
        return s;
    }
    bool refused = (s = check_ranks(c, ranks)) < 0;
    if (!refused) s = run_rank(c, fn, arg);
    if (s < 0) mpi_abort(&c->base, s, c->cx.message, refused);
    if (s < 0) {
        s = report(cx, c);
    } else {
        MPI_Comm_free(&c->data);
        MPI_Comm_free(&c->control);
        if (own_mpi) MPI_Finalize();
    }
    free_comm(c);
    return s;
}

#endif
