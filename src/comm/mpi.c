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

// ---- failing -------------------------------------------------------------------------------

static int64_t now_us(void) { return (int64_t)(asp_seconds() * 1e6); }

static void sleep_us(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static bool alive(const process *p) { return kill((pid_t)p->pid, 0) == 0 || errno == EPERM; }

static asp_status ended(job *j)
{
    const note *n = &j->note;
    if (n->together) return asp_fail(&j->cx, ASP_ERR_PEER, "%.4000s", n->text);
    return asp_fail(&j->cx, ASP_ERR_PEER, "rank %d failed: %.4000s", n->rank, n->text);
}

static void stand(job *j, const note *n, int speaker)
{
    j->note = *n;
    j->speaker = speaker;
    j->ended = true;
}

// Takes a note that has arrived; one from a lower rank displaces a higher one.
static bool take_note(job *j)
{
    int there = 0;
    MPI_Status from;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTE, j->control, &there, &from) != MPI_SUCCESS || !there)
        return false;
    note n;
    if (MPI_Recv(&n, (int)sizeof n, MPI_BYTE, from.MPI_SOURCE, TAG_NOTE, j->control,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    n.text[sizeof n.text - 1] = '\0';
    if (!j->ended || n.rank < j->note.rank) stand(j, &n, n.rank);
    return true;
}

// Finds a process of this host that is gone; the lowest living rank speaks for it.
static bool miss_peer(job *j)
{
    int gone = -1, speaker = j->rank;
    for (int r = 0; r < j->ranks; r++) {
        const process *p = &j->peers[r];
        bool here = p->pid == 0 || alive(p);
        if (!here && gone < 0) gone = r;
        if (here && r < speaker) speaker = r;
    }
    if (gone < 0 || take_note(j)) return gone >= 0;
    note n = {.status = ASP_ERR_PEER, .rank = gone};
    snprintf(n.text, sizeof n.text,
             "its process %lld ended before its work did (killed, or left by exit)",
             (long long)j->peers[gone].pid);
    stand(j, &n, speaker);
    return true;
}

// Sends this rank's failure to all others and lets the lowest of several failures stand.
static void mpi_abort(asp_comm *base, asp_status s, const char *message, bool together)
{
    job *j = ((mpi_comm *)base)->job;
    while (take_note(j)) {
    }
    if (j->ended || j->told) return;
    j->told = true;
    // Where all found the same, rank 0 speaks.
    j->mine = (note){.status = s, .rank = together ? 0 : j->rank, .together = together};
    snprintf(j->mine.text, sizeof j->mine.text, "%s", message);
    stand(j, &j->mine, j->mine.rank);
    // Short messages are on their way at once, whether the peer looks or not.
    int n = 0, bytes = (int)(offsetof(note, text) + strlen(j->mine.text) + 1);
    for (int r = 0; r < j->ranks; r++) {
        if (r == j->rank) continue;
        if (MPI_Isend(&j->mine, bytes, MPI_BYTE, r, TAG_NOTE, j->control, &j->notes[n]) ==
            MPI_SUCCESS)
            n++;
    }
    int64_t start = now_us();
    for (int sent = 0;;) {
        take_note(j);
        if (!sent && MPI_Testall(n, j->notes, &sent, MPI_STATUSES_IGNORE) != MPI_SUCCESS) sent = 1;
        int64_t passed = now_us() - start;
        bool tie_over = j->mine.rank == 0 || passed > TIE_US;
        if ((sent && tie_over) || passed > SEND_NOTES_US) break;
        sleep_us(SLEEP_US);
    }
}

// ---- messages ------------------------------------------------------------------------------

static asp_status mpi_error(job *j, const char *what, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(error, text, &n);
    return asp_fail(&j->cx, ASP_ERR_PEER, "%s: MPI says: %s", what, text);
}

// One look beside the messages; false when a failure is known.
static bool all_well(job *j, int64_t *looked_us)
{
    if (take_note(j)) return false;
    int64_t now = now_us();
    if (!j->watch || now - *looked_us < LOOK_AT_PEERS_US) return true;
    *looked_us = now;
    return !miss_peer(j);
}

static asp_status wait_requests(job *j, MPI_Request *requests, int n)
{
    int64_t start = now_us(), looked = start;
    for (int64_t polls = 0;; polls++) {
        int done = 0, error = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        if (error != MPI_SUCCESS) return mpi_error(j, "waiting for a peer", error);
        if (done) return ASP_OK;
        if (polls % POLLS_PER_LOOK == POLLS_PER_LOOK - 1 && !all_well(j, &looked)) return ended(j);
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
            error = MPI_Irecv((char *)in + at, (int)in_n, MPI_BYTE, c->base.first + from, TAG_DATA,
                              c->job->data, &requests[n++]);
        if (error == MPI_SUCCESS && out_n > 0)
            error = MPI_Isend((const char *)out + at, (int)out_n, MPI_BYTE, c->base.first + to,
                              TAG_DATA, c->job->data, &requests[n++]);
        if (error != MPI_SUCCESS) return mpi_error(c->job, "sending to a peer", error);
        ASP_TRY(wait_requests(c->job, requests, n));
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
    if (c->job->ended) return ended(c->job);
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
    if (c->job->ended) return ended(c->job);
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
    if (c->job->ended) return ended(c->job);
    char *own = (char *)y + base->rank * bytes;
    asp_piece p = asp_piece_bytes(own, x, bytes, false);
    if (x != own) asp_move(team, &p, 1);
    return gather(c, y, bytes, &base->counts.bytes[ASP_COMM_all_gather]);
}

static asp_status mpi_broadcast(asp_comm *base, asp_team *team, void *data, int64_t bytes)
{
    (void)team;
    mpi_comm *c = (mpi_comm *)base;
    if (c->job->ended) return ended(c->job);
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
    if (c->job->ended) return ended(c->job);
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
    if (c->job->ended) return ended(c->job);
    rotation *r = &c->rotations[c->begun++ % ASP_COMM_ROTATIONS];
    int n = (int)asp_min(MESSAGE_BYTES, bytes);
    *r = (rotation){.x = x, .y = y, .bytes = bytes, .to = after(c, by), .from = before(c, by)};
    int error = MPI_Irecv(y, n, MPI_BYTE, base->first + r->from, TAG_ROTATION, c->job->data,
                          &r->requests[0]);
    if (error == MPI_SUCCESS)
        error = MPI_Isend(x, n, MPI_BYTE, base->first + r->to, TAG_ROTATION, c->job->data,
                          &r->requests[1]);
    return error == MPI_SUCCESS ? ASP_OK : mpi_error(c->job, "sending to a peer", error);
}

static asp_status mpi_rotate_await(asp_comm *base, asp_team *team)
{
    (void)team;
    mpi_comm *c = (mpi_comm *)base;
    if (c->job->ended) return ended(c->job);
    rotation *r = &c->rotations[c->awaited++ % ASP_COMM_ROTATIONS];
    ASP_TRY(wait_requests(c->job, r->requests, 2));
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
    if (c->job->ended) return ended(c->job);
    out[base->rank] = value;
    return gather(c, (char *)out, sizeof value, &uncounted);
}

static asp_status mpi_open_group(asp_comm *base, int ranks, asp_comm **out_group);

static const asp_comm_vtable mpi_ops = {mpi_all_to_all,   mpi_all_reduce,    mpi_all_gather,
                                        mpi_broadcast,    mpi_barrier,       mpi_rotate_begin,
                                        mpi_rotate_await, mpi_rotate_cancel, mpi_gather_words,
                                        mpi_abort,        mpi_open_group};

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
static void meet_peers(job *j, asp_status status)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int n = 0;
    MPI_Get_processor_name(name, &n);
    process me = {asp_hash(name, (size_t)n, 0), getpid(), status};
    MPI_Allgather(&me, (int)sizeof me, MPI_BYTE, j->peers, (int)sizeof me, MPI_BYTE, j->control);
    for (int r = 0; r < j->ranks; r++) {
        process *p = &j->peers[r];
        if (r == j->rank || p->host != me.host || !alive(p)) p->pid = 0;
    }
}

static bool fill_comm(mpi_comm *c, job *j, int rank, int ranks)
{
    size_t n = (size_t)ranks;
    *c = (mpi_comm){
        .job = j, .small = malloc(n * ASP_COMM_SMALL_BYTES), .x = calloc(n, sizeof *c->x)};
    c->base = (asp_comm){.ops = &mpi_ops,
                         .cx = &j->cx,
                         .rank = rank,
                         .ranks = ranks,
                         .kind = ASP_COMM_mpi,
                         .words = calloc(n, sizeof(uint64_t))};
    return c->small && c->x && c->base.words;
}

static void clear_comm(mpi_comm *c)
{
    free(c->small);
    free(c->x);
    free(c->base.words);
}

// Messages of a group go beside those of all: each pair of ranks sends and awaits in one order.
static asp_status mpi_open_group(asp_comm *base, int ranks, asp_comm **out_group)
{
    const int first = base->rank / ranks * ranks;
    mpi_comm *c = calloc(1, sizeof *c);
    if (c && fill_comm(c, ((mpi_comm *)base)->job, base->rank - first, ranks)) {
        c->base.first = first;
        *out_group = &c->base;
        return ASP_OK;
    }
    if (c) clear_comm(c);
    free(c);
    return asp_fail(base->cx, ASP_ERR_NOMEM, "no memory for a group of %d ranks", ranks);
}

static asp_status open_comm(asp_ctx *cx, asp_status before, mpi_comm *c, job *j)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &j->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &j->ranks);
    j->peers = calloc((size_t)j->ranks, sizeof *j->peers);
    j->notes = calloc((size_t)j->ranks, sizeof *j->notes);
    j->cx.verify_each_pass = cx->verify_each_pass;
    if (!fill_comm(c, j, j->rank, j->ranks) || !j->peers || !j->notes)
        return asp_fail(cx, ASP_ERR_NOMEM, "rank %d: the machine refused memory for %d ranks",
                        j->rank, j->ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &j->data);
    MPI_Comm_dup(MPI_COMM_WORLD, &j->control);
    MPI_Comm_set_errhandler(j->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(j->control, MPI_ERRORS_RETURN);
    meet_peers(j, before);
    j->watch = true;
    return ASP_OK;
}

static void free_comm(mpi_comm *c)
{
    mpi_comm *group = (mpi_comm *)c->base.group;
    if (group) clear_comm(group);
    free(group);
    clear_comm(c);
    free(c->job->peers);
    free(c->job->notes);
    free(c->job);
    free(c);
}

// mpirun ends the job as soon as one process leaves with an error: let the speaking one go first,
// so that its message is out.
static void let_speak(const job *j, int speaker)
{
    const process *p = &j->peers[speaker];
    int64_t start = now_us();
    while (now_us() - start < LAST_WORD_US && (p->pid == 0 || alive(p))) sleep_us(1000);
}

static asp_status report(asp_ctx *cx, const job *j)
{
    const note *n = &j->note;
    if (j->speaker != j->rank) {
        let_speak(j, j->speaker);
        cx->message[0] = '\0';
        return ASP_ERR_PEER;
    }
    if (n->together || j->ranks == 1)
        return asp_fail(cx, (asp_status)n->status, "%.4000s", n->text);
    return asp_fail(cx, (asp_status)n->status, "rank %d: %.4000s", n->rank, n->text);
}

// The given number of ranks against the processes there are; all find the same.
static asp_status check_ranks(mpi_comm *c, int ranks)
{
    if (ranks == c->base.ranks) return ASP_OK;
    return asp_fail(c->base.cx, ASP_ERR_USAGE,
                    "%d ranks (--ranks times --dp), but MPI started %d process%s; start it as "
                    "mpirun -n %d",
                    ranks, c->base.ranks, c->base.ranks == 1 ? "" : "es", ranks);
}

// Runs the rank; on success nobody leaves before all have come.
static asp_status run_rank(mpi_comm *c, asp_rank_fn *fn, void *arg)
{
    asp_status s = asp_rank_call(fn, arg, &c->base, c->base.cx);
    if (s < 0) return s;
    if (c->job->ended) return ended(c->job);
    // A peer that has left the first barrier waits in the second, one that has left that may be
    // gone.
    ASP_TRY(mpi_barrier(&c->base));
    c->job->watch = false;
    ASP_TRY(mpi_barrier(&c->base));
    return s;
}

// Some have failed before their ranks could run: the lowest of them speaks, for all if all have.
static bool refused_before(const asp_ctx *cx, job *j)
{
    int first = -1, failed = 0;
    for (int r = 0; r < j->ranks; r++) {
        if (j->peers[r].status >= 0) continue;
        if (first < 0) first = r;
        failed++;
    }
    if (first < 0) return false;
    note n = {.status = (int)j->peers[first].status, .rank = first, .together = failed == j->ranks};
    if (first == j->rank) snprintf(n.text, sizeof n.text, "%s", cx->message);
    stand(j, &n, first);
    return true;
}

static asp_status open_mpi(asp_ctx *cx, asp_status before, bool *out_own, mpi_comm **out_comm)
{
    ASP_TRY(start_mpi(cx, out_own));
    mpi_comm *c = calloc(1, sizeof *c);
    job *j = calloc(1, sizeof *j);
    if (!c || !j) {
        free(c);
        free(j);
        return asp_fail(cx, ASP_ERR_NOMEM, "the machine refused memory for a rank");
    }
    c->job = j;
    asp_status s = open_comm(cx, before, c, j);
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
    if (refused_before(cx, c->job)) s = report(cx, c->job);
    free_comm(c);
    return s;
}

asp_status asp_mpi_ranks_run(asp_ctx *cx, int ranks, asp_rank_fn *fn, void *arg)
{
    mpi_comm *c;
    bool own_mpi;
    ASP_TRY(open_mpi(cx, ASP_OK, &own_mpi, &c));
    asp_status s = ASP_OK;
    if (refused_before(cx, c->job)) {
        s = report(cx, c->job);
        free_comm(c);
        return s;
    }
    bool refused = (s = check_ranks(c, ranks)) < 0;
    if (!refused) s = run_rank(c, fn, arg);
    if (s < 0) mpi_abort(&c->base, s, c->base.cx->message, refused);
    if (s < 0) {
        s = report(cx, c->job);
    } else {
        MPI_Comm_free(&c->job->data);
        MPI_Comm_free(&c->job->control);
        if (own_mpi) MPI_Finalize();
    }
    free_comm(c);
    return s;
}

#endif
