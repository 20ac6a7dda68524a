// AdamW and the norm of gradients over pieces of flat arrays, f32 and f64.  Neighbours:
// train/adamw.c (who walks the slabs and claims chunks), optim_isa.c.  SPDX-License-Identifier:
// Apache-2.0
#pragma once

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
    double decay; // learning rate * weight decay; 0 for norms and biases
} asp_adamw_step_args;

// The functions of one level; every level gives the same bits.  One thread each: callers split the
// arrays into pieces.
typedef struct asp_optim_kernels {
    void (*adamw_f32)(const asp_adamw_step_args *a, float *p, const float *g, float *m, float *v,
                      int64_t n);
    void (*adamw_f64)(const asp_adamw_step_args *a, double *p, const double *g, double *m,
                      double *v, int64_t n);
    // Sum of squares in double: element i to partial i mod 16, added by a fixed tree.
    double (*squares_f32)(const float *x, int64_t n);
    double (*squares_f64)(const double *x, int64_t n);
} asp_optim_kernels;

const asp_optim_kernels *asp_optim_choose(asp_isa isa);
