// Attention over two sets of keys from that of each, f32, one source for every level: a row is read
// once and scaled.  out may be the memory of the first operand.  Neighbours: kern.def (rows),
// ref/ring.c (the formulas, the oracle), sdpa_isa.c (who makes the parts).
// SPDX-License-Identifier: Apache-2.0
#include "kern/kern_int.h"
#include "kern/vec.h"

#include <math.h>

enum { ROWS = 64 }; // of a chunk

// to = a x + b y
static void add_rows(float *to, const float *x, const float *y, float a, float b, int64_t n)
{
    int64_t i = 0;
    for (; i + ASP_VF <= n; i += ASP_VF)
        asp_vf_store(to + i, a * asp_vf_load(x + i) + b * asp_vf_load(y + i));
    if (i < n)
        asp_vf_store_part(
            to + i, a * asp_vf_load_part(x + i, n - i) + b * asp_vf_load_part(y + i, n - i), n - i);
}

static void merge_row(const asp_kcall *k, int64_t row, int64_t e)
{
    const float la = ((const float *)k->in[1].data)[row], lb = ((const float *)k->in[3].data)[row];
    const float *x = (const float *)k->in[0].data + row * e;
    const float *y = (const float *)k->in[2].data + row * e;
    float *to = (float *)k->out[0].data + row * e, *lse = (float *)k->out[1].data + row;
    if (lb == -INFINITY && la == -INFINITY) { // neither has a key: each its share of what it gets
        add_rows(to, x, y, 1, 1, e);
        *lse = la;
        return;
    }
    if (lb == -INFINITY || la == -INFINITY) { // one has no key: the other stands as it is
        const float *from = lb == -INFINITY ? x : y;
        *lse = lb == -INFINITY ? la : lb;
        if (to != from) memcpy(to, from, (size_t)e * sizeof *to);
        return;
    }
    const double max = la > lb ? (double)la : (double)lb;
    const double a = exp((double)la - max), b = exp((double)lb - max);
    add_rows(to, x, y, (float)(a / (a + b)), (float)(b / (a + b)), e);
    *lse = (float)(max + log(a + b));
}

void ASP_ISA_NAME(asp_merge_attention_f32)(const asp_kcall *k, asp_worker *w)
{
    const int64_t rows = asp_tensor_count(&k->in[1]), e = k->in[0].dim[3];
    for (int64_t i; (i = asp_team_next(w, asp_ceil_div(rows, ROWS))) >= 0;)
        for (int64_t row = i * ROWS; row < asp_min(rows, (i + 1) * ROWS); row++)
            merge_row(k, row, e);
}
