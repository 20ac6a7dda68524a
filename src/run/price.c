// What a step of a plan takes, by the models of cost/: the clocks of all ranks are followed through
// the step program.  A kernel moves its rank's clock on; at an exchange ranks wait for the last
// one; a rotation is under way from where the slower of its two ranks begins it, so that what
// stands between hides it where a link is named, and not where ranks copy within one machine, with
// the cores that would compute.  So uneven work, padding, repeated keys and values, latencies and
// kernels that start small are in the price because they are in the program.
// O(steps * ranks).  Neighbours: run.h (contract), cost/ (rates, links), choose.c (who asks).
// SPDX-License-Identifier: Apache-2.0
#include "run/run_int.h"

// Attention on a ring takes another time on each rank; layers are alike.
typedef struct known {
    const asp_step *step;
    double *seconds; // by rank
    struct known *older;
} known;

#define FILE_GBS 0.5 // of --offload's file by one rank: a solid-state disk that ranks share

#define KERNEL_SECONDS 1e-6 // a team begins and ends

typedef struct clocks {
    const asp_plan *plan;
    const asp_device *d;
    const asp_links *links;
    asp_arena scratch;
    int64_t ranks;
    double *now;                 // by rank
    double *waited;              // of this, by rank: exchanges
    double *begun;               // by rotation (a ring of them) and rank
    uint32_t n_begun, n_awaited; // rotations
    double file_done;            // when the rank's file has moved all it was given
    known *known;
    const asp_kcall *under_way[ASP_COMM_ROTATIONS];
} clocks;

// ---- kernels -----------------------------------------------------------------------------------

static double attention_seconds(const clocks *c, const asp_step *s, int64_t rank)
{
    asp_kcall k = *s->call;
    k.rank = (int)rank;
    const double flops = asp_flops_attention_blocks(s->cost, &k);
    return flops > 0 ? asp_time_attention(c->d, flops, s->touched_bytes) : 0;
}

static double kernel_seconds(const clocks *c, const asp_step *s, int64_t rank)
{
    const double start = KERNEL_SECONDS;
    switch (s->cost) {
    case ASP_COST_GEMM: {
        const double compute = s->flops / (c->d->fma_gflops * c->d->gemm_fraction * 1e9);
        const double stream = asp_time_stream(c->d, s->touched_bytes);
        return start + (compute > stream ? compute : stream);
    }
    case ASP_COST_SDPA:
    case ASP_COST_SDPA_GRAD: return start + attention_seconds(c, s, rank);
    case ASP_COST_FREE:
    case ASP_COST_STREAM:
    case ASP_COST_LINK: break;
    }
    return start + asp_time_stream(c->d, s->touched_bytes);
}

static bool differs_by_rank(const asp_step *s)
{
    return (s->cost == ASP_COST_SDPA || s->cost == ASP_COST_SDPA_GRAD) &&
           ((const asp_sdpa_attr *)s->call->attr)->rings > 1;
}

static bool same_work(const asp_step *x, const asp_step *y)
{
    const asp_sdpa_attr *a = x->call->attr, *b = y->call->attr;
    for (int i = 0; i < 2; i++)
        if (memcmp(x->call->in[i].dim, y->call->in[i].dim, sizeof x->call->in[i].dim) != 0 ||
            x->call->sizes[i] != y->call->sizes[i])
            return false;
    return x->cost == y->cost && x->touched_bytes == y->touched_bytes && a->step == b->step &&
           a->rings == b->rings && a->zigzag == b->zigzag && a->causal == b->causal &&
           strcmp(a->mask, b->mask) == 0;
}

static const double *ring_seconds(clocks *c, const asp_step *s)
{
    known *k = c->known;
    while (k && !same_work(k->step, s)) k = k->older;
    if (k) return k->seconds;
    k = ASP_NEW(&c->scratch, known);
    *k = (known){s, ASP_NEW_ARRAY(&c->scratch, double, c->ranks), c->known};
    for (int64_t r = 0; r < c->ranks; r++) k->seconds[r] = kernel_seconds(c, s, r);
    c->known = k;
    return k->seconds;
}

static void run_kernel(clocks *c, const asp_step *s)
{
    const double *by_rank = differs_by_rank(s) ? ring_seconds(c, s) : NULL;
    const double all = by_rank ? 0 : kernel_seconds(c, s, 0) * (double)s->trips;
    for (int64_t r = 0; r < c->ranks; r++) c->now[r] += by_rank ? by_rank[r] : all;
}

// ---- exchanges ---------------------------------------------------------------------------------

// Rank `to` has `bytes` from `from`.  Within a machine that is a copy; a device's rate is that of
// two ranks that also copy their own half.
static double message_seconds(const clocks *c, int64_t from, int64_t to, double bytes)
{
    const asp_link *l = from == to ? NULL : asp_links_find(c->links, from, to);
    return l ? bytes / (l->gbs * 1e9) : bytes / (2 * c->d->exchange_gbs * 1e9);
}

static double latency_seconds(const clocks *c, int64_t from, int64_t to)
{
    const asp_link *l = asp_links_find(c->links, from, to);
    return (l ? l->latency_us : c->d->latency_us) * 1e-6;
}

// Until the last of ranks first .. first + n - 1 has `bytes` of each.
static double longest_receipt(const clocks *c, int64_t first, int64_t n, double bytes)
{
    double longest = 0;
    if (c->links->n == 0) // all alike
        return (double)n * message_seconds(c, 0, 0, bytes) + latency_seconds(c, 0, 1);
    for (int64_t r = first; r < first + n; r++) {
        double took = 0, latency = 0;
        for (int64_t from = first; from < first + n; from++) {
            const double l = from == r ? 0 : latency_seconds(c, from, r);
            took += message_seconds(c, from, r, bytes);
            latency = l > latency ? l : latency;
        }
        longest = took + latency > longest ? took + latency : longest;
    }
    return longest;
}

// They meet, exchange, and go on together.  Other replicas' clocks are those of the first.
static void meet(clocks *c, int64_t first, int64_t n, double bytes)
{
    double at = 0;
    const double longest = longest_receipt(c, first, n, bytes);
    const int64_t end = asp_min(first + n, c->ranks);
    for (int64_t r = first; r < end; r++) at = c->now[r] > at ? c->now[r] : at;
    for (int64_t r = first; r < end; r++) {
        c->waited[r] += at + longest - c->now[r];
        c->now[r] = at + longest;
    }
}

static double bytes_of(const asp_tensor *x)
{
    return (double)(asp_tensor_count(x) * asp_dtypes[x->dtype].bytes);
}

static void run_all_to_all(clocks *c, const asp_step *s)
{
    const asp_a2a_attr *a = s->call->attr;
    const int64_t n = a->ranks > 0 ? a->ranks : c->ranks;
    for (int64_t first = 0; first < c->ranks; first += n)
        meet(c, first, n, bytes_of(&s->call->in[0]) / (double)n);
}

// Each sums its slice and shares it: twice the parts.
static void run_all_reduce(clocks *c, const asp_step *s)
{
    const int64_t n = s->everyone ? asp_plan_world(c->plan) : c->ranks;
    meet(c, 0, n, 2 * bytes_of(&s->call->in[0]) / (double)n);
}

static double *begun_at(clocks *c, uint32_t rotation)
{
    return c->begun + (size_t)(rotation % ASP_COMM_ROTATIONS) * (size_t)c->ranks;
}

static void begin_rotation(clocks *c, const asp_step *s)
{
    c->under_way[c->n_begun % ASP_COMM_ROTATIONS] = s->call;
    memcpy(begun_at(c, c->n_begun++), c->now, (size_t)c->ranks * sizeof *c->now);
}

static void await_rotation(clocks *c)
{
    const asp_kcall *k = c->under_way[c->n_awaited % ASP_COMM_ROTATIONS];
    const double *begun = begun_at(c, c->n_awaited++), bytes = bytes_of(&k->in[0]);
    const int64_t by = ((const asp_rotate_attr *)k->attr)->by;
    for (int64_t r = 0; r < c->ranks; r++) {
        const int64_t from = ((r - by) % c->ranks + c->ranks) % c->ranks;
        const bool linked = asp_links_find(c->links, from, r) != NULL;
        const double start = begun[from] > begun[r] ? begun[from] : begun[r];
        const double took = message_seconds(c, from, r, bytes) + latency_seconds(c, from, r);
        // Copies are made by the one who awaits them.
        const double from_here = linked || start > c->now[r] ? start : c->now[r];
        const double until = from_here + took;
        if (until <= c->now[r]) continue;
        c->waited[r] += until - c->now[r];
        c->now[r] = until;
    }
}

// ---- files -------------------------------------------------------------------------------------

// One after the other, beside the computing: only what does not end in time is waited for.

static void begin_file(clocks *c, const asp_step *s)
{
    const double bytes = (double)s->call->in[0].dim[0], now = c->now[0];
    c->file_done = (c->file_done > now ? c->file_done : now) + bytes / (FILE_GBS * 1e9);
}

static void await_file(clocks *c)
{
    for (int64_t r = 0; r < c->ranks; r++)
        if (c->now[r] < c->file_done) c->now[r] = c->file_done;
}

// ---- the walk ----------------------------------------------------------------------------------

static void run_step(clocks *c, const asp_step *s)
{
    switch (s->kind) {
    case ASP_STEP_KERNEL:
    case ASP_STEP_ROWS:
    case ASP_STEP_SCALE:
    case ASP_STEP_UPDATE: run_kernel(c, s); break;
    case ASP_STEP_ALL_TO_ALL: run_all_to_all(c, s); break;
    case ASP_STEP_WEIGH:
    case ASP_STEP_ALL_REDUCE: run_all_reduce(c, s); break;
    case ASP_STEP_ROTATE: begin_rotation(c, s); break;
    case ASP_STEP_AWAIT: await_rotation(c); break;
    case ASP_STEP_WRITE_FILE:
    case ASP_STEP_READ_FILE: begin_file(c, s); break;
    case ASP_STEP_AWAIT_FILE: await_file(c); break;
    }
}

asp_price asp_plan_price(const asp_plan *p, const asp_device *d, const asp_links *links)
{
    clocks c = {.plan = p, .d = d, .links = links, .ranks = p->ranks};
    asp_price price = {0};
    asp_arena_init(&c.scratch, p->arena.cx);
    c.now = ASP_NEW_ARRAY(&c.scratch, double, c.ranks);
    c.waited = ASP_NEW_ARRAY(&c.scratch, double, c.ranks);
    c.begun = ASP_NEW_ARRAY(&c.scratch, double, c.ranks *ASP_COMM_ROTATIONS);
    for (uint32_t i = 0; i < p->steps.n; i++) run_step(&c, &p->steps.at[i]);
    for (int64_t r = 0; r < c.ranks; r++)
        if (c.now[r] > price.seconds) {
            price.seconds = c.now[r];
            price.exchange_seconds = c.waited[r];
        }
    for (int i = 0; i < p->report.n_exchanges; i++) {
        const asp_plan_exchange *x = &p->report.exchanges[i];
        if (strcmp(x->what, ASP_GRADIENTS_LOC) == 0) continue;
        price.exchanges += x->count;
        price.received_bytes += x->bytes;
    }
    asp_arena_fini(&c.scratch);
    return price;
}
