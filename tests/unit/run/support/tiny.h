// Small Llamas compiled and stepped once: what the tests of run/ and train/ compare.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "front/front.h"
#include "run/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

typedef struct tiny {
    int64_t layers, heads, kv_heads, hidden, ffn, vocab;
    bool tied;
    asp_dtype dtype;
    int64_t batch, seq, ranks;
    int threads;
    const char *ac, *sp;
    int64_t tile;   // rows of a chunk; 0: nothing is tiled
    int64_t memory; // of ac "budget"
    const char *offload;
    bool skip_sp;
    bool unfused;       // every op runs alone
    bool quick;         // the graph is not verified after each pass
    int steps;          // how often it runs, over the same memory
    int64_t window;     // keys that a query sees; 0: all before it
    const char *labels; // "all", "uneven", "empty-shard", "none": which targets count
} tiny;

// The parameters as set: the same for every way of running the same model.  gradients: slab_count
// doubles; loss of every rank equal.
typedef struct tiny_result {
    double loss;
    int64_t count;
    double *gradients; // malloc
    asp_plan_report report;
    asp_comm_counts counted;
    int64_t offloaded; // bytes, written and read
    int n_params;
    int64_t offset[256], length[256];
} tiny_result;

tiny tiny_default(void);
asp_plan *tiny_plan(asp_ctx *cx, const tiny *t); // fails the test when that fails
// nudge: add `by` to parameter element `element` (index into the slab) before the step; -1: none.
tiny_result tiny_run(const tiny *t, int64_t element, double by);
void tiny_free(tiny_result *r);
// max over parameters of |a - b| / max(|a|, 0.01 |all of a|)
double tiny_gradient_error(const tiny_result *a, const tiny_result *b);
