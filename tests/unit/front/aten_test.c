// The importer of exported PyTorch graphs: the table's own order and grammar, every graph of
// tests/fixtures/graphs in and through the text form, and what is refused with which words.
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "front/aten_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define GRAPHS ASP_SOURCE_DIR "/tests/fixtures/graphs/"

static const char *const names[] = {
    "attnconv", "bert",      "convnet", "encdec",       "fulllin",    "gemma2",     "gemma3",
    "gpt2",     "linattn",   "llama",   "llama_bf16",   "llama_deqs", "llama_docs", "llama_pad",
    "manual",   "minillama", "mistral", "mistral_docs", "mixtral",    "moe",        "mqa",
    "packed",   "packedqkv", "qwen3",   "qwen3_bf16",   "seqfirst",   "talking",    "tokenshift"};

// ---- the table ---------------------------------------------------------------------------------

static void rows_are_in_order_and_well_formed(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    for (uint32_t i = 0; i < aten_row_count; i++) {
        assert_ptr_equal(aten_find(aten_rows[i].overload), &aten_rows[i]);
        // Decoding walks all parameters of the row and checks their grammar as it goes.
        aten_import m = {.cx = &cx, .file = "row", .g = asp_graph_create(&cx, "row")};
        asp_arena_init(&m.arena, &cx);
        aten_call *c = ASP_NEW(&m.arena, aten_call);
        *c = (aten_call){.m = &m, .row = &aten_rows[i], .name = "v"};
        json_t *args = json_array(), *kwargs = json_object();
        (void)aten_decode(c, args, kwargs);
        json_decref(args);
        json_decref(kwargs);
        asp_arena_fini(&m.arena);
        asp_graph_destroy(m.g);
    }
    assert_null(aten_find("aten.nothing.default"));
}

// ---- graphs ------------------------------------------------------------------------------------

typedef struct job {
    const char *path;
    asp_dtype dtype;
    asp_text *text;
    asp_program *program;
} job;

static asp_status load_and_parse_back(asp_ctx *cx, void *arg)
{
    job *j = arg;
    asp_program p;
    asp_graph *again;
    ASP_TRY(asp_front_load(cx, j->path, j->dtype, &p));
    assert_int_equal(asp_graph_verify(p.graph), ASP_OK);
    ASP_TRY(asp_graph_typecheck(p.graph));
    asp_graph_print(p.graph, j->text);
    ASP_TRY(asp_graph_parse(cx, j->path, j->text->at, j->text->n, &again));
    ASP_TRY(asp_graph_typecheck(again));
    assert_true(asp_graph_hash(again) == asp_graph_hash(p.graph));
    assert_int_equal(again->n_nodes, p.graph->n_nodes);
    asp_graph_destroy(again);
    asp_program_fini(&p);
    return ASP_OK;
}

static void every_graph_comes_in_and_prints(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(names); i++) {
        asp_ctx cx;
        asp_arena a;
        asp_text text;
        asp_ctx_init(&cx);
        asp_arena_init(&a, &cx);
        asp_text_init(&text, &a);
        job j = {.path = asp_printf(&a, GRAPHS "%s.json", names[i]), .text = &text};
        j.dtype = i % 2 ? ASP_F32 : ASP_F64;
        if (asp_guard(&cx, load_and_parse_back, &j) < 0) fail_msg("%s", cx.message);
        asp_arena_fini(&a);
    }
}

static asp_status load_only(asp_ctx *cx, void *arg)
{
    job *j = arg;
    return asp_front_load(cx, j->path, ASP_F64, j->program);
}

static void names_and_places_travel(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_program p;
    asp_ctx_init(&cx);
    job j = {.path = GRAPHS "llama.json", .program = &p};
    if (asp_guard(&cx, load_only, &j) < 0) fail_msg("%s", cx.message);
    asp_val norm = asp_graph_find(p.graph, "v55");
    assert_int_equal(asp_val_node(p.graph, norm)->op, ASP_OP_rsqrt);
    const char *loc = asp_val_node(p.graph, norm)->loc;
    assert_string_equal(loc, "model.layers.0.input_layernorm at modeling_llama.py:66");
    assert_int_equal(asp_loc_block(loc), 0);
    assert_int_equal(asp_loc_block("model.rotary_emb at modeling_llama.5.py:3"), -1);
    assert_int_equal(p.graph->examples.n, 1);
    assert_string_equal(p.graph->examples.at[0].symbol, "S");
    assert_int_equal(p.graph->examples.at[0].value, 24);
    assert_int_equal(p.vocab, 61);
    assert_int_equal(p.graph->outputs.n, 1);
    assert_string_equal(p.graph->outputs.at[0].name, "loss");
    asp_program_fini(&p);
}

// ---- what is refused ---------------------------------------------------------------------------

typedef struct text_job {
    const char *text;
} text_job;

static asp_status import_text(asp_ctx *cx, void *arg)
{
    const text_job *j = arg;
    json_t *json;
    asp_graph *g;
    ASP_TRY(asp_json_parse(cx, "graph.json", j->text, strlen(j->text), &json));
    asp_status s = asp_front_aten(cx, "graph.json", json, ASP_F64, &g);
    json_decref(json);
    if (s == ASP_OK) asp_graph_destroy(g);
    return s;
}

// What stands between the brackets of a file that is sound but for it.
#define FILE_WITH(nodes)                                                                          \
    "{\"version\": 1, \"name\": \"t\", \"symbols\": {\"S\": 4}, \"inputs\": ["                    \
    "{\"name\": \"x\", \"role\": \"other\", \"dtype\": \"f32\", \"shape\": [2, \"S\"]},"          \
    "{\"name\": \"ids\", \"role\": \"input_ids\", \"dtype\": \"i64\", \"shape\": [2, \"S\"]},"    \
    "{\"name\": \"w\", \"role\": \"param\", \"dtype\": \"f32\", \"shape\": [3, 2]}], \"nodes\": " \
    "[" nodes "], \"outputs\": [{\"ref\": \"loss\"}]}"
#define SUM(x)                                                                             \
    "{\"name\": \"loss\", \"op\": \"aten.sum.default\", \"args\": [{\"ref\": \"" x "\"}]," \
    "\"out\": {\"dtype\": \"f32\", \"shape\": []}}"
#define NODE(name, op, args, dtype, shape)                                      \
    "{\"name\": \"" name "\", \"op\": \"" op "\", \"args\": " args              \
    ", \"kwargs\": {}, \"layer\": \"layers.1.mlp\", \"line\": \"net.py:7: y\"," \
    "\"out\": {\"dtype\": \"" dtype "\", \"shape\": " shape "}}"

static void refuses(const char *text, const char *words)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    text_job j = {text};
    asp_status s = asp_guard(&cx, import_text, &j);
    if (s >= 0) fail_msg("not refused: %s", text);
    if (!strstr(cx.message, words)) fail_msg("\"%s\" not in \"%s\"", words, cx.message);
    if (!strstr(cx.message, "graph.json")) fail_msg("no file in \"%s\"", cx.message);
}

static void takes(const char *text)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    text_job j = {text};
    if (asp_guard(&cx, import_text, &j) < 0) fail_msg("%s", cx.message);
}

static void unknown_ops_are_named_with_their_place(void **state)
{
    (void)state;
    refuses(FILE_WITH(NODE("v0", "aten.mystery.default", "[{\"ref\": \"x\"}]", "f32",
                           "[2, \"S\"]") "," SUM("v0")),
            "nodes[0]: node v0, aten.mystery.default (layers.1.mlp at net.py:7): this op is not "
            "supported");
    refuses(FILE_WITH(NODE("v0", "aten.nonzero.default", "[{\"ref\": \"x\"}]", "i64", "[2, 2]")),
            "nodes[0]: node v0, aten.nonzero.default (layers.1.mlp at net.py:7): how large its "
            "result is depends on data");
}

static void malformed_files_are_refused(void **state)
{
    (void)state;
    takes(FILE_WITH(SUM("x")));
    refuses("{\"nodes\": []}", "\"version\" is missing");
    refuses("{\"version\": 2, \"nodes\": []}", "version 2");
    refuses("{\"version\": 1, \"nodes\": []}", "\"symbols\" must be an object");
    refuses("{\"version\": 1, \"symbols\": {\"S\": 0}, \"nodes\": []}", "positive example value");
    refuses("{\"version\": 1, \"symbols\": {\"overflow\": 3}, \"nodes\": []}", "no symbol");
    refuses(FILE_WITH(SUM("y")), "node loss, aten.sum.default: argument x: \"y\" is not defined");
    refuses(FILE_WITH(SUM("x") "," SUM("x")), "loss is defined twice");
    refuses(FILE_WITH("7"), "nodes[0]: must be an object");
    refuses(FILE_WITH(NODE("a b", "aten.neg.default", "[]", "f32", "[]")), "is no name");
    refuses(FILE_WITH(NODE("v0", "aten.neg.default", "[]", "f32", "[2, \"S\"]")),
            "the argument x is missing");
    refuses(FILE_WITH(NODE("v0", "aten.neg.default", "[3]", "f32", "[2, \"S\"]")),
            "the argument x must be a tensor");
    refuses(FILE_WITH(NODE("v0", "aten.neg.default", "[{\"ref\": \"x\"}, 1]", "f32", "[2, \"S\"]")),
            "2 arguments; 1 are supported");
    refuses(FILE_WITH(NODE("v0", "aten.neg.default", "[{\"ref\": \"x\"}]", "f32", "[\"S\", 2]")),
            "the file declares f64[S, 2]");
    refuses(FILE_WITH(NODE("v0", "aten.neg.default", "[{\"ref\": \"x\"}]", "f33", "[2]")),
            "\"f33\" is not a dtype");
    refuses(FILE_WITH(NODE("v0", "getitem", "[{\"ref\": \"x\"}, 0]", "f32", "[2, \"S\"]")),
            "picks from a list above");
    refuses(FILE_WITH(NODE("v0", "aten.neg.default", "[{\"ref\": \"x\"}]", "f32",
                           "[2, \"S\"]") ",{\"name\":\"loss\",\"op\":\"aten.neg.default\",\"args\":"
                                         "[{\"ref\":\"v0\"}],"
                                         "\"out\":{\"dtype\":\"f32\",\"shape\":[2,\"S\"]}}"),
            "gives its loss first");
}

static void sizes_are_bounded(void **state)
{
    (void)state;
#define VIEW(size) NODE("v0", "aten.neg.default", "[{\"ref\": \"x\"}]", "f32", "[2, \"" size "\"]")
    takes(FILE_WITH(VIEW("(S**2)//S") "," SUM("v0")));
    takes(FILE_WITH(VIEW("2*S-S") "," SUM("v0")));
    refuses(FILE_WITH(VIEW("T")), "names a symbol that is not in \"symbols\"");
    refuses(FILE_WITH(VIEW("S/2")), "divides by / and not by //");
    refuses(FILE_WITH(VIEW("S//0")), "divides by 0");
    refuses(FILE_WITH(VIEW("((((((((((((((((((((S")), "is nested too deeply");
    refuses(FILE_WITH(VIEW("S+99999999999999999999")), "above 2^53");
    refuses(FILE_WITH(VIEW("S**9")), "power");
    refuses(FILE_WITH(VIEW("S**6*S**6*9007199254740992*9007199254740992")), "is too large");
    refuses(FILE_WITH(VIEW("S+9007199254740992+9007199254740992")), "above 2^53");
    refuses(FILE_WITH(NODE("v0", "aten.slice.Tensor", "[{\"ref\": \"x\"}, 1, 4611686018427387904]",
                           "f32", "[2, 1]")),
            "argument start is above 2^53");
    refuses(FILE_WITH(VIEW("S S")), "goes on");
    refuses(FILE_WITH(VIEW("")), "holds what is neither");
    refuses(FILE_WITH(NODE("v0", "aten.neg.default", "[{\"ref\": \"x\"}]", "f32", "[2, 0]")),
            "empty tensors");
    refuses(FILE_WITH(NODE("v0", "aten.neg.default", "[{\"ref\": \"x\"}]", "f32",
                           "[1, 1, 1, 1, 1, 1, 1]")),
            "7 dimensions");
}

// x += 1 changes what shares its memory: reading a view made before is refused, the name goes on.
static void in_place_ops_void_what_was_made_before(void **state)
{
    (void)state;
#define NEG(name, x) NODE(name, "aten.neg.default", "[{\"ref\": \"" x "\"}]", "f32", "[2, \"S\"]")
#define ADD_(name, x) \
    NODE(name, "aten.add_.Tensor", "[{\"ref\": \"" x "\"}, 1.0]", "f32", "[2, \"S\"]")
#define SAME(name, x) \
    NODE(name, "aten.contiguous.default", "[{\"ref\": \"" x "\"}]", "f32", "[2, \"S\"]")
    takes(FILE_WITH(NEG("v0", "x") "," ADD_("v1", "v0") "," NEG("v2", "v0") "," SUM("v2")));
    refuses(FILE_WITH(NEG("v0", "x") "," SAME("v1", "v0") "," ADD_("v2", "v0") "," SUM("v1")),
            "reads v1, whose memory v2 changed in place");
    refuses(FILE_WITH(ADD_("v0", "x") "," SUM("v0")), "changes x, which the program is given");
}

static void sorted_experts_name_the_way_out(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_program p;
    asp_ctx_init(&cx);
    job j = {.path = GRAPHS "mixtral_grouped.json", .program = &p};
    assert_true(asp_guard(&cx, load_only, &j) < 0);
    assert_non_null(strstr(cx.message, "experts_implementation=\"batched_mm\""));
    assert_non_null(strstr(cx.message, "model.layers.0.mlp.experts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_in_order_and_well_formed),
        cmocka_unit_test(every_graph_comes_in_and_prints),
        cmocka_unit_test(names_and_places_travel),
        cmocka_unit_test(unknown_ops_are_named_with_their_place),
        cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(in_place_ops_void_what_was_made_before),
        cmocka_unit_test(sorted_experts_name_the_way_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
