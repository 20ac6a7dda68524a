// Between probe.c and probe_isa.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/probe.h"

typedef double asp_fma_loop_fn(int64_t n, float *out);
asp_fma_loop_fn asp_fma_loop_generic, asp_fma_loop_avx2, asp_fma_loop_avx512;
asp_fma_loop_fn asp_pairs_loop_avx512_bf16; // where asp_isa_has_bf16
