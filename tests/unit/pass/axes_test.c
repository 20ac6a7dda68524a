// Axes of a Llama layer and of layouts that merge and split dimensions, against axes derived by
// hand.  SPDX-License-Identifier: Apache-2.0
#include "pass/axes.h"
#include "unit/pass/llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static asp_ctx cx;
static asp_arena arena;

static const char *axes_of_text(const char *text)
{
    asp_graph *g;
    asp_axes x;
    asp_text t;
    asp_text_init(&t, &arena);
    if (asp_graph_parse(&cx, "t.ir", text, strlen(text), &g) < 0) fail_msg("%s", cx.message);
    if (asp_graph_typecheck(g) < 0) fail_msg("%s", cx.message);
    asp_axes_analyse(&arena, g, &x);
    asp_axes_put(&t, &x);
    asp_graph_destroy(g);
    return t.at;
}

static const char *axes_of(const char *body)
{
    return axes_of_text(asp_printf(&arena, "graph g {\n%s\n}\n", body));
}

#define IDS "%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
#define TABLE "%w : f32[31, 32] = param {name = \"w\"}\n"
#define EMBED IDS TABLE "%x : f32[B, S, 32] = embedding %ids, %w\n"

static void heads_are_refined_through_attention(void **state)
{
    (void)state;
    llama_shape m = {.layers = 1, .heads = 4, .kv_heads = 2, .B = "B", .S = "S"};
    const char *text = axes_of_text(llama_text(&arena, &m));
    // q's heads are (K/V head, copy); k's and v's heads are q's first atom.
    assert_non_null(strstr(text, "%q0 : b1, (a2 a3), s1, a4\n"));
    assert_non_null(strstr(text, "%q0.l : b1, s1, (a2 a3 a4)\n"));
    assert_non_null(strstr(text, "%k0 : b1, a2, s1, a4\n"));
    assert_non_null(strstr(text, "%v0.p : b1, a2, s1, a5\n"));
    assert_non_null(strstr(text, "%o0 : b1, (a2 a3), s1, a5\n"));
    assert_non_null(strstr(text, "%o0.v : b1, s1, (a2 a3 a5)\n"));
    assert_non_null(strstr(text, "%x1 : b1, s1, a1\n"));
    assert_null(strstr(text, "%positions"));
    assert_non_null(strstr(text, "%next : b1, s")); // labels shifted are labels still
}

static void equal_sizes_are_not_equal_axes(void **state)
{
    (void)state;
    llama_shape a = {.layers = 1, .heads = 1, .kv_heads = 1, .B = "B", .S = "S"};
    llama_shape b = {.layers = 1, .heads = 1, .kv_heads = 1, .B = "8", .S = "8"};
    assert_string_equal(axes_of_text(llama_text(&arena, &a)), axes_of_text(llama_text(&arena, &b)));
}

static void views_merge_and_split(void **state)
{
    (void)state;
    assert_string_equal(axes_of(EMBED "%a : f32[B*S, 32] = view %x {shape = [B*S, 32]}\n"
                                      "%b : f32[B*S, 4, 8] = view %a {shape = [B*S, 4, 8]}\n"
                                      "%c : f32[32*B*S] = view %b {shape = [32*B*S]}\n"),
                        "%ids : b1, s1\n%x : b1, s1, (a1 a2)\n%a : (b1 s1), (a1 a2)\n"
                        "%b : (b1 s1), a1, a2\n%c : (b1 s1 a1 a2)\n");
    // What cannot be cut is fresh behind the op.
    assert_string_equal(axes_of(EMBED "%a : f32[S, B, 32] = view %x {shape = [S, B, 32]}\n"),
                        "%ids : b1, s1\n%x : b1, s1, a1\n%a : a2, a3, a1\n");
}

static void token_axes_of_replicable_values(void **state)
{
    (void)state;
    // Ids keep theirs through permute and view; one iota of rows and columns has none.
    assert_string_equal(axes_of(IDS TABLE "%i : i64[S, B] = permute %ids {perm = [1, 0]}\n"
                                          "%j : i64[B*S] = view %i {shape = [B*S]}\n"
                                          "%x : f32[B*S, 32] = embedding %j, %w\n"),
                        "%ids : b1, s1\n%i : s1, b1\n%j : (s1 b1)\n%x : (s1 b1), a1\n");
    assert_string_equal(axes_of(EMBED "%p : i64[S] = iota\n"
                                      "%v : f32[16, 32] = param {name = \"v\"}\n"
                                      "%y : f32[S, 32] = embedding %p, %v\n"
                                      "%z : f32[B, S, 32] = add %x, %y\n"),
                        "%ids : b1, s1\n%x : b1, s1, a1\n%y : s1, a1\n%z : b1, s1, a1\n");
}

static void lost_dimensions_are_whole(void **state)
{
    (void)state;
    // 6 = 2 x 3 in one operand, 3 x 2 in the other: the sum has no axis to split there.
    const char *body = EMBED "%u : f32[6, 32] = param {name = \"u\"}\n"
                             "%v : f32[6, 32] = param {name = \"v\"}\n"
                             "%a : f32[B, S, 6] = linear %x, %u\n"
                             "%b : f32[B, S, 6] = linear %x, %v\n"
                             "%c : f32[B, S, 2, 3] = view %a {shape = [B, S, 2, 3]}\n"
                             "%d : f32[B, S, 3, 2] = view %b {shape = [B, S, 3, 2]}\n"
                             "%e : f32[B, S, 6] = add %a, %b\n";
    const char *text = asp_printf(&arena, "graph g {\n%s}\n", body);
    asp_graph *g;
    asp_axes x;
    assert_int_equal(asp_graph_parse(&cx, "t.ir", text, strlen(text), &g), ASP_OK);
    asp_axes_analyse(&arena, g, &x);
    const asp_node_axes *add = x.node[g->tail.i];
    assert_int_equal(add->rule.letter[add->rule.in[0][2].at[0]].kind, ASP_LETTER_WHOLE);
    assert_int_equal(add->rule.letter[add->rule.in[1][2].at[0]].kind, ASP_LETTER_WHOLE);
    assert_int_equal(add->letter[add->rule.in[1][2].at[0]].n, 2);
    asp_graph_destroy(g);
}

static int setup(void **state)
{
    (void)state;
    asp_ctx_init(&cx);
    asp_arena_init(&arena, &cx);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    asp_arena_fini(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_refined_through_attention),
        cmocka_unit_test(equal_sizes_are_not_equal_axes),
        cmocka_unit_test(views_merge_and_split),
        cmocka_unit_test(token_axes_of_replicable_values),
        cmocka_unit_test(lost_dimensions_are_whole),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
