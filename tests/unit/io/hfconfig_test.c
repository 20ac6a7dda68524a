// config.json of the llama family: what is read from real files, every refusal with its words,
// written and read back; names and shapes of the tensors.
// SPDX-License-Identifier: Apache-2.0
#include "io/hfconfig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "unit/scratch.h"

static asp_ctx cx;

// The smallest config there can be; %s: more keys, each with a comma behind.
#define SMALL                                                                   \
    "{%s\"model_type\": \"llama\", \"vocab_size\": 256, \"hidden_size\": 64,\n" \
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 176}"

static asp_status parse(const char *text, asp_hf_config *out)
{
    asp_ctx_init(&cx);
    return asp_hf_config_parse(&cx, "config.json", text, strlen(text), out);
}

static asp_status parse_with(const char *keys, asp_hf_config *out)
{
    char text[2048];
    snprintf(text, sizeof text, SMALL, keys);
    return parse(text, out);
}

static void expect_message(const char *words)
{
    assert_memory_equal(cx.message, "config.json:", 12);
    if (!strstr(cx.message, words)) fail_msg("\"%s\" not in: %s", words, cx.message);
}

static void defaults(void **state)
{
    (void)state;
    asp_hf_config c;
    assert_int_equal(parse_with("", &c), ASP_OK);
    assert_int_equal(c.vocab, 256);
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.intermediate, 176);
    assert_int_equal(c.max_positions, 2048);
    assert_true(c.rope_theta == 10000 && c.norm_eps == 1e-6 && c.initializer_range == 0.02);
    assert_false(c.tied || c.rope_llama3);
}

// The published file of Llama 3.1 8B.
static void llama_31_8b(void **state)
{
    (void)state;
    static const char text[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false,\n"
        "\"attention_dropout\": 0.0, \"bos_token_id\": 128000, \"eos_token_id\": 128001,\n"
        "\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"initializer_range\": 0.02,\n"
        "\"intermediate_size\": 14336, \"max_position_embeddings\": 131072, \"mlp_bias\": false,\n"
        "\"model_type\": \"llama\", \"num_attention_heads\": 32, \"num_hidden_layers\": 32,\n"
        "\"num_key_value_heads\": 8, \"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05,\n"
        "\"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,\n"
        "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"},\n"
        "\"rope_theta\": 500000.0, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\",\n"
        "\"transformers_version\": \"4.43.0.dev0\", \"use_cache\": true, \"vocab_size\": 128256}";
    asp_hf_config c;
    assert_int_equal(parse(text, &c), ASP_OK);
    assert_int_equal(c.kv_heads, 8);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.max_positions, 131072);
    assert_true(c.rope_theta == 500000 && c.norm_eps == 1e-5);
    assert_true(c.rope_llama3 && c.rope_factor == 8 && c.rope_low == 1 && c.rope_high == 4);
    assert_int_equal(c.rope_original, 8192);
    int64_t params = 0;
    asp_hf_tensor t;
    for (int64_t i = 0; asp_hf_tensor_at(&c, i, &t); i++)
        params += t.dim[0] * (t.rank == 2 ? t.dim[1] : 1);
    assert_int_equal(params, INT64_C(8030261248)); // as its card says
}

static void given_sizes_and_newer_keys(void **state)
{
    (void)state;
    asp_hf_config c;
    assert_int_equal(
        parse_with("\"head_dim\": 8, \"num_key_value_heads\": 2, \"dtype\": \"float16\","
                   "\"tie_word_embeddings\": true, \"rope_scaling\": null,"
                   "\"rope_parameters\": {\"rope_type\": \"default\","
                   " \"rope_theta\": 5e5, \"partial_rotary_factor\": 1.0},",
                   &c),
        ASP_OK);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.kv_heads, 2);
    assert_true(c.tied && !c.rope_llama3 && c.rope_theta == 5e5);
    // null is as good as absent; "type" is the older name of "rope_type".
    assert_int_equal(parse_with("\"head_dim\": null, \"num_key_value_heads\": null,"
                                "\"rope_scaling\": {\"rope_type\": null, \"type\": \"llama3\","
                                " \"factor\": 32, \"low_freq_factor\": 1, \"high_freq_factor\": 4,"
                                " \"original_max_position_embeddings\": 8192},",
                                &c),
                     ASP_OK);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.kv_heads, 4);
    assert_true(c.rope_llama3 && c.rope_factor == 32);
    // Early conversions spelt the architecture otherwise; both names of the scaling, the same.
    assert_int_equal(parse_with("\"architectures\": [\"LLaMAForCausalLM\"],"
                                "\"rope_scaling\": {\"rope_theta\": 9e3},"
                                "\"rope_parameters\": {\"rope_theta\": 9e3},",
                                &c),
                     ASP_OK);
    assert_true(c.rope_theta == 9000);
}

#define LLAMA3(factor, low, high, original) \
    "\"rope_scaling\": {\"rope_type\": \"llama3\", " factor low high original " \"x\": 0},"
#define FACTOR "\"factor\": 8,"
#define LOW "\"low_freq_factor\": 1,"
#define HIGH "\"high_freq_factor\": 4,"
#define ORIGINAL "\"original_max_position_embeddings\": 8192,"

static void refusals(void **state)
{
    (void)state;
    // A key given twice is refused, so these texts name only keys that SMALL has not.
    static const struct {
        asp_status status;
        const char *keys, *words;
    } rows[] = {
        {ASP_ERR_UNSUPPORTED, "\"architectures\": [\"LlamaForTokenClassification\"],",
         "\"architectures\" is \"LlamaForTokenClassification\"; the architectures known here are: "
         "llama"},
        {ASP_ERR_INPUT, "\"architectures\": \"LlamaForCausalLM\",", "must be a list of strings"},
        {ASP_ERR_INPUT, "\"architectures\": [3],", "must be a list of strings"},
        {ASP_ERR_UNSUPPORTED, "\"hidden_act\": \"swish2\",",
         "\"hidden_act\" is \"swish2\"; the activations known here are: silu, gelu,"},
        {ASP_ERR_INPUT, "\"hidden_act\": 1,", "\"hidden_act\" must be a string"},
        {ASP_ERR_INPUT, "\"attention_bias\": 1,", "\"attention_bias\" must be true or false"},
        {ASP_ERR_INPUT, "\"mlp_bias\": 0,", "\"mlp_bias\" must be true or false"},
        {ASP_ERR_INPUT, "\"attention_dropout\": 1,",
         "\"attention_dropout\" is 1; it must be 0 or more and below 1"},
        {ASP_ERR_UNSUPPORTED, "\"partial_rotary_factor\": 0.5,", "only 1 is built"},
        {ASP_ERR_UNSUPPORTED, "\"quantization_config\": {},", "\"quantization_config\" is given"},
        {ASP_ERR_INPUT, "\"num_key_value_heads\": 3,",
         "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
        {ASP_ERR_INPUT, "\"num_key_value_heads\": 8,",
         "4 is not a multiple of num_key_value_heads 8"},
        {ASP_ERR_INPUT, "\"num_key_value_heads\": 0,", "is 0; 1 to"},
        {ASP_ERR_INPUT, "\"num_key_value_heads\": -4,", "is -4; 1 to"},
        {ASP_ERR_INPUT, "\"num_key_value_heads\": \"4\",", "must be a whole number"},
        {ASP_ERR_INPUT, "\"num_key_value_heads\": true,", "must be a whole number"},
        {ASP_ERR_INPUT, "\"head_dim\": 16.0,", "\"head_dim\" must be a whole number"},
        {ASP_ERR_INPUT, "\"head_dim\": 65537,", "\"head_dim\" is 65537; 1 to 65536"},
        {ASP_ERR_INPUT, "\"head_dim\": 15,", "head_dim 15 is odd"},
        {ASP_ERR_INPUT, "\"max_position_embeddings\": 9223372036854775807,", "are possible"},
        {ASP_ERR_INPUT, "\"max_position_embeddings\": 9223372036854775808,", "too big integer"},
        {ASP_ERR_INPUT, "\"rope_theta\": 1,", "\"rope_theta\" is 1; it must be above 1"},
        {ASP_ERR_INPUT, "\"rope_theta\": \"10000\",", "\"rope_theta\" must be a number"},
        {ASP_ERR_INPUT, "\"rope_theta\": 1e999,", "real number overflow"},
        {ASP_ERR_INPUT, "\"rope_theta\": NaN,", "config.json:1:"},
        {ASP_ERR_INPUT, "\"rms_norm_eps\": 0,", "\"rms_norm_eps\" is 0; it must be between"},
        {ASP_ERR_INPUT, "\"rms_norm_eps\": 1.0,", "\"rms_norm_eps\" is 1; it must be between"},
        {ASP_ERR_INPUT, "\"initializer_range\": -1,", "\"initializer_range\" is -1; it must be"},
        {ASP_ERR_INPUT, "\"tie_word_embeddings\": \"yes\",", "must be true or false"},
        {ASP_ERR_INPUT, "\"rope_scaling\": 2,", "\"rope_scaling\" must be an object or null"},
        {ASP_ERR_UNSUPPORTED, "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2},",
         "in \"rope_scaling\": \"type\" is \"yarn\"; the rope scalings known here are"},
        {ASP_ERR_UNSUPPORTED, "\"rope_parameters\": {\"rope_type\": \"linear\"},",
         "in \"rope_parameters\": \"rope_type\" is \"linear\""},
        {ASP_ERR_UNSUPPORTED, "\"rope_parameters\": {\"partial_rotary_factor\": 0.25},",
         "in \"rope_parameters\": \"partial_rotary_factor\" is 0.25"},
        {ASP_ERR_INPUT, "\"rope_scaling\": {\"rope_theta\": 2}, \"rope_parameters\": {},",
         "\"rope_scaling\" and \"rope_parameters\" differ"},
        {ASP_ERR_INPUT, "\"rope_scaling\": {\"rope_type\": 3},", "\"rope_type\" must be a string"},
        {ASP_ERR_INPUT, LLAMA3("", LOW, HIGH, ORIGINAL), "key \"factor\" is missing"},
        {ASP_ERR_INPUT, LLAMA3(FACTOR, "", HIGH, ORIGINAL), "\"low_freq_factor\" is missing"},
        {ASP_ERR_INPUT, LLAMA3(FACTOR, LOW, "", ORIGINAL), "\"high_freq_factor\" is missing"},
        {ASP_ERR_INPUT, LLAMA3(FACTOR, LOW, HIGH, ""),
         "in \"rope_scaling\": the key \"original_max_position_embeddings\" is missing"},
        {ASP_ERR_INPUT, LLAMA3("\"factor\": 0.5,", LOW, HIGH, ORIGINAL), "llama3 needs factor"},
        {ASP_ERR_INPUT, LLAMA3(FACTOR, "\"low_freq_factor\": 4,", HIGH, ORIGINAL),
         "low_freq_factor < high_freq_factor"},
        {ASP_ERR_INPUT, LLAMA3(FACTOR, LOW, HIGH, "\"original_max_position_embeddings\": 0,"),
         "positive original_max_position_embeddings"},
        {ASP_ERR_INPUT, "\"hidden_size\": 64,", "duplicate object key"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_hf_config c = {.vocab = 77};
        assert_int_equal(parse_with(rows[i].keys, &c), rows[i].status);
        expect_message(rows[i].words);
        assert_int_equal(c.vocab, 77); // set only on success
    }
}

// Replaces `from` in SMALL, which must be there, by `to`.
static asp_status parse_without(const char *from, const char *to, asp_hf_config *out)
{
    char small[512], text[512];
    snprintf(small, sizeof small, SMALL, "");
    char *at = strstr(small, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small), small, to, at + strlen(from));
    return parse(text, out);
}

static void required_keys(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } rows[] = {
        {"\"model_type\"", "\"x\"", "the key \"model_type\" is missing"},
        {"\"vocab_size\"", "\"x\"", "the key \"vocab_size\" is missing"},
        {"\"hidden_size\"", "\"x\"", "the key \"hidden_size\" is missing"},
        {"\"num_hidden_layers\"", "\"x\"", "the key \"num_hidden_layers\" is missing"},
        {"\"num_attention_heads\"", "\"x\"", "the key \"num_attention_heads\" is missing"},
        {"\"intermediate_size\"", "\"x\"", "the key \"intermediate_size\" is missing"},
        {"176", "null", "the key \"intermediate_size\" is missing"},
        {"176", "[]", "\"intermediate_size\" must be a whole number"},
        {": 256", ": 0", "\"vocab_size\" is 0; 1 to"},
        {": 256", ": 16777217", "\"vocab_size\" is 16777217; 1 to"},
        {": 64", ": 66", "hidden_size 66 is not a multiple of num_attention_heads 4; give"},
        {": 64", ": 4294967296", "\"hidden_size\" is 4294967296; 1 to"},
        {": 2,", ": 4097,", "\"num_hidden_layers\" is 4097; 1 to 4096"},
        {": 4,", ": -1,", "\"num_attention_heads\" is -1; 1 to"},
    };
    asp_hf_config c;
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        assert_int_equal(parse_without(rows[i].from, rows[i].to, &c), ASP_ERR_INPUT);
        expect_message(rows[i].words);
    }
    assert_int_equal(parse_without("llama", "gpt_neox", &c), ASP_ERR_UNSUPPORTED);
    expect_message("\"model_type\" is \"gpt_neox\"; the architectures known here are: llama");
}

static void malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "config.json:1:0: '[' or '{' expected near end of file"},
        {"{\"a\": 1,\n \"b\" 2}", "config.json:2:6: "},
        {"{\"a\": 1} x", "config.json:1:10: end of file expected"},
        {"[1]", "config.json:1:1: a JSON object {...} is wanted"},
        {"{\"a\": \"\xff\"}", "unable to decode byte 0xff"},
        {"{\"model_type\": \"lla\\u0000ma\"}", "config.json:1:"},
        {"{\"model_type\": \"llama\"", "near end of file"},
    };
    asp_hf_config c;
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        assert_int_equal(parse(rows[i].text, &c), ASP_ERR_INPUT);
        expect_message(rows[i].words);
    }
    char deep[8192];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    deep[sizeof deep - 1] = 0;
    assert_int_equal(parse(deep, &c), ASP_ERR_INPUT); // no stack is lost
    expect_message("maximum parsing depth");
    // Names from outside must not reach a terminal as they are.
    assert_int_equal(parse_without("llama", "\\u001b[2J\\u0007", &c), ASP_ERR_UNSUPPORTED);
    expect_message("\"model_type\" is \"?[2J?\"");
}

static void absurd_totals(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 16777216, \"hidden_size\": 1048576,\n"
        "\"num_hidden_layers\": 4096, \"num_attention_heads\": 65536, \"head_dim\": 65536,\n"
        "\"intermediate_size\": 4194304}";
    asp_hf_config c;
    assert_int_equal(parse(text, &c), ASP_ERR_INPUT);
    expect_message("these sizes make a model of 7.38e+19 parameters");
}

static void files(void **state)
{
    (void)state;
    asp_hf_config c;
    char text[512];
    snprintf(text, sizeof text, SMALL, "");
    asp_ctx_init(&cx);
    assert_int_equal(asp_hf_config_read(&cx, scratch_text("config.json", text), &c), ASP_OK);
    assert_int_equal(c.hidden, 64);
    assert_int_equal(asp_hf_config_read(&cx, scratch_path("none.json"), &c), ASP_ERR_IO);
    assert_non_null(strstr(cx.message, scratch_path("none.json")));
    const char *big = scratch_text("big.json", "{}");
    assert_int_equal(truncate(big, (1 << 20) + 1), 0);
    assert_int_equal(asp_hf_config_read(&cx, big, &c), ASP_ERR_INPUT);
    assert_non_null(strstr(cx.message, "at most 1048576 are read"));
}

static void assert_same(const asp_hf_config *x, const asp_hf_config *y)
{
    assert_true(x->family == y->family && x->act == y->act);
#define NUMBER(families, key, field, standard, max) assert_int_equal(x->field, y->field);
#define OPTIONAL NUMBER
#include "io/hfconfig.def"
#define REAL(families, key, field, standard, from, open, to, wanted) \
    assert_true(x->field == y->field);
#define OPTIONAL_REAL REAL
#include "io/hfconfig.def"
#define FLAG(families, key, field, standard) assert_true(x->field == y->field);
#include "io/hfconfig.def"
    assert_memory_equal(x->windowed, y->windowed, sizeof x->windowed);
    assert_true(x->rope_llama3 == y->rope_llama3 && x->rope_factor == y->rope_factor);
    assert_true(x->rope_low == y->rope_low && x->rope_high == y->rope_high);
    assert_int_equal(x->rope_original, y->rope_original);
}

static void written_and_read_back(void **state)
{
    (void)state;
    asp_hf_config c, again;
    for (int k = 0; k < 2; k++) {
        const char *keys =
            k ? "\"tie_word_embeddings\": true, \"rms_norm_eps\": 0.1234567890123456789,"
                "\"rope_theta\": 1e30," LLAMA3(FACTOR, LOW, HIGH, ORIGINAL)
              : "\"rms_norm_eps\": 1e-5, \"head_dim\": 10,";
        asp_arena a;
        asp_text t;
        assert_int_equal(parse_with(keys, &c), ASP_OK);
        asp_arena_init(&a, &cx);
        asp_text_init(&t, &a);
        asp_hf_config_write(&t, &c);
        assert_int_equal(parse(t.at, &again), ASP_OK);
        assert_same(&c, &again);
        assert_non_null(strstr(t.at, "\"architectures\": [\"LlamaForCausalLM\"]"));
        assert_non_null(strstr(t.at, "\"torch_dtype\": \"float32\""));
        if (k == 0) {
            assert_non_null(strstr(t.at, "\"rms_norm_eps\": 1e-05,")); // the shortest there is
            assert_non_null(strstr(t.at, "\"rope_theta\": 10000.0,")); // a real, not an integer
            assert_null(strstr(t.at, "rope_scaling"));
        } else
            assert_non_null(strstr(t.at, "\"factor\": 8.0, \"low_freq_factor\": 1.0"));
        asp_arena_fini(&a);
    }
}

static void tensors(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int rank;
        int64_t dim[2];
    } layer[] = {
        {"input_layernorm", 1, {64, 0}},   {"self_attn.q_proj", 2, {40, 64}},
        {"self_attn.k_proj", 2, {20, 64}}, {"self_attn.v_proj", 2, {20, 64}},
        {"self_attn.o_proj", 2, {64, 40}}, {"post_attention_layernorm", 1, {64, 0}},
        {"mlp.gate_proj", 2, {176, 64}},   {"mlp.up_proj", 2, {176, 64}},
        {"mlp.down_proj", 2, {64, 176}},
    };
    asp_hf_config c;
    asp_hf_tensor t;
    char name[96];
    assert_int_equal(parse_with("\"head_dim\": 10, \"num_key_value_heads\": 2,", &c), ASP_OK);
    assert_true(asp_hf_tensor_at(&c, 0, &t));
    assert_string_equal(t.name, "model.embed_tokens.weight");
    assert_true(t.rank == 2 && t.dim[0] == 256 && t.dim[1] == 64 && strcmp(t.init, "normal") == 0);
    for (int64_t i = 0; i < 18; i++) {
        assert_true(asp_hf_tensor_at(&c, 1 + i, &t));
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", i < 9 ? 0 : 1, layer[i % 9].name);
        assert_string_equal(t.name, name);
        assert_int_equal(t.rank, layer[i % 9].rank);
        assert_memory_equal(t.dim, layer[i % 9].dim, sizeof t.dim);
        assert_string_equal(t.init, t.rank == 1 ? "ones" : "normal");
    }
    assert_true(asp_hf_tensor_at(&c, 19, &t));
    assert_string_equal(t.name, "model.norm.weight");
    assert_true(t.rank == 1 && t.dim[0] == 64 && strcmp(t.init, "ones") == 0);
    assert_true(asp_hf_tensor_at(&c, 20, &t));
    assert_string_equal(t.name, "lm_head.weight");
    assert_true(t.rank == 2 && t.dim[0] == 256 && t.dim[1] == 64 && strcmp(t.init, "normal") == 0);
    assert_false(asp_hf_tensor_at(&c, 21, &t) || asp_hf_tensor_at(&c, -1, &t));
    c.tied = true;
    assert_true(asp_hf_tensor_at(&c, 19, &t));
    assert_false(asp_hf_tensor_at(&c, 20, &t));
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(llama_31_8b),
        cmocka_unit_test(given_sizes_and_newer_keys),
        cmocka_unit_test(refusals),
        cmocka_unit_test(required_keys),
        cmocka_unit_test(malformed),
        cmocka_unit_test(absurd_totals),
        cmocka_unit_test(files),
        cmocka_unit_test(written_and_read_back),
        cmocka_unit_test(tensors),
    };
    return cmocka_run_group_tests(all, scratch_make, scratch_remove);
}
