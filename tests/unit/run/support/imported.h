// Programs that were read from a file, compiled and stepped once with values that depend on names
// and indices alone: what the tests of imported graphs compare.  SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "front/front.h"
#include "run/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

typedef struct imported {
    const char *path;
    int64_t ranks, seq;      // seq 0: the file's example
    int64_t other;           // value of symbols other than S, where seq is given
    const char *sp, *ac;     // NULL: "auto", "none"
    const char *print_after; // a pass, or NULL
} imported;

typedef struct imported_result {
    double loss;
    int n_params;
    struct {
        char *name;
        int64_t count;
        double *gradient;
    } param[256];
    char *text; // of print_after
} imported_result;

// The status of a program that is refused, its message in cx; fails the test on nothing.
asp_status imported_run(asp_ctx *cx, const imported *how, imported_result *out);
void imported_free(imported_result *r);
// max over parameters of |a - b| / max(|a|, 0.01 |all of a|), and the name of the worst.
double imported_difference(const imported_result *a, const imported_result *b,
                           const char **out_worst);
