// config.json of the llama family: what is not known to give the same model is refused by name.
// Neighbours: hfconfig.h (contract), hfconfig_write.c (back, and the tensors), base/json.h.
// SPDX-License-Identifier: Apache-2.0
#include "io/hfconfig_int.h"
#include "base/file.h"
#include "base/json.h"

#define MAX_CONFIG_BYTES ((size_t)1 << 20)

typedef struct reader {
    asp_ctx *cx;
    const char *path;
    const json_t *o;
    asp_hf_config *c;
} reader;

// Bounds keep every product of two sizes inside 63 bits; check_total the rest.
const asp_hf_number asp_hf_numbers[ASP_HF_N_NUMBERS] = {
    {"vocab_size", offsetof(asp_hf_config, vocab), -1, 1 << 24},
    {"hidden_size", offsetof(asp_hf_config, hidden), -1, 1 << 20},
    {"num_hidden_layers", offsetof(asp_hf_config, layers), -1, 4096},
    {"num_attention_heads", offsetof(asp_hf_config, heads), -1, 1 << 16},
    {"num_key_value_heads", offsetof(asp_hf_config, kv_heads), 0, 1 << 16},
    {"head_dim", offsetof(asp_hf_config, head_dim), 0, 1 << 16},
    {"intermediate_size", offsetof(asp_hf_config, intermediate), -1, 1 << 22},
    {"max_position_embeddings", offsetof(asp_hf_config, max_positions), 2048, INT64_C(1) << 40},
};

// NULL when it is absent or null.
static const json_t *member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static asp_status read_numbers(const reader *r)
{
    for (int i = 0; i < ASP_HF_N_NUMBERS; i++) {
        const asp_hf_number *n = &asp_hf_numbers[i];
        int64_t v;
        ASP_TRY(
            asp_json_i64(r->cx, r->path, r->o, n->key, n->standard < 0 ? NULL : &n->standard, &v));
        if (v > n->max || v < (member(r->o, n->key) ? 1 : 0))
            return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"%s\" is %lld; 1 to %lld are possible",
                            r->path, n->key, (long long)v, (long long)n->max);
        memcpy((char *)r->c + n->offset, &v, sizeof v);
    }
    return ASP_OK;
}

static asp_status refuse(const reader *r, const char *key, const char *value, const char *known)
{
    return asp_fail(r->cx, ASP_ERR_UNSUPPORTED, "%s: \"%s\" is \"%s\"; %s", r->path, key, value,
                    known);
}

#define KNOWN "the architectures known here are: llama (LlamaForCausalLM)"

static asp_status check_architecture(const reader *r)
{
    const json_t *list = member(r->o, "architectures");
    const char *type;
    ASP_TRY(asp_json_str(r->cx, r->path, r->o, "model_type", NULL, &type));
    if (strcmp(type, "llama") != 0) return refuse(r, "model_type", type, KNOWN);
    if (!list) return ASP_OK;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!json_is_array(list) || (json_array_size(list) > 0 && !name))
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"architectures\" must be a list of strings",
                        r->path);
    if (name && strcasecmp(name, "LlamaForCausalLM") != 0) // early conversions wrote LLaMA
        return refuse(r, "architectures", name, KNOWN);
    return ASP_OK;
}

// Keys that would change the model if they had another value than this.
static asp_status check_only(const reader *r, const char *where, const json_t *o)
{
    static const struct {
        const char *key;
        double only;
    } rows[] = {{"attention_dropout", 0}, {"partial_rotary_factor", 1}};
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        double v;
        ASP_TRY(asp_json_f64(r->cx, where, o, rows[i].key, &rows[i].only, &v));
        if (v < rows[i].only || v > rows[i].only)
            return asp_fail(r->cx, ASP_ERR_UNSUPPORTED, "%s: \"%s\" is %g; only %g is built", where,
                            rows[i].key, v, rows[i].only);
    }
    return ASP_OK;
}

static asp_status check_family(const reader *r)
{
    static const char *const biases[] = {"attention_bias", "mlp_bias"};
    const char *act;
    ASP_TRY(check_architecture(r));
    ASP_TRY(asp_json_str(r->cx, r->path, r->o, "hidden_act", "silu", &act));
    if (strcmp(act, "silu") != 0)
        return refuse(r, "hidden_act", act, "only silu is known for llama");
    for (size_t i = 0; i < ASP_COUNT_OF(biases); i++) {
        bool bias, none = false;
        ASP_TRY(asp_json_bool(r->cx, r->path, r->o, biases[i], &none, &bias));
        if (bias)
            return asp_fail(r->cx, ASP_ERR_UNSUPPORTED,
                            "%s: \"%s\" is true; projections with a bias are not built", r->path,
                            biases[i]);
    }
    if (member(r->o, "quantization_config"))
        return asp_fail(r->cx, ASP_ERR_UNSUPPORTED,
                        "%s: \"quantization_config\" is given; only f32, f64, bf16 and f16 weights "
                        "can be trained",
                        r->path);
    return check_only(r, r->path, r->o);
}

static asp_status read_llama3(const reader *r, const char *where, const json_t *s)
{
    asp_hf_config *c = r->c;
    c->rope_llama3 = true;
    ASP_TRY(asp_json_f64(r->cx, where, s, "factor", NULL, &c->rope_factor));
    ASP_TRY(asp_json_f64(r->cx, where, s, "low_freq_factor", NULL, &c->rope_low));
    ASP_TRY(asp_json_f64(r->cx, where, s, "high_freq_factor", NULL, &c->rope_high));
    ASP_TRY(
        asp_json_i64(r->cx, where, s, "original_max_position_embeddings", NULL, &c->rope_original));
    if (c->rope_factor >= 1 && c->rope_low > 0 && c->rope_high > c->rope_low &&
        c->rope_original >= 1)
        return ASP_OK;
    return asp_fail(r->cx, ASP_ERR_INPUT,
                    "%s: llama3 needs factor >= 1, 0 < low_freq_factor < high_freq_factor and a "
                    "positive original_max_position_embeddings",
                    where);
}

// rope_scaling, or rope_parameters as newer files call it, which holds rope_theta too.
static asp_status read_scaling(const reader *r)
{
    const json_t *old = member(r->o, "rope_scaling"), *newer = member(r->o, "rope_parameters");
    const json_t *s = newer ? newer : old;
    const char *key = newer ? "rope_parameters" : "rope_scaling", *type;
    char where[512];
    snprintf(where, sizeof where, "%.400s: in \"%s\"", r->path, key);
    if (!s) return ASP_OK;
    if (old && newer && !json_equal(old, newer))
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: \"rope_scaling\" and \"rope_parameters\" differ; give one", r->path);
    if (!json_is_object(s))
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"%s\" must be an object or null", r->path, key);
    const char *type_key = member(s, "rope_type") ? "rope_type" : "type";
    ASP_TRY(asp_json_str(r->cx, where, s, type_key, "default", &type));
    double theta = r->c->rope_theta;
    ASP_TRY(asp_json_f64(r->cx, where, s, "rope_theta", &theta, &r->c->rope_theta));
    ASP_TRY(check_only(r, where, s));
    if (strcmp(type, "default") == 0) return ASP_OK;
    if (strcmp(type, "llama3") == 0) return read_llama3(r, where, s);
    return asp_fail(r->cx, ASP_ERR_UNSUPPORTED,
                    "%s: \"%s\" is \"%s\"; the rope scalings known here are: default, llama3",
                    where, type_key, type);
}

static asp_status check_real(const reader *r, const char *key, double v, bool fine,
                             const char *wanted)
{
    if (fine) return ASP_OK;
    return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"%s\" is %g; it must be %s", r->path, key, v,
                    wanted);
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
    ASP_TRY(read_scaling(r));
    ASP_TRY(check_real(r, "rope_theta", c->rope_theta, c->rope_theta > 1, "above 1"));
    ASP_TRY(check_real(r, "rms_norm_eps", c->rms_eps, c->rms_eps > 0 && c->rms_eps < 1,
                       "between 0 and 1"));
    return check_real(r, "initializer_range", c->initializer_range,
                      c->initializer_range >= 0 && c->initializer_range <= 100, "0 to 100");
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
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: num_attention_heads %lld is not a multiple of num_key_value_heads "
                        "%lld; each K/V head serves as many query heads",
                        r->path, (long long)c->heads, (long long)c->kv_heads);
    if (c->head_dim > 1 << 16)
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: hidden_size / num_attention_heads makes heads of %lld; 65536 are "
                        "possible: give \"head_dim\" or more heads",
                        r->path, (long long)c->head_dim);
    if (c->head_dim % 2 != 0)
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: head_dim %lld is odd; rotary positions turn pairs", r->path,
                        (long long)c->head_dim);
    return ASP_OK;
}

// Sums over the model, of bytes and of their multiples in training, stay inside 63 bits.
static asp_status check_total(const reader *r)
{
    const asp_hf_config *c = r->c;
    double hidden = (double)c->hidden, q = (double)c->heads * (double)c->head_dim,
           kv = (double)c->kv_heads * (double)c->head_dim, inter = (double)c->intermediate;
    double total = (double)c->vocab * hidden * (c->tied ? 1 : 2) +
                   (double)c->layers * hidden * (2 * q + 2 * kv + 3 * inter + 2);
    if (total <= 0x1p50) return ASP_OK;
    return asp_fail(r->cx, ASP_ERR_INPUT,
                    "%s: these sizes make a model of %.3g parameters; at most %.3g are possible",
                    r->path, total, 0x1p50);
}

static asp_status read_all(const reader *r)
{
    ASP_TRY(check_family(r));
    ASP_TRY(read_numbers(r));
    ASP_TRY(read_reals(r));
    ASP_TRY(finish(r));
    return check_total(r);
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
