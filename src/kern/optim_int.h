// The tables of optim_isa.c.  Inside src/kern only.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/optim.h"

extern const asp_optim_kernels asp_optim_generic;
#if defined(__x86_64__)
extern const asp_optim_kernels asp_optim_avx2, asp_optim_avx512;
#endif
