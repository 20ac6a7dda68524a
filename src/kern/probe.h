// What one core can do at most, to state rates as fractions.  Neighbours: probe_isa.c, bench/,
// cli (`autosp bench`).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/kern.h"

// Rate of fused multiply-adds in registers on the calling thread, 1e9 operations (two per fma) a
// second, best of a few rounds; about 50 ms.
double asp_probe_fma(asp_isa isa);
// Likewise of products of bf16 summed in f32, pair by pair; 0 where asp_isa_has_bf16 says no.
double asp_probe_bf16(void);
// Rate of a[i] = b[i] + s c[i] over the caller's three arrays of n floats, in 1e9 bytes a second
// (three arrays counted), best of a few rounds.  Arrays far above the last cache level measure
// memory.
double asp_probe_triad(float *a, const float *b, const float *c, int64_t n);
