// config.json written back, and the tensors of a model: names and shapes as transformers has them.
// Neighbours: hfconfig.h (contract), hfconfig.c (reads).
// SPDX-License-Identifier: Apache-2.0
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

void asp_hf_config_write(asp_text *t, const asp_hf_config *c)
{
    asp_put(t, "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
               "  \"torch_dtype\": \"float32\",\n  \"hidden_act\": \"silu\",\n"
               "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n");
    for (int i = 0; i < ASP_HF_N_NUMBERS; i++) {
        int64_t v;
        memcpy(&v, (const char *)c + asp_hf_numbers[i].offset, sizeof v);
        asp_put(t, "  \"%s\": %lld,\n", asp_hf_numbers[i].key, (long long)v);
    }
    put_real(t, "  \"rope_theta\": ", c->rope_theta, ",\n");
    put_real(t, "  \"rms_norm_eps\": ", c->rms_eps, ",\n");
    put_real(t, "  \"initializer_range\": ", c->initializer_range, ",\n");
    if (c->rope_llama3) {
        put_real(t, "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": ", c->rope_factor,
                 ", ");
        put_real(t, "\"low_freq_factor\": ", c->rope_low, ", ");
        put_real(t, "\"high_freq_factor\": ", c->rope_high, ", ");
        asp_put(t, "\"original_max_position_embeddings\": %lld},\n", (long long)c->rope_original);
    }
    asp_put(t, "  \"tie_word_embeddings\": %s\n}\n", c->tied ? "true" : "false");
}

// ---- tensors -------------------------------------------------------------------------------

static const struct {
    const char *name;
    bool norm;
} layer_tensors[] = {
    {"input_layernorm", true},   {"self_attn.q_proj", false}, {"self_attn.k_proj", false},
    {"self_attn.v_proj", false}, {"self_attn.o_proj", false}, {"post_attention_layernorm", true},
    {"mlp.gate_proj", false},    {"mlp.up_proj", false},      {"mlp.down_proj", false},
};
#define PER_LAYER ((int64_t)ASP_COUNT_OF(layer_tensors))

static void layer_shape(const asp_hf_config *c, int64_t which, asp_hf_tensor *t)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const int64_t dims[][2] = {{c->hidden, 0},
                               {q, c->hidden},
                               {kv, c->hidden},
                               {kv, c->hidden},
                               {c->hidden, q},
                               {c->hidden, 0},
                               {c->intermediate, c->hidden},
                               {c->intermediate, c->hidden},
                               {c->hidden, c->intermediate}};
    t->norm = layer_tensors[which].norm;
    t->rank = t->norm ? 1 : 2;
    memcpy(t->dim, dims[which], sizeof t->dim);
}

bool asp_hf_tensor_at(const asp_hf_config *c, int64_t i, asp_hf_tensor *out_tensor)
{
    asp_hf_tensor t = {.rank = 2, .dim = {c->vocab, c->hidden}};
    int64_t in_layers = i - 1, last = 1 + c->layers * PER_LAYER;
    if (i < 0 || i > last + (c->tied ? 0 : 1)) return false;
    if (i == 0)
        snprintf(t.name, sizeof t.name, "model.embed_tokens.weight");
    else if (i < last) {
        snprintf(t.name, sizeof t.name, "model.layers.%lld.%s.weight",
                 (long long)(in_layers / PER_LAYER), layer_tensors[in_layers % PER_LAYER].name);
        layer_shape(c, in_layers % PER_LAYER, &t);
    } else if (i == last) {
        snprintf(t.name, sizeof t.name, "model.norm.weight");
        t.norm = true;
        t.rank = 1;
        t.dim[0] = c->hidden;
    } else
        snprintf(t.name, sizeof t.name, "lm_head.weight");
    *out_tensor = t;
    return true;
}
