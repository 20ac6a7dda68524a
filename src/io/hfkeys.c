// The lists of hfconfig.def as tables.  Neighbours: hfconfig_int.h (contract), hfconfig.c and
// hfconfig_write.c (who walk them).  SPDX-License-Identifier: Apache-2.0
#include "io/hfconfig_int.h"

#include <math.h>

const asp_hf_family_info asp_hf_families[ASP_HF_N_FAMILIES] = {
#define FAMILY(type, architecture, layers, windows) \
    {#type, architecture, layers, ASP_HF_WINDOWS_##windows},
#include "io/hfconfig.def"
};

static const int trait_families[] = {
#define TRAIT(name, families) families,
#include "io/hfconfig.def"
};

bool asp_hf_is(const asp_hf_config *c, asp_hf_trait trait)
{
    return trait_families[trait] >> c->family & 1;
}

const char *asp_hf_model_type(const asp_hf_config *c)
{
    return asp_hf_families[c->family].model_type;
}

#define REQUIRED (-1)
#define BELOW_1 0x1.fffffffffffffp-1
#define WHOLE(of, name, field, number, max, none)                                     \
    {ASP_HF_NUMBER, of,   name, offsetof(asp_hf_config, field), number, max, 0, 0, 0, \
     false,         none, NULL},
#define DECIMAL(of, name, field, real, from, open, to, wanted, none)                 \
    {ASP_HF_REAL, of,   name,  offsetof(asp_hf_config, field), 0, 0, real, from, to, \
     open,        none, wanted},

const asp_hf_key asp_hf_keys[] = {
#define NUMBER(of, name, field, number, max) WHOLE(of, name, field, number, max, false)
#define OPTIONAL(of, name, field, number, max) WHOLE(of, name, field, number, max, true)
#include "io/hfconfig.def"
#define REAL(of, name, field, real, from, open, to, wanted) \
    DECIMAL(of, name, field, real, from, open, to, wanted, false)
#define OPTIONAL_REAL(of, name, field, real, from, open, to, wanted) \
    DECIMAL(of, name, field, real, from, open, to, wanted, true)
#include "io/hfconfig.def"
#define FLAG(of, name, field, standard)                                              \
    {ASP_HF_FLAG, of,    name, offsetof(asp_hf_config, field), 0, 0, standard, 0, 0, \
     false,       false, NULL},
#include "io/hfconfig.def"
    {.key = NULL},
};

const asp_hf_act_name asp_hf_act_names[] = {
    {"silu", ASP_HF_SILU},          {"gelu", ASP_HF_GELU}, {"gelu_pytorch_tanh", ASP_HF_GELU_TANH},
    {"gelu_new", ASP_HF_GELU_TANH}, {"relu", ASP_HF_RELU}, {NULL, ASP_HF_SILU},
};

const asp_hf_act_key asp_hf_act_keys[] = {
#define ACT(families, key, standard) {families, key, standard},
#include "io/hfconfig.def"
};
