// What is refused before anything runs: the message names the op, its layer and the sizes.
// docs/sequence-parallel.md lists them.  Neighbours: peers.c (ranks that differ),
// tests/cli/bad_input_test.py (the same on the command line).  SPDX-License-Identifier: Apache-2.0
#include "cases/support/decoder.h"

#include "autosp.h"

#include <math.h>
#include <stdlib.h>

#define IDS "graph t {\n%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
#define TOKENS \
    IDS "%w : f64[16, 8] = param {name = \"w\"}\n%x : f64[B, S, 8] = embedding %ids, %w\n"
#define HEADS                                                         \
    TOKENS "%x4 : f64[B, S, 4, 2] = view %x {shape = [B, S, 4, 2]}\n" \
           "%q : f64[B, 4, S, 2] = permute %x4 {perm = [0, 2, 1, 3]}\n"
#define END(v, dims) "%loss : f64[] = sum %" v " {dims = " dims "}\nreturn \"loss\" = %loss\n}\n"

// Refused on every number of ranks and by every strategy, with all of these words.
typedef struct refusal {
    const char *name, *text;
    asp_status status;
    bool alone; // on one device too
    const char *words[4];
} refusal;

static const refusal refusals[] = {
    {"a dense mask of the wrong size",
     HEADS "%m : bool[1, 1, S, S - 1] = input {name = \"m\"}\n"
           "%o, %l : f64[B, 4, S, 2], f64[B, 4, S] = sdpa %q, %q, %q, %m {bias = true} @ "
           "\"layers.3.attn\"\n" END("o", "[0, 1, 2, 3]"),
     ASP_ERR_SHAPE,
     true,
     {"sdpa", "layers.3.attn", "S - 1", "dimension 3 must be S or 1"}},
    {"a mask of other heads",
     HEADS "%m : f64[1, 3, S, S] = input {name = \"m\"}\n"
           "%o, %l : f64[B, 4, S, 2], f64[B, 4, S] = sdpa %q, %q, %q, %m {bias = true} @ "
           "\"layers.3.attn\"\n" END("o", "[0, 1, 2, 3]"),
     ASP_ERR_SHAPE,
     true,
     {"sdpa", "layers.3.attn", "3", "dimension 1 must be 4 or 1"}},
    {"slopes that are trained",
     HEADS "%slopes : f64[4] = param {name = \"slopes\"}\n"
           "%o, %l : f64[B, 4, S, 2], f64[B, 4, S] = sdpa %q, %q, %q, %slopes {alibi = "
           "\"relative\"} @ \"layers.3.attn\"\n" END("o", "[0, 1, 2, 3]"),
     ASP_ERR_UNSUPPORTED,
     true,
     {"sdpa", "layers.3.attn", "no derivative by its operand 3"}},
    {"a log-sum-exp that is derived",
     HEADS "%o, %l : f64[B, 4, S, 2], f64[B, 4, S] = sdpa %q, %q, %q {scale = 0.7} @ "
           "\"layers.3.attn\"\n" END("l", "[0, 1, 2]"),
     ASP_ERR_UNSUPPORTED,
     true,
     {"sdpa", "layers.3.attn", "no derivative by its second result", "logsumexp"}},
    {"a size that nobody bound",
     TOKENS "%m : f64[T, 8] = input {name = \"m\"}\n%s : f64[8] = sum %m {dims = [0]}\n"
            "%y : f64[B, S, 8] = mul %x, %s\n" END("y", "[0, 1, 2]"),
     ASP_ERR_USAGE,
     true,
     {"the size symbol T has no value"}},
    {"an op without a rule",
     TOKENS "%s, %i : f64[B, S, 8], i64[B, S, 8] = sort %x {dim = 1} @ \"layers.1.route\"\n" END(
         "s", "[0, 1, 2]"),
     ASP_ERR_UNSUPPORTED,
     false,
     {"sort", "layers.1.route", "the op has no sharding rule", "f64[B, S, 8]"}},
    {"an op that does not exist",
     TOKENS "%s : i64[B, S] = nonzero %x\n" END("x", "[0, 1, 2]"),
     ASP_ERR_INPUT,
     true,
     {"nonzero"}},
    {"no tokens",
     "graph t {\n%ids : i64[B, S] = input {name = \"ids\"}\n%w : f64[16, 8] = param {name = "
     "\"w\"}\n"
     "%x : f64[B, S, 8] = embedding %ids, %w\n" END("x", "[0, 1, 2]"),
     ASP_ERR_UNSUPPORTED,
     false,
     {"graph t", "no trained op works on tokens", "role = \"tokens\""}},
    {"a trained slice a token",
     "graph t {\n%ids : i64[1, 8] = input {name = \"ids\", role = \"tokens\"}\n"
     "%w : f64[16, 8] = param {name = \"w\"}\n%x : f64[1, 8, 8] = embedding %ids, %w\n"
     "%k : f64[8, 8, 8] = param {name = \"k\"}\n"
     "%t : f64[8, 1, 8] = permute %x {perm = [1, 0, 2]}\n"
     "%y : f64[8, 1, 8] = matmul %t, %k @ \"mix\"\n" END("y", "[0, 1, 2]"),
     ASP_ERR_UNSUPPORTED,
     false,
     {"matmul", "mix", "one slice a token and is trained"}},
    {"too few tokens",
     TOKENS END("x", "[0, 1, 2]"),
     ASP_ERR_UNSUPPORTED,
     false,
     {"a sequence of 1 tokens cannot be split over", "use 1 or fewer ranks"}},
};

static text_result run(const refusal *r, int64_t ranks, const char *sp)
{
    static const double ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const bool short_one = strcmp(r->name, "too few tokens") == 0;
    const text_value given[] = {{"ids", short_one ? 1 : 8, ids}, {NULL, 0, NULL}};
    text_case c = {.text = r->text,
                   .ranks = ranks,
                   .batch = 1,
                   .seq = short_one ? 1 : 8,
                   .threads = 1,
                   .sp = sp,
                   .ac = "none",
                   .seed = 3,
                   .vocab = 16,
                   .given = given};
    return text_run(&c);
}

static void refused(const refusal *r, int64_t ranks, const char *sp)
{
    text_result got = run(r, ranks, sp);
    if (got.status != r->status)
        fail_msg("%s, %s on %d ranks: status %d, '%s'", r->name, sp, (int)ranks, got.status,
                 got.message);
    for (size_t i = 0; i < ASP_COUNT_OF(r->words) && r->words[i]; i++)
        if (!strstr(got.message, r->words[i]))
            fail_msg("%s, %s on %d ranks: '%s' is not in '%s'", r->name, sp, (int)ranks,
                     r->words[i], got.message);
    text_free(&got);
}

static void programs_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(refusals); i++) {
        const refusal *r = &refusals[i];
        if (r->alone) refused(r, 1, "auto");
        for (const sp_strategy *s = sp_strategies; s->sp; s++)
            for (int64_t ranks = 2; ranks <= 8; ranks *= 2)
                if (!s->ranks || s->ranks == ranks) refused(r, ranks, s->sp);
        if (r->alone) continue;
        text_result one = run(r, 1, "auto"); // one device runs it
        if (one.status < 0) fail_msg("%s: %s", r->name, one.message);
        text_free(&one);
    }
}

static void meshes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *sp, *words;
    } bad[] = {{"hybrid:2x3", "--sp hybrid:2x3 is for 6 ranks, not for 4"},
               {"hybrid:0x4", "hybrid:UxR is wanted"},
               {"hybrid:-2x-2", "hybrid:UxR is wanted"},
               {"hybrid:2", "hybrid:UxR is wanted"},
               {"hybrid:2x2x1", "hybrid:UxR is wanted"},
               {"hybrid:99999999999x1", "hybrid:UxR is wanted"},
               {"rings", "--sp 'rings' is not known"}};
    const refusal plain = {"", TOKENS END("x", "[0, 1, 2]"), ASP_ERR_USAGE, false, {0}};
    for (size_t i = 0; i < ASP_COUNT_OF(bad); i++) {
        text_result r = run(&plain, 4, bad[i].sp);
        assert_int_equal(r.status, ASP_ERR_USAGE);
        if (!strstr(r.message, bad[i].words)) fail_msg("'%s' in '%s'", bad[i].words, r.message);
        text_free(&r);
    }
}

#define WELL(cx, call) \
    if ((call) != ASP_OK) fail_msg("%s", asp_ctx_message(cx))

static asp_compiled *compiled(asp_ctx *cx, const char *text, const char *options)
{
    asp_model *m;
    asp_compiled *c;
    WELL(cx, asp_model_parse(cx, "program", text, strlen(text), &m));
    WELL(cx, asp_model_compile(m, options, &c));
    asp_model_destroy(m);
    return c;
}

static void numbers_of_ranks_are_refused(void **state)
{
    (void)state;
    static const char *const options[] = {"seq = 8, ranks = 0", "seq = 8, ranks = -1",
                                          "seq = 8, ranks = 99999"};
    static const char text[] = TOKENS END("x", "[0, 1, 2]");
    asp_ctx *cx = asp_ctx_create();
    asp_model *m;
    asp_compiled *c;
    WELL(cx, asp_model_parse(cx, "program", text, strlen(text), &m));
    for (size_t i = 0; i < ASP_COUNT_OF(options); i++) {
        assert_int_equal(asp_model_compile(m, options[i], &c), ASP_ERR_USAGE);
        assert_non_null(strstr(asp_ctx_message(cx), "ranks"));
    }
    asp_model_destroy(m);
    asp_ctx_destroy(cx);
}

// What the data of a step can have wrong.
static void inputs_are_refused(void **state)
{
    (void)state;
    static const char text[] =
        HEADS "%doc : i64[B, S] = input {name = \"doc\", role = \"segments\"}\n"
              "%o, %l : f64[B, 4, S, 2], f64[B, 4, S] = sdpa %q, %q, %q, %doc {mask = \"T0[q] == "
              "T0[k]\"}\n" END("o", "[0, 1, 2, 3]");
    static const int64_t right[16] = {0, 0, 0, 1, 1, 1, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0};
    int64_t ids[16] = {0}, doc[16];
    double loss;
    asp_ctx *cx = asp_ctx_create();
    asp_compiled *c = compiled(cx, text, "batch = 2, seq = 8, ranks = 2, threads = 1");
    asp_trainer *t;
    WELL(cx, asp_trainer_create(c, &t));
    memcpy(doc, right, sizeof doc);
    doc[13] = 2; // back to 0 behind it
    assert_int_equal(asp_trainer_input(t, "doc", doc, sizeof doc), ASP_ERR_INPUT);
    assert_non_null(strstr(asp_ctx_message(cx),
                           "doc: token 6 of row 1 is of segment 0, behind one of segment 2"));
    WELL(cx, asp_trainer_input(t, "doc", right, sizeof right)); // a row begins anew
    ids[3] = 16;
    assert_int_equal(asp_trainer_input(t, "ids", ids, sizeof ids), ASP_ERR_INPUT);
    assert_non_null(strstr(asp_ctx_message(cx), "ids: element 3 is 16; 0 to 15 are possible"));
    ids[3] = 15;
    WELL(cx, asp_trainer_input(t, "ids", ids, sizeof ids));
    WELL(cx, asp_trainer_step(t, &loss));
    asp_trainer_destroy(t);
    asp_compiled_destroy(c);
    asp_ctx_destroy(cx);
}

// Ids that the program computes are looked at where they are used: in range they are right, out of
// it the step ends on all ranks.
static void computed_ids_are_refused(void **state)
{
    (void)state;
    static const char text[] =
        IDS "%two : i64[] = constant {value = 2}\n%half : i64[B, S] = floor_divide %ids, %two\n"
            "%next : i64[B, S] = add_scalar %half {value = 3}\n"
            "%w : f64[16, 8] = param {name = \"w\"}\n%x : f64[B, S, 8] = embedding %next, %w\n" END(
                "x", "[0, 1, 2]");
    int64_t ids[8] = {0, 1, 2, 3, 4, 5, 24, 25}; // 24 / 2 + 3 = 15: the last row
    double loss;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        char options[64];
        snprintf(options, sizeof options, "seq = 8, ranks = %d, threads = 1", ranks);
        asp_ctx *cx = asp_ctx_create();
        asp_compiled *c = compiled(cx, text, options);
        asp_trainer *t;
        WELL(cx, asp_trainer_create(c, &t));
        ids[7] = 25;
        WELL(cx, asp_trainer_input(t, "ids", ids, sizeof ids));
        WELL(cx, asp_trainer_step(t, &loss));
        ids[7] = 26; // one beyond
        WELL(cx, asp_trainer_input(t, "ids", ids, sizeof ids));
        assert_int_equal(asp_trainer_step(t, &loss), ASP_ERR_INPUT);
        assert_non_null(strstr(asp_ctx_message(cx), "embedding"));
        assert_non_null(strstr(asp_ctx_message(cx), "an index lies outside"));
        asp_trainer_destroy(t);
        asp_compiled_destroy(c);
        asp_ctx_destroy(cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_are_refused), cmocka_unit_test(meshes_are_refused),
        cmocka_unit_test(numbers_of_ranks_are_refused), cmocka_unit_test(inputs_are_refused),
        cmocka_unit_test(computed_ids_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
