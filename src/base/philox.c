// Philox4x32-10 and the distributions drawn from it.  Neighbours: philox.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "base/philox.h"

#include <math.h>

#define ROUNDS 10
#define PI 3.14159265358979323846

void asp_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out_words[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u; // Weyl sequences: the golden ratio and sqrt(3) - 1
        k1 += 0xBB67AE85u;
    }
    out_words[0] = c0;
    out_words[1] = c1;
    out_words[2] = c2;
    out_words[3] = c3;
}

void asp_philox_block(asp_philox p, uint64_t i, uint32_t out_words[4])
{
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)p.stream,
                                 (uint32_t)(p.stream >> 32)};
    const uint32_t key[2] = {(uint32_t)p.seed, (uint32_t)(p.seed >> 32)};
    asp_philox4x32(counter, key, out_words);
}

static void block(asp_philox p, uint64_t i, uint64_t out[2])
{
    uint32_t w[4];
    asp_philox_block(p, i, w);
    out[0] = w[0] | (uint64_t)w[1] << 32;
    out[1] = w[2] | (uint64_t)w[3] << 32;
}

static double unit(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

uint64_t asp_philox_u64(asp_philox p, uint64_t i)
{
    uint64_t u[2];
    block(p, i, u);
    return u[0];
}

double asp_philox_uniform(asp_philox p, uint64_t i) { return unit(asp_philox_u64(p, i)); }

uint64_t asp_philox_below(asp_philox p, uint64_t i, uint64_t n)
{
    ASP_ASSERT(n > 0);
    uint64_t u = asp_philox_u64(p, i); // the upper half of u * n, from four products of halves
    uint64_t ul = (uint32_t)u, uh = u >> 32, nl = (uint32_t)n, nh = n >> 32;
    uint64_t middle = uh * nl + (ul * nl >> 32);
    return uh * nh + (middle >> 32) + (((uint32_t)middle + ul * nh) >> 32);
}

// ln x for x in (0, 1]: ln(2^e m) with m in [sqrt(1/2), sqrt(2)), then the series of
// 2 artanh((m - 1) / (m + 1)), whose argument stays below 0.172.
static double natural_log(double x)
{
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752440) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), q = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * q + 1.0 / k;
    return e * 0.69314718055994530942 + 2 * s * sum;
}

// cos(2 pi v) for v in [0, 1): the nearest quarter turn, then a Taylor series on |r| <= pi / 4.
static double cos_turn(double v)
{
    int quarter = (int)(4 * v + 0.5);
    double r = 2 * PI * (v - 0.25 * quarter), q = r * r, sum = 0;
    bool odd = quarter & 1; // there the cosine is a sine of r
    for (int k = odd ? 17 : 16; k >= 2; k -= 2) sum = -q / (k * (k - 1)) * (1 + sum);
    double at = odd ? r * (1 + sum) : 1 + sum; // sin r or cos r
    return quarter % 4 == 1 || quarter % 4 == 2 ? -at : at;
}

double asp_philox_normal(asp_philox p, uint64_t i)
{
    uint64_t u[2];
    block(p, i, u);
    double radius = sqrt(-2 * natural_log(1 - unit(u[0]))); // 1 - [0, 1) is never 0
    return radius * cos_turn(unit(u[1]));
}
