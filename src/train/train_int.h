// Shared inside src/train only.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/safetensors.h"
#include "train/train.h"

// Every parameter's tensor of the plan, by its name behind a prefix, into a slab.
asp_status asp_train_load_slab(asp_arena *a, void *slab, const asp_plan *p, const char *prefix,
                               const asp_safetensors *s);
