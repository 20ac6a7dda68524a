// Fast kernel of dropout, f32 and f64.  Neighbours: random.h (places, words), ref/random.c
// (oracle).  SPDX-License-Identifier: Apache-2.0
#include "kern/random.h"
#include "kern/move.h"

#define BLOCK 4096 // elements of a claim, at most

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
} mask;

// Elements at .. at + n - 1 of the unsplit tensor; at < 0: dropped.
static void drop_f32(const mask *m, const float *x, float *y, int64_t at, int64_t n)
{
    uint32_t word[4];
    const float scale = (float)m->scale;
    if (at < 0) memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0; at >= 0 && i < n; i++) {
        if (i == 0 || (at + i) % 4 == 0) asp_philox_block(m->random, (uint64_t)(at + i) / 4, word);
        y[i] = word[(at + i) % 4] >= m->threshold ? x[i] * scale : 0;
    }
}

static void drop_f64(const mask *m, const double *x, double *y, int64_t at, int64_t n)
{
    uint32_t word[4];
    if (at < 0) memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0; at >= 0 && i < n; i++) {
        if (i == 0 || (at + i) % 4 == 0) asp_philox_block(m->random, (uint64_t)(at + i) / 4, word);
        y[i] = word[(at + i) % 4] >= m->threshold ? x[i] * m->scale : 0;
    }
}

void asp_dropout_fast(const asp_kcall *k, asp_worker *w)
{
    const asp_dropout_attr *a = k->attr;
    const asp_global_map map = asp_global_map_of(k);
    const mask m = {.random = asp_dropout_stream(k, a->site),
                    .threshold = asp_dropout_threshold(a->p),
                    .scale = asp_dropout_scale(a->p)};
    const int64_t count = asp_tensor_count(&k->out[0]), run = run_of(&map, count);
    const int64_t each = run < BLOCK ? BLOCK / run * run : BLOCK;
    for (int64_t i, end; asp_claim(w, count, each, &i, &end);)
        for (int64_t n; i < end; i += n) {
            n = asp_min(end - i, run - i % run);
            const int64_t at = asp_global_index(&map, i);
            if (k->out[0].dtype == ASP_F32)
                drop_f32(&m, (const float *)k->in[0].data + i, (float *)k->out[0].data + i, at, n);
            else
                drop_f64(&m, (const double *)k->in[0].data + i, (double *)k->out[0].data + i, at,
                         n);
        }
}
