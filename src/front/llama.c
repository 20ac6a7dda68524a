// The llama family as a module-level graph: what a user writes for one device.  Neighbours: front.h
// (contract), io/hfconfig.h (sizes and names), op/op.h (the builder).  SPDX-License-Identifier:
// Apache-2.0
#include "front/front.h"
#include "op/attention.h"

#include <math.h>

typedef struct llama {
    asp_graph *g;
    asp_builder b;
    const asp_hf_config *c;
    asp_dtype dtype;
    asp_size B, S;
    asp_val positions;
} llama;

static asp_val parameter(llama *m, const char *name, bool norm, int rank, int64_t rows,
                         int64_t columns)
{
    asp_param_attr a = {
        .name = name, .init = norm ? "ones" : "normal", .std = m->c->initializer_range};
    asp_type t = {.dtype = m->dtype, .rank = (uint32_t)rank, .dim = {asp_size_num(m->g, rows)}};
    if (rank == 2) t.dim[1] = asp_size_num(m->g, columns);
    asp_val v = asp_build_declared(&m->b, ASP_OP_param, &a, &t);
    if (m->b.status == ASP_OK) asp_graph_name(m->g, v, name);
    return v;
}

// "model.layers.3." + what + ".weight", and the location "layers.3." + what of the nodes that
// follow.
static asp_val layer_parameter(llama *m, int64_t layer, const char *what, bool norm, int64_t rows,
                               int64_t columns)
{
    m->b.loc = asp_printf(&m->g->arena, "layers.%lld.%s", (long long)layer, what);
    const char *name =
        asp_printf(&m->g->arena, "model.layers.%lld.%s.weight", (long long)layer, what);
    return parameter(m, name, norm, norm ? 1 : 2, rows, columns);
}

static asp_val norm(llama *m, asp_val x, asp_val w)
{
    return ASP_B2(&m->b, rms_norm, (&(asp_norm_attr){.eps = m->c->rms_eps}), x, w);
}

// (B, S, heads * width) -> (B, heads, S, width)
static asp_val to_heads(llama *m, asp_val x, int64_t heads)
{
    asp_type t = {
        .rank = 4,
        .dim = {m->B, m->S, asp_size_num(m->g, heads), asp_size_num(m->g, m->c->head_dim)}};
    return asp_build_permute(&m->b, asp_build_view(&m->b, x, &t), 4, (const int64_t[]){0, 2, 1, 3});
}

static asp_val rotate(llama *m, asp_val x)
{
    const asp_hf_config *c = m->c;
    asp_rope_attr a = *(const asp_rope_attr *)asp_ops[ASP_OP_rope].attr_default;
    a.theta = c->rope_theta;
    if (c->rope_llama3) {
        a.scaling = "llama3";
        a.factor = c->rope_factor;
        a.low = c->rope_low;
        a.high = c->rope_high;
        a.original = c->rope_original;
    }
    return ASP_B2(&m->b, rope, &a, x, m->positions);
}

static asp_val attention(llama *m, int64_t layer, asp_val x)
{
    const asp_hf_config *c = m->c;
    int64_t width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    asp_val wq = layer_parameter(m, layer, "self_attn.q_proj", false, width, c->hidden);
    asp_val q = rotate(m, to_heads(m, ASP_B2(&m->b, linear, NULL, x, wq), c->heads));
    asp_val wk = layer_parameter(m, layer, "self_attn.k_proj", false, kv_width, c->hidden);
    asp_val k = rotate(m, to_heads(m, ASP_B2(&m->b, linear, NULL, x, wk), c->kv_heads));
    asp_val wv = layer_parameter(m, layer, "self_attn.v_proj", false, kv_width, c->hidden);
    asp_val v = to_heads(m, ASP_B2(&m->b, linear, NULL, x, wv), c->kv_heads);
    m->b.loc = asp_printf(&m->g->arena, "layers.%lld.self_attn", (long long)layer);
    asp_sdpa_attr a = asp_sdpa_attr_of(1.0 / sqrt((double)c->head_dim), true);
    asp_val out = ASP_B3(&m->b, sdpa, &a, q, k, v);
    out = asp_build_permute(&m->b, out, 4, (const int64_t[]){0, 2, 1, 3});
    asp_type flat = {.rank = 3, .dim = {m->B, m->S, asp_size_num(m->g, width)}};
    out = asp_build_view(&m->b, out, &flat);
    asp_val wo = layer_parameter(m, layer, "self_attn.o_proj", false, c->hidden, width);
    return ASP_B2(&m->b, linear, NULL, out, wo);
}

// SwiGLU: down(silu(gate(x)) * up(x)) Shazeer 2020
static asp_val mlp(llama *m, int64_t layer, asp_val x)
{
    const asp_hf_config *c = m->c;
    asp_val wg = layer_parameter(m, layer, "mlp.gate_proj", false, c->intermediate, c->hidden);
    asp_val gate = ASP_B2(&m->b, linear, NULL, x, wg);
    asp_val wu = layer_parameter(m, layer, "mlp.up_proj", false, c->intermediate, c->hidden);
    asp_val up = ASP_B2(&m->b, linear, NULL, x, wu);
    m->b.loc = asp_printf(&m->g->arena, "layers.%lld.mlp", (long long)layer);
    asp_val h = ASP_B2(&m->b, mul, NULL, ASP_B1(&m->b, silu, NULL, gate), up);
    asp_val wd = layer_parameter(m, layer, "mlp.down_proj", false, c->hidden, c->intermediate);
    return ASP_B2(&m->b, linear, NULL, h, wd);
}

static asp_val decoder_layer(llama *m, int64_t layer, asp_val x)
{
    asp_val w = layer_parameter(m, layer, "input_layernorm", true, m->c->hidden, 0);
    asp_val a = attention(m, layer, norm(m, x, w));
    x = ASP_B2(&m->b, add, NULL, x, a);
    w = layer_parameter(m, layer, "post_attention_layernorm", true, m->c->hidden, 0);
    a = mlp(m, layer, norm(m, x, w));
    return ASP_B2(&m->b, add, NULL, x, a);
}

static asp_val token_input(llama *m, const char *name, const char *role)
{
    asp_type t = {.dtype = ASP_I64, .rank = 2, .dim = {m->B, m->S}};
    asp_val v =
        asp_build_declared(&m->b, ASP_OP_input, &(asp_input_attr){.name = name, .role = role}, &t);
    if (m->b.status == ASP_OK) asp_graph_name(m->g, v, name);
    return v;
}

static void head_and_loss(llama *m, asp_val x, asp_val table, asp_val labels)
{
    const asp_hf_config *c = m->c;
    m->b.loc = "norm";
    x = norm(m, x, parameter(m, "model.norm.weight", true, 1, c->hidden, 0));
    m->b.loc = "lm_head";
    asp_val w = c->tied ? table : parameter(m, "lm_head.weight", false, 2, c->vocab, c->hidden);
    asp_val logits = ASP_B2(&m->b, linear, NULL, x, w);
    m->b.loc = "loss";
    asp_val next = ASP_B1(&m->b, shift, NULL, labels);
    asp_val loss = ASP_B2(&m->b, cross_entropy, NULL, logits, next);
    if (m->b.status == ASP_OK) asp_graph_add_output(m->g, loss, "loss");
}

asp_status asp_front_llama(asp_ctx *cx, const asp_hf_config *c, asp_dtype dtype,
                           asp_graph **out_graph)
{
    llama m = {.g = asp_graph_create(cx, "llama"), .c = c, .dtype = dtype};
    m.b = (asp_builder){.g = m.g, .loc = "embed_tokens"};
    m.B = asp_size_sym(m.g, "B");
    m.S = asp_size_sym(m.g, "S");
    asp_val ids = token_input(&m, "input_ids", "tokens"),
            labels = token_input(&m, "labels", "labels");
    asp_type all = {.dtype = ASP_I64, .rank = 1, .dim = {m.S}};
    m.positions = asp_build_declared(&m.b, ASP_OP_iota, NULL, &all);
    asp_val table = parameter(&m, "model.embed_tokens.weight", false, 2, c->vocab, c->hidden);
    asp_val x = ASP_B2(&m.b, embedding, NULL, ids, table);
    for (int64_t layer = 0; layer < c->layers; layer++) x = decoder_layer(&m, layer, x);
    head_and_loss(&m, x, table, labels);
    if (m.b.status < 0) {
        asp_graph_destroy(m.g);
        return m.b.status;
    }
    *out_graph = m.g;
    return ASP_OK;
}
