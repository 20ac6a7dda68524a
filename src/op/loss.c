// Losses: always a sum of weighted losses over a sum of weights, so that they can be split.
// Neighbours: ir/op.def (rows), pass/loss.c (who splits them), kern/ref/nll.c, kern/nll_isa.c.
//
// Of a row with logits z (soft-capped: z = c tanh(x / c)), label y, class weights w (1 without) and
// smoothing e, as torch defines it:
//   loss = (1 - e) w[y] (lse - z[y]) + e / V sum over c of w[c] (lse - z[c])
// and the mean is the sum over rows not ignored, over the sum of their w[y].
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

#include <math.h>

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static asp_status want_labels(const asp_infer *in, uint32_t labels)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dtype(in, labels, ASP_I64));
    uint32_t rank = in->in[labels].rank;
    ASP_TRY(asp_want_rank(in, 0, rank + 1, rank + 1));
    for (int d = 0; d < (int)rank; d++) ASP_TRY(asp_want_same_dim(in, 0, d, labels, d));
    return ASP_OK;
}

static asp_status want_weights(const asp_infer *in, uint32_t i)
{
    ASP_TRY(asp_want_rank(in, i, 1, 1));
    ASP_TRY(asp_want_dtype(in, i, asp_sum_dtype(in->in[0].dtype)));
    return asp_want_same_dim(in, 0, -1, i, 0);
}

static asp_status want_reduction(const asp_infer *in, const char *reduction)
{
    if (is(reduction, "mean") || is(reduction, "sum") || is(reduction, "none")) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                          "reduction '%s' is not known; use mean, sum or none", reduction);
}

static asp_status want_forms(const asp_infer *in, double smoothing, double softcap)
{
    if (!(smoothing >= 0 && smoothing <= 1))
        return asp_infer_fail(in, ASP_ERR_INPUT, "smoothing = %g is not from 0 to 1", smoothing);
    if (!(softcap >= 0 && isfinite(softcap)))
        return asp_infer_fail(in, ASP_ERR_INPUT,
                              "softcap = %g is not a positive number, or 0 for none", softcap);
    return ASP_OK;
}

// One number for a sum or a mean, one a row for "none".
static asp_status loss_result(asp_infer *in, bool rows)
{
    asp_type t = rows ? in->in[1] : (asp_type){0};
    t.dtype = asp_sum_dtype(in->in[0].dtype);
    return asp_result(in, &t);
}

// ---- nll: what kernels do ----------------------------------------------------------------------

asp_status asp_nll_infer(asp_infer *in)
{
    const asp_nll_attr *a = in->attr;
    ASP_TRY(want_labels(in, 1));
    ASP_TRY(want_forms(in, a->smoothing, a->softcap));
    if (in->n_in == 3) ASP_TRY(want_weights(in, 2));
    ASP_TRY(loss_result(in, a->rows));
    return loss_result(in, true);
}

// The derivative of the log-sum-exp of ignored rows is 0 as well: no loss reads it.
void asp_nll_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_nll_attr a = *ASP_ATTR(b, n, nll);
    asp_type loss = *asp_val_type(b->g, asp_out(b, n, 0));
    asp_val in[6] = {asp_in(b, n, 0), asp_out(b, n, 1), asp_in(b, n, 1), cotangent[0]};
    uint32_t n_in = 4;
    if (!cotangent[0].i) in[3] = asp_build_constant(b, 0, &loss);
    if (cotangent[1].i) in[n_in++] = cotangent[1];
    a.weighted = asp_node_at(b->g, n)->n_in == 3;
    if (a.weighted) in[n_in++] = asp_in(b, n, 2);
    out_in[0] = asp_build(b, ASP_OP_nll_grad, &a, n_in, in);
}

void asp_nll_rule(asp_rule_builder *b)
{
    bool rows = ((const asp_nll_attr *)b->info->attr)->rows;
    asp_rule_text(b, rows ? "...C,...,C->...,..." : "...+C,...,C->,...");
}

asp_status asp_nll_grad_infer(asp_infer *in)
{
    const asp_nll_attr *a = in->attr;
    const uint32_t rank = in->in[2].rank, d_lse = 4, more = in->n_in - 4;
    ASP_TRY(want_labels(in, 2));
    ASP_TRY(asp_want_rank(in, 3, a->rows ? rank : 0, a->rows ? rank : 0));
    if (a->weighted ? more < 1 : more > 1)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "weighted and %u operands do not agree", in->n_in);
    if (a->weighted) ASP_TRY(want_weights(in, in->n_in - 1));
    if (more > a->weighted) ASP_TRY(asp_want_rank(in, d_lse, rank, rank));
    return asp_result_like(in, 0);
}

// ---- choosing by label -------------------------------------------------------------------------

asp_status asp_pick_infer(asp_infer *in)
{
    ASP_TRY(want_labels(in, 1));
    return loss_result(in, true);
}

void asp_pick_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_type *x = asp_val_type(b->g, asp_in(b, n, 0));
    asp_pick_attr a = {.ignore = ASP_ATTR(b, n, pick)->ignore, .width = x->dim[x->rank - 1]};
    out_in[0] = ASP_B2(b, pick_grad, &a, cotangent[0], asp_in(b, n, 1));
}

asp_status asp_pick_grad_infer(asp_infer *in)
{
    asp_type out = in->in[0];
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dtype(in, 1, ASP_I64));
    ASP_TRY(asp_want_rank(in, 1, out.rank, out.rank));
    ASP_TRY(asp_want_rank(in, 0, 0, ASP_MAX_RANK - 1));
    out.dim[out.rank++] = ((const asp_pick_attr *)in->attr)->width;
    return asp_result(in, &out);
}

asp_status asp_label_weights_infer(asp_infer *in)
{
    ASP_TRY(asp_want_dtype(in, 0, ASP_I64));
    ASP_TRY(asp_want_float(in, 1));
    ASP_TRY(asp_want_rank(in, 1, 1, 1));
    asp_type out = in->in[0];
    out.dtype = in->in[1].dtype;
    return asp_result(in, &out);
}

static asp_val sum_all(asp_builder *b, asp_val x)
{
    asp_sum_attr all = {0};
    if (b->status < 0) return x;
    for (; all.dims.n < asp_val_type(b->g, x)->rank; all.dims.n++)
        all.dims.at[all.dims.n] = all.dims.n;
    return all.dims.n ? ASP_B1(b, sum, &all, x) : x;
}

// What a mean is over: the number of labels that are not ignored, or the sum of their weights.
static asp_val sum_of_weights(asp_builder *b, int64_t ignore, asp_dtype dtype, asp_val labels,
                              asp_val weights)
{
    asp_labels_attr a = {.ignore = ignore};
    asp_cast_attr to = {.to = dtype};
    if (weights.i) return sum_all(b, ASP_B2(b, label_weights, &a, labels, weights));
    return ASP_B1(b, cast, &to, ASP_B1(b, count_valid, &a, labels));
}

// ---- cross_entropy -----------------------------------------------------------------------------

// Operand 2 or later of rank 1: class weights; of rank 0: the divisor.  0 = not there.
static uint32_t operand_of_rank(const asp_graph *g, const asp_node_info *info, uint32_t rank)
{
    for (uint32_t i = 2; i < info->n_in; i++)
        if (asp_val_type(g, info->in[i])->rank == rank) return i;
    return 0;
}

asp_status asp_cross_entropy_infer(asp_infer *in)
{
    const asp_loss_attr *a = in->attr;
    bool mean = is(a->reduction, "mean"), none = is(a->reduction, "none");
    ASP_TRY(want_labels(in, 1));
    ASP_TRY(want_reduction(in, a->reduction));
    ASP_TRY(want_forms(in, a->smoothing, a->softcap));
    for (uint32_t i = 2; i < in->n_in; i++) {
        bool divisor = in->in[i].rank == 0;
        if (divisor && i + 1 < in->n_in)
            return asp_infer_fail(in, ASP_ERR_SHAPE, "the divisor stands behind the class weights");
        if (divisor && !mean)
            return asp_infer_fail(in, ASP_ERR_INPUT, "a divisor is for reduction mean, not %s",
                                  a->reduction);
        if (!divisor) ASP_TRY(want_weights(in, i));
    }
    if (none && a->zloss != 0)
        return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                              "zloss with reduction none is not there; use mean or sum");
    return loss_result(in, none);
}

// The x and c of c tanh(x / c), written as products with c and 1 / c.
static bool is_scaled(const asp_graph *g, asp_val v, double *out_by)
{
    const asp_node_info *info = asp_val_node(g, v);
    if (info->op == ASP_OP_mul_scalar) *out_by = ((const asp_scalar_attr *)info->attr)->value;
    return info->op == ASP_OP_mul_scalar;
}

static double take_softcap(const asp_graph *g, asp_val *x)
{
    double outer, inner;
    if (!is_scaled(g, *x, &outer)) return 0;
    const asp_node_info *t = asp_val_node(g, asp_val_node(g, *x)->in[0]);
    if (t->op != ASP_OP_tanh || !is_scaled(g, t->in[0], &inner)) return 0;
    if (!(outer > 0 && fabs(outer * inner - 1) < 1e-12)) return 0;
    *x = asp_val_node(g, t->in[0])->in[0];
    return outer;
}

// coefficient times the sum of lse^2 over rows not ignored, over their number or the divisor.
static asp_val z_loss(asp_builder *b, const asp_loss_attr *a, asp_val lse, asp_val labels,
                      asp_val divisor)
{
    if (b->status < 0) return lse;
    asp_type number = {.dtype = ASP_I64};
    asp_cast_attr to = {.to = asp_val_type(b->g, lse)->dtype};
    asp_val ignored = asp_build_constant(b, (double)a->ignore, &number);
    asp_val valid = ASP_B1(b, cast, &to, ASP_B2(b, ne, NULL, labels, ignored));
    asp_val sum = sum_all(b, ASP_B2(b, mul, NULL, ASP_B2(b, mul, NULL, lse, lse), valid));
    if (is(a->reduction, "mean")) {
        if (!divisor.i) divisor = sum_of_weights(b, a->ignore, to.to, labels, (asp_val){0});
        sum = ASP_B2(b, div, NULL, sum, divisor);
    }
    return asp_build_scaled(b, sum, a->zloss);
}

// Logits that are soft-capped by ops of their own are read uncapped: one array of them less.
void asp_cross_entropy_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_loss_attr a = *ASP_ATTR(b, n, loss);
    const asp_node_info info = *asp_node_at(b->g, n);
    const uint32_t w = operand_of_rank(b->g, &info, 1), d = operand_of_rank(b->g, &info, 0);
    asp_nll_attr at = {.ignore = a.ignore,
                       .smoothing = a.smoothing,
                       .softcap = a.softcap,
                       .rows = is(a.reduction, "none")};
    asp_val in[] = {info.in[0], info.in[1], w ? info.in[w] : (asp_val){0}}, divisor = {0};
    asp_cast_attr to = {.to = asp_val_type(b->g, in[0])->dtype};
    if (at.softcap == 0) at.softcap = take_softcap(b->g, &in[0]);
    asp_val loss = asp_build(b, ASP_OP_nll, &at, w ? 3 : 2, in);
    asp_val lse = asp_build_result(b, loss, 1);
    if (d) divisor = ASP_B1(b, cast, &to, info.in[d]);
    out[0] = loss;
    if (is(a.reduction, "mean"))
        out[0] = ASP_B2(b, div, NULL, loss,
                        d ? divisor : sum_of_weights(b, a.ignore, to.to, in[1], in[2]));
    if (a.zloss != 0) out[0] = ASP_B2(b, add, NULL, out[0], z_loss(b, &a, lse, in[1], divisor));
}

// A sum adds up over ranks; a mean of means is not the mean, so its rows stay whole (pass/loss.c
// turns it into a sum and a count first).
void asp_cross_entropy_rule(asp_rule_builder *b)
{
    const asp_loss_attr *a = b->info->attr;
    const bool weights = operand_of_rank(b->g, b->info, 1) != 0;
    if (is(a->reduction, "none"))
        asp_rule_text(b, "...C,...,C->...");
    else
        asp_rule_text(b, weights ? "...+C,...,C,->" : "...+C,...,->");
    for (uint32_t d = 0; is(a->reduction, "mean") && d < asp_rule_type(b, 1)->rank; d++)
        b->rule->letter[b->rule->in[1][d].at[0]].kind = ASP_LETTER_WHOLE;
}

// ---- other losses ------------------------------------------------------------------------------

asp_status asp_nll_loss_infer(asp_infer *in)
{
    const asp_nll_loss_attr *a = in->attr;
    ASP_TRY(want_labels(in, 1));
    ASP_TRY(want_reduction(in, a->reduction));
    if (in->n_in == 3) ASP_TRY(want_weights(in, 2));
    return loss_result(in, is(a->reduction, "none"));
}

void asp_nll_loss_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_nll_loss_attr a = *ASP_ATTR(b, n, nll_loss);
    const asp_labels_attr labels = {.ignore = a.ignore};
    const asp_pick_attr pick = {.ignore = a.ignore};
    asp_val x = asp_in(b, n, 0), y = asp_in(b, n, 1), w = {0};
    if (asp_node_at(b->g, n)->n_in == 3) w = asp_in(b, n, 2);
    asp_dtype dtype = asp_val_type(b->g, x)->dtype;
    out[0] = ASP_B1(b, neg, NULL, ASP_B2(b, pick, &pick, x, y));
    if (w.i) out[0] = ASP_B2(b, mul, NULL, out[0], ASP_B2(b, label_weights, &labels, y, w));
    if (!is(a.reduction, "none")) out[0] = sum_all(b, out[0]);
    if (is(a.reduction, "mean"))
        out[0] = ASP_B2(b, div, NULL, out[0], sum_of_weights(b, a.ignore, dtype, y, w));
}

// Lowered before placement; rows stay whole where it is not.
void asp_nll_loss_rule(asp_rule_builder *b)
{
    bool none = is(((const asp_nll_loss_attr *)b->info->attr)->reduction, "none");
    asp_rule_text(b, none ? "...C,...,C->..." : "...+C,...,C->");
    for (uint32_t d = 0; !none && d < asp_rule_type(b, 1)->rank; d++)
        b->rule->letter[b->rule->in[1][d].at[0]].kind = ASP_LETTER_WHOLE;
}

asp_status asp_mse_loss_infer(asp_infer *in)
{
    const asp_reduction_attr *a = in->attr;
    asp_type out;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(want_reduction(in, a->reduction));
    ASP_TRY(asp_infer_broadcast(in, 0, 1, &out));
    return is(a->reduction, "none") ? asp_result(in, &out)
                                    : asp_result(in, &(asp_type){.dtype = out.dtype});
}

void asp_mse_loss_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_reduction_attr a = *ASP_ATTR(b, n, reduction);
    asp_val d = ASP_B2(b, sub, NULL, asp_in(b, n, 0), asp_in(b, n, 1));
    asp_ints all = {0};
    out[0] = ASP_B2(b, mul, NULL, d, d);
    if (is(a.reduction, "none") || b->status < 0) return;
    asp_type shape = *asp_val_type(b->g, d);
    for (; all.n < shape.rank; all.n++) all.at[all.n] = all.n;
    out[0] = sum_all(b, out[0]);
    if (is(a.reduction, "mean")) out[0] = asp_build_over_count(b, out[0], &shape, &all, 0);
}

void asp_mse_loss_rule(asp_rule_builder *b)
{
    const asp_reduction_attr *a = b->info->attr;
    bool none = is(a->reduction, "none"), mean = is(a->reduction, "mean");
    asp_rule_text(b, none ? "...,...->..." : "...+,...+->");
    for (uint32_t c = 0; mean && c < b->rule->n_letters; c++)
        b->rule->letter[c].kind = ASP_LETTER_WHOLE;
}
