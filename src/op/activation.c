// Activations, and the derivatives that read what is kept anyway: the result where it is the next
// product's operand (relu, tanh, sigmoid), else x alone.  Neighbours: ir/op.def (rows),
// kern/ref/activation.c, kern/rowprog_isa.c (fast).  SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

#define UNARY(op) \
    asp_status asp_##op##_infer(asp_infer *in) { return asp_infer_unary(in); }
#define GRAD(op) \
    asp_status asp_##op##_infer(asp_infer *in) { return asp_infer_grad(in); }
UNARY(silu)
UNARY(relu)
UNARY(tanh)
UNARY(sigmoid)
UNARY(gelu)
UNARY(gelu_tanh)
UNARY(elu)
GRAD(silu_grad)
GRAD(relu_grad)
GRAD(tanh_grad)
GRAD(sigmoid_grad)
GRAD(gelu_grad)
GRAD(gelu_tanh_grad)
GRAD(elu_grad)
GRAD(softplus_grad)

asp_status asp_softplus_infer(asp_infer *in)
{
    const asp_softplus_attr *a = in->attr;
    if (!(a->beta > 0))
        return asp_infer_fail(in, ASP_ERR_INPUT, "beta = %g is not positive", a->beta);
    return asp_infer_unary(in);
}

// of_x: the derivative reads x and dy, and neither the result nor a part of it need be kept;
// of_y: it reads the result and dy.
static asp_val of_x(asp_builder *b, asp_node n, asp_op grad, asp_val dy)
{
    return asp_build(b, grad, asp_node_at(b->g, n)->attr, 2, (asp_val[]){asp_in(b, n, 0), dy});
}
static asp_val of_y(asp_builder *b, asp_node n, asp_op grad, asp_val dy)
{
    return asp_build(b, grad, asp_node_at(b->g, n)->attr, 2, (asp_val[]){asp_out(b, n, 0), dy});
}

#define VJP(op, of)                                                                            \
    void asp_##op##_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in) \
    {                                                                                          \
        out_in[0] = of(b, n, ASP_OP_##op##_grad, cotangent[0]);                                \
    }
VJP(silu, of_x)
VJP(relu, of_y)
VJP(tanh, of_y)
VJP(sigmoid, of_y)
VJP(gelu, of_x)
VJP(gelu_tanh, of_x)
VJP(elu, of_x)
VJP(softplus, of_x)
