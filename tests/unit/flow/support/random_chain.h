// Random chains of values, forward and backward, for tests of choices under a budget.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "unit/flow/support/remat_builder.h"

// n values one behind the other, some of which also read the one before the last; the backward
// reads what it happens to need.  Bytes and times are random, the same for the same seed.
void random_chain(remat_builder *b, asp_ctx *cx, asp_arena *a, uint32_t seed, uint32_t n);
