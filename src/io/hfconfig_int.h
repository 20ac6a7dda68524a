// Between hfconfig.c (reads) and hfconfig_write.c (writes): the whole numbers of config.json.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/hfconfig.h"

typedef struct asp_hf_number {
    const char *key;
    size_t offset;         // of the int64_t in asp_hf_config
    int64_t standard, max; // standard -1: required; 0: depends on others
} asp_hf_number;

enum { ASP_HF_N_NUMBERS = 8 };
extern const asp_hf_number asp_hf_numbers[ASP_HF_N_NUMBERS];
