// What every communicator must do, as the function of one rank: run it with asp_ranks_run on any
// backend and any number of ranks.  Expected values come from the index formula and from sums
// written out here in rank order.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/part.h"
#include "comm/comm.h"

#include <math.h>
#include <stdlib.h>

#define WANT(c)                                                                                \
    do {                                                                                       \
        if (!(c))                                                                              \
            return asp_fail(cx, ASP_ERR_CHECK, "conformance.h:%d: %s does not hold", __LINE__, \
                            #c);                                                               \
    } while (0)

static inline int64_t elements(const asp_tensor *t) { return asp_tensor_count(t); }

// ---- all_to_all ----------------------------------------------------------------------------

// Element i of rank r's source; fits every dtype's bytes when cut.
static inline uint64_t element_of(int r, int64_t i)
{
    return (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)r << 3;
}

static inline void fill_source(const asp_tensor *x, int r)
{
    int64_t bytes = asp_dtypes[x->dtype].bytes;
    for (int64_t i = 0; i < elements(x); i++) {
        uint64_t v = element_of(r, i);
        memcpy((char *)x->data + i * bytes, &v, (size_t)bytes);
    }
}

// y[.., gather = r * n + j, .., split = i] = x of rank r [.., gather = j, .., split = me * m + i]
static inline bool exchanged_right(const asp_tensor *x, const asp_tensor *y, int split, int gather,
                                   int me, int ranks)
{
    int64_t at[ASP_MAX_RANK] = {0}, bytes = asp_dtypes[y->dtype].bytes;
    for (int64_t i = 0; i < elements(y); i++) {
        int64_t rest = i;
        for (int d = y->rank - 1; d >= 0; d--) {
            at[d] = rest % y->dim[d];
            rest /= y->dim[d];
        }
        int64_t part = x->dim[gather];
        int r = (int)(at[gather] / part);
        at[gather] %= part;
        at[split] += me * (x->dim[split] / ranks);
        int64_t from = 0;
        for (int d = 0; d < x->rank; d++) from = from * x->dim[d] + at[d];
        uint64_t want = element_of(r, from);
        if (memcmp((char *)y->data + i * bytes, &want, (size_t)bytes) != 0) return false;
    }
    return true;
}

static inline asp_status exchange_one(asp_ctx *cx, asp_comm *comm, asp_team *team, asp_tensor x,
                                      int split, int gather)
{
    int ranks = asp_comm_ranks(comm), me = asp_comm_rank(comm);
    x.dim[split] *= ranks;
    asp_tensor y = x;
    y.dim[split] /= ranks;
    y.dim[gather] *= ranks;
    int64_t n = elements(&x), bytes = asp_dtypes[x.dtype].bytes;
    asp_tensor z = x;
    x.data = malloc((size_t)(n * bytes));
    y.data = malloc((size_t)(n * bytes));
    z.data = malloc((size_t)(n * bytes));
    const asp_all_to_all there = {.split = split, .gather = gather};
    const asp_all_to_all back = {.split = gather, .gather = split};
    int64_t room, received;
    ASP_TRY(
        asp_comm_all_to_all_cost(cx, asp_comm_kind(comm), &x, &there, ranks, me, &received, &room));
    void *work = room ? aligned_alloc(64, (size_t)asp_round_up(room, 64)) : NULL;
    fill_source(&x, me);
    int64_t before = asp_comm_counted(comm).bytes[ASP_COMM_all_to_all];
    ASP_TRY(asp_comm_all_to_all(comm, team, &x, &there, &y, work));
    int64_t counted = asp_comm_counted(comm).bytes[ASP_COMM_all_to_all] - before;
    bool right = exchanged_right(&x, &y, split, gather, me, ranks);
    ASP_TRY(asp_comm_all_to_all(comm, team, &y, &back, &z, work));
    bool restored = memcmp(x.data, z.data, (size_t)(n * bytes)) == 0;
    free(x.data);
    free(y.data);
    free(z.data);
    free(work);
    WANT(right);
    WANT(restored);
    WANT(counted == n * bytes / ranks * (ranks - 1));
    WANT(counted == received);
    WANT(counted == asp_comm_bytes(ASP_COMM_all_to_all, n, bytes, ranks, me));
    return ASP_OK;
}

static inline asp_status check_exchanges(asp_ctx *cx, asp_comm *comm, asp_team *team)
{
    static const struct {
        int rank;
        int64_t dim[ASP_MAX_RANK]; // the split dim is multiplied by the ranks
        int split, gather;
    } cases[] = {
        {4, {2, 1, 3, 5}, 1, 2},
        {4, {2, 1, 3, 5}, 2, 1},
        {4, {1, 3, 2, 4}, 2, 1},
        {4, {3, 4, 2, 1}, 3, 0},
        {4, {3, 4, 2, 1}, 0, 3},
        {2, {3, 7}, 0, 1},
        {2, {3, 7}, 1, 0},
        {3, {2, 3, 5}, 1, 2},
        {6, {2, 1, 3, 2, 1, 2}, 1, 4},
        {6, {2, 1, 3, 2, 1, 2}, 4, 1},
        {4, {1, 1, 64, 160}, 1, 2},
        {4, {2, 64, 1, 96}, 2, 1},
        {4, {1, 1, 20, 2000}, 1, 2}, // runs longer than a chunk
        {3, {0, 2, 3}, 1, 2},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(cases); i++) {
        for (int dtype = 0; dtype < ASP_DTYPE_COUNT; dtype++) {
            if (dtype > 0 && i > 10) break; // the long ones once
            asp_tensor x = {.dtype = (asp_dtype)dtype, .rank = cases[i].rank};
            memcpy(x.dim, cases[i].dim, sizeof x.dim);
            ASP_TRY_NOTE(cx, exchange_one(cx, comm, team, x, cases[i].split, cases[i].gather),
                         "exchange %zu in %s", i, asp_dtypes[dtype].name);
        }
    }
    return ASP_OK;
}

// Ragged: A x N x S x 2 numbers, N and S split over ranks that do not divide them.  Expected values
// come from the index alone; tails hold what the contract says.
static inline asp_status exchange_ragged(asp_ctx *cx, asp_comm *comm, asp_team *team, int64_t n,
                                         int64_t s, bool n_first, bool zero)
{
    const int ranks = asp_comm_ranks(comm), me = asp_comm_rank(comm);
    const int64_t rn = asp_part_room(n, ranks), rs = asp_part_room(s, ranks);
    const asp_part pn = asp_part_of(n, ranks, me), ps = asp_part_of(s, ranks, me);
    const int dn = n_first ? 1 : 2, ds = n_first ? 2 : 1;
    asp_tensor x = {.dtype = ASP_F64, .rank = 4, .dim = {2, 0, 0, 2}}, y = x;
    x.dim[dn] = n, x.dim[ds] = rs, y.dim[dn] = rn, y.dim[ds] = s;
    double *a = malloc((size_t)elements(&x) * sizeof *a),
           *c = malloc((size_t)elements(&x) * sizeof *c);
    double *b = malloc((size_t)elements(&y) * sizeof *b);
    x.data = a, y.data = b;
#define RAGGED_VALUE(o, in, is, e) \
    (1e6 * (double)(o) + 1e3 * (double)(in) + 10 * (double)(is) + (double)(e))
#define RAGGED_FOR(T, o, i, j, e)                  \
    for (int64_t o = 0; o < 2; o++)                \
        for (int64_t i = 0; i < T.dim[1]; i++)     \
            for (int64_t j = 0; j < T.dim[2]; j++) \
                for (int64_t e = 0, at = ((o * T.dim[1] + i) * T.dim[2] + j) * 2; e < 2; e++)
    RAGGED_FOR(x, o, i, j, e)
    {
        int64_t in = n_first ? i : j, is = n_first ? j : i;
        a[at + e] = is < ps.n ? RAGGED_VALUE(o, in, ps.at + is, e) : -1;
    }
    const asp_all_to_all there = {.split = dn, .gather = ds, .whole = s, .zero_tail = zero};
    const asp_all_to_all back = {.split = ds, .gather = dn, .whole = n, .zero_tail = zero};
    int64_t received, room, again;
    asp_tensor z = x;
    z.data = c;
    ASP_TRY(
        asp_comm_all_to_all_cost(cx, asp_comm_kind(comm), &x, &there, ranks, me, &received, &room));
    ASP_TRY(asp_comm_all_to_all_cost(cx, asp_comm_kind(comm), &y, &back, ranks, me, &again, &room));
    void *work = aligned_alloc(64, 64 + (size_t)asp_round_up(2 * room, 64));
    int64_t before = asp_comm_counted(comm).bytes[ASP_COMM_all_to_all];
    ASP_TRY(asp_comm_all_to_all(comm, team, &x, &there, &y, work));
    int64_t counted = asp_comm_counted(comm).bytes[ASP_COMM_all_to_all] - before;
    ASP_TRY(asp_comm_all_to_all(comm, team, &y, &back, &z, work));
    bool right = true, restored = true;
    RAGGED_FOR(y, o, i, j, e)
    {
        int64_t in = n_first ? i : j, is = n_first ? j : i;
        bool tail = in >= pn.n, nothing = pn.n == 0 || zero;
        int64_t last = tail ? pn.n - 1 : in;
        double want = tail && nothing ? 0 : RAGGED_VALUE(o, pn.at + last, is, e);
        right = right && b[at + e] == want;
    }
    RAGGED_FOR(x, o, i, j, e)
    {
        int64_t in = n_first ? i : j, is = n_first ? j : i;
        bool tail = is >= ps.n, nothing = ps.n == 0 || zero;
        int64_t last = tail ? ps.n - 1 : is;
        double want = tail && nothing ? 0 : RAGGED_VALUE(o, in, ps.at + last, e);
        restored = restored && c[at + e] == want;
    }
    free(a), free(b), free(c), free(work);
    WANT(right);
    WANT(restored);
    WANT(counted == received && counted == 2 * pn.n * (s - ps.n) * 2 * 8);
    return ASP_OK;
}

static inline asp_status check_ragged(asp_ctx *cx, asp_comm *comm, asp_team *team)
{
    static const int64_t sizes[][2] = {{4, 8}, {6, 9}, {3, 7}, {1, 5}, {7, 2}, {5, 1}, {33, 130}};
    for (size_t i = 0; i < ASP_COUNT_OF(sizes); i++)
        for (int k = 0; k < 4; k++)
            ASP_TRY_NOTE(cx,
                         exchange_ragged(cx, comm, team, sizes[i][0], sizes[i][1], k & 1, k >> 1),
                         "ragged exchange %zu.%d", i, k);
    return ASP_OK;
}

// sp_case_16: 4 heads, 8 positions, value 1000 batch + 100 head + position, 2 ranks.
static inline asp_status sp_case_16_map(asp_ctx *cx, asp_comm *comm)
{
    if (asp_comm_ranks(comm) != 2) return ASP_OK;
    static const double want[2][2][16] = {
        {{0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103, 104, 105, 106, 107},
         {1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1100, 1101, 1102, 1103, 1104, 1105, 1106,
          1107}},
        {{200, 201, 202, 203, 204, 205, 206, 207, 300, 301, 302, 303, 304, 305, 306, 307},
         {1200, 1201, 1202, 1203, 1204, 1205, 1206, 1207, 1300, 1301, 1302, 1303, 1304, 1305, 1306,
          1307}},
    };
    int me = asp_comm_rank(comm);
    _Alignas(64) char work[512];
    for (int batch = 1; batch <= 2; batch++) {
        double x[32], y[32], z[32];
        for (int b = 0, i = 0; b < batch; b++)
            for (int head = 0; head < 4; head++)
                for (int s = 0; s < 4; s++) x[i++] = 1000 * b + 100 * head + 4 * me + s;
        asp_tensor tx = {x, ASP_F64, 4, {batch, 4, 4, 1}}, ty = {y, ASP_F64, 4, {batch, 2, 8, 1}};
        asp_tensor tz = {z, ASP_F64, 4, {batch, 4, 4, 1}};
        const asp_all_to_all there = {.split = 1, .gather = 2}, back = {.split = 2, .gather = 1};
        int64_t received, room;
        ASP_TRY(asp_comm_all_to_all_cost(cx, asp_comm_kind(comm), &tx, &there, 2, me, &received,
                                         &room));
        WANT(room <= (int64_t)sizeof work && received == batch * 64);
        ASP_TRY(asp_comm_all_to_all(comm, NULL, &tx, &there, &ty, work));
        WANT(memcmp(y, want[me], sizeof(double) * (size_t)batch * 16) == 0);
        ASP_TRY(asp_comm_all_to_all(comm, NULL, &ty, &back, &tz, work));
        WANT(memcmp(z, x, sizeof(double) * (size_t)batch * 16) == 0);
    }
    return ASP_OK;
}

// ---- all_reduce ----------------------------------------------------------------------------

// Of very different sizes, so that the order of the sum shows.
static inline double term(int r, int64_t i)
{
    uint64_t h = (uint64_t)(i * 31 + r + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    h ^= h >> 29;
    double v = (double)(h % 1000003) - 500000.0;
    return ldexp(v / 7.0, (int)(h >> 40 & 31) - 16);
}

// Sums of `count` terms in rank order, 0 + 1 + ... + P-1, in T.
#define REDUCE_CASE(T, DTYPE)                                                                     \
    do {                                                                                          \
        T *x = malloc((size_t)count * sizeof(T) + 1), *y = malloc((size_t)count * sizeof(T) + 1); \
        T *out = in_place ? x : y;                                                                \
        for (int64_t i = 0; i < count; i++) x[i] = (T)term(me, i);                                \
        asp_status s = asp_comm_all_reduce(comm, team, x, DTYPE, count, out, work);               \
        bool right = true;                                                                        \
        for (int64_t i = 0; i < count && s >= 0; i++) {                                           \
            T sum = (T)term(0, i);                                                                \
            for (int r = 1; r < ranks; r++) sum = sum + (T)term(r, i);                            \
            right = right && memcmp(&sum, &out[i], sizeof sum) == 0;                              \
            right = right && (in_place || x[i] == (T)term(me, i));                                \
        }                                                                                         \
        free(x);                                                                                  \
        free(y);                                                                                  \
        if (s < 0) return s;                                                                      \
        WANT(right);                                                                              \
    } while (0)

static inline asp_status reduce_one(asp_ctx *cx, asp_comm *comm, asp_team *team, asp_dtype dtype,
                                    int64_t count, bool in_place)
{
    int ranks = asp_comm_ranks(comm), me = asp_comm_rank(comm);
    int64_t bytes = asp_dtypes[dtype].bytes;
    int64_t room =
        asp_comm_work_bytes(asp_comm_kind(comm), ASP_COMM_all_reduce, count, bytes, ranks);
    void *work = room ? aligned_alloc(64, (size_t)asp_round_up(room, 64)) : NULL;
    int64_t before = asp_comm_counted(comm).bytes[ASP_COMM_all_reduce];
    if (dtype == ASP_F32)
        REDUCE_CASE(float, ASP_F32);
    else if (dtype == ASP_F64)
        REDUCE_CASE(double, ASP_F64);
    else
        REDUCE_CASE(int64_t, ASP_I64);
    free(work);
    int64_t counted = asp_comm_counted(comm).bytes[ASP_COMM_all_reduce] - before;
    WANT(counted == asp_comm_bytes(ASP_COMM_all_reduce, count, bytes, ranks, me));
    if (count * bytes > 4096 && count % ranks == 0)
        WANT(counted == 2 * count * bytes / ranks * (ranks - 1));
    return ASP_OK;
}

static inline asp_status check_denormals(asp_ctx *cx, asp_comm *comm)
{
    // Counted as zero whatever the thread's mode is; nothing is added where there is one rank.
    if (asp_comm_ranks(comm) == 1) return ASP_OK;
    float tiny[3] = {1e-40f, 1e-40f, 1.0f};
    ASP_TRY(asp_comm_all_reduce(comm, NULL, tiny, ASP_F32, 3, tiny, NULL));
    WANT(tiny[0] == 0 && tiny[1] == 0);
    WANT(memcmp(&tiny[2], &(float){(float)asp_comm_ranks(comm)}, 4) == 0);
    return ASP_OK;
}

static inline asp_status check_sums(asp_ctx *cx, asp_comm *comm, asp_team *team)
{
    static const int64_t counts[] = {1, 3, 8, 511, 1024, 1025, 2600, 16384, 50001};
    static const asp_dtype dtypes[] = {ASP_F32, ASP_F64, ASP_I64};
    for (size_t d = 0; d < ASP_COUNT_OF(dtypes); d++)
        for (size_t i = 0; i < ASP_COUNT_OF(counts); i++)
            for (int in_place = 0; in_place < 2; in_place++)
                ASP_TRY_NOTE(cx, reduce_one(cx, comm, team, dtypes[d], counts[i], in_place),
                             "all_reduce of %lld %s", (long long)counts[i],
                             asp_dtypes[dtypes[d]].name);
    // Slices longer than a block of the mpi backend.
    if (asp_comm_ranks(comm) == 2) ASP_TRY(reduce_one(cx, comm, team, ASP_F32, 700001, true));
    return check_denormals(cx, comm);
}

// ---- the rest ------------------------------------------------------------------------------

static inline asp_status check_gather(asp_ctx *cx, asp_comm *comm, int64_t bytes, bool in_place)
{
    int ranks = asp_comm_ranks(comm), me = asp_comm_rank(comm);
    char *all = calloc((size_t)ranks, (size_t)bytes), *own = malloc((size_t)bytes);
    char *x = in_place ? all + me * bytes : own;
    for (int64_t i = 0; i < bytes; i++) x[i] = (char)(i * 7 + me);
    int64_t before = asp_comm_counted(comm).bytes[ASP_COMM_all_gather];
    asp_status s = asp_comm_all_gather(comm, NULL, x, bytes, all);
    bool right = true;
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < bytes; i++)
            right = right && all[r * bytes + i] == (char)(i * 7 + r);
    free(all);
    free(own);
    ASP_TRY(s);
    WANT(right);
    WANT(asp_comm_counted(comm).bytes[ASP_COMM_all_gather] - before == bytes * (ranks - 1));
    return ASP_OK;
}

static inline asp_status check_broadcast(asp_ctx *cx, asp_comm *comm, int64_t bytes)
{
    int me = asp_comm_rank(comm);
    char *data = malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i++) data[i] = (char)(i * 3 + 11 * me);
    int64_t before = asp_comm_counted(comm).bytes[ASP_COMM_broadcast];
    asp_status s = asp_comm_broadcast(comm, NULL, data, bytes);
    bool right = true;
    for (int64_t i = 0; i < bytes; i++) right = right && data[i] == (char)(i * 3);
    free(data);
    ASP_TRY(s);
    WANT(right);
    WANT(asp_comm_counted(comm).bytes[ASP_COMM_broadcast] - before == (me == 0 ? 0 : bytes));
    return ASP_OK;
}

// ---- rotate --------------------------------------------------------------------------------

static inline bool came_from(const char *y, int64_t bytes, int rank, int number)
{
    for (int64_t i = 0; i < bytes; i++)
        if (y[i] != (char)(i * 5 + 13 * rank + number)) return false;
    return true;
}

// Several under way, of several lengths and distances, other operations between.
static inline asp_status check_rotations(asp_ctx *cx, asp_comm *comm, asp_team *team)
{
    enum { N = 6 };
    static const int64_t lengths[N] = {1, 300001, 0, 4096, 77, 300001};
    static const int64_t by[N] = {1, 1, 1, -1, 3, 2};
    int ranks = asp_comm_ranks(comm), me = asp_comm_rank(comm);
    char *x[N], *y[N];
    int64_t before = asp_comm_counted(comm).bytes[ASP_COMM_rotate], want = 0;
    asp_status s = ASP_OK;
    bool right = true;
    for (int i = 0; i < N; i++) {
        x[i] = malloc((size_t)lengths[i] + 1);
        y[i] = malloc((size_t)lengths[i] + 1);
        for (int64_t j = 0; j < lengths[i]; j++) x[i][j] = (char)(j * 5 + 13 * me + i);
    }
    int first = 0;
    for (int i = 0; i < N + 3 && s >= 0; i++) {
        if (i < N && (ranks == 1 || by[i] % ranks)) {
            s = asp_comm_rotate_begin(comm, x[i], lengths[i], by[i], y[i]);
            want += asp_comm_bytes(ASP_COMM_rotate, lengths[i], 1, ranks, me);
        }
        double sum = 1;
        if (s >= 0) s = asp_comm_all_reduce(comm, team, &sum, ASP_F64, 1, &sum, NULL);
        right = right && (s < 0 || sum == ranks);
        for (; first <= i - 3 && first < N && s >= 0; first++) { // the one begun three before
            if (ranks > 1 && by[first] % ranks == 0) continue;
            s = asp_comm_rotate_await(comm, team);
            int from = (int)((me - by[first] + 3 * ranks) % ranks);
            right = right && (s < 0 || came_from(y[first], lengths[first], from, first));
        }
    }
    for (int i = 0; i < N; i++) {
        free(x[i]);
        free(y[i]);
    }
    ASP_TRY(s);
    WANT(right);
    WANT(asp_comm_counted(comm).bytes[ASP_COMM_rotate] - before == want);
    return ASP_OK;
}

// A value that goes all the way round comes home.
static inline asp_status check_round_trip(asp_ctx *cx, asp_comm *comm)
{
    int ranks = asp_comm_ranks(comm), me = asp_comm_rank(comm);
    int64_t at[2] = {me, 0};
    for (int i = 0; i < ranks && ranks > 1; i++) {
        ASP_TRY(asp_comm_rotate_begin(comm, &at[i & 1], sizeof at[0], 1, &at[!(i & 1)]));
        ASP_TRY(asp_comm_rotate_await(comm, NULL));
        WANT(at[!(i & 1)] == (me - i - 1 + ranks) % ranks);
    }
    return ASP_OK;
}

// Little operations in quick turn: what a fast rank posts next must not disturb a slow one.
static inline asp_status check_turns(asp_ctx *cx, asp_comm *comm)
{
    int ranks = asp_comm_ranks(comm), me = asp_comm_rank(comm);
    for (int64_t i = 0; i < 200; i++) {
        int64_t sum = i + me, data = i * (me == 0);
        ASP_TRY(asp_comm_all_reduce(comm, NULL, &sum, ASP_I64, 1, &sum, NULL));
        WANT(sum == ranks * i + ranks * (ranks - 1) / 2);
        if (i % 3 == 0) ASP_TRY(asp_comm_barrier(comm));
        if (i % 5 == 0) ASP_TRY(asp_comm_broadcast(comm, NULL, &data, sizeof data));
        WANT(i % 5 != 0 || data == i);
        ASP_TRY(asp_comm_agree(comm, "the turn", (uint64_t)i));
    }
    return ASP_OK;
}

// Refusals on all ranks alike; the communicator stays usable.
static inline asp_status check_refusals(asp_ctx *cx, asp_comm *comm)
{
    int ranks = asp_comm_ranks(comm);
    float a[16] = {0}, b[16] = {0};
    asp_tensor x = {a, ASP_F32, 2, {ranks + 1, 1}}, y = {b, ASP_F32, 2, {1, ranks}};
    const asp_all_to_all no_dim = {.split = 2, .gather = 1}, one_dim = {.split = 1, .gather = 1};
    const asp_all_to_all good = {.split = 0, .gather = 1};
    const asp_all_to_all large = {.split = 0, .gather = 1, .whole = ranks + 1};
    WANT(asp_comm_all_to_all(comm, NULL, &x, &no_dim, &y, NULL) == ASP_ERR_SHAPE);
    WANT(asp_comm_all_to_all(comm, NULL, &x, &one_dim, &y, NULL) == ASP_ERR_SHAPE);
    WANT(asp_comm_all_to_all(comm, NULL, &x, &large, &y, NULL) == ASP_ERR_SHAPE);
    x.dim[0] = ranks;
    y.dim[1] = ranks + 1;
    WANT(asp_comm_all_to_all(comm, NULL, &x, &good, &y, NULL) == ASP_ERR_SHAPE);
    WANT(asp_comm_all_reduce(comm, NULL, a, ASP_BF16, 4, a, NULL) == ASP_ERR_UNSUPPORTED);
    WANT(asp_comm_all_reduce(comm, NULL, a, ASP_F32, 8, a + 1, NULL) == ASP_ERR_USAGE);
    WANT(asp_comm_rotate_begin(comm, a, 8, 1, (char *)a + 4) == ASP_ERR_USAGE);
    if (ranks > 1) WANT(asp_comm_rotate_begin(comm, a, 8, -2 * ranks, b) == ASP_ERR_USAGE);
    cx->message[0] = '\0';
    return asp_comm_barrier(comm);
}

// Operations of all and of groups in turn: a fast group does not run over what a slow one reads.
static inline asp_status check_in_turn(asp_ctx *cx, asp_comm *comm, asp_comm *group)
{
    const int ranks = asp_comm_ranks(comm), me = asp_comm_rank(comm), n = asp_comm_ranks(group);
    const int first = me - asp_comm_rank(group);
    for (int64_t i = 0; i < 200; i++) {
        int64_t all = i + me, ours = i * me;
        ASP_TRY(asp_comm_all_reduce(comm, NULL, &all, ASP_I64, 1, &all, NULL));
        WANT(all == ranks * i + ranks * (ranks - 1) / 2);
        for (int k = 0; k <= i % 3; k++) {
            int64_t sum = ours + k;
            ASP_TRY(asp_comm_all_reduce(group, NULL, &sum, ASP_I64, 1, &sum, NULL));
            WANT(sum == i * (n * first + n * (n - 1) / 2) + n * k);
        }
        ASP_TRY(asp_comm_agree(group, "the group", (uint64_t)first));
    }
    return ASP_OK;
}

// A group does what a communicator of its own would, and its bytes are the rank's.
static inline asp_status check_groups(asp_ctx *cx, asp_comm *comm)
{
    const int ranks = asp_comm_ranks(comm);
    int n = 2;
    asp_comm *group, *again;
    while (n < ranks && ranks % n) n++;
    if (n >= ranks) return ASP_OK; // there is no division
    WANT(asp_comm_group(comm, ranks + 1, &group) == ASP_ERR_USAGE);
    cx->message[0] = '\0';
    ASP_TRY(asp_comm_group(comm, ranks, &group));
    WANT(group == comm);
    ASP_TRY(asp_comm_group(comm, n, &group));
    ASP_TRY(asp_comm_group(comm, n, &again));
    WANT(group == again && asp_comm_ranks(group) == n);
    WANT(asp_comm_rank(group) == asp_comm_rank(comm) % n);
    ASP_TRY(check_in_turn(cx, comm, group));
    ASP_TRY(check_exchanges(cx, group, NULL));
    ASP_TRY(check_ragged(cx, group, NULL));
    ASP_TRY(check_sums(cx, group, NULL));
    ASP_TRY(check_rotations(cx, group, NULL));
    ASP_TRY(check_gather(cx, group, 300001, false));
    ASP_TRY(check_broadcast(cx, group, 300001));
    const int64_t before = asp_comm_counted(comm).bytes[ASP_COMM_all_gather];
    char mine[8] = {0}, all[8 * 64];
    ASP_TRY(asp_comm_all_gather(group, NULL, mine, sizeof mine, all));
    WANT(asp_comm_counted(comm).bytes[ASP_COMM_all_gather] == before + 8 * (n - 1));
    return asp_comm_barrier(comm);
}

static inline asp_status conformance(void *arg, asp_comm *comm, asp_ctx *cx)
{
    (void)arg;
    WANT(asp_comm_rank(comm) >= 0 && asp_comm_rank(comm) < asp_comm_ranks(comm));
    asp_team *team = NULL; // with many ranks, threads would only wait for cores
    if (asp_comm_ranks(comm) <= 3) ASP_TRY(asp_team_create(cx, 2, -1, &team));
    asp_status s = check_exchanges(cx, comm, NULL);
    if (s >= 0 && team) s = check_exchanges(cx, comm, team);
    if (s >= 0) s = check_ragged(cx, comm, team);
    if (s >= 0) s = check_sums(cx, comm, team);
    if (s >= 0) s = check_rotations(cx, comm, team);
    asp_team_destroy(team);
    ASP_TRY(s);
    ASP_TRY(sp_case_16_map(cx, comm));
    for (int in_place = 0; in_place < 2; in_place++) {
        ASP_TRY(check_gather(cx, comm, 1, in_place));
        ASP_TRY(check_gather(cx, comm, 300001, in_place));
    }
    ASP_TRY(check_broadcast(cx, comm, 1));
    ASP_TRY(check_broadcast(cx, comm, 300001));
    for (int i = 0; i < 20; i++) ASP_TRY(check_round_trip(cx, comm));
    ASP_TRY(check_turns(cx, comm));
    ASP_TRY(check_groups(cx, comm));
    return check_refusals(cx, comm);
}
