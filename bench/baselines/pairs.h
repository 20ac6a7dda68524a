// Two programs timed step by step in turn, so that what else a machine does falls on both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <autosp.h>

#define PAIRS_MOST 200

typedef struct pairs {
    double ratio;      // the median of a / b over the pairs
    double low, high;  // an interval that holds the median of all pairs with 95 %
    double a_ms, b_ms; // medians
} pairs;

// A trainer with random tokens in its inputs, one step done; exits with the message on failure.
asp_trainer *pairs_trainer(asp_ctx *cx, const asp_compiled *c, int64_t vocab);
double pairs_step(asp_ctx *cx, asp_trainer *t); // seconds
double pairs_median(double *x, int n);          // sorts x
// n pairs, each in the other order than the last; 6 <= n <= PAIRS_MOST.
pairs pairs_time(asp_ctx *cx, asp_trainer *a, asp_trainer *b, int n);
