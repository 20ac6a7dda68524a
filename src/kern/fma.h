// What vector types lack: fused multiply-add, unrolling.  Neighbours: vec.h, tile.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/vec.h"

// Before a loop of few rounds: writes them all out.
#if defined(__clang__)
#define ASP_UNROLL _Pragma("unroll")
#else
#define ASP_UNROLL _Pragma("GCC unroll 16")
#endif

ASP_INLINE asp_vf asp_vf_fma(asp_vf a, asp_vf b, asp_vf c) // a b + c
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

#if defined(__AVX512BF16__)
// a b + c, of a and b the products of both halves, which are bf16.  Summed in f32, denormals as 0.
ASP_INLINE asp_vf asp_vf_sum_pairs(asp_vf a, asp_vf b, asp_vf c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

// The 32 bits at p, in all elements.
ASP_INLINE asp_vf asp_vf_all_bits(const float *p)
{
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return (asp_vf)_mm512_set1_epi32(bits);
}
#endif
