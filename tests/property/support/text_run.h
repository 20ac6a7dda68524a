// One training step of a program given as graph text, on thread ranks: the loss and the gradient of
// every parameter by name, for tests that compare ranks with one device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/train.h"

// Numbers for a parameter or an input of this name; a list of them ends with no name.
typedef struct text_value {
    const char *name;
    int64_t count;
    const double *at;
} text_value;

// Same seed, same parameters and inputs for every number of ranks (filled by name and index).
typedef struct text_case {
    const char *text; // a module graph; inputs: i64 tokens, labels and others
    int64_t ranks, batch, seq;
    int threads;
    int64_t tile; // rows of a chunk; 0: none
    const char *sp, *ac;
    asp_dtype dtype; // bf16: of an f32 program
    uint64_t seed;
    int64_t vocab;           // ids are below; every fifth label or so is ignored
    double nudge;            // parameters are multiplied by numbers within this of 1; 0: none
    int64_t empty_from;      // labels from this token on are all ignored; 0: none
    const text_value *given; // instead of what is filled in; NULL: none
    bool update;             // and a step of each optimizer
    const char *moved;       // this parameter's element moved_at has moved_by added; NULL: none
    int64_t moved_at;
    double moved_by;
} text_case;

typedef struct text_gradient {
    char name[64];
    int64_t count;
    double *at;          // owned
    double *sgd, *adamw; // the parameter behind a step of each; owned, NULL without update
} text_gradient;

typedef struct text_result {
    asp_status status; // of compiling or running; the message is in `message`
    char message[512];
    double loss;
    bool ranks_agree; // loss, every gradient and updated parameter bit for bit
    int n;
    text_gradient grad[64];
    asp_plan_report report;
} text_result;

text_result text_run(const text_case *c);
void text_free(text_result *r);
// max over parameters of |a - b| / max(|a|, 0.01 |all of a|); NaN where either is not finite.
double text_gradient_error(const text_result *a, const text_result *b);
// The same of the parameters behind a step of either optimizer.
double text_update_error(const text_result *a, const text_result *b);
