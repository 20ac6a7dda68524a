// pass/remat.c: which values of the forward the backward keeps, which it computes again.
//
//   %h : f32[S, 8] = silu %x @ "layers.0"          %h ...
//   ...                                     ->     ...
//   %seed : f32[] = constant                       %seed ...
//   %d : f32[S, 8] = mul %g, %h                    %h.2 : f32[S, 8] = silu %x @ "layers.0.again"
//                                                  %d : f32[S, 8] = mul %g, %h.2
//
// The choice is made on a plain description (remat_describe.c, flow/remat.h); here the nodes are
// brought into the order of the answer: the forward, then the backward with clones of what it
// repeats just before their first reader.  Under "none", without marks, the graph stays as grad
// made it.  O(nodes) beside the choice.
// Neighbours: grad.c (names the seed), remat_marks.c (the user's), fuse.c (next), run/compile.c
// (tries choices under a budget).
// SPDX-License-Identifier: Apache-2.0
#include "pass/remat.h"

typedef asp_remat_description describer;

// ---- the turn ----------------------------------------------------------------------------------

// The logits are the forward's last large value and the backward's first: a policy that lets them
// go saves nothing, since they are there at both ends and next to nothing is made between.  Keeps
// every repeated value of which that is true.

#define NEXT_TO_NOTHING 16 // of the value's bytes

typedef struct turn {
    const describer *x;
    const asp_remat_schedule *s;
    int64_t *made; // by step: bytes made before it
    uint32_t *run; // by step: where the run of repetitions begins that it ends or stands in
    uint32_t *last, *first; // by value: last step of the forward that has it, first reader behind
} turn;

static void find_turns(turn *t)
{
    const describer *x = t->x;
    for (uint32_t i = 0; i < t->s->n_steps; i++) {
        const asp_remat_step *step = &t->s->steps[i];
        const asp_remat_op *op = &x->ops.at[step->op];
        int64_t bytes = 0;
        bool forward = i < t->s->n_forward;
        for (uint32_t r = 0; r < op->n_results; r++) {
            if (op->kind != ASP_REMAT_VIEW) bytes += x->values.at[op->first_result + r].bytes;
            if (forward) t->last[op->first_result + r] = i;
        }
        for (uint32_t r = 0; r < op->n_reads; r++) {
            uint32_t v = x->reads.at[op->first_read + r];
            if (forward)
                t->last[v] = i;
            else if (!t->first[v])
                t->first[v] = i;
        }
        t->made[i + 1] = t->made[i] + bytes;
        t->run[i + 1] = step->repeated ? t->run[i] : i + 1;
    }
}

// Adds what is to be kept behind the values of the choice.
static void keep_at_turn(const describer *x, const asp_remat_schedule *s, asp_remat_choice *choice)
{
    asp_arena *a = x->arena;
    turn t = {.x = x, .s = s};
    t.made = ASP_NEW_ARRAY(a, int64_t, s->n_steps + 1);
    t.run = ASP_NEW_ARRAY(a, uint32_t, s->n_steps + 1);
    t.last = ASP_NEW_ARRAY(a, uint32_t, x->values.n);
    t.first = ASP_NEW_ARRAY(a, uint32_t, x->values.n);
    find_turns(&t);
    uint32_t *saved = ASP_NEW_ARRAY(a, uint32_t, x->values.n), n = choice->n_saved;
    memcpy(saved, choice->saved, n * sizeof *saved);
    for (uint32_t i = s->n_forward; i < s->n_steps; i++) {
        const asp_remat_op *op = &x->ops.at[s->steps[i].op];
        for (uint32_t v = op->first_result; v < op->first_result + op->n_results; v++) {
            if (!s->steps[i].repeated || op->kind == ASP_REMAT_VIEW || !t.first[v]) continue;
            if (x->values.at[v].flags & ASP_REMAT_MUST_RECOMPUTE) continue;
            uint32_t behind = t.last[v] + 1, run = t.run[t.first[v]];
            uint32_t until = run > behind ? run : behind;
            int64_t between = t.made[until] - t.made[behind];
            if (between <= x->values.at[v].bytes / NEXT_TO_NOTHING) saved[n++] = v;
        }
    }
    *choice = (asp_remat_choice){.saved = saved, .n_saved = n};
}

// ---- rebuilding --------------------------------------------------------------------------------

// What the backward reads for each value: itself where it is kept or made there, else its clone.
static void redirect(describer *x, asp_node n, const asp_val *again)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    for (uint32_t i = 0; i < info->n_in; i++)
        if (again[info->in[i].i].i) asp_graph_set_input(x->g, n, i, again[info->in[i].i]);
}

static void repeat_node(describer *x, asp_node n, uint32_t tile, asp_val *again)
{
    const asp_node_info info = *asp_node_at(x->g, n);
    asp_type types[ASP_MAX_OPERANDS];
    asp_val in[ASP_MAX_OPERANDS];
    for (uint32_t i = 0; i < info.n_out; i++)
        types[i] = *asp_val_type(x->g, (asp_val){info.first.i + i});
    for (uint32_t i = 0; i < info.n_in; i++)
        in[i] = again[info.in[i].i].i ? again[info.in[i].i] : info.in[i];
    const char *loc =
        asp_printf(x->arena, "%s%s", *info.loc ? info.loc : "program", ASP_AGAIN_SUFFIX);
    asp_node clone = asp_graph_insert(x->g, (asp_node){0}, info.op, info.attr, info.n_in, in,
                                      info.n_out, types, loc);
    asp_node_at(x->g, clone)->tile = tile;
    for (uint32_t i = 0; i < info.n_out; i++) {
        asp_val v = {info.first.i + i};
        again[v.i] = asp_node_result(x->g, clone, i);
        const char *name = asp_val_at(x->g, v)->name;
        if (name) asp_graph_name(x->g, again[v.i], name);
    }
}

// The nodes of each op: units[op] .. units[op + 1] in nodes, taken down before the list changes.
typedef struct units {
    asp_node *nodes;
    uint32_t *first, n_tiles; // tiles: the largest number of one
} units;

static units find_units(const describer *x)
{
    units u = {.nodes = ASP_NEW_ARRAY(x->arena, asp_node, x->g->n_nodes),
               .first = ASP_NEW_ARRAY(x->arena, uint32_t, x->ops.n + 1)};
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->ops.n; i++) {
        const asp_node end = asp_remat_behind(x->g, x->node_of[i]);
        u.first[i] = n;
        u.n_tiles = (uint32_t)asp_max(u.n_tiles, asp_node_at(x->g, x->node_of[i])->tile);
        for (asp_node m = x->node_of[i]; m.i != end.i; m = asp_node_at(x->g, m)->next)
            u.nodes[n++] = m;
    }
    u.first[x->ops.n] = n;
    return u;
}

static void repeat(describer *x, units *u, uint32_t op, const bool *kept, asp_val *again)
{
    const asp_remat_op *o = &x->ops.at[op];
    const uint32_t tile = asp_node_at(x->g, x->node_of[op])->tile ? ++u->n_tiles : 0;
    for (uint32_t i = u->first[op]; i < u->first[op + 1]; i++)
        repeat_node(x, u->nodes[i], tile, again);
    for (uint32_t r = o->first_result; r < o->first_result + o->n_results; r++)
        if (kept[r]) again[x->val_of[r].i] = (asp_val){0};
}

// Every node goes to the end of the list in the order of the schedule; what is left over before the
// first of them is not needed.
static uint32_t rebuild(describer *x, const asp_remat_schedule *s, const asp_remat_choice *choice)
{
    asp_arena *a = x->arena;
    asp_val *again = ASP_NEW_ARRAY(a, asp_val, x->g->vals.n);
    bool *placed = ASP_NEW_ARRAY(a, bool, x->ops.n), *kept = ASP_NEW_ARRAY(a, bool, x->values.n);
    units u = find_units(x);
    uint32_t repeated = 0;
    for (uint32_t i = 0; i < choice->n_saved; i++) kept[choice->saved[i]] = true;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const uint32_t op = s->steps[i].op;
        if (s->steps[i].repeated) {
            repeat(x, &u, op, kept, again);
            repeated++;
            continue;
        }
        placed[op] = true;
        for (uint32_t k = u.first[op]; k < u.first[op + 1]; k++) {
            if (i >= s->n_forward) redirect(x, u.nodes[k], again);
            asp_graph_move_before(x->g, u.nodes[k], (asp_node){0});
        }
    }
    for (uint32_t i = x->ops.n; i-- > 0;)
        for (uint32_t k = u.first[i + 1]; !placed[i] && k-- > u.first[i];)
            asp_graph_remove(x->g, u.nodes[k]);
    return repeated;
}

// ---- choosing ----------------------------------------------------------------------------------

static const struct {
    const char *name;
    asp_remat_policy policy;
    bool keeps_turn;
} policies[] = {{"none", ASP_REMAT_KEEP_ALL, false},
                {"default", ASP_REMAT_DEFAULT, false},
                {"sac", ASP_REMAT_SAC, true},
                {"layer", ASP_REMAT_LAYER, true}};

static asp_status choose_by_policy(const asp_pass *px, const describer *x, asp_remat_choice *choice)
{
    const char *ac = px->options->ac ? px->options->ac : "none";
    asp_remat_schedule s;
    size_t i = 0;
    while (i < ASP_COUNT_OF(policies) && strcmp(policies[i].name, ac) != 0) i++;
    if (i == ASP_COUNT_OF(policies))
        return asp_fail(px->cx, ASP_ERR_USAGE,
                        "--ac %s is not known; use none, default, sac, layer or budget", ac);
    ASP_TRY(asp_remat_choose(px->cx, x->arena, &x->program, policies[i].policy, choice));
    if (!policies[i].keeps_turn) return ASP_OK;
    ASP_TRY(asp_remat_emit(px->cx, x->arena, &x->program, choice->saved, choice->n_saved, &s));
    keep_at_turn(x, &s, choice);
    return ASP_OK;
}

static asp_status choose(const asp_pass *px, const describer *x, asp_remat_choice *out_choice)
{
    const asp_pass_options *o = px->options;
    if (!o->ac || strcmp(o->ac, "budget") != 0) return choose_by_policy(px, x, out_choice);
    asp_remat_candidate best;
    if (o->keep) {
        best = *o->keep;
    } else {
        if (o->budget <= 0)
            return asp_fail(px->cx, ASP_ERR_USAGE,
                            "--ac budget needs --memory BYTES: what it may take");
        ASP_TRY(
            asp_remat_budget(px->cx, x->arena, &x->program, ASP_REMAT_NATIVE, o->budget, &best));
    }
    *out_choice = (asp_remat_choice){.saved = best.saved, .n_saved = best.n_saved};
    return ASP_OK;
}

static bool is_marked(const asp_pass_options *o)
{
    return (o->recompute && *o->recompute) || (o->save && *o->save);
}

asp_status asp_pass_remat(asp_pass *px, asp_graph *g)
{
    describer x;
    asp_remat_choice choice;
    asp_remat_schedule schedule;
    const asp_pass_options *o = px->options;
    if ((!o->ac || strcmp(o->ac, "none") == 0) && !is_marked(o)) return ASP_OK;
    ASP_TRY(asp_remat_describe(px, px->scratch, g, &x));
    ASP_TRY(choose(px, &x, &choice));
    ASP_TRY(
        asp_remat_emit(px->cx, px->scratch, &x.program, choice.saved, choice.n_saved, &schedule));
    px->changes += rebuild(&x, &schedule, &choice);
    return ASP_OK;
}
