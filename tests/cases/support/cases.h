// The acceptance cases sp_case_NN: one program on one device against numbers worked out by hand,
// then on 2, 4 and 8 ranks under every strategy against one device.
// Neighbours: property/support/text_run.h (one step of a program).  SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "property/support/text_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

// A row of `given` or `want`.
#define VALUES(name, ...)                                                                  \
    {                                                                                      \
        name, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]) { __VA_ARGS__ } \
    }

// The program: inputs %ids and %y (labels) : i64[B, S], %pos : i64[S] = iota, then body, which
// makes %loss : f64[].  ids count 0, 1, ... over the batch unless given, so that an embedding of
// them is an input whose gradient is that of its table.
typedef struct sp_case {
    const char *body;
    int64_t batch, seq;
    const char *ac;       // NULL: "none"
    uint64_t seed;        // of what is not given
    int64_t vocab;        // of labels that are not given
    bool random_ids;      // below vocab
    text_value given[12]; // parameters and inputs; the last is empty
    double loss;          // by hand; NaN: not worked out
    text_value want[12];  // gradients by hand
    const char *no_ring;  // a ring is refused with these words
    int64_t max_ranks;    // 0: 8 (4 under sanitizers)
    bool nan;             // the loss is NaN on every rank, gradients as wanted
} sp_case;

// Fails the test unless all is equal: loss, gradients and parameters behind a step of SGD and of
// AdamW to 1e-12, bits among ranks.
void sp_check(const sp_case *c);
// One step on `ranks` ranks; the caller frees it.  Fails the test when it does not run.
text_result sp_run(const sp_case *c, int64_t ranks, const char *sp);
// The gradient of this name.
const text_gradient *sp_gradient(const text_result *r, const char *name);
// Equal loss, gradients and parameters behind a step, to 1e-12; `what` for the message.
void sp_equal(const text_result *one, const text_result *other, const char *what);

// Ranks and strategies: call(c, ranks, sp) for each that applies, one device left out.
typedef struct sp_strategy {
    const char *sp;
    int64_t ranks; // only on so many; 0: any
} sp_strategy;
extern const sp_strategy sp_strategies[]; // ends with no name
