// The words of base/philox.h for many blocks at once, in vectors of the level.  Inside kern/ only.
// Neighbours: random_isa.c, optim_isa.c (who include it).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/philox.h"
#include "kern/vec.h"

#define ASP_WORD_BLOCKS 32 // blocks of the generator at once
#define ASP_WORD_ROUNDS 10

// Lanes of 64 bits of which the lower half counts; the upper one holds what it may.
#define ASP_WIDE (ASP_VEC_BYTES / 8)
typedef uint64_t asp_wide __attribute__((vector_size(ASP_VEC_BYTES)));

ASP_INLINE asp_wide asp_wide_all(uint64_t x) { return x - (asp_wide){0}; }

// Products of the lower halves.
ASP_INLINE asp_wide asp_wide_mul(asp_wide a, asp_wide b)
{
#if defined(__AVX512F__)
    return (asp_wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (asp_wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (asp_wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & UINT32_MAX) * (b & UINT32_MAX);
#endif
}

// Words of blocks first .. first + ASP_WORD_BLOCKS - 1, two in each number, the lower half first.
// Several vectors in step hide the latency of the products.
#define ASP_WORD_STEP 2
static_assert(ASP_WORD_BLOCKS % (ASP_WORD_STEP * ASP_WIDE) == 0, "whole steps");

ASP_UNUSED static void asp_words_of(asp_philox p, uint64_t first, uint64_t *words)
{
    for (int j = 0; j < ASP_WORD_BLOCKS; j += ASP_WORD_STEP * ASP_WIDE) {
        const asp_wide m0 = asp_wide_all(0xD2511F53u), m1 = asp_wide_all(0xCD9E8D57u);
        uint32_t k0 = (uint32_t)p.seed, k1 = (uint32_t)(p.seed >> 32);
        asp_wide c0[ASP_WORD_STEP], c1[ASP_WORD_STEP], c2[ASP_WORD_STEP], c3[ASP_WORD_STEP];
        for (int s = 0; s < ASP_WORD_STEP; s++) {
            asp_wide block = asp_wide_all(first);
            for (int l = 0; l < ASP_WIDE; l++) block[l] += (uint64_t)(j + s * ASP_WIDE + l);
            c0[s] = block;
            c1[s] = block >> 32;
            c2[s] = asp_wide_all(p.stream);
            c3[s] = asp_wide_all(p.stream >> 32);
        }
        for (int r = 0; r < ASP_WORD_ROUNDS; r++) {
            for (int s = 0; s < ASP_WORD_STEP; s++) {
                const asp_wide a = asp_wide_mul(m0, c0[s]), b = asp_wide_mul(m1, c2[s]);
                c0[s] = (b >> 32) ^ c1[s] ^ k0;
                c1[s] = b;
                c2[s] = (a >> 32) ^ c3[s] ^ k1;
                c3[s] = a;
            }
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        for (int s = 0; s < ASP_WORD_STEP; s++) {
            const asp_wide pair[2] = {(c0[s] & UINT32_MAX) | c1[s] << 32,
                                      (c2[s] & UINT32_MAX) | c3[s] << 32};
            for (int l = 0; l < ASP_WIDE; l++) {
                uint64_t *to = words + 2 * (j + s * ASP_WIDE + l);
                to[0] = pair[0][l];
                to[1] = pair[1][l];
            }
        }
    }
}
