// Rows of groups and ranks.  Neighbours: rows.h (what the orders are).
// SPDX-License-Identifier: Apache-2.0
#include "base/rows.h"
#include "base/part.h"

static asp_segment part(int64_t n, int64_t parts, int64_t i)
{
    const asp_part p = asp_part_of(n, parts, i);
    return (asp_segment){.n = p.n, .at = p.at};
}

static void append(asp_rows *r, asp_segment s)
{
    if (s.n == 0) return;
    s.first = asp_rows_count(r);
    r->seg[r->n++] = s;
}

asp_rows asp_rows_of_group(int64_t n, int64_t rings, bool zigzag, int64_t group)
{
    asp_rows r = {0};
    append(&r, part(n, zigzag ? 2 * rings : rings, group));
    if (zigzag) append(&r, part(n, 2 * rings, 2 * rings - 1 - group));
    return r;
}

asp_rows asp_rows_of_rank(int64_t n, int64_t ranks, int64_t rings, bool zigzag, int64_t rank)
{
    rings = asp_max(rings, 1);
    const int64_t in_group = ranks / rings;
    const asp_rows all = asp_rows_of_group(n, rings, zigzag, rank / in_group);
    const int64_t count = asp_rows_count(&all), room = asp_rows_room(n, ranks);
    asp_segment mine = part(count, in_group, rank % in_group);
    if (rings > 1) {
        mine.at = asp_min(rank % in_group * room, count);
        mine.n = asp_min(room, count - mine.at);
    }
    asp_rows r = {0};
    for (int i = 0; i < all.n; i++) {
        const asp_segment s = all.seg[i];
        const int64_t from = asp_max(s.first, mine.at);
        const int64_t to = asp_min(s.first + s.n, mine.at + mine.n);
        if (from < to) append(&r, (asp_segment){.n = to - from, .at = s.at + from - s.first});
    }
    return r;
}

int64_t asp_rows_place(const asp_rows *r, int64_t row)
{
    for (int i = 0; i < r->n; i++)
        if (row >= r->seg[i].first && row < r->seg[i].first + r->seg[i].n)
            return r->seg[i].at + row - r->seg[i].first;
    return -1;
}

int64_t asp_rows_find(const asp_rows *r, int64_t place)
{
    for (int i = 0; i < r->n; i++)
        if (place >= r->seg[i].at && place < r->seg[i].at + r->seg[i].n)
            return r->seg[i].first + place - r->seg[i].at;
    return -1;
}

asp_rows asp_rows_cut(const asp_rows *r, int64_t length)
{
    asp_rows cut = {0};
    for (int i = 0; i < r->n; i++) {
        asp_segment s = r->seg[i];
        s.n = asp_max(0, asp_min(s.n, length - s.at));
        append(&cut, s);
    }
    return cut;
}

// More pairs than anybody computes: sequences that are only asked about.
#define MANY_PAIRS (INT64_C(1) << 60)
#define MANY_ROWS (INT64_C(1) << 29)

// Keys 0 .. n - 1 seen by the queries at 0 .. m - 1, key <= query.
static int64_t pairs_below(int64_t m, int64_t n)
{
    if (m <= 0) return 0;
    if (m > MANY_ROWS || n > MANY_ROWS) return MANY_PAIRS;
    return m <= n ? m * (m + 1) / 2 : n * (n + 1) / 2 + (m - n) * n;
}

int64_t asp_rows_causal_pairs(const asp_rows *queries, const asp_rows *keys)
{
    int64_t pairs = 0;
    for (int i = 0; i < queries->n; i++)
        for (int j = 0; j < keys->n; j++) {
            const asp_segment q = queries->seg[i], k = keys->seg[j];
            pairs += pairs_below(q.at + q.n - k.at, k.n) - pairs_below(q.at - k.at, k.n);
        }
    return pairs;
}
