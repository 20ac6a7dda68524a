// AdamW in one pass over memory, and sums of squares: plain loops that the compiler turns into
// vectors of the level.  Each operation is rounded by itself, so that levels agree bit for bit.
// Neighbours: optim.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "kern/optim_int.h"
#include "kern/vec.h"

#include <math.h>

#define ADAMW(T, name, SQRT)                                                           \
    static void name(const asp_adamw_step_args *a, T *restrict p, const T *restrict g, \
                     T *restrict m, T *restrict v, int64_t n)                          \
    {                                                                                  \
        const T b1 = (T)a->beta1, b2 = (T)a->beta2, c1 = (T)(1.0 - a->beta1),          \
                c2 = (T)(1.0 - a->beta2), scale = (T)a->scale, rate = (T)a->rate,      \
                correct = (T)a->correct, eps = (T)a->eps, keep = (T)(1.0 - a->decay);  \
        for (int64_t i = 0; i < n; i++) {                                              \
            const T x = g[i] * scale;                                                  \
            const T mi = b1 * m[i] + c1 * x, vi = b2 * v[i] + c2 * (x * x);            \
            m[i] = mi;                                                                 \
            v[i] = vi;                                                                 \
            p[i] = p[i] * keep - rate * mi / (SQRT(vi) * correct + eps);               \
        }                                                                              \
    }
ADAMW(float, adamw_f32, sqrtf)
ADAMW(double, adamw_f64, sqrt)

#define SQUARES(T, name)                                                                \
    static double name(const T *x, int64_t n)                                           \
    {                                                                                   \
        double sum[16] = {0};                                                           \
        int64_t i = 0;                                                                  \
        for (; i + 16 <= n; i += 16)                                                    \
            for (int l = 0; l < 16; l++) sum[l] += (double)x[i + l] * (double)x[i + l]; \
        for (int l = 0; i < n; i++, l++) sum[l] += (double)x[i] * (double)x[i];         \
        for (int h = 8; h >= 1; h /= 2)                                                 \
            for (int l = 0; l < h; l++) sum[l] += sum[l + h];                           \
        return sum[0];                                                                  \
    }
SQUARES(float, squares_f32)
SQUARES(double, squares_f64)

const asp_optim_kernels ASP_ISA_NAME(asp_optim) = {adamw_f32, adamw_f64, squares_f32, squares_f64};
