// Ranges and rows of predicates in blocks.  Neighbours: mask_tile.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "kern/mask_tile.h"

static int64_t floor_div(int64_t x, int64_t by)
{
    const int64_t q = x / by;
    return q - (x % by < 0);
}

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    return asp_add_overflows(a, b, &sum) ? (b > 0 ? INT64_MAX : INT64_MIN) : sum;
}

static int64_t multiply(int64_t a, int64_t b)
{
    int64_t product;
    if (!asp_mul_overflows(a, b, &product)) return product;
    return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

asp_mask_range asp_mask_side_range(const asp_mask_side *s, int64_t lo, int64_t hi,
                                   const asp_mask_range *look)
{
    asp_mask_range r = {s->constant, s->constant};
    for (uint32_t i = 0; i < s->n; i++) {
        const asp_mask_term *t = &s->term[i];
        asp_mask_range x = t->lookup < 0 ? (asp_mask_range){lo, hi} : look[t->lookup];
        if (t->div != 1) x = (asp_mask_range){floor_div(x.lo, t->div), floor_div(x.hi, t->div)};
        r.lo = add(r.lo, multiply(t->coef > 0 ? x.lo : x.hi, t->coef));
        r.hi = add(r.hi, multiply(t->coef > 0 ? x.hi : x.lo, t->coef));
    }
    return r;
}

asp_mask_state asp_mask_relate(asp_mask_rel rel, asp_mask_range q, asp_mask_range k)
{
    const bool apart = q.hi < k.lo || k.hi < q.lo;
    const bool one = q.lo == q.hi && k.lo == k.hi && q.lo == k.lo;
    switch (rel) {
    case ASP_MASK_LE:
        return q.hi <= k.lo ? ASP_MASK_ALWAYS : q.lo > k.hi ? ASP_MASK_NEVER : ASP_MASK_SOMETIMES;
    case ASP_MASK_EQ: return one ? ASP_MASK_ALWAYS : apart ? ASP_MASK_NEVER : ASP_MASK_SOMETIMES;
    case ASP_MASK_NE: return one ? ASP_MASK_NEVER : apart ? ASP_MASK_ALWAYS : ASP_MASK_SOMETIMES;
    }
    return ASP_MASK_SOMETIMES;
}

asp_mask_state asp_mask_whole(const asp_mask *m, const asp_mask_state *atom)
{
    asp_mask_state state[ASP_MASK_MAX_NODES];
    for (uint32_t i = 0; i < m->n_nodes; i++) {
        const asp_mask_node *n = &m->node[i];
        const bool both = n->kind == ASP_MASK_AND;
        const asp_mask_state decides = both ? ASP_MASK_NEVER : ASP_MASK_ALWAYS;
        switch (n->kind) {
        case ASP_MASK_TRUE: state[i] = ASP_MASK_ALWAYS; break;
        case ASP_MASK_FALSE: state[i] = ASP_MASK_NEVER; break;
        case ASP_MASK_ATOM: state[i] = atom[n->a]; break;
        case ASP_MASK_AND:
        case ASP_MASK_OR: {
            const asp_mask_state a = state[n->a], b = state[n->b];
            state[i] = a == decides || b == decides ? decides : a == b ? a : ASP_MASK_SOMETIMES;
        }
        }
    }
    return state[m->n_nodes - 1];
}

void asp_mask_look_ranges(const asp_attend *a, uint32_t which, int64_t batch, int64_t at, int64_t n,
                          asp_mask_range *out)
{
    int64_t x[ASP_MASK_MAX_LOOKUPS];
    for (uint32_t i = 0; i < a->mask.n_lookups; i++)
        out[i] = (asp_mask_range){INT64_MAX, INT64_MIN};
    for (int64_t p = 0; which && p < n; p++) {
        asp_attend_lookups(a, which, batch, at + p, x);
        for (uint32_t i = 0; i < a->mask.n_lookups; i++) {
            out[i].lo = asp_min(out[i].lo, x[i]);
            out[i].hi = asp_max(out[i].hi, x[i]);
        }
    }
}

// ---- bounds of key look-ups --------------------------------------------------------------------

static int64_t key_blocks(const asp_sdpa_sizes *z, int64_t keys)
{
    int64_t n = 0;
    for (int i = 0; i < z->k_rows.n; i++) n += asp_ceil_div(z->k_rows.seg[i].n, keys);
    return n;
}

int64_t asp_mask_n_bounds(const asp_sdpa_sizes *z, const asp_attend *a, int64_t keys)
{
    return a->mask.key_lookups ? z->batch * key_blocks(z, keys) * a->mask.n_lookups : 0;
}

void asp_mask_bounds(const asp_sdpa_sizes *z, const asp_attend *a, int64_t keys,
                     asp_mask_range *bounds, asp_worker *w)
{
    const int64_t blocks = key_blocks(z, keys);
    if (!a->mask.key_lookups) return;
    for (int64_t i; (i = asp_team_next(w, z->batch * blocks)) >= 0;) {
        int64_t block = i % blocks;
        int s = 0;
        for (; block >= asp_ceil_div(z->k_rows.seg[s].n, keys); s++)
            block -= asp_ceil_div(z->k_rows.seg[s].n, keys);
        const asp_segment seg = z->k_rows.seg[s];
        asp_mask_look_ranges(a, a->mask.key_lookups, i / blocks, seg.at + block * keys,
                             asp_min(keys, seg.n - block * keys), bounds + i * a->mask.n_lookups);
    }
    asp_team_barrier(w);
}

const asp_mask_range *asp_mask_bounds_at(const asp_sdpa_sizes *z, const asp_attend *a, int64_t keys,
                                         const asp_mask_range *bounds, int64_t batch, int64_t from)
{
    if (!a->mask.key_lookups) return NULL;
    int64_t block = batch * key_blocks(z, keys);
    int s = 0;
    for (; s + 1 < z->k_rows.n && from >= z->k_rows.seg[s + 1].first; s++)
        block += asp_ceil_div(z->k_rows.seg[s].n, keys);
    return bounds + (block + (from - z->k_rows.seg[s].first) / keys) * a->mask.n_lookups;
}

// ---- tiles -------------------------------------------------------------------------------------

void asp_mask_queries(asp_mask_tile *t, const asp_attend *a, int64_t batch, int64_t at, int64_t n)
{
    asp_mask_range look[ASP_MASK_MAX_LOOKUPS];
    int64_t x[ASP_MASK_MAX_LOOKUPS];
    const asp_mask *m = &a->mask;
    t->n_q = n;
    asp_mask_look_ranges(a, m->query_lookups, batch, at, n, look);
    for (uint32_t i = 0; i < m->n_atoms; i++)
        t->q_range[i] = asp_mask_side_range(&m->atom[i].query, at, at + n - 1, look);
    for (int64_t q = 0; q < ASP_SDPA_QUERIES; q++) {
        const int64_t place = at + asp_min(q, n - 1); // missing queries are as the last
        asp_attend_lookups(a, m->query_lookups, batch, place, x);
        for (uint32_t i = 0; i < m->n_atoms; i++)
            t->q_side[i][q] = asp_mask_side_at(&m->atom[i].query, place, x);
    }
}

asp_mask_state asp_mask_keys(asp_mask_tile *t, const asp_attend *a, int64_t at, int64_t n,
                             const asp_mask_range *bounds)
{
    const asp_mask *m = &a->mask;
    for (uint32_t i = 0; i < m->n_atoms; i++) {
        const asp_mask_range k = asp_mask_side_range(&m->atom[i].key, at, at + n - 1, bounds);
        t->state[i] = asp_mask_relate(m->atom[i].rel, t->q_range[i], k);
    }
    return asp_mask_whole(m, t->state);
}

// Both sides as 32-bit numbers from the queries' smallest on; keys outside of their range come to
// stand beside it.
static void relative(asp_mask_tile *t, uint32_t i, int64_t n)
{
    const asp_mask_range r = t->q_range[i];
    t->wide[i] = r.lo < -(INT64_C(1) << 60) || r.hi > INT64_C(1) << 60 || r.hi - r.lo > 1 << 30;
    if (t->wide[i]) return;
    for (int64_t q = 0; q < ASP_SDPA_QUERIES; q++)
        t->q_rel[i][q] = (int32_t)(t->q_side[i][q] - r.lo);
    for (int64_t k = 0; k < n; k++)
        t->k_rel[i][k] = (int32_t)(asp_max(asp_min(t->k_side[i][k], r.hi + 1), r.lo - 1) - r.lo);
}

void asp_mask_rows(asp_mask_tile *t, const asp_attend *a, int64_t batch, int64_t at, int64_t n)
{
    const asp_mask *m = &a->mask;
    int64_t x[ASP_MASK_MAX_LOOKUPS];
    for (int64_t k = 0; k < n; k++) {
        asp_attend_lookups(a, m->key_lookups, batch, at + k, x);
        for (uint32_t i = 0; i < m->n_atoms; i++)
            if (t->state[i] == ASP_MASK_SOMETIMES)
                t->k_side[i][k] = asp_mask_side_at(&m->atom[i].key, at + k, x);
    }
    for (uint32_t i = 0; i < m->n_atoms; i++)
        if (t->state[i] == ASP_MASK_SOMETIMES) relative(t, i, n);
}
