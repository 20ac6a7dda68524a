// A placement does not depend on the order in which a program lists its ops: every graph of
// tests/fixtures/graphs, its lines shuffled in all ways that keep operands before readers, gets the
// exchanges that it had.  SPDX-License-Identifier: Apache-2.0
#include "front/front.h"
#include "pass/pass.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define GRAPHS ASP_SOURCE_DIR "/tests/fixtures/graphs/"
#define SHUFFLES 4
#define MAX_LINES 2048
#define MAX_READS 16

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

// ---- lines -------------------------------------------------------------------------------------

// %0, a value without a name, becomes %u.0, so that it has the same name wherever it stands.
static const char *with_names(asp_arena *a, const char *text)
{
    asp_text t;
    asp_text_init(&t, a);
    for (const char *s = text; *s; s++)
        asp_put(&t, "%c%s", *s, *s == '%' && isdigit((unsigned char)s[1]) ? "u." : "");
    return t.at;
}

typedef struct program {
    char *line[MAX_LINES];                               // those of ops
    int reads[MAX_LINES][MAX_READS], n_reads[MAX_LINES]; // lines whose values it reads
    int n;
    const char *head, *tail;
} program;

static size_t name_length(const char *s)
{
    size_t n = 1;
    while (isalnum((unsigned char)s[n]) || s[n] == '.' || s[n] == '_') n++;
    return n;
}

// Does the line define the value that stands at `name`?
static bool defines(const char *line, const char *name, size_t n)
{
    for (const char *s = line; *s && *s != ':'; s++)
        if (*s == '%' && name_length(s) == n && memcmp(s, name, n) == 0) return true;
    return false;
}

static void find_reads(program *p, int line)
{
    for (const char *s = strstr(p->line[line], " = "); s && *s; s++) {
        if (*s == '"') s = strchr(s + 1, '"'); // a layer's name
        for (int i = line; *s == '%' && i-- > 0;) {
            if (!defines(p->line[i], s, name_length(s))) continue;
            assert_true(p->n_reads[line] < MAX_READS);
            p->reads[line][p->n_reads[line]++] = i;
            break;
        }
    }
}

static void cut_lines(asp_arena *a, const char *text, program *p)
{
    char *copy = asp_printf(a, "%s", text), *at = strchr(copy, '\n');
    memset(p, 0, sizeof *p);
    p->head = copy;
    *at++ = '\0';
    while (strncmp(at, "  return", 8) != 0) {
        char *end = strchr(at, '\n');
        assert_true(p->n < MAX_LINES);
        *end = '\0';
        p->line[p->n++] = at;
        at = end + 1;
    }
    p->tail = at;
    for (int i = 0; i < p->n; i++) find_reads(p, i);
}

// Lines whose operands stand there already, one of them at random, until all do.
static const char *shuffled(asp_arena *a, const program *p, uint32_t *seed)
{
    asp_text t;
    bool *done = ASP_NEW_ARRAY(a, bool, (size_t)p->n);
    asp_text_init(&t, a);
    asp_put(&t, "%s\n", p->head);
    for (int n = 0; n < p->n;) {
        const int i = (int)(next_random(seed) % (uint32_t)p->n);
        bool ready = !done[i];
        for (int r = 0; r < p->n_reads[i]; r++) ready = ready && done[p->reads[i][r]];
        if (!ready) continue;
        asp_put(&t, "%s\n", p->line[i]);
        done[i] = true;
        n++;
    }
    asp_put(&t, "%s", p->tail);
    return t.at;
}

// ---- exchanges ---------------------------------------------------------------------------------

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Each exchange: what crosses, and between which dims; in the order of the alphabet.
static const char *exchanges_of(asp_arena *a, asp_graph *g)
{
    char *all[256];
    size_t n = 0;
    asp_text t;
    ASP_FOR_NODES (g, node) {
        const asp_node_info *info = asp_node_at(g, node);
        if (info->op != ASP_OP_all_to_all) continue;
        const asp_a2a_attr *x = info->attr;
        asp_val v = info->in[0];
        while (!asp_val_at(g, v)->name) v = asp_val_node(g, v)->in[0]; // made by the pass
        assert_true(n < ASP_COUNT_OF(all));
        all[n++] = asp_printf(a, "%s %s %lld %lld\n", asp_val_str(g, v),
                              asp_type_str(g, asp_val_type(g, info->in[0])), (long long)x->split,
                              (long long)x->gather);
    }
    qsort(all, n, sizeof *all, by_text);
    asp_text_init(&t, a);
    asp_put(&t, "%s", "");
    for (size_t i = 0; i < n; i++) asp_put(&t, "%s", all[i]);
    return t.at;
}

typedef struct job {
    const char *file, *text;
    const json_t *json;
    int64_t ranks;
    asp_arena *arena;
    const char *result;
} job;

static asp_pass_options options_of(const asp_graph *g, int64_t ranks)
{
    asp_pass_options o = {.ranks = ranks, .sp = "ulysses", .ac = "none", .dtype = ASP_F32};
    if (g) asp_env_fill(&o.env, &g->examples);
    return o;
}

// The graph as text, as `place` reads it.
static asp_status import(asp_ctx *cx, void *arg)
{
    job *j = arg;
    asp_graph *g;
    asp_text t;
    ASP_TRY(asp_front_aten(cx, j->file, j->json, ASP_F32, &g));
    asp_pass_options o = options_of(g, j->ranks);
    asp_status s = asp_passes_run(cx, g, "canonicalise,masks,dce,loss", &o, NULL);
    asp_text_init(&t, j->arena);
    if (s == ASP_OK) asp_graph_print(g, &t);
    j->result = t.at;
    asp_graph_destroy(g);
    return s;
}

static asp_status place(asp_ctx *cx, void *arg)
{
    job *j = arg;
    asp_graph *g;
    ASP_TRY(asp_graph_parse(cx, "shuffled", j->text, strlen(j->text), &g));
    asp_pass_options o = options_of(NULL, j->ranks);
    asp_status s = asp_passes_run(cx, g, "place", &o, NULL);
    if (s == ASP_OK) j->result = exchanges_of(j->arena, g);
    asp_graph_destroy(g);
    return s;
}

static void order_does_not_matter(void **state)
{
    asp_ctx cx;
    asp_arena a;
    json_t *json;
    static program p;
    uint32_t seed = 5;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    const char *path = asp_printf(&a, GRAPHS "%s.json", (const char *)*state);
    assert_int_equal(asp_json_read(&cx, path, (size_t)1 << 24, &json), ASP_OK);
    for (int64_t ranks = 2; ranks <= 4; ranks += 2) {
        job j = {.file = path, .json = json, .ranks = ranks, .arena = &a};
        if (asp_guard(&cx, import, &j) < 0) fail_msg("%s", cx.message);
        j.text = with_names(&a, j.result);
        if (asp_guard(&cx, place, &j) < 0) fail_msg("%s", cx.message);
        const char *first = j.result;
        cut_lines(&a, j.text, &p);
        for (int i = 0; i < SHUFFLES; i++) {
            j.text = shuffled(&a, &p, &seed);
            if (asp_guard(&cx, place, &j) < 0) fail_msg("%s\n%s", cx.message, j.text);
            if (strcmp(j.result, first) != 0)
                fail_msg("P = %lld, as listed:\n%s\nshuffled:\n%s\n%s", (long long)ranks, first,
                         j.result, j.text);
        }
    }
    json_decref(json);
    asp_arena_fini(&a);
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
                                       .test_func = order_does_not_matter,
                                       .initial_state = (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
