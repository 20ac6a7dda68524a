// Translations of ATen ops that are whole layers: products, norms, convolution, attention, dropout,
// losses.  Neighbours: aten.def (rows), aten_int.h (contract), op/linear.c, op/attention.c,
// op/loss.c (what they become). SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

#include <math.h>

#define B(c) (&(c)->m->b)
#define G(c) ((c)->m->g)

void aten_linear(aten_call *c)
{
    asp_val in[] = {c->arg[0].val, c->arg[1].val, c->arg[2].val};
    if (aten_ok(c))
        aten_give(c, asp_build(B(c), ASP_OP_linear, NULL, aten_given(c, 2) ? 3 : 2, in));
}

// addmm(bias, x, w) = bias + x w: a linear layer whose weight stands the other way.
void aten_addmm(aten_call *c)
{
    if (aten_f64(c, 3) != 1 || aten_f64(c, 4) != 1) aten_refuse(c, "beta or alpha other than 1");
    if (!aten_ok(c)) return;
    asp_val w = asp_build_permute(B(c), c->arg[2].val, 2, (const int64_t[]){1, 0});
    const asp_type *bias = aten_type_of(c, c->arg[0].val);
    if (bias->rank == 1)
        aten_give(c, ASP_B3(B(c), linear, NULL, c->arg[1].val, w, c->arg[0].val));
    else
        aten_give(c, ASP_B2(B(c), add, NULL, c->arg[0].val,
                            ASP_B2(B(c), linear, NULL, c->arg[1].val, w)));
}

void aten_product(aten_call *c)
{
    asp_val in[] = {c->arg[0].val, c->arg[1].val};
    if (aten_ok(c)) aten_give(c, asp_build(B(c), ASP_OP_matmul, NULL, 2, in));
}

void aten_einsum(aten_call *c)
{
    asp_einsum_attr a = {.equation = c->arg[0].text};
    asp_val in[ASP_MAX_OPERANDS] = {{0}};
    uint32_t n = c->arg[1].n;
    if (n < 1 || n > asp_ops[ASP_OP_einsum].max_in) aten_refuse(c, "%u operands", n);
    for (uint32_t i = 0; aten_ok(c) && i < n; i++) {
        if (c->arg[1].at[i].kind != ATEN_TENSOR) aten_refuse(c, "no tensor in the list");
        in[i] = aten_cast(c, c->arg[1].at[i].val, c->type[0].dtype);
    }
    if (aten_ok(c)) aten_give(c, asp_build(B(c), ASP_OP_einsum, &a, n, in));
}

// ---- norms -------------------------------------------------------------------------------------

void aten_layer_norm(aten_call *c)
{
    asp_layer_norm_attr a = {.dims = c->arg[1].n, .eps = aten_f64(c, 4)};
    asp_val in[] = {c->arg[0].val, c->arg[2].val, c->arg[3].val};
    uint32_t n = aten_given(c, 3) ? 3 : aten_given(c, 2) ? 2 : 1;
    if (n == 3 && !aten_given(c, 2)) aten_refuse(c, "a bias without a weight");
    if (aten_ok(c)) aten_give(c, asp_build(B(c), ASP_OP_layer_norm, &a, n, in));
}

void aten_rms_norm(aten_call *c)
{
    asp_norm_attr a = {.eps = aten_given(c, 3) ? aten_f64(c, 3) : 0};
    asp_val x = c->arg[0].val, w = c->arg[2].val;
    if (c->arg[1].n != 1) aten_refuse(c, "over %u dimensions; over the last one", c->arg[1].n);
    // The default is the spacing of floating-point numbers at 1, in the dtype that the file has.
    if (!aten_given(c, 3)) a.eps = c->m->dtype == ASP_F64 ? 0x1p-52 : 0x1p-23;
    if (!aten_ok(c)) return;
    if (!aten_given(c, 2)) {
        const asp_type *t = aten_type_of(c, x);
        asp_type width = {.dtype = t->dtype, .rank = 1, .dim = {t->dim[t->rank - 1]}};
        w = asp_build_constant(B(c), 1, &width);
    }
    aten_give(c, ASP_B2(B(c), rms_norm, &a, x, w));
}

void aten_group_norm(aten_call *c)
{
    asp_group_norm_attr a = {.groups = aten_int(c, 1), .eps = aten_f64(c, 4)};
    asp_val in[] = {c->arg[0].val, c->arg[2].val, c->arg[3].val};
    uint32_t n = aten_given(c, 3) ? 3 : aten_given(c, 2) ? 2 : 1;
    if (n == 3 && !aten_given(c, 2)) aten_refuse(c, "a bias without a weight");
    if (aten_ok(c)) aten_give(c, asp_build(B(c), ASP_OP_group_norm, &a, n, in));
}

// One number, or one for the only spatial dimension; `standard` where the list is left out.
static int64_t spatial(aten_call *c, uint32_t arg, int64_t standard)
{
    const aten_arg *a = &c->arg[arg];
    if (a->kind == ATEN_NONE || a->n == 0) return standard;
    if (a->n != 1) aten_refuse(c, "%u numbers for one spatial dimension", a->n);
    return (int64_t)a->at[0].num;
}

void aten_conv1d(aten_call *c)
{
    asp_conv_attr a = {.stride = spatial(c, 3, 1),
                       .left = spatial(c, 4, 0),
                       .right = spatial(c, 4, 0),
                       .dilation = spatial(c, 5, 1),
                       .groups = aten_int(c, 6)};
    asp_val in[] = {c->arg[0].val, c->arg[1].val, c->arg[2].val};
    const asp_type *x = aten_type_of(c, in[0]), *w = aten_type_of(c, in[1]);
    // A group a channel is written so, whatever a rank's number of channels.
    if (x->rank == 3 && w->rank == 3 && asp_size_equal(x->dim[1], w->dim[0]) &&
        asp_size_equal(x->dim[1], asp_size_num(G(c), a.groups)))
        a.groups = 0;
    if (aten_ok(c)) aten_give(c, asp_build(B(c), ASP_OP_conv1d, &a, aten_given(c, 2) ? 3 : 2, in));
}

// ---- attention and dropout ---------------------------------------------------------------------

// q, k, v with one leading dimension for batch and heads get one of each.
static asp_val four_dims(aten_call *c, asp_val x)
{
    asp_type t = *aten_type_of(c, x);
    if (t.rank != 3) return x;
    memmove(&t.dim[1], &t.dim[0], 3 * sizeof t.dim[0]);
    t.dim[0] = asp_size_num(G(c), 1);
    t.rank = 4;
    return aten_reshape(c, x, &t);
}

// The default scale: one over the root of the head's width.
static double default_scale(aten_call *c, asp_val q)
{
    const asp_type *t = aten_type_of(c, q);
    int64_t width = 1;
    if (t->rank == 0 || !asp_size_is_num(G(c), t->dim[t->rank - 1], &width))
        aten_refuse(c, "the width of a head is not a plain number");
    return 1 / sqrt((double)width);
}

// A mask of booleans (true: seen) or numbers (added to the scores); pass/masks.c finds the
// predicate behind it.
void aten_attention(aten_call *c)
{
    asp_val q = c->arg[0].val;
    double p = aten_f64(c, 4);
    asp_sdpa_attr a = *(const asp_sdpa_attr *)asp_ops[ASP_OP_sdpa].attr_default;
    a.scale = aten_given(c, 6) ? aten_f64(c, 6) : default_scale(c, q);
    a.causal = c->arg[5].flag;
    a.bias = aten_given(c, 3);
    a.dropout = p;
    if (p > 0) a.site = ++c->m->n_sites;
    if (a.causal && a.bias) aten_refuse(c, "is_causal and attn_mask at once");
    asp_val in[] = {four_dims(c, q), four_dims(c, c->arg[1].val), four_dims(c, c->arg[2].val),
                    c->arg[3].val};
    if (!aten_ok(c)) return;
    const asp_type *tq = aten_type_of(c, in[0]), *tk = aten_type_of(c, in[1]);
    if (!c->arg[7].flag && tq->rank == 4 && tk->rank == 4 &&
        !asp_size_equal(tq->dim[1], tk->dim[1]))
        aten_refuse(c, "q and k have different numbers of heads without enable_gqa");
    if (!aten_ok(c)) return;
    asp_val out = asp_build(B(c), ASP_OP_sdpa, &a, a.bias ? 4 : 3, in);
    aten_give(c, aten_reshape(c, out, &c->type[0]));
}

void aten_dropout(aten_call *c)
{
    double p = aten_f64(c, 1);
    asp_val x = c->arg[0].val;
    if (aten_ok(c) && p > 0 && c->arg[2].flag) {
        asp_dropout_attr a = {.p = p, .site = ++c->m->n_sites};
        x = ASP_B1(B(c), dropout, &a, x);
    }
    aten_give(c, x);
}

// Tokens sorted by expert, one product over runs of rows: the rows a rank would need are known only
// when the data is.
void aten_sorted_experts(aten_call *c)
{
    aten_refuse(c, "experts over tokens sorted by expert carry row numbers of the whole sequence; "
                   "load the model with experts_implementation=\"batched_mm\"");
}

void aten_uninitialised(aten_call *c)
{
    aten_refuse(c, "memory without values; write into zeros instead");
}

void aten_write_rows(aten_call *c)
{
    aten_refuse(c, "writes rows by their numbers; use scatter or index_add, or, for sorted "
                   "experts, experts_implementation=\"batched_mm\"");
}

// ---- losses ------------------------------------------------------------------------------------

static const char *reduction_of(aten_call *c, uint32_t arg)
{
    static const char *const reductions[] = {"none", "mean", "sum"};
    int64_t reduction = aten_int(c, arg);
    if (reduction >= 0 && reduction <= 2) return reductions[reduction];
    aten_refuse(c, "reduction %lld", (long long)reduction);
    return "mean";
}

void aten_mse_loss(aten_call *c)
{
    asp_reduction_attr a = {.reduction = reduction_of(c, 2)};
    if (aten_ok(c)) aten_give(c, ASP_B2(B(c), mse_loss, &a, c->arg[0].val, c->arg[1].val));
}

void aten_cross_entropy(aten_call *c)
{
    asp_loss_attr a = *(const asp_loss_attr *)asp_ops[ASP_OP_cross_entropy].attr_default;
    a.ignore = aten_int(c, 4);
    a.reduction = reduction_of(c, 3);
    a.smoothing = aten_f64(c, 5);
    asp_val in[] = {c->arg[0].val, c->arg[1].val, c->arg[2].val};
    if (aten_ok(c))
        aten_give(c, asp_build(B(c), ASP_OP_cross_entropy, &a, aten_given(c, 2) ? 3 : 2, in));
}

// What an edit list tells as one op: the product, its rows in one dimension, the loss.
void aten_head_loss(aten_call *c)
{
    asp_loss_attr a = *(const asp_loss_attr *)asp_ops[ASP_OP_cross_entropy].attr_default;
    const asp_val in[] = {c->arg[0].val, c->arg[1].val, c->arg[2].val}, labels = c->arg[3].val;
    a.ignore = aten_int(c, 4);
    a.reduction = reduction_of(c, 5);
    if (!aten_ok(c)) return;
    const asp_val logits = asp_build(B(c), ASP_OP_linear, NULL, aten_given(c, 2) ? 3 : 2, in);
    if (!aten_ok(c)) return;
    asp_type rows = *aten_type_of(c, labels);
    const asp_type *z = aten_type_of(c, logits);
    if (rows.rank + 1 > ASP_MAX_RANK || z->rank == 0) {
        aten_refuse(c, "%u dimensions of labels", rows.rank);
        return;
    }
    rows.dtype = z->dtype;
    rows.dim[rows.rank++] = z->dim[z->rank - 1];
    const asp_val x = aten_reshape(c, logits, &rows);
    if (aten_ok(c)) aten_give(c, ASP_B2(B(c), cross_entropy, &a, x, labels));
}
