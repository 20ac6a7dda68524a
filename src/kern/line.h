// Largest and sums of contiguous rows in vector types, in the order of sums of row programs:
// element i goes to partial i mod 64, and the 64 are added by one fixed tree.  Neighbours:
// rowprog_isa.c (the order), nll_isa.c and softmax_isa.c (who include it). SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "kern/vec.h"

#define LINE_PARTIALS 64
#define LINE_ACCS (LINE_PARTIALS / ASP_VF)

ASP_UNUSED static float line_max(const float *x, int64_t n)
{
    asp_vf most[2];
    float lanes[2 * ASP_VF], m = x[0];
    int64_t i = 0;
    for (int l = 0; l < 2; l++) most[l] = asp_vf_all(x[0]);
    for (; i + 2 * ASP_VF <= n; i += 2 * ASP_VF) {
        most[0] = asp_vf_max(most[0], asp_vf_load(x + i));
        most[1] = asp_vf_max(most[1], asp_vf_load(x + i + ASP_VF));
    }
    asp_vf_store(lanes, most[0]);
    asp_vf_store(lanes + ASP_VF, most[1]);
    for (int l = 0; l < 2 * ASP_VF; l++) m = lanes[l] > m ? lanes[l] : m;
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

// (x0 + x1) + (x2 + x3) over 16 lanes each, then halves of 8, 4, 2, 1.
ASP_UNUSED static float line_tree(const asp_vf acc[LINE_ACCS])
{
    float p[LINE_PARTIALS], t[16];
    for (int k = 0; k < LINE_ACCS; k++) asp_vf_store(p + k * ASP_VF, acc[k]);
    for (int l = 0; l < 16; l++) t[l] = (p[l] + p[16 + l]) + (p[32 + l] + p[48 + l]);
    for (int h = 8; h >= 1; h /= 2)
        for (int l = 0; l < h; l++) t[l] += t[l + h];
    return t[0];
}

// Sum of e^(x - most).
ASP_UNUSED static float line_sum_exp(const float *x, int64_t n, float most)
{
    const asp_vf m = asp_vf_all(most);
    asp_vf acc[LINE_ACCS];
    for (int k = 0; k < LINE_ACCS; k++) acc[k] = asp_vf_all(0.0f);
    int64_t i = 0;
    while (i + LINE_PARTIALS <= n)
        for (int k = 0; k < LINE_ACCS; k++, i += ASP_VF)
            acc[k] += asp_vf_exp(asp_vf_load(x + i) - m);
    for (int k = 0; i < n; k++, i += ASP_VF) {
        if (i + ASP_VF <= n) {
            acc[k] += asp_vf_exp(asp_vf_load(x + i) - m);
            continue;
        }
        float part[ASP_VF];
        asp_vf_store(part, asp_vf_exp(asp_vf_load_part(x + i, n - i) - m));
        acc[k] += asp_vf_load_part(part, n - i);
    }
    return line_tree(acc);
}
