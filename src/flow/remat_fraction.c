// PyTorch's memory budget: which of the bans of `default` fall when only a part of its bytes may be
// saved.  Written from its description, in its arithmetic (sizes in GB as doubles, the knapsack in
// floats over ten thousandths), so that it saves what PyTorch saves.
//
//   by default     enough by itself where it saves no more than the inputs are
//   easier         without the bans for shapes of graphs: taken where it fits
//   easiest        also without the list of cheap ops: taken where it fits
//   knapsack       else the easiest's banned values, largest first, fill the fraction so that most
//                  FLOPs are kept; the rest lose their ban and the cut is made a last time
//
// O(items x 10,000) beside the cuts.  Neighbours: remat_rules.c (bans), remat.c (the cut).
// SPDX-License-Identifier: Apache-2.0
#include "flow/remat_int.h"

#include <math.h>
#include <stdlib.h>

#define LEVELS 10000
#define GB 1e9

typedef struct item {
    uint32_t node;
    int64_t bytes;
    int64_t weight; // in levels
    float value;
} item;

typedef struct scale {
    double least, most; // GB
} scale;

static double gigabytes(const remat_graph *g, const asp_remat_choice *c)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < c->n_saved; i++) sum += g->nodes[g->node_of_value[c->saved[i]]].bytes;
    return (double)sum / GB;
}

static double part_of(const remat_graph *g, const scale *s, const asp_remat_choice *c)
{
    return (gigabytes(g, c) - s->least) / (s->most - s->least);
}

static asp_remat_choice all_inputs(asp_arena *a, const remat_graph *g)
{
    asp_remat_choice c = {0};
    uint32_t *list = ASP_NEW_ARRAY(a, uint32_t, g->n);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->nodes[i].is_input && !g->nodes[i].backward) list[c.n_saved++] = g->nodes[i].value;
    c.saved = list;
    return c;
}

// ---- items ---------------------------------------------------------------------------------

static int largest_first(const void *x, const void *y)
{
    const item *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->node < b->node ? -1 : a->node > b->node;
}

static bool is_item(const remat_graph *g, uint32_t i)
{
    const remat_node *n = &g->nodes[i];
    const asp_remat_program *p = g->program;
    if (n->is_input || n->distance >= REMAT_FAR || n->flags & ASP_REMAT_MUST_SAVE) return false;
    return n->value == ASP_REMAT_NONE || p->values[n->value].root >= p->n_inputs;
}

static item *find_items(asp_arena *a, const remat_graph *g, const bool *banned, const scale *s,
                        uint32_t *out_n)
{
    item *items = ASP_NEW_ARRAY(a, item, g->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        if (!banned[i] || !is_item(g, i)) continue;
        int64_t bytes = g->nodes[i].bytes, flops = g->program->ops[g->nodes[i].op].flops;
        double share = ((double)bytes / GB) / (s->most - s->least);
        items[n++] = (item){.node = i,
                            .bytes = bytes,
                            .weight = (int64_t)nearbyint(share * LEVELS), // half to even
                            .value = (float)asp_max(flops, 1)};
    }
    qsort(items, n, sizeof *items, largest_first);
    *out_n = n;
    return items;
}

// ---- the knapsack --------------------------------------------------------------------------

// Row i: the most value of the first i items within each level.
static void fill_row(float *row, const float *before, int64_t weight, float value, int64_t levels)
{
    for (int64_t j = 0; j <= levels; j++) {
        row[j] = before[j];
        if (weight > j) continue;
        float with = before[j - weight] + value;
        if (weight == 0 || with > row[j]) row[j] = with;
    }
}

void remat_knapsack(asp_arena *a, const int64_t *weights, const float *values, uint32_t n,
                    int64_t levels, bool *out_in)
{
    int64_t width = levels + 1, j = levels;
    float *table = ASP_NEW_ARRAY(a, float, (size_t)(n + 1) * (size_t)width);
    for (uint32_t i = 0; i < n; i++)
        fill_row(table + (i + 1) * width, table + i * width, weights[i], values[i], levels);
    for (uint32_t i = n; i > 0; i--) {
        out_in[i - 1] = table[i * width + j] != table[(i - 1) * width + j];
        if (out_in[i - 1]) j -= weights[i - 1];
    }
}

// Spares the items that stay outside.
static void fill(asp_arena *a, const item *items, uint32_t n, double fraction, bool *spared)
{
    int64_t *weights = ASP_NEW_ARRAY(a, int64_t, n);
    float *values = ASP_NEW_ARRAY(a, float, n);
    bool *in = ASP_NEW_ARRAY(a, bool, n);
    for (uint32_t i = 0; i < n; i++) {
        weights[i] = items[i].weight;
        values[i] = items[i].value;
    }
    remat_knapsack(a, weights, values, n, (int64_t)nearbyint(fraction * LEVELS), in);
    for (uint32_t i = 0; i < n; i++) spared[items[i].node] = !in[i];
}

// ---- the whole -----------------------------------------------------------------------------

static asp_status choose_between(asp_ctx *cx, asp_arena *a, const remat_graph *g, double fraction,
                                 asp_remat_choice *out)
{
    const remat_bans_of easier = {.no_shape = true}, easiest = {.no_shape = true, .any_op = true};
    asp_remat_choice inputs = all_inputs(a, g), c;
    ASP_TRY(remat_choose_by_rules(cx, a, g, &(remat_bans_of){0}, out));
    const scale s = {gigabytes(g, &inputs), gigabytes(g, out)};
    if (s.most <= s.least) return ASP_OK;
    ASP_TRY(remat_choose_by_rules(cx, a, g, &easier, &c));
    if (part_of(g, &s, &c) >= fraction) ASP_TRY(remat_choose_by_rules(cx, a, g, &easiest, &c));
    if (part_of(g, &s, &c) < fraction) {
        *out = c;
        return ASP_OK;
    }
    uint32_t n;
    const item *items = find_items(a, g, remat_bans(a, g, &easiest), &s, &n);
    bool *spared = ASP_NEW_ARRAY(a, bool, g->n);
    fill(a, items, n, fraction, spared);
    remat_bans_of last = easiest;
    last.spared = spared;
    return remat_choose_by_rules(cx, a, g, &last, out);
}

asp_status asp_remat_fraction(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                              double fraction, asp_remat_choice *out_choice)
{
    remat_graph g;
    if (!(fraction >= 0 && fraction <= 1))
        return asp_fail(cx, ASP_ERR_USAGE, "recompute: a memory budget of %g: 0 to 1 are possible",
                        fraction);
    ASP_TRY(remat_graph_build(cx, a, p, &g));
    if (fraction == 0) {
        *out_choice = all_inputs(a, &g);
        return ASP_OK;
    }
    if (fraction == 1) return remat_choose_by_rules(cx, a, &g, &(remat_bans_of){0}, out_choice);
    return choose_between(cx, a, &g, fraction, out_choice);
}
