// A small decoder built by hand through the C API, planned for two ranks and trained for 20 steps.
// Build: cc train.c $(pkg-config --cflags --libs autosp) -lm.  SPDX-License-Identifier: Apache-2.0
#include <autosp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 64, HIDDEN = 32, HEADS = 4, WIDTH = 8, FFN = 64, LAYERS = 2, SEQ = 64, STEPS = 20 };

static asp_ctx *cx;

static void check(asp_status s)
{
    if (s != ASP_OK) fprintf(stderr, "%s: %s\n", asp_status_name(s), asp_ctx_message(cx));
    if (s != ASP_OK) exit(1);
}

// A failed call returns 0 and the model remembers why: one check at the end is enough.
static asp_value op(asp_model *m, const char *name, const char *attrs, asp_value a, asp_value b)
{
    return asp_model_op(m, name, attrs, b ? 2 : 1, (asp_value[]){a, b});
}

// A parameter of a layer, where its name says: a matrix, or a vector of ones.
static asp_value weight(asp_model *m, int layer, const char *what, int rows, int columns)
{
    char name[64], vector[64], matrix[64];
    snprintf(name, sizeof name, "layers.%d.%s", layer, what);
    snprintf(vector, sizeof vector, "f32[%d]", rows);
    snprintf(matrix, sizeof matrix, "f32[%d, %d]", rows, columns);
    asp_model_at(m, name);
    return asp_model_param(m, name, columns ? matrix : vector, columns ? "normal" : "ones", 0.1);
}

static asp_value linear(asp_model *m, int layer, const char *what, asp_value x, int out, int in)
{
    return op(m, "linear", NULL, x, weight(m, layer, what, out, in));
}

static asp_value norm(asp_model *m, int layer, const char *what, asp_value x)
{
    return op(m, "rms_norm", "eps = 1e-6", x, weight(m, layer, what, HIDDEN, 0));
}

// (B, S, hidden) -> (B, heads, S, width)
static asp_value heads(asp_model *m, asp_value x)
{
    char shape[64];
    snprintf(shape, sizeof shape, "shape = [B, S, %d, %d]", HEADS, WIDTH);
    return op(m, "permute", "perm = [0, 2, 1, 3]", op(m, "view", shape, x, 0), 0);
}

static asp_value attention(asp_model *m, int layer, asp_value x, asp_value positions)
{
    char scale[64], flat[64], where[64];
    snprintf(where, sizeof where, "layers.%d.attention", layer);
    snprintf(scale, sizeof scale, "causal = true, scale = %.17g", 1 / sqrt(WIDTH));
    snprintf(flat, sizeof flat, "shape = [B, S, %d]", HIDDEN);
    asp_value q = heads(m, linear(m, layer, "q", x, HIDDEN, HIDDEN));
    asp_value k = heads(m, linear(m, layer, "k", x, HIDDEN, HIDDEN));
    asp_value v = heads(m, linear(m, layer, "v", x, HIDDEN, HIDDEN));
    asp_model_at(m, where);
    asp_value in[] = {op(m, "rope", NULL, q, positions), op(m, "rope", NULL, k, positions), v};
    asp_value y = asp_model_op(m, "sdpa", scale, 3, in);
    y = op(m, "view", flat, op(m, "permute", "perm = [0, 2, 1, 3]", y, 0), 0);
    return linear(m, layer, "o", y, HIDDEN, HIDDEN);
}

static asp_model *build(void)
{
    asp_model *m;
    char table[64];
    check(asp_model_create(cx, "small", &m));
    asp_value ids = asp_model_input(m, "input_ids", "i64[B, S]", "tokens");
    asp_value labels = asp_model_input(m, "labels", "i64[B, S]", "labels");
    asp_value positions = asp_model_declare(m, "iota", "i64[S]", NULL);
    snprintf(table, sizeof table, "f32[%d, %d]", VOCAB, HIDDEN);
    asp_model_at(m, "embedding");
    asp_value embedding = asp_model_param(m, "embedding", table, "normal", 0.1);
    asp_value x = op(m, "embedding", NULL, ids, embedding);
    for (int i = 0; i < LAYERS; i++) {
        x = op(m, "add", NULL, x, attention(m, i, norm(m, i, "norm1", x), positions));
        asp_value h = linear(m, i, "up", norm(m, i, "norm2", x), FFN, HIDDEN);
        h = op(m, "silu", NULL, h, 0);
        x = op(m, "add", NULL, x, linear(m, i, "down", h, HIDDEN, FFN));
    }
    asp_model_at(m, "loss");
    asp_value logits = op(m, "linear", NULL, x, embedding); // tied to the table
    asp_value next = op(m, "shift", NULL, labels, 0);       // token t + 1 at t, across ranks too
    asp_model_loss(m, op(m, "cross_entropy", NULL, logits, next));
    check(asp_model_status(m));
    return m;
}

int main(void)
{
    asp_compiled *c;
    asp_trainer *t;
    int64_t ids[SEQ];
    double loss, size;
    if (!(cx = asp_ctx_create())) return 1;
    asp_model *m = build();
    check(asp_model_compile(m, "seq = 64, ranks = 2, threads = 1, lr = 1e-2, steps = 20", &c));
    asp_model_destroy(m);
    fputs(asp_compiled_text(c), stdout);
    check(asp_trainer_create(c, &t));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < SEQ; i++) ids[i] = (step + 3 * i) % VOCAB; // this token + 3
        check(asp_trainer_input(t, "input_ids", ids, sizeof ids));
        check(asp_trainer_input(t, "labels", ids, sizeof ids));
        check(asp_trainer_step(t, &loss));
        check(asp_trainer_update(t, -1, &size));
        if (step % 5 == 0 || step == STEPS - 1)
            printf("step %2d  loss %.4f  gradient norm %.4f\n", step + 1, loss, size);
    }
    asp_trainer_destroy(t);
    asp_compiled_destroy(c);
    asp_ctx_destroy(cx);
}
