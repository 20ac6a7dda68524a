// Picks the optimizer's functions of a level and a dtype.  Neighbours: optim.h (contract),
// optim_isa.c (one table a level).  SPDX-License-Identifier: Apache-2.0
#include "kern/optim_int.h"

const asp_optim_kernels *asp_optim_choose(asp_isa isa)
{
    switch (isa) {
    case ASP_ISA_GENERIC: break;
#if defined(__x86_64__)
    case ASP_ISA_AVX2: return &asp_optim_avx2;
    case ASP_ISA_AVX512: return &asp_optim_avx512;
#else
    case ASP_ISA_AVX2:
    case ASP_ISA_AVX512: break;
#endif
    }
    return &asp_optim_generic;
}

void asp_optim_adamw(const asp_optim_kernels *k, asp_dtype dtype, const asp_adamw_step_args *a,
                     void *const at[4], int64_t first, int64_t from, int64_t n)
{
    if (dtype == ASP_F64) {
        k->adamw_f64(a, (double *)at[0] + from, (double *)at[1] + from, (double *)at[2] + from,
                     (double *)at[3] + from, n);
        return;
    }
    float *g = (float *)at[1] + from, *m = (float *)at[2] + from, *v = (float *)at[3] + from;
    if (dtype == ASP_BF16)
        k->adamw_bf16(a, (uint16_t *)at[0] + from, g, m, v, (uint64_t)(first + from), n);
    else
        k->adamw_f32(a, (float *)at[0] + from, g, m, v, n);
}

double asp_optim_squares(const asp_optim_kernels *k, asp_dtype dtype, const void *g, int64_t from,
                         int64_t n)
{
    return dtype == ASP_F64 ? k->squares_f64((const double *)g + from, n)
                            : k->squares_f32((const float *)g + from, n);
}
