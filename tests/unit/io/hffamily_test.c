// Families of config.json beside llama: what their published files give, what is refused and with
// which words, written and read back, names and shapes of their tensors.
// SPDX-License-Identifier: Apache-2.0
#include "io/hfconfig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static asp_ctx cx;

#define SMALL(type)                                                                \
    "{%s\"model_type\": \"" type "\", \"vocab_size\": 256, \"hidden_size\": 64,\n" \
    " \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"intermediate_size\": 176}"
#define GPT2                                                                             \
    "{%s\"model_type\": \"gpt2\", \"vocab_size\": 256, \"n_embd\": 64, \"n_layer\": 3, " \
    "\"n_head\": 4}"
#define HEADS "\"num_key_value_heads\": 2,"

static asp_status parse(const char *text, const char *keys, asp_hf_config *out)
{
    char whole[4096];
    const char *at = strstr(text, "%s");
    if (at)
        snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - text), text, keys, at + 2);
    else
        snprintf(whole, sizeof whole, "%s", text);
    asp_ctx_init(&cx);
    return asp_hf_config_parse(&cx, "config.json", whole, strlen(whole), out);
}

static void parse_ok(const char *text, const char *keys, asp_hf_config *out)
{
    if (parse(text, keys, out) < 0) fail_msg("%s", cx.message);
}

// The windowed layers as text: "wf": the first sees a window.
static const char *windows_of(const asp_hf_config *c)
{
    static char text[64];
    int64_t i = 0;
    for (; i < c->layers && i < 60; i++) text[i] = asp_hf_is_windowed(c, i) ? 'w' : 'f';
    text[i] = 0;
    return text;
}

static int64_t parameters_of(const asp_hf_config *c)
{
    int64_t n = 0;
    asp_hf_tensor t;
    for (int64_t i = 0; asp_hf_tensor_at(c, i, &t); i++)
        n += t.dim[0] * (t.rank == 2 ? t.dim[1] : 1);
    return n;
}

// ---- published files ---------------------------------------------------------------------------

static void mistral_7b(void **state)
{
    (void)state;
    static const char text[] =
        "{\"architectures\": [\"MistralForCausalLM\"], \"bos_token_id\": 1, \"eos_token_id\": 2,\n"
        "\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"initializer_range\": 0.02,\n"
        "\"intermediate_size\": 14336, \"max_position_embeddings\": 32768,\n"
        "\"model_type\": \"mistral\", \"num_attention_heads\": 32, \"num_hidden_layers\": 32,\n"
        "\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0,\n"
        "\"sliding_window\": 4096, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\",\n"
        "\"transformers_version\": \"4.34.0.dev0\", \"use_cache\": true, \"vocab_size\": 32000}";
    asp_hf_config c;
    parse_ok(text, "", &c);
    assert_int_equal(c.family, ASP_HF_mistral);
    assert_int_equal(c.window, 4096);
    assert_string_equal(windows_of(&c), "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww");
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(parameters_of(&c),
                     INT64_C(7241732096)); // as its index file says, over 2 bytes
}

static void qwen2_and_3(void **state)
{
    (void)state;
    static const char qwen2[] = // Qwen2.5-0.5B
        "{\"architectures\": [\"Qwen2ForCausalLM\"], \"attention_dropout\": 0.0,\n"
        "\"hidden_act\": \"silu\", \"hidden_size\": 896, \"initializer_range\": 0.02,\n"
        "\"intermediate_size\": 4864, \"max_position_embeddings\": 32768,\n"
        "\"max_window_layers\": 24, \"model_type\": \"qwen2\", \"num_attention_heads\": 14,\n"
        "\"num_hidden_layers\": 24, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06,\n"
        "\"rope_theta\": 1000000.0, \"sliding_window\": 32768, \"tie_word_embeddings\": true,\n"
        "\"use_mrope\": false, \"use_sliding_window\": false, \"vocab_size\": 151936}";
    static const char qwen3[] = // Qwen3-0.6B
        "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, \"head_dim\": "
        "128,\n"
        "\"hidden_act\": \"silu\", \"hidden_size\": 1024, \"initializer_range\": 0.02,\n"
        "\"intermediate_size\": 3072, \"max_position_embeddings\": 40960,\n"
        "\"max_window_layers\": 28, \"model_type\": \"qwen3\", \"num_attention_heads\": 16,\n"
        "\"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06,\n"
        "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null,\n"
        "\"tie_word_embeddings\": true, \"use_sliding_window\": false, \"vocab_size\": 151936}";
    asp_hf_config c;
    asp_hf_tensor t;
    parse_ok(qwen2, "", &c);
    assert_true(c.window == 0 && c.tied && asp_hf_is(&c, ASP_HF_IS_biased_qkv));
    assert_int_equal(parameters_of(&c), 494032768); // as their cards say
    assert_true(asp_hf_tensor_of(&c, ASP_HF_k_bias, 3, &t));
    assert_string_equal(t.name, "model.layers.3.self_attn.k_proj.bias");
    assert_true(t.rank == 1 && t.dim[0] == 128 && strcmp(t.init, "zeros") == 0);
    assert_false(asp_hf_tensor_of(&c, ASP_HF_o_bias, 3, &t));
    parse_ok(qwen3, "", &c);
    assert_true(c.window == 0 && asp_hf_is(&c, ASP_HF_IS_normed_qk));
    assert_int_equal(parameters_of(&c), 596049920);
    assert_true(asp_hf_tensor_of(&c, ASP_HF_q_norm, 0, &t));
    assert_true(t.rank == 1 && t.dim[0] == 128 && strcmp(t.init, "ones") == 0);
}

static void gemma2_2b(void **state)
{
    (void)state;
    static const char text[] =
        "{\"architectures\": [\"Gemma2ForCausalLM\"], \"attention_bias\": false,\n"
        "\"attention_dropout\": 0.0, \"attn_logit_softcapping\": 50.0, \"cache_implementation\":\n"
        "\"hybrid\", \"final_logit_softcapping\": 30.0, \"head_dim\": 256, \"hidden_act\":\n"
        "\"gelu_pytorch_tanh\", \"hidden_activation\": \"gelu_pytorch_tanh\", \"hidden_size\": "
        "2304,\n"
        "\"initializer_range\": 0.02, \"intermediate_size\": 9216, \"max_position_embeddings\":\n"
        "8192, \"model_type\": \"gemma2\", \"num_attention_heads\": 8, \"num_hidden_layers\": 26,\n"
        "\"num_key_value_heads\": 4, \"query_pre_attn_scalar\": 256, \"rms_norm_eps\": 1e-06,\n"
        "\"rope_theta\": 10000.0, \"sliding_window\": 4096, \"vocab_size\": 256000}";
    asp_hf_config c;
    asp_hf_tensor t;
    parse_ok(text, "", &c);
    assert_true(c.tied && c.score_cap == 50 && c.logit_cap == 30 && c.act == ASP_HF_GELU_TANH);
    assert_string_equal(windows_of(&c), "wfwfwfwfwfwfwfwfwfwfwfwfwf");
    assert_int_equal(parameters_of(&c), INT64_C(2614341888));
    assert_true(asp_hf_tensor_of(&c, ASP_HF_post_mlp_norm, 25, &t));
    assert_string_equal(t.name, "model.layers.25.post_feedforward_layernorm.weight");
    assert_string_equal(t.init, "zeros"); // 1 + weight multiplies
}

static void gpt2_small(void **state)
{
    (void)state;
    static const char text[] =
        "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"],\n"
        "\"attn_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"initializer_range\": 0.02,\n"
        "\"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", \"n_ctx\": 1024, \"n_embd\": "
        "768,\n"
        "\"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024, \"resid_pdrop\": 0.1,\n"
        "\"summary_type\": \"cls_index\", \"vocab_size\": 50257}";
    static const char *const first[] = {"transformer.wte.weight", "transformer.wpe.weight",
                                        "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                                        "transformer.h.0.attn.c_attn.weight"};
    asp_hf_config c;
    asp_hf_tensor t;
    parse_ok(text, "", &c);
    assert_true(c.tied && c.intermediate == 3072 && c.kv_heads == 12 && c.head_dim == 64);
    assert_true(c.attention_dropout == 0.1 && c.embedding_dropout == 0.1);
    assert_int_equal(parameters_of(&c), 124439808);
    for (int i = 0; i < 5; i++) {
        assert_true(asp_hf_tensor_at(&c, i, &t));
        assert_string_equal(t.name, first[i]);
    }
    assert_true(t.dim[0] == 768 && t.dim[1] == 2304); // (in, out)
    assert_true(asp_hf_tensor_at(&c, 2 + 12 * 12 + 1, &t));
    assert_string_equal(t.name, "transformer.ln_f.bias");
    assert_false(asp_hf_tensor_at(&c, 2 + 12 * 12 + 2, &t));
}

// ---- windows -----------------------------------------------------------------------------------

#define LATE "\"use_sliding_window\": true, \"max_window_layers\": 3, \"sliding_window\": 8,"
#define TYPES(list) "\"layer_types\": [" list "],"
#define F "\"full_attention\""
#define W "\"sliding_attention\""

static void windows(void **state)
{
    (void)state;
    static const struct {
        const char *text, *keys, *layers;
        int64_t window;
    } rows[] = {
        {SMALL("llama"), "\"sliding_window\": 8,", "ffff", 0}, // no key of llama
        {SMALL("mistral"), HEADS, "wwww", 4096},
        {SMALL("mistral"), HEADS "\"sliding_window\": 8,", "wwww", 8},
        {SMALL("mistral"), HEADS "\"sliding_window\": null,", "ffff", 0},
        {SMALL("qwen2"), HEADS, "ffff", 0},
        {SMALL("qwen2"), HEADS LATE, "fffw", 8},
        {SMALL("qwen2"), HEADS LATE TYPES(W "," F "," F "," W), "wffw", 8},
        {SMALL("qwen3"), HEADS "\"use_sliding_window\": true, \"max_window_layers\": 0,", "wwww",
         4096},
        {SMALL("qwen3"), HEADS "\"use_sliding_window\": true,", "ffff", 0}, // from layer 28 on
        {SMALL("gemma2"), "", "wfwf", 4096},
        {SMALL("gemma2"), TYPES(F "," F "," F "," F), "ffff", 0},
        {SMALL("gemma2"), "\"sliding_window\": null,", "ffff", 0},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_hf_config c;
        parse_ok(rows[i].text, rows[i].keys, &c);
        assert_string_equal(windows_of(&c), rows[i].layers);
        assert_int_equal(c.window, rows[i].window);
    }
}

// ---- refusals ----------------------------------------------------------------------------------

static void refusals(void **state)
{
    (void)state;
    static const struct {
        asp_status status;
        const char *text, *keys, *words;
    } rows[] = {
        {ASP_ERR_UNSUPPORTED, SMALL("gemma3"), "",
         "\"model_type\" is \"gemma3\"; the architectures "
         "known here are: llama (LlamaForCausalLM), mistral (MistralForCausalLM), qwen2"},
        {ASP_ERR_UNSUPPORTED, SMALL("qwen2"), "\"architectures\": [\"Qwen3ForCausalLM\"],",
         "\"architectures\" is \"Qwen3ForCausalLM\""},
        {ASP_ERR_INPUT, SMALL("mistral"), "", "4 is not a multiple of num_key_value_heads 8"},
        {ASP_ERR_INPUT, SMALL("mistral"), "\"sliding_window\": 0,",
         "\"sliding_window\" is 0; 1 to"},
        {ASP_ERR_INPUT, SMALL("mistral"), "\"sliding_window\": -1,", "\"sliding_window\" is -1"},
        {ASP_ERR_INPUT, SMALL("mistral"), "\"sliding_window\": \"4\",", "must be a whole number"},
        {ASP_ERR_INPUT, SMALL("qwen2"), HEADS "\"use_sliding_window\": 1,",
         "must be true or false"},
        {ASP_ERR_INPUT, SMALL("qwen2"), HEADS "\"max_window_layers\": -2,",
         "\"max_window_layers\" is -2; it is 0 or more"},
        {ASP_ERR_INPUT, SMALL("qwen2"), HEADS LATE TYPES(W "," F "," F),
         "\"layer_types\" must be a list with one string for each of the 4 layers"},
        {ASP_ERR_INPUT, SMALL("qwen2"), HEADS LATE "\"layer_types\": \"full_attention\",",
         "\"layer_types\" must be a list"},
        {ASP_ERR_UNSUPPORTED, SMALL("qwen3"),
         HEADS LATE TYPES(F "," F "," F ",\"linear_attention\""),
         "\"layer_types\" is \"linear_attention\"; the layers known here are: full_attention, "
         "sliding_attention"},
        {ASP_ERR_UNSUPPORTED, SMALL("qwen3"), HEADS LATE TYPES(F "," F "," F ",1"),
         "\"layer_types\" is \"not a string\""},
        {ASP_ERR_INPUT, SMALL("qwen3"), HEADS TYPES(F "," F "," F "," W),
         "has sliding_attention, but \"use_sliding_window\" is false"},
        {ASP_ERR_INPUT, SMALL("gemma2"), "\"sliding_window\": null," TYPES(F "," F "," F "," W),
         "has sliding_attention, but \"sliding_window\" is null"},
        {ASP_ERR_INPUT, SMALL("gemma2"), "\"attn_logit_softcapping\": 0,",
         "\"attn_logit_softcapping\" is 0; it must be null or above 0"},
        {ASP_ERR_INPUT, SMALL("gemma2"), "\"final_logit_softcapping\": -3,", "null or above 0"},
        {ASP_ERR_INPUT, SMALL("gemma2"), "\"query_pre_attn_scalar\": 0,", "is 0; 1 to"},
        {ASP_ERR_INPUT, SMALL("gemma2"), "\"query_pre_attn_scalar\": 1.5,", "a whole number"},
        {ASP_ERR_UNSUPPORTED, SMALL("gemma2"), "\"hidden_activation\": \"mish\",",
         "\"hidden_activation\" is \"mish\"; the activations known here are: silu, gelu,"},
        {ASP_ERR_UNSUPPORTED, SMALL("gemma2"), "\"use_bidirectional_attention\": true,",
         "\"use_bidirectional_attention\" is true; only false is built"},
        {ASP_ERR_UNSUPPORTED, GPT2, "\"scale_attn_weights\": false,", "only true is built"},
        {ASP_ERR_UNSUPPORTED, GPT2, "\"scale_attn_by_inverse_layer_idx\": true,", "only false is"},
        {ASP_ERR_UNSUPPORTED, GPT2, "\"add_cross_attention\": true,", "only false is built"},
        {ASP_ERR_INPUT, GPT2, "\"scale_attn_weights\": 1,", "must be true or false"},
        {ASP_ERR_INPUT, GPT2, "\"attn_pdrop\": 1,", "\"attn_pdrop\" is 1; it must be 0 or more"},
        {ASP_ERR_INPUT, GPT2, "\"n_positions\": 0,", "\"n_positions\" is 0; 1 to"},
        {ASP_ERR_INPUT, GPT2, "\"n_inner\": 0,", "\"n_inner\" is 0; 1 to"},
        {ASP_ERR_INPUT,
         "{\"model_type\": \"gpt2\", \"vocab_size\": 256, \"n_embd\": 64,"
         "\"n_layer\": 2, \"n_head\": 5}",
         "", "n_embd 64 is not a multiple of n_head 5"},
        {ASP_ERR_INPUT,
         "{\"model_type\": \"gpt2\", \"vocab_size\": 256, \"hidden_size\": 64,"
         "\"n_layer\": 2, \"n_head\": 4}",
         "", "the key \"n_embd\" is missing"},
        {ASP_ERR_INPUT,
         "{\"model_type\": \"gpt2\", \"vocab_size\": 16777216, \"n_embd\": 1048576,"
         "\"n_layer\": 4096, \"n_head\": 65536, \"n_positions\": 16777216, \"n_inner\": 4194304}",
         "", "these sizes make a model of 5.41e+16 parameters"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_hf_config c = {.vocab = 77};
        if (parse(rows[i].text, rows[i].keys, &c) != rows[i].status)
            fail_msg("%s: %s", rows[i].words, cx.message);
        if (!strstr(cx.message, rows[i].words))
            fail_msg("\"%s\" not in: %s", rows[i].words, cx.message);
        assert_int_equal(c.vocab, 77); // set only on success
    }
}

// ---- written and read back ---------------------------------------------------------------------

static void written_and_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *text, *keys, *words;
    } rows[] = {
        {SMALL("llama"), "\"attention_bias\": true, \"mlp_bias\": true, \"hidden_act\": \"gelu\",",
         "\"hidden_act\": \"gelu\""},
        {SMALL("mistral"), HEADS, "\"sliding_window\": 4096"},
        {SMALL("mistral"), HEADS "\"sliding_window\": null,", "\"sliding_window\": null"},
        {SMALL("qwen2"), HEADS, "\"use_sliding_window\": false"},
        {SMALL("qwen2"), HEADS LATE, "\"use_sliding_window\": true,\n  \"max_window_layers\": 3"},
        {SMALL("qwen3"), HEADS LATE TYPES(W "," F "," F "," W), "\"head_dim\": 128"},
        {SMALL("gemma2"), "\"attn_logit_softcapping\": null, \"final_logit_softcapping\": 2.5,",
         "\"attn_logit_softcapping\": null,\n  \"final_logit_softcapping\": 2.5"},
        {SMALL("gemma2"), "", "[\"sliding_attention\", \"full_attention\", \"sliding_attention\""},
        {GPT2, "\"n_inner\": 100, \"resid_pdrop\": 0.25, \"tie_word_embeddings\": false,",
         "\"n_inner\": 100"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_hf_config c, again;
        asp_arena a;
        asp_text t;
        parse_ok(rows[i].text, rows[i].keys, &c);
        asp_arena_init(&a, &cx);
        asp_text_init(&t, &a);
        asp_hf_config_write(&t, &c);
        if (!strstr(t.at, rows[i].words)) fail_msg("\"%s\" not in:\n%s", rows[i].words, t.at);
        assert_int_equal(asp_hf_config_parse(&cx, "again", t.at, t.n, &again), ASP_OK);
        assert_true(c.family == again.family && c.act == again.act);
#define NUMBER(families, key, field, standard, max) assert_int_equal(c.field, again.field);
#define OPTIONAL NUMBER
#include "io/hfconfig.def"
#define REAL(families, key, field, standard, from, open, to, wanted) \
    assert_true(c.field == again.field);
#define OPTIONAL_REAL REAL
#include "io/hfconfig.def"
#define FLAG(families, key, field, standard) assert_true(c.field == again.field);
#include "io/hfconfig.def"
        assert_memory_equal(c.windowed, again.windowed, sizeof c.windowed);
        asp_arena_fini(&a);
    }
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(mistral_7b),
        cmocka_unit_test(qwen2_and_3),
        cmocka_unit_test(gemma2_2b),
        cmocka_unit_test(gpt2_small),
        cmocka_unit_test(windows),
        cmocka_unit_test(refusals),
        cmocka_unit_test(written_and_read_back),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
