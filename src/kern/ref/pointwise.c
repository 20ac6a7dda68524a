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

static bool is_i64(const asp_kcall *k) { return k->in[0].dtype == ASP_I64; }

#define OF_X(op, f) \
    void asp_##op##_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, f); }
#define OF_A_B(op, f) \
    void asp_##op##_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, f); }
// The same for integers, which stay exact.
#define OF_X_I64(op, f)                                    \
    void asp_##op##_ref(const asp_kcall *k, asp_worker *w) \
    {                                                      \
        if (is_i64(k))                                     \
            asp_ref_unary_i64(k, w, f##_i64);              \
        else                                               \
            asp_ref_unary(k, w, f);                        \
    }
#define OF_A_B_I64(op, f)                                  \
    void asp_##op##_ref(const asp_kcall *k, asp_worker *w) \
    {                                                      \
        if (is_i64(k))                                     \
            asp_ref_binary_i64(k, w, f##_i64);             \
        else                                               \
            asp_ref_binary(k, w, f);                       \
    }

// ---- two operands ------------------------------------------------------------------------------

static double add(double a, double b) { return a + b; }
static double sub(double a, double b) { return a - b; }
static double mul(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }
static double floor_divide(double a, double b) { return floor(a / b); }
static double remainder_of(double a, double b)
{
    double r = fmod(a, b);
    return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}
static double smaller(double a, double b) { return a != a || b != b ? a + b : a < b ? a : b; }
static double larger(double a, double b) { return a != a || b != b ? a + b : a > b ? a : b; }

// Beyond 64 bits integers wrap around.
static int64_t add_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t sub_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t mul_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t remainder_of_i64(int64_t a, int64_t b)
{
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int64_t floor_divide_i64(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    if (b == -1) return sub_i64(0, a);
    return (a - remainder_of_i64(a, b)) / b;
}
static int64_t smaller_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger_i64(int64_t a, int64_t b) { return a > b ? a : b; }

OF_A_B_I64(add, add)
OF_A_B_I64(sub, sub)
OF_A_B_I64(mul, mul)
OF_A_B(div, divide)
OF_A_B_I64(floor_divide, floor_divide)
OF_A_B_I64(remainder, remainder_of)
OF_A_B_I64(minimum, smaller)
OF_A_B_I64(maximum, larger)

// ---- one operand -------------------------------------------------------------------------------

static double neg(double x) { return -x; }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
static double sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x * 0.0; }
static int64_t neg_i64(int64_t x) { return sub_i64(0, x); }
static int64_t fabs_i64(int64_t x) { return x < 0 ? sub_i64(0, x) : x; }
static int64_t sign_i64(int64_t x) { return (x > 0) - (x < 0); }

OF_X_I64(neg, neg)
OF_X_I64(abs, fabs)
OF_X_I64(sign, sign)
OF_X(exp, exp)
OF_X(rsqrt, rsqrt)
OF_X(sqrt, sqrt)
OF_X(log, log)
OF_X(log1p, log1p)
OF_X(sin, sin)
OF_X(cos, cos)
OF_X(erf, erf)

// ---- with attributes ---------------------------------------------------------------------------

void asp_add_scalar_ref(const asp_kcall *k, asp_worker *w)
{
    const double value = ((const asp_scalar_attr *)k->attr)->value;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        if (is_i64(k))
            ((int64_t *)y->data)[i.at] = add_i64(asp_ref_id(x, i.at), (int64_t)value);
        else
            asp_ref_put(y, i.at, asp_ref_get(x, i.at) + value);
    }
}

void asp_mul_scalar_ref(const asp_kcall *k, asp_worker *w)
{
    const double value = ((const asp_scalar_attr *)k->attr)->value;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        if (is_i64(k))
            ((int64_t *)y->data)[i.at] = mul_i64(asp_ref_id(x, i.at), (int64_t)value);
        else
            asp_ref_put(y, i.at, asp_ref_get(x, i.at) * value);
    }
}

void asp_pow_ref(const asp_kcall *k, asp_worker *w)
{
    const double value = ((const asp_scalar_attr *)k->attr)->value;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    asp_ref_put(&k->out[0], i.at, pow(asp_ref_get(&k->in[0], i.at), value));
}

// An integer beyond every bound stays itself: bounds may be infinite.
void asp_clamp_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_clamp_attr a = *(const asp_clamp_attr *)k->attr;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        double x = asp_ref_get(&k->in[0], i.at);
        if (x < a.min)
            asp_ref_put(&k->out[0], i.at, a.min > a.max ? a.max : a.min);
        else if (x > a.max)
            asp_ref_put(&k->out[0], i.at, a.max);
        else
            asp_ref_copy(&k->out[0], i.at, &k->in[0], i.at);
    }
}

void asp_clamp_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_clamp_attr a = *(const asp_clamp_attr *)k->attr;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        double x = asp_ref_get(&k->in[0], i.at), dy = asp_ref_get(&k->in[1], i.at);
        asp_ref_put(&k->out[0], i.at, x >= a.min && x <= a.max ? dy : 0.0);
    }
}
