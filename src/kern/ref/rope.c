// Reference kernels of rotary positions.  The table's is its only kernel: made once a step, in
// double.  Neighbours: op/attention.c (what they mean), rotary_isa.c (fast).
// SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

#include <math.h>

// Frequency of pair j of a head: theta^(-2j/H), after the scaling named.  llama3 keeps wavelengths
// below original/high, divides frequencies by factor above original/low, and goes linearly in
// between (Llama 3.1 model card).
static double frequency(const asp_rope_table_attr *a, int64_t j)
{
    double f = pow(a->theta, -2.0 * (double)j / (double)a->head_dim);
    if (!strcmp(a->scaling, "linear")) return f / a->factor;
    if (strcmp(a->scaling, "llama3") != 0) return f;
    double wavelength = 2.0 * acos(-1.0) / f, original = (double)a->original;
    if (wavelength < original / a->high) return f;
    if (wavelength > original / a->low) return f / a->factor;
    double smooth = (original / wavelength - a->low) / (a->high - a->low);
    return (1.0 - smooth) * f / a->factor + smooth * f;
}

// in: positions (...) i64; out: cos, sin (..., H/2)
void asp_rope_table_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_rope_table_attr *a = k->attr;
    const int64_t n = asp_tensor_count(&k->in[0]), half = a->head_dim / 2;
    const asp_ref_part mine = asp_ref_mine(w, n);
    for (int64_t j = 0; j < half; j++) {
        const double f = frequency(a, j);
        for (int64_t i = mine.at; i < mine.end; i++) {
            double angle = (double)asp_ref_id(&k->in[0], i) * f;
            asp_ref_put(&k->out[0], i * half + j, cos(angle));
            asp_ref_put(&k->out[1], i * half + j, sin(angle));
        }
    }
}

// x (B,N,S,H), cos and sin (S,H/2) or (B,S,H/2).  Element j pairs with j + H/2:
// (x0 c - x1 s, x1 c + x0 s); inverse turns back, which is the derivative.  May run in place on x.
void asp_rotary_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *c = &k->in[1], *s = &k->in[2], *y = &k->out[0];
    const int64_t N = x->dim[1], S = x->dim[2], half = x->dim[3] / 2;
    const double turn = ((const asp_rotary_attr *)k->attr)->inverse ? -1.0 : 1.0;
    ASP_REF_EACH(i, w, asp_tensor_rows(x))
    {
        int64_t row = i.at % S + (c->rank == 3 ? i.at / (N * S) * S : 0);
        for (int64_t j = 0; j < half; j++) {
            int64_t lo = i.at * 2 * half + j, hi = lo + half;
            double x0 = asp_ref_get(x, lo), x1 = asp_ref_get(x, hi);
            double co = asp_ref_get(c, row * half + j), si = turn * asp_ref_get(s, row * half + j);
            asp_ref_put(y, lo, x0 * co - x1 * si);
            asp_ref_put(y, hi, x1 * co + x0 * si);
        }
    }
}
