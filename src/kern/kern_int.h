// Inside kern/: the reference kernels, the fast kernels, and the scratch sizes that kern.def names.
// Neighbours: kern.c (the tables made of them).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/part.h"
#include "base/rows.h"
#include "kern/kern.h"

// asp_<op>_ref for every op that a kernel runs; those of attention want scratch.
#define ASP_REF_FREE(name)
#define ASP_REF_LINK(name)
#define ASP_REF_STREAM(name) asp_kernel asp_##name##_ref;
#define ASP_REF_GEMM ASP_REF_STREAM
#define ASP_REF_SDPA(name)       \
    asp_kernel asp_##name##_ref; \
    asp_kernel_work asp_##name##_ref_work;
#define ASP_REF_SDPA_GRAD ASP_REF_SDPA
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) ASP_REF_##cost(name)
#include "ir/op.def"
#undef OP

#define KERN(op, dtype, isa, kernel, scratch) asp_kernel kernel;
#include "kern/kern.def"
#undef KERN

// Every work function of kern.def.
asp_kernel_work asp_gemm_nt_f32_work, asp_gemm_nn_f32_work, asp_gemm_tn_f32_work;
asp_kernel_work asp_sdpa_f32_work, asp_sdpa_grad_f32_work, asp_nll_f32_work;
asp_kernel_work asp_sdpa_half_work, asp_sdpa_grad_half_work, asp_nll_grad_f32_work;
asp_kernel_work asp_bmm_f32_work;

// Which matrix of operand i goes into matrix z of bmm's result: its leading dims broadcast from the
// right.
static inline int64_t asp_batch_matrix(const asp_kcall *k, int i, int64_t z)
{
    const asp_tensor *x = &k->in[i], *y = &k->out[0];
    int64_t at = 0, step = 1;
    for (int b = 3; b <= x->rank; b++) {
        const int64_t size = y->dim[y->rank - b], here = z % size;
        z /= size;
        if (x->dim[x->rank - b] != 1) at += here * step;
        step *= x->dim[x->rank - b];
    }
    return at;
}
