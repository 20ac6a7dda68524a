// Vectors of bf16 as vectors of f32, the bits of base/half.h on every level.  Neighbours: vec.h
// (the types), the kernels that read or write bf16.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/half.h"
#include "kern/vec.h"

typedef uint16_t asp_vh __attribute__((vector_size(ASP_VEC_BYTES / 2)));
typedef uint16_t asp_vh_mem __attribute__((vector_size(ASP_VEC_BYTES / 2), aligned(2), may_alias));
typedef uint32_t asp_vu __attribute__((vector_size(ASP_VEC_BYTES)));

ASP_INLINE asp_vf asp_vf_widen(asp_vh h)
{
    return (asp_vf)(__builtin_convertvector(h, asp_vu) << 16);
}

#if defined(__AVX512F__)
// Of the bits of v, the upper halves of which are the rounded numbers.
ASP_INLINE __m512i asp_vf_rounded(asp_vf v)
{
    const __m512i bits = (__m512i)v, odd = _mm512_srli_epi32(bits, 16) & _mm512_set1_epi32(1);
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_mask_or_epi32(sum, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits,
                                _mm512_set1_epi32(0x400000));
}

ASP_INLINE asp_vh asp_vf_narrow(asp_vf v)
{
    return (asp_vh)_mm512_cvtepi32_epi16(_mm512_srli_epi32(asp_vf_rounded(v), 16));
}

// v as it would come back from memory.
ASP_INLINE asp_vf asp_vf_round_half(asp_vf v)
{
    return (asp_vf)(asp_vf_rounded(v) & _mm512_set1_epi32((int)0xffff0000u));
}
#else
ASP_INLINE asp_vh asp_vf_narrow(asp_vf v)
{
    const asp_vu bits = (asp_vu)v;
    const asp_vu nan = (asp_vu)((asp_vi)(bits & 0x7fffffffu) > 0x7f800000);
    const asp_vu rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return __builtin_convertvector((rounded & ~nan) | ((bits >> 16 | 0x40u) & nan), asp_vh);
}

ASP_INLINE asp_vf asp_vf_round_half(asp_vf v) { return asp_vf_widen(asp_vf_narrow(v)); }
#endif

ASP_INLINE asp_vf asp_vf_load_half(const uint16_t *p)
{
    return asp_vf_widen(*(const asp_vh_mem *)(const void *)p);
}
ASP_INLINE void asp_vf_store_half(uint16_t *p, asp_vf v)
{
    *(asp_vh_mem *)(void *)p = asp_vf_narrow(v);
}
// v is a bf16 already.
ASP_INLINE void asp_vf_store_cut(uint16_t *p, asp_vf v)
{
    *(asp_vh_mem *)(void *)p = __builtin_convertvector((asp_vu)v >> 16, asp_vh);
}
// The first n < ASP_VF elements, the rest 0.
ASP_INLINE asp_vf asp_vf_load_half_part(const uint16_t *p, int64_t n)
{
    asp_vh h = {0};
    memcpy(&h, p, (size_t)n * sizeof *p);
    return asp_vf_widen(h);
}
ASP_INLINE void asp_vf_store_half_part(uint16_t *p, asp_vf v, int64_t n)
{
    const asp_vh h = asp_vf_narrow(v);
    memcpy(p, &h, (size_t)n * sizeof *p);
}
