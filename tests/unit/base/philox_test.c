// Philox: the published vectors, moments, and the elementary functions behind the normal numbers.
// SPDX-License-Identifier: Apache-2.0
#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

// kat_vectors of Random123, philox 4x32 with 10 rounds.
static void published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t r = 0; r < ASP_COUNT_OF(rows); r++) {
        uint32_t got[4];
        asp_philox4x32(rows[r].counter, rows[r].key, got);
        assert_memory_equal(got, rows[r].want, sizeof got);
    }
}

// The words of seed, stream and counter go where the header says.
static void layout_of_seed_stream_and_counter(void **state)
{
    (void)state;
    asp_philox p = {.seed = 0x299f31d0a4093822, .stream = 0x0370734413198a2e};
    assert_true(asp_philox_u64(p, 0x85a308d3243f6a88) == 0x94fdccebd16cfe09);
    assert_true(asp_philox_uniform(p, 0x85a308d3243f6a88) ==
                (double)(0x94fdccebd16cfe09 >> 11) / 9007199254740992.0);
}

static void below_is_in_range_and_even(void **state)
{
    (void)state;
    asp_philox p = {.seed = 3, .stream = 4};
    int count[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) count[asp_philox_below(p, i, 7)]++;
    for (int k = 0; k < 7; k++) assert_in_range(count[k], 9500, 10500); // 5 sigma
    assert_int_equal(asp_philox_below(p, 9, 1), 0);
    // n = 2^63 keeps the upper 63 bits; n = 2^64 - 1 stays below n
    for (uint64_t i = 0; i < 1000; i++) {
        assert_true(asp_philox_below(p, i, (uint64_t)1 << 63) == asp_philox_u64(p, i) >> 1);
        assert_true(asp_philox_below(p, i, UINT64_MAX) < UINT64_MAX);
    }
}

// Mean, variance, skewness, kurtosis and a tail of the normal numbers, each within 5 sigma.
static void normal_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    asp_philox p = {.seed = 1, .stream = 2};
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    int beyond2 = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = asp_philox_normal(p, i);
        m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
        beyond2 += fabs(x) > 2;
    }
    double s = 1 / sqrt(N);
    assert_true(fabs(m1 / N) < 5 * s);
    assert_true(fabs(m2 / N - 1) < 5 * sqrt(2) * s);
    assert_true(fabs(m3 / N) < 5 * sqrt(15) * s);
    assert_true(fabs(m4 / N - 3) < 5 * sqrt(96) * s);
    assert_true(fabs(beyond2 / (double)N - 0.0455003) < 5 * sqrt(0.0455 * 0.9545) * s);
}

// The same number through the C library's log and cos.
static void normal_agrees_with_libm(void **state)
{
    (void)state;
    asp_philox p = {.seed = 0xfeedface, .stream = 99};
    for (uint64_t i = 0; i < 20000; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 99, 0}, key[2] = {0xfeedface, 0};
        uint32_t w[4];
        asp_philox4x32(counter, key, w);
        double u = (double)((w[0] | (uint64_t)w[1] << 32) >> 11) * 0x1p-53;
        double v = (double)((w[2] | (uint64_t)w[3] << 32) >> 11) * 0x1p-53;
        double want = sqrt(-2 * log1p(-u)) * cos(2 * 3.14159265358979323846 * v);
        assert_true(fabs(asp_philox_normal(p, i) - want) < 2e-15 * (1 + fabs(want)));
    }
}

// Known bits, so that a change of compiler, library or machine shows.
static void normal_has_fixed_bits(void **state)
{
    (void)state;
    asp_philox p = {.seed = 1, .stream = 0};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        double x = asp_philox_normal(p, i);
        uint64_t bits;
        memcpy(&bits, &x, sizeof bits);
        sum = sum * 31 + bits;
    }
    assert_true(sum == 0xa545f6dcf996dd32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(layout_of_seed_stream_and_counter),
        cmocka_unit_test(below_is_in_range_and_even),
        cmocka_unit_test(normal_moments),
        cmocka_unit_test(normal_agrees_with_libm),
        cmocka_unit_test(normal_has_fixed_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
