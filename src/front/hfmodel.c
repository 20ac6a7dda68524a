// The model of a config.json as a module-level graph: what a user writes for one device.
// Neighbours: front.h (contract), decoder.c and gpt2.c (the layers of the families), io/hfconfig.h
// (sizes, names), op/op.h (the builder).  SPDX-License-Identifier: Apache-2.0
#include "front/hfmodel.h"
#include "op/attention.h"

#include <math.h>

// "model.layers.3.self_attn.q_proj.weight" -> "layers.3.self_attn.q_proj"
static const char *location_of(asp_arena *a, const char *name)
{
    const char *behind = strchr(name, '.'), *end = strrchr(name, '.');
    const char *from = behind && behind != end ? behind + 1 : name;
    return asp_printf(a, "%.*s", (int)(end - from), from);
}

asp_val asp_hf_parameter(asp_hf_model *m, asp_hf_part part)
{
    asp_hf_tensor x;
    if (!asp_hf_tensor_of(m->c, part, m->layer, &x)) return (asp_val){0};
    const char *name = asp_copy_str(&m->g->arena, x.name);
    asp_param_attr a = {.name = name, .init = x.init, .std = x.std};
    asp_type t = {.dtype = m->dtype, .rank = (uint32_t)x.rank};
    for (int i = 0; i < x.rank; i++) t.dim[i] = asp_size_num(m->g, x.dim[i]);
    m->b.loc = location_of(&m->g->arena, name);
    asp_val v = asp_build_declared(&m->b, ASP_OP_param, &a, &t);
    if (m->b.status == ASP_OK) asp_graph_name(m->g, v, name);
    return v;
}

void asp_hf_locate(asp_hf_model *m, const char *what)
{
    m->b.loc = asp_printf(&m->g->arena, "layers.%lld.%s", (long long)m->layer, what);
}

asp_val asp_hf_linear(asp_hf_model *m, asp_val x, asp_hf_part weight)
{
    asp_val w = asp_hf_parameter(m, weight), bias = asp_hf_parameter(m, weight + 1);
    if (!bias.i) return ASP_B2(&m->b, linear, NULL, x, w);
    return ASP_B3(&m->b, linear, NULL, x, w, bias);
}

asp_val asp_hf_activate(asp_hf_model *m, asp_val x)
{
    static const asp_op ops[] = {[ASP_HF_SILU] = ASP_OP_silu,
                                 [ASP_HF_GELU] = ASP_OP_gelu,
                                 [ASP_HF_GELU_TANH] = ASP_OP_gelu_tanh,
                                 [ASP_HF_RELU] = ASP_OP_relu};
    return asp_build(&m->b, ops[m->c->act], NULL, 1, &x);
}

asp_val asp_hf_dropout(asp_hf_model *m, asp_val x, double p)
{
    if (!(p > 0)) return x;
    asp_dropout_attr a = *(const asp_dropout_attr *)asp_ops[ASP_OP_dropout].attr_default;
    a.p = p;
    a.site = m->site++;
    return ASP_B1(&m->b, dropout, &a, x);
}

asp_val asp_hf_split_heads(asp_hf_model *m, asp_val x, int64_t heads)
{
    asp_type t = {
        .rank = 4,
        .dim = {m->B, m->S, asp_size_num(m->g, heads), asp_size_num(m->g, m->c->head_dim)}};
    return asp_build_view(&m->b, x, &t);
}

asp_val asp_hf_swap_heads(asp_hf_model *m, asp_val x)
{
    return asp_build_permute(&m->b, x, 4, (const int64_t[]){0, 2, 1, 3});
}

asp_val asp_hf_attention(asp_hf_model *m, asp_val q, asp_val k, asp_val v)
{
    const asp_hf_config *c = m->c;
    asp_sdpa_attr a = asp_sdpa_attr_of(
        1.0 / sqrt((double)(c->query_scalar ? c->query_scalar : c->head_dim)), true);
    a.softcap = c->score_cap;
    if (asp_hf_is_windowed(c, m->layer))
        a.mask = asp_printf(&m->g->arena, "q - k <= %lld", (long long)c->window - 1);
    if (c->attention_dropout > 0) {
        a.dropout = c->attention_dropout;
        a.site = m->site++;
    }
    asp_type flat = {.rank = 3, .dim = {m->B, m->S, asp_size_num(m->g, c->heads * c->head_dim)}};
    asp_val out = ASP_B3(&m->b, sdpa, &a, q, k, v);
    return asp_build_view(&m->b, asp_hf_swap_heads(m, out), &flat);
}

static asp_val token_input(asp_hf_model *m, const char *name, const char *role)
{
    asp_type t = {.dtype = ASP_I64, .rank = 2, .dim = {m->B, m->S}};
    asp_val v =
        asp_build_declared(&m->b, ASP_OP_input, &(asp_input_attr){.name = name, .role = role}, &t);
    if (m->b.status == ASP_OK) asp_graph_name(m->g, v, name);
    return v;
}

// c tanh(x / c)
static asp_val capped(asp_hf_model *m, asp_val x, double c)
{
    if (!(c > 0)) return x;
    asp_val y = ASP_B1(&m->b, tanh, NULL, asp_build_scaled(&m->b, x, 1 / c));
    return asp_build_scaled(&m->b, y, c);
}

static void head_and_loss(asp_hf_model *m, asp_val x, asp_val table, asp_val labels)
{
    m->b.loc = "lm_head";
    asp_val w = m->c->tied ? table : asp_hf_parameter(m, ASP_HF_head);
    asp_val logits = capped(m, ASP_B2(&m->b, linear, NULL, x, w), m->c->logit_cap);
    m->b.loc = "loss";
    asp_val next = ASP_B1(&m->b, shift, NULL, labels);
    asp_val loss = ASP_B2(&m->b, cross_entropy, NULL, logits, next);
    if (m->b.status == ASP_OK) asp_graph_add_output(m->g, loss, "loss");
}

asp_status asp_front_hf(asp_ctx *cx, const asp_hf_config *c, asp_dtype dtype, asp_graph **out_graph)
{
    asp_hf_model m = {.g = asp_graph_create(cx, asp_hf_model_type(c)), .c = c, .dtype = dtype};
    m.b = (asp_builder){.g = m.g, .loc = "embed_tokens"};
    m.B = asp_size_sym(m.g, "B");
    m.S = asp_size_sym(m.g, "S");
    asp_val ids = token_input(&m, "input_ids", "tokens"),
            labels = token_input(&m, "labels", "labels");
    asp_type all = {.dtype = ASP_I64, .rank = 1, .dim = {m.S}};
    m.positions = asp_build_declared(&m.b, ASP_OP_iota, NULL, &all);
    asp_val table, x = c->family == ASP_HF_gpt2 ? asp_hf_gpt2(&m, ids, &table)
                                                : asp_hf_decoder(&m, ids, &table);
    head_and_loss(&m, x, table, labels);
    if (m.b.status < 0) {
        asp_graph_destroy(m.g);
        return m.b.status;
    }
    *out_graph = m.g;
    return ASP_OK;
}
