// The text form: print, parse, print again; refusals with line and column. SPDX-License-Identifier:
// Apache-2.0
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const char sample[] =
    "graph t ranks 2 {\n"
    "  %ids : i64[B, S] = input {name = \"input_ids\", role = \"tokens\"}\n"
    "  %w : f32[31, 16] = param {name = \"model.w\"}\n"
    "  %0 : f32[B, S, 16] = embedding %ids, %w @ \"layers.3.embed\"\n"
    "  %1 : f32[B, S/2, 2, 8] = view %0 {shape = [B, S/2, 2, 8]}\n"
    "  %q : f32[B, 2, S/2, 8] = permute %1 {perm = [0, 2, 1, 3]} group 4\n"
    "  %out, %lse : f32[B, 2, S/2, 8], f32[B, 2, S/2] = sdpa %q, %q, %q {scale = 0.125}\n"
    "  return \"loss\" = %out, %lse\n"
    "}\n";

static char *print(asp_arena *a, const asp_graph *g)
{
    asp_text t;
    asp_text_init(&t, a);
    asp_graph_print(g, &t);
    return t.at;
}

static void print_and_parse_are_inverse(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_graph *g, *clone;
    assert_int_equal(asp_graph_parse(&cx, "t.ir", sample, strlen(sample), &g), ASP_OK);
    assert_string_equal(print(&a, g), sample);
    clone = asp_graph_clone(g);
    assert_string_equal(print(&a, clone), sample);
    assert_int_equal(asp_graph_hash(g), asp_graph_hash(clone));
    assert_int_equal(asp_loc_block(asp_val_node(g, asp_graph_find(g, "q"))->loc), -1);
    assert_int_equal(asp_loc_block("layers.3.embed"), 3);
    asp_graph_destroy(g);
    asp_graph_destroy(clone);
    asp_arena_fini(&a);
}

static void refusals_name_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "t.ir:1:1: 'graph' expected"},
        {"graph g {", "t.ir:1:10: '%name : type = op ...', 'return' or '}' expected"},
        {"graph g {\n  %a : f32[S] = frob\n}",
         "t.ir:2:17: unknown op 'frob'; `autosp docs ops` lists them"},
        {"graph g {\n  %a : f32[S] = neg %b\n}", "t.ir:2:21: %b is not defined above"},
        {"graph g {\n  %a : f99[S] = neg %b\n}",
         "t.ir:2:8: 'f99' is not a dtype (f32, f64, bf16, f16, i64, i32, u16, u8, bool)"},
        {"graph g {\n  %a : f32[1,1,1,1,1,1,1] = input\n}", "t.ir:2:24: more than 6 dimensions"},
        {"graph g {\n  %a : f32[S] = input {nam = \"x\"}\n}",
         "t.ir:2:24: input has no attribute 'nam'"},
        {"graph g {\n  %a : f32[S] = input\n  %b : f32[S] = add %a\n}",
         "t.ir:3:21: add takes 2 to 2 operands, not 1"},
        {"graph g {\n  %a : f32[99999999999999999999] = input\n}",
         "t.ir:2:27: a number in a size is above 2^53"},
    };
    asp_ctx cx;
    asp_ctx_init(&cx);
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_graph *g = NULL;
        assert_int_equal(asp_graph_parse(&cx, "t.ir", rows[i].text, strlen(rows[i].text), &g),
                         ASP_ERR_INPUT);
        assert_string_equal(cx.message, rows[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(print_and_parse_are_inverse),
        cmocka_unit_test(refusals_name_line_and_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
