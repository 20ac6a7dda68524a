// Translations of ATen ops that compute: arithmetic, comparisons, reductions, products, norms.
// Neighbours: aten.def (rows), aten_int.h (contract), aten_shape.c and aten_model.c (the others).
//
// ATen promotes dtypes; the graph language does not: operands are cast to what the file declares
// for the result, or, where two are compared, to the wider of both.
// SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

#include <math.h>

#define B(c) (&(c)->m->b)
#define G(c) ((c)->m->g)

static bool is_float(aten_call *c, asp_val v)
{
    return asp_dtypes[aten_type_of(c, v)->dtype].is_float;
}

// An operand that may be a number, as a tensor of dtype.
static asp_val operand(aten_call *c, uint32_t arg, asp_dtype dtype)
{
    const aten_arg *a = &c->arg[arg];
    return a->kind == ATEN_TENSOR ? aten_cast(c, a->val, dtype) : aten_scalar(c, a, dtype);
}

void aten_unary(aten_call *c)
{
    asp_val x = aten_cast(c, c->arg[0].val, c->type[0].dtype);
    if (aten_ok(c)) aten_give(c, asp_build(B(c), c->row->op, NULL, 1, &x));
}

// ---- arithmetic --------------------------------------------------------------------------------

// x op number for floating-point x, without a tensor for the number where that is exact.
static bool with_number(aten_call *c, asp_val x, double y, asp_val *out)
{
    int exponent;
    switch ((int)c->row->op) {
    case ASP_OP_add:
    case ASP_OP_sub: {
        asp_scalar_attr a = {.value = c->row->op == ASP_OP_add ? y : -y};
        *out = ASP_B1(B(c), add_scalar, &a, x);
        return true;
    }
    case ASP_OP_mul: *out = asp_build_scaled(B(c), x, y); return true;
    case ASP_OP_div:
        if (fabs(frexp(y, &exponent)) != 0.5 || !isnormal(1 / y)) return false;
        *out = asp_build_scaled(B(c), x, 1 / y);
        return true;
    default: return false;
    }
}

// add and sub scale their second operand by alpha.
static asp_val scaled_by_alpha(aten_call *c, asp_val y)
{
    bool alpha = c->row->op == ASP_OP_add || c->row->op == ASP_OP_sub;
    if (!alpha || !aten_given(c, 2)) return y;
    if (c->arg[2].is_const && c->arg[2].num == 1) return y;
    return ASP_B2(B(c), mul, NULL, y, aten_scalar(c, &c->arg[2], c->type[0].dtype));
}

// add, sub, mul, div, ... (x, y[, alpha]) and their in-place forms
void aten_arith(aten_call *c)
{
    asp_dtype dtype = c->type[0].dtype;
    asp_val x = operand(c, 0, dtype), out;
    const aten_arg *y = &c->arg[1];
    bool alpha = aten_given(c, 2) && !(c->arg[2].is_const && c->arg[2].num == 1);
    bool sum = c->row->op == ASP_OP_add || c->row->op == ASP_OP_sub;
    if (!aten_ok(c)) return;
    if (y->kind == ATEN_NUMBER && y->is_const && !asp_dtypes[dtype].is_float &&
        y->num == (sum ? 0 : 1) && (sum || c->row->op == ASP_OP_mul)) {
        aten_give(c, x); // positions + 0: the length of a cache that is empty
        return;
    }
    if (y->kind == ATEN_NUMBER && y->is_const && asp_dtypes[dtype].is_float && !alpha &&
        with_number(c, x, y->num, &out)) {
        aten_give(c, out);
        return;
    }
    asp_val in[] = {x, scaled_by_alpha(c, operand(c, 1, dtype))};
    if (aten_ok(c)) aten_give(c, asp_build(B(c), c->row->op, NULL, 2, in));
}

// y - x, for rsub(x, y)
void aten_rsub(aten_call *c)
{
    asp_dtype dtype = c->type[0].dtype;
    asp_val x = operand(c, 0, dtype), y = operand(c, 1, dtype);
    aten_give(c, ASP_B2(B(c), sub, NULL, y, scaled_by_alpha(c, x)));
}

void aten_pow(aten_call *c)
{
    asp_val x = aten_cast(c, c->arg[0].val, c->type[0].dtype), y = x;
    double n = aten_f64(c, 1);
    if (!aten_ok(c)) return;
    if (n == 0.5)
        y = ASP_B1(B(c), sqrt, NULL, x);
    else if (n == -0.5)
        y = ASP_B1(B(c), rsqrt, NULL, x);
    else if (n >= 1 && n <= 8 && n == floor(n))
        for (int i = 1; i < (int)n; i++) y = ASP_B2(B(c), mul, NULL, y, x);
    else
        y = ASP_B1(B(c), pow, (&(asp_scalar_attr){.value = n}), x);
    aten_give(c, y);
}

void aten_square(aten_call *c)
{
    asp_val x = c->arg[0].val;
    aten_give(c, ASP_B2(B(c), mul, NULL, x, x));
}

void aten_compare(aten_call *c)
{
    bool floating = is_float(c, c->arg[0].val);
    const aten_arg *y = &c->arg[1];
    if (y->kind == ATEN_TENSOR) floating |= is_float(c, y->val);
    if (y->kind == ATEN_NUMBER) floating |= y->is_float && y->num != floor(y->num);
    asp_dtype dtype = floating ? c->m->dtype : ASP_I64;
    asp_val in[] = {operand(c, 0, dtype), operand(c, 1, dtype)};
    if (aten_ok(c)) aten_give(c, asp_build(B(c), c->row->op, NULL, 2, in));
}

// and, or, xor, not of booleans; bitwise ops of whole numbers are refused.
void aten_logical(aten_call *c)
{
    bool bitwise = strncmp(c->row->overload, "aten.logical_", 13) != 0;
    uint32_t n = aten_given(c, 1) ? 2 : 1;
    asp_val in[2] = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        if (bitwise && aten_type_of(c, c->arg[i].val)->dtype != ASP_BOOL)
            aten_refuse(c, "of whole numbers; of booleans it is supported");
        in[i] = aten_cast(c, c->arg[i].val, ASP_BOOL);
    }
    if (aten_ok(c)) aten_give(c, asp_build(B(c), c->row->op, NULL, n, in));
}

// where(condition, x, y); masked_fill(y, condition, x)
static void choose(aten_call *c, uint32_t condition, uint32_t x, uint32_t y)
{
    asp_dtype dtype = c->type[0].dtype;
    asp_val in[] = {aten_cast(c, c->arg[condition].val, ASP_BOOL), operand(c, x, dtype),
                    operand(c, y, dtype)};
    if (aten_ok(c)) aten_give(c, asp_build(B(c), ASP_OP_where, NULL, 3, in));
}

void aten_where(aten_call *c) { choose(c, 0, 1, 2); }
void aten_masked_fill(aten_call *c) { choose(c, 1, 2, 0); }

// clamp(x, min, max), numbers or tensors, either may be missing
void aten_clamp(aten_call *c)
{
    asp_dtype dtype = c->type[0].dtype;
    asp_val x = aten_cast(c, c->arg[0].val, dtype);
    if (aten_given(c, 1)) x = ASP_B2(B(c), maximum, NULL, x, operand(c, 1, dtype));
    if (aten_given(c, 2)) x = ASP_B2(B(c), minimum, NULL, x, operand(c, 2, dtype));
    aten_give(c, x);
}

void aten_gelu(aten_call *c)
{
    bool tanh_form = strcmp(c->arg[1].text, "tanh") == 0;
    if (!tanh_form && strcmp(c->arg[1].text, "none") != 0)
        aten_refuse(c, "approximate=\"%.40s\"", c->arg[1].text);
    asp_val x = c->arg[0].val;
    if (aten_ok(c))
        aten_give(c, asp_build(B(c), tanh_form ? ASP_OP_gelu_tanh : ASP_OP_gelu, NULL, 1, &x));
}

void aten_elu(aten_call *c)
{
    asp_elu_attr a = {.alpha = aten_f64(c, 1)};
    if (aten_f64(c, 2) != 1 || aten_f64(c, 3) != 1) aten_refuse(c, "a scale other than 1");
    if (aten_ok(c)) aten_give(c, ASP_B1(B(c), elu, &a, c->arg[0].val));
}

void aten_softplus(aten_call *c)
{
    asp_softplus_attr a = {.beta = aten_f64(c, 1), .threshold = aten_f64(c, 2)};
    if (aten_ok(c)) aten_give(c, ASP_B1(B(c), softplus, &a, c->arg[0].val));
}

// ---- dtypes ------------------------------------------------------------------------------------

// to.* and _to_copy: the declared dtype; where the tensor lies is no matter.
void aten_to(aten_call *c) { aten_give(c, aten_cast(c, c->arg[0].val, c->type[0].dtype)); }

// ---- reductions --------------------------------------------------------------------------------

// The dimensions named by argument arg (all of them when it is left out or empty).
static asp_ints reduced(aten_call *c, uint32_t arg, uint32_t rank)
{
    const aten_arg *a = &c->arg[arg];
    asp_ints dims = {0};
    bool gone[ASP_MAX_RANK] = {false};
    bool all = a->kind == ATEN_NONE || (a->kind == ATEN_LIST && a->n == 0);
    const aten_arg *item = a->kind == ATEN_LIST ? a->at : a;
    for (uint32_t i = 0; !all && i < (a->kind == ATEN_LIST ? a->n : 1); i++) {
        uint32_t d = aten_dim(c, (int64_t)item[i].num, rank);
        if (aten_ok(c) && gone[d]) aten_refuse(c, "dim names a dimension twice");
        gone[d] = true;
    }
    for (uint32_t d = 0; d < rank; d++)
        if (all || gone[d]) dims.at[dims.n++] = d;
    return dims;
}

// sum, mean, amax, amin, any, ...: (x[, dim[, keepdim]])
void aten_reduce(aten_call *c)
{
    asp_val x = aten_cast(c, c->arg[0].val, c->type[0].dtype);
    bool has_dim = strncmp(c->row->params, "x:t dim", 7) == 0;
    asp_sum_attr a = {.dims = reduced(c, has_dim ? 1 : ATEN_MAX_ARGS - 1, aten_type_of(c, x)->rank),
                      .keep = has_dim && c->arg[2].flag};
    if (aten_ok(c)) aten_give(c, asp_build(B(c), c->row->op, &a, 1, &x));
}

void aten_cumsum(aten_call *c)
{
    asp_val x = aten_cast(c, c->arg[0].val, c->type[0].dtype);
    asp_scan_attr a = {.dim = aten_dim_arg(c, 1, aten_type_of(c, x)->rank)};
    if (aten_ok(c)) aten_give(c, ASP_B1(B(c), cumsum, &a, x));
}

// softmax, log_softmax: (x, dim, dtype)
void aten_along(aten_call *c)
{
    asp_val x = aten_cast(c, c->arg[0].val, c->type[0].dtype);
    asp_dim_attr a = {.dim = aten_dim_arg(c, 1, aten_type_of(c, x)->rank)};
    if (aten_ok(c)) aten_give(c, asp_build(B(c), c->row->op, &a, 1, &x));
}

// var, std: (x, dim, unbiased or correction, keepdim)
void aten_spread(aten_call *c)
{
    asp_val x = c->arg[0].val;
    const aten_arg *k = &c->arg[2];
    asp_var_attr a = {.dims = reduced(c, 1, aten_type_of(c, x)->rank),
                      .keep = c->arg[3].flag,
                      .correction = k->kind == ATEN_BOOL ? k->flag : 1};
    if (k->kind == ATEN_NUMBER) a.correction = (int64_t)aten_f64(c, 2);
    if (k->kind == ATEN_NUMBER && (double)a.correction != k->num) aten_refuse(c, "correction");
    if (!aten_ok(c)) return;
    asp_val v = ASP_B1(B(c), var, &a, x);
    aten_give(c, c->row->op == ASP_OP_sqrt ? ASP_B1(B(c), sqrt, NULL, v) : v);
}

// max, min, argmax, argmin: (x, dim, keepdim)
void aten_extreme(aten_call *c)
{
    asp_val x = c->arg[0].val;
    asp_arg_attr a = {.dim = aten_dim_arg(c, 1, aten_type_of(c, x)->rank), .keep = c->arg[2].flag};
    if (!aten_ok(c)) return;
    asp_val first = asp_build(B(c), c->row->op, &a, 1, &x);
    for (uint32_t i = 0; i < c->n_types; i++) aten_give(c, asp_build_result(B(c), first, i));
}

void aten_diff(aten_call *c)
{
    asp_val in[] = {aten_cast(c, c->arg[0].val, c->type[0].dtype), c->arg[3].val};
    asp_dim_attr a = {.dim = aten_dim_arg(c, 2, aten_type_of(c, in[0])->rank)};
    bool prepend = aten_given(c, 3);
    if (aten_int(c, 1) != 1 || aten_given(c, 4)) aten_refuse(c, "n other than 1, or append");
    if (prepend) in[1] = aten_cast(c, in[1], c->type[0].dtype);
    if (aten_ok(c)) aten_give(c, asp_build(B(c), ASP_OP_diff, &a, prepend ? 2 : 1, in));
}

void aten_topk(aten_call *c)
{
    asp_val x = c->arg[0].val;
    asp_topk_attr a = {.dim = aten_dim_arg(c, 2, aten_type_of(c, x)->rank),
                       .k = aten_int(c, 1),
                       .largest = c->arg[3].flag};
    if (!aten_ok(c)) return;
    asp_val values = ASP_B1(B(c), topk, &a, x);
    aten_give(c, values);
    aten_give(c, asp_build_result(B(c), values, 1));
}

void aten_sort(aten_call *c)
{
    asp_val x = c->arg[0].val;
    asp_sort_attr a = {.dim = aten_dim_arg(c, 1, aten_type_of(c, x)->rank),
                       .descending = c->arg[2].flag};
    if (!aten_ok(c)) return;
    asp_val values = ASP_B1(B(c), sort, &a, x);
    aten_give(c, values);
    aten_give(c, asp_build_result(B(c), values, 1));
}

// histc(x, bins, min, max): how many elements lie in each of equal parts of [min, max]; a part has
// its lower end, the last one both.
void aten_histc(aten_call *c)
{
    int64_t bins = aten_int(c, 1);
    double low = aten_f64(c, 2), high = aten_f64(c, 3);
    asp_val x = c->arg[0].val;
    if (bins < 1 || !(low < high)) aten_refuse(c, "bins and an interval must be given");
    if (!aten_ok(c)) return;
    asp_size count = asp_type_count(G(c), aten_type_of(c, x));
    asp_type column = {.dtype = c->m->dtype, .rank = 2, .dim = {count, asp_size_num(G(c), 1)}};
    asp_type row = {.dtype = ASP_I64, .rank = 1, .dim = {asp_size_num(G(c), bins)}};
    x = asp_build_view(B(c), x, &column);
    asp_val bin = asp_build_declared(B(c), ASP_OP_iota, NULL, &row);
    asp_val floor_of =
        asp_build_scaled(B(c), aten_cast(c, bin, c->m->dtype), (high - low) / (double)bins);
    floor_of = ASP_B1(B(c), add_scalar, (&(asp_scalar_attr){.value = low}), floor_of);
    asp_val inside = ASP_B2(B(c), ge, NULL, x, floor_of);
    asp_scalar_attr one = {.value = (high - low) / (double)bins};
    asp_val below = ASP_B2(B(c), lt, NULL, x, ASP_B1(B(c), add_scalar, &one, floor_of));
    aten_arg top = {.kind = ATEN_NUMBER, .is_const = true, .is_float = true, .num = high};
    aten_arg last = {.kind = ATEN_NUMBER, .is_const = true, .num = (double)bins - 1};
    asp_val at_top = ASP_B2(B(c), eq, NULL, x, aten_scalar(c, &top, c->m->dtype));
    asp_val is_last = ASP_B2(B(c), eq, NULL, bin, aten_scalar(c, &last, ASP_I64));
    below = ASP_B2(B(c), logical_or, NULL, below, ASP_B2(B(c), logical_and, NULL, at_top, is_last));
    inside = ASP_B2(B(c), logical_and, NULL, inside, below);
    asp_sum_attr over_elements = {.dims = {.n = 1, .at = {0}}};
    aten_give(c, ASP_B1(B(c), sum, &over_elements, aten_cast(c, inside, c->type[0].dtype)));
}
