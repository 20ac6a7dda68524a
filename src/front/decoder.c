// The families whose layers are those of llama: norm, attention with rotary positions, norm, gated
// feed-forward.  What they differ in is data: traits and parts of io/hfconfig.def.  Neighbours:
// hfmodel.h (contract), hfmodel.c (what is around the layers).  SPDX-License-Identifier: Apache-2.0
#include "front/hfmodel.h"

#include <math.h>

// The norm whose weight is this part; x itself in models without it.
static asp_val norm(asp_hf_model *m, asp_val x, asp_hf_part part)
{
    asp_val w = asp_hf_parameter(m, part);
    if (!w.i) return x;
    if (asp_hf_is(m->c, ASP_HF_IS_one_plus_norms))
        w = ASP_B1(&m->b, add_scalar, (&(asp_scalar_attr){.value = 1}), w);
    return ASP_B2(&m->b, rms_norm, (&(asp_norm_attr){.eps = m->c->norm_eps}), x, w);
}

static asp_val rotate(asp_hf_model *m, asp_val x)
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

static asp_val attention(asp_hf_model *m, asp_val x)
{
    const asp_hf_config *c = m->c;
    asp_val q = asp_hf_split_heads(m, asp_hf_linear(m, x, ASP_HF_q), c->heads);
    q = rotate(m, asp_hf_swap_heads(m, norm(m, q, ASP_HF_q_norm)));
    asp_val k = asp_hf_split_heads(m, asp_hf_linear(m, x, ASP_HF_k), c->kv_heads);
    k = rotate(m, asp_hf_swap_heads(m, norm(m, k, ASP_HF_k_norm)));
    asp_val v = asp_hf_split_heads(m, asp_hf_linear(m, x, ASP_HF_v), c->kv_heads);
    v = asp_hf_swap_heads(m, v);
    asp_hf_locate(m, "self_attn");
    return asp_hf_linear(m, asp_hf_attention(m, q, k, v), ASP_HF_o);
}

// down(act(gate(x)) * up(x)) Shazeer 2020
static asp_val feed_forward(asp_hf_model *m, asp_val x)
{
    asp_val gate = asp_hf_linear(m, x, ASP_HF_gate), up = asp_hf_linear(m, x, ASP_HF_up);
    asp_hf_locate(m, "mlp");
    asp_val h = ASP_B2(&m->b, mul, NULL, asp_hf_activate(m, gate), up);
    return asp_hf_linear(m, h, ASP_HF_down);
}

// Two norms a layer:   x += attention(input_norm(x))               x += mlp(middle_norm(x))
// post_norms:          x += middle_norm(attention(input_norm(x)))  x +=
// post_mlp_norm(mlp(pre_mlp_norm(x)))
static asp_val layer(asp_hf_model *m, asp_val x)
{
    const bool post = asp_hf_is(m->c, ASP_HF_IS_post_norms);
    asp_val a = attention(m, norm(m, x, ASP_HF_input_norm));
    if (post) a = norm(m, a, ASP_HF_middle_norm);
    x = ASP_B2(&m->b, add, NULL, x, a);
    a = feed_forward(m, norm(m, x, post ? ASP_HF_pre_mlp_norm : ASP_HF_middle_norm));
    return ASP_B2(&m->b, add, NULL, x, norm(m, a, ASP_HF_post_mlp_norm));
}

asp_val asp_hf_decoder(asp_hf_model *m, asp_val ids, asp_val *out_table)
{
    *out_table = asp_hf_parameter(m, ASP_HF_embed);
    asp_val x = ASP_B2(&m->b, embedding, NULL, ids, *out_table);
    if (asp_hf_is(m->c, ASP_HF_IS_scaled_embedding))
        x = asp_build_scaled(&m->b, x, sqrt((double)m->c->hidden));
    for (m->layer = 0; m->layer < m->c->layers; m->layer++) x = layer(m, x);
    return norm(m, x, ASP_HF_norm);
}
