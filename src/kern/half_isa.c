// Runs of bf16 to f32 and back, one source for every level.  Neighbours: half.h (the vectors),
// half_ops.h (the table).  SPDX-License-Identifier: Apache-2.0
#include "kern/half.h"
#include "kern/half_ops.h"

static void widen(const uint16_t *from, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + ASP_VF <= n; i += ASP_VF) asp_vf_store(to + i, asp_vf_load_half(from + i));
    for (; i < n; i++) to[i] = asp_from_bf16(from[i]);
}

static void narrow(const float *from, int64_t n, uint16_t *to)
{
    int64_t i = 0;
    for (; i + ASP_VF <= n; i += ASP_VF) asp_vf_store_half(to + i, asp_vf_load(from + i));
    for (; i < n; i++) to[i] = asp_to_bf16(from[i]);
}

const asp_half_ops ASP_ISA_NAME(asp_half_ops) = {widen, narrow};
