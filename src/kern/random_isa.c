// Dropout, f32 and f64, with the words of the generator for many blocks at once; one source for
// every level.  Neighbours: random.h (places, words),
// kern.def (rows), ref/random.c (oracle), base/philox.c (the generator, one block at a time).
// SPDX-License-Identifier: Apache-2.0
#include "kern/move.h"
#include "kern/random.h"
#include "kern/vec.h"

#define CLAIM 8192 // elements of a claim, about
#define LANES 32   // blocks of the generator at once
#define ROUNDS 10

// Lanes of 64 bits of which the lower half counts; the upper one holds what it may.
#define WIDE (ASP_VEC_BYTES / 8)
typedef uint64_t wide __attribute__((vector_size(ASP_VEC_BYTES)));

ASP_INLINE wide wide_all(uint64_t x) { return x - (wide){0}; }

// Products of the lower halves.
ASP_INLINE wide wide_mul(wide a, wide b)
{
#if defined(__AVX512F__)
    return (wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & UINT32_MAX) * (b & UINT32_MAX);
#endif
}

// Words of blocks first .. first + LANES - 1, two in each number, the lower half first.  Several
// vectors in step hide the latency of the products.
#define STEP 2
static_assert(LANES % (STEP * WIDE) == 0, "whole steps");

static void words_of(asp_philox p, uint64_t first, uint64_t *words)
{
    for (int j = 0; j < LANES; j += STEP * WIDE) {
        const wide m0 = wide_all(0xD2511F53u), m1 = wide_all(0xCD9E8D57u);
        uint32_t k0 = (uint32_t)p.seed, k1 = (uint32_t)(p.seed >> 32);
        wide c0[STEP], c1[STEP], c2[STEP], c3[STEP];
        for (int s = 0; s < STEP; s++) {
            wide block = wide_all(first);
            for (int l = 0; l < WIDE; l++) block[l] += (uint64_t)(j + s * WIDE + l);
            c0[s] = block;
            c1[s] = block >> 32;
            c2[s] = wide_all(p.stream);
            c3[s] = wide_all(p.stream >> 32);
        }
        for (int r = 0; r < ROUNDS; r++) {
            for (int s = 0; s < STEP; s++) {
                const wide a = wide_mul(m0, c0[s]), b = wide_mul(m1, c2[s]);
                c0[s] = (b >> 32) ^ c1[s] ^ k0;
                c1[s] = b;
                c2[s] = (a >> 32) ^ c3[s] ^ k1;
                c3[s] = a;
            }
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        for (int s = 0; s < STEP; s++) {
            const wide pair[2] = {(c0[s] & UINT32_MAX) | c1[s] << 32,
                                  (c2[s] & UINT32_MAX) | c3[s] << 32};
            for (int l = 0; l < WIDE; l++) {
                uint64_t *to = words + 2 * (j + s * WIDE + l);
                to[0] = pair[0][l];
                to[1] = pair[1][l];
            }
        }
    }
}

// Elements that stand one behind the other here and in the unsplit tensor.
static int64_t run_of(const asp_global_map *m, int64_t count)
{
    int64_t run = 1, last = -1;
    for (int i = 0; i < m->n; i++) last = asp_max(last, m->at[i].dim);
    if (last < 0) return count;
    for (int d = m->rank - 1; d > last; d--) run *= m->dim[d];
    for (int i = 0; i < m->n; i++) // the innermost place of the dim comes first
        if (m->at[i].dim == last) return run * m->at[i].behind;
    return run;
}

typedef struct mask {
    asp_philox random;
    uint64_t threshold;
    double scale;
    uint64_t first; // block that words begin with
    bool any;       // words hold something
    union {
        uint64_t pair[2 * LANES]; // kept from run to run
        uint32_t one[4 * LANES];
    } words;
} mask;

// Word of element at and how many follow in the same array.
static const uint32_t *words_at(mask *m, uint64_t at, int64_t *out_n)
{
    const uint64_t block = at / 4;
    if (!m->any || block < m->first || block >= m->first + LANES) {
        m->first = block;
        m->any = true;
        words_of(m->random, block, m->words.pair);
    }
    const uint64_t skip = at - m->first * 4;
    *out_n = (int64_t)(4 * LANES - skip);
    return m->words.one + skip;
}

// Elements at .. at + n - 1 of the unsplit tensor; at < 0: dropped.  A product by bits, without a
// branch that would be mispredicted.
#define DROP(T, bits)                                                                  \
    static void drop_##T(mask *m, const T *x, T *y, int64_t at, int64_t n)             \
    {                                                                                  \
        if (at < 0 || m->threshold > UINT32_MAX) {                                     \
            memset(y, 0, (size_t)n * sizeof *y);                                       \
            return;                                                                    \
        }                                                                              \
        const uint32_t threshold = (uint32_t)m->threshold;                             \
        const T scale = (T)m->scale;                                                   \
        for (int64_t i = 0, k; i < n; i += k) {                                        \
            const uint32_t *word = words_at(m, (uint64_t)(at + i), &k);                \
            k = asp_min(k, n - i);                                                     \
            for (int64_t j = 0; j < k; j++) {                                          \
                const T scaled = x[i + j] * scale;                                     \
                bits b;                                                                \
                memcpy(&b, &scaled, sizeof b);                                         \
                b &= (bits)0 - (bits)(word[j] >= threshold);                           \
                memcpy(&y[i + j], &b, sizeof b);                                       \
            }                                                                          \
        }                                                                              \
    }                                                                                  \
                                                                                       \
    static void run_##T(const asp_kcall *k, asp_worker *w)                             \
    {                                                                                  \
        const asp_dropout_attr *a = k->attr;                                           \
        const asp_global_map map = asp_global_map_of(k);                               \
        mask m = {.random = asp_dropout_stream(k, a->site),                            \
                  .threshold = asp_dropout_threshold(a->p),                            \
                  .scale = asp_dropout_scale(a->p)};                                   \
        const int64_t count = asp_tensor_count(&k->out[0]), run = run_of(&map, count); \
        const int64_t each = run < CLAIM ? CLAIM / run * run : CLAIM;                  \
        for (int64_t i, end; asp_claim(w, count, each, &i, &end);)                     \
            for (int64_t n; i < end; i += n) {                                         \
                n = asp_min(end - i, run - i % run);                                   \
                drop_##T(&m, (const T *)k->in[0].data + i, (T *)k->out[0].data + i,    \
                         asp_global_index(&map, i), n);                                \
            }                                                                          \
    }
DROP(float, uint32_t)
DROP(double, uint64_t)

void ASP_ISA_NAME(asp_dropout_f32)(const asp_kcall *k, asp_worker *w) { run_float(k, w); }
void ASP_ISA_NAME(asp_dropout_f64)(const asp_kcall *k, asp_worker *w) { run_double(k, w); }
