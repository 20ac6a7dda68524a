// Exchanges between 2 thread ranks against memcpy: heads for tokens and back, as a 30 M Llama (8
// heads of 64) does around attention.  Each rank makes a whole array of its result, half out of its
// own and half out of its peer's; memcpy makes as much, on both ranks at once.  In turns, medians.
// `bench_exchange [rounds [tokens]]`.  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "comm/comm.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MOST_ROUNDS 64

enum { HEADS = 8, WIDTH = 64, RANKS = 2, TURNS = 5 };

typedef struct bench {
    int rounds;
    int64_t tokens;
} bench;

typedef struct rank {
    asp_comm *comm;
    asp_team *team; // of one thread, on a core of its own
    const bench *b;
    char *x, *y;
} rank;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

// From when all begin to when all are done.
static asp_status time_turn(const rank *r, const asp_tensor *from, const asp_all_to_all *a,
                            const asp_tensor *to, int64_t bytes, double *out_seconds)
{
    ASP_TRY(asp_comm_barrier(r->comm));
    const double t0 = asp_seconds();
    if (a)
        ASP_TRY(asp_comm_all_to_all(r->comm, r->team, from, a, to, NULL));
    else
        memcpy(r->y, r->x, (size_t)bytes);
    ASP_TRY(asp_comm_barrier(r->comm));
    *out_seconds = asp_seconds() - t0;
    return ASP_OK;
}

static asp_status measure(const rank *r, const char *name, asp_dtype dtype, bool to_heads)
{
    const int64_t few = HEADS / RANKS, S = r->b->tokens, part = S / RANKS;
    const asp_tensor by_tokens = {to_heads ? r->x : r->y, dtype, 4, {1, HEADS, part, WIDTH}},
                     by_heads = {to_heads ? r->y : r->x, dtype, 4, {1, few, S, WIDTH}};
    const asp_all_to_all a = {.split = to_heads ? 1 : 2, .gather = to_heads ? 2 : 1};
    const int64_t bytes = HEADS * part * WIDTH * asp_dtypes[dtype].bytes;
    const asp_tensor *from = to_heads ? &by_tokens : &by_heads,
                     *to = to_heads ? &by_heads : &by_tokens;
    double rates[MOST_ROUNDS], shares[MOST_ROUNDS];
    for (int i = 0; i < r->b->rounds; i++) {
        double best[2] = {HUGE_VAL, HUGE_VAL}, seconds;
        for (int turn = 0; turn < 2 * TURNS; turn++) {
            ASP_TRY(time_turn(r, from, turn % 2 ? &a : NULL, to, bytes, &seconds));
            best[turn % 2] = fmin(best[turn % 2], seconds);
        }
        rates[i] = 1e-9 * (double)bytes / best[1];
        shares[i] = best[0] / best[1];
    }
    if (asp_comm_rank(r->comm) == 0)
        printf("%-18s %-4s %6.2f MiB  %7.2f GB/s a rank  %.2f of memcpy\n", name,
               asp_dtypes[dtype].name, (double)bytes / (1 << 20), median(rates, r->b->rounds),
               median(shares, r->b->rounds));
    return ASP_OK;
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    enum { HUGE_PAGE = 2 << 20 }; // as a rank's memory has them
    rank r = {.comm = comm, .b = arg};
    const size_t bytes = (size_t)asp_round_up(HEADS * r.b->tokens / RANKS * WIDTH * 4, HUGE_PAGE);
    char *memory = aligned_alloc(HUGE_PAGE, 2 * bytes);
    if (!memory) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for the bench");
    asp_status s = asp_team_create(cx, 1, asp_comm_rank(comm), &r.team);
    madvise(memory, 2 * bytes, MADV_HUGEPAGE);
    memset(memory, 1, 2 * bytes);
    r.x = memory;
    r.y = memory + bytes;
    if (s == ASP_OK) s = measure(&r, "tokens to heads", ASP_F32, true);
    if (s == ASP_OK) s = measure(&r, "heads to tokens", ASP_F32, false);
    if (s == ASP_OK) s = measure(&r, "tokens to heads", ASP_BF16, true);
    if (s == ASP_OK) s = measure(&r, "heads to tokens", ASP_BF16, false);
    asp_team_destroy(r.team);
    free(memory);
    return s;
}

int main(int argc, char **argv)
{
    asp_ctx cx;
    bench b = {.rounds = argc > 1 ? (int)asp_max(1, asp_min(MOST_ROUNDS, atoi(argv[1]))) : 9,
               .tokens = argc > 2 ? asp_max(RANKS, atoi(argv[2]) / RANKS * RANKS) : 4096};
    asp_ctx_init(&cx);
    if (asp_ranks_run(&cx, ASP_COMM_thread, RANKS, rank_main, &b) == ASP_OK) return 0;
    fprintf(stderr, "%s\n", cx.message);
    return 1;
}
