// AdamW and the norm of gradients over pieces of flat arrays, f32 and f64.  Neighbours:
// train/adamw.c (who walks the slabs and claims chunks), optim_isa.c.  SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "base/philox.h"
#include "kern/kern.h"

// One step's numbers; Loshchilov & Hutter 2019 with decoupled decay:
//   x = scale g     m = beta1 m + (1 - beta1) x     v = beta2 v + (1 - beta2) x^2
//   p = p (1 - decay) - rate m / (correct sqrt(v) + eps)
typedef struct asp_adamw_step_args {
    double scale;        // of the gradient: the clip factor
    double beta1, beta2; // of the moments
    double rate;         // learning rate / (1 - beta1^step)
    double correct;      // 1 / sqrt(1 - beta2^step)
    double eps;
    double decay;      // learning rate * weight decay; 0 for norms and biases
    asp_philox random; // of the step; what parameters of bf16 are rounded by
} asp_adamw_step_args;

// Of the seed of a run, apart from initial weights, data order and dropout.
#define ASP_ROUNDING_KEY UINT64_C(0x726f756e64)

// The functions of one level; every level gives the same bits.  One thread each: callers split the
// arrays into pieces.
typedef struct asp_optim_kernels {
    void (*adamw_f32)(const asp_adamw_step_args *a, float *p, const float *g, float *m, float *v,
                      int64_t n);
    void (*adamw_f64)(const asp_adamw_step_args *a, double *p, const double *g, double *m,
                      double *v, int64_t n);
    // The parameters are bf16 and have no other copy: the new value is computed in f32 and rounded
    // to one of its two neighbours, to either with the probability that makes the mean right.
    // Element i of the slab (p[0] is element `first`) draws 16 bits of its own: half i mod 8 of
    // block i / 8 of a->random.
    void (*adamw_bf16)(const asp_adamw_step_args *a, uint16_t *p, const float *g, float *m,
                       float *v, uint64_t first, int64_t n);
    // Sum of squares in double: element i to partial i mod 16, added by a fixed tree.
    double (*squares_f32)(const float *x, int64_t n);
    double (*squares_f64)(const double *x, int64_t n);
} asp_optim_kernels;

const asp_optim_kernels *asp_optim_choose(asp_isa isa);

// Elements from .. from + n - 1 of slabs at[] of parameters, gradients and both states.  dtype: of
// the parameters; bf16 goes with f32 of the others.  first: of at[] in the slab.
void asp_optim_adamw(const asp_optim_kernels *k, asp_dtype dtype, const asp_adamw_step_args *a,
                     void *const at[4], int64_t first, int64_t from, int64_t n);
// Sum of squares of elements from .. from + n - 1 of gradients.
double asp_optim_squares(const asp_optim_kernels *k, asp_dtype dtype, const void *g, int64_t from,
                         int64_t n);
