// Copies and sums of a communicator: an exchange as pieces of regular runs, the copying of pieces
// on a team, the sum of P arrays in rank order.  No ranks and no waiting here.
// Neighbours: comm_int.h (contract), thread.c (copies out of peers' arrays), mpi.c (packs, unpacks,
// sums what arrived).  SPDX-License-Identifier: Apache-2.0
#include "comm/comm_int.h"

#include <stdatomic.h>

#define CHUNK_BYTES ((int64_t)64 << 10)  // what a thread takes at a time
#define ALONE_BYTES ((int64_t)256 << 10) // less is not worth waking a team
#define TILE_BYTES 4096                  // sums are built in L1

// ---- exchanges -----------------------------------------------------------------------------

static int64_t product(const int64_t *dim, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= dim[i];
    return n;
}

static asp_exchange_dim exchange_dim(int64_t whole, int ranks)
{
    return (asp_exchange_dim){whole, asp_part_room(whole, ranks)};
}

asp_status asp_exchange_build(asp_ctx *cx, const asp_tensor *x, const asp_all_to_all *a, int ranks,
                              asp_exchange *out_exchange)
{
    int first = a->split < a->gather ? a->split : a->gather;
    int second = a->split < a->gather ? a->gather : a->split;
    if (first < 0 || second >= x->rank || first == second)
        return asp_fail(cx, ASP_ERR_SHAPE,
                        "all_to_all: split dim %d and gather dim %d of an array of rank %d; they "
                        "must be two of its dims",
                        a->split, a->gather, x->rank);
    int64_t gathered = a->whole ? a->whole : x->dim[a->gather] * ranks;
    int64_t split_unit = asp_max(1, a->split_unit), gather_unit = asp_max(1, a->gather_unit);
    asp_exchange e = {.ranks = ranks,
                      .split_first = a->split < a->gather,
                      .zero_tail = a->zero_tail,
                      .split = exchange_dim(x->dim[a->split] / split_unit, ranks),
                      .gather = exchange_dim(gathered / gather_unit, ranks)};
    if (x->dim[a->split] % split_unit || gathered % gather_unit ||
        e.gather.room * gather_unit != x->dim[a->gather])
        return asp_fail(cx, ASP_ERR_SHAPE,
                        "all_to_all: dim %d has %lld elements, which %d ranks that share %lld in "
                        "units of %lld do not have, or dim %d is not in units of %lld",
                        a->gather, (long long)x->dim[a->gather], ranks, (long long)gathered,
                        (long long)gather_unit, a->split, (long long)split_unit);
    e.outer = product(x->dim, 0, first);
    e.middle = product(x->dim, first + 1, second) * (e.split_first ? split_unit : gather_unit);
    e.inner_bytes = product(x->dim, second + 1, x->rank) * asp_dtypes[x->dtype].bytes *
                    (e.split_first ? gather_unit : split_unit);
    *out_exchange = e;
    return ASP_OK;
}

asp_runs asp_exchange_runs(const asp_exchange *e, int from, int to)
{
    int64_t split = asp_part_of(e->split.whole, e->ranks, to).n;
    int64_t gather = asp_part_of(e->gather.whole, e->ranks, from).n;
    int64_t one = e->split_first ? split : gather, two = e->split_first ? gather : split;
    return (asp_runs){e->outer, one * e->middle, two * e->inner_bytes};
}

int64_t asp_exchange_received_bytes(const asp_exchange *e, int rank)
{
    int64_t mine = asp_part_of(e->split.whole, e->ranks, rank).n;
    int64_t others = e->gather.whole - asp_part_of(e->gather.whole, e->ranks, rank).n;
    return e->outer * e->middle * e->inner_bytes * mine * others;
}

// A part's runs inside an array [outer][one][middle][two][inner].
static asp_strip strip(const asp_exchange *e, char *at, int64_t one, int64_t two, int64_t i,
                       int64_t j)
{
    int64_t row = two * e->inner_bytes;
    return (asp_strip){.at = at + i * e->middle * row + j * e->inner_bytes,
                       .outer_stride = one * e->middle * row,
                       .row_stride = row};
}

// Sources are only read; one struct serves both ends of a copy.
static char *unconst(const void *p)
{
    union {
        const void *in;
        char *out;
    } u = {p};
    return u.out;
}

asp_strip asp_exchange_source(const asp_exchange *e, const void *x, int to)
{
    int64_t at = asp_part_of(e->split.whole, e->ranks, to).at;
    if (e->split_first) return strip(e, unconst(x), e->split.whole, e->gather.room, at, 0);
    return strip(e, unconst(x), e->gather.room, e->split.whole, 0, at);
}

asp_strip asp_exchange_target(const asp_exchange *e, void *y, int from)
{
    int64_t at = asp_part_of(e->gather.whole, e->ranks, from).at;
    if (e->split_first) return strip(e, y, e->split.room, e->gather.whole, 0, at);
    return strip(e, y, e->gather.whole, e->split.room, at, 0);
}

// Copies of the last element, or zeros where there is none or the caller wants them.
static void fill_run(const asp_exchange *e, char *run, int64_t n, int64_t room, int64_t bytes)
{
    for (int64_t i = n; i < room; i++) {
        if (n == 0 || e->zero_tail)
            memset(run + i * bytes, 0, (size_t)bytes);
        else
            memcpy(run + i * bytes, run + (n - 1) * bytes, (size_t)bytes);
    }
}

void asp_exchange_fill_tail(const asp_exchange *e, void *y, int rank)
{
    int64_t n = asp_part_of(e->split.whole, e->ranks, rank).n, room = e->split.room;
    if (n == room) return;
    // Split first: a tail an outer index; else one a row.
    int64_t bytes = e->split_first ? e->middle * e->gather.whole * e->inner_bytes : e->inner_bytes;
    int64_t runs = e->split_first ? e->outer : e->outer * e->gather.whole * e->middle;
    for (int64_t i = 0; i < runs; i++) fill_run(e, (char *)y + i * room * bytes, n, room, bytes);
}

asp_strip asp_runs_packed(asp_runs r, void *at)
{
    return (asp_strip){at, r.rows * r.run_bytes, r.run_bytes};
}

bool asp_runs_whole(asp_runs r, asp_strip s)
{
    bool rows_meet = r.rows == 1 || s.row_stride == r.run_bytes;
    return rows_meet && (r.outer == 1 || s.outer_stride == r.rows * r.run_bytes);
}

// ---- copying pieces ------------------------------------------------------------------------

// Joins runs that stand end to end on both sides, so that copies are as long as can be.
static asp_piece joined(asp_piece p)
{
    if (p.rows == 1 || (p.to.row_stride == p.run_bytes && p.from.row_stride == p.run_bytes)) {
        p.run_bytes *= p.rows;
        p.rows = p.outer;
        p.outer = 1;
        p.to.row_stride = p.to.outer_stride;
        p.from.row_stride = p.from.outer_stride;
        if (p.rows == 1 || (p.to.row_stride == p.run_bytes && p.from.row_stride == p.run_bytes)) {
            p.run_bytes *= p.rows;
            p.rows = 1;
        }
    }
    return p;
}

asp_piece asp_piece_strips(asp_runs r, asp_strip to, asp_strip from, bool counted)
{
    return joined((asp_piece){to, from, r.outer, r.rows, r.run_bytes, counted});
}

asp_piece asp_piece_bytes(void *to, const void *from, int64_t bytes, bool counted)
{
    return (asp_piece){{to, 0, 0}, {unconst(from), 0, 0}, 1, 1, bytes, counted};
}

// A piece is claimed as chunks: parts of a long run, or groups of short ones.
static int64_t parts_of_run(const asp_piece *p) { return asp_ceil_div(p->run_bytes, CHUNK_BYTES); }

static int64_t runs_per_chunk(const asp_piece *p)
{
    return p->run_bytes > 0 ? asp_max(1, CHUNK_BYTES / p->run_bytes) : 1;
}

static int64_t chunks_of_piece(const asp_piece *p)
{
    int64_t runs = p->outer * p->rows, parts = parts_of_run(p);
    return parts > 1 ? runs * parts : asp_ceil_div(runs, runs_per_chunk(p));
}

static char *run_at(asp_strip s, int64_t rows, int64_t run)
{
    return s.at + run / rows * s.outer_stride + run % rows * s.row_stride;
}

// Returns the bytes copied.
static int64_t copy_chunk(const asp_piece *p, int64_t chunk)
{
    int64_t parts = parts_of_run(p);
    if (parts > 1) {
        int64_t run = chunk / parts, begin = chunk % parts * CHUNK_BYTES;
        int64_t bytes = asp_min(CHUNK_BYTES, p->run_bytes - begin);
        memcpy(run_at(p->to, p->rows, run) + begin, run_at(p->from, p->rows, run) + begin,
               (size_t)bytes);
        return bytes;
    }
    int64_t first = chunk * runs_per_chunk(p);
    int64_t end = asp_min(first + runs_per_chunk(p), p->outer * p->rows), bytes = 0;
    for (int64_t run = first; run < end; run++) {
        memcpy(run_at(p->to, p->rows, run), run_at(p->from, p->rows, run), (size_t)p->run_bytes);
        bytes += p->run_bytes;
    }
    return bytes;
}

typedef struct move_job {
    const asp_piece *pieces;
    int n_pieces;
    int64_t chunks_per_piece; // of the largest
    _Atomic int64_t counted_bytes;
} move_job;

static int64_t move_chunk(const move_job *j, int64_t i)
{
    const asp_piece *p = &j->pieces[i / j->chunks_per_piece];
    int64_t chunk = i % j->chunks_per_piece;
    int64_t bytes = chunk < chunks_of_piece(p) ? copy_chunk(p, chunk) : 0;
    return p->counted ? bytes : 0;
}

static void move_worker(void *arg, asp_worker *w)
{
    move_job *j = arg;
    int64_t bytes = 0;
    for (int64_t i; (i = asp_team_next(w, j->n_pieces * j->chunks_per_piece)) >= 0;)
        bytes += move_chunk(j, i);
    atomic_fetch_add_explicit(&j->counted_bytes, bytes, memory_order_relaxed);
}

int64_t asp_move(asp_team *team, const asp_piece *pieces, int n_pieces)
{
    move_job j = {.pieces = pieces, .n_pieces = n_pieces, .chunks_per_piece = 0};
    int64_t all_bytes = 0;
    for (int i = 0; i < n_pieces; i++) {
        j.chunks_per_piece = asp_max(j.chunks_per_piece, chunks_of_piece(&pieces[i]));
        all_bytes += pieces[i].outer * pieces[i].rows * pieces[i].run_bytes;
    }
    if (all_bytes == 0) return 0;
    if (team && all_bytes >= ALONE_BYTES) {
        asp_team_run(team, move_worker, &j);
        return atomic_load(&j.counted_bytes);
    }
    int64_t bytes = 0;
    for (int64_t i = 0; i < n_pieces * j.chunks_per_piece; i++) bytes += move_chunk(&j, i);
    return bytes;
}

// ---- sums ----------------------------------------------------------------------------------

// Denormals count as zero everywhere in the product, so sums must not depend on who runs them.
#if defined(__x86_64__)
#define FLUSH_BITS 0x8040u
static uint32_t flush_denormals(void)
{
    uint32_t before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | FLUSH_BITS);
    return before;
}
static void restore_denormals(uint32_t before) { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
static uint32_t flush_denormals(void)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (UINT64_C(1) << 24)));
    return (uint32_t)before;
}
static void restore_denormals(uint32_t before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)before));
}
#else
static uint32_t flush_denormals(void) { return 0; }
static void restore_denormals(uint32_t before) { (void)before; }
#endif

typedef struct sum_job {
    const void *const *x;
    int n_x;
    asp_dtype dtype;
    int64_t bytes;
    void *y;
} sum_job;

// The sum grows in a tile beside the arrays: y may be one of them.
#define SUM_TILE(T, add)                                                \
    do {                                                                \
        T sum[TILE_BYTES / sizeof(T)];                                  \
        int64_t n = bytes / (int64_t)sizeof(T);                         \
        memcpy(sum, (const char *)j->x[0] + at, (size_t)bytes);         \
        for (int r = 1; r < j->n_x; r++) {                              \
            const T *x = (const T *)((const char *)j->x[r] + at);       \
            for (int64_t i = 0; i < n; i++) sum[i] = add(sum[i], x[i]); \
        }                                                               \
        memcpy((char *)j->y + at, sum, (size_t)bytes);                  \
    } while (0)

#define ADD(a, b) ((a) + (b))
#define ADD_WRAPPING(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

static void sum_chunk(const sum_job *j, int64_t chunk)
{
    uint32_t mode = flush_denormals();
    int64_t end = asp_min((chunk + 1) * CHUNK_BYTES, j->bytes);
    for (int64_t at = chunk * CHUNK_BYTES; at < end; at += TILE_BYTES) {
        int64_t bytes = asp_min(TILE_BYTES, end - at);
        if (j->dtype == ASP_F32)
            SUM_TILE(float, ADD);
        else if (j->dtype == ASP_F64)
            SUM_TILE(double, ADD);
        else
            SUM_TILE(int64_t, ADD_WRAPPING);
    }
    restore_denormals(mode);
}

static void sum_worker(void *arg, asp_worker *w)
{
    const sum_job *j = arg;
    int64_t n_chunks = asp_ceil_div(j->bytes, CHUNK_BYTES);
    for (int64_t i; (i = asp_team_next(w, n_chunks)) >= 0;) sum_chunk(j, i);
}

void asp_sum(asp_team *team, asp_dtype dtype, const void *const *x, int n_x, int64_t count, void *y)
{
    ASP_CHECK(dtype == ASP_F32 || dtype == ASP_F64 || dtype == ASP_I64);
    sum_job j = {x, n_x, dtype, count * asp_dtypes[dtype].bytes, y};
    if (team && j.bytes * n_x >= ALONE_BYTES) {
        asp_team_run(team, sum_worker, &j);
        return;
    }
    int64_t n_chunks = asp_ceil_div(j.bytes, CHUNK_BYTES);
    for (int64_t i = 0; i < n_chunks; i++) sum_chunk(&j, i);
}
