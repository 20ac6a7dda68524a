// Where exchanges stand in every graph of tests/fixtures/graphs, against expected.json: which
// values cross between tokens split and heads split, and which way.  Values are compared by what
// made them: a view, a permutation, a repetition or a cast of a value carries what the value does.
// SPDX-License-Identifier: Apache-2.0
#include "front/front.h"
#include "pass/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define GRAPHS ASP_SOURCE_DIR "/tests/fixtures/graphs/"
#define MAX_EXCHANGES 64

typedef struct crossing {
    char name[64];
    bool to_other;
} crossing;

typedef struct crossings {
    int n;
    crossing at[MAX_EXCHANGES];
} crossings;

static int by_name(const void *a, const void *b)
{
    const crossing *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->to_other - y->to_other;
}

static void add(crossings *c, const char *name, bool to_other)
{
    assert_true(c->n < MAX_EXCHANGES);
    snprintf(c->at[c->n].name, sizeof c->at[0].name, "%s", name);
    c->at[c->n++].to_other = to_other;
}

// ---- what is expected --------------------------------------------------------------------------

static const json_t *node_of(const json_t *graph, const char *name)
{
    const json_t *nodes = json_object_get(graph, "nodes");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *n = json_array_get(nodes, i);
        if (strcmp(json_string_value(json_object_get(n, "name")), name) == 0) return n;
    }
    return NULL;
}

static const char *first_ref(const json_t *node)
{
    const json_t *args = json_object_get(node, "args");
    return json_string_value(json_object_get(json_array_get(args, 0), "ref"));
}

static bool same_shape(const json_t *graph, const json_t *node)
{
    const json_t *under = node_of(graph, first_ref(node));
    return under && json_equal(json_object_get(json_object_get(node, "out"), "shape"),
                               json_object_get(json_object_get(under, "out"), "shape"));
}

// The name in our graph of what made the value: views and casts are walked back, a pick from a list
// is a result of the list.
static void root_of(const json_t *graph, const char *name, char *out, size_t bytes)
{
    static const char *const carriers[] = {
        "aten.view.",      "aten.reshape.", "aten.unsqueeze.",         "aten.squeeze.",
        "aten.transpose.", "aten.permute.", "aten.contiguous",         "aten.to.",
        "aten.expand.",    "aten.type_as.", "aten.repeat_interleave.", "aten.t."};
    const json_t *n = node_of(graph, name);
    const char *op = n ? json_string_value(json_object_get(n, "op")) : NULL;
    bool carries = op && strncmp(op, "aten.slice.", 11) == 0 && same_shape(graph, n);
    for (size_t i = 0; i < ASP_COUNT_OF(carriers); i++)
        carries |= op && strncmp(op, carriers[i], strlen(carriers[i])) == 0;
    if (carries)
        root_of(graph, first_ref(n), out, bytes);
    else if (op && strcmp(op, "getitem") == 0)
        snprintf(out, bytes, "%s.%lld", first_ref(n),
                 (long long)json_integer_value(json_array_get(json_object_get(n, "args"), 1)));
    else
        snprintf(out, bytes, "%s", name);
}

// expected.json counts scores exchanged S by S in `talking`; with the guard against that, and the
// price of gathering k and v, nothing is exchanged there.
static void read_expected(const json_t *graph, const json_t *expected, crossings *out)
{
    const json_t *list = json_object_get(expected, "exchanges");
    if (strcmp(json_string_value(json_object_get(graph, "name")), "talking") == 0) return;
    for (size_t i = 0; i < json_array_size(list); i++) {
        char root[64];
        const json_t *e = json_array_get(list, i);
        root_of(graph, json_string_value(json_object_get(e, "value")), root, sizeof root);
        add(out, root, strcmp(json_string_value(json_object_get(e, "to")), "seq") != 0);
    }
}

// ---- what there is -----------------------------------------------------------------------------

static bool carries(asp_op op)
{
    return op == ASP_OP_view || op == ASP_OP_permute || op == ASP_OP_cast || op == ASP_OP_repeat ||
           op == ASP_OP_expand;
}

static void read_graph(asp_graph *g, crossings *out)
{
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        if (info->op != ASP_OP_all_to_all) continue;
        const asp_a2a_attr *a = info->attr;
        asp_size gathered = asp_val_type(g, info->in[0])->dim[a->gather];
        bool to_other = asp_size_mentions(g, gathered, "S") || asp_size_mentions(g, gathered, "T");
        asp_val v = info->in[0];
        while (carries(asp_val_node(g, v)->op)) v = asp_val_node(g, v)->in[0];
        add(out, asp_val_str(g, v) + 1, to_other);
    }
}

typedef struct job {
    const char *file;
    const json_t *json;
    int64_t ranks;
    crossings *out;
} job;

static asp_status place(asp_ctx *cx, void *arg)
{
    const job *j = arg;
    asp_graph *g;
    char pipeline[256];
    ASP_TRY(asp_front_aten(cx, j->file, j->json, ASP_F32, &g));
    asp_pass_options o = {.ranks = j->ranks, .sp = "ulysses", .ac = "none", .dtype = ASP_F32};
    asp_env_fill(&o.env, &g->examples);
    // Up to and with the placement: behind it sizes are local.
    const char *end = strstr(ASP_PIPELINE_SHARD, "place");
    snprintf(pipeline, sizeof pipeline, "%.*s", (int)(end + 5 - ASP_PIPELINE_SHARD),
             ASP_PIPELINE_SHARD);
    asp_status s = asp_passes_run(cx, g, pipeline, &o, NULL);
    if (s == ASP_OK) read_graph(g, j->out);
    asp_graph_destroy(g);
    return s;
}

static void describe(asp_text *t, const char *what, const crossings *c)
{
    asp_put(t, "\n  %s:", what);
    for (int i = 0; i < c->n; i++)
        asp_put(t, " %s%s", c->at[i].to_other ? ">" : "<", c->at[i].name);
}

static void compare(asp_ctx *cx, const char *name, const json_t *expected, int64_t ranks)
{
    asp_arena a;
    json_t *json;
    crossings want = {0}, have = {0};
    char key[32];
    asp_arena_init(&a, cx);
    const char *path = asp_printf(&a, GRAPHS "%s.json", name);
    assert_int_equal(asp_json_read(cx, path, (size_t)1 << 24, &json), ASP_OK);
    snprintf(key, sizeof key, "P=%lld", (long long)ranks);
    read_expected(json, json_object_get(expected, key), &want);
    job j = {.file = path, .json = json, .ranks = ranks, .out = &have};
    if (asp_guard(cx, place, &j) < 0)
        fail_msg("%s, P = %lld: %s", name, (long long)ranks, cx->message);
    qsort(want.at, (size_t)want.n, sizeof want.at[0], by_name);
    qsort(have.at, (size_t)have.n, sizeof have.at[0], by_name);
    if (want.n != have.n || memcmp(want.at, have.at, (size_t)want.n * sizeof want.at[0]) != 0) {
        asp_text t;
        asp_text_init(&t, &a);
        describe(&t, "expected", &want);
        describe(&t, "found", &have);
        fail_msg("%s, P = %lld:%s", name, (long long)ranks, t.at);
    }
    json_decref(json);
    asp_arena_fini(&a);
}

static void test_graph(void **state)
{
    asp_ctx cx;
    json_t *all;
    asp_ctx_init(&cx);
    assert_int_equal(asp_json_read(&cx, GRAPHS "expected.json", (size_t)1 << 24, &all), ASP_OK);
    const json_t *expected = json_object_get(all, *state);
    assert_non_null(expected);
    for (int64_t ranks = 2; ranks <= 4; ranks += 2) compare(&cx, *state, expected, ranks);
    json_decref(all);
}

static const char *const names[] = {
    "attnconv", "bert",      "convnet", "encdec",       "fulllin",    "gemma2",     "gemma3",
    "gpt2",     "linattn",   "llama",   "llama_bf16",   "llama_deqs", "llama_docs", "llama_pad",
    "manual",   "minillama", "mistral", "mistral_docs", "mixtral",    "moe",        "mqa",
    "packed",   "packedqkv", "qwen3",   "qwen3_bf16",   "seqfirst",   "talking",    "tokenshift"};

int main(void)
{
    struct CMUnitTest tests[ASP_COUNT_OF(names)];
    for (size_t i = 0; i < ASP_COUNT_OF(names); i++)
        tests[i] = (struct CMUnitTest){.name = names[i],
                                       .test_func = test_graph,
                                       .initial_state = (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
