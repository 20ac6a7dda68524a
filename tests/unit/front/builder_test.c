// Graphs built call by call through autosp.h: the same graph as the same text, and each bad call
// its message.  SPDX-License-Identifier: Apache-2.0
#include "autosp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <stdio.h>
#include <cmocka.h>

static asp_value op(asp_model *m, const char *name, const char *attrs, asp_value a, asp_value b)
{
    asp_value in[2] = {a, b};
    return asp_model_op(m, name, attrs, b ? 2 : 1, in);
}

// One block as a Llama has it: norm, grouped attention with rope, norm, gated MLP, tied head.
static asp_model *build_block(asp_ctx *cx)
{
    asp_model *m;
    assert_int_equal(asp_model_create(cx, "block", &m), ASP_OK);
    asp_value ids = asp_model_input(m, "input_ids", "i64[B, S]", "tokens");
    asp_value labels = asp_model_input(m, "labels", "i64[B, S]", "labels");
    asp_value pos = asp_model_declare(m, "iota", "i64[S]", "");
    asp_value table = asp_model_param(m, "embed", "f64[16, 8]", "normal", 0.5);
    asp_model_at(m, "layers.0.norm");
    asp_value x = op(m, "embedding", NULL, ids, table);
    asp_value y = op(m, "rms_norm", "eps = 1e-6", x, asp_model_param(m, "n1", "f64[8]", "ones", 0));
    asp_model_at(m, "layers.0.attn");
    asp_value q = op(m, "linear", NULL, y, asp_model_param(m, "wq", "f64[8, 8]", "normal", 0.3));
    asp_value k = op(m, "linear", NULL, y, asp_model_param(m, "wk", "f64[4, 8]", "normal", 0.3));
    q = op(m, "permute", "perm = [0, 2, 1, 3]", op(m, "view", "shape = [B, S, 4, 2]", q, 0), 0);
    k = op(m, "permute", "perm = [0, 2, 1, 3]", op(m, "view", "shape = [B, S, 2, 2]", k, 0), 0);
    asp_value qkv[3] = {op(m, "rope", "theta = 100", q, pos), op(m, "rope", "theta = 100", k, pos),
                        k};
    asp_value a = asp_model_op(m, "sdpa", "scale = 0.5", 3, qkv);
    asp_model_name(m, a, "attended");
    a = op(m, "view", "shape = [B, S, 8]", op(m, "permute", "perm = [0, 2, 1, 3]", a, 0), 0);
    x = op(m, "add", NULL, x, a);
    asp_model_at(m, "loss");
    asp_value logits = op(m, "linear", NULL, x, table);
    asp_model_loss(m, op(m, "cross_entropy", NULL, logits, op(m, "shift", NULL, labels, 0)));
    assert_int_equal(asp_model_status(m), ASP_OK);
    return m;
}

static const char block_text[] =
    "graph block {\n"
    "  %input_ids : i64[B, S] = input {name = \"input_ids\", role = \"tokens\"}\n"
    "  %labels : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
    "  %0 : i64[S] = iota\n"
    "  %embed : f64[16, 8] = param {name = \"embed\", std = 0.5}\n"
    "  %1 : f64[B, S, 8] = embedding %input_ids, %embed @ \"layers.0.norm\"\n"
    "  %n1 : f64[8] = param {name = \"n1\", init = \"ones\", std = 0} @ \"layers.0.norm\"\n"
    "  %2 : f64[B, S, 8] = rms_norm %1, %n1 {eps = 1e-06} @ \"layers.0.norm\"\n"
    "  %wq : f64[8, 8] = param {name = \"wq\", std = 0.3} @ \"layers.0.attn\"\n"
    "  %3 : f64[B, S, 8] = linear %2, %wq @ \"layers.0.attn\"\n"
    "  %wk : f64[4, 8] = param {name = \"wk\", std = 0.3} @ \"layers.0.attn\"\n"
    "  %4 : f64[B, S, 4] = linear %2, %wk @ \"layers.0.attn\"\n"
    "  %5 : f64[B, S, 4, 2] = view %3 {shape = [B, S, 4, 2]} @ \"layers.0.attn\"\n"
    "  %6 : f64[B, 4, S, 2] = permute %5 {perm = [0, 2, 1, 3]} @ \"layers.0.attn\"\n"
    "  %7 : f64[B, S, 2, 2] = view %4 {shape = [B, S, 2, 2]} @ \"layers.0.attn\"\n"
    "  %8 : f64[B, 2, S, 2] = permute %7 {perm = [0, 2, 1, 3]} @ \"layers.0.attn\"\n"
    "  %9 : f64[B, 4, S, 2] = rope %6, %0 {theta = 100} @ \"layers.0.attn\"\n"
    "  %10 : f64[B, 2, S, 2] = rope %8, %0 {theta = 100} @ \"layers.0.attn\"\n"
    "  %attended, %11 : f64[B, 4, S, 2], f64[B, 4, S] = sdpa %9, %10, %8 {scale = 0.5} @ "
    "\"layers.0.attn\"\n"
    "  %12 : f64[B, S, 4, 2] = permute %attended {perm = [0, 2, 1, 3]} @ \"layers.0.attn\"\n"
    "  %13 : f64[B, S, 8] = view %12 {shape = [B, S, 8]} @ \"layers.0.attn\"\n"
    "  %14 : f64[B, S, 8] = add %1, %13 @ \"layers.0.attn\"\n"
    "  %15 : f64[B, S, 16] = linear %14, %embed @ \"loss\"\n"
    "  %16 : i64[B, S] = shift %labels @ \"loss\"\n"
    "  %17 : f64[] = cross_entropy %15, %16 @ \"loss\"\n"
    "  return \"loss\" = %17\n"
    "}\n";

static void calls_make_the_graph_of_the_text(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m = build_block(cx), *read;
    const char *text;
    assert_int_equal(asp_model_text(m, &text), ASP_OK);
    assert_string_equal(text, block_text);
    assert_int_equal(asp_model_parse(cx, "block.ir", text, strlen(text), &read), ASP_OK);
    assert_int_equal(asp_model_text(read, &text), ASP_OK);
    assert_string_equal(text, block_text);
    // What was read can be asked and built on.
    asp_value a = asp_model_find(read, "attended"), lse = asp_model_result(read, a, 1);
    assert_int_equal(asp_model_type(read, lse, &text), ASP_OK);
    assert_string_equal(text, "f64[B, 4, S]");
    assert_true(asp_model_find(read, "nothing") == 0);
    assert_true(op(read, "neg", NULL, lse, 0) != 0);
    assert_int_equal(asp_model_status(read), ASP_OK);
    asp_model_destroy(read);
    asp_model_destroy(m);
    asp_ctx_destroy(cx);
}

// Names that are no names in graph text, and symbolic sizes, survive the text.
static void odd_names_and_sizes_read_back(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m, *read;
    const char *text;
    assert_int_equal(asp_model_create(cx, "odd", &m), ASP_OK);
    asp_value x = asp_model_input(m, "a \"b\"\n", "f32[B, S/2, ceil(S, 8), 2*S - 1]", "");
    asp_model_input(m, "7up", "f32[]", NULL);
    asp_model_at(m, "tab\there \x01");
    asp_model_loss(m, op(m, "sum", "dims = [0, 1, 2, 3]", x, 0));
    assert_int_equal(asp_model_text(m, &text), ASP_OK);
    assert_int_equal(asp_model_parse(cx, "odd.ir", text, strlen(text), &read), ASP_OK);
    char first[2048];
    snprintf(first, sizeof first, "%s", text);
    assert_int_equal(asp_model_text(read, &text), ASP_OK);
    assert_string_equal(text, first);
    asp_model_destroy(read);
    asp_model_destroy(m);
    asp_ctx_destroy(cx);
}

// ---- bad calls ---------------------------------------------------------------------------------

typedef struct fixture {
    asp_ctx *cx;
    asp_model *m, *other;
    asp_value x, w; // f32[B, S, 8], f32[4, 8] of m
    asp_value foreign;
} fixture;

static void unknown_op(fixture *f) { op(f->m, "convolve", NULL, f->x, 0); }
static void null_op(fixture *f) { op(f->m, NULL, NULL, f->x, 0); }
static void few_operands(fixture *f) { asp_model_op(f->m, "linear", NULL, 1, &f->x); }
static void huge_count(fixture *f) { asp_model_op(f->m, "add", NULL, SIZE_MAX, &f->x); }
static void null_operands(fixture *f) { asp_model_op(f->m, "add", NULL, 2, NULL); }
static void none_operand(fixture *f) { asp_model_op(f->m, "add", NULL, 2, (asp_value[]){f->x, 0}); }
static void foreign_operand(fixture *f) { op(f->m, "add", NULL, f->x, f->foreign); }
static void made_up_operand(fixture *f) { op(f->m, "neg", NULL, f->x | 0xffffffffu, 0); }
static void wrong_shape(fixture *f)
{
    asp_model_at(f->m, "layers.3.up");
    op(f->m, "linear", NULL, f->w, f->x);
}
static void unknown_attr(fixture *f) { op(f->m, "mul_scalar", "factor = 2", f->x, 0); }
static void bad_attr(fixture *f) { op(f->m, "mul_scalar", "value = two", f->x, 0); }
static void attr_rest(fixture *f) { op(f->m, "mul_scalar", "value = 2 3", f->x, 0); }
static void declared_as_op(fixture *f) { asp_model_op(f->m, "iota", NULL, 0, NULL); }
static void op_as_declared(fixture *f) { asp_model_declare(f->m, "add", "f32[]", NULL); }
static void bad_type(fixture *f) { asp_model_input(f->m, "y", "f99[B]", ""); }
static void open_type(fixture *f) { asp_model_input(f->m, "y", "f32[B", ""); }
static void null_type(fixture *f) { asp_model_input(f->m, "y", NULL, ""); }
static void many_dims(fixture *f) { asp_model_input(f->m, "y", "f32[1,1,1,1,1,1,1]", ""); }
static void huge_dim(fixture *f) { asp_model_param(f->m, "y", "f32[9007199254740993]", "ones", 0); }
static void symbolic_param(fixture *f) { asp_model_param(f->m, "y", "f32[S]", "ones", 0); }
static void bad_init(fixture *f) { asp_model_param(f->m, "y", "f32[2]", "xavier", 0); }
static void bad_std(fixture *f) { asp_model_param(f->m, "y", "f32[2]", "normal", -1); }
static void nameless(fixture *f) { asp_model_param(f->m, "", "f32[2]", "ones", 0); }
static void no_result(fixture *f) { asp_model_result(f->m, f->x, 1); }
static void big_loss(fixture *f) { asp_model_loss(f->m, f->x); }
static void two_losses(fixture *f)
{
    asp_value l = op(f->m, "sum", "dims = [0, 1, 2]", f->x, 0);
    asp_model_loss(f->m, l);
    asp_model_loss(f->m, l);
}
static void bad_name(fixture *f) { asp_model_name(f->m, f->x, "a b"); }
static void no_ranks(fixture *f) { asp_model_split(f->m, 0); }
static void null_where(fixture *f) { asp_model_at(f->m, NULL); }
static void twice_named(fixture *f)
{
    asp_compiled *c;
    asp_model_param(f->m, "w", "f32[2]", "ones", 0);
    asp_model_loss(f->m, op(f->m, "sum", "dims = [0, 1, 2]", f->x, 0));
    assert_int_equal(asp_model_status(f->m), ASP_OK);
    assert_int_equal(asp_model_compile(f->m, NULL, &c), ASP_ERR_INPUT);
}

static const struct {
    void (*call)(fixture *f);
    asp_status status; // that the model is left with
    const char *says;
} bad[] = {
    {unknown_op, ASP_ERR_INPUT, "there is no op 'convolve'"},
    {null_op, ASP_ERR_USAGE, "the op's name is NULL"},
    {few_operands, ASP_ERR_USAGE, "linear takes 2 to 3 operands, not 1"},
    {huge_count, ASP_ERR_USAGE, "add takes 2 to 2 operands"},
    {null_operands, ASP_ERR_USAGE, "add: the operands are NULL"},
    {none_operand, ASP_ERR_USAGE, "add: operand 1 is no value"},
    {foreign_operand, ASP_ERR_USAGE, "add: operand 1 is a value of another model than bad"},
    {made_up_operand, ASP_ERR_USAGE, "neg: operand 0: model bad has no such value"},
    {wrong_shape, ASP_ERR_SHAPE, "linear (layers.3.up): "},
    {unknown_attr, ASP_ERR_INPUT,
     "attributes of mul_scalar:1:1: mul_scalar has no attribute 'factor'"},
    {bad_attr, ASP_ERR_INPUT, "attributes of mul_scalar:1:9: a number expected"},
    {attr_rest, ASP_ERR_INPUT, "attributes of mul_scalar:1:11: nothing more is expected"},
    {declared_as_op, ASP_ERR_USAGE, "iota must be given: use asp_model_declare"},
    {op_as_declared, ASP_ERR_USAGE, "add follows from its operands: use asp_model_op"},
    {bad_type, ASP_ERR_INPUT, "type of y:1:1: 'f99' is not a dtype"},
    {open_type, ASP_ERR_INPUT, "type of y:1:6: ']' expected"},
    {null_type, ASP_ERR_USAGE, "the type is NULL"},
    {many_dims, ASP_ERR_INPUT, "type of y:1:17: more than 6 dimensions"},
    {huge_dim, ASP_ERR_INPUT, "type of y:1:20: a number in a size is above 2^53"},
    {symbolic_param, ASP_ERR_SHAPE, "y is f32[S]; a parameter's sizes are plain numbers"},
    {bad_init, ASP_ERR_INPUT, "init is normal, ones or zeros, not 'xavier'"},
    {bad_std, ASP_ERR_USAGE, "y: std is -1"},
    {nameless, ASP_ERR_INPUT, "a parameter needs a name"},
    {no_result, ASP_ERR_USAGE, "input has 1 results; there is no result 1"},
    {big_loss, ASP_ERR_SHAPE, "the loss is f32[B, S, 8], not a single"},
    {two_losses, ASP_ERR_USAGE, "model bad has a loss already"},
    {bad_name, ASP_ERR_USAGE, "'a b' is no name"},
    {no_ranks, ASP_ERR_USAGE, "1 to 65536 ranks, not 0"},
    {null_where, ASP_ERR_USAGE, "where is NULL"},
    {twice_named, ASP_OK, "two inputs or parameters named \"w\""},
};

static void bad_calls_have_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fixture f = {.cx = asp_ctx_create()};
        const char *text;
        assert_int_equal(asp_model_create(f.cx, "bad", &f.m), ASP_OK);
        assert_int_equal(asp_model_create(f.cx, "other", &f.other), ASP_OK);
        f.x = asp_model_input(f.m, "x", "f32[B, S, 8]", "");
        f.w = asp_model_param(f.m, "w", "f32[4, 8]", "normal", 0.1);
        f.foreign = asp_model_input(f.other, "x", "f32[B, S, 8]", "");
        bad[i].call(&f);
        if (!strstr(asp_ctx_message(f.cx), bad[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, asp_ctx_message(f.cx), bad[i].says);
        if (bad[i].status != ASP_OK) { // the failure stays, whatever is called
            assert_true(op(f.m, "neg", NULL, f.x, 0) == 0);
            assert_int_equal(asp_model_text(f.m, &text), bad[i].status);
            assert_non_null(strstr(asp_ctx_message(f.cx), bad[i].says));
        }
        assert_int_equal(asp_model_status(f.m), bad[i].status);
        assert_int_equal(asp_model_status(f.other), ASP_OK);
        asp_model_destroy(f.m);
        asp_model_destroy(f.other);
        asp_ctx_destroy(f.cx);
    }
}

static void null_objects_are_refused(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    asp_model *m;
    const char *text;
    assert_int_equal(asp_model_create(NULL, "x", &m), ASP_ERR_USAGE);
    assert_int_equal(asp_model_create(cx, NULL, &m), ASP_ERR_USAGE);
    assert_int_equal(asp_model_create(cx, "x", NULL), ASP_ERR_USAGE);
    assert_int_equal(asp_model_create(cx, "a b", &m), ASP_ERR_USAGE);
    assert_int_equal(asp_model_parse(cx, "x", NULL, 3, &m), ASP_ERR_USAGE);
    assert_int_equal(asp_model_parse(cx, "x.ir", "graph", 5, &m), ASP_ERR_INPUT);
    assert_int_equal(asp_model_load(cx, "/nowhere.ir", "f32", &m), ASP_ERR_IO);
    assert_int_equal(asp_model_load(cx, "/nowhere.ir", "f16", &m), ASP_ERR_USAGE);
    assert_int_equal(asp_model_load(cx, NULL, "f32", &m), ASP_ERR_USAGE);
    assert_true(asp_model_op(NULL, "neg", NULL, 0, NULL) == 0);
    asp_model_loss(NULL, 1);
    assert_int_equal(asp_model_status(NULL), ASP_ERR_USAGE);
    assert_int_equal(asp_model_text(NULL, &text), ASP_ERR_USAGE);
    asp_model_destroy(NULL);
    asp_ctx_destroy(cx);
    asp_ctx_destroy(NULL);
}

// The table itself says which ops there are: each is reached, and none falls over empty hands.
static void every_op_is_reached(void **state)
{
    (void)state;
    asp_ctx *cx = asp_ctx_create();
    size_t n = 0;
    for (const char *name; (name = asp_op_name(n)) != NULL; n++) {
        for (size_t n_in = 0; n_in <= 13; n_in++) {
            asp_model *m;
            asp_value in[13];
            assert_int_equal(asp_model_create(cx, "op", &m), ASP_OK);
            asp_value x = asp_model_input(m, "x", "f32[B, 4, S, 8]", "");
            for (size_t i = 0; i < 13; i++) in[i] = x;
            if (!asp_model_op(m, name, NULL, n_in, in)) assert_true(asp_model_status(m) < 0);
            assert_null(strstr(asp_ctx_message(cx), "there is no op"));
            asp_model_destroy(m);
        }
    }
    assert_true(n > 40);
    asp_ctx_destroy(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_make_the_graph_of_the_text),
        cmocka_unit_test(odd_names_and_sizes_read_back),
        cmocka_unit_test(bad_calls_have_messages),
        cmocka_unit_test(null_objects_are_refused),
        cmocka_unit_test(every_op_is_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
