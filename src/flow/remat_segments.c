// Cuts the forward of a joint program into segments at its narrow values, and tells segments of
// equal structure.
//
//   narrow    walking the forward, the one activation that a later forward op still reads; of the
//             narrow values between two heavy ops (products, attention) the first: the residual
//             stream, not the norm behind it
//   segment   what stands between two of them; positions and masks depend on no trained value and
//             belong to none
//   window    of a segment: the run of backward ops that reads it (the backward goes through the
//             segments from the last to the first)
//   type      equal ops, bytes, times and operands, forward and backward: solved once
//
// O(nodes + reads).  Neighbours: remat_int.h (contract), remat_options.c (what can be kept of a
// segment).  SPDX-License-Identifier: Apache-2.0
#include "flow/remat_int.h"

#define NONE ASP_REMAT_NONE

// Values that depend on a trained parameter; the others (positions, masks) belong to no block.
// A parameter's own views do not count: their storage is the parameter's.
bool *remat_find_activations(asp_arena *a, const remat_graph *g)
{
    const asp_remat_program *p = g->program;
    bool *active = ASP_NEW_ARRAY(a, bool, g->n), *trained = ASP_NEW_ARRAY(a, bool, g->n);
    for (uint32_t i = 0; i < g->n; i++) {
        const remat_node *n = &g->nodes[i];
        bool trains = false, acts = false;
        if (n->is_input) trained[i] = n->flags & ASP_REMAT_TRAINED;
        for (uint32_t r = 0; r < n->n_reads; r++) {
            trains |= trained[g->reads[n->first_read + r]];
            acts |= active[g->reads[n->first_read + r]];
        }
        if (n->is_input || n->backward) continue;
        bool of_input = n->value != NONE && p->values[n->value].root < p->n_inputs;
        active[i] = acts || (trains && !of_input);
        trained[i] = trains && of_input;
    }
    return active;
}

// ---- narrow values -------------------------------------------------------------------------

typedef struct walk {
    asp_arena *arena;
    const remat_graph *g;
    const bool *active;
    uint32_t *last;  // by node: the last forward node that reads its storage
    uint32_t *dying; // by node: head of the list of nodes that are read here for the last time
    uint32_t *next;  // in that list
    uint32_t *heavy; // by node: heavy ops up to and with it
    ASP_VEC(uint32_t) at, node; // narrow: position and what is alive there
} walk;

static uint32_t storage_node(const remat_graph *g, uint32_t i)
{
    const remat_node *n = &g->nodes[i];
    return n->tuple || n->value == NONE ? i : g->node_of_value[g->program->values[n->value].root];
}

static bool walks(const walk *w, uint32_t i)
{
    return w->g->nodes[i].forward && w->active[i] && !w->g->nodes[i].backward;
}

static void find_last_reads(walk *w)
{
    const remat_graph *g = w->g;
    for (uint32_t i = 0; i < g->n; i++) w->last[i] = w->dying[i] = NONE;
    for (uint32_t i = 0; i < g->n; i++) {
        const remat_node *n = &g->nodes[i];
        if (!n->forward) continue;
        for (uint32_t r = 0; r < n->n_reads; r++) {
            uint32_t from = g->reads[n->first_read + r];
            if (w->active[from]) w->last[storage_node(g, from)] = i;
        }
    }
    for (uint32_t i = 0; i < g->n; i++) {
        bool is_heavy =
            g->nodes[i].kind == ASP_REMAT_GEMM || g->nodes[i].kind == ASP_REMAT_ATTENTION;
        w->heavy[i] = (i ? w->heavy[i - 1] : 0) + (is_heavy && walks(w, i));
        if (w->last[i] == NONE) continue;
        w->next[i] = w->dying[w->last[i]];
        w->dying[w->last[i]] = i;
    }
}

static bool may_end_segment(const remat_graph *g, uint32_t node)
{
    const remat_node *n = &g->nodes[node];
    return n->value != NONE && !n->tuple && !n->is_input && !(n->flags & ASP_REMAT_MUST_RECOMPUTE);
}

// The number of those alive and the sum of their ids: where there is one, the sum is its id.
static void find_narrow(walk *w)
{
    const remat_graph *g = w->g;
    bool *alive = ASP_NEW_ARRAY(w->arena, bool, g->n);
    uint64_t sum = 0;
    uint32_t n_alive = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        if (walks(w, i)) {
            uint32_t s = storage_node(g, i);
            if (!alive[s] && w->last[s] != NONE && w->last[s] > i)
                alive[s] = true, sum += s, n_alive++;
        }
        for (uint32_t d = w->dying[i]; d != NONE; d = w->next[d])
            if (alive[d]) alive[d] = false, sum -= d, n_alive--;
        if (!walks(w, i) || n_alive != 1 || !may_end_segment(g, (uint32_t)sum)) continue;
        if (w->node.n && w->node.at[w->node.n - 1] == (uint32_t)sum) continue;
        ASP_PUSH(w->arena, &w->at, i);
        ASP_PUSH(w->arena, &w->node, (uint32_t)sum);
    }
}

// Keeps the first behind each heavy op, and none behind the last heavy op.
static void thin_narrow(walk *w)
{
    uint32_t kept = 0, all = w->g->n ? w->heavy[w->g->n - 1] : 0;
    for (uint32_t i = 0; i < w->at.n; i++) {
        uint32_t heavy = w->heavy[w->at.at[i]];
        if (heavy == all || (kept && w->heavy[w->at.at[kept - 1]] == heavy)) continue;
        w->at.at[kept] = w->at.at[i];
        w->node.at[kept++] = w->node.at[i];
    }
    w->at.n = w->node.n = kept;
}

// ---- segments ------------------------------------------------------------------------------

// Of what only the backward uses: the latest of its operands.
static uint32_t segment_of_operands(const remat_segments *s, const remat_graph *g,
                                    const remat_node *n)
{
    uint32_t latest = NONE;
    for (uint32_t r = 0; r < n->n_reads; r++) {
        const remat_node *from = &g->nodes[g->reads[n->first_read + r]];
        uint32_t at = from->op == NONE ? NONE : s->of_op[from->op];
        if (at != NONE && (latest == NONE || at > latest)) latest = at;
    }
    return latest;
}

// One value of a tuple belongs to the tuple's segment.
static void assign_forward(remat_segments *s, const walk *w)
{
    const remat_graph *g = w->g;
    uint32_t k = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const remat_node *n = &g->nodes[i];
        while (k < w->at.n && w->at.at[k] < i) k++;
        if (n->op == NONE || n->backward || !w->active[i]) continue;
        bool is_pick = n->kind == ASP_REMAT_PICK && n->n_reads;
        if (is_pick && g->nodes[g->reads[n->first_read]].op == n->op) continue;
        s->of_op[n->op] = n->forward && !is_pick ? k : segment_of_operands(s, g, n);
    }
}

static void assign_windows(remat_segments *s, const remat_graph *g)
{
    const asp_remat_program *p = g->program;
    uint32_t *after = ASP_NEW_ARRAY(s->arena, uint32_t, p->n_values), now = s->n - 1;
    for (uint32_t k = 0; k + 1 < s->n; k++) after[s->ends[k]] = k + 1;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const asp_remat_op *o = &p->ops[i];
        if (!o->backward) continue;
        uint32_t latest = NONE;
        for (uint32_t r = 0; r < o->n_reads; r++) {
            uint32_t v = p->reads[o->first_read + r], from = g->producer[v];
            if (from == NONE || p->ops[from].backward || s->of_op[from] == NONE) continue;
            uint32_t k = after[p->values[v].root] ? after[p->values[v].root] : s->of_op[from];
            if (latest == NONE || k > latest) latest = k;
        }
        if (latest != NONE && latest < now) now = latest;
        s->window[i] = now;
    }
}

static void fill_domains(remat_segments *s, const remat_graph *g)
{
    s->domain = ASP_NEW_ARRAY(s->arena, uint32_t *, s->n);
    s->n_domain = ASP_NEW_ARRAY(s->arena, uint32_t, s->n);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t k = 0; k < s->n; k++) {
            if (pass == 1) s->domain[k] = ASP_NEW_ARRAY(s->arena, uint32_t, s->n_domain[k]);
            s->n_domain[k] = 0;
        }
        for (uint32_t i = 0; i < g->n; i++) {
            const remat_node *n = &g->nodes[i];
            if (n->op == NONE || n->backward || s->of_op[n->op] == NONE) continue;
            uint32_t k = s->of_op[n->op], at = s->n_domain[k]++;
            if (pass == 1) s->domain[k][at] = i;
        }
    }
}

// ---- types ---------------------------------------------------------------------------------

typedef ASP_VEC(uint64_t) words;

enum { FROM_HERE, FROM_INPUT, FROM_NOWHERE, FROM_BEFORE };

// Where an operand comes from: a place in the segment, or the size of what comes from elsewhere.
static uint64_t operand(const remat_segments *s, const remat_graph *g, const uint32_t *place,
                        uint32_t k, uint32_t from)
{
    const remat_node *n = &g->nodes[from];
    if (n->op == NONE) return FROM_INPUT | (uint64_t)n->bytes << 2;
    if (n->backward || s->of_op[n->op] == NONE) return FROM_NOWHERE | (uint64_t)n->bytes << 2;
    if (s->of_op[n->op] != k) return FROM_BEFORE | (uint64_t)n->bytes << 2;
    return FROM_HERE | (uint64_t)place[from] << 2;
}

static void describe_node(words *out, const remat_segments *s, const remat_graph *g,
                          const uint32_t *place, uint32_t k, uint32_t i)
{
    const remat_node *n = &g->nodes[i];
    uint32_t readers = 0;
    asp_arena *a = s->arena;
    for (uint32_t u = 0; u < n->n_users; u++)
        readers += g->nodes[g->users[n->first_user + u]].backward;
    ASP_PUSH(a, out, (uint64_t)n->kind | (uint64_t)n->flags << 8 | (uint64_t)readers << 32);
    ASP_PUSH(a, out, (uint64_t)n->bytes);
    ASP_PUSH(a, out, (uint64_t)g->program->ops[n->op].time_ps);
    ASP_PUSH(a, out, (uint64_t)g->program->ops[n->op].scratch);
    ASP_PUSH(a, out, n->fusible | n->tuple << 1 | n->forward << 2 | (uint64_t)n->n_reads << 8);
    uint32_t storage = storage_node(g, i);
    if (storage != i) ASP_PUSH(a, out, operand(s, g, place, k, storage));
    for (uint32_t r = 0; r < n->n_reads; r++)
        ASP_PUSH(a, out, operand(s, g, place, k, g->reads[n->first_read + r]));
}

static void find_types(remat_segments *s, const remat_graph *g)
{
    const asp_remat_program *p = g->program;
    words *signature = ASP_NEW_ARRAY(s->arena, words, s->n);
    uint32_t *place = ASP_NEW_ARRAY(s->arena, uint32_t, g->n);
    asp_map types;
    bool added;
    asp_map_init(&types, s->arena);
    for (uint32_t k = 0; k < s->n; k++)
        for (uint32_t i = 0; i < s->n_domain[k]; i++) place[s->domain[k][i]] = i;
    for (uint32_t k = 0; k < s->n; k++)
        for (uint32_t i = 0; i < s->n_domain[k]; i++)
            describe_node(&signature[k], s, g, place, k, s->domain[k][i]);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const asp_remat_op *o = &p->ops[i];
        if (!o->backward) continue;
        words *w = &signature[s->window[i]];
        int64_t bytes = 0;
        for (uint32_t r = 0; r < o->n_results; r++) bytes += p->values[o->first_result + r].bytes;
        ASP_PUSH(s->arena, w, (uint64_t)o->kind | (uint64_t)o->n_reads << 8);
        ASP_PUSH(s->arena, w, (uint64_t)bytes);
        ASP_PUSH(s->arena, w, (uint64_t)o->scratch);
    }
    for (uint32_t k = 0; k < s->n; k++)
        s->type[k] =
            asp_map_add(&types, signature[k].at, signature[k].n * sizeof(uint64_t), &added);
}

remat_segments *remat_segments_find(asp_arena *a, const remat_graph *g)
{
    const asp_remat_program *p = g->program;
    walk w = {.arena = a, .g = g, .active = remat_find_activations(a, g)};
    w.last = ASP_NEW_ARRAY(a, uint32_t, g->n);
    w.dying = ASP_NEW_ARRAY(a, uint32_t, g->n);
    w.next = ASP_NEW_ARRAY(a, uint32_t, g->n);
    w.heavy = ASP_NEW_ARRAY(a, uint32_t, g->n);
    find_last_reads(&w);
    find_narrow(&w);
    thin_narrow(&w);
    remat_segments *s = ASP_NEW(a, remat_segments);
    s->arena = a;
    s->n = w.node.n + 1;
    s->ends = ASP_NEW_ARRAY(a, uint32_t, s->n);
    for (uint32_t k = 0; k + 1 < s->n; k++) s->ends[k] = g->nodes[w.node.at[k]].value;
    s->of_op = ASP_NEW_ARRAY(a, uint32_t, p->n_ops);
    s->window = ASP_NEW_ARRAY(a, uint32_t, p->n_ops);
    s->type = ASP_NEW_ARRAY(a, uint32_t, s->n);
    for (uint32_t i = 0; i < p->n_ops; i++) s->of_op[i] = s->window[i] = NONE;
    assign_forward(s, &w);
    assign_windows(s, g);
    fill_domains(s, g);
    find_types(s, g);
    return s;
}
