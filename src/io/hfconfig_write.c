// config.json written back: transformers reads the same model.  Neighbours: hfconfig.h (contract),
// hfconfig.c (reads), hfkeys.c (the keys).  SPDX-License-Identifier: Apache-2.0
#include "io/hfconfig_int.h"

// A short decimal that reads back to v, with a point or an exponent: transformers tells whole
// numbers from reals.
static void put_real(asp_text *t, const char *before, double v, const char *after)
{
    size_t at = t->n + strlen(before);
    asp_put(t, "%s", before);
    asp_put_f64(t, 6, v);
    asp_put(t, "%s%s", strpbrk(t->at + at, ".e") ? "" : ".0", after);
}

static void put_activation(asp_text *t, const asp_hf_config *c)
{
    const asp_hf_act_name *a = asp_hf_act_names;
    const asp_hf_act_key *k = asp_hf_act_keys;
    while (a->act != c->act) a++;
    while (!(k->families >> c->family & 1)) k++;
    asp_put(t, "  \"%s\": \"%s\",\n", k->key, a->name);
}

static void put_key(asp_text *t, const asp_hf_config *c, const asp_hf_key *k)
{
    const char *at = (const char *)c + k->offset;
    int64_t number;
    double real;
    bool flag;
    asp_put(t, "  \"%s\": ", k->key);
    switch (k->kind) {
    case ASP_HF_NUMBER:
        memcpy(&number, at, sizeof number);
        if (k->optional && number == 0)
            asp_put(t, "null,\n");
        else
            asp_put(t, "%lld,\n", (long long)number);
        break;
    case ASP_HF_REAL:
        memcpy(&real, at, sizeof real);
        if (k->optional && !(real > 0))
            asp_put(t, "null,\n");
        else
            put_real(t, "", real, ",\n");
        break;
    case ASP_HF_FLAG:
        memcpy(&flag, at, sizeof flag);
        asp_put(t, "%s,\n", flag ? "true" : "false");
        break;
    }
}

static void put_windows(asp_text *t, const asp_hf_config *c)
{
    const asp_hf_windows kind = asp_hf_families[c->family].windows;
    int64_t first = 0;
    if (kind == ASP_HF_WINDOWS_NONE || kind == ASP_HF_WINDOWS_ALL) return;
    while (first < c->layers && !asp_hf_is_windowed(c, first)) first++;
    if (kind == ASP_HF_WINDOWS_LATE)
        asp_put(t, "  \"use_sliding_window\": %s,\n  \"max_window_layers\": %lld,\n",
                c->window ? "true" : "false", (long long)first);
    asp_put(t, "  \"layer_types\": [");
    for (int64_t i = 0; i < c->layers; i++)
        asp_put(t, "%s\"%s_attention\"", i ? ", " : "",
                asp_hf_is_windowed(c, i) ? "sliding" : "full");
    asp_put(t, "],\n");
}

static void put_llama3(asp_text *t, const asp_hf_config *c)
{
    put_real(t, "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": ", c->rope_factor,
             ", ");
    put_real(t, "\"low_freq_factor\": ", c->rope_low, ", ");
    put_real(t, "\"high_freq_factor\": ", c->rope_high, ", ");
    asp_put(t, "\"original_max_position_embeddings\": %lld},\n", (long long)c->rope_original);
}

void asp_hf_config_write(asp_text *t, const asp_hf_config *c)
{
    const asp_hf_family_info *f = &asp_hf_families[c->family];
    asp_put(t, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n", f->architecture,
            f->model_type);
    put_activation(t, c);
    for (const asp_hf_key *k = asp_hf_keys; k->key; k++)
        if (k->families >> c->family & 1) put_key(t, c, k);
    put_windows(t, c);
    if (c->rope_llama3) put_llama3(t, c);
    asp_put(t, "  \"torch_dtype\": \"float32\"\n}\n");
}
