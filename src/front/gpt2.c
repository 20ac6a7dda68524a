// GPT-2 (Radford et al. 2019): learned positions, layer norms with biases, one projection for q, k
// and v, weights that stand (in, out).  Neighbours: hfmodel.h (contract), hfmodel.c (what is around
// the layers), decoder.c (the other families).  SPDX-License-Identifier: Apache-2.0
#include "front/hfmodel.h"

static asp_val norm(asp_hf_model *m, asp_val x, asp_hf_part weight)
{
    asp_layer_norm_attr a = {.dims = 1, .eps = m->c->norm_eps};
    asp_val w = asp_hf_parameter(m, weight), bias = asp_hf_parameter(m, weight + 1);
    return ASP_B3(&m->b, layer_norm, &a, x, w, bias);
}

// x w + b
static asp_val project(asp_hf_model *m, asp_val x, asp_hf_part weight)
{
    asp_val w = asp_hf_parameter(m, weight), bias = asp_hf_parameter(m, weight + 1);
    return ASP_B2(&m->b, add, NULL, ASP_B2(&m->b, matmul, NULL, x, w), bias);
}

static asp_val attention(asp_hf_model *m, asp_val x)
{
    asp_val part[3], packed = project(m, x, ASP_HF_c_attn); // (B, S, 3 hidden)
    asp_val first = ASP_B1(&m->b, split, (&(asp_split_attr){.dim = 2, .parts = 3}), packed);
    for (uint32_t i = 0; i < 3; i++) {
        asp_val one = i ? asp_build_result(&m->b, first, i) : first;
        part[i] = asp_hf_swap_heads(m, asp_hf_split_heads(m, one, m->c->heads));
    }
    x = project(m, asp_hf_attention(m, part[0], part[1], part[2]), ASP_HF_c_proj);
    return asp_hf_dropout(m, x, m->c->residual_dropout);
}

static asp_val feed_forward(asp_hf_model *m, asp_val x)
{
    x = project(m, asp_hf_activate(m, project(m, x, ASP_HF_mlp_fc)), ASP_HF_mlp_proj);
    return asp_hf_dropout(m, x, m->c->residual_dropout);
}

asp_val asp_hf_gpt2(asp_hf_model *m, asp_val ids, asp_val *out_table)
{
    *out_table = asp_hf_parameter(m, ASP_HF_wte);
    asp_val x = ASP_B2(&m->b, embedding, NULL, ids, *out_table);
    asp_val at = ASP_B2(&m->b, embedding, NULL, m->positions, asp_hf_parameter(m, ASP_HF_wpe));
    x = asp_hf_dropout(m, ASP_B2(&m->b, add, NULL, x, at), m->c->embedding_dropout);
    for (m->layer = 0; m->layer < m->c->layers; m->layer++) {
        x = ASP_B2(&m->b, add, NULL, x, attention(m, norm(m, x, ASP_HF_ln_1)));
        x = ASP_B2(&m->b, add, NULL, x, feed_forward(m, norm(m, x, ASP_HF_ln_2)));
    }
    return norm(m, x, ASP_HF_ln_f);
}
