// Scratch of the flash attention kernels.  Neighbours: sdpa_isa.c (the kernels), ref/sdpa.c (the
// plain ones, for head widths that are no multiple of 4).  SPDX-License-Identifier: Apache-2.0
#include "kern/sdpa_int.h"
#include "kern/mask_tile.h"

static bool is_plain(const asp_sdpa_attr *a)
{
    return !*a->mask && a->softcap == 0 && !a->bias && !a->sinks && !*a->alibi && a->dropout == 0;
}

static void see_masks(const asp_kcall *k, asp_sdpa_sizes *z)
{
    asp_attend a;
    asp_attend_of(k, z->first, &a);
    z->causal = a.causal;
    z->hides = a.masked || a.bias;
    z->flat = a.empty != ASP_ATTEND_ZERO || (a.bias && a.bias->dtype != ASP_BOOL);
    z->all_meet = z->all_meet && !z->hides;
    z->n_bounds = asp_mask_n_bounds(z, &a, ASP_SDPA_LEAST_KEYS);
}

int64_t asp_sdpa_extra_floats(const asp_sdpa_sizes *z)
{
    const int64_t tile =
        (int64_t)(sizeof(asp_mask_tile) + sizeof(float) - 1) / (int64_t)sizeof(float);
    return z->plain ? 0 : asp_round_up(2 * ASP_SDPA_KEYS * ASP_SDPA_QUERIES + tile, 16);
}

asp_sdpa_sizes asp_sdpa_sizes_of(const asp_kcall *k, uint32_t first)
{
    const asp_tensor *q = &k->in[0], *key = &k->in[1], *v = &k->in[2];
    const asp_sdpa_attr *attr = k->attr;
    asp_sdpa_sizes z = {
        .batch = q->dim[0],
        .heads = q->dim[1],
        .kv_heads = key->dim[1],
        .group = q->dim[1] / key->dim[1],
        .n_q = q->dim[2],
        .n_k = key->dim[2],
        .d = q->dim[3],
        .e = v->dim[3],
        .scale = (float)attr->scale,
        .causal = attr->causal,
        .plain = is_plain(attr),
        .first = first,
    };
    asp_sdpa_rows(k, &z.q_rows, &z.k_rows);
    z.all_meet = z.k_rows.n > 0;
    for (int i = 0; z.causal && i < z.q_rows.n; i++)
        z.all_meet = z.all_meet && z.q_rows.seg[i].at >= z.k_rows.seg[0].at;
    if (!z.plain) see_masks(k, &z);
    return z;
}

// What the predicate is for all pairs of two runs of rows, whatever the look-ups hold.
static asp_mask_state relate_runs(const asp_attend *a, asp_segment q, asp_segment k)
{
    const asp_mask_range any = {INT64_MIN, INT64_MAX};
    const asp_mask_range look[ASP_MASK_MAX_LOOKUPS] = {any, any, any, any};
    asp_mask_state state[ASP_MASK_MAX_ATOMS];
    for (uint32_t x = 0; x < a->mask.n_atoms; x++) {
        const asp_mask_atom *atom = &a->mask.atom[x];
        state[x] = asp_mask_relate(atom->rel,
                                   asp_mask_side_range(&atom->query, q.at, q.at + q.n - 1, look),
                                   asp_mask_side_range(&atom->key, k.at, k.at + k.n - 1, look));
    }
    return asp_mask_whole(&a->mask, state);
}

// How pairs under a mask are counted.
typedef struct counting {
    asp_attend a;
    int64_t least; // rows of a block that is not looked into
    int64_t edge;  // pairs a row that such a block costs beside the half that is seen
} counting;

// Halves of the longer side, until a block is seen whole or not at all, or has few rows: that one
// counts half.
static int64_t seen_pairs(const counting *c, asp_segment q, asp_segment k)
{
    const asp_mask_state whole = relate_runs(&c->a, q, k);
    if (whole == ASP_MASK_NEVER) return 0;
    if (whole == ASP_MASK_ALWAYS) return q.n * k.n;
    if (q.n <= c->least && k.n <= c->least)
        return asp_ceil_div(q.n * k.n, 2) + asp_max(q.n, k.n) * c->edge;
    asp_segment *cut = q.n >= k.n ? &q : &k, rest = *cut;
    cut->n /= 2;
    rest.at += cut->n, rest.n -= cut->n;
    const int64_t first = seen_pairs(c, q, k);
    return first + (cut == &q ? seen_pairs(c, rest, k) : seen_pairs(c, q, rest));
}

static int64_t masked_pairs(const asp_kcall *call, const asp_rows *q, const asp_rows *k,
                            int64_t least, int64_t edge)
{
    const int64_t longest = asp_max(asp_rows_count(q), asp_rows_count(k));
    counting c = {.least = asp_max(least, longest / 32), .edge = edge}; // few blocks at any length
    int64_t pairs = 0;
    asp_attend_of(call, call->n_out == 2 ? 3 : 6, &c.a);
    for (int i = 0; i < q->n; i++)
        for (int j = 0; j < k->n; j++) pairs += seen_pairs(&c, q->seg[i], k->seg[j]);
    return pairs;
}

static int64_t plain_pairs(const asp_sdpa_attr *a, const asp_rows *q, const asp_rows *k)
{
    return a->causal ? asp_rows_causal_pairs(q, k) : asp_rows_count(q) * asp_rows_count(k);
}

int64_t asp_sdpa_pairs(const asp_kcall *call)
{
    const asp_sdpa_attr *attr = call->attr;
    asp_rows q, k;
    asp_sdpa_rows(call, &q, &k);
    return *attr->mask ? masked_pairs(call, &q, &k, 1, 0) : plain_pairs(attr, &q, &k);
}

int64_t asp_sdpa_block_pairs(const asp_kcall *call)
{
    const asp_sdpa_attr *attr = call->attr;
    asp_rows q, k;
    asp_sdpa_rows(call, &q, &k);
    if (*attr->mask) return masked_pairs(call, &q, &k, ASP_SDPA_LEAST_KEYS, ASP_SDPA_LEAST_KEYS);
    const int64_t pairs = plain_pairs(attr, &q, &k);
    return pairs ? pairs + asp_rows_count(&q) * (ASP_SDPA_LEAST_KEYS / 2) : 0;
}

bool asp_sdpa_meets(const asp_kcall *call)
{
    asp_rows q, k;
    asp_attend a;
    asp_sdpa_rows(call, &q, &k);
    asp_attend_of(call, call->n_out == 2 ? 3 : 6, &a);
    if (a.empty != ASP_ATTEND_ZERO) return true; // a query that sees nothing takes of every block
    for (int i = 0; i < q.n; i++)
        for (int j = 0; j < k.n; j++)
            if (relate_runs(&a, q.seg[i], k.seg[j]) != ASP_MASK_NEVER) return true;
    return false;
}

asp_kcall asp_sdpa_ring_call(const void *attr, const int64_t *sizes, int64_t ranks, int64_t rank)
{
    const int64_t rings = ((const asp_sdpa_attr *)attr)->rings;
    asp_kcall k = {
        .attr = attr, .sizes = sizes, .n_out = 2, .ranks = (int)ranks, .rank = (int)rank};
    for (int i = 0; i < 2; i++) {
        k.in[i].rank = 4;
        k.in[i].dim[2] = asp_rows_group_room(sizes[i], ranks, rings);
    }
    return k;
}

bool asp_sdpa_is_empty(const asp_sdpa_sizes *z)
{
    if (!z->q_rows.n || !z->k_rows.n) return true;
    if (z->flat) return false;
    const asp_segment last = z->q_rows.seg[z->q_rows.n - 1]; // places rise
    return z->causal && last.at + last.n <= z->k_rows.seg[0].at;
}

void asp_sdpa_rows(const asp_kcall *k, asp_rows *out_q, asp_rows *out_k)
{
    const asp_sdpa_attr *a = k->attr;
    const int64_t n_q = k->in[0].dim[2], n_k = k->in[1].dim[2];
    const int64_t rings = a->rings;
    if (rings <= 1) {
        *out_q = asp_rows_all(n_q);
        *out_k = asp_rows_all(n_k);
        return;
    }
    const int64_t group = k->rank * rings / k->ranks, ranks = k->ranks;
    ASP_CHECK(asp_rows_group_room(k->sizes[0], ranks, rings) == n_q &&
              asp_rows_group_room(k->sizes[1], ranks, rings) == n_k);
    *out_q = asp_rows_of_group(k->sizes[0], rings, a->zigzag, group);
    *out_k =
        asp_rows_of_group(k->sizes[1], rings, a->zigzag, (group + rings - a->step % rings) % rings);
}

int64_t asp_sdpa_blocks(const asp_sdpa_sizes *z, int64_t most)
{
    int64_t n = 0;
    for (int i = 0; i < z->q_rows.n; i++) n += asp_ceil_div(z->q_rows.seg[i].n, most);
    return asp_max(n, 1);
}

asp_sdpa_block asp_sdpa_block_of(const asp_sdpa_sizes *z, int64_t most, int64_t i)
{
    for (int j = 0; j < z->q_rows.n; j++) {
        const asp_segment s = z->q_rows.seg[j];
        const int64_t blocks = asp_ceil_div(s.n, most), from = i * most;
        if (i < blocks)
            return (asp_sdpa_block){s.first + from, asp_min(most, s.n - from), s.at + from};
        i -= blocks;
    }
    return (asp_sdpa_block){0};
}

static bool odd_width(const asp_sdpa_sizes *z) { return z->d % 4 != 0 || z->e % 4 != 0; }

int64_t asp_sdpa_f32_work(const asp_kcall *k, int n_threads)
{
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k, 3);
    if (odd_width(&z)) return asp_sdpa_ref_work(k, n_threads);
    return ((asp_sdpa_thread_floats(&z) + asp_sdpa_extra_floats(&z)) * n_threads +
            asp_sdpa_bounds_floats(&z)) *
           (int64_t)sizeof(float);
}

int64_t asp_sdpa_grad_f32_work(const asp_kcall *k, int n_threads)
{
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k, 6);
    if (odd_width(&z)) return asp_sdpa_grad_ref_work(k, n_threads);
    return ((asp_sdpa_thread_floats(&z) + asp_sdpa_extra_floats(&z)) * n_threads +
            asp_sdpa_delta_floats(&z) + asp_sdpa_counters(&z) + asp_sdpa_bounds_floats(&z)) *
           (int64_t)sizeof(float);
}
