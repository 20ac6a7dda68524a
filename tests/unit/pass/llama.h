// Graph text of a small Llama as the front end builds it, with the variations that the passes must
// not care about.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

typedef struct llama_shape {
    int layers, heads, kv_heads;
    const char *B, *S;    // sizes: "B", "S", or numbers
    bool tied;            // the head is the embedding
    bool flat_mlp;        // the MLP works on view(B*S, D)
    bool given_positions; // an input i64[B, S] instead of iota
    bool wpe;             // a learned position table of 16 rows is added to the embedding
    const char *reduction;
} llama_shape;

#define LLAMA_HEAD 8
#define LLAMA_FFN 24
#define LLAMA_VOCAB 31

static void llama_layer(asp_text *t, const llama_shape *m, int l)
{
    int D = m->heads * LLAMA_HEAD, KD = m->kv_heads * LLAMA_HEAD;
    const char *B = m->B, *S = m->S;
    static const char names[] = "qkv";
    asp_put(t, "  %%n%d.w : f32[%d] = param {name = \"n%d.w\"}\n", l, D, l);
    asp_put(t, "  %%h%d : f32[%s, %s, %d] = rms_norm %%x%d, %%n%d.w @ \"layers.%d.norm\"\n", l, B,
            S, D, l, l, l);
    for (int i = 0; i < 3; i++) {
        char c = names[i];
        int n = i ? m->kv_heads : m->heads, w = i ? KD : D;
        asp_put(t, "  %%%c%d.w : f32[%d, %d] = param {name = \"%c%d.w\"}\n", c, l, w, D, c, l);
        asp_put(t, "  %%%c%d.l : f32[%s, %s, %d] = linear %%h%d, %%%c%d.w @ \"layers.%d.%c\"\n", c,
                l, B, S, w, l, c, l, l, c);
        asp_put(t, "  %%%c%d.v : f32[%s, %s, %d, 8] = view %%%c%d.l {shape = [%s, %s, %d, 8]}\n", c,
                l, B, S, n, c, l, B, S, n);
        asp_put(t, "  %%%c%d.p : f32[%s, %d, %s, 8] = permute %%%c%d.v {perm = [0, 2, 1, 3]}\n", c,
                l, B, n, S, c, l);
        if (i < 2)
            asp_put(t, "  %%%c%d : f32[%s, %d, %s, 8] = rope %%%c%d.p, %%positions\n", c, l, B, n,
                    S, c, l);
    }
    asp_put(t,
            "  %%o%d, %%lse%d : f32[%s, %d, %s, 8], f32[%s, %d, %s] = sdpa %%q%d, %%k%d, %%v%d.p "
            "{scale = 0.35355339059327373} @ \"layers.%d.attn\"\n",
            l, l, B, m->heads, S, B, m->heads, S, l, l, l, l);
    asp_put(t, "  %%o%d.p : f32[%s, %s, %d, 8] = permute %%o%d {perm = [0, 2, 1, 3]}\n", l, B, S,
            m->heads, l);
    asp_put(t, "  %%o%d.v : f32[%s, %s, %d] = view %%o%d.p {shape = [%s, %s, %d]}\n", l, B, S, D, l,
            B, S, D);
    asp_put(t, "  %%o%d.w : f32[%d, %d] = param {name = \"o%d.w\"}\n", l, D, D, l);
    asp_put(t, "  %%o%d.l : f32[%s, %s, %d] = linear %%o%d.v, %%o%d.w @ \"layers.%d.o\"\n", l, B, S,
            D, l, l, l);
    asp_put(t, "  %%r%d : f32[%s, %s, %d] = add %%x%d, %%o%d.l\n", l, B, S, D, l, l);
    asp_put(t, "  %%m%d.w : f32[%d] = param {name = \"m%d.w\"}\n", l, D, l);
    char rows[64];
    snprintf(rows, sizeof rows, m->flat_mlp ? "%s*%s" : "%s, %s", B, S);
    const char *in = "r";
    if (m->flat_mlp) {
        asp_put(t, "  %%f%d : f32[%s, %d] = view %%r%d {shape = [%s, %d]}\n", l, rows, D, l, rows,
                D);
        in = "f";
    }
    asp_put(t, "  %%m%d : f32[%s, %d] = rms_norm %%%s%d, %%m%d.w\n", l, rows, D, in, l, l);
    for (int i = 0; i < 2; i++) {
        char c = "gu"[i];
        asp_put(t, "  %%%c%d.w : f32[24, %d] = param {name = \"%c%d.w\"}\n", c, l, D, c, l);
        asp_put(t, "  %%%c%d : f32[%s, 24] = linear %%m%d, %%%c%d.w\n", c, l, rows, l, c, l);
    }
    asp_put(t, "  %%s%d : f32[%s, 24] = silu %%g%d\n", l, rows, l);
    asp_put(t, "  %%p%d : f32[%s, 24] = mul %%s%d, %%u%d\n", l, rows, l, l);
    asp_put(t, "  %%d%d.w : f32[%d, 24] = param {name = \"d%d.w\"}\n", l, D, l);
    asp_put(t, "  %%d%d : f32[%s, %d] = linear %%p%d, %%d%d.w @ \"layers.%d.down\"\n", l, rows, D,
            l, l, l);
    if (m->flat_mlp)
        asp_put(t, "  %%d%d.u : f32[%s, %s, %d] = view %%d%d {shape = [%s, %s, %d]}\n", l, B, S, D,
                l, B, S, D);
    asp_put(t, "  %%x%d : f32[%s, %s, %d] = add %%r%d, %%d%d%s\n", l + 1, B, S, D, l, l,
            m->flat_mlp ? ".u" : "");
}

static const char *llama_text(asp_arena *a, const llama_shape *m)
{
    asp_text t;
    int D = m->heads * LLAMA_HEAD;
    const char *B = m->B, *S = m->S;
    asp_text_init(&t, a);
    asp_put(&t, "graph llama {\n");
    asp_put(&t, "  %%ids : i64[%s, %s] = input {name = \"ids\", role = \"tokens\"}\n", B, S);
    asp_put(&t, "  %%labels : i64[%s, %s] = input {name = \"labels\", role = \"labels\"}\n", B, S);
    if (m->given_positions)
        asp_put(&t, "  %%positions : i64[%s, %s] = input {name = \"pos\", role = \"positions\"}\n",
                B, S);
    else
        asp_put(&t, "  %%positions : i64[%s] = iota\n", S);
    asp_put(&t, "  %%table : f32[31, %d] = param {name = \"table\"}\n", D);
    asp_put(&t, "  %%x0%s : f32[%s, %s, %d] = embedding %%ids, %%table @ \"embed\"\n",
            m->wpe ? ".e" : "", B, S, D);
    if (m->wpe) {
        asp_put(&t, "  %%wpe : f32[16, %d] = param {name = \"wpe\"}\n", D);
        asp_put(&t, "  %%pe : f32[%s, %d] = embedding %%positions, %%wpe @ \"wpe\"\n", S, D);
        asp_put(&t, "  %%x0 : f32[%s, %s, %d] = add %%x0.e, %%pe\n", B, S, D);
    }
    for (int l = 0; l < m->layers; l++) llama_layer(&t, m, l);
    asp_put(&t, "  %%norm.w : f32[%d] = param {name = \"norm.w\"}\n", D);
    asp_put(&t, "  %%y : f32[%s, %s, %d] = rms_norm %%x%d, %%norm.w @ \"norm\"\n", B, S, D,
            m->layers);
    if (!m->tied) asp_put(&t, "  %%head : f32[31, %d] = param {name = \"head\"}\n", D);
    asp_put(&t, "  %%logits : f32[%s, %s, 31] = linear %%y, %%%s @ \"lm_head\"\n", B, S,
            m->tied ? "table" : "head");
    asp_put(&t, "  %%next : i64[%s, %s] = shift %%labels\n", B, S);
    asp_put(&t,
            "  %%loss : f32[] = cross_entropy %%logits, %%next {reduction = \"%s\"} @ \"loss\"\n",
            m->reduction ? m->reduction : "mean");
    asp_put(&t, "  return \"loss\" = %%loss\n}\n");
    return t.at;
}
