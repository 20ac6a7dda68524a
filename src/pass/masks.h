// Between masks.c (predicates of attention) and manual.c (attention written by hand).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass/fold.h"
#include "pass/pass.h"

// Softmaxes of products that are attention become the op, their masks its bias operand.
asp_status asp_find_manual_attention(asp_pass *px, asp_folder *f);
