// The edit list of a framework's graph: made for all that can be split, of one graph and once, with
// the exchanges of placement; ops that are not known.  That the lists do what they say is tested in
// PyTorch (tests/python/pytorch).  SPDX-License-Identifier: Apache-2.0
#include "autosp.h"
#include "base/file.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define GRAPHS ASP_SOURCE_DIR "/tests/fixtures/graphs/"

static char *read_graph(asp_arena *a, const char *name, size_t *out_bytes)
{
    char path[512], *text = NULL;
    snprintf(path, sizeof path, GRAPHS "%s.json", name);
    assert_int_equal(asp_file_read(a, path, 1 << 26, &text, out_bytes), ASP_OK);
    return asp_copy_str(a, text);
}

static int count(const json_t *list, const char *op)
{
    int n = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        n += strcmp(json_string_value(json_object_get(json_array_get(list, i), "op")), op) == 0;
    return n;
}

typedef struct fixture {
    asp_ctx files; // for reading
    asp_arena arena;
    asp_ctx *cx;
} fixture;

static fixture begin(void)
{
    fixture f = {.cx = asp_ctx_create()};
    asp_ctx_init(&f.files);
    return f;
}

// begin: what stands before the file's other keys.
static json_t *edits_with(fixture *f, const char *begin, const char *name, int64_t ranks,
                          const char *sp)
{
    asp_edits *e;
    size_t n;
    asp_arena_init(&f->arena, &f->files);
    const char *text = read_graph(&f->arena, name, &n);
    text = asp_printf(&f->arena, "{%s%s", begin, text + 1);
    n += strlen(begin);
    if (asp_edits_create(f->cx, name, text, n, "f32", ranks, sp, &e) != ASP_OK)
        fail_msg("%s", asp_ctx_message(f->cx));
    json_t *list = json_loads(asp_edits_json(e), 0, NULL);
    assert_non_null(list);
    asp_edits_destroy(e);
    asp_arena_fini(&f->arena);
    return list;
}

static json_t *edits_of(fixture *f, const char *name, int64_t ranks, const char *sp)
{
    return edits_with(f, "", name, ranks, sp);
}

// Four exchanges a layer (q, k, v, out), one all-reduce of the loss; the mask is gone.
static void a_llama_is_split_by_heads(void **state)
{
    (void)state;
    fixture f = begin();
    json_t *list = edits_of(&f, "llama", 2, "ulysses"), *in = json_object_get(list, "insert");
    assert_int_equal(count(in, "autosp.all_to_all"), 8);
    assert_int_equal(count(in, "autosp.all_reduce"), 1);
    assert_int_equal(count(in, "aten.scaled_dot_product_attention.default"), 2);
    json_decref(list);
    list = edits_of(&f, "llama", 2, "ring");
    assert_int_equal(count(json_object_get(list, "insert"), "autosp.ring_sdpa"), 2);
    json_decref(list);
    asp_ctx_destroy(f.cx);
}

// Windows, padding and documents are told as predicates, on one rank, between heads and around a
// ring; a head whose logits nobody else reads is told with its loss.
static void masks_are_predicates(void **state)
{
    (void)state;
    static const struct {
        const char *graph, *mask;
    } cases[] = {{"mistral", "q - k <= 6"},
                 {"llama_pad", "T0[k] != 0"},
                 {"llama_docs", "T0[q] == T0[k]"},
                 {"mistral_docs", "q - k <= 6 & T0[q] == T0[k]"}};
    static const struct {
        int64_t ranks;
        const char *sp, *op;
    } ways[] = {{1, NULL, "autosp.attention"},
                {2, "ulysses", "autosp.attention"},
                {3, "ring", "autosp.ring_sdpa"}};
    fixture f = begin();
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 3; k++) {
            json_t *list = edits_of(&f, cases[i].graph, ways[k].ranks, ways[k].sp),
                   *in = json_object_get(list, "insert");
            assert_int_equal(count(in, ways[k].op), 2);
            assert_int_equal(count(in, "autosp.head_loss"), 1);
            for (size_t n = 0; n < json_array_size(in); n++) {
                const json_t *x = json_array_get(in, n);
                if (strcmp(json_string_value(json_object_get(x, "op")), ways[k].op) != 0) continue;
                const json_t *mask = json_array_get(json_object_get(x, "args"), 6);
                assert_string_equal(json_string_value(mask), cases[i].mask);
            }
            json_decref(list);
        }
    }
    asp_ctx_destroy(f.cx);
}

// On one rank nothing is exchanged, but masks are proved, and random numbers are ours.
static void one_rank_keeps_all_but_masks(void **state)
{
    (void)state;
    fixture f = begin();
    json_t *list = edits_of(&f, "llama", 1, NULL), *in = json_object_get(list, "insert");
    assert_int_equal(count(in, "aten.scaled_dot_product_attention.default"), 2);
    assert_int_equal(count(in, "autosp.head_loss"), 1);
    json_decref(list);
    list = edits_of(&f, "gpt2", 1, NULL);
    in = json_object_get(list, "insert");
    assert_int_equal(count(in, "autosp.dropout"), 5);
    assert_int_equal(count(in, "autosp.attention"), 2);
    json_decref(list);
    list = edits_of(&f, "minillama", 1, NULL); // written with is_causal
    in = json_object_get(list, "insert");
    assert_int_equal(count(in, "aten.scaled_dot_product_attention.default"), 0);
    assert_int_equal(json_array_size(json_object_get(list, "rewire")), 0);
    json_decref(list);
    asp_ctx_destroy(f.cx);
}

// Where PyTorch computes on a CPU, attention is our kernel: not with heads that vectors do not
// divide, nor on other devices.
static void attention_is_ours_on_a_cpu(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *graph;
        int ours, theirs;
    } cases[] = {{"\"device\":\"cpu\",", "llama", 2, 0},
                 {"\"device\":\"cuda\",", "llama", 0, 2},
                 {"", "llama", 0, 2},
                 {"\"device\":\"cpu\",", "qwen3", 0, 2}};
    fixture f = begin();
    for (size_t i = 0; i < 4; i++) {
        json_t *list = edits_with(&f, cases[i].begin, cases[i].graph, 2, "ulysses"),
               *in = json_object_get(list, "insert");
        assert_int_equal(count(in, "autosp.attention"), cases[i].ours);
        assert_int_equal(count(in, "aten.scaled_dot_product_attention.default"), cases[i].theirs);
        json_decref(list);
    }
    asp_ctx_destroy(f.cx);
}

// Left open, the strategy is one that could have been asked for, and its list is the same then.
static void a_strategy_is_chosen(void **state)
{
    (void)state;
    static const char *const graphs[] = {"llama", "llama_docs", "bert"};
    fixture f = begin();
    for (size_t i = 0; i < 3; i++) {
        asp_edits *open, *asked;
        size_t n;
        asp_arena_init(&f.arena, &f.files);
        char *text = read_graph(&f.arena, graphs[i], &n);
        assert_int_equal(asp_edits_create(f.cx, "x", text, n, "f32", 8, "auto", &open), ASP_OK);
        const char *sp = asp_edits_strategy(open);
        assert_string_not_equal(sp, "auto");
        assert_int_equal(asp_edits_create(f.cx, "x", text, n, "f32", 8, sp, &asked), ASP_OK);
        assert_string_equal(asp_edits_strategy(asked), sp);
        assert_string_equal(asp_edits_json(asked), asp_edits_json(open));
        asp_edits_destroy(open);
        asp_edits_destroy(asked);
        asp_arena_fini(&f.arena);
    }
    asp_ctx_destroy(f.cx);
}

static void a_list_is_of_one_graph(void **state)
{
    (void)state;
    fixture f = begin();
    asp_edits *e;
    size_t n, k;
    asp_arena_init(&f.arena, &f.files);
    char *llama = read_graph(&f.arena, "llama", &n), *other = read_graph(&f.arena, "qwen3", &k);
    assert_int_equal(asp_edits_create(f.cx, "llama", llama, n, "f32", 2, "ulysses", &e), ASP_OK);
    assert_int_equal(asp_edits_fit(e, llama, n), ASP_OK);
    assert_int_equal(asp_edits_fit(e, other, k), ASP_ERR_USAGE);
    assert_non_null(strstr(asp_ctx_message(f.cx), "another graph"));
    assert_true(asp_edits_verify(e, llama, n) < 0); // nothing was applied
    asp_edits_destroy(e);
    asp_arena_fini(&f.arena);
    asp_ctx_destroy(f.cx);
}

// Replaces the first `from` by `to`, of the same length.
static void replace(char *text, const char *from, const char *to)
{
    assert_int_equal(strlen(from), strlen(to));
    const size_t n = strlen(to), at = (size_t)(strstr(text, from) - text);
    for (size_t i = 0; i < n; i++) text[at + i] = to[i];
}

static void unknown_ops_may_read_whole_values(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        bool taken;
    } cases[] = {{"aten.cos.default", "aten.coz.default", true},     // of the rotary table
                 {"aten.silu.default", "aten.sily.default", false}}; // of the MLP
    fixture f = begin();
    for (size_t i = 0; i < 2; i++) {
        asp_edits *e = NULL;
        size_t n;
        asp_arena_init(&f.arena, &f.files);
        char *text = read_graph(&f.arena, "llama", &n);
        replace(text, cases[i].from, cases[i].to);
        asp_status s = asp_edits_create(f.cx, "llama", text, n, "f32", 2, "ulysses", &e);
        assert_int_equal(s, cases[i].taken ? ASP_OK : ASP_ERR_UNSUPPORTED);
        if (s < 0) {
            assert_non_null(strstr(asp_ctx_message(f.cx), "aten.sily.default"));
            assert_non_null(strstr(asp_ctx_message(f.cx), "mlp"));
        }
        asp_edits_destroy(e);
        asp_arena_fini(&f.arena);
    }
    asp_ctx_destroy(f.cx);
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_edits *e;
    const char *text = "{\"nodes\": []}";
    assert_true(asp_edits_create(cx, "x", text, strlen(text), "f32", 2, NULL, &e) < 0);
    assert_true(asp_edits_create(cx, "x", text, strlen(text), "f16", 2, NULL, &e) < 0);
    assert_true(asp_edits_create(cx, "x", text, strlen(text), "f32", 0, NULL, &e) < 0);
    assert_true(asp_edits_create(cx, "x", NULL, 0, "f32", 2, NULL, &e) < 0);
    assert_true(asp_edits_fit(NULL, text, 1) < 0);
    assert_null(asp_edits_json(NULL));
    asp_edits_destroy(NULL);
    asp_ctx_destroy(cx);
}

static void rows_of_ranks(void **state)
{
    (void)state;
    int64_t out[3];
    asp_row_places(7, 3, 1, false, 2, out);
    assert_int_equal(out[0], 5);
    assert_int_equal(out[1], 6);
    assert_int_equal(out[2], -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_is_split_by_heads),
        cmocka_unit_test(masks_are_predicates),
        cmocka_unit_test(one_rank_keeps_all_but_masks),
        cmocka_unit_test(attention_is_ours_on_a_cpu),
        cmocka_unit_test(a_strategy_is_chosen),
        cmocka_unit_test(a_list_is_of_one_graph),
        cmocka_unit_test(unknown_ops_may_read_whole_values),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(rows_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
