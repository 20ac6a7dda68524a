// A Llama's training step by hand.  What a rank holds is written in the shapes, where data crosses
// ranks an exchange is written, and the loss is a sum over all ranks divided by the labels of all.
// Neighbours: llama.h.  SPDX-License-Identifier: Apache-2.0
#include "llama.h"

#include <math.h>
#include <stdio.h>

typedef struct writer {
    asp_model *m;
    const baseline_shape *s;
    baseline_kind kind;
    int ranks, layer;
    char batch[32], length[32]; // of this rank
    asp_value positions;
} writer;

static asp_value op1(writer *w, const char *name, const char *attrs, asp_value x)
{
    return asp_model_op(w->m, name, attrs, 1, &x);
}

static asp_value op2(writer *w, const char *name, const char *attrs, asp_value x, asp_value y)
{
    const asp_value in[] = {x, y};
    return asp_model_op(w->m, name, attrs, 2, in);
}

static void at(writer *w, const char *what)
{
    char where[64];
    snprintf(where, sizeof where, "layers.%d.%s", w->layer, what);
    asp_model_at(w->m, where);
}

// ---- what a rank holds -------------------------------------------------------------------------

// This rank's part of a value that all have whole: rows of dim `dim`; of DATA sequences.
static asp_value mine(writer *w, asp_value x, int dim, const char *fill)
{
    char attrs[128];
    if (w->kind == BASELINE_SINGLE || (w->kind == BASELINE_DATA && dim == 0)) return x;
    if (w->kind == BASELINE_DATA) dim = 0;
    int n = snprintf(attrs, sizeof attrs, "dim = %d, ranks = %d%s", dim, w->ranks, fill);
    if (w->kind == BASELINE_RING)
        snprintf(attrs + n, sizeof attrs - (size_t)n, ", rings = %d, zigzag = true", w->ranks);
    return op1(w, "shard_slice", attrs, x);
}

static void measure(writer *w)
{
    snprintf(w->batch, sizeof w->batch, "B");
    snprintf(w->length, sizeof w->length, "S");
    if (w->kind == BASELINE_SINGLE) return;
    if (w->kind == BASELINE_DATA)
        snprintf(w->batch, sizeof w->batch, "ceil(B, %d)", w->ranks);
    else
        snprintf(w->length, sizeof w->length, "ceil(S, %d)", w->ranks);
}

// ---- parts of a layer --------------------------------------------------------------------------

static asp_value matrix(writer *w, const char *name, int rows, int columns)
{
    char type[64];
    snprintf(type, sizeof type, "f32[%d, %d]", rows, columns);
    return asp_model_param(w->m, name, type, "normal", 0.02);
}

static asp_value linear(writer *w, const char *what, asp_value x, int out, int in)
{
    char name[64];
    at(w, what);
    snprintf(name, sizeof name, "layers.%d.%s", w->layer, what);
    return op2(w, "linear", NULL, x, matrix(w, name, out, in));
}

static asp_value norm(writer *w, const char *name, asp_value x)
{
    char type[64];
    snprintf(type, sizeof type, "f32[%d]", w->s->heads * w->s->width);
    asp_model_at(w->m, name);
    return op2(w, "rms_norm", NULL, x, asp_model_param(w->m, name, type, "ones", 0));
}

static asp_value layer_norm(writer *w, const char *what, asp_value x)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%d.%s", w->layer, what);
    return norm(w, name, x);
}

// (B, s, n width) -> (B, n, s, width)
static asp_value heads(writer *w, asp_value x, int n)
{
    char attrs[128];
    snprintf(attrs, sizeof attrs, "shape = [%s, %s, %d, %d]", w->batch, w->length, n, w->s->width);
    return op1(w, "permute", "perm = [0, 2, 1, 3]", op1(w, "view", attrs, x));
}

// ---- attention ---------------------------------------------------------------------------------

static asp_value attend(writer *w, const char *op, const char *more, asp_value q, asp_value k,
                        asp_value v)
{
    char attrs[256], window[64] = "";
    const asp_value in[] = {q, k, v};
    if (w->s->window) snprintf(window, sizeof window, ", mask = \"q - k <= %d\"", w->s->window - 1);
    snprintf(attrs, sizeof attrs, "causal = true, scale = %.17g%s%s", 1 / sqrt(w->s->width), window,
             more);
    return asp_model_op(w->m, op, attrs, 3, in);
}

// All tokens of this rank's heads.  Key/value heads that are fewer than the ranks are repeated.
static asp_value to_heads(writer *w, asp_value x, int n)
{
    char attrs[96];
    if (n < w->ranks) {
        snprintf(attrs, sizeof attrs, "dim = 1, times = %d", w->ranks / n);
        x = op1(w, "repeat", attrs, x);
    }
    snprintf(attrs, sizeof attrs, "split = 1, gather = 2, ranks = %d, whole = S", w->ranks);
    return op1(w, "all_to_all", attrs, x);
}

static asp_value ulysses(writer *w, asp_value q, asp_value k, asp_value v)
{
    char attrs[64];
    snprintf(attrs, sizeof attrs, "split = 2, gather = 1, ranks = %d", w->ranks);
    q = to_heads(w, q, w->s->heads);
    k = to_heads(w, k, w->s->kv_heads);
    v = to_heads(w, v, w->s->kv_heads);
    return op1(w, "all_to_all", attrs, attend(w, "sdpa", "", q, k, v));
}

static asp_value ring(writer *w, asp_value q, asp_value k, asp_value v)
{
    char more[96];
    snprintf(more, sizeof more, ", rings = %d, zigzag = true, tokens = S, keys = S", w->ranks);
    return attend(w, "ring_sdpa", more, q, k, v);
}

static asp_value attention(writer *w, asp_value x)
{
    const baseline_shape *s = w->s;
    const int hidden = s->heads * s->width;
    char flat[96];
    asp_value q = heads(w, linear(w, "q", x, hidden, hidden), s->heads);
    if (w->layer == 0) w->positions = mine(w, w->positions, 0, "");
    q = op2(w, "rope", NULL, q, w->positions);
    asp_value k = heads(w, linear(w, "k", x, s->kv_heads * s->width, hidden), s->kv_heads);
    k = op2(w, "rope", NULL, k, w->positions);
    asp_value v = heads(w, linear(w, "v", x, s->kv_heads * s->width, hidden), s->kv_heads);
    at(w, "attention");
    asp_value y = w->kind == BASELINE_ULYSSES ? ulysses(w, q, k, v)
                  : w->kind == BASELINE_RING  ? ring(w, q, k, v)
                                              : attend(w, "sdpa", "", q, k, v);
    snprintf(flat, sizeof flat, "shape = [%s, %s, %d]", w->batch, w->length, hidden);
    y = op1(w, "view", flat, op1(w, "permute", "perm = [0, 2, 1, 3]", y));
    return linear(w, "o", y, hidden, hidden);
}

static asp_value feed_forward(writer *w, asp_value x)
{
    const int hidden = w->s->heads * w->s->width;
    asp_value gate = linear(w, "gate", x, w->s->ffn, hidden);
    asp_value up = linear(w, "up", x, w->s->ffn, hidden);
    at(w, "mlp");
    asp_value y = op2(w, "mul", NULL, op1(w, "silu", NULL, gate), up);
    return linear(w, "down", y, hidden, w->s->ffn);
}

// ---- the whole ---------------------------------------------------------------------------------

// The mean over the labels of all ranks.
static asp_value loss_of(writer *w, asp_value logits, asp_value labels)
{
    asp_model_at(w->m, "loss");
    asp_value next = op1(w, "shift", NULL, labels); // token t + 1 at t, before the cut
    if (w->kind == BASELINE_SINGLE) return op2(w, "cross_entropy", NULL, logits, next);
    asp_value sum =
        op2(w, "cross_entropy", "reduction = \"sum\"", logits, mine(w, next, 1, ", fill = -100"));
    sum = op1(w, "all_reduce", NULL, sum);
    asp_value count = op1(w, "cast", NULL, op1(w, "count_valid", NULL, next)); // on every rank
    return op2(w, "div", NULL, sum, count);
}

static void write_model(writer *w)
{
    const baseline_shape *s = w->s;
    const int hidden = s->heads * s->width;
    measure(w);
    if (w->kind != BASELINE_SINGLE) asp_model_split(w->m, w->ranks);
    asp_model_at(w->m, "embed");
    asp_value ids = asp_model_input(w->m, "input_ids", "i64[B, S]", "tokens");
    asp_value labels = asp_model_input(w->m, "labels", "i64[B, S]", "labels");
    w->positions = asp_model_declare(w->m, "iota", "i64[S]", NULL);
    asp_value x =
        op2(w, "embedding", NULL, mine(w, ids, 1, ""), matrix(w, "embed", s->vocab, hidden));
    for (w->layer = 0; w->layer < s->layers; w->layer++) {
        x = op2(w, "add", NULL, x, attention(w, layer_norm(w, "norm1", x)));
        x = op2(w, "add", NULL, x, feed_forward(w, layer_norm(w, "norm2", x)));
    }
    x = norm(w, "norm", x);
    asp_model_at(w->m, "head");
    asp_value logits = op2(w, "linear", NULL, x, matrix(w, "head", s->vocab, hidden));
    asp_model_loss(w->m, loss_of(w, logits, labels));
}

asp_model *baseline_llama(asp_ctx *cx, const baseline_shape *shape, baseline_kind kind, int ranks)
{
    writer w = {.s = shape, .kind = kind, .ranks = ranks};
    if (asp_model_create(cx, "llama", &w.m) < 0) return NULL;
    write_model(&w);
    if (asp_model_status(w.m) < 0) {
        asp_model_destroy(w.m);
        return NULL;
    }
    return w.m;
}
