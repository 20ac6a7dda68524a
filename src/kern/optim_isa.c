// AdamW in one pass over memory, and sums of squares: plain loops that the compiler turns into
// vectors of the level.  Each operation is rounded by itself, so that levels agree bit for bit.
// Neighbours: optim.h (contract), words.h (random bits).  SPDX-License-Identifier: Apache-2.0
#include "kern/optim_int.h"
#include "base/half.h"
#include "kern/words.h"

#include <math.h>

#define ADAMW(T, name, SQRT)                                                           \
    static void name(const asp_adamw_step_args *a, T *restrict p, const T *restrict g, \
                     T *restrict m, T *restrict v, int64_t n)                          \
    {                                                                                  \
        const T b1 = (T)a->beta1, b2 = (T)a->beta2, c1 = (T)(1.0 - a->beta1),          \
                c2 = (T)(1.0 - a->beta2), scale = (T)a->scale, rate = (T)a->rate,      \
                correct = (T)a->correct, eps = (T)a->eps, keep = (T)(1.0 - a->decay);  \
        for (int64_t i = 0; i < n; i++) {                                              \
            const T x = g[i] * scale;                                                  \
            const T mi = b1 * m[i] + c1 * x, vi = b2 * v[i] + c2 * (x * x);            \
            m[i] = mi;                                                                 \
            v[i] = vi;                                                                 \
            p[i] = p[i] * keep - rate * mi / (SQRT(vi) * correct + eps);               \
        }                                                                              \
    }
ADAMW(float, adamw_f32, sqrtf)
ADAMW(double, adamw_f64, sqrt)

// One of the two neighbours in bf16, the upper one if the part that is cut off exceeds 2^16 -
// noise. What is no number or infinite stays so.
ASP_INLINE uint16_t round_by(float f, uint32_t noise)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u ? 0x40u : 0;
    noise = (bits & 0x7f800000u) == 0x7f800000u ? 0 : noise;
    return (uint16_t)((bits + noise) >> 16 | nan);
}

#define DRAWS (8 * ASP_WORD_BLOCKS) // elements that one call of the generator serves

// Elements of which noise[i] is the draw.
static void adamw_bf16_piece(const asp_adamw_step_args *a, uint16_t *restrict p,
                             const float *restrict g, float *restrict m, float *restrict v,
                             const uint16_t *restrict noise, int64_t n)
{
    const float b1 = (float)a->beta1, b2 = (float)a->beta2, c1 = (float)(1.0 - a->beta1),
                c2 = (float)(1.0 - a->beta2), scale = (float)a->scale, rate = (float)a->rate,
                correct = (float)a->correct, eps = (float)a->eps, keep = (float)(1.0 - a->decay);
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] * scale;
        const float mi = b1 * m[i] + c1 * x, vi = b2 * v[i] + c2 * (x * x);
        m[i] = mi;
        v[i] = vi;
        p[i] = round_by(asp_from_bf16(p[i]) * keep - rate * mi / (sqrtf(vi) * correct + eps),
                        noise[i]);
    }
}

static void adamw_bf16(const asp_adamw_step_args *a, uint16_t *p, const float *g, float *m,
                       float *v, uint64_t first, int64_t n)
{
    union {
        uint64_t pair[2 * ASP_WORD_BLOCKS]; // its bytes are those of the words: little-endian
        uint16_t half[DRAWS];
    } drawn;
    for (int64_t i = 0, k; i < n; i += k) {
        const uint64_t at = first + (uint64_t)i, skip = at % 8;
        k = asp_min(n - i, DRAWS - (int64_t)skip);
        asp_words_of(a->random, at / 8, drawn.pair);
        adamw_bf16_piece(a, p + i, g + i, m + i, v + i, drawn.half + skip, k);
    }
}

#define SQUARES(T, name)                                                                \
    static double name(const T *x, int64_t n)                                           \
    {                                                                                   \
        double sum[16] = {0};                                                           \
        int64_t i = 0;                                                                  \
        for (; i + 16 <= n; i += 16)                                                    \
            for (int l = 0; l < 16; l++) sum[l] += (double)x[i + l] * (double)x[i + l]; \
        for (int l = 0; i < n; i++, l++) sum[l] += (double)x[i] * (double)x[i];         \
        for (int h = 8; h >= 1; h /= 2)                                                 \
            for (int l = 0; l < h; l++) sum[l] += sum[l + h];                           \
        return sum[0];                                                                  \
    }
SQUARES(float, squares_f32)
SQUARES(double, squares_f64)

const asp_optim_kernels ASP_ISA_NAME(asp_optim) = {adamw_f32, adamw_f64, adamw_bf16, squares_f32,
                                                   squares_f64};
