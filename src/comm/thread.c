// Ranks as threads of one process.  A rank posts the addresses of its arrays, all meet, each copies
// straight out of its peers' arrays into its own, all meet again.
//
// Meeting: every rank has a generation on its own cache line; it raises its own and waits until all
// are as high: spinning, then yielding, then asleep, so that 8 ranks on 2 cores do not steal each
// other's time.  The last to come wakes the sleepers.
//
// Failing: the first rank that fails leaves its message and sets `ended`.  It never comes to
// another meeting, so none it is missing from completes, and only the first meeting of an operation
// gives up on `ended`: whoever passed it copies undisturbed until everybody has passed the last.
//
// Neighbours: comm_int.h (contract), move.c (copies, sums).  SPDX-License-Identifier: Apache-2.0
#include "comm/comm_int.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)16 << 20)
#define SPINS 300 // some 10 us; two ranks may share a core for a while
#define YIELDS 200

// What a rank shows its peers in one operation.
typedef struct post {
    int op; // asp_comm_op, or one of the two below
    int64_t bytes;
    const void *x;
    uint64_t word;
} post;

enum { GATHER_WORDS = ASP_COMM_OP_COUNT };

// A rotation that a rank has begun: whoever is to get x takes it out of there.
typedef enum offer_state { OFFERED, BEING_READ, READ, WITHDRAWN } offer_state;
typedef struct offer {
    const void *x;
    int64_t bytes;
    int by;
    _Atomic int state; // offer_state
} offer;

// A fast rank may post its next operation while a slow one still reads the last: two posts in turn.
typedef struct seat {
    _Alignas(ASP_CACHE_LINE) _Atomic uint64_t generation;
    post posts[2];
    _Atomic uint64_t offered;         // rotations begun so far
    offer offers[ASP_COMM_ROTATIONS]; // number n at n mod ASP_COMM_ROTATIONS
    char small[2][ASP_COMM_SMALL_BYTES];
} seat;

typedef struct world {
    int ranks, spins;
    seat *seats; // owned: one a rank for operations of all, behind them one a rank for its group's
    _Atomic int sleepers, ended;
    pthread_mutex_t lock; // of the wake-up and of what follows
    pthread_cond_t wake;
    asp_status status;
    int failed_rank; // -1: all together
    char message[ASP_MESSAGE_BYTES];
} world;

typedef struct thread_comm {
    asp_comm base;
    world *world;                      // borrowed: the caller's of ranks_run
    seat *seats;                       // borrowed: those of its ranks
    uint64_t meeting;                  // generation of the last meeting
    uint64_t turn;                     // operations so far
    uint64_t begun, awaited;           // rotations
    void *results[ASP_COMM_ROTATIONS]; // borrowed: where they go
    const void **x;                    // owned: ranks of them
    asp_piece *pieces;                 // owned: ranks of them
    asp_rank_fn *fn;
    void *arg;
    pthread_t thread;
    asp_ctx cx;
} thread_comm;

// ---- meeting and failing -------------------------------------------------------------------

static bool all_here(const thread_comm *c, uint64_t meeting)
{
    for (int r = 0; r < c->base.ranks; r++)
        if (atomic_load(&c->seats[r].generation) < meeting) return false;
    return true;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Something that a peer will do.
typedef struct condition {
    bool (*holds)(const thread_comm *c, const struct condition *what);
    uint64_t number; // a meeting or a rotation
    int rank;
} condition;

// Spins, yields, sleeps until it holds, or, where that may be, until a rank has failed.
static bool wait_until(const thread_comm *c, condition what, bool may_end)
{
    world *w = c->world;
    for (int i = 0; i < w->spins + YIELDS; i++) {
        if (what.holds(c, &what)) return true;
        if (may_end && atomic_load(&w->ended)) return what.holds(c, &what);
        if (i < w->spins)
            relax();
        else
            sched_yield();
    }
    pthread_mutex_lock(&w->lock);
    atomic_fetch_add(&w->sleepers, 1);
    while (!what.holds(c, &what) && !(may_end && atomic_load(&w->ended)))
        pthread_cond_wait(&w->wake, &w->lock);
    atomic_fetch_sub(&w->sleepers, 1);
    pthread_mutex_unlock(&w->lock);
    return what.holds(c, &what);
}

// After a change that somebody may sleep for.  A sleeper counts itself before it looks a last time;
// these accesses and those of what is waited for are sequentially consistent, so one of the two
// sees the other.
static void wake_sleepers(world *w)
{
    if (atomic_load(&w->sleepers) == 0) return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

static bool all_have_come(const thread_comm *c, const condition *what)
{
    return all_here(c, what->number);
}

// The last to come wakes the others.
static bool meet(thread_comm *c, bool may_end)
{
    uint64_t meeting = ++c->meeting;
    atomic_store(&c->seats[c->base.rank].generation, meeting);
    if (!all_here(c, meeting))
        return wait_until(c, (condition){all_have_come, meeting, 0}, may_end);
    wake_sleepers(c->world);
    return true;
}

static void end_world(world *w, int rank, asp_status s, const char *message)
{
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->ended)) {
        w->status = s;
        w->failed_rank = rank;
        snprintf(w->message, sizeof w->message, "%s", message);
        atomic_store(&w->ended, 1);
    }
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

static void thread_abort(asp_comm *base, asp_status s, const char *message, bool together)
{
    thread_comm *c = (thread_comm *)base;
    end_world(c->world, together ? -1 : base->first + base->rank, s, message);
}

// Written once, before `ended` was set.
static asp_status ended(thread_comm *c)
{
    const world *w = c->world;
    if (w->failed_rank < 0) return asp_fail(c->base.cx, ASP_ERR_PEER, "%.4000s", w->message);
    return asp_fail(c->base.cx, ASP_ERR_PEER, "rank %d failed: %.4000s", w->failed_rank,
                    w->message);
}

// ---- operations ----------------------------------------------------------------------------

static const char *post_name(int op)
{
    return op < ASP_COMM_OP_COUNT ? asp_comm_op_name((asp_comm_op)op) : "agree";
}

// All ranks compare the same posts, so all of them fail or none.
static asp_status same_posts(thread_comm *c, uint64_t turn)
{
    const post *first = &c->seats[0].posts[turn];
    for (int r = 1; r < c->base.ranks; r++) {
        const post *p = &c->seats[r].posts[turn];
        if (p->op == first->op && p->bytes == first->bytes) continue;
        asp_status s = asp_fail(c->base.cx, ASP_ERR_PEER,
                                "the ranks' programs differ: rank %d is at %s of %lld bytes, rank "
                                "%d at %s of %lld bytes",
                                c->base.first + r, post_name(p->op), (long long)p->bytes,
                                c->base.first, post_name(first->op), (long long)first->bytes);
        end_world(c->world, -1, s, c->base.cx->message);
        return s;
    }
    return ASP_OK;
}

// Shows the post and meets; the peers' posts can be read until this rank's next call but one.
static asp_status begin(thread_comm *c, post p, uint64_t *out_turn)
{
    uint64_t turn = c->turn++ & 1;
    if (atomic_load(&c->world->ended)) return ended(c);
    c->seats[c->base.rank].posts[turn] = p;
    if (!meet(c, true)) return ended(c);
    ASP_TRY(same_posts(c, turn));
    for (int r = 0; r < c->base.ranks; r++) c->x[r] = c->seats[r].posts[turn].x;
    *out_turn = turn;
    return ASP_OK;
}

static asp_status finish(thread_comm *c)
{
    ASP_CHECK(meet(c, false));
    return ASP_OK;
}

// Peers in the order me, me + 1, ...: not all ranks read the same one at a time.
static int peer(const thread_comm *c, int i) { return (c->base.rank + i) % c->base.ranks; }

static asp_status thread_all_to_all(asp_comm *base, asp_team *team, const asp_exchange *e,
                                    const void *x, void *y, void *work)
{
    (void)work;
    thread_comm *c = (thread_comm *)base;
    uint64_t turn;
    // The same on all ranks: the whole array.
    int64_t bytes = e->outer * e->middle * e->inner_bytes * e->split.whole * e->gather.whole;
    ASP_TRY(begin(c, (post){.op = ASP_COMM_all_to_all, .bytes = bytes, .x = x}, &turn));
    const int me = base->rank % e->ranks, first = base->rank - me; // in the group
    for (int i = 0; i < e->ranks; i++) {
        int r = (me + i) % e->ranks;
        c->pieces[i] = asp_piece_strips(asp_exchange_runs(e, r, me), asp_exchange_target(e, y, r),
                                        asp_exchange_source(e, c->x[first + r], me), i > 0);
    }
    base->counts.bytes[ASP_COMM_all_to_all] += asp_move(team, c->pieces, e->ranks);
    asp_exchange_fill_tail(e, y, me);
    return finish(c);
}

// One round: everybody adds up everything, from copies, so nobody waits for readers.
static asp_status reduce_small(thread_comm *c, const void *x, asp_dtype dtype, int64_t count,
                               void *y)
{
    int64_t bytes = count * asp_dtypes[dtype].bytes;
    char *mine = c->seats[c->base.rank].small[c->turn & 1];
    uint64_t turn;
    memcpy(mine, x, (size_t)bytes);
    ASP_TRY(begin(c, (post){.op = ASP_COMM_all_reduce, .bytes = bytes, .x = mine}, &turn));
    asp_sum(NULL, dtype, c->x, c->base.ranks, count, y);
    c->base.counts.bytes[ASP_COMM_all_reduce] += bytes * (c->base.ranks - 1);
    return ASP_OK;
}

// Each adds up its slice of all arrays, then all take the slices of the others.  In place it holds
// too: in the first half only the owner of a slice reads or writes it in y, peers read it in x
// only where they own it.
static asp_status thread_all_reduce(asp_comm *base, asp_team *team, const void *x, asp_dtype dtype,
                                    int64_t count, void *y, void *work)
{
    (void)work;
    thread_comm *c = (thread_comm *)base;
    int64_t elem = asp_dtypes[dtype].bytes, bytes = count * elem;
    if (bytes <= ASP_COMM_SMALL_BYTES) return reduce_small(c, x, dtype, count, y);
    uint64_t turn;
    ASP_TRY(begin(c, (post){.op = ASP_COMM_all_reduce, .bytes = bytes, .x = x}, &turn));
    int64_t at = asp_slice_begin(count, base->ranks, base->rank);
    int64_t n = asp_slice_begin(count, base->ranks, base->rank + 1) - at;
    for (int r = 0; r < base->ranks; r++) c->x[r] = (const char *)c->x[r] + at * elem;
    asp_sum(team, dtype, c->x, base->ranks, n, (char *)y + at * elem);
    base->counts.bytes[ASP_COMM_all_reduce] += n * elem * (base->ranks - 1);

    ASP_TRY(begin(c, (post){.op = ASP_COMM_all_reduce, .bytes = bytes, .x = y}, &turn));
    for (int i = 1; i < base->ranks; i++) {
        int r = peer(c, i);
        int64_t from = asp_slice_begin(count, base->ranks, r) * elem;
        int64_t to = asp_slice_begin(count, base->ranks, r + 1) * elem;
        c->pieces[i] =
            asp_piece_bytes((char *)y + from, (const char *)c->x[r] + from, to - from, true);
    }
    base->counts.bytes[ASP_COMM_all_reduce] += asp_move(team, c->pieces + 1, base->ranks - 1);
    return finish(c);
}

static asp_status thread_all_gather(asp_comm *base, asp_team *team, const void *x, int64_t bytes,
                                    void *y)
{
    thread_comm *c = (thread_comm *)base;
    uint64_t turn;
    char *mine = (char *)y + base->rank * bytes;
    ASP_TRY(begin(c, (post){.op = ASP_COMM_all_gather, .bytes = bytes, .x = x}, &turn));
    int n = 0;
    for (int i = x == mine ? 1 : 0; i < base->ranks; i++) {
        int r = peer(c, i);
        c->pieces[n++] = asp_piece_bytes((char *)y + r * bytes, c->x[r], bytes, i > 0);
    }
    base->counts.bytes[ASP_COMM_all_gather] += asp_move(team, c->pieces, n);
    return finish(c);
}

static asp_status thread_broadcast(asp_comm *base, asp_team *team, void *data, int64_t bytes)
{
    thread_comm *c = (thread_comm *)base;
    uint64_t turn;
    ASP_TRY(begin(c, (post){.op = ASP_COMM_broadcast, .bytes = bytes, .x = data}, &turn));
    if (base->rank > 0) {
        asp_piece p = asp_piece_bytes(data, c->x[0], bytes, true);
        base->counts.bytes[ASP_COMM_broadcast] += asp_move(team, &p, 1);
    }
    return finish(c);
}

static asp_status thread_barrier(asp_comm *base)
{
    uint64_t turn;
    return begin((thread_comm *)base, (post){.op = ASP_COMM_barrier}, &turn);
}

// ---- rotations -------------------------------------------------------------------------------

static offer *offer_at(const thread_comm *c, int rank, uint64_t number)
{
    return &c->seats[rank].offers[number % ASP_COMM_ROTATIONS];
}

static bool is_offered(const thread_comm *c, const condition *what)
{
    return atomic_load(&c->seats[what->rank].offered) > what->number;
}

static bool is_read(const thread_comm *c, const condition *what)
{
    return atomic_load(&offer_at(c, what->rank, what->number)->state) == READ;
}

static bool never(const thread_comm *c, const condition *what)
{
    (void)c, (void)what;
    return false;
}

static asp_status thread_rotate_begin(asp_comm *base, const void *x, int64_t bytes, int by, void *y)
{
    thread_comm *c = (thread_comm *)base;
    uint64_t number = c->begun++;
    offer *o = offer_at(c, base->rank, number);
    o->x = x;
    o->bytes = bytes;
    o->by = by;
    atomic_store(&o->state, OFFERED);
    c->results[number % ASP_COMM_ROTATIONS] = y;
    atomic_store(&c->seats[base->rank].offered, number + 1);
    wake_sleepers(c->world);
    return ASP_OK;
}

// Copies what `from` offers, unless it has withdrawn that: then it has failed and will say so.
static asp_status take(thread_comm *c, asp_team *team, uint64_t number, int from)
{
    offer *theirs = offer_at(c, from, number), *mine = offer_at(c, c->base.rank, number);
    int state = OFFERED;
    if (!wait_until(c, (condition){is_offered, number, from}, true)) return ended(c);
    if (!atomic_compare_exchange_strong(&theirs->state, &state, BEING_READ))
        return wait_until(c, (condition){never, 0, 0}, true) ? ASP_OK : ended(c);
    asp_status s = ASP_OK;
    if (theirs->bytes == mine->bytes && theirs->by == mine->by) {
        asp_piece p = asp_piece_bytes(c->results[number % ASP_COMM_ROTATIONS], theirs->x,
                                      theirs->bytes, true);
        c->base.counts.bytes[ASP_COMM_rotate] += asp_move(team, &p, 1);
    } else
        s = asp_fail(
            c->base.cx, ASP_ERR_PEER,
            "the ranks' programs differ: rank %d rotates %lld bytes by %d, rank %d rotates "
            "%lld bytes by %d",
            c->base.first + from, (long long)theirs->bytes, theirs->by,
            c->base.first + c->base.rank, (long long)mine->bytes, mine->by);
    atomic_store(&theirs->state, READ);
    wake_sleepers(c->world);
    return s;
}

static asp_status thread_rotate_await(asp_comm *base, asp_team *team)
{
    thread_comm *c = (thread_comm *)base;
    uint64_t number = c->awaited;
    int by = offer_at(c, base->rank, number)->by;
    ASP_TRY(take(c, team, number, (base->rank - by + base->ranks) % base->ranks));
    if (!wait_until(c, (condition){is_read, number, base->rank}, true)) return ended(c);
    c->awaited++;
    return ASP_OK;
}

// A reader that has begun ends soon.
static void thread_rotate_cancel(asp_comm *base)
{
    thread_comm *c = (thread_comm *)base;
    for (; c->awaited < c->begun; c->awaited++) {
        int state = OFFERED;
        offer *o = offer_at(c, base->rank, c->awaited);
        if (!atomic_compare_exchange_strong(&o->state, &state, WITHDRAWN) && state == BEING_READ)
            wait_until(c, (condition){is_read, c->awaited, base->rank}, false);
    }
    base->rotations = 0;
}

static asp_status thread_gather_words(asp_comm *base, uint64_t value, uint64_t *out)
{
    thread_comm *c = (thread_comm *)base;
    uint64_t turn;
    ASP_TRY(begin(c, (post){.op = GATHER_WORDS, .word = value}, &turn));
    for (int r = 0; r < base->ranks; r++) out[r] = c->seats[r].posts[turn].word;
    return ASP_OK;
}

static asp_status thread_open_group(asp_comm *base, int ranks, asp_comm **out_group);

static const asp_comm_vtable thread_ops = {
    thread_all_to_all,   thread_all_reduce,   thread_all_gather,   thread_broadcast,
    thread_barrier,      thread_rotate_begin, thread_rotate_await, thread_rotate_cancel,
    thread_gather_words, thread_abort,        thread_open_group};

// ---- running -------------------------------------------------------------------------------

static bool fill_comm(thread_comm *c, world *w, seat *seats, int rank, int ranks)
{
    size_t n = (size_t)ranks;
    *c = (thread_comm){.world = w, .seats = seats};
    c->base = (asp_comm){.ops = &thread_ops,
                         .cx = &c->cx,
                         .rank = rank,
                         .ranks = ranks,
                         .kind = ASP_COMM_thread,
                         .words = calloc(n, sizeof(uint64_t))};
    c->x = calloc(n, sizeof *c->x);
    c->pieces = calloc(n, sizeof *c->pieces);
    return c->x && c->pieces && c->base.words;
}

static void clear_comm(thread_comm *c)
{
    free(c->x);
    free(c->pieces);
    free(c->base.words);
}

// Seats of their own: a rank may be in an operation of its group while a peer of another one still
// reads what it showed all.
static asp_status thread_open_group(asp_comm *base, int ranks, asp_comm **out_group)
{
    const thread_comm *all = (const thread_comm *)base;
    const int first = base->rank / ranks * ranks;
    thread_comm *c = calloc(1, sizeof *c);
    if (c && fill_comm(c, all->world, all->world->seats + all->world->ranks + first,
                       base->rank - first, ranks)) {
        c->base.cx = base->cx;
        c->base.first = first;
        *out_group = &c->base;
        return ASP_OK;
    }
    if (c) clear_comm(c);
    free(c);
    return asp_fail(base->cx, ASP_ERR_NOMEM, "no memory for a group of %d ranks", ranks);
}

// A rank whose thread ends by pthread_exit would leave the others waiting.
static void left_early(void *arg)
{
    thread_comm *c = arg;
    end_world(c->world, c->base.rank, ASP_ERR_PEER, "its thread ended before its work did");
}

static void *rank_main(void *arg)
{
    thread_comm *c = arg;
    pthread_cleanup_push(left_early, c);
    asp_status s = asp_rank_call(c->fn, c->arg, &c->base, &c->cx);
    if (s < 0) end_world(c->world, c->base.rank, s, c->cx.message);
    pthread_cleanup_pop(0);
    return NULL;
}

static void free_ranks(thread_comm *ranks, int n)
{
    for (int r = 0; r < n; r++) {
        thread_comm *group = (thread_comm *)ranks[r].base.group;
        if (group) clear_comm(group);
        free(group);
        clear_comm(&ranks[r]);
    }
    free(ranks);
}

static thread_comm *make_ranks(world *w, asp_rank_fn *fn, void *arg, bool verify_each_pass)
{
    thread_comm *ranks = calloc((size_t)w->ranks, sizeof *ranks);
    for (int r = 0; ranks && r < w->ranks; r++) {
        thread_comm *c = &ranks[r];
        if (!fill_comm(c, w, w->seats, r, w->ranks)) {
            free_ranks(ranks, w->ranks);
            return NULL;
        }
        c->fn = fn;
        c->arg = arg;
        c->cx.verify_each_pass = verify_each_pass;
    }
    return ranks;
}

// Starts all, or as many as the machine allows, and joins them.
static void run_threads(world *w, thread_comm *ranks)
{
    pthread_attr_t attr;
    int started = 0, error = pthread_attr_init(&attr);
    if (!error) error = pthread_attr_setstacksize(&attr, STACK_BYTES);
    while (!error && started < w->ranks) {
        error = pthread_create(&ranks[started].thread, &attr, rank_main, &ranks[started]);
        if (!error) started++;
    }
    pthread_attr_destroy(&attr);
    if (error) {
        char message[128];
        snprintf(message, sizeof message, "the machine refused its thread (%s); use fewer --ranks",
                 strerror(error));
        end_world(w, started, ASP_ERR_NOMEM, message);
    }
    for (int r = 0; r < started; r++) pthread_join(ranks[r].thread, NULL);
}

asp_status asp_thread_ranks_run(asp_ctx *cx, int ranks, asp_rank_fn *fn, void *arg)
{
    world w = {.ranks = ranks, .failed_rank = -1};
    w.spins = ranks <= sysconf(_SC_NPROCESSORS_ONLN) ? SPINS : 0;
    w.seats = aligned_alloc(ASP_CACHE_LINE, 2 * (size_t)ranks * sizeof *w.seats);
    thread_comm *all = w.seats ? make_ranks(&w, fn, arg, cx->verify_each_pass) : NULL;
    if (!all) {
        free(w.seats);
        return asp_fail(cx, ASP_ERR_NOMEM, "the machine refused memory for %d ranks", ranks);
    }
    memset(w.seats, 0, 2 * (size_t)ranks * sizeof *w.seats);
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.wake, NULL);
    run_threads(&w, all);
    pthread_mutex_destroy(&w.lock);
    pthread_cond_destroy(&w.wake);
    free_ranks(all, ranks);
    free(w.seats);
    if (w.status >= 0) return ASP_OK;
    if (w.failed_rank < 0) return asp_fail(cx, w.status, "%.4000s", w.message);
    return asp_fail(cx, w.status, "rank %d: %.4000s", w.failed_rank, w.message);
}
