// Sharding rules as text, against what the op's definition says by hand.  SPDX-License-Identifier:
// Apache-2.0
#include "op/rule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static asp_ctx cx;
static asp_arena arena;

// "ab,(bc) -> a(bc); B whole, c+ summed": letters in the order of their first use.
static void put_dims(asp_text *t, const asp_rule *r, const asp_rule_dim *dims, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++) {
        if (dims[d].n == 0) asp_put(t, "1");
        if (dims[d].n > 1) asp_put(t, "(");
        for (uint32_t i = 0; i < dims[d].n; i++) {
            uint8_t c = dims[d].at[i], kind = r->letter[c].kind;
            asp_put(t, "%c%s", (kind == ASP_LETTER_WHOLE ? 'A' : 'a') + c,
                    kind == ASP_LETTER_SUM ? "+" : "");
        }
        if (dims[d].n > 1) asp_put(t, ")");
    }
}

// The rule of the last node of the graph's body, as text.
static const char *rule_of(const char *body)
{
    asp_text src, t;
    asp_text_init(&src, &arena);
    asp_text_init(&t, &arena);
    asp_put(&src, "graph g {\n%s\n}\n", body);
    asp_graph *g;
    if (asp_graph_parse(&cx, "t.ir", src.at, src.n, &g) < 0) fail_msg("%s", cx.message);
    if (asp_graph_typecheck(g) < 0) fail_msg("%s", cx.message);
    asp_rule r;
    if (!asp_rule_of(&arena, g, g->tail, &r)) {
        asp_graph_destroy(g);
        return "none";
    }
    const asp_node_info *info = asp_node_at(g, g->tail);
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_put(&t, "%s", i ? "," : "");
        put_dims(&t, &r, r.in[i], asp_val_type(g, info->in[i])->rank);
    }
    asp_put(&t, "->");
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_put(&t, "%s", i ? "," : "");
        put_dims(&t, &r, r.out[i], asp_val_type(g, (asp_val){info->first.i + i})->rank);
    }
    asp_graph_destroy(g);
    return t.at;
}

#define X(name, type) "%" name " : " type " = input {name = \"" name "\"}\n"

static void rules_of_strings(void **state)
{
    (void)state;
    static const struct {
        const char *body, *rule;
    } rows[] = {
        {X("x", "f32[B, S, 8]") X("w", "f32[4, 8]") "%0 : f32[B, S, 4] = linear %x, %w",
         "abC,dC->abd"},
        {X("x", "f32[B, S, 8]") X("w", "f32[8]") "%0 : f32[B, S, 8] = rms_norm %x, %w",
         "abC,C->abC"},
        {X("x", "f32[B, S, 8]") X("y", "f32[S, 1]") "%0 : f32[B, S, 8] = add %x, %y",
         "abc,b1->abc"},
        {X("x", "f32[1, S]") X("y", "f32[1, 1]") "%0 : f32[1, S] = add %x, %y", "ab,a1->ab"},
        {X("q", "f32[B, 8, S, 4]") X("k", "f32[B, 2, S, 4]")
             X("v", "f32[B, 2, S, 4]") "%0, %1 : f32[B, 8, S, 4], f32[B, 8, S] = sdpa %q, %k, %v",
         "a(bc)DE,abFE,abFG->a(bc)DG,a(bc)D"},
        {X("x", "f32[B, S, 8]") X("y", "f32[B, S, 4]") "%0 : f32[8, 4] = gemm_tn %x, %y",
         "a+b+c,a+b+d->cd"},
        {X("i", "i64[B, S]") X("w", "f32[31, 8]") "%0 : f32[B, S, 8] = embedding %i, %w",
         "ab,Cd->abd"},
        {X("i", "i64[S]") "%0, %1 : f32[S, 4], f32[S, 4] = rope_table %i {head_dim = 8}",
         "a->aB,aB"},
        {X("i", "i64[B, S]") "%0 : i64[] = count_valid %i", "a+b+->"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++)
        assert_string_equal(rule_of(rows[i].body), rows[i].rule);
}

static void rules_of_functions(void **state)
{
    (void)state;
    static const struct {
        const char *body, *rule;
    } rows[] = {
        {X("x", "f32[B, S, 32]") "%0 : f32[B, S, 4, 8] = view %x {shape = [B, S, 4, 8]}",
         "ab(cd)->abcd"},
        {X("x", "f32[B, S, 32]") "%0 : f32[B*S, 32] = view %x {shape = [B*S, 32]}", "abc->(ab)c"},
        {X("x", "f32[B*S, 32]") "%0 : f32[B, S, 1, 32] = view %x {shape = [B, S, 1, 32]}",
         "(ab)c->ab1c"},
        {X("x", "f32[B, ceil(S, 2), 1, 4]") "%0 : f32[B*ceil(S, 2), 4] = view %x {shape = "
                                            "[B*ceil(S, 2), 4]}",
         "ab1c->(ab)c"},
        {X("x", "f32[4, 4]") "%0 : f32[2, 8] = view %x {shape = [2, 8]}", "(ab)c->a(bc)"},
        {X("x", "f32[S, 2, 3]") "%0 : f32[S, 3, 2] = view %x {shape = [S, 3, 2]}", "aBC->aDE"},
        {X("x", "f32[2, S]") "%0 : f32[S, 2] = view %x {shape = [S, 2]}", "AB->CD"},
        {X("x", "f32[1, 1]") "%0 : f32[] = view %x {shape = []}", "11->"},
        {X("x", "f32[B, S, 8]") "%0 : f32[S, 8, B] = permute %x {perm = [1, 2, 0]}", "abc->bca"},
        {X("x", "f32[S, 1]") "%0 : f32[B, S, 8] = expand %x {shape = [B, S, 8]}", "b1->abc"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, 8] = sum %x {dims = [1]}", "ab+c->ac"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, 1, 8] = sum %x {dims = [1], keep = true}",
         "ab+c->a1c"},
        {X("x", "f32[B, 2, S]") "%0 : f32[B, 6, S] = repeat %x {dim = 1, times = 3}",
         "abc->a(bd)c"},
        {X("x", "f32[B, 6, S]") "%0 : f32[B, 2, S] = sum_groups %x {dim = 1, times = 3}",
         "a(bd+)c->abc"},
        {X("x", "f32[B, 2, S, 8]") X("p", "i64[S]") "%0 : f32[B, 2, S, 8] = rope %x, %p",
         "abcD,c->abcD"},
        {X("x", "f32[B, 2, S, 8]") X("p", "i64[B, S]") "%0 : f32[B, 2, S, 8] = rope %x, %p",
         "abcD,ac->abcD"},
        {X("x", "f32[B, S, 31]") X("y", "i64[B, S]") "%0 : f32[] = cross_entropy %x, %y "
                                                     "{reduction = \"sum\"}",
         "a+b+C,a+b+->"},
        {X("x", "f32[B, S, 31]") X("y", "i64[B, S]") "%0 : f32[] = cross_entropy %x, %y",
         "ABC,AB->"},
        {X("x", "f32[B, S, 31]") X("y", "i64[B, S]") X("w", "f32[31]")
             X("d", "i64[]") "%0 : f32[] = cross_entropy %x, %y, %w, %d",
         "ABC,AB,C,->"},
        {X("x", "f32[S, 31]") X("y", "i64[S]") X("w", "f32[31]") "%0 : f32[] = cross_entropy %x, "
                                                                 "%y, %w {reduction = \"sum\"}",
         "a+B,a+,B->"},
        {X("x", "f32[S, 31]") X("y", "i64[S]") "%0 : f32[S] = cross_entropy %x, %y {reduction = "
                                               "\"none\"}",
         "aB,a->a"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S, 8] = softmax %x {dim = 1}", "aBc->aBc"},
        {X("x", "f32[B, S, 8]") X("w", "f32[8]") "%0 : f32[B, S, 8] = layer_norm %x, %w",
         "abC,C->abC"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, 8] = amax %x {dims = [1]}", "aBc->ac"},
        {X("x", "f32[B, 4, S, 8]") X("y", "f32[B, 1, S, 8]") "%0 : f32[B, 4, S, S] = bmm %x, %y "
                                                             "{tb = true}",
         "abcd+,a1ed+->abce"},
        {X("x", "f32[B, S, 8]") X("y", "f32[8]") "%0 : f32[B, S] = matmul %x, %y", "abc+,c+->ab"},
        {X("x", "f32[B, S, 2, 8]") X("y", "f32[B, T, 2, 8]") "%0 : f32[B, 2, S, T] = einsum %x, %y "
                                                             "{equation = \"bqhd,bkhd->bhqk\"}",
         "abcd+,aecd+->acbe"},
        {X("x", "f32[S, 31]") X("y", "i64[S]") "%0, %1 : f32[], f32[S] = nll %x, %y",
         "a+B,a+->,a+"},
        {X("y", "i64[B, S]") "%0 : i64[B, S] = shift %y", "aB->aB"},
        {X("x", "f32[B, S]") "%0 : f32[B, ceil(S, 2)] = shard_slice %x {dim = 1, ranks = 2}",
         "none"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S, 8] = shift %x {by = -1, fill = 0, dim = 1}",
         "aBc->aBc"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S - 1, 8] = slice %x {dim = 1, end = S - 1}",
         "aBd->aCd"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S, 8] = slice %x {dim = 1, end = S}", "abc->abc"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, 8] = select %x {dim = 1, at = S - 1}", "aBc->ac"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S + 3, 8] = pad %x {dim = 1, left = 3}", "aBd->aCd"},
        {X("x", "f32[B, S, 8]") X("y", "f32[B, 2, 8]") "%0 : f32[B, S + 2, 8] = cat %x, %y "
                                                       "{dim = 1}",
         "aCe,aDe->aBe"},
        {X("x", "f32[B, S]") X("y", "f32[B, S]") "%0 : f32[B, 2, S] = stack %x, %y {dim = 1}",
         "ac,ac->aBc"},
        {X("x", "f32[B, S, 24]") "%0, %1, %2 : f32[B, S, 8], f32[B, S, 8], f32[B, S, 8] = split %x "
                                 "{dim = 2, parts = 3}",
         "ab(Cd)->abd,abd,abd"},
        {X("x", "f32[B, S, 24]") "%0, %1 : f32[B, S, 16], f32[B, S, 8] = split_sizes %x {dim = 2, "
                                 "sizes = [16, 8]}",
         "abC->abD,abE"},
        {X("x", "f32[B, 2, S]") "%0, %1 : f32[B, S], f32[B, S] = unbind %x {dim = 1}",
         "aBc->ac,ac"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S, 8] = flip %x {dim = 1}", "aBc->aBc"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S, 8] = roll %x {dim = 1}", "aBc->aBc"},
        {X("x", "i64[B, S]") X("p", "i64[B, 1]") "%0 : i64[B, S] = diff %x, %p {dim = 1}",
         "aB,aC->aB"},
        {X("x", "f32[B, S, S]") "%0 : f32[B, S, S] = triangle %x", "aBC->aBC"},
        {X("x", "f32[B, S, 31]")
             X("i", "i64[B, S, 1]") "%0 : f32[B, S, 1] = gather %x, %i {dim = 2}",
         "abD,abc->abc"},
        {X("x", "f32[B, S, 8]") X("i", "i64[B, S, 2]")
             X("s", "f32[B, S, 2]") "%0 : f32[B, S, 8] = scatter %x, %i, %s {dim = 2}",
         "abC,abD,abD->abC"},
        {X("i", "i64[B, S]")
             X("s", "f32[B, S]") "%0 : f32[B, 8] = scatter_add %i, %s {dim = 1, size = "
                                 "8}",
         "ab+,ab+->aC"},
        {X("x", "f32[16, 8]") X("i", "i64[B, S]") "%0 : f32[B, S, 8] = index_select %x, %i",
         "Ad,bc->bcd"},
        {X("i", "i64[B, S]")
             X("s", "f32[B, S, 8]") "%0 : f32[16, 8] = index_add %i, %s {size = 16}",
         "b+c+,b+c+d->Ad"},
        {X("i", "i64[B, S]") "%0 : i64[B, S, 8] = one_hot %i {classes = 8}", "ab->abC"},
        {X("x", "f32[B, S, 8]") "%0, %1 : f32[B, S, 2], i64[B, S, 2] = topk %x {dim = 2, k = 2}",
         "abC->abD,abD"},
        {X("x", "f32[B, S]") "%0, %1 : f32[B, S], i64[B, S] = sort %x {dim = 1}", "none"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S, 8] = cumsum %x {dim = 1}", "aBc->aBc"},
        {X("a", "f32[B, S, 1]") X("b", "f32[B, S, 8]")
             X("h", "f32[B, 1, 8]") "%0 : f32[B, S, 8] = scan %a, %b, %h {dim = 1}",
         "aB1,aBc,a1c->aBc"},
        {X("x", "f32[B, 8, S]")
             X("w", "f32[8, 1, 4]") "%0 : f32[B, 8, S] = conv %x, %w {groups = 0, "
                                    "left = 3}",
         "abC,b1D->abC"},
        {X("x", "f32[B, 8, S]") X("w", "f32[6, 8, 4]")
             X("b", "f32[6]") "%0 : f32[B, 6, ceil(S, 2)] = conv1d %x, %w, %b {stride = 2, left = "
                              "2, right = 1}",
         "aCD,bCF,b->abE"},
        {X("x", "f32[B, 8, S]")
             X("w", "f32[6, 4, 1]") "%0 : f32[B, 6, S] = conv %x, %w {groups = 2}",
         "aCD,BEF->aBD"},
        {X("x", "f32[B, S, 8]") "%0 : f32[B, S, 8] = dropout %x {p = 0.1}", "abc->abc"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++)
        assert_string_equal(rule_of(rows[i].body), rows[i].rule);
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
        cmocka_unit_test(rules_of_strings),
        cmocka_unit_test(rules_of_functions),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
