// Vector types for X_isa.c files, which are compiled once per instruction set (kern.h): as wide as
// the level has them, with the same code and the same bits on each.  Neighbours: rowprog_isa.c,
// the GEMM and attention kernels.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/compiler.h"

#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifndef ASP_ISA
#define ASP_ISA generic
#endif
#define ASP_JOIN_(a, b) a##_##b
#define ASP_JOIN(a, b) ASP_JOIN_(a, b)
#define ASP_ISA_NAME(name) ASP_JOIN(name, ASP_ISA) // asp_row_prims -> asp_row_prims_avx2

#if defined(__AVX512F__)
#define ASP_VEC_BYTES 64
#elif defined(__AVX2__)
#define ASP_VEC_BYTES 32
#else
#define ASP_VEC_BYTES 16
#endif
#define ASP_VF (ASP_VEC_BYTES / 4) // floats in a vector

typedef float asp_vf __attribute__((vector_size(ASP_VEC_BYTES)));
typedef int32_t asp_vi __attribute__((vector_size(ASP_VEC_BYTES)));
typedef float asp_vf_mem __attribute__((vector_size(ASP_VEC_BYTES), aligned(4), may_alias));

ASP_INLINE asp_vf asp_vf_load(const float *p) { return *(const asp_vf_mem *)(const void *)p; }
ASP_INLINE void asp_vf_store(float *p, asp_vf v) { *(asp_vf_mem *)(void *)p = v; }
ASP_INLINE asp_vf asp_vf_all(float x) { return x - (asp_vf){0}; }
// The first n < ASP_VF elements, the rest 0.
ASP_INLINE asp_vf asp_vf_load_part(const float *p, int64_t n)
{
    asp_vf v = {0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}
ASP_INLINE void asp_vf_store_part(float *p, asp_vf v, int64_t n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}
// mask (from a comparison) ? a : b, each.
ASP_INLINE asp_vf asp_vf_select(asp_vi mask, asp_vf a, asp_vf b)
{
    return (asp_vf)(((asp_vi)a & mask) | ((asp_vi)b & ~mask));
}

// Largest and smallest, each; b where one is NaN.
#if defined(__AVX512F__)
ASP_INLINE asp_vf asp_vf_max(asp_vf a, asp_vf b) { return _mm512_max_ps(a, b); }
ASP_INLINE asp_vf asp_vf_min(asp_vf a, asp_vf b) { return _mm512_min_ps(a, b); }
#elif defined(__AVX2__)
ASP_INLINE asp_vf asp_vf_max(asp_vf a, asp_vf b) { return _mm256_max_ps(a, b); }
ASP_INLINE asp_vf asp_vf_min(asp_vf a, asp_vf b) { return _mm256_min_ps(a, b); }
#elif defined(__SSE2__)
ASP_INLINE asp_vf asp_vf_max(asp_vf a, asp_vf b) { return _mm_max_ps(a, b); }
ASP_INLINE asp_vf asp_vf_min(asp_vf a, asp_vf b) { return _mm_min_ps(a, b); }
#else
ASP_INLINE asp_vf asp_vf_max(asp_vf a, asp_vf b) { return asp_vf_select(a > b, a, b); }
ASP_INLINE asp_vf asp_vf_min(asp_vf a, asp_vf b) { return asp_vf_select(a < b, a, b); }
#endif

// e^x, relative error below 8.2e-8 (1 ULP; every 17th float was tried); 0 below -87.33, where
// results would be denormal; infinity above 88.72; NaN stays.  No fma, so the same bits on every
// level.
//   e^x = 2^n e^r, n = round(x / ln 2), r = x - n ln2_hi - n ln2_lo (n ln2_hi is exact),
//   e^r = 1 + (r + r^2 q(r)), q minimax on |r| <= ln2 / 2
ASP_INLINE asp_vf asp_vf_exp(asp_vf x)
{
    const asp_vf lowest = asp_vf_all(-87.3365402f), highest = asp_vf_all(89.0f);
    const asp_vf magic = asp_vf_all(12582912.0f); // 1.5 * 2^23: the sum's low bits are the integer
    asp_vi under = x < lowest;
    asp_vf y = asp_vf_max(lowest, asp_vf_min(highest, x));
    asp_vf shifted = y * 1.44269504f + magic;
    asp_vi n = (asp_vi)shifted - (asp_vi)magic;
    asp_vf nf = shifted - magic;
    asp_vf r = (y - nf * 0.693359375f) - nf * -2.12194440e-4f;
    asp_vf q = asp_vf_all(0x1.6a1a68p-10f);
    q = q * r + 0x1.123fc6p-7f;
    q = q * r + 0x1.555916p-5f;
    q = q * r + 0x1.55548ap-3f;
    q = q * r + 0x1.fffffcp-2f;
    asp_vf p = (q * (r * r) + r) + 1.0f;
    asp_vi half = n >> 1; // 2^n in two steps: n may be 128, where the product is infinite or not
    p = p * (asp_vf)((half + 127) << 23) * (asp_vf)((n - half + 127) << 23);
    return (asp_vf)((asp_vi)p & ~under);
}
