// Neighbours: llama.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "bench/support/llama.h"

#include "front/front.h"

asp_status llama_joint(asp_ctx *cx, const llama_sizes *s, const asp_compile_options *o,
                       asp_graph **out_joint)
{
    const asp_hf_config c = {.vocab = s->vocab,
                             .hidden = s->hidden,
                             .layers = s->layers,
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .head_dim = s->head_dim,
                             .intermediate = s->ffn,
                             .rope_theta = 10000,
                             .norm_eps = 1e-5,
                             .initializer_range = 0.02};
    asp_graph *g;
    ASP_TRY(asp_front_hf(cx, &c, ASP_F32, &g));
    asp_status r = asp_compile_joint(cx, g, o, NULL, out_joint);
    asp_graph_destroy(g);
    return r;
}
