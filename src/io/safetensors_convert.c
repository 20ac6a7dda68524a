// safetensors, elements to f32 and f64.  Neighbours: safetensors.h (contract).
// SPDX-License-Identifier: Apache-2.0
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

#define CONVERTER(from, to, bytes)                                             \
    static void from##_to_##to(const unsigned char *p, int64_t n, void *out)   \
    {                                                                          \
        to *o = out;                                                           \
        for (int64_t i = 0; i < n; i++) o[i] = (to)load_##from(p + i * bytes); \
    }
CONVERTER(f32, float, 4)
CONVERTER(f32, double, 4)
CONVERTER(f64, float, 8)
CONVERTER(f64, double, 8)
CONVERTER(bf16, float, 2)
CONVERTER(bf16, double, 2)
CONVERTER(f16, float, 2)
CONVERTER(f16, double, 2)

typedef void converter(const unsigned char *p, int64_t n, void *out);
static const struct {
    converter *to_f32, *to_f64; // NULL: not a floating-point dtype
} converters[ASP_DTYPE_COUNT] = {
    [ASP_F32] = {f32_to_float, f32_to_double},
    [ASP_F64] = {f64_to_float, f64_to_double},
    [ASP_BF16] = {bf16_to_float, bf16_to_double},
    [ASP_F16] = {f16_to_float, f16_to_double},
};

asp_status asp_st_convert(asp_ctx *cx, const asp_st_tensor *t, asp_dtype to, void *out)
{
    ASP_CHECK(to == ASP_F32 || to == ASP_F64);
    converter *f = to == ASP_F32 ? converters[t->dtype].to_f32 : converters[t->dtype].to_f64;
    if (!f)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s: tensor \"%.200s\" is %s; weights are f32, f64, bf16 or f16", t->file,
                        t->name, asp_dtypes[t->dtype].name);
    f(t->data, t->count, out);
    return ASP_OK;
}
