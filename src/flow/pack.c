// Static arena layout ("dynamic storage allocation", offline).  Two ways are tried and the lower
// arena is kept:
//
//   sweep    walks the steps in order and tries to stay under a given height: blocks kept for long
//            go into the lowest gap that fits, short-lived ones into the highest, so the two kinds
//            grow towards each other and what is kept stays dense.  The height starts at the lower
//            bound (the most bytes alive at once) and rises by small steps until a try succeeds.
//   by size  places large blocks first, each into the lowest gap among the placed blocks that are
//            alive with it.  Only where the sweeps stay more than 0.2 % above the bound.
//
// A sweep costs blocks x gaps, which are few; by size costs blocks^2 / 2 vector comparisons. Blocks
// below 1/8192 of the bound, which are most blocks and next to no bytes, get a small sweep of their
// own above the others.  20,000 blocks: 10 to 150 ms.
// Neighbours: pack.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "flow/pack.h"

#include <stdlib.h>

#define RUN 16u

typedef struct span {
    int64_t from, to;
} span;

typedef struct packer {
    asp_block_life *blocks;
    uint32_t n, n_steps; // n blocks of the class being placed
    uint32_t *by_first;  // ordered by first step, then larger first
    uint32_t *by_last;   // ordered by last step
    int64_t *offset;     // of the current try
    span *gaps;          // of a sweep: what is free, by address
    uint32_t n_gaps;
    span *used;             // of by size: what is placed, by address
    uint32_t *first, *last; // lives of the same
    uint32_t n_used;
    uint32_t long_life;
} packer;

static int64_t rounded(const asp_block_life *b) { return asp_round_up(b->bytes, ASP_PACK_ALIGN); }

static void find_max_live(asp_arena *scratch, const packer *p, asp_pack_result *r)
{
    int64_t *change = ASP_NEW_ARRAY(scratch, int64_t, (size_t)p->n_steps + 1), live = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const asp_block_life *b = &p->blocks[p->by_first[i]];
        change[b->first] += rounded(b);
        change[b->last + 1] -= rounded(b);
    }
    *r = (asp_pack_result){0};
    for (uint32_t s = 0; s < p->n_steps; s++) {
        live += change[s];
        if (live <= r->max_live) continue;
        r->max_live = live;
        r->at_step = s;
    }
}

static int order_by_first(const void *x, const void *y, void *context)
{
    const packer *p = context;
    uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
    const asp_block_life *a = &p->blocks[i], *b = &p->blocks[j];
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return i < j ? -1 : 1;
}

static int order_by_last(const void *x, const void *y, void *context)
{
    const packer *p = context;
    uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
    if (p->blocks[i].last != p->blocks[j].last)
        return p->blocks[i].last < p->blocks[j].last ? -1 : 1;
    return i < j ? -1 : 1;
}

// ---- the sweep -------------------------------------------------------------------------------

// Removes from gap `at` what starts at from (one of its ends).
static void take(packer *p, uint32_t at, uint32_t block, int64_t from, int64_t bytes)
{
    span *g = &p->gaps[at];
    p->offset[block] = from;
    if (from == g->from)
        g->from += bytes;
    else
        g->to -= bytes;
    if (g->from < g->to) return;
    p->n_gaps--;
    memmove(g, g + 1, (p->n_gaps - at) * sizeof *g);
}

static bool place_low(packer *p, uint32_t block)
{
    int64_t want = rounded(&p->blocks[block]);
    for (uint32_t i = 0; i < p->n_gaps; i++) {
        if (p->gaps[i].to - p->gaps[i].from < want) continue;
        take(p, i, block, p->gaps[i].from, want);
        return true;
    }
    return false;
}

static bool place_high(packer *p, uint32_t block)
{
    int64_t want = rounded(&p->blocks[block]);
    for (uint32_t i = p->n_gaps; i-- > 0;) {
        if (p->gaps[i].to - p->gaps[i].from < want) continue;
        take(p, i, block, p->gaps[i].to - want, want);
        return true;
    }
    return false;
}

static void release(packer *p, uint32_t block)
{
    int64_t from = p->offset[block], to = from + rounded(&p->blocks[block]);
    uint32_t low = 0, high = p->n_gaps; // low: the first gap above
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (p->gaps[middle].from < from)
            low = middle + 1;
        else
            high = middle;
    }
    span *above = &p->gaps[low];
    bool joins_below = low > 0 && above[-1].to == from;
    bool joins_above = low < p->n_gaps && above->from == to;
    if (joins_below && joins_above) {
        above[-1].to = above->to;
        p->n_gaps--;
        memmove(above, above + 1, (p->n_gaps - low) * sizeof *above);
    } else if (joins_below) {
        above[-1].to = to;
    } else if (joins_above) {
        above->from = from;
    } else {
        memmove(above + 1, above, (p->n_gaps - low) * sizeof *above);
        *above = (span){from, to};
        p->n_gaps++;
    }
}

// One walk over the steps; false as soon as a block does not fit under the height.
static bool try_height(packer *p, int64_t height, bool two_ended)
{
    uint32_t dead = 0;
    p->gaps[0] = (span){0, height};
    p->n_gaps = 1;
    for (uint32_t i = 0; i < p->n; i++) {
        const asp_block_life *b = &p->blocks[p->by_first[i]];
        while (dead < p->n && p->blocks[p->by_last[dead]].last < b->first)
            release(p, p->by_last[dead++]);
        bool low = !two_ended || b->last - b->first >= p->long_life;
        if (!(low ? place_low(p, p->by_first[i]) : place_high(p, p->by_first[i]))) return false;
    }
    return true;
}

static int64_t height_of_try(const packer *p)
{
    int64_t height = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t block = p->by_first[i];
        height = asp_max(height, p->offset[block] + rounded(&p->blocks[block]));
    }
    return height;
}

static int64_t keep_try(packer *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        p->blocks[p->by_first[i]].offset = p->offset[p->by_first[i]];
    return height_of_try(p);
}

// Heights above the lower bound that are tried, in thousandths.
static const int slack[] = {0, 1, 2, 4, 7, 10, 15, 20, 30, 40, 60, 80, 110, 150, 200};

// Tries heights below best; returns the height reached.
static int64_t sweep(packer *p, int64_t max_live, int64_t best)
{
    for (size_t i = 0; i < ASP_COUNT_OF(slack); i++) {
        int64_t height = asp_round_up(max_live + max_live / 1000 * slack[i], ASP_PACK_ALIGN);
        if (height >= best) return best;
        for (uint32_t divisor = 2; divisor <= 32; divisor *= 4) {
            p->long_life = p->n_steps / divisor;
            if (try_height(p, height, true)) return keep_try(p);
        }
    }
    return best;
}

// ---- by size ---------------------------------------------------------------------------------

static void put_span(packer *p, uint32_t at, uint32_t block, int64_t from)
{
    const asp_block_life *b = &p->blocks[block];
    uint32_t after = p->n_used++ - at;
    memmove(&p->used[at + 1], &p->used[at], after * sizeof p->used[0]);
    memmove(&p->first[at + 1], &p->first[at], after * sizeof p->first[0]);
    memmove(&p->last[at + 1], &p->last[at], after * sizeof p->last[0]);
    p->used[at] = (span){from, from + rounded(b)};
    p->first[at] = b->first;
    p->last[at] = b->last;
    p->offset[block] = from;
}

// The first placed block from `at` on that is alive with b, or n_used.  Most are not, so they are
// looked at in runs, which compilers turn into vector comparisons.
static uint32_t next_alive(const packer *p, uint32_t at, const asp_block_life *b)
{
    while (at + RUN <= p->n_used) {
        uint32_t any = 0;
        for (uint32_t i = at; i < at + RUN; i++)
            any |= (uint32_t)(p->first[i] <= b->last) & (uint32_t)(p->last[i] >= b->first);
        if (any) break;
        at += RUN;
    }
    while (at < p->n_used && (p->first[at] > b->last || p->last[at] < b->first)) at++;
    return at;
}

static int order_by_size(const void *x, const void *y, void *context)
{
    const packer *p = context;
    uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
    const asp_block_life *a = &p->blocks[i], *b = &p->blocks[j];
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    uint32_t long_a = a->last - a->first, long_b = b->last - b->first;
    if (long_a != long_b) return long_a > long_b ? -1 : 1;
    return i < j ? -1 : 1;
}

static int64_t place_by_size(packer *p, asp_arena *scratch)
{
    uint32_t *order = asp_copy_bytes(scratch, p->by_first, p->n * sizeof *order);
    qsort_r(order, p->n, sizeof *order, order_by_size, p);
    p->n_used = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const asp_block_life *b = &p->blocks[order[i]];
        int64_t want = rounded(b), free_from = 0;
        uint32_t at = next_alive(p, 0, b);
        for (; at < p->n_used; at = next_alive(p, at + 1, b)) {
            if (p->used[at].from - free_from >= want) break;
            free_from = asp_max(free_from, p->used[at].to);
        }
        while (at > 0 && p->used[at - 1].from > free_from)
            at--; // blocks of other times may stand in between
        while (at < p->n_used && p->used[at].from <= free_from) at++;
        put_span(p, at, order[i], free_from);
    }
    return height_of_try(p);
}

// The blocks of one size class; offsets start at base.  Returns the height above base.
static int64_t pack_class(packer *p, asp_arena *scratch, int64_t base, bool large)
{
    qsort_r(p->by_first, p->n, sizeof *p->by_first, order_by_first, p);
    memcpy(p->by_last, p->by_first, p->n * sizeof *p->by_last);
    qsort_r(p->by_last, p->n, sizeof *p->by_last, order_by_last, p);
    asp_pack_result bound;
    find_max_live(scratch, p, &bound);
    ASP_CHECK(try_height(p, INT64_MAX / 2, false));
    int64_t best = keep_try(p);
    best = sweep(p, bound.max_live, best);
    if (large && best > bound.max_live + bound.max_live / 500 && place_by_size(p, scratch) < best)
        best = keep_try(p);
    for (uint32_t i = 0; i < p->n; i++) p->blocks[p->by_first[i]].offset += base;
    return best;
}

asp_status asp_pack(asp_arena *scratch, asp_block_life *blocks, uint32_t n, uint32_t n_steps,
                    asp_pack_result *out_result)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        ASP_CHECK(blocks[i].bytes > 0 && blocks[i].first <= blocks[i].last &&
                  blocks[i].last < n_steps);
        if (asp_add_overflows(total, blocks[i].bytes + ASP_PACK_ALIGN, &total) || total > INT64_C(1)
                                                                                              << 60)
            return asp_fail(scratch->cx, ASP_ERR_LIMIT,
                            "the blocks of the plan sum to more than 2^60 bytes");
    }
    packer p = {.blocks = blocks, .n_steps = n_steps};
    p.by_first = ASP_NEW_ARRAY(scratch, uint32_t, n);
    p.by_last = ASP_NEW_ARRAY(scratch, uint32_t, n);
    p.offset = ASP_NEW_ARRAY(scratch, int64_t, n);
    p.used = ASP_NEW_ARRAY(scratch, span, (size_t)n + 1);
    p.first = ASP_NEW_ARRAY(scratch, uint32_t, (size_t)n + 1);
    p.last = ASP_NEW_ARRAY(scratch, uint32_t, (size_t)n + 1);
    p.gaps = ASP_NEW_ARRAY(scratch, span, (size_t)n + 2);
    asp_pack_result r;
    for (p.n = 0; p.n < n; p.n++) p.by_first[p.n] = p.n;
    find_max_live(scratch, &p, &r);
    for (int large = 1; large >= 0; large--) {
        p.n = 0;
        for (uint32_t i = 0; i < n; i++)
            if ((blocks[i].bytes >= r.max_live / 8192) == (large == 1)) p.by_first[p.n++] = i;
        if (p.n) r.height += pack_class(&p, scratch, r.height, large == 1);
    }
    *out_result = r;
    return ASP_OK;
}
