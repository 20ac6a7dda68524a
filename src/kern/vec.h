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
    asp_vf y = asp_vf_max(lowest, asp_vf_min(highest, x));
#if defined(__AVX512F__)
    asp_vf nf = _mm512_roundscale_ps(y * 1.44269504f, _MM_FROUND_TO_NEAREST_INT);
#else
    const asp_vf magic = asp_vf_all(12582912.0f); // 1.5 * 2^23: the sum's low bits are the integer
    asp_vf shifted = y * 1.44269504f + magic;
    asp_vi n = (asp_vi)shifted - (asp_vi)magic;
    asp_vf nf = shifted - magic;
#endif
    asp_vf r = (y - nf * 0.693359375f) - nf * -2.12194440e-4f;
    asp_vf q = asp_vf_all(0x1.6a1a68p-10f);
    q = q * r + 0x1.123fc6p-7f;
    q = q * r + 0x1.555916p-5f;
    q = q * r + 0x1.55548ap-3f;
    q = q * r + 0x1.fffffcp-2f;
    asp_vf p = (q * (r * r) + r) + 1.0f;
#if defined(__AVX512F__)
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, lowest, _CMP_NLT_UQ), p, nf);
#else
    asp_vi half = n >> 1; // 2^n in two steps: n may be 128, where the product is infinite or not
    p = p * (asp_vf)((half + 127) << 23) * (asp_vf)((n - half + 127) << 23);
    return (asp_vf)((asp_vi)p & ~(x < lowest));
#endif
}

// tanh x, relative error below 2e-7: an odd polynomial up to 0.6, then (1 - e) / (1 + e) with
// e = e^(-2 |x|).  No fma.
ASP_INLINE asp_vf asp_vf_tanh(asp_vf x)
{
    const asp_vi sign = (asp_vi)x & INT32_MIN;
    const asp_vf a = (asp_vf)((asp_vi)x & INT32_MAX), z = x * x;
    asp_vf e = asp_vf_exp(-2.0f * a), large = (1.0f - e) / (1.0f + e);
    asp_vf q = asp_vf_all(-0x1.823db2p-8f);
    q = q * z + 0x1.54b2e0p-6f;
    q = q * z - 0x1.b89808p-5f;
    q = q * z + 0x1.1109a8p-3f;
    q = q * z - 0x1.55553ep-2f;
    asp_vf small = x + x * (z * q);
    return asp_vf_select(a < 0.6f, small, (asp_vf)((asp_vi)large | sign));
}

// The normal distribution at x, given e = e^(-x^2 / 2): of its smaller side e * g(|x|) with a
// polynomial of 1 / (1 + 0.33 |x|), the other is the rest to 1.  Relative error below 7e-7 for |x|
// <= 4, where x^2 begins to lose bits; absolute below 1.3e-7.  No fma.
ASP_INLINE asp_vf asp_vf_normal(asp_vf x, asp_vf e)
{
    const asp_vf a = (asp_vf)((asp_vi)x & INT32_MAX), t = 1.0f / (1.0f + 0.33f * a);
    asp_vf q = asp_vf_all(-0x1.54e584p-6f);
    q = q * t + 0x1.f81e72p-4f;
    q = q * t - 0x1.119752p-2f;
    q = q * t + 0x1.cc0748p-3f;
    q = q * t - 0x1.cf0816p-5f;
    q = q * t + 0x1.f2f712p-4f;
    q = q * t + 0x1.c6ed58p-4f;
    q = q * t + 0x1.0ef4bep-3f;
    q = q * t + 0x1.0d8fecp-3f;
    asp_vf tail = e * (q * t);
    return asp_vf_select(x < 0.0f, tail, 1.0f - tail);
}
