// pass/remat.c: which values of the forward the backward keeps, which it computes again.
//
//   %h : f32[S, 8] = silu %x @ "layers.0"          %h ...
//   ...                                     ->     ...
//   %seed : f32[] = constant                       %seed ...
//   %d : f32[S, 8] = mul %g, %h                    %h.2 : f32[S, 8] = silu %x @ "layers.0.again"
//                                                  %d : f32[S, 8] = mul %g, %h.2
//
// The choice is made on a plain description (flow/remat.h); here the graph is described and its
// nodes are brought into the order of the answer: the forward, then the backward with clones of
// what it repeats just before their first reader.  Under "none" the graph stays as grad made it.
// O(nodes) beside the choice.  Neighbours: grad.c (names the seed), fuse.c (next).
// SPDX-License-Identifier: Apache-2.0
#include "flow/remat.h"
#include "pass/pass.h"

typedef struct describer {
    asp_pass *px;
    asp_graph *g;
    uint32_t *index_of; // by value of the graph: number in the description
    asp_val *val_of;    // by number
    asp_node *node_of;  // by op of the description
    bool *backward;     // by value of the graph
    ASP_VEC(asp_remat_value) values;
    ASP_VEC(asp_remat_op) ops;
    ASP_VEC(uint32_t) reads;
} describer;

// ---- describing --------------------------------------------------------------------------------

static asp_remat_class class_of(asp_op op)
{
    if (asp_op_has(op, ASP_ALIAS)) return ASP_REMAT_VIEW;
    switch (asp_ops[op].cost) {
    case ASP_COST_LINK: return ASP_REMAT_COLLECTIVE;
    case ASP_COST_GEMM: return ASP_REMAT_GEMM;
    case ASP_COST_SDPA:
    case ASP_COST_SDPA_GRAD: return ASP_REMAT_ATTENTION;
    case ASP_COST_FREE:
    case ASP_COST_STREAM: break;
    }
    static const asp_op reductions[] = {
        ASP_OP_sum,         ASP_OP_sum_groups,      ASP_OP_count_valid, ASP_OP_amax,
        ASP_OP_amin,        ASP_OP_max_dim,         ASP_OP_min_dim,     ASP_OP_argmax,
        ASP_OP_argmin,      ASP_OP_logsumexp,       ASP_OP_softmax,     ASP_OP_softmax_grad,
        ASP_OP_log_softmax, ASP_OP_log_softmax_grad};
    for (size_t i = 0; i < ASP_COUNT_OF(reductions); i++)
        if (reductions[i] == op) return ASP_REMAT_REDUCTION;
    if (op == ASP_OP_cat) return ASP_REMAT_CONCAT;
    // Gathers and scatters by ids, and the loss, read far more than they would save.
    static const asp_op others[] = {ASP_OP_embedding,
                                    ASP_OP_embedding_grad,
                                    ASP_OP_nll,
                                    ASP_OP_nll_grad,
                                    ASP_OP_pick,
                                    ASP_OP_pick_grad,
                                    ASP_OP_label_weights,
                                    ASP_OP_gather,
                                    ASP_OP_scatter,
                                    ASP_OP_scatter_add,
                                    ASP_OP_index_select,
                                    ASP_OP_index_add,
                                    ASP_OP_topk,
                                    ASP_OP_sort,
                                    ASP_OP_cumsum,
                                    ASP_OP_scan,
                                    ASP_OP_conv,
                                    ASP_OP_conv_input_grad,
                                    ASP_OP_conv_weight_grad};
    for (size_t i = 0; i < ASP_COUNT_OF(others); i++)
        if (op == others[i]) return ASP_REMAT_OTHER;
    return ASP_REMAT_POINTWISE;
}

static bool grows_with_sequence(const asp_graph *g, const asp_type *t)
{
    for (uint32_t d = 0; d < t->rank; d++)
        if (asp_size_mentions(g, t->dim[d], "S")) return true;
    return false;
}

static asp_status bytes_of(const describer *x, const asp_type *t, int64_t *out_bytes)
{
    int64_t bytes = asp_dtypes[t->dtype].bytes, size;
    for (uint32_t d = 0; d < t->rank; d++) {
        ASP_TRY(asp_size_eval(x->g, t->dim[d], &x->px->options->env, &size));
        if (asp_mul_overflows(bytes, size, &bytes))
            return asp_fail(x->px->cx, ASP_ERR_LIMIT, "%s is too large", asp_type_str(x->g, t));
    }
    *out_bytes = bytes;
    return ASP_OK;
}

static asp_status describe_value(describer *x, asp_val v, uint32_t flags)
{
    const asp_val_info *info = asp_val_at(x->g, v);
    asp_remat_value value = {.root = x->values.n, .flags = flags};
    const asp_node_info *n = asp_node_at(x->g, info->node);
    if (asp_op_has(n->op, ASP_ALIAS)) value.root = x->values.at[x->index_of[n->in[0].i]].root;
    if (grows_with_sequence(x->g, &info->type)) value.flags |= ASP_REMAT_SEQUENCE;
    ASP_TRY_NOTE(x->px->cx, bytes_of(x, &info->type, &value.bytes), "%s",
                 asp_node_str(x->g, info->node));
    x->index_of[v.i] = x->values.n;
    x->val_of[x->values.n] = v;
    ASP_PUSH(x->px->scratch, &x->values, value);
    return ASP_OK;
}

static bool is_input(asp_op op) { return op == ASP_OP_input || op == ASP_OP_param; }

static asp_status describe_op(describer *x, asp_node n, asp_val seed)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    asp_remat_op op = {.kind = class_of(info->op),
                       .backward = info->first.i == seed.i,
                       .block = (int32_t)asp_loc_block(info->loc),
                       .first_read = x->reads.n,
                       .n_reads = info->n_in,
                       .first_result = x->values.n,
                       .n_results = info->n_out};
    op.fusible = op.kind == ASP_REMAT_POINTWISE || op.kind == ASP_REMAT_VIEW ||
                 op.kind == ASP_REMAT_REDUCTION;
    for (uint32_t i = 0; i < info->n_in; i++) {
        op.backward |= x->backward[info->in[i].i];
        ASP_PUSH(x->px->scratch, &x->reads, x->index_of[info->in[i].i]);
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_val v = asp_node_result(x->g, n, i);
        x->backward[v.i] = op.backward;
        ASP_TRY(describe_value(x, v, 0));
    }
    x->node_of[x->ops.n] = n;
    ASP_PUSH(x->px->scratch, &x->ops, op);
    return ASP_OK;
}

// Outputs named like a parameter are what the backward returns.
static void describe_outputs(describer *x, const asp_map *params)
{
    for (uint32_t i = 0; i < x->g->outputs.n; i++) {
        const asp_output *o = &x->g->outputs.at[i];
        bool gradient = asp_map_find(params, o->name, strlen(o->name)) != UINT32_MAX;
        x->values.at[x->index_of[o->val.i]].flags |=
            gradient ? ASP_REMAT_BACKWARD_OUTPUT : ASP_REMAT_FORWARD_OUTPUT;
    }
}

// Parameters and inputs live for the whole step: keeping them costs nothing.
static asp_status describe(describer *x, asp_val seed, asp_remat_program *out_program)
{
    asp_arena *a = x->px->scratch;
    asp_map params;
    asp_map_init(&params, a);
    x->index_of = ASP_NEW_ARRAY(a, uint32_t, x->g->vals.n);
    x->val_of = ASP_NEW_ARRAY(a, asp_val, x->g->vals.n);
    x->node_of = ASP_NEW_ARRAY(a, asp_node, x->g->nodes.n);
    x->backward = ASP_NEW_ARRAY(a, bool, x->g->vals.n);
    ASP_FOR_NODES (x->g, n) {
        const asp_node_info *info = asp_node_at(x->g, n);
        if (!is_input(info->op)) continue;
        bool param = info->op == ASP_OP_param, added;
        ASP_TRY(describe_value(x, info->first, ASP_REMAT_STATIC | (param ? ASP_REMAT_TRAINED : 0)));
        if (!param) continue;
        const char *name = ((const asp_param_attr *)info->attr)->name;
        asp_map_add(&params, name, strlen(name), &added);
    }
    uint32_t n_inputs = x->values.n;
    ASP_FOR_NODES (x->g, n)
        if (!is_input(asp_node_at(x->g, n)->op)) ASP_TRY(describe_op(x, n, seed));
    describe_outputs(x, &params);
    *out_program = (asp_remat_program){.values = x->values.at,
                                       .n_values = x->values.n,
                                       .n_inputs = n_inputs,
                                       .ops = x->ops.at,
                                       .n_ops = x->ops.n,
                                       .reads = x->reads.at,
                                       .n_reads = x->reads.n};
    return ASP_OK;
}

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

// More values to keep, behind those of the choice; true where there are any.
static bool keep_at_turn(const describer *x, const asp_remat_schedule *s, asp_remat_choice *choice)
{
    asp_arena *a = x->px->scratch;
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
            uint32_t behind = t.last[v] + 1, run = t.run[t.first[v]];
            uint32_t until = run > behind ? run : behind;
            int64_t between = t.made[until] - t.made[behind];
            if (between <= x->values.at[v].bytes / NEXT_TO_NOTHING) saved[n++] = v;
        }
    }
    bool more = n > choice->n_saved;
    *choice = (asp_remat_choice){.saved = saved, .n_saved = n};
    return more;
}

// ---- rebuilding --------------------------------------------------------------------------------

// What the backward reads for each value: itself where it is kept or made there, else its clone.
static void redirect(describer *x, asp_node n, const asp_val *again)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    for (uint32_t i = 0; i < info->n_in; i++)
        if (again[info->in[i].i].i) asp_graph_set_input(x->g, n, i, again[info->in[i].i]);
}

static void repeat(describer *x, asp_node n, asp_val *again)
{
    const asp_node_info info = *asp_node_at(x->g, n);
    asp_type types[ASP_MAX_OPERANDS];
    asp_val in[ASP_MAX_OPERANDS];
    for (uint32_t i = 0; i < info.n_out; i++)
        types[i] = *asp_val_type(x->g, (asp_val){info.first.i + i});
    for (uint32_t i = 0; i < info.n_in; i++)
        in[i] = again[info.in[i].i].i ? again[info.in[i].i] : info.in[i];
    const char *loc =
        asp_printf(x->px->scratch, "%s%s", *info.loc ? info.loc : "program", ASP_AGAIN_SUFFIX);
    asp_node clone = asp_graph_insert(x->g, (asp_node){0}, info.op, info.attr, info.n_in, in,
                                      info.n_out, types, loc);
    for (uint32_t i = 0; i < info.n_out; i++) {
        asp_val v = {info.first.i + i};
        again[v.i] = asp_node_result(x->g, clone, i);
        const char *name = asp_val_at(x->g, v)->name;
        if (name) asp_graph_name(x->g, again[v.i], name);
    }
}

// Every node goes to the end of the list in the order of the schedule; what is left over before the
// first of them is not needed.
static void rebuild(describer *x, const asp_remat_schedule *s, const asp_remat_choice *choice)
{
    asp_arena *a = x->px->scratch;
    asp_val *again = ASP_NEW_ARRAY(a, asp_val, x->g->vals.n);
    bool *placed = ASP_NEW_ARRAY(a, bool, x->ops.n), *kept = ASP_NEW_ARRAY(a, bool, x->values.n);
    for (uint32_t i = 0; i < choice->n_saved; i++) kept[choice->saved[i]] = true;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        asp_node n = x->node_of[s->steps[i].op];
        if (s->steps[i].repeated) {
            const asp_remat_op *op = &x->ops.at[s->steps[i].op];
            repeat(x, n, again);
            for (uint32_t r = op->first_result; r < op->first_result + op->n_results; r++)
                if (kept[r]) again[x->val_of[r].i] = (asp_val){0};
            x->px->changes++;
            continue;
        }
        placed[s->steps[i].op] = true;
        if (i >= s->n_forward) redirect(x, n, again);
        asp_graph_move_before(x->g, n, (asp_node){0});
    }
    for (uint32_t i = x->ops.n; i-- > 0;)
        if (!placed[i]) asp_graph_remove(x->g, x->node_of[i]);
}

static bool policy_of(const char *ac, asp_remat_policy *out_policy)
{
    static const struct {
        const char *name;
        asp_remat_policy policy;
    } table[] = {{"sac", ASP_REMAT_SAC}, {"layer", ASP_REMAT_LAYER}};
    for (size_t i = 0; i < ASP_COUNT_OF(table); i++) {
        if (strcmp(table[i].name, ac) != 0) continue;
        *out_policy = table[i].policy;
        return true;
    }
    return false;
}

asp_status asp_pass_remat(asp_pass *px, asp_graph *g)
{
    describer x = {.px = px, .g = g};
    asp_remat_program program;
    asp_remat_policy policy;
    asp_remat_choice choice;
    asp_remat_schedule schedule;
    const char *ac = px->options->ac ? px->options->ac : "none";
    if (strcmp(ac, "none") == 0) return ASP_OK;
    if (!policy_of(ac, &policy))
        return asp_fail(px->cx, ASP_ERR_USAGE, "--ac %s is not known; use none, sac or layer", ac);
    asp_val seed = asp_graph_find(g, ASP_SEED_NAME);
    if (!seed.i)
        return asp_fail(px->cx, ASP_ERR_INPUT,
                        "graph %s has no backward part; run the pass `grad` before `remat`",
                        g->name);
    ASP_TRY(describe(&x, seed, &program));
    ASP_TRY(asp_remat_choose(px->cx, px->scratch, &program, policy, &choice));
    ASP_TRY(asp_remat_emit(px->cx, px->scratch, &program, choice.saved, choice.n_saved, &schedule));
    if (keep_at_turn(&x, &schedule, &choice))
        ASP_TRY(
            asp_remat_emit(px->cx, px->scratch, &program, choice.saved, choice.n_saved, &schedule));
    rebuild(&x, &schedule, &choice);
    return ASP_OK;
}
