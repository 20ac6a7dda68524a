// Between hfconfig.c (reads), hfconfig_write.c (writes) and hftensor.c: the rows of hfconfig.def as
// tables.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/hfconfig.h"

// Sets of families, a bit each.
enum {
#define FAMILY(type, architecture, layers, windows) ASP_HF_BIT_##type = 1 << ASP_HF_##type,
#include "io/hfconfig.def"
    ASP_HF_ALL = (2 << ASP_HF_gpt2) - 1,
};
#define LLAMA ASP_HF_BIT_llama
#define MISTRAL ASP_HF_BIT_mistral
#define QWEN2 ASP_HF_BIT_qwen2
#define QWEN3 ASP_HF_BIT_qwen3
#define GEMMA2 ASP_HF_BIT_gemma2
#define GPT2 ASP_HF_BIT_gpt2
#define ALL ASP_HF_ALL
#define DECODERS (ALL & ~GPT2)

enum { ASP_HF_N_FAMILIES = ASP_HF_gpt2 + 1 };

// Which layers see a window when no list says so.
typedef enum asp_hf_windows {
    ASP_HF_WINDOWS_NONE,
    ASP_HF_WINDOWS_ALL,
    ASP_HF_WINDOWS_LATE,
    ASP_HF_WINDOWS_EVEN,
} asp_hf_windows;

typedef struct asp_hf_family_info {
    const char *model_type, *architecture;
    const char *layers; // what names of a layer's tensors begin with
    asp_hf_windows windows;
} asp_hf_family_info;
extern const asp_hf_family_info asp_hf_families[ASP_HF_N_FAMILIES];

typedef enum asp_hf_key_kind { ASP_HF_NUMBER, ASP_HF_REAL, ASP_HF_FLAG } asp_hf_key_kind;

// A key that is one field.
typedef struct asp_hf_key {
    asp_hf_key_kind kind;
    int families;
    const char *key;
    size_t offset;         // of the field in asp_hf_config
    int64_t number, most;  // NUMBER: standard (-1: required) and the largest
    double real, from, to; // REAL: standard (FLAG: 0 or 1) and bounds
    bool open;             // from itself is out of bounds
    bool optional;         // null is 0: none
    const char *wanted;    // REAL: the bounds in words
} asp_hf_key;
extern const asp_hf_key asp_hf_keys[]; // ends with a NULL key

// Names of activations in config.json; an activation's first is written.
typedef struct asp_hf_act_name {
    const char *name;
    asp_hf_act act;
} asp_hf_act_name;
extern const asp_hf_act_name asp_hf_act_names[]; // ends with NULL
typedef struct asp_hf_act_key {
    int families;
    const char *key, *standard;
} asp_hf_act_key;
extern const asp_hf_act_key asp_hf_act_keys[]; // the row of a family is the first with its bit

// The sum over all tensors.
double asp_hf_count_parameters(const asp_hf_config *c);
