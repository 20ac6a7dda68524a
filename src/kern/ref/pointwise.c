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

void asp_add_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, add); }
void asp_sub_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, sub); }
void asp_mul_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, mul); }
void asp_div_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, divide); }
void asp_neg_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, neg); }
void asp_exp_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, exp); }
void asp_rsqrt_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, rsqrt); }

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
