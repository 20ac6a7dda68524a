// Dropout, f32 and f64; one source for every level.  Neighbours: random.h (places), words.h (the
// generator, many blocks at once), kern.def (rows), ref/random.c (oracle).
// SPDX-License-Identifier: Apache-2.0
#include "kern/move.h"
#include "kern/random.h"
#include "kern/words.h"

#define CLAIM 8192 // elements of a claim, about

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
        uint64_t pair[2 * ASP_WORD_BLOCKS]; // kept from run to run
        uint32_t one[4 * ASP_WORD_BLOCKS];
    } words;
} mask;

// Word of element at and how many follow in the same array.
static const uint32_t *words_at(mask *m, uint64_t at, int64_t *out_n)
{
    const uint64_t block = at / 4;
    if (!m->any || block < m->first || block >= m->first + ASP_WORD_BLOCKS) {
        m->first = block;
        m->any = true;
        asp_words_of(m->random, block, m->words.pair);
    }
    const uint64_t skip = at - m->first * 4;
    *out_n = (int64_t)(4 * ASP_WORD_BLOCKS - skip);
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
