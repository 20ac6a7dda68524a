// How thinly a test draws from a grid where a program takes ten times as long.
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The step of a loop over a grid: one point in `one_in` under sanitizers, each elsewhere.
#ifdef ASP_SANITIZED
#define SPARSE(one_in) (one_in)
#else
#define SPARSE(one_in) 1
#endif
