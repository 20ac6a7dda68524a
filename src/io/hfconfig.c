// config.json of the llama family.  Neighbours: hfconfig.h (contract), base/json.h.
// SPDX-License-Identifier: Apache-2.0
#include "io/hfconfig.h"
#include "base/file.h"
#include "base/json.h"

#define MAX_CONFIG_BYTES ((size_t)1 << 20)

typedef struct reader {
    asp_ctx *cx;
    const char *path;
    const json_t *o;
    asp_hf_config *c;
} reader;

// Whole numbers: key, where it goes, its standard (-1: required), bounds.  Bounds keep every
// product of sizes inside 63 bits.
static const struct {
    const char *key;
    size_t offset;
    int64_t standard, max;
} numbers[] = {
    {"vocab_size", offsetof(asp_hf_config, vocab), -1, 1 << 24},
    {"hidden_size", offsetof(asp_hf_config, hidden), -1, 1 << 20},
    {"num_hidden_layers", offsetof(asp_hf_config, layers), -1, 4096},
    {"num_attention_heads", offsetof(asp_hf_config, heads), -1, 1 << 16},
    {"num_key_value_heads", offsetof(asp_hf_config, kv_heads), 0, 1 << 16},
    {"head_dim", offsetof(asp_hf_config, head_dim), 0, 1 << 16},
    {"intermediate_size", offsetof(asp_hf_config, intermediate), -1, 1 << 22},
    {"max_position_embeddings", offsetof(asp_hf_config, max_positions), 2048, INT64_C(1) << 40},
};

static asp_status read_numbers(const reader *r)
{
    for (size_t i = 0; i < ASP_COUNT_OF(numbers); i++) {
        int64_t v, standard = numbers[i].standard;
        ASP_TRY(asp_json_i64(r->cx, r->path, r->o, numbers[i].key, standard < 0 ? NULL : &standard,
                             &v));
        bool given = json_object_get(r->o, numbers[i].key) &&
                     !json_is_null(json_object_get(r->o, numbers[i].key));
        if (v > numbers[i].max || v < (given ? 1 : 0))
            return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"%s\" is %lld; 1 to %lld are possible",
                            r->path, numbers[i].key, (long long)v, (long long)numbers[i].max);
        memcpy((char *)r->c + numbers[i].offset, &v, sizeof v);
    }
    return ASP_OK;
}

static asp_status refuse(const reader *r, const char *key, const char *value, const char *known)
{
    return asp_fail(r->cx, ASP_ERR_UNSUPPORTED, "%s: \"%s\" is \"%s\"; %s", r->path, key, value,
                    known);
}

static asp_status check_family(const reader *r)
{
    const char *type, *act;
    ASP_TRY(asp_json_str(r->cx, r->path, r->o, "model_type", NULL, &type));
    if (strcmp(type, "llama") != 0)
        return refuse(r, "model_type", type, "the architectures known here are: llama");
    ASP_TRY(asp_json_str(r->cx, r->path, r->o, "hidden_act", "silu", &act));
    if (strcmp(act, "silu") != 0)
        return refuse(r, "hidden_act", act, "only silu is known for llama");
    static const char *const biases[] = {"attention_bias", "mlp_bias"};
    for (size_t i = 0; i < ASP_COUNT_OF(biases); i++) {
        bool bias, none = false;
        ASP_TRY(asp_json_bool(r->cx, r->path, r->o, biases[i], &none, &bias));
        if (bias) return refuse(r, biases[i], "true", "projections with a bias are not built yet");
    }
    return ASP_OK;
}

static asp_status read_scaling(const reader *r, const json_t *s, const char *key)
{
    asp_hf_config *c = r->c;
    const char *type;
    if (!s || json_is_null(s)) return ASP_OK;
    if (!json_is_object(s))
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"%s\" must be an object or null", r->path, key);
    ASP_TRY(asp_json_str(r->cx, r->path, s, json_object_get(s, "rope_type") ? "rope_type" : "type",
                         "default", &type));
    double theta = c->rope_theta;
    ASP_TRY(asp_json_f64(r->cx, r->path, s, "rope_theta", &theta, &c->rope_theta));
    if (strcmp(type, "default") == 0) return ASP_OK;
    if (strcmp(type, "llama3") != 0)
        return refuse(r, key, type, "the rope scalings known here are: default, llama3");
    c->rope_llama3 = true;
    ASP_TRY(asp_json_f64(r->cx, r->path, s, "factor", NULL, &c->rope_factor));
    ASP_TRY(asp_json_f64(r->cx, r->path, s, "low_freq_factor", NULL, &c->rope_low));
    ASP_TRY(asp_json_f64(r->cx, r->path, s, "high_freq_factor", NULL, &c->rope_high));
    ASP_TRY(asp_json_i64(r->cx, r->path, s, "original_max_position_embeddings", NULL,
                         &c->rope_original));
    if (!(c->rope_factor >= 1) || !(c->rope_high > c->rope_low) || !(c->rope_low > 0) ||
        c->rope_original < 1)
        return asp_fail(
            r->cx, ASP_ERR_INPUT,
            "%s: \"%s\" needs factor >= 1, 0 < low_freq_factor < high_freq_factor and a positive "
            "original_max_position_embeddings",
            r->path, key);
    return ASP_OK;
}

static asp_status read_reals(const reader *r)
{
    asp_hf_config *c = r->c;
    const double theta = 10000, eps = 1e-6, range = 0.02;
    const bool untied = false;
    ASP_TRY(asp_json_f64(r->cx, r->path, r->o, "rope_theta", &theta, &c->rope_theta));
    ASP_TRY(asp_json_f64(r->cx, r->path, r->o, "rms_norm_eps", &eps, &c->rms_eps));
    ASP_TRY(asp_json_f64(r->cx, r->path, r->o, "initializer_range", &range, &c->initializer_range));
    ASP_TRY(asp_json_bool(r->cx, r->path, r->o, "tie_word_embeddings", &untied, &c->tied));
    ASP_TRY(read_scaling(r, json_object_get(r->o, "rope_scaling"), "rope_scaling"));
    ASP_TRY(read_scaling(r, json_object_get(r->o, "rope_parameters"), "rope_parameters"));
    if (!(c->rope_theta > 1) || !(c->rms_eps > 0) || !(c->initializer_range >= 0) ||
        c->initializer_range > 100)
        return asp_fail(
            r->cx, ASP_ERR_INPUT,
            "%s: rope_theta must be above 1, rms_norm_eps positive, initializer_range 0 to 100",
            r->path);
    return ASP_OK;
}

static asp_status finish(const reader *r)
{
    asp_hf_config *c = r->c;
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->head_dim == 0 && c->hidden % c->heads != 0)
        return asp_fail(
            r->cx, ASP_ERR_INPUT,
            "%s: hidden_size %lld is not a multiple of num_attention_heads %lld; give \"head_dim\"",
            r->path, (long long)c->hidden, (long long)c->heads);
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    if (c->heads % c->kv_heads != 0)
        return asp_fail(
            r->cx, ASP_ERR_INPUT,
            "%s: num_attention_heads %lld is not a multiple of num_key_value_heads %lld", r->path,
            (long long)c->heads, (long long)c->kv_heads);
    if (c->head_dim % 2 != 0)
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: head_dim %lld is odd; rotary positions turn pairs", r->path,
                        (long long)c->head_dim);
    return ASP_OK;
}

static asp_status read_all(const reader *r)
{
    ASP_TRY(check_family(r));
    ASP_TRY(read_numbers(r));
    ASP_TRY(read_reals(r));
    return finish(r);
}

asp_status asp_hf_config_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                               asp_hf_config *out_config)
{
    json_t *o;
    asp_hf_config c = {0};
    ASP_TRY(asp_json_parse(cx, file, text, bytes, &o));
    reader r = {.cx = cx, .path = file, .o = o, .c = &c};
    asp_status s = read_all(&r);
    json_decref(o);
    if (s == ASP_OK) *out_config = c;
    return s;
}

asp_status asp_hf_config_read(asp_ctx *cx, const char *path, asp_hf_config *out_config)
{
    asp_arena a;
    char *text = NULL;
    size_t bytes = 0;
    asp_arena_init(&a, cx);
    asp_status s = asp_file_read(&a, path, MAX_CONFIG_BYTES, &text, &bytes);
    if (s == ASP_OK) s = asp_hf_config_parse(cx, path, text, bytes, out_config);
    asp_arena_fini(&a);
    return s;
}

void asp_hf_config_write(asp_text *t, const asp_hf_config *c)
{
    asp_put(t, "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n  "
               "\"torch_dtype\": \"float32\",\n");
    asp_put(t,
            "  \"hidden_act\": \"silu\",\n  \"attention_bias\": false,\n  \"mlp_bias\": false,\n");
    for (size_t i = 0; i < ASP_COUNT_OF(numbers); i++) {
        int64_t v;
        memcpy(&v, (const char *)c + numbers[i].offset, sizeof v);
        asp_put(t, "  \"%s\": %lld,\n", numbers[i].key, (long long)v);
    }
    asp_put(
        t,
        "  \"rope_theta\": %.17g,\n  \"rms_norm_eps\": %.17g,\n  \"initializer_range\": %.17g,\n",
        c->rope_theta, c->rms_eps, c->initializer_range);
    if (c->rope_llama3)
        asp_put(t,
                "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %.17g, "
                "\"low_freq_factor\": %.17g, "
                "\"high_freq_factor\": %.17g, \"original_max_position_embeddings\": %lld},\n",
                c->rope_factor, c->rope_low, c->rope_high, (long long)c->rope_original);
    asp_put(t, "  \"tie_word_embeddings\": %s\n}\n", c->tied ? "true" : "false");
}

// ---- tensors
// -------------------------------------------------------------------------------------

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
