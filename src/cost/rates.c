// What one rank of this machine does in a second, through autosp.h: for hosts that describe
// programs by FLOPs and bytes.  Neighbours: machine.c (the file), flow/remat_time.c (who reads such
// numbers). SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

asp_status asp_machine_rates(asp_ctx *cx, int64_t ranks, int threads, asp_rates *out_rates)
{
    asp_machine m;
    if (!cx) return ASP_ERR_USAGE;
    if (ranks < 1 || ranks > INT32_MAX || threads < 1 || !out_rates)
        return asp_fail(cx, ASP_ERR_USAGE, "%lld ranks of %d threads", (long long)ranks, threads);
    ASP_TRY(asp_machine_find(cx, &m));
    const asp_device d = asp_device_of_rank(&m, (int)ranks, threads);
    *out_rates = (asp_rates){.gemm = d.fma_gflops * d.gemm_fraction * 1e9,
                             .attention = d.fma_gflops * d.attention_fraction * 1e9,
                             .memory = d.triad_gbs * 1e9,
                             .link = d.exchange_gbs * 1e9};
    return ASP_OK;
}
