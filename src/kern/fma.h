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
