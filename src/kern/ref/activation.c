// Reference kernels of the activations.  Neighbours: op/activation.c (what they mean),
// rowprog_isa.c (fast).  SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

#include <math.h>

#define INV_SQRT_2 0.70710678118654752440
#define INV_SQRT_2PI 0.39894228040143267794
#define SQRT_2_OVER_PI 0.79788456080286535588

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double sigmoid_grad(double y, double dy) { return dy * (y * (1.0 - y)); }
static double silu(double x) { return x / (1.0 + exp(-x)); }
// d silu / dx = s (1 + x (1 - s)), s = 1 / (1 + e^-x)
static double silu_grad(double x, double dy)
{
    double s = sigmoid(x);
    return dy * (s * (1.0 + x * (1.0 - s)));
}
static double relu(double x) { return x <= 0.0 ? 0.0 : x; } // NaN stays
static double relu_grad(double y, double dy) { return y <= 0.0 ? 0.0 : dy; }
static double tanh_grad(double y, double dy) { return dy * (1.0 - y * y); }

static double normal(double x) { return 0.5 * erfc(-x * INV_SQRT_2); }
static double gelu(double x) { return x * normal(x); }
static double gelu_grad(double x, double dy)
{
    return dy * (normal(x) + x * INV_SQRT_2PI * exp(-0.5 * x * x));
}

static double gelu_inner(double x) { return SQRT_2_OVER_PI * (x + 0.044715 * x * x * x); }
static double gelu_tanh(double x) { return 0.5 * x * (1.0 + tanh(gelu_inner(x))); }
static double gelu_tanh_grad(double x, double dy)
{
    double t = tanh(gelu_inner(x)), slope = SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x * x);
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope);
}

void asp_silu_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, silu); }
void asp_relu_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, relu); }
void asp_tanh_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, tanh); }
void asp_sigmoid_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, sigmoid); }
void asp_gelu_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, gelu); }
void asp_gelu_tanh_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, gelu_tanh); }
void asp_silu_grad_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, silu_grad); }
void asp_relu_grad_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, relu_grad); }
void asp_tanh_grad_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, tanh_grad); }
void asp_sigmoid_grad_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, sigmoid_grad); }
void asp_gelu_grad_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, gelu_grad); }
void asp_gelu_tanh_grad_ref(const asp_kcall *k, asp_worker *w)
{
    asp_ref_binary(k, w, gelu_tanh_grad);
}

// ---- with attributes ---------------------------------------------------------------------------

void asp_softplus_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_softplus_attr a = *(const asp_softplus_attr *)k->attr;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        double x = asp_ref_get(&k->in[0], i.at), z = a.beta * x;
        asp_ref_put(&k->out[0], i.at, z > a.threshold ? x : log1p(exp(z)) / a.beta);
    }
}

void asp_softplus_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_softplus_attr a = *(const asp_softplus_attr *)k->attr;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        double z = a.beta * asp_ref_get(&k->in[0], i.at), dy = asp_ref_get(&k->in[1], i.at);
        asp_ref_put(&k->out[0], i.at, z > a.threshold ? dy : dy * sigmoid(z));
    }
}

void asp_elu_ref(const asp_kcall *k, asp_worker *w)
{
    const double alpha = ((const asp_elu_attr *)k->attr)->alpha;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        double x = asp_ref_get(&k->in[0], i.at);
        asp_ref_put(&k->out[0], i.at, x > 0.0 ? x : alpha * expm1(x));
    }
}

void asp_elu_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const double alpha = ((const asp_elu_attr *)k->attr)->alpha;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        double x = asp_ref_get(&k->in[0], i.at), dy = asp_ref_get(&k->in[1], i.at);
        asp_ref_put(&k->out[0], i.at, x > 0.0 ? dy : dy * alpha * exp(x));
    }
}
