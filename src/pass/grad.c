// pass/grad.c: append the derivative of the output "loss" with respect to every parameter.
//
//   %w : f32[4] = param                     %w : f32[4] = param
//   %l : f32[] = sum (mul %w, %w)     ->    ...  %seed = constant {value = 1/P}  ...
//   return "loss" = %l                      return "loss" = %l, "w" = %dw
//
// Reverse mode: nodes are visited backwards; each asks its op's _vjp for the cotangents of its
// operands, which are added up per value.  Only what lies between a parameter and the loss takes
// part.  On P ranks each rank's seed is 1/P: the backward of a collective is its transpose, and
// parameters' gradients are summed over ranks afterwards (reference: sequence parallelism as
// passes, section 4).  One output per parameter, named like it; a parameter the loss does not
// depend on gets zeros.  O(nodes). SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

typedef struct grad_state {
    asp_graph *g;
    asp_builder b;
    bool *needs;        // by value: depends on a parameter
    asp_val *cotangent; // by value of the forward graph
    uint32_t n_forward; // values below this belong to the forward
} grad_state;

static void mark_needs(grad_state *s)
{
    ASP_FOR_NODES (s->g, n) {
        const asp_node_info *info = asp_node_at(s->g, n);
        bool needs = info->op == ASP_OP_param;
        for (uint32_t i = 0; i < info->n_in; i++) needs |= s->needs[info->in[i].i];
        for (uint32_t i = 0; i < info->n_out; i++) {
            asp_val v = asp_node_result(s->g, n, i);
            s->needs[v.i] = needs && asp_dtypes[asp_val_type(s->g, v)->dtype].is_float;
        }
    }
}

static void accumulate(grad_state *s, asp_val v, asp_val d)
{
    asp_val *sum = &s->cotangent[v.i];
    *sum = sum->i ? ASP_B2(&s->b, add, NULL, *sum, d) : d;
}

// A derivative that is missing is not a derivative of 0.
static asp_status check_whole(const grad_state *s, asp_node n, const asp_val *in)
{
    const asp_node_info *info = asp_node_at(s->g, n);
    if (!s->cotangent[info->first.i].i) return ASP_OK; // of a lesser result, not all count
    for (uint32_t i = 0; i < info->n_in; i++)
        if (s->needs[info->in[i].i] && !in[i].i)
            return asp_fail(s->g->cx, ASP_ERR_UNSUPPORTED,
                            "%s has no derivative by its operand %u, which depends on a parameter; "
                            "keep that operand constant, or write the op in others that have one",
                            asp_node_str(s->g, n), i);
    return ASP_OK;
}

static asp_status step_back(grad_state *s, asp_node n)
{
    const asp_node_info info = *asp_node_at(s->g, n);
    bool reached = false, wanted = false;
    for (uint32_t i = 0; i < info.n_out; i++) reached |= s->cotangent[info.first.i + i].i != 0;
    for (uint32_t i = 0; i < info.n_in; i++) wanted |= s->needs[info.in[i].i];
    if (!reached || !wanted) return ASP_OK;
    asp_vjp_fn *vjp = asp_op_table[info.op].vjp;
    if (!vjp)
        return asp_fail(s->g->cx, ASP_ERR_UNSUPPORTED,
                        "%s has no derivative, and the loss depends on a parameter through it; "
                        "lower module ops first",
                        asp_node_str(s->g, n));
    asp_val in[ASP_MAX_OPERANDS] = {0};
    s->b.loc = info.loc;
    vjp(&s->b, n, &s->cotangent[info.first.i], in);
    ASP_TRY(s->b.status);
    ASP_TRY(check_whole(s, n, in));
    for (uint32_t i = 0; i < info.n_in; i++)
        if (in[i].i && s->needs[info.in[i].i]) accumulate(s, info.in[i], in[i]);
    return s->b.status;
}

static asp_status find_loss(asp_graph *g, asp_val *out_loss)
{
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        asp_val v = g->outputs.at[i].val;
        if (strcmp(g->outputs.at[i].name, "loss") != 0) continue;
        if (asp_val_type(g, v)->rank != 0)
            return asp_fail(g->cx, ASP_ERR_SHAPE, "the output \"loss\" is %s, not a single number",
                            asp_type_str(g, asp_val_type(g, v)));
        *out_loss = v;
        return ASP_OK;
    }
    return asp_fail(g->cx, ASP_ERR_INPUT,
                    "graph %s has no output named \"loss\": write return \"loss\" = %%value",
                    g->name);
}

static void add_outputs(grad_state *s, asp_node last)
{
    for (asp_node n = s->g->head;; n = asp_node_at(s->g, n)->next) {
        const asp_node_info info = *asp_node_at(s->g, n);
        if (info.op == ASP_OP_param) {
            const asp_param_attr *a = info.attr;
            asp_val d = s->cotangent[info.first.i];
            asp_type type = *asp_val_type(s->g, info.first);
            s->b.loc = info.loc;
            asp_graph_add_output(s->g, d.i ? d : asp_build_constant(&s->b, 0, &type), a->name);
        }
        if (n.i == last.i) return;
    }
}

asp_status asp_pass_grad(asp_pass *px, asp_graph *g)
{
    grad_state s = {.g = g, .b = {.g = g}, .n_forward = g->vals.n};
    asp_val loss;
    ASP_TRY(find_loss(g, &loss));
    s.needs = ASP_NEW_ARRAY(px->scratch, bool, g->vals.n);
    s.cotangent = ASP_NEW_ARRAY(px->scratch, asp_val, g->vals.n);
    mark_needs(&s);
    asp_node last = g->tail;
    asp_type scalar = *asp_val_type(g, loss);
    asp_val seed = asp_build_constant(&s.b, 1.0 / (double)g->ranks, &scalar);
    const asp_val namesake = asp_graph_find(g, ASP_SEED_NAME); // the program's own
    if (namesake.i) {
        asp_graph_move_name(g, namesake, seed);
        asp_graph_name(g, namesake, ASP_SEED_NAME);
    } else
        asp_graph_name(g, seed, ASP_SEED_NAME);
    s.cotangent[loss.i] = seed;
    for (asp_node n = last; n.i; n = asp_node_at(g, n)->prev) ASP_TRY(step_back(&s, n));
    add_outputs(&s, last);
    px->changes++;
    return s.b.status;
}
