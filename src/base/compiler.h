// GNU extensions, all in one place.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ASP_NORETURN __attribute__((noreturn))
#define ASP_NOINLINE __attribute__((noinline))
#define ASP_INLINE static inline __attribute__((always_inline, unused))
#define ASP_UNUSED __attribute__((unused))
#define ASP_LIKELY(x) __builtin_expect(!!(x), 1)
#define ASP_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define ASP_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define ASP_CACHE_LINE 64
#define ASP_PREFETCH(p) __builtin_prefetch(p)

#if defined(__SANITIZE_ADDRESS__)
#define ASP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASP_ASAN 1
#endif
#endif
#ifndef ASP_ASAN
#define ASP_ASAN 0
#endif

// out = a op b; true when it overflowed.
static inline bool asp_add_overflows(int64_t a, int64_t b, int64_t *out)
{
    return __builtin_add_overflow(a, b, out);
}

static inline bool asp_mul_overflows(int64_t a, int64_t b, int64_t *out)
{
    return __builtin_mul_overflow(a, b, out);
}

static inline int64_t asp_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t asp_max(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t asp_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static inline int64_t asp_round_up(int64_t a, int64_t multiple)
{
    return asp_ceil_div(a, multiple) * multiple;
}
