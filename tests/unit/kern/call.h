// Calls of kernels on arrays with canaries around them: what the tests of along-a-dimension kernels
// share.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/half.h"
#include "kern/kern.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define CANARY 0x5a
#define GUARD 64

typedef struct call_random {
    uint32_t at;
} call_random;

static inline int64_t call_pick(call_random *r, int64_t n)
{
    r->at = r->at * 1664525u + 1013904223u;
    return (int64_t)((r->at >> 8) % (uint32_t)n);
}

static inline int64_t call_bytes(const asp_tensor *t)
{
    return asp_tensor_count(t) * asp_dtypes[t->dtype].bytes;
}

static inline asp_tensor call_tensor(asp_dtype dtype, int rank, const int64_t *dim)
{
    asp_tensor t = {.dtype = dtype, .rank = rank};
    memcpy(t.dim, dim, (size_t)rank * sizeof *dim);
    size_t bytes = (size_t)asp_round_up(call_bytes(&t), 64) + 2 * GUARD;
    char *data = aligned_alloc(64, bytes);
    assert_non_null(data);
    memset(data, CANARY, bytes);
    t.data = data + GUARD;
    return t;
}
#define TENSOR(dtype, ...) \
    call_tensor(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]){__VA_ARGS__})

static inline void call_free_tensor(asp_tensor *t)
{
    const char *data = t->data;
    for (int i = 1; i <= GUARD; i++) {
        assert_int_equal(data[-i], CANARY);
        assert_int_equal(data[call_bytes(t) + i - 1], CANARY);
    }
    free((char *)t->data - GUARD);
}

static inline void call_free(asp_kcall *k)
{
    for (int i = 0; i < k->n_in; i++) call_free_tensor(&k->in[i]);
    for (int i = 0; i < k->n_out; i++) call_free_tensor(&k->out[i]);
}

static inline double call_get(const asp_tensor *t, int64_t i)
{
    if (t->dtype == ASP_BOOL) return (double)((uint8_t *)t->data)[i];
    if (t->dtype == ASP_F32) return (double)((float *)t->data)[i];
    if (t->dtype == ASP_BF16) return (double)asp_from_bf16(((uint16_t *)t->data)[i]);
    return t->dtype == ASP_F64 ? ((double *)t->data)[i] : (double)((int64_t *)t->data)[i];
}

static inline void call_put(const asp_tensor *t, int64_t i, double x)
{
    if (t->dtype == ASP_BOOL)
        ((uint8_t *)t->data)[i] = x != 0;
    else if (t->dtype == ASP_F32)
        ((float *)t->data)[i] = (float)x;
    else if (t->dtype == ASP_BF16)
        ((uint16_t *)t->data)[i] = asp_to_bf16((float)x);
    else if (t->dtype == ASP_F64)
        ((double *)t->data)[i] = x;
    else
        ((int64_t *)t->data)[i] = (int64_t)x;
}

static inline void call_set(const asp_tensor *t, const double *x)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++) call_put(t, i, x[i]);
}
#define SET(t, ...) call_set(t, (const double[]){__VA_ARGS__})

static inline void call_expect(const asp_tensor *t, const double *want, double tolerance)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++)
        if (!(fabs(call_get(t, i) - want[i]) <= tolerance))
            fail_msg("element %lld is %.17g, not %.17g", (long long)i, call_get(t, i), want[i]);
}
#define EXPECT(t, ...) call_expect(t, (const double[]){__VA_ARGS__}, 1e-12)

typedef struct call_job {
    asp_kernel *fn;
    const asp_kcall *call;
} call_job;

static inline void call_main(void *arg, asp_worker *w)
{
    const call_job *j = arg;
    j->fn(j->call, w);
}

// The call's work_bytes of scratch lie before a canary.
static inline void call_run(asp_ctx *cx, const asp_kern_row *row, asp_kcall *k, int threads)
{
    asp_team *team;
    call_job j = {row->fn, k};
    char *work = aligned_alloc(64, (size_t)asp_round_up(k->work_bytes + GUARD, 64));
    assert_non_null(work);
    memset(work, CANARY, (size_t)k->work_bytes + GUARD);
    k->work = work;
    assert_int_equal(asp_team_create(cx, threads, -1, &team), ASP_OK);
    asp_team_run(team, call_main, &j);
    asp_team_destroy(team);
    for (int i = 0; i < GUARD; i++) assert_int_equal(work[k->work_bytes + i], CANARY);
    k->work = NULL;
    free(work);
}

// Fills a call of the row's op at random: shapes, attributes, operands.
typedef void call_maker(call_random *r, const asp_kern_row *row, asp_kcall *k);

// A row of kern.def against the reference of its op, on 1 to 3 threads; bits do not depend on them.
static inline void call_compare(asp_ctx *cx, const asp_kern_row *row, call_maker *make,
                                uint32_t seed, double tolerance)
{
    asp_kcall k;
    asp_tensor want[ASP_MAX_OPERANDS], first[ASP_MAX_OPERANDS];
    call_random r = {seed};
    make(&r, row, &k);
    call_run(cx, asp_kern_ref(row->op), &k, 1);
    for (int i = 0; i < k.n_out; i++) want[i] = k.out[i];
    for (int threads = 1; threads <= 3; threads++) {
        for (int i = 0; i < k.n_out; i++)
            k.out[i] = call_tensor(want[i].dtype, want[i].rank, want[i].dim);
        call_run(cx, row, &k, threads);
        for (int i = 0; i < k.n_out; i++) {
            double most = 1e-30;
            const int64_t n = asp_tensor_count(&want[i]);
            for (int64_t e = 0; e < n; e++) most = fmax(most, fabs(call_get(&want[i], e)));
            for (int64_t e = 0; e < n; e++)
                if (!(fabs(call_get(&k.out[i], e) - call_get(&want[i], e)) <= tolerance * most))
                    fail_msg("%s: element %lld of result %d is %g, not %g (seed %u)", row->name,
                             (long long)e, i, call_get(&k.out[i], e), call_get(&want[i], e), seed);
            if (threads == 1)
                first[i] = k.out[i];
            else {
                assert_memory_equal(k.out[i].data, first[i].data, (size_t)call_bytes(&first[i]));
                call_free_tensor(&k.out[i]);
            }
        }
    }
    for (int i = 0; i < k.n_out; i++) {
        call_free_tensor(&want[i]);
        call_free_tensor(&first[i]);
    }
    k.n_out = 0;
    call_free(&k);
}
