// Reference kernels, element by element.  Neighbours: op/pointwise.c (what they mean),
// rowprog_isa.c (fast).  SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

#include <math.h>

// x in another dtype; integers stay exact.
void asp_cast_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        if (x->dtype == y->dtype)
            asp_ref_copy(y, i.at, x, i.at);
        else
            asp_ref_put(y, i.at, asp_ref_get(x, i.at));
    }
}

static double add(double a, double b) { return a + b; }
static double sub(double a, double b) { return a - b; }
static double mul(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }
static double neg(double x) { return -x; }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
static double silu(double x) { return x / (1.0 + exp(-x)); }
// d silu / dx = s (1 + x (1 - s)), s = 1 / (1 + e^-x)
static double silu_grad(double x, double dy)
{
    double s = 1.0 / (1.0 + exp(-x));
    return dy * (s * (1.0 + x * (1.0 - s)));
}

static void each_unary(const asp_kcall *k, asp_worker *w, double (*f)(double))
{
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    asp_ref_put(&k->out[0], i.at, f(asp_ref_get(&k->in[0], i.at)));
}

static void each_binary(const asp_kcall *k, asp_worker *w, double (*f)(double, double))
{
    const asp_tensor *a = &k->in[0], *b = &k->in[1], *y = &k->out[0];
    const int64_t n = asp_tensor_count(y);
    const bool whole_a = asp_tensor_count(a) == n, whole_b = asp_tensor_count(b) == n;
    ASP_REF_EACH(i, w, n)
    {
        double x = asp_ref_get(a, whole_a ? i.at : asp_ref_broadcast(a, y, i.at));
        double z = asp_ref_get(b, whole_b ? i.at : asp_ref_broadcast(b, y, i.at));
        asp_ref_put(y, i.at, f(x, z));
    }
}

void asp_add_ref(const asp_kcall *k, asp_worker *w) { each_binary(k, w, add); }
void asp_sub_ref(const asp_kcall *k, asp_worker *w) { each_binary(k, w, sub); }
void asp_mul_ref(const asp_kcall *k, asp_worker *w) { each_binary(k, w, mul); }
void asp_div_ref(const asp_kcall *k, asp_worker *w) { each_binary(k, w, divide); }
void asp_silu_grad_ref(const asp_kcall *k, asp_worker *w) { each_binary(k, w, silu_grad); }
void asp_neg_ref(const asp_kcall *k, asp_worker *w) { each_unary(k, w, neg); }
void asp_exp_ref(const asp_kcall *k, asp_worker *w) { each_unary(k, w, exp); }
void asp_rsqrt_ref(const asp_kcall *k, asp_worker *w) { each_unary(k, w, rsqrt); }
void asp_silu_ref(const asp_kcall *k, asp_worker *w) { each_unary(k, w, silu); }

void asp_add_scalar_ref(const asp_kcall *k, asp_worker *w)
{
    const double value = ((const asp_scalar_attr *)k->attr)->value;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    asp_ref_put(&k->out[0], i.at, asp_ref_get(&k->in[0], i.at) + value);
}

void asp_mul_scalar_ref(const asp_kcall *k, asp_worker *w)
{
    const double value = ((const asp_scalar_attr *)k->attr)->value;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    asp_ref_put(&k->out[0], i.at, asp_ref_get(&k->in[0], i.at) * value);
}
