// The rate of sums of products of pairs of bf16 in registers.  Neighbours: probe_isa.c (the same of
// f32), probe.c.  SPDX-License-Identifier: Apache-2.0
#include "kern/probe_int.h"
#include "kern/fma.h"

#define CHAINS 10

double ASP_ISA_NAME(asp_pairs_loop)(int64_t n, float *out)
{
    asp_vf acc[CHAINS], a = (asp_vf)((asp_vi){0} + 0x3f7f3f7f), b = a;
    ASP_UNROLL
    for (int i = 0; i < CHAINS; i++) acc[i] = asp_vf_all((float)i);
    for (int64_t r = 0; r < n; r++) {
        ASP_UNROLL
        for (int i = 0; i < CHAINS; i++) acc[i] = asp_vf_sum_pairs(a, b, acc[i]);
    }
    asp_vf sum = {0};
    ASP_UNROLL
    for (int i = 0; i < CHAINS; i++) sum += acc[i];
    *out = sum[0];
    return 4.0 * CHAINS * ASP_VF * (double)n;
}
