// The checker against faults put in on purpose: each is one that real systems had, silently.
// SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static asp_ctx cx;
static asp_arena arena;

// Two heads on two ranks: right as it stands.
static const char sound[] =
    "graph g ranks 2 {\n"
    "  %ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
    "  %labels : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
    "  %positions : i64[S] = iota\n"
    "  %w : f32[31, 16] = param {name = \"w\"}\n"
    "  %i : i64[B, ceil(S, 2)] = shard_slice %ids {dim = 1, ranks = 2}\n"
    "  %x : f32[B, ceil(S, 2), 16] = embedding %i, %w\n"
    "  %v : f32[B, ceil(S, 2), 2, 8] = view %x {shape = [B, ceil(S, 2), 2, 8]}\n"
    "  %h : f32[B, 2, ceil(S, 2), 8] = permute %v {perm = [0, 2, 1, 3]}\n"
    "  %p : i64[ceil(S, 2)] = shard_slice %positions {ranks = 2}\n"
    "  %q : f32[B, 2, ceil(S, 2), 8] = rope %h, %p\n"
    "  %a : f32[B, 1, S, 8] = all_to_all %q {split = 1, gather = 2, ranks = 2, whole = S}\n"
    "  %o, %l : f32[B, 1, S, 8], f32[B, 1, S] = sdpa %a, %a, %a\n"
    "  %b : f32[B, 2, ceil(S, 2), 8] = all_to_all %o {split = 2, ranks = 2}\n"
    "  %t : f32[B, ceil(S, 2), 2, 8] = permute %b {perm = [0, 2, 1, 3]}\n"
    "  %y : f32[B*ceil(S, 2), 16] = view %t {shape = [B*ceil(S, 2), 16]}\n"
    "  %z : f32[B*ceil(S, 2), 31] = linear %y, %w\n"
    "  %next : i64[B, S] = shift %labels\n"
    "  %n : i64[B, ceil(S, 2)] = shard_slice %next {dim = 1, ranks = 2, fill = -100}\n"
    "  %m : i64[B*ceil(S, 2)] = view %n {shape = [B*ceil(S, 2)]}\n"
    "  %s : f32[] = cross_entropy %z, %m {reduction = \"sum\"}\n"
    "  %r : f32[] = all_reduce %s\n"
    "  %c : i64[] = count_valid %next\n"
    "  %f : f32[] = cast %c\n"
    "  %loss : f32[] = div %r, %f\n"
    "  return \"loss\" = %loss\n"
    "}\n";

// Each fault: a part of the text, what stands there instead, and what the checker says.
typedef struct fault {
    const char *from, *to, *says;
} fault;

static const fault faults[] = {
    // attention on the local tokens alone
    {"%a : f32[B, 1, S, 8] = all_to_all %q {split = 1, gather = 2, ranks = 2, whole = S}\n"
     "  %o, %l : f32[B, 1, S, 8], f32[B, 1, S] = sdpa %a, %a, %a\n"
     "  %b : f32[B, 2, ceil(S, 2), 8] = all_to_all %o {split = 2, ranks = 2}\n",
     "%a : f32[B, 2, ceil(S, 2), 8] = neg %q\n  %b, %l : f32[B, 2, ceil(S, 2), 8], f32[B, 2, "
     "ceil(S, 2)] = sdpa %a, %a, "
     "%a\n",
     "sdpa: operand 0 is split in dimension 2, which the op needs whole"},
    // the head width exchanged in place of the heads
    {"%a : f32[B, 1, S, 8] = all_to_all %q {split = 1, gather = 2, ranks = 2, whole = S}\n"
     "  %o, %l : f32[B, 1, S, 8], f32[B, 1, S] = sdpa %a, %a, %a\n"
     "  %b : f32[B, 2, ceil(S, 2), 8] = all_to_all %o {split = 2, ranks = 2}\n",
     "%a : f32[B, 2, S, 4] = all_to_all %q {split = 3, gather = 2, ranks = 2, whole = S}\n"
     "  %o, %l : f32[B, 2, S, 4], f32[B, 2, S] = sdpa %a, %a, %a\n"
     "  %b : f32[B, 2, ceil(S, 2), 8] = all_to_all %o {split = 2, gather = 3, ranks = 2}\n",
     "sdpa: operand 0 is split in dimension 3, which the op needs whole"},
    // the result not exchanged back, read as if it were
    {"%b : f32[B, 2, ceil(S, 2), 8] = all_to_all %o {split = 2, ranks = 2}\n",
     "%b : f32[B, 2, ceil(S, 2), 8] = view %o {shape = [B, 2, ceil(S, 2), 8]}\n", "view: "},
    // positions counted from 0 on every rank
    {"%p : i64[ceil(S, 2)] = shard_slice %positions {ranks = 2}", "%p : i64[ceil(S, 2)] = iota",
     "iota: dimension 0 of i64[ceil(S, 2)] is a rank's part, but is not split"},
    // labels shifted after they were sliced
    {"%n : i64[B, ceil(S, 2)] = shard_slice %next {dim = 1, ranks = 2, fill = -100}",
     "%k : i64[B, ceil(S, 2)] = shard_slice %labels {dim = 1, ranks = 2}\n  %n : i64[B, ceil(S, "
     "2)] = shift %k",
     "shift: operand 0 is split in dimension 1, which the op needs whole"},
    // a mean of means
    {"{reduction = \"sum\"}", "{reduction = \"mean\"}",
     "cross_entropy: operand 0 is split in dimension 0, which the op needs whole"},
    // the sum not reduced, or twice
    {"%r : f32[] = all_reduce %s", "%r : f32[] = neg %s",
     "neg: operand 0 is a partial sum that was not all-reduced"},
    {"%c : i64[] = count_valid %next",
     "%r2 : f32[] = all_reduce %r\n  %c : i64[] = count_valid %next",
     "all_reduce: its operand is no partial sum: it would be counted 2 times"},
    {"\"loss\" = %loss", "\"loss\" = %s", "cross_entropy: output 0 is a partial sum"},
    // the divisor counted on local labels
    {"count_valid %next", "count_valid %n",
     "cast: operand 0 is a partial sum that was not all-reduced"},
    // batch rows with the labels of token rows
    {"%n : i64[B, ceil(S, 2)] = shard_slice %next {dim = 1, ranks = 2, fill = -100}\n"
     "  %m : i64[B*ceil(S, 2)] = view %n {shape = [B*ceil(S, 2)]}\n",
     "%n : i64[B*S] = view %next {shape = [B*S]}\n"
     "  %m : i64[B*ceil(S, 2)] = shard_slice %n {ranks = 2}\n",
     "shard_slice: result %m is written as i64[B*ceil(S, 2)] but is i64[ceil(B*S, 2)]"},
    {"shard_slice %next {dim = 1, ranks = 2", "shard_slice %next {dim = 1, ranks = 4",
     "ceil(S, 4)"},
    {"%y : f32[B*ceil(S, 2), 16] = view %t {shape = [B*ceil(S, 2), 16]}",
     "%e : f32[B, 16, ceil(S, 2)] = view %t {shape = [B, 16, ceil(S, 2)]}\n"
     "  %y : f32[B*ceil(S, 2), 16] = view %e {shape = [B*ceil(S, 2), 16]}",
     "view: operand 0 is split in dimension 1, which the op needs whole"},
    // the tail's labels counted, or another number than the loss ignores
    {", fill = -100}", "}", "cross_entropy: it sums what parts shorter than others leave"},
    {", fill = -100}", ", fill = 0}",
     "cross_entropy: it sums what parts shorter than others leave"},
    // the gathered sequence with the tails inside
    {"%a : f32[B, 1, S, 8] = all_to_all %q {split = 1, gather = 2, ranks = 2, whole = S}\n"
     "  %o, %l : f32[B, 1, S, 8], f32[B, 1, S] = sdpa %a, %a, %a\n"
     "  %b : f32[B, 2, ceil(S, 2), 8] = all_to_all %o {split = 2, ranks = 2}\n",
     "%a : f32[B, 1, 2*ceil(S, 2), 8] = all_to_all %q {split = 1, gather = 2, ranks = 2}\n"
     "  %o, %l : f32[B, 1, 2*ceil(S, 2), 8], f32[B, 1, 2*ceil(S, 2)] = sdpa %a, %a, %a\n"
     "  %b : f32[B, 2, ceil(S, 2), 8] = all_to_all %o {split = 2, ranks = 2}\n",
     "all_to_all: it gathers 2*ceil(S, 2) of S"},
    {"graph g ranks 2", "graph g", "graph g is of 1 ranks, not of 2"},
};

// One head of two, behind the batch: views say where it stands; a loss of rows cut short.
static const char one_head[] =
    "graph g ranks 2 {\n"
    "  %ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
    "  %labels : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
    "  %w : f32[31, 16] = param {name = \"w\"}\n"
    "  %i : i64[B, ceil(S, 2)] = shard_slice %ids {dim = 1, ranks = 2}\n"
    "  %x : f32[B, ceil(S, 2), 16] = embedding %i, %w\n"
    "  %v : f32[B, ceil(S, 2), 2, 8] = view %x {shape = [B, ceil(S, 2), 2, 8]}\n"
    "  %h : f32[B, 2, ceil(S, 2), 8] = permute %v {perm = [0, 2, 1, 3]}\n"
    "  %a : f32[B, 1, S, 8] = all_to_all %h {split = 1, gather = 2, ranks = 2, whole = S}\n"
    "  %f : f32[B, S, 8] = view %a {shape = [B, S, 8], before = B}\n"
    "  %s : f32[B, S, S] = bmm %f, %f {tb = true}\n"
    "  %o : f32[B, S, 8] = bmm %s, %f\n"
    "  %u : f32[B, 1, S, 8] = view %o {shape = [B, 1, S, 8], split = 1, before = 1}\n"
    "  %b : f32[B, 2, ceil(S, 2), 8] = all_to_all %u {split = 2, ranks = 2}\n"
    "  %t : f32[B, ceil(S, 2), 2, 8] = permute %b {perm = [0, 2, 1, 3]}\n"
    "  %y : f32[B, ceil(S, 2), 16] = view %t {shape = [B, ceil(S, 2), 16]}\n"
    "  %z : f32[B, ceil(S, 2), 31] = linear %y, %w\n"
    "  %n : i64[B, ceil(S, 2)] = shard_slice %labels {dim = 1, ranks = 2, fill = -100}\n"
    "  %l, %e : f32[], f32[B, ceil(S, 2)] = nll %z, %n\n"
    "  %loss : f32[] = all_reduce %l\n"
    "  return \"loss\" = %loss\n"
    "}\n";

static const fault faults_of_one_head[] = {
    {", before = B}", "}", "view: operand 0 is split in dimension 1, which it does not keep"},
    {", before = B}", ", before = 1}", "view: what is split is not behind 1 in dimension 0"},
    {", split = 1, before = 1}", ", split = 2, before = 1}",
     "all_to_all: dimension 1, which it gathers, is not split"}, // as many stand before S
    {", split = 1, before = 1}", ", split = 1, before = 3}", "does not begin with before = 3"},
    {", fill = -100}", "}", "nll: it sums what parts shorter than others leave"},
    // zeros in the place of what is left out: their loss is counted
    {"%n : i64[B, ceil(S, 2)] = shard_slice %labels {dim = 1, ranks = 2, fill = -100}\n"
     "  %l, %e : f32[], f32[B, ceil(S, 2)] = nll %z, %n\n",
     "%n : i64[B, ceil(S, 2)] = shard_slice %labels {dim = 1, ranks = 2}\n"
     "  %m : f32[B, ceil(S, 2), 31] = mask_tail %z {dim = 1, ranks = 2, of = S, length = S}\n"
     "  %l, %e : f32[], f32[B, ceil(S, 2)] = nll %m, %n\n",
     "nll: it sums what parts shorter than others leave"},
};

static asp_status check(const char *text)
{
    asp_graph *g;
    asp_pass_options options = {.ranks = 2, .sp = "ulysses", .ac = "none", .dtype = ASP_F32};
    if (asp_graph_parse(&cx, "t.ir", text, strlen(text), &g) < 0) fail_msg("%s", cx.message);
    asp_status s = asp_passes_run(&cx, g, "check", &options, NULL);
    asp_graph_destroy(g);
    return s;
}

static void sound_graphs_pass(void **state)
{
    (void)state;
    if (check(sound) < 0 || check(one_head) < 0) fail_msg("%s", cx.message);
}

static void notices(const char *text, const fault *f)
{
    const char *at = strstr(text, f->from);
    assert_non_null(at);
    asp_text t;
    asp_text_init(&t, &arena);
    asp_put_bytes(&t, text, (size_t)(at - text));
    asp_put(&t, "%s%s", f->to, at + strlen(f->from));
    if (check(t.at) == ASP_OK) fail_msg("not noticed: %s", f->to);
    if (!strstr(cx.message, f->says))
        fail_msg("%s: message is\n%s\nwithout\n%s", f->to, cx.message, f->says);
}

static void faults_are_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(faults); i++) notices(sound, &faults[i]);
    for (size_t i = 0; i < ASP_COUNT_OF(faults_of_one_head); i++)
        notices(one_head, &faults_of_one_head[i]);
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
        cmocka_unit_test(sound_graphs_pass),
        cmocka_unit_test(faults_are_noticed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
