// What is done to a block of scores beside products and exp2: soft cap, bias, slopes, masks,
// dropout; and the queries that see nothing.  Included by the attention kernels of a level behind
// softmax.h. Neighbours: attend.h (what a call asks for), mask_tile.h (which blocks).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/mask_tile.h"
#include "kern/softmax.h"

#include <math.h>

// Of one thread; the blocks lie in the call's scratch.  `at` are places in the sequence.
typedef struct scores {
    const asp_sdpa_sizes *z;
    asp_attend a;
    bool hides;             // some pairs are not seen beside the causal ones
    asp_mask_range *bounds; // of all threads
    asp_mask_tile *tile;
    float *cap, *keep;   // (KEYS, QUERIES): derivative of the soft cap; 0 or 1 / (1 - p)
    int64_t batch, head; // of the block of queries
    asp_sdpa_block b;
} scores;

static void scores_in(scores *s, const asp_kcall *k, const asp_sdpa_sizes *z, uint32_t first,
                      float *scratch, int thread)
{
    asp_attend_of(k, first, &s->a);
    s->z = z;
    s->hides = z->hides;
    s->bounds = (asp_mask_range *)(void *)scratch;
    float *next = scratch + asp_sdpa_bounds_floats(z) + thread * asp_sdpa_extra_floats(z);
    s->cap = next;
    s->keep = next + KEYS * QUERIES;
    s->tile = (asp_mask_tile *)(void *)(next + 2 * ASP_SDPA_KEYS * ASP_SDPA_QUERIES);
}

static void scores_block(scores *s, int64_t head, asp_sdpa_block b)
{
    s->batch = head / s->z->heads;
    s->head = head % s->z->heads;
    s->b = b;
    if (s->a.masked) asp_mask_queries(s->tile, &s->a, s->batch, b.at, b.n);
}

// Keys at .. at + n - 1, the first of them row `from` of k.
static asp_mask_state scores_see(const scores *s, int64_t from, int64_t at, int64_t n)
{
    if (!s->a.masked) {
        if (!s->a.causal || at + n - 1 <= s->b.at) return ASP_MASK_ALWAYS;
        return at > s->b.at + s->b.n - 1 ? ASP_MASK_NEVER : ASP_MASK_SOMETIMES;
    }
    return asp_mask_keys(s->tile, &s->a, at, n,
                         asp_mask_bounds_at(s->z, &s->a, KEYS, s->bounds, s->batch, from));
}

// ---- masks -------------------------------------------------------------------------------------

ASP_INLINE asp_vi relation_holds(const asp_mask_tile *t, asp_mask_rel rel, uint32_t i, int64_t j,
                                 int64_t c)
{
    asp_vi q, k = (asp_vi){0} + t->k_rel[i][j];
    memcpy(&q, &t->q_rel[i][c], sizeof q);
    switch (rel) {
    case ASP_MASK_LE: return q <= k;
    case ASP_MASK_EQ: return q == k;
    case ASP_MASK_NE: return q != k;
    }
    return q == k;
}

static ASP_NOINLINE asp_vi wide_holds(const asp_mask_tile *t, asp_mask_rel rel, uint32_t i,
                                      int64_t j, int64_t c)
{
    asp_vi all = {0};
    for (int l = 0; l < ASP_VF; l++) {
        const int64_t q = t->q_side[i][c + l], k = t->k_side[i][j];
        const bool holds = rel == ASP_MASK_LE ? q <= k : (rel == ASP_MASK_EQ) == (q == k);
        all[l] = -(int32_t)holds;
    }
    return all;
}

// -1 where a condition holds for key j and the queries from c on.
static asp_vi condition_holds(const asp_mask *m, const asp_mask_tile *t, uint32_t node, int64_t j,
                              int64_t c)
{
    const asp_mask_node *n = &m->node[node];
    const asp_vi none = {0};
    switch (n->kind) {
    case ASP_MASK_TRUE: return ~none;
    case ASP_MASK_FALSE: return none;
    case ASP_MASK_AND: return condition_holds(m, t, n->a, j, c) & condition_holds(m, t, n->b, j, c);
    case ASP_MASK_OR: return condition_holds(m, t, n->a, j, c) | condition_holds(m, t, n->b, j, c);
    case ASP_MASK_ATOM: break;
    }
    if (t->state[n->a] == ASP_MASK_ALWAYS) return ~none;
    if (t->state[n->a] == ASP_MASK_NEVER) return none;
    if (t->wide[n->a]) return wide_holds(t, m->atom[n->a].rel, n->a, j, c);
    return relation_holds(t, m->atom[n->a].rel, n->a, j, c);
}

static void hide(float *score, asp_vi seen)
{
    asp_vf_store(score, asp_vf_select(seen, asp_vf_load(score), asp_vf_all(-INFINITY)));
}

// One relation that hides where it does not hold, in a block.
static void hide_by(const asp_mask_tile *t, asp_mask_rel rel, uint32_t i, float *to, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < QUERIES; c += ASP_VF)
            hide(to + j * QUERIES + c,
                 t->wide[i] ? wide_holds(t, rel, i, j, c) : relation_holds(t, rel, i, j, c));
}

static void hide_unseen(const scores *s, float *to, int64_t at, int64_t n)
{
    const asp_mask *m = &s->a.mask;
    bool all_must = true;
    if (!s->a.masked) {
        mask_block(to, s->b.at, at, n);
        return;
    }
    asp_mask_rows(s->tile, &s->a, s->batch, at, n);
    for (uint32_t i = 0; i < m->n_nodes; i++) all_must &= m->node[i].kind != ASP_MASK_OR;
    for (uint32_t i = 0; all_must && i < m->n_atoms; i++)
        if (s->tile->state[i] == ASP_MASK_SOMETIMES) hide_by(s->tile, m->atom[i].rel, i, to, n);
    for (int64_t j = 0; !all_must && j < n; j++)
        for (int64_t c = 0; c < QUERIES; c += ASP_VF)
            hide(to + j * QUERIES + c, condition_holds(m, s->tile, m->n_nodes - 1, j, c));
}

// ---- numbers -----------------------------------------------------------------------------------

// Relative error below 3e-7.  tanh x = x + x^3 q(x^2) for |x| < 0.6, else 1 - 2 / (e^2x + 1).
ASP_INLINE asp_vf tanh_of(asp_vf x)
{
    const asp_vi sign = (asp_vi)x & (asp_vi)asp_vf_all(-0.0f);
    const asp_vf size = (asp_vf)((asp_vi)x & ~(asp_vi)asp_vf_all(-0.0f));
    const asp_vf far = asp_vf_min(asp_vf_all(20.0f), size);
    const asp_vf large = 1.0f - 2.0f / (exp2_of(far * (2 * LOG2_E)) + 1.0f), y = x * x;
    asp_vf q = asp_vf_fma(asp_vf_all(-0x1.830baep-8f), y, asp_vf_all(0x1.54e006p-6f));
    q = asp_vf_fma(q, y, asp_vf_all(-0x1.b89ed6p-5f));
    q = asp_vf_fma(q, y, asp_vf_all(0x1.1109dcp-3f));
    q = asp_vf_fma(q, y, asp_vf_all(-0x1.55553ep-2f));
    const asp_vf near = asp_vf_fma(x * y, q, x);
    asp_vf r = asp_vf_select(size < 0.6f, near, (asp_vf)((asp_vi)large | sign));
    return asp_vf_select(x == x, r, x); // NaN stays
}

// Scores in log2 units; `cap` gets the derivative where it is wanted.
static void cap_scores(const scores *s, float *to, int64_t n, bool derive)
{
    const float cap = (float)s->a.softcap * LOG2_E, inverse = 1 / cap;
    for (int64_t i = 0; i < n * QUERIES; i += ASP_VF) {
        const asp_vf t = tanh_of(asp_vf_load(to + i) * inverse);
        asp_vf_store(to + i, t * cap);
        if (derive) asp_vf_store(s->cap + i, 1.0f - t * t);
    }
}

static void add_bias(const scores *s, float *to, int64_t at, int64_t n)
{
    for (int64_t q = 0; q < s->b.n; q++) {
        const int64_t i = s->batch * s->a.bias_step[0] + s->head * s->a.bias_step[1] +
                          (s->b.at + q) * s->a.bias_step[2];
        const int64_t step = s->a.bias_step[3];
        const float *add = (const float *)s->a.bias->data;
        const uint8_t *see = (const uint8_t *)s->a.bias->data;
        for (int64_t j = 0; j < n; j++) {
            float *score = to + j * QUERIES + q;
            if (s->a.bias->dtype == ASP_BOOL) {
                if (!see[i + (at + j) * step]) *score = -INFINITY;
                continue;
            }
            const float x = add[i + (at + j) * step];
            *score = x < (float)ASP_HIDDEN_BIAS ? -INFINITY : *score + x * LOG2_E;
        }
    }
}

static void add_slopes(const scores *s, float *to, int64_t at, int64_t n)
{
    const float slope = ((const float *)s->a.slopes->data)[s->head] * LOG2_E;
    for (int64_t j = 0; j < n; j++)
        for (int64_t q = 0; q < s->b.n; q++) {
            int64_t by = at + j - s->b.at - q;
            if (s->a.distance && by > 0) by = -by;
            to[j * QUERIES + q] += slope * (float)by;
        }
}

// What stands between the product of a block and exp2.
static void finish_scores(const scores *s, float *to, int64_t at, int64_t n, asp_mask_state seen,
                          bool derive)
{
    if (s->a.softcap > 0) cap_scores(s, to, n, derive);
    if (s->a.bias) add_bias(s, to, at, n);
    if (s->a.slopes) add_slopes(s, to, at, n);
    if (seen == ASP_MASK_SOMETIMES) hide_unseen(s, to, at, n);
}

// ---- dropout -----------------------------------------------------------------------------------

static void draw_keep(const scores *s, int64_t at, int64_t n)
{
    const float keep = (float)s->a.keep;
    float four[4];
    memset(s->keep, 0, (size_t)(n * QUERIES) * sizeof(float));
    for (int64_t q = 0; q < s->b.n; q++)
        for (int64_t k = at & ~INT64_C(3); k < at + n; k += 4) {
            asp_attend_keep4(&s->a, s->batch, s->head, s->b.at + q, k, four);
            for (int64_t i = 0; i < 4; i++)
                if (k + i >= at && k + i < at + n)
                    s->keep[(k + i - at) * QUERIES + q] = four[i] * keep;
        }
}

static void multiply_by(float *to, const float *by, int64_t n)
{
    for (int64_t i = 0; i < n * QUERIES; i += ASP_VF)
        asp_vf_store(to + i, asp_vf_load(to + i) * asp_vf_load(by + i));
}

// ---- queries that see nothing ------------------------------------------------------------------

// Is a key at this place hidden from query q of the block by a large negative bias alone?
static bool is_flat(const scores *s, int64_t q, int64_t at)
{
    return s->a.bias && asp_attend_sees(&s->a, s->batch, s->b.at + q, at) &&
           asp_attend_bias(&s->a, s->batch, s->head, s->b.at + q, at) > -HUGE_VAL;
}

// As ref/sdpa.c has it: the probability of flat keys; negative or NaN: of all keys; 0: of none.
static double flat_weight(const scores *s, int64_t q)
{
    int64_t n = 0;
    for (int64_t at = 0; s->a.bias && at < s->a.n_keys; at++) n += is_flat(s, q, at);
    if (n > 0) return 1 / (double)n;
    if (s->a.empty == ASP_ATTEND_ZERO) return 0;
    return s->a.empty == ASP_ATTEND_NAN ? (double)NAN : -1 / (double)s->a.n_keys;
}

static float flat_probability(const scores *s, int64_t q, int64_t at, double weight)
{
    if (weight > 0) return is_flat(s, q, at) ? (float)weight : 0;
    return (float)-weight;
}
