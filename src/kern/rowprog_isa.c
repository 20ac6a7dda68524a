// The primitives of row programs, in vector types: one source, compiled once per instruction set.
// Each operation is rounded by itself (contraction is off), so joined forms give the bits of the
// ops they join and every level the same.  Neighbours: rowprog_int.h (the table), rowprog.c (who
// picks).  SPDX-License-Identifier: Apache-2.0
#include "kern/half.h"
#include "kern/rowprog_int.h"

typedef asp_vf vf;

// ---- one vector --------------------------------------------------------------------------------

ASP_INLINE vf do_add(vf a, vf b) { return a + b; }
ASP_INLINE vf do_sub(vf a, vf b) { return a - b; }
ASP_INLINE vf do_rsub(vf a, vf b) { return b - a; }
ASP_INLINE vf do_mul(vf a, vf b) { return a * b; }
ASP_INLINE vf do_div(vf a, vf b) { return a / b; }
ASP_INLINE vf do_copy(vf x) { return x; }
ASP_INLINE vf do_round_half(vf x) { return asp_vf_round_half(x); }
ASP_INLINE vf do_neg(vf x) { return -x; }
ASP_INLINE vf do_exp(vf x) { return asp_vf_exp(x); }
ASP_INLINE vf do_rsqrt(vf x)
{
    vf root;
    for (int i = 0; i < ASP_VF; i++) root[i] = __builtin_sqrtf(x[i]);
    return 1.0f / root;
}
// With e = exp(-x).
ASP_INLINE vf silu_of(vf x, vf e) { return x / (1.0f + e); }
ASP_INLINE vf silu_grad_of(vf x, vf e, vf dy)
{
    vf s = 1.0f / (1.0f + e);
    return dy * (s * (1.0f + x * (1.0f - s)));
}
ASP_INLINE vf do_silu(vf x) { return silu_of(x, asp_vf_exp(-x)); }
ASP_INLINE vf do_silu_grad(vf x, vf dy) { return silu_grad_of(x, asp_vf_exp(-x), dy); }
ASP_INLINE vf do_relu(vf x) { return asp_vf_select(x <= 0.0f, asp_vf_all(0.0f), x); }
ASP_INLINE vf do_relu_grad(vf y, vf dy) { return asp_vf_select(y <= 0.0f, asp_vf_all(0.0f), dy); }
ASP_INLINE vf do_tanh(vf x) { return asp_vf_tanh(x); }
ASP_INLINE vf do_tanh_grad(vf y, vf dy) { return dy * (1.0f - y * y); }
ASP_INLINE vf do_sigmoid(vf x) { return 1.0f / (1.0f + asp_vf_exp(-x)); }
ASP_INLINE vf do_sigmoid_grad(vf y, vf dy) { return dy * (y * (1.0f - y)); }
ASP_INLINE vf do_gelu(vf x) { return x * asp_vf_normal(x, asp_vf_exp(-0.5f * (x * x))); }
ASP_INLINE vf do_gelu_grad(vf x, vf dy)
{
    vf e = asp_vf_exp(-0.5f * (x * x));
    return dy * (asp_vf_normal(x, e) + x * (e * 0x1.988454p-2f)); // 1 / sqrt(2 pi)
}
#define GELU_SCALE 0x1.988454p-1f // sqrt(2 / pi)
ASP_INLINE vf gelu_tanh_inner(vf x) { return GELU_SCALE * (x + 0.044715f * (x * x * x)); }
ASP_INLINE vf do_gelu_tanh(vf x) { return (0.5f * x) * (1.0f + asp_vf_tanh(gelu_tanh_inner(x))); }
ASP_INLINE vf do_gelu_tanh_grad(vf x, vf dy)
{
    vf t = asp_vf_tanh(gelu_tanh_inner(x));
    vf slope = GELU_SCALE * (1.0f + 0.134145f * (x * x));
    return dy * (0.5f * (1.0f + t) + (0.5f * x) * ((1.0f - t * t) * slope));
}

// ---- loops over a tile -------------------------------------------------------------------------

// Operand k as form V or S: ROW_V declares a pointer to its row, ROW_S one vector of its number;
// GET_V and GET_S give the vector at column i by the load given.
#define ROW_V(x, k) const float *x = g->in[k] + r * g->stride[k]
#define ROW_S(x, k) const vf x = asp_vf_all(g->in[k][r * g->stride[k]])
#define GET_V(load, x) load(x)
#define GET_S(load, x) (x)
#define WHOLE(p) asp_vf_load((p) + i)
#define PART(p) asp_vf_load_part((p) + i, n - i)
#define OUT(k) (g->out[k] + r * g->out_stride[k])

#define UNARY(name, A)                                                                 \
    static void name##_##A(const asp_prim_args *g)                                     \
    {                                                                                  \
        const int64_t n = g->n;                                                        \
        for (int64_t r = 0; r < g->rows; r++) {                                        \
            ROW_##A(a, 0);                                                             \
            float *out = OUT(0);                                                       \
            int64_t i = 0;                                                             \
            for (; i + ASP_VF <= n; i += ASP_VF)                                       \
                asp_vf_store(out + i, do_##name(GET_##A(WHOLE, a)));                   \
            if (i < n) asp_vf_store_part(out + i, do_##name(GET_##A(PART, a)), n - i); \
        }                                                                              \
    }

#define BINARY(name, A, B)                                                                        \
    static void name##_##A##B(const asp_prim_args *g)                                             \
    {                                                                                             \
        const int64_t n = g->n;                                                                   \
        for (int64_t r = 0; r < g->rows; r++) {                                                   \
            ROW_##A(a, 0);                                                                        \
            ROW_##B(b, 1);                                                                        \
            float *out = OUT(0);                                                                  \
            int64_t i = 0;                                                                        \
            for (; i + ASP_VF <= n; i += ASP_VF)                                                  \
                asp_vf_store(out + i, do_##name(GET_##A(WHOLE, a), GET_##B(WHOLE, b)));           \
            if (i < n)                                                                            \
                asp_vf_store_part(out + i, do_##name(GET_##A(PART, a), GET_##B(PART, b)), n - i); \
        }                                                                                         \
    }

// do_second(do_first(a, b), c)
#define CHAIN(first, second, B, C)                                                                \
    static void first##_##second##_##B##C(const asp_prim_args *g)                                 \
    {                                                                                             \
        const int64_t n = g->n;                                                                   \
        for (int64_t r = 0; r < g->rows; r++) {                                                   \
            ROW_V(a, 0);                                                                          \
            ROW_##B(b, 1);                                                                        \
            ROW_##C(c, 2);                                                                        \
            float *out = OUT(0);                                                                  \
            int64_t i = 0;                                                                        \
            for (; i + ASP_VF <= n; i += ASP_VF)                                                  \
                asp_vf_store(out + i, do_##second(do_##first(GET_V(WHOLE, a), GET_##B(WHOLE, b)), \
                                                  GET_##C(WHOLE, c)));                            \
            if (i < n)                                                                            \
                asp_vf_store_part(                                                                \
                    out + i,                                                                      \
                    do_##second(do_##first(GET_V(PART, a), GET_##B(PART, b)), GET_##C(PART, c)),  \
                    n - i);                                                                       \
        }                                                                                         \
    }

#define UNARY_FORMS(name) UNARY(name, V) UNARY(name, S)
#define BINARY_FORMS(name) BINARY(name, V, V) BINARY(name, V, S) BINARY(name, S, V)
#define CHAIN_FORMS(first, second) \
    CHAIN(first, second, V, V)     \
    CHAIN(first, second, V, S) CHAIN(first, second, S, V) CHAIN(first, second, S, S)
ASP_PRIM_UNARY(UNARY_FORMS)
ASP_PRIM_BINARY(BINARY_FORMS)
#define CHAINS_OF(first)    \
    CHAIN_FORMS(first, add) \
    CHAIN_FORMS(first, sub) CHAIN_FORMS(first, rsub) CHAIN_FORMS(first, mul)
ASP_CHAIN_FIRST(CHAINS_OF)

static void load_half(const asp_prim_args *g)
{
    const int64_t n = g->n;
    for (int64_t r = 0; r < g->rows; r++) {
        const uint16_t *a = (const uint16_t *)(const void *)g->in[0] + r * g->stride[0];
        float *out = OUT(0);
        int64_t i = 0;
        for (; i + ASP_VF <= n; i += ASP_VF) asp_vf_store(out + i, asp_vf_load_half(a + i));
        if (i < n) asp_vf_store_part(out + i, asp_vf_load_half_part(a + i, n - i), n - i);
    }
}

static void store_half(const asp_prim_args *g)
{
    const int64_t n = g->n;
    for (int64_t r = 0; r < g->rows; r++) {
        ROW_V(a, 0);
        uint16_t *out = (uint16_t *)(void *)g->out[0] + r * g->out_stride[0];
        int64_t i = 0;
        for (; i + ASP_VF <= n; i += ASP_VF) asp_vf_store_half(out + i, WHOLE(a));
        if (i < n) asp_vf_store_half_part(out + i, PART(a), n - i);
    }
}

static void round_store(const asp_prim_args *g)
{
    const int64_t n = g->n;
    for (int64_t r = 0; r < g->rows; r++) {
        ROW_V(a, 0);
        float *out = OUT(0);
        uint16_t *half = (uint16_t *)(void *)g->out[1] + r * g->out_stride[1];
        int64_t i = 0;
        for (; i + ASP_VF <= n; i += ASP_VF) {
            const vf x = asp_vf_round_half(WHOLE(a));
            asp_vf_store(out + i, x);
            asp_vf_store_cut(half + i, x);
        }
        for (; i < n; i++) {
            half[i] = asp_to_bf16(a[i]);
            out[i] = asp_from_bf16(half[i]);
        }
    }
}

ASP_INLINE vf do_silu_mul(vf a, vf b) { return do_silu(a) * b; }
BINARY(silu_mul, V, V)

static void silu_grad_mul(const asp_prim_args *g)
{
    const int64_t n = g->n;
    for (int64_t r = 0; r < g->rows; r++) {
        ROW_V(a, 0);
        ROW_V(b, 1);
        ROW_V(c, 2);
        float *out = OUT(0);
        int64_t i = 0;
        for (; i + ASP_VF <= n; i += ASP_VF)
            asp_vf_store(out + i, do_silu_grad(WHOLE(a), WHOLE(b) * WHOLE(c)));
        if (i < n) asp_vf_store_part(out + i, do_silu_grad(PART(a), PART(b) * PART(c)), n - i);
    }
}

static void silu_both(const asp_prim_args *g)
{
    const int64_t n = g->n;
    for (int64_t r = 0; r < g->rows; r++) {
        ROW_V(a, 0);
        ROW_V(b, 1);
        ROW_V(c, 2);
        float *grad = OUT(0), *value = OUT(1);
        int64_t i = 0;
        for (; i + ASP_VF <= n; i += ASP_VF) {
            vf x = WHOLE(a), y = WHOLE(b), e = asp_vf_exp(-x);
            asp_vf_store(grad + i, silu_grad_of(x, e, y * WHOLE(c)));
            asp_vf_store(value + i, silu_of(x, e) * y);
        }
        if (i < n) {
            vf x = PART(a), y = PART(b), e = asp_vf_exp(-x);
            asp_vf_store_part(grad + i, silu_grad_of(x, e, y * PART(c)), n - i);
            asp_vf_store_part(value + i, silu_of(x, e) * y, n - i);
        }
    }
}

#define NORM_GRAD(B)                                                                             \
    static void norm_grad_##B(const asp_prim_args *g)                                            \
    {                                                                                            \
        const int64_t n = g->n;                                                                  \
        for (int64_t r = 0; r < g->rows; r++) {                                                  \
            ROW_V(a, 0);                                                                         \
            ROW_##B(b, 1);                                                                       \
            ROW_V(x, 2);                                                                         \
            ROW_S(s, 3);                                                                         \
            ROW_V(d, 4);                                                                         \
            float *out = OUT(0);                                                                 \
            int64_t i = 0;                                                                       \
            for (; i + ASP_VF <= n; i += ASP_VF) {                                               \
                const vf t = s * WHOLE(x);                                                       \
                asp_vf_store(out + i, WHOLE(a) * GET_##B(WHOLE, b) + t + t + WHOLE(d));          \
            }                                                                                    \
            if (i < n) {                                                                         \
                const vf t = s * PART(x);                                                        \
                asp_vf_store_part(out + i, PART(a) * GET_##B(PART, b) + t + t + PART(d), n - i); \
            }                                                                                    \
        }                                                                                        \
    }
NORM_GRAD(V)
NORM_GRAD(S)

// ---- sums along rows ---------------------------------------------------------------------------

#define ACCS (ASP_ROW_PARTIALS / ASP_VF)

// The first n of v, the rest 0: what lies beyond a row's end must not enter a sum.
ASP_INLINE vf first_of(vf v, int64_t n)
{
    float all[ASP_VF];
    asp_vf_store(all, v);
    return asp_vf_load_part(all, n);
}

// Element i of each row goes to partial i mod 64.
#define SUM_COLS(name, DECLARE, EXPR)                                                  \
    static void name(const asp_prim_args *g)                                           \
    {                                                                                  \
        const int64_t n = g->n;                                                        \
        for (int64_t r = 0; r < g->rows; r++) {                                        \
            DECLARE                                                                    \
            float *out = OUT(0);                                                       \
            vf acc[ACCS];                                                              \
            for (int k = 0; k < ACCS; k++) acc[k] = asp_vf_load(out + k * ASP_VF);     \
            int64_t i = 0;                                                             \
            for (; i + ASP_ROW_PARTIALS <= n;)                                         \
                for (int k = 0; k < ACCS; k++, i += ASP_VF) acc[k] += EXPR(WHOLE);     \
            for (int k = 0; k < ACCS && i < n; k++, i += ASP_VF)                       \
                acc[k] += i + ASP_VF <= n ? EXPR(WHOLE) : first_of(EXPR(PART), n - i); \
            for (int k = 0; k < ACCS; k++) asp_vf_store(out + k * ASP_VF, acc[k]);     \
        }                                                                              \
    }

#define A_V(load) GET_V(load, a)
#define A_MUL_V(load) (GET_V(load, a) * GET_V(load, b))
#define A_MUL_S(load) (GET_V(load, a) * GET_S(load, b))
SUM_COLS(sum_cols, ROW_V(a, 0);, A_V)
SUM_COLS(mul_sum_cols_V, ROW_V(a, 0); ROW_V(b, 1);, A_MUL_V)
SUM_COLS(mul_sum_cols_S, ROW_V(a, 0); ROW_S(b, 1);, A_MUL_S)

// (x0 + x1) + (x2 + x3) over 16 lanes each, then halves of 8, 4, 2, 1.
static void tree(const asp_prim_args *g)
{
    for (int64_t r = 0; r < g->rows; r++) {
        const float *p = g->in[0] + r * g->stride[0];
        float t[16];
        for (int l = 0; l < 16; l++) t[l] = (p[l] + p[16 + l]) + (p[32 + l] + p[48 + l]);
        for (int h = 8; h >= 1; h /= 2)
            for (int l = 0; l < h; l++) t[l] += t[l + h];
        *OUT(0) = t[0];
    }
}

// ---- sums over rows ----------------------------------------------------------------------------

#define WIDE 4 // vectors of columns at once

#define SUM_ROWS(name, DECLARE, EXPR)                                                      \
    static void name(const asp_prim_args *g)                                               \
    {                                                                                      \
        const int64_t n = g->n;                                                            \
        float *out = g->out[0];                                                            \
        int64_t first = 0;                                                                 \
        for (; first + WIDE * ASP_VF <= n; first += WIDE * ASP_VF) {                       \
            vf acc[WIDE];                                                                  \
            for (int k = 0; k < WIDE; k++) acc[k] = asp_vf_load(out + first + k * ASP_VF); \
            for (int64_t r = 0; r < g->rows; r++) {                                        \
                DECLARE                                                                    \
                for (int k = 0; k < WIDE; k++) {                                           \
                    const int64_t i = first + k * ASP_VF;                                  \
                    acc[k] += EXPR(WHOLE);                                                 \
                }                                                                          \
            }                                                                              \
            for (int k = 0; k < WIDE; k++) asp_vf_store(out + first + k * ASP_VF, acc[k]); \
        }                                                                                  \
        for (int64_t i = first; i < n; i += ASP_VF) {                                      \
            const bool whole = i + ASP_VF <= n;                                            \
            vf acc = whole ? asp_vf_load(out + i) : asp_vf_load_part(out + i, n - i);      \
            for (int64_t r = 0; r < g->rows; r++) {                                        \
                DECLARE                                                                    \
                acc += whole ? EXPR(WHOLE) : EXPR(PART);                                   \
            }                                                                              \
            if (whole)                                                                     \
                asp_vf_store(out + i, acc);                                                \
            else                                                                           \
                asp_vf_store_part(out + i, acc, n - i);                                    \
        }                                                                                  \
    }

SUM_ROWS(sum_rows, ROW_V(a, 0);, A_V)
SUM_ROWS(mul_sum_rows_V, ROW_V(a, 0); ROW_V(b, 1);, A_MUL_V)
SUM_ROWS(mul_sum_rows_S, ROW_V(a, 0); ROW_S(b, 1);, A_MUL_S)
#define A_MUL_V_MUL_V(load) (A_MUL_V(load) * GET_V(load, c))
#define A_MUL_V_MUL_S(load) (A_MUL_V(load) * GET_S(load, c))
#define A_MUL_S_MUL_V(load) (A_MUL_S(load) * GET_V(load, c))
#define A_MUL_S_MUL_S(load) (A_MUL_S(load) * GET_S(load, c))
SUM_ROWS(mul_mul_sum_rows_VV, ROW_V(a, 0); ROW_V(b, 1); ROW_V(c, 2);, A_MUL_V_MUL_V)
SUM_ROWS(mul_mul_sum_rows_VS, ROW_V(a, 0); ROW_V(b, 1); ROW_S(c, 2);, A_MUL_V_MUL_S)
SUM_ROWS(mul_mul_sum_rows_SV, ROW_V(a, 0); ROW_S(b, 1); ROW_V(c, 2);, A_MUL_S_MUL_V)
SUM_ROWS(mul_mul_sum_rows_SS, ROW_V(a, 0); ROW_S(b, 1); ROW_S(c, 2);, A_MUL_S_MUL_S)

static void sum_blocks(const asp_prim_args *g)
{
    double sum[64];
    for (int64_t first = 0; first < g->n; first += 64) {
        const int64_t n = asp_min(64, g->n - first);
        for (int64_t i = 0; i < n; i++) sum[i] = 0.0;
        for (int64_t r = 0; r < g->rows; r++) {
            const float *x = g->in[0] + r * g->stride[0] + first;
            for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i];
        }
        for (int64_t i = 0; i < n; i++) g->out[0][first + i] = (float)sum[i];
    }
}

// ---- the table ---------------------------------------------------------------------------------

#define UNARY_ROW(name) [ASP_ROWOP_##name] = {name##_V, name##_S},
#define BINARY_ROW(name) [ASP_ROWOP_##name] = {{name##_VV, name##_VS}, {name##_SV, NULL}},
#define CHAIN_ROW(first, second)                                             \
    [ASP_CHAIN2_##second] = {{first##_##second##_VV, first##_##second##_VS}, \
                             {first##_##second##_SV, first##_##second##_SS}},
#define CHAIN_ROWS(first)                                                                      \
    [ASP_CHAIN1_##first] = {CHAIN_ROW(first, add) CHAIN_ROW(first, sub) CHAIN_ROW(first, rsub) \
                                CHAIN_ROW(first, mul)},

const asp_row_prims ASP_ISA_NAME(asp_row_prims) = {
    .load_half = load_half,
    .store_half = store_half,
    .round_store = round_store,
    .unary = {ASP_PRIM_UNARY(UNARY_ROW)},
    .binary = {ASP_PRIM_BINARY(BINARY_ROW)},
    .chain = {ASP_CHAIN_FIRST(CHAIN_ROWS)},
    .silu_mul = silu_mul_VV,
    .silu_grad_mul = silu_grad_mul,
    .silu_both = silu_both,
    .sum_cols = sum_cols,
    .mul_sum_cols = {mul_sum_cols_V, mul_sum_cols_S},
    .sum_rows = sum_rows,
    .mul_sum_rows = {mul_sum_rows_V, mul_sum_rows_S},
    .mul_mul_sum_rows = {{mul_mul_sum_rows_VV, mul_mul_sum_rows_VS},
                         {mul_mul_sum_rows_SV, mul_mul_sum_rows_SS}},
    .norm_grad = {norm_grad_V, norm_grad_S},
    .tree = tree,
    .sum_blocks = sum_blocks,
};
