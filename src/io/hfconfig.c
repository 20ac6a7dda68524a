// config.json: what is not known to give the same model is refused by name.  Neighbours: hfconfig.h
// (contract), hfconfig.def and hfkeys.c (families and keys), hfconfig_write.c (back), hftensor.c
// (names and shapes), base/json.h.  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "io/hfconfig_int.h"

#define MAX_CONFIG_BYTES ((size_t)1 << 20)

typedef struct reader {
    asp_ctx *cx;
    const char *path;
    const json_t *o;
    asp_hf_config *c;
} reader;

// NULL when it is absent or null.
static const json_t *member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static asp_status refuse(const reader *r, const char *key, const char *value, const char *known)
{
    return asp_fail(r->cx, ASP_ERR_UNSUPPORTED, "%s: \"%s\" is \"%s\"; %s", r->path, key, value,
                    known);
}

// ---- which family ------------------------------------------------------------------------------

static asp_status refuse_architecture(const reader *r, const char *key, const char *value)
{
    char known[512];
    int n = snprintf(known, sizeof known, "the architectures known here are: ");
    for (int i = 0; i < ASP_HF_N_FAMILIES; i++)
        n += snprintf(known + n, sizeof known - (size_t)n, "%s%s (%s)", i ? ", " : "",
                      asp_hf_families[i].model_type, asp_hf_families[i].architecture);
    return refuse(r, key, value, known);
}

static asp_status read_family(const reader *r)
{
    const json_t *list = member(r->o, "architectures");
    const char *type;
    int i = 0;
    ASP_TRY(asp_json_str(r->cx, r->path, r->o, "model_type", NULL, &type));
    while (i < ASP_HF_N_FAMILIES && strcmp(type, asp_hf_families[i].model_type) != 0) i++;
    if (i == ASP_HF_N_FAMILIES) return refuse_architecture(r, "model_type", type);
    r->c->family = (asp_hf_family)i;
    if (!list) return ASP_OK;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!json_is_array(list) || (json_array_size(list) > 0 && !name))
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"architectures\" must be a list of strings",
                        r->path);
    if (name && strcasecmp(name, asp_hf_families[i].architecture) != 0) // once LLaMA
        return refuse_architecture(r, "architectures", name);
    return ASP_OK;
}

// Keys that would change the model if they had another value than this.  where: for messages; o:
// the object they stand in.
static asp_status check_only(const reader *r, const char *where, const json_t *o)
{
    static const struct {
        int families;
        const char *key;
        double only;
        bool flag;
    } rows[] = {
#define ONLY(families, key, value) {families, key, value, false},
#define ONLY_FLAG(families, key, value) {families, key, value, true},
#include "io/hfconfig.def"
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        double v = rows[i].only;
        bool set = v > 0;
        if (!(rows[i].families >> r->c->family & 1)) continue;
        if (rows[i].flag) {
            ASP_TRY(asp_json_bool(r->cx, where, o, rows[i].key, &set, &set));
            v = set;
        } else
            ASP_TRY(asp_json_f64(r->cx, where, o, rows[i].key, &rows[i].only, &v));
        if (v >= rows[i].only && v <= rows[i].only) continue;
        if (rows[i].flag)
            return asp_fail(r->cx, ASP_ERR_UNSUPPORTED, "%s: \"%s\" is %s; only %s is built", where,
                            rows[i].key, set ? "true" : "false", set ? "false" : "true");
        return asp_fail(r->cx, ASP_ERR_UNSUPPORTED, "%s: \"%s\" is %g; only %g is built", where,
                        rows[i].key, v, rows[i].only);
    }
    return ASP_OK;
}

static asp_status read_activation(const reader *r)
{
    const asp_hf_act_key *k = asp_hf_act_keys;
    const char *name;
    while (!(k->families >> r->c->family & 1)) k++;
    ASP_TRY(asp_json_str(r->cx, r->path, r->o, k->key, k->standard, &name));
    for (const asp_hf_act_name *a = asp_hf_act_names; a->name; a++) {
        if (strcmp(a->name, name) != 0) continue;
        r->c->act = a->act;
        return ASP_OK;
    }
    return refuse(r, k->key, name,
                  "the activations known here are: silu, gelu, gelu_pytorch_tanh, gelu_new, relu");
}

// ---- keys that are a field ---------------------------------------------------------------------

static asp_status read_number(const reader *r, const asp_hf_key *k, bool none)
{
    int64_t v = 0;
    if (!none)
        ASP_TRY(asp_json_i64(r->cx, r->path, r->o, k->key, k->number < 0 ? NULL : &k->number, &v));
    if (v > k->most || v < (member(r->o, k->key) ? 1 : 0))
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"%s\" is %lld; 1 to %lld are possible", r->path,
                        k->key, (long long)v, (long long)k->most);
    memcpy((char *)r->c + k->offset, &v, sizeof v);
    return ASP_OK;
}

static asp_status read_real(const reader *r, const asp_hf_key *k, bool none)
{
    double v = 0;
    if (!none) {
        ASP_TRY(asp_json_f64(r->cx, r->path, r->o, k->key, &k->real, &v));
        if (v < k->from || v > k->to || (k->open && v <= k->from))
            return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"%s\" is %g; it must be %s", r->path,
                            k->key, v, k->wanted);
    }
    memcpy((char *)r->c + k->offset, &v, sizeof v);
    return ASP_OK;
}

static asp_status read_flag(const reader *r, const asp_hf_key *k, bool none)
{
    bool v = k->real > 0;
    (void)none;
    ASP_TRY(asp_json_bool(r->cx, r->path, r->o, k->key, &v, &v));
    memcpy((char *)r->c + k->offset, &v, sizeof v);
    return ASP_OK;
}

static asp_status read_keys(const reader *r)
{
    static asp_status (*const read[])(const reader *, const asp_hf_key *, bool) = {
        [ASP_HF_NUMBER] = read_number, [ASP_HF_REAL] = read_real, [ASP_HF_FLAG] = read_flag};
    for (const asp_hf_key *k = asp_hf_keys; k->key; k++)
        if (k->families >> r->c->family & 1)
            ASP_TRY(
                read[k->kind](r, k, k->optional && json_is_null(json_object_get(r->o, k->key))));
    return ASP_OK;
}

// ---- windows -----------------------------------------------------------------------------------

static void set_windowed(asp_hf_config *c, int64_t layer)
{
    c->windowed[layer / 8] |= (uint8_t)(1 << layer % 8);
}

static asp_status read_layer_types(const reader *r, const json_t *types, const char *missing)
{
    asp_hf_config *c = r->c;
    if (!json_is_array(types) || (int64_t)json_array_size(types) != c->layers)
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: \"layer_types\" must be a list with one string for each of the %lld "
                        "layers",
                        r->path, (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type && strcmp(type, "full_attention") == 0) continue;
        if (!type || strcmp(type, "sliding_attention") != 0)
            return refuse(r, "layer_types", type ? type : "not a string",
                          "the layers known here are: full_attention, sliding_attention");
        if (c->window == 0)
            return asp_fail(r->cx, ASP_ERR_INPUT,
                            "%s: \"layer_types\" has sliding_attention, but %s", r->path, missing);
        set_windowed(c, i);
    }
    return ASP_OK;
}

// Fills in windowed; window is 0 when no layer has one.
static asp_status read_windows(const reader *r)
{
    asp_hf_config *c = r->c;
    const asp_hf_windows kind = asp_hf_families[c->family].windows;
    const json_t *types = kind == ASP_HF_WINDOWS_ALL ? NULL : member(r->o, "layer_types");
    const char *missing = "\"sliding_window\" is null";
    int64_t from = 28;
    bool use = kind != ASP_HF_WINDOWS_LATE;
    if (kind == ASP_HF_WINDOWS_NONE) return ASP_OK;
    if (kind == ASP_HF_WINDOWS_LATE) {
        ASP_TRY(asp_json_bool(r->cx, r->path, r->o, "use_sliding_window", &use, &use));
        ASP_TRY(asp_json_i64(r->cx, r->path, r->o, "max_window_layers", &from, &from));
        if (!use) missing = "\"use_sliding_window\" is false";
    }
    if (from < 0)
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"max_window_layers\" is %lld; it is 0 or more",
                        r->path, (long long)from);
    if (!use) c->window = 0;
    if (types)
        ASP_TRY(read_layer_types(r, types, missing));
    else
        for (int64_t i = 0; c->window && i < c->layers; i++)
            if (kind == ASP_HF_WINDOWS_ALL || (kind == ASP_HF_WINDOWS_LATE && i >= from) ||
                (kind == ASP_HF_WINDOWS_EVEN && i % 2 == 0))
                set_windowed(c, i);
    bool any = false;
    for (int64_t i = 0; i < c->layers; i++) any = any || asp_hf_is_windowed(c, i);
    if (!any) c->window = 0;
    return ASP_OK;
}

// ---- rotary positions --------------------------------------------------------------------------

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
    if (r->c->rope_theta <= 1)
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: \"rope_theta\" is %g; it must be above 1", where,
                        r->c->rope_theta);
    ASP_TRY(check_only(r, where, s));
    if (strcmp(type, "default") == 0) return ASP_OK;
    if (strcmp(type, "llama3") == 0) return read_llama3(r, where, s);
    return asp_fail(r->cx, ASP_ERR_UNSUPPORTED,
                    "%s: \"%s\" is \"%s\"; the rope scalings known here are: default, llama3",
                    where, type_key, type);
}

// ---- the whole ---------------------------------------------------------------------------------

// Fills in what follows from other keys.
static asp_status finish(const reader *r)
{
    asp_hf_config *c = r->c;
    const bool rotary = asp_hf_is(c, ASP_HF_IS_rotary);
    if (c->intermediate == 0) c->intermediate = 4 * c->hidden;
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->head_dim == 0 && c->hidden % c->heads != 0)
        return asp_fail(r->cx, ASP_ERR_INPUT, "%s: %s %lld is not a multiple of %s %lld%s", r->path,
                        rotary ? "hidden_size" : "n_embd", (long long)c->hidden,
                        rotary ? "num_attention_heads" : "n_head", (long long)c->heads,
                        rotary ? "; give \"head_dim\"" : "");
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
    if (rotary && c->head_dim % 2 != 0)
        return asp_fail(r->cx, ASP_ERR_INPUT,
                        "%s: head_dim %lld is odd; rotary positions turn pairs", r->path,
                        (long long)c->head_dim);
    return ASP_OK;
}

// Sums over the model, of bytes and of their multiples in training, stay inside 63 bits.
static asp_status check_total(const reader *r)
{
    double total = asp_hf_count_parameters(r->c);
    if (total <= 0x1p50) return ASP_OK;
    return asp_fail(r->cx, ASP_ERR_INPUT,
                    "%s: these sizes make a model of %.3g parameters; at most %.3g are possible",
                    r->path, total, 0x1p50);
}

static asp_status read_all(const reader *r)
{
    ASP_TRY(read_family(r));
    ASP_TRY(read_activation(r));
    if (member(r->o, "quantization_config"))
        return asp_fail(r->cx, ASP_ERR_UNSUPPORTED,
                        "%s: \"quantization_config\" is given; only f32, f64, bf16 and f16 weights "
                        "can be trained",
                        r->path);
    ASP_TRY(check_only(r, r->path, r->o));
    ASP_TRY(read_keys(r));
    ASP_TRY(read_windows(r));
    if (asp_hf_is(r->c, ASP_HF_IS_rotary)) ASP_TRY(read_scaling(r));
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
