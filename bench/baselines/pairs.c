// Interleaved pairs of steps.  Neighbours: pairs.h.  SPDX-License-Identifier: Apache-2.0
#include "pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(asp_ctx *cx, asp_status s)
{
    if (s == ASP_OK) return;
    fprintf(stderr, "%s: %s\n", asp_status_name(s), asp_ctx_message(cx));
    exit(1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

asp_trainer *pairs_trainer(asp_ctx *cx, const asp_compiled *c, int64_t vocab)
{
    asp_trainer *t;
    asp_tensor_info in;
    uint32_t seed = 1;
    check(cx, asp_trainer_create(c, &t));
    for (size_t i = 0; asp_compiled_input(c, i, &in); i++) {
        int64_t *x = malloc((size_t)in.bytes);
        if (!x) exit(1);
        for (int64_t j = 0; j < in.bytes / 8; j++) {
            seed = seed * 1664525u + 1013904223u;
            x[j] = (int64_t)(seed >> 8) % vocab;
        }
        check(cx, asp_trainer_input(t, in.name, x, (size_t)in.bytes));
        free(x);
    }
    pairs_step(cx, t);
    return t;
}

double pairs_step(asp_ctx *cx, asp_trainer *t)
{
    double loss;
    const double start = seconds();
    check(cx, asp_trainer_step(t, &loss));
    return seconds() - start;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pairs_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

// Order statistics that enclose the median: binomial, n / 2 -+ 0.98 sqrt n.
static int below(int n)
{
    const int k = (int)floor(n / 2.0 - 0.98 * sqrt(n));
    return k < 0 ? 0 : k;
}

pairs pairs_time(asp_ctx *cx, asp_trainer *a, asp_trainer *b, int n)
{
    double x[PAIRS_MOST], y[PAIRS_MOST], r[PAIRS_MOST];
    for (int i = 0; i < n; i++) {
        if (i % 2) y[i] = pairs_step(cx, b);
        x[i] = pairs_step(cx, a);
        if (i % 2 == 0) y[i] = pairs_step(cx, b);
        r[i] = x[i] / y[i];
    }
    pairs p = {.ratio = pairs_median(r, n)};
    p.low = r[below(n)];
    p.high = r[n - 1 - below(n)];
    p.a_ms = 1e3 * pairs_median(x, n);
    p.b_ms = 1e3 * pairs_median(y, n);
    return p;
}
