// Times and operation counts against numbers worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void near(double a, double b)
{
    double e = a > b ? a - b : b - a;
    assert_true(e <= 1e-12 * (b > 0 ? b : 1));
}

static const asp_machine two_cores = {.cpu = "test",
                                      .cores = 2,
                                      .memory_bytes = 16000000000,
                                      .fma_gflops = 100,
                                      .triad_gbs = 20,
                                      .triad_all_gbs = 30,
                                      .exchange_gbs = 10,
                                      .latency_us = 5,
                                      .gemm_fraction = 0.8,
                                      .attention_fraction = 0.5};

static void shares_of_a_machine(void **state)
{
    (void)state;
    asp_device d = asp_device_of_rank(&two_cores, 1, 1);
    near(d.fma_gflops, 100);
    near(d.triad_gbs, 20);
    assert_int_equal(d.memory_bytes, 16000000000);
    d = asp_device_of_rank(&two_cores, 1, 2);
    near(d.fma_gflops, 200);
    near(d.triad_gbs, 30); // two cores could take 40, memory gives 30
    d = asp_device_of_rank(&two_cores, 1, 8);
    near(d.fma_gflops, 200);
    d = asp_device_of_rank(&two_cores, 2, 1);
    near(d.fma_gflops, 100);
    near(d.triad_gbs, 15);
    near(d.exchange_gbs, 10);
    assert_int_equal(d.memory_bytes, 8000000000);
    d = asp_device_of_rank(&two_cores, 8, 1); // a quarter of a core each
    near(d.fma_gflops, 25);
    near(d.triad_gbs, 3.75);
    near(d.exchange_gbs, 2.5);
    near(d.latency_us, 20);
}

static void operations(void **state)
{
    (void)state;
    near(asp_flops_gemm(4096, 3072, 768), 19327352832.0);
    near(asp_flops_sdpa(1, 4096, 4096, 64, 64, true), 2.0 * 4096 * 4096 * 64); // 2 S^2 D
    near(asp_flops_sdpa_grad(1, 4096, 4096, 64, 64, true), 5.0 * 4096 * 4096 * 64);
    near(asp_flops_sdpa(12, 10, 30, 4, 6, false), 2.0 * 12 * 10 * 30 * 10);
    near(asp_flops_sdpa_grad(1, 10, 30, 4, 6, false), 2.0 * 10 * 30 * 24);
    // No overflow where a product of int64 would: 2 (2^24)^2 128 32 heads > 2^63 / 4096
    near(asp_flops_sdpa(32, 1 << 24, 1 << 24, 4096, 4096, true),
         2.0 * 32 * 4096.0 * 16777216.0 * 16777216.0);
}

static void times(void **state)
{
    (void)state;
    asp_device d = asp_device_of_rank(&two_cores, 1, 2); // 200 GF/s, 30 GB/s
    near(asp_time_stream(&d, 3000000000), 0.1);
    near(asp_time_gemm(&d, 1000, 1000, 1000, 12000000), 2e9 / 160e9);
    near(asp_time_gemm(&d, 1, 1000000, 1, 8000000), 8e6 / 30e9); // bound by bytes
    near(asp_time_attention(&d, 1e9, 0), 1e9 / 100e9);
    near(asp_time_attention(&d, 0, 30), 1e-9);
    near(asp_time_link(&d, 0), 5e-6);
    near(asp_time_link(&d, 10000000), 5e-6 + 1e-3);
}

static void prices(void **state)
{
    (void)state;
    assert_int_equal(asp_price_ns(1.5e-6), 1500);
    assert_int_equal(asp_price_ns(0.6e-9), 1);
    assert_int_equal(asp_price_ns(-1), 0);
    assert_int_equal(asp_price_ns(1e30), INT64_MAX / 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_a_machine),
        cmocka_unit_test(operations),
        cmocka_unit_test(times),
        cmocka_unit_test(prices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
