// The rate of fused multiply-adds in registers, of one level.  Neighbours: probe.c, probe.h.
// SPDX-License-Identifier: Apache-2.0
#include "kern/probe_int.h"
#include "kern/fma.h"

#define CHAINS 10

// n rounds of CHAINS independent chains; returns the operations done.  The result goes through
// *out so that the loop stays.
double ASP_ISA_NAME(asp_fma_loop)(int64_t n, float *out)
{
    asp_vf acc[CHAINS], a = asp_vf_all(0.999999f), b = asp_vf_all(1e-6f);
    ASP_UNROLL
    for (int i = 0; i < CHAINS; i++) acc[i] = asp_vf_all((float)i);
    for (int64_t r = 0; r < n; r++) {
        ASP_UNROLL
        for (int i = 0; i < CHAINS; i++) acc[i] = asp_vf_fma(acc[i], a, b);
    }
    asp_vf sum = {0};
    ASP_UNROLL
    for (int i = 0; i < CHAINS; i++) sum += acc[i];
    *out = sum[0];
    return 2.0 * CHAINS * ASP_VF * (double)n;
}
