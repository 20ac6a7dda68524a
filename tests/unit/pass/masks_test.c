// The masks of every graph of tests/fixtures/graphs: which predicate each attention gets.  The pass
// tries each against the arithmetic it replaces (placement reference, section 6).
// SPDX-License-Identifier: Apache-2.0
#include "front/front.h"
#include "op/attention.h"
#include "pass/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define GRAPHS ASP_SOURCE_DIR "/tests/fixtures/graphs/"

// Of each attention of a graph, in order: its predicate, causal or not, soft cap and what else it
// reads.
typedef struct wanted {
    const char *graph, *attentions;
} wanted;

#define WINDOW "q - k <= 6"
#define DOCUMENT "T0[q] == T0[k]"
static const wanted all[] = {
    {"llama", "causal; causal; "},
    {"qwen3", "causal; causal; "},
    {"mistral", "causal & " WINDOW "; causal & " WINDOW "; "},
    {"gemma2", "causal & " WINDOW " cap 50; causal cap 50; "},
    {"gemma3", "causal & " WINDOW "; causal; "},
    {"gpt2", "causal; causal; "},
    {"mixtral", "causal; causal; "},
    {"bert", "T0[k] != 0; T0[k] != 0; "},
    {"llama_deqs", "causal; causal; "},
    {"llama_pad", "causal & T0[k] != 0; causal & T0[k] != 0; "},
    {"llama_docs", "causal & " DOCUMENT "; causal & " DOCUMENT "; "},
    {"mistral_docs", "causal & " WINDOW " & " DOCUMENT "; causal & " WINDOW " & " DOCUMENT "; "},
    {"llama_bf16", "causal; causal; "},
    {"qwen3_bf16", "causal; causal; "},
    {"minillama", "causal; causal; "},
    {"packed", "causal & " DOCUMENT "; causal & " DOCUMENT "; "},
    {"manual", "causal; causal; "},
    {"encdec", "T0[k] != 0; T0[k] != 0; causal; T0[k] != 0; causal; T0[k] != 0; "},
    {"moe", "causal; causal; "},
    {"packedqkv", "causal; causal; "},
    {"mqa", "causal; causal; "},
    {"seqfirst", "all; "},
    {"talking", "causal; causal; "},
    {"attnconv", "causal; causal; "},
};

typedef struct job {
    const wanted *want;
    asp_text *found;
} job;

static void describe(asp_graph *g, asp_text *t)
{
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        const asp_sdpa_attr *a = info->attr;
        if (info->op == ASP_OP_softmax && asp_val_type(g, info->first)->rank > 3 &&
            strcmp(g->name, "talking") != 0)
            asp_put(t, "softmax; ");
        if (info->op != ASP_OP_sdpa) continue;
        asp_put(t, "%s%s%s", a->causal ? "causal" : "", a->causal && *a->mask ? " & " : "",
                a->mask);
        if (!a->causal && !*a->mask) asp_put(t, "all");
        if (a->softcap > 0) asp_put(t, " cap %g", a->softcap);
        asp_put(t, "%s; ", a->bias ? " bias" : "");
    }
}

// Talking heads are no attention of the op: their masks hide scores that are mixed first.  What
// hides there is given to an attention beside, which the pass reads as any other.
static asp_status give_masks_to_attention(asp_graph *g)
{
    ASP_FOR_NODES (g, n) {
        const asp_node_info *product = asp_node_at(g, n);
        if (product->op != ASP_OP_matmul) continue;
        const asp_node_info *soft = asp_val_node(g, product->in[0]);
        if (soft->op != ASP_OP_softmax) continue;
        const asp_node_info *hide = asp_val_node(g, soft->in[0]);
        assert_int_equal(hide->op, ASP_OP_where);
        asp_builder b = {.g = g, .before = n, .loc = ""};
        asp_sdpa_attr a = asp_sdpa_attr_of(1, false);
        a.bias = true;
        const asp_val v = product->in[1];
        const asp_val in[] = {v, v, v, ASP_B1(&b, logical_not, NULL, hide->in[0])};
        const asp_val out = asp_build(&b, ASP_OP_sdpa, &a, 4, in);
        ASP_TRY(b.status);
        asp_graph_add_output(g, out, "");
    }
    return ASP_OK;
}

static asp_status masks_of(asp_ctx *cx, void *arg)
{
    const job *j = arg;
    asp_arena a;
    json_t *json;
    asp_graph *g;
    asp_arena_init(&a, cx);
    const char *path = asp_printf(&a, GRAPHS "%s.json", j->want->graph);
    ASP_TRY(asp_json_read(cx, path, (size_t)1 << 24, &json));
    ASP_TRY(asp_front_aten(cx, path, json, ASP_F32, &g));
    asp_pass_options o = {.ranks = 2, .sp = "auto", .ac = "none", .dtype = ASP_F32};
    asp_env_fill(&o.env, &g->examples);
    cx->verify_each_pass = true;
    asp_status s = strcmp(g->name, "talking") == 0 ? give_masks_to_attention(g) : ASP_OK;
    if (s == ASP_OK) s = asp_passes_run(cx, g, "canonicalise,masks", &o, NULL);
    if (s == ASP_OK) describe(g, j->found);
    json_decref(json);
    asp_graph_destroy(g);
    asp_arena_fini(&a);
    return s;
}

static void graph_has_its_masks(void **state)
{
    asp_ctx cx;
    asp_arena a;
    asp_text t;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_text_init(&t, &a);
    asp_put(&t, "%s", "");
    job j = {*state, &t};
    if (asp_guard(&cx, masks_of, &j) < 0) fail_msg("%s", cx.message);
    assert_string_equal(t.at, j.want->attentions);
    asp_arena_fini(&a);
}

int main(void)
{
    struct CMUnitTest tests[ASP_COUNT_OF(all)];
    for (size_t i = 0; i < ASP_COUNT_OF(all); i++)
        tests[i] = (struct CMUnitTest){.name = all[i].graph,
                                       .test_func = graph_has_its_masks,
                                       .initial_state = (void *)(uintptr_t)&all[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
