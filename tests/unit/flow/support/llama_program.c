// See llama_program.h.  Forward and backward are written down side by side: every forward op of a
// layer pushes what its derivative reads.  SPDX-License-Identifier: Apache-2.0
#include "unit/flow/support/llama_program.h"

typedef struct maker {
    asp_arena *a;
    const llama_shape *s;
    ASP_VEC(asp_remat_value) values;
    ASP_VEC(asp_remat_op) ops;
    ASP_VEC(uint32_t) reads;
    ASP_VEC(const char *) names;
    uint32_t n_inputs;
    int32_t block;
    bool backward;
} maker;

#define BF16 2
#define F32 4

llama_shape llama_8b(uint32_t layers)
{
    return (llama_shape){.layers = layers,
                         .tokens = 8192,
                         .all_tokens = 8192,
                         .hidden = 4096,
                         .heads = 32,
                         .kv_heads = 8,
                         .head = 128,
                         .ffn = 14336,
                         .vocab = 128256,
                         .exchange_ranks = 1,
                         .gemm_flops = 600e12,
                         .attention_flops = 400e12,
                         .memory_bytes = 3e12,
                         .link_bytes = 200e9};
}

static uint32_t add_value(maker *m, const char *name, int64_t bytes, uint32_t flags)
{
    uint32_t v = m->values.n;
    ASP_PUSH(m->a, &m->values, (asp_remat_value){.bytes = bytes, .root = v, .flags = flags});
    ASP_PUSH(m->a, &m->names, name);
    return v;
}

static uint32_t input(maker *m, const char *name, int64_t bytes, uint32_t flags)
{
    m->n_inputs++;
    return add_value(m, name, bytes, flags);
}

static int64_t moved(const maker *m, const uint32_t *reads, size_t n, int64_t bytes)
{
    for (size_t i = 0; i < n; i++) bytes += m->values.at[reads[i]].bytes;
    return bytes;
}

static uint32_t add_op(maker *m, const char *name, asp_remat_class kind, int64_t bytes,
                       double seconds, const uint32_t *reads, size_t n)
{
    double move = (double)moved(m, reads, n, bytes) / m->s->memory_bytes;
    bool cheap =
        kind == ASP_REMAT_POINTWISE || kind == ASP_REMAT_VIEW || kind == ASP_REMAT_REDUCTION;
    if (seconds < 0) seconds = kind == ASP_REMAT_VIEW ? 0 : move;
    ASP_PUSH(m->a, &m->ops,
             (asp_remat_op){.kind = kind,
                            .backward = m->backward,
                            .fusible = cheap,
                            .block = m->block,
                            .first_read = m->reads.n,
                            .n_reads = (uint32_t)n,
                            .first_result = m->values.n,
                            .n_results = 1,
                            .time_ps = (int64_t)(seconds * 1e12)});
    for (size_t i = 0; i < n; i++) ASP_PUSH(m->a, &m->reads, reads[i]);
    uint32_t v = add_value(m, name, bytes, m->backward ? 0 : ASP_REMAT_SEQUENCE);
    if (kind == ASP_REMAT_VIEW) m->values.at[v].root = m->values.at[reads[0]].root;
    return v;
}

#define LIST(...) (const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / 4
#define POINT(name, bytes, ...) add_op(m, name, ASP_REMAT_POINTWISE, bytes, -1, LIST(__VA_ARGS__))
#define REDUCE(name, bytes, ...) add_op(m, name, ASP_REMAT_REDUCTION, bytes, -1, LIST(__VA_ARGS__))
#define VIEW(name, v) add_op(m, name, ASP_REMAT_VIEW, m->values.at[v].bytes, 0, LIST(v))

static uint32_t product(maker *m, const char *name, int64_t rows, int64_t inner, int64_t columns,
                        uint32_t x, uint32_t y)
{
    double flops = 2.0 * (double)rows * (double)inner * (double)columns;
    return add_op(m, name, ASP_REMAT_GEMM, rows * columns * BF16, flops / m->s->gemm_flops,
                  LIST(x, y));
}

// Tokens split <-> heads split.
static uint32_t exchange(maker *m, const char *name, uint32_t x)
{
    int64_t ranks = m->s->exchange_ranks, bytes = m->values.at[x].bytes;
    if (ranks == 1) return x;
    double sent = (double)bytes * (double)(ranks - 1) / (double)ranks;
    return add_op(m, name, ASP_REMAT_COLLECTIVE, bytes, sent / m->s->link_bytes, LIST(x));
}

// A weight's gradient is returned; it takes bytes where the shape says so.
static void weight_gradient(maker *m, int64_t rows, int64_t inner, int64_t columns, uint32_t x,
                            uint32_t g)
{
    uint32_t w = product(m, "dW", rows, inner, columns, VIEW("x^T", x), g);
    m->values.at[w].flags = ASP_REMAT_BACKWARD_OUTPUT;
    if (!m->s->weight_gradients) m->values.at[w].bytes = 0;
}

typedef struct norm {
    uint32_t x, wide, r, hat, out, weight;
} norm;

static norm add_norm(maker *m, uint32_t x, uint32_t weight)
{
    int64_t tokens = m->s->tokens, d = m->s->hidden;
    norm n = {.x = x, .weight = weight};
    n.wide = POINT("x.f32", tokens * d * F32, x);
    uint32_t square = POINT("x^2", tokens * d * F32, n.wide);
    uint32_t mean = REDUCE("mean", tokens * F32, square);
    n.r = POINT("rsqrt", tokens * F32, mean);
    uint32_t scaled = POINT("x*r", tokens * d * F32, n.wide, n.r);
    n.hat = POINT("hat", tokens * d * BF16, scaled);
    n.out = POINT("norm", tokens * d * BF16, n.hat, weight);
    return n;
}

static uint32_t norm_gradient(maker *m, const norm *n, uint32_t g)
{
    int64_t tokens = m->s->tokens, d = m->s->hidden;
    uint32_t dw = REDUCE("dw", m->s->weight_gradients ? d * BF16 : 0, g, n->hat);
    m->values.at[dw].flags = ASP_REMAT_BACKWARD_OUTPUT;
    uint32_t dhat = POINT("dhat", tokens * d * BF16, g, n->weight);
    uint32_t wide = POINT("dhat.f32", tokens * d * F32, dhat);
    uint32_t dot = REDUCE("dot", tokens * F32, wide, n->wide);
    uint32_t dx = POINT("dx.f32", tokens * d * F32, wide, n->wide, n->r, dot);
    return POINT("dx", tokens * d * BF16, dx);
}

typedef struct layer {
    norm first, second;
    uint32_t x, q, k, v, Q, K, V, out, lse, O, x1, gate, up, wide, sigmoid, silu, product;
    uint32_t wq, wk, wv, wo, wgate, wup, wdown, cos;
} layer;

static uint32_t rotate(maker *m, const char *name, uint32_t q, uint32_t cos)
{
    int64_t bytes = m->values.at[q].bytes;
    uint32_t half = POINT("rotated", bytes, q);
    return POINT(name, bytes, q, half, cos);
}

static uint32_t add_layer(maker *m, layer *y, uint32_t x)
{
    const llama_shape *s = m->s;
    int64_t t = s->tokens, d = s->hidden, qd = s->heads * s->head, kd = s->kv_heads * s->head;
    y->x = x;
    y->first = add_norm(m, x, y->cos);
    y->q = rotate(m, "q", product(m, "q.linear", t, d, qd, y->first.out, y->wq), y->cos);
    y->k = rotate(m, "k", product(m, "k.linear", t, d, kd, y->first.out, y->wk), y->cos);
    y->v = product(m, "v", t, d, kd, y->first.out, y->wv);
    y->Q = exchange(m, "q'", y->q);
    y->K = exchange(m, "k'", y->k);
    y->V = exchange(m, "v'", y->v);
    double flops = 2.0 * (double)s->all_tokens * (double)t * (double)qd;
    y->out = add_op(m, "out", ASP_REMAT_ATTENTION, t * qd * BF16, flops / s->attention_flops,
                    LIST(y->Q, y->K, y->V));
    y->lse = add_value(m, "lse", t * s->heads * F32, ASP_REMAT_SEQUENCE);
    m->ops.at[m->ops.n - 1].n_results = 2;
    y->O = exchange(m, "out'", y->out);
    uint32_t o = product(m, "o", t, qd, d, y->O, y->wo);
    y->x1 = POINT("x1", t * d * BF16, x, o);
    y->second = add_norm(m, y->x1, y->cos);
    y->gate = product(m, "gate", t, d, s->ffn, y->second.out, y->wgate);
    y->up = product(m, "up", t, d, s->ffn, y->second.out, y->wup);
    y->wide = POINT("gate.f32", t * s->ffn * F32, y->gate);
    y->sigmoid = POINT("sigmoid", t * s->ffn * F32, y->wide);
    uint32_t silu = POINT("silu.f32", t * s->ffn * F32, y->wide, y->sigmoid);
    y->silu = POINT("silu", t * s->ffn * BF16, silu);
    y->product = POINT("product", t * s->ffn * BF16, y->silu, y->up);
    uint32_t down = product(m, "down", t, s->ffn, d, y->product, y->wdown);
    return POINT("x2", t * d * BF16, y->x1, down);
}

static uint32_t layer_gradient(maker *m, const layer *y, uint32_t g)
{
    const llama_shape *s = m->s;
    int64_t t = s->tokens, d = s->hidden, qd = s->heads * s->head, kd = s->kv_heads * s->head;
    int64_t f = s->ffn;
    weight_gradient(m, f, t, d, y->product, g);
    uint32_t dp = product(m, "dproduct", t, d, f, g, y->wdown);
    uint32_t dup = POINT("dup", t * f * BF16, dp, y->silu);
    uint32_t dsilu = POINT("dsilu", t * f * BF16, dp, y->up);
    uint32_t wide = POINT("dsilu.f32", t * f * F32, dsilu);
    uint32_t dgate = POINT("dgate.f32", t * f * F32, wide, y->wide, y->sigmoid);
    dgate = POINT("dgate", t * f * BF16, dgate);
    weight_gradient(m, d, t, f, y->second.out, dup);
    uint32_t dn = product(m, "dn.up", t, f, d, dup, y->wup);
    weight_gradient(m, d, t, f, y->second.out, dgate);
    uint32_t dn2 = product(m, "dn.gate", t, f, d, dgate, y->wgate);
    dn = POINT("dn", t * d * BF16, dn, dn2);
    uint32_t dx1 = POINT("dx1", t * d * BF16, g, norm_gradient(m, &y->second, dn));
    weight_gradient(m, qd, t, d, y->O, dx1);
    uint32_t dout = exchange(m, "dout'", product(m, "dout", t, d, qd, dx1, y->wo));
    double flops = 5.0 * (double)s->all_tokens * (double)t * (double)qd;
    uint32_t dQ = add_op(m, "dq", ASP_REMAT_ATTENTION, t * qd * BF16, flops / s->attention_flops,
                         LIST(dout, y->Q, y->K, y->V, y->out, y->lse));
    uint32_t dK = add_value(m, "dk", t * kd * BF16, 0), dV = add_value(m, "dv", t * kd * BF16, 0);
    m->ops.at[m->ops.n - 1].n_results = 3;
    dQ = rotate(m, "dq.linear", exchange(m, "dq'", dQ), y->cos);
    dK = rotate(m, "dk.linear", exchange(m, "dk'", dK), y->cos);
    dV = exchange(m, "dv'", dV);
    weight_gradient(m, d, t, qd, y->first.out, dQ);
    uint32_t dn3 = product(m, "dn.q", t, qd, d, dQ, y->wq);
    weight_gradient(m, d, t, kd, y->first.out, dK);
    dn3 = POINT("dn", t * d * BF16, dn3, product(m, "dn.k", t, kd, d, dK, y->wk));
    weight_gradient(m, d, t, kd, y->first.out, dV);
    dn3 = POINT("dn", t * d * BF16, dn3, product(m, "dn.v", t, kd, d, dV, y->wv));
    return POINT("dx", t * d * BF16, dx1, norm_gradient(m, &y->first, dn3));
}

// The loss, and its gradient with respect to what the last layer gives.
static uint32_t add_head(maker *m, uint32_t x, uint32_t weight, uint32_t head, uint32_t ids)
{
    const llama_shape *s = m->s;
    int64_t t = s->tokens, d = s->hidden;
    norm last = add_norm(m, x, weight);
    uint32_t logits = product(m, "logits", t, d, s->vocab, last.out, head);
    uint32_t wide = POINT("logits.f32", t * s->vocab * F32, logits);
    uint32_t most = REDUCE("max", t * F32, wide);
    uint32_t sum = REDUCE("sum", t * F32, wide, most);
    uint32_t loss = REDUCE("loss", F32, wide, most, sum, ids);
    m->values.at[loss].flags |= ASP_REMAT_FORWARD_OUTPUT;
    m->backward = true;
    uint32_t seed = add_op(m, "seed", ASP_REMAT_OTHER, F32, 0, &loss, 0);
    uint32_t g = POINT("dlogits.f32", t * s->vocab * F32, seed, wide, most, sum, ids);
    g = POINT("dlogits", t * s->vocab * BF16, g);
    weight_gradient(m, d, t, s->vocab, last.out, g);
    return norm_gradient(m, &last, product(m, "dnorm", t, s->vocab, d, g, head));
}

static uint32_t start_from_outside(maker *m, uint32_t x, uint32_t tangent)
{
    m->values.at[x].flags |= ASP_REMAT_FORWARD_OUTPUT;
    m->backward = true;
    return add_op(m, "dx", ASP_REMAT_OTHER, m->values.at[x].bytes, 0, LIST(tangent));
}

// Positions' tables and all weights are inputs of no bytes to speak of.
static uint32_t weight(maker *m, int64_t count)
{
    return input(m, "w", count * BF16, ASP_REMAT_STATIC | ASP_REMAT_TRAINED);
}

llama_program llama_build(asp_arena *a, const llama_shape *s)
{
    maker made = {.a = a, .s = s, .block = -1}, *m = &made;
    int64_t t = s->tokens, d = s->hidden, qd = s->heads * s->head, kd = s->kv_heads * s->head;
    uint32_t ids = input(m, "ids", t * 8, ASP_REMAT_STATIC);
    uint32_t cos = input(m, "cos", t * s->head * BF16, ASP_REMAT_STATIC);
    uint32_t table = weight(m, s->vocab * d), head = weight(m, s->vocab * d);
    uint32_t wnorm = weight(m, d);
    uint32_t tangent = input(m, "tangent", t * d * BF16, s->headless ? ASP_REMAT_TANGENT : 0);
    layer *layers = ASP_NEW_ARRAY(a, layer, s->layers);
    for (uint32_t i = 0; i < s->layers; i++)
        layers[i] = (layer){.cos = cos,
                            .wq = weight(m, d * qd),
                            .wk = weight(m, d * kd),
                            .wv = weight(m, d * kd),
                            .wo = weight(m, qd * d),
                            .wgate = weight(m, d * s->ffn),
                            .wup = weight(m, d * s->ffn),
                            .wdown = weight(m, s->ffn * d)};
    uint32_t x = add_op(m, "embedding", ASP_REMAT_OTHER, t * d * BF16, -1, LIST(ids, table));
    llama_program out = {.first_layer_value = m->values.n};
    for (uint32_t i = 0; i < s->layers; i++) {
        m->block = (int32_t)i;
        x = add_layer(m, &layers[i], x);
        if (i == 0) out.n_layer_values = m->values.n - out.first_layer_value;
    }
    m->block = -1;
    uint32_t g = s->headless ? start_from_outside(m, x, tangent) : add_head(m, x, wnorm, head, ids);
    for (uint32_t i = s->layers; i-- > 0;) {
        m->block = (int32_t)i;
        g = layer_gradient(m, &layers[i], g);
    }
    m->block = -1;
    uint32_t dtable = add_op(m, "dtable", ASP_REMAT_OTHER,
                             s->weight_gradients ? s->vocab * d * BF16 : 0, -1, LIST(g, ids));
    m->values.at[dtable].flags = ASP_REMAT_BACKWARD_OUTPUT;
    out.names = m->names.at;
    out.program = (asp_remat_program){.values = m->values.at,
                                      .n_values = m->values.n,
                                      .n_inputs = m->n_inputs,
                                      .ops = m->ops.at,
                                      .n_ops = m->ops.n,
                                      .reads = m->reads.at,
                                      .n_reads = m->reads.n,
                                      .names = m->names.at};
    return out;
}
