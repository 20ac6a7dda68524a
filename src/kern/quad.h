// 4 x 4 blocks of floats, transposed in registers.  Neighbours: gemm_isa.c and softmax.h (who need
// it).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/fma.h"

typedef float quad __attribute__((vector_size(16)));
typedef float quad_mem __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_index __attribute__((vector_size(16)));
#if defined(__clang__)
#define QUAD_MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define QUAD_MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad_index){i, j, k, l})
#endif

ASP_INLINE quad quad_load(const float *p) { return *(const quad_mem *)(const void *)p; }
ASP_INLINE void quad_store(float *p, quad v) { *(quad_mem *)(void *)p = v; }

// Four elements of bf16.
typedef uint16_t quad_half __attribute__((vector_size(8)));
typedef uint16_t quad_half_mem __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint32_t quad_bits __attribute__((vector_size(16)));
ASP_INLINE quad quad_load_half(const uint16_t *p)
{
    const quad_half h = *(const quad_half_mem *)(const void *)p;
    return (quad)(__builtin_convertvector(h, quad_bits) << 16);
}

// to = the four rows, transposed; with a leading dimension.
ASP_INLINE void transpose_quads(float *to, int64_t ldt, quad r0, quad r1, quad r2, quad r3)
{
    quad a = QUAD_MIX(r0, r1, 0, 4, 1, 5), b = QUAD_MIX(r0, r1, 2, 6, 3, 7);
    quad c = QUAD_MIX(r2, r3, 0, 4, 1, 5), d = QUAD_MIX(r2, r3, 2, 6, 3, 7);
    quad_store(to, QUAD_MIX(a, c, 0, 1, 4, 5));
    quad_store(to + ldt, QUAD_MIX(a, c, 2, 3, 6, 7));
    quad_store(to + 2 * ldt, QUAD_MIX(b, d, 0, 1, 4, 5));
    quad_store(to + 3 * ldt, QUAD_MIX(b, d, 2, 3, 6, 7));
}

// to = factor * from^T, with leading dimensions.
ASP_INLINE void transpose_4x4(float *to, int64_t ldt, const float *from, int64_t ldf, float factor)
{
    const quad f = {factor, factor, factor, factor};
    transpose_quads(to, ldt, f * quad_load(from), f * quad_load(from + ldf),
                    f * quad_load(from + 2 * ldf), f * quad_load(from + 3 * ldf));
}
