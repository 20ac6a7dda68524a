// Peak rates of this processor.  Neighbours: probe.h (contract), probe_isa.c (the loops).
// SPDX-License-Identifier: Apache-2.0
#include "kern/probe_int.h"
#include "base/file.h"

static double rate_of(asp_fma_loop_fn *loop)
{
    double best = 0;
    for (int round = 0; round < 10; round++) {
        float out;
        double t0 = asp_seconds(), flops = loop(1000000, &out), t = asp_seconds() - t0;
        if (out == out && flops / t > best) best = flops / t;
    }
    return best * 1e-9;
}

double asp_probe_fma(asp_isa isa)
{
    asp_fma_loop_fn *loop = asp_fma_loop_generic;
#if defined(__x86_64__)
    static asp_fma_loop_fn *const levels[] = {asp_fma_loop_generic, asp_fma_loop_avx2,
                                              asp_fma_loop_avx512};
    loop = levels[isa];
#else
    (void)isa;
#endif
    return rate_of(loop);
}

double asp_probe_bf16(void)
{
#if defined(__x86_64__)
    if (asp_isa_has_bf16()) return rate_of(asp_pairs_loop_avx512_bf16);
#endif
    return 0;
}

double asp_probe_triad(float *restrict a, const float *restrict b, const float *restrict c,
                       int64_t n)
{
    double best = 0;
    for (int round = 0; round < 5; round++) {
        double t0 = asp_seconds();
        for (int64_t i = 0; i < n; i++) a[i] = b[i] + 0.5f * c[i];
        double t = asp_seconds() - t0, rate = 12.0 * (double)n / t;
        if (a[n - 1] == a[n - 1] && rate > best) best = rate;
    }
    return best * 1e-9;
}
