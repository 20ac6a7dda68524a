// safetensors, elements to f32, f64 and bf16.  Neighbours: safetensors.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"
#include "io/safetensors.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian, as we are");

// Elements may stand at any address, so each is copied out.

static inline float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline float load_f32(const unsigned char *p)
{
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

static inline double load_f64(const unsigned char *p)
{
    double d;
    memcpy(&d, p, sizeof d);
    return d;
}

static inline float load_bf16(const unsigned char *p)
{
    return of_bits((uint32_t)p[0] << 16 | (uint32_t)p[1] << 24);
}

static inline float load_f16(const unsigned char *p)
{
    uint32_t h = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    uint32_t sign = h >> 15 << 31, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return of_bits(sign | 0x7f800000u | fraction << 13); // infinities, NaN
    if (exponent != 0) return of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float small = (float)fraction * 0x1p-24f; // subnormal there, normal here
    return sign ? -small : small;
}

// f64 is rounded twice, as it would be on the way over f32.
#define NEAREST(x) asp_to_bf16((float)(x))

#define CONVERTER(from, to, T, VALUE, bytes)                                      \
    static void from##_to_##to(const unsigned char *p, int64_t n, void *out)      \
    {                                                                             \
        T *o = out;                                                               \
        for (int64_t i = 0; i < n; i++) o[i] = VALUE(load_##from(p + i * bytes)); \
    }
#define CONVERTERS(from, bytes)                   \
    CONVERTER(from, f32, float, (float), bytes)   \
    CONVERTER(from, f64, double, (double), bytes) \
    CONVERTER(from, bf16, uint16_t, NEAREST, bytes)
CONVERTERS(f32, 4)
CONVERTERS(f64, 8)
CONVERTERS(bf16, 2)
CONVERTERS(f16, 2)

typedef void converter(const unsigned char *p, int64_t n, void *out);
#define ROW(from)                                                                         \
    {                                                                                     \
        [ASP_F32] = from##_to_f32, [ASP_F64] = from##_to_f64, [ASP_BF16] = from##_to_bf16 \
    }
// From, to; NULL: not a floating-point dtype.
static converter *const converters[ASP_DTYPE_COUNT][ASP_DTYPE_COUNT] = {
    [ASP_F32] = ROW(f32),
    [ASP_F64] = ROW(f64),
    [ASP_BF16] = ROW(bf16),
    [ASP_F16] = ROW(f16),
};

asp_status asp_st_convert(asp_ctx *cx, const asp_st_tensor *t, asp_dtype to, void *out)
{
    ASP_CHECK(to == ASP_F32 || to == ASP_F64 || to == ASP_BF16);
    converter *f = converters[t->dtype][to];
    if (!f)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s: tensor \"%.200s\" is %s; weights are f32, f64, bf16 or f16", t->file,
                        t->name, asp_dtypes[t->dtype].name);
    f(t->data, t->count, out);
    return ASP_OK;
}
