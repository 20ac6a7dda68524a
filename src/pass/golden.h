// Golden tests: graph text in, graph text or a message out.  Neighbours: pass.h (the runner),
// tests/golden/ (the files), tests/golden_test.c and cli (who run them).
//
//   # passes: place,shard          the pipeline
//   # ranks: 2                     options, each optional: ranks, sp, ac, dtype (f32, f64, bf16),
//   master, # env: S = 4096, B = 1         env (what symbols are) graph g { ... } input
//   ----
//   graph g ranks 2 { ... }        output; or one line: error unsupported: message
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass/pass.h"

// Runs one file's text.  out_actual gets the file as it should be: header and input unchanged, then
// the actual output.  ASP_ERR_CHECK names the first line that differs; ASP_ERR_INPUT a malformed
// header.  file is for messages.
asp_status asp_golden_run(asp_ctx *cx, const char *file, const char *text, size_t n,
                          asp_text *out_actual);
