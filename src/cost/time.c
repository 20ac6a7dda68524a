// Times of the cost classes: bytes over bandwidth, operations over the rate that kernels reach.
// Pure functions of numbers.  Neighbours: cost.h (contract), machine.c (where rates come from).
// SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }

asp_device asp_device_of_rank(const asp_machine *m, int ranks, int threads)
{
    double share = (double)m->cores / ranks; // cores a rank can have, below 1 when oversubscribed
    double cores = least(threads, share);
    return (asp_device){.fma_gflops = m->fma_gflops * cores,
                        .triad_gbs = least(m->triad_gbs * cores, m->triad_all_gbs / ranks),
                        .exchange_gbs = m->exchange_gbs * least(1, share),
                        .latency_us = m->latency_us / least(1, share),
                        .gemm_fraction = m->gemm_fraction,
                        .attention_fraction = m->attention_fraction,
                        .memory_bytes = m->memory_bytes / ranks};
}

double asp_flops_gemm(int64_t m, int64_t n, int64_t k)
{
    return 2.0 * (double)m * (double)n * (double)k;
}

// A product of q x k scores with a depth, multiply and add.
static double score_flops(int64_t heads, int64_t q, int64_t k, int64_t depth, bool causal)
{
    return 2.0 * (double)heads * (double)q * (double)k * (double)depth * (causal ? 0.5 : 1.0);
}

// Q K^T over d, P V over e.
double asp_flops_sdpa(int64_t heads, int64_t q, int64_t k, int64_t d, int64_t e, bool causal)
{
    return score_flops(heads, q, k, d + e, causal);
}

// The scores again, dQ and dK over d; dP and dV over e: 2.5 times forward where d = e.
double asp_flops_sdpa_grad(int64_t heads, int64_t q, int64_t k, int64_t d, int64_t e, bool causal)
{
    return score_flops(heads, q, k, 3 * d + 2 * e, causal);
}

double asp_time_stream(const asp_device *d, int64_t bytes)
{
    return (double)bytes / (d->triad_gbs * 1e9);
}

double asp_time_gemm(const asp_device *d, int64_t m, int64_t n, int64_t k, int64_t bytes)
{
    double compute = asp_flops_gemm(m, n, k) / (d->fma_gflops * d->gemm_fraction * 1e9);
    return most(compute, asp_time_stream(d, bytes));
}

double asp_time_attention(const asp_device *d, double flops, int64_t bytes)
{
    double compute = flops / (d->fma_gflops * d->attention_fraction * 1e9);
    return most(compute, asp_time_stream(d, bytes));
}

double asp_time_link(const asp_device *d, int64_t bytes)
{
    return d->latency_us * 1e-6 + (double)bytes / (d->exchange_gbs * 1e9);
}

int64_t asp_price_ns(double seconds)
{
    double limit = (double)(INT64_MAX / 4096), ns = seconds * 1e9;
    if (!(ns > 0)) return 0;
    return ns >= limit ? INT64_MAX / 4096 : (int64_t)(ns + 0.5);
}
