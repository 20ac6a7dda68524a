// Matrix products of bf16 by oneDNN's primitive.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/op.h"

// Seconds of the second of two runs of C (m x n, f32 for gemm_tn, else bf16) = A B as op says, on
// the calling thread's OpenMP region of `threads`; negative where this build has no oneDNN 2, or it
// refuses.
double support_onednn_bf16(asp_op op, int64_t m, int64_t n, int64_t k, int threads, void *a,
                           void *b, void *c);
