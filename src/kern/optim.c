// Picks the optimizer's functions of a level.  Neighbours: optim.h (contract), optim_isa.c (one
// table a level).  SPDX-License-Identifier: Apache-2.0
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
