// Runs of bf16 to f32 and back.  Inside src/kern only.  Neighbours: half_isa.c (the loops),
// base/half.h (the rounding).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/kern_int.h"

typedef struct asp_half_ops {
    void (*widen)(const uint16_t *from, int64_t n, float *to);
    void (*narrow)(const float *from, int64_t n, uint16_t *to);
} asp_half_ops;
extern const asp_half_ops asp_half_ops_generic;
#if defined(__x86_64__)
extern const asp_half_ops asp_half_ops_avx2, asp_half_ops_avx512;
#endif

static inline const asp_half_ops *asp_half_ops_at(asp_isa isa)
{
#if defined(__x86_64__)
    if (isa == ASP_ISA_AVX512) return &asp_half_ops_avx512;
    if (isa == ASP_ISA_AVX2) return &asp_half_ops_avx2;
#endif
    (void)isa;
    return &asp_half_ops_generic;
}
