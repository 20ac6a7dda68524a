// The loss: always a sum of weighted losses over a sum of weights, so that it can be split.
// Neighbours: ir/op.def (rows), pass/loss.c (who splits it), kern/ref/nll.c.
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

static asp_status want_logits_labels(const asp_infer *in, uint32_t labels)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dtype(in, labels, ASP_I64));
    uint32_t rank = in->in[labels].rank;
    ASP_TRY(asp_want_rank(in, 0, rank + 1, rank + 1));
    for (int d = 0; d < (int)rank; d++) ASP_TRY(asp_want_same_dim(in, 0, d, labels, d));
    return ASP_OK;
}

// Sum over rows whose label is not ignore of (logsumexp(x) - x[label]), over their number for
// "mean".
asp_status asp_cross_entropy_infer(asp_infer *in)
{
    const asp_loss_attr *a = in->attr;
    ASP_TRY(want_logits_labels(in, 1));
    if (strcmp(a->reduction, "mean") != 0 && strcmp(a->reduction, "sum") != 0)
        return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                              "reduction '%s' is not known; use mean or sum", a->reduction);
    return asp_result(in, &(asp_type){.dtype = in->in[0].dtype});
}

void asp_cross_entropy_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_loss_attr *a = ASP_ATTR(b, n, loss);
    asp_labels_attr labels = {.ignore = a->ignore};
    out[0] = ASP_B2(b, nll, &labels, asp_in(b, n, 0), asp_in(b, n, 1));
    if (strcmp(a->reduction, "sum") == 0 || b->status < 0) return;
    asp_cast_attr to = {.to = asp_val_type(b->g, out[0])->dtype};
    asp_val count = ASP_B1(b, cast, &to, ASP_B1(b, count_valid, &labels, asp_in(b, n, 1)));
    out[0] = ASP_B2(b, div, NULL, out[0], count);
}

// A sum adds up over ranks; a mean of means is not the mean, so its rows stay whole (pass/loss.c
// turns it into a sum and a count first).
void asp_cross_entropy_rule(asp_rule_builder *b)
{
    const asp_loss_attr *a = b->info->attr;
    bool sum = strcmp(a->reduction, "sum") == 0;
    asp_rule_text(b, "...+C,...->");
    for (uint32_t d = 0; !sum && d < asp_rule_type(b, 1)->rank; d++)
        b->rule->letter[b->rule->in[1][d].at[0]].kind = ASP_LETTER_WHOLE;
}

asp_status asp_nll_infer(asp_infer *in)
{
    ASP_TRY(want_logits_labels(in, 1));
    asp_type lse = in->in[1];
    lse.dtype = in->in[0].dtype;
    ASP_TRY(asp_result(in, &(asp_type){.dtype = in->in[0].dtype}));
    return asp_result(in, &lse);
}

void asp_nll_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    ASP_CHECK(cotangent[1].i == 0);
    if (!cotangent[0].i) return;
    asp_val in[] = {asp_in(b, n, 0), asp_out(b, n, 1), asp_in(b, n, 1), cotangent[0]};
    out_in[0] = asp_build(b, ASP_OP_nll_grad, ASP_ATTR(b, n, labels), 4, in);
}

void asp_nll_rule(asp_rule_builder *b) { asp_rule_text(b, "...+C,...->,..."); }

asp_status asp_nll_grad_infer(asp_infer *in)
{
    ASP_TRY(want_logits_labels(in, 2));
    ASP_TRY(asp_want_rank(in, 3, 0, 0));
    return asp_result_like(in, 0);
}
