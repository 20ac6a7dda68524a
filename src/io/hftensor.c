// The tensors of a model: names and shapes as transformers has them.  Neighbours: hfconfig.h
// (contract), hfconfig.def (the list), front/hfmodel.c (who makes parameters of them).
// SPDX-License-Identifier: Apache-2.0
#include "io/hfconfig_int.h"

#include <math.h>

typedef enum where { ONCE, LAYER } where;
typedef enum needs {
    ALWAYS,
    QKV_BIAS,
    ATTENTION_BIAS,
    MLP_BIAS,
    QK_NORM,
    POST_NORMS,
    UNTIED,
} needs;
typedef enum size { NONE, VOCAB, HIDDEN, POSITION, Q, KV, HEAD, INTER, PACKED } size;
typedef enum init { NORMAL, DEEP, NORM, ZEROS } init; // DEEP: narrower with more layers

typedef struct row {
    int families;
    where where;
    const char *name;
    needs needs;
    size rows, columns;
    init init;
} row;

static const row rows[] = {
#define TENSOR(families, id, where, name, needs, rows, columns, init) \
    {families, where, name, needs, rows, columns, init},
#include "io/hfconfig.def"
};

static bool has(const asp_hf_config *c, const row *r)
{
    const bool yes[] = {[ALWAYS] = true,
                        [QKV_BIAS] = c->attention_bias || asp_hf_is(c, ASP_HF_IS_biased_qkv),
                        [ATTENTION_BIAS] = c->attention_bias,
                        [MLP_BIAS] = c->mlp_bias,
                        [QK_NORM] = asp_hf_is(c, ASP_HF_IS_normed_qk),
                        [POST_NORMS] = asp_hf_is(c, ASP_HF_IS_post_norms),
                        [UNTIED] = !c->tied};
    return r->families >> c->family & 1 && yes[r->needs];
}

static int64_t size_of(const asp_hf_config *c, size s)
{
    const int64_t sizes[] = {[NONE] = 0,
                             [VOCAB] = c->vocab,
                             [HIDDEN] = c->hidden,
                             [POSITION] = c->max_positions,
                             [Q] = c->heads * c->head_dim,
                             [KV] = c->kv_heads * c->head_dim,
                             [HEAD] = c->head_dim,
                             [INTER] = c->intermediate,
                             [PACKED] = 3 * c->hidden};
    return sizes[s];
}

bool asp_hf_tensor_of(const asp_hf_config *c, asp_hf_part part, int64_t layer,
                      asp_hf_tensor *out_tensor)
{
    const row *r = &rows[part];
    if (!has(c, r)) return false;
    asp_hf_tensor t = {.rank = r->columns == NONE ? 1 : 2,
                       .dim = {size_of(c, r->rows), size_of(c, r->columns)}};
    if (r->where == LAYER)
        snprintf(t.name, sizeof t.name, "%s%lld.%s", asp_hf_families[c->family].layers,
                 (long long)layer, r->name);
    else
        snprintf(t.name, sizeof t.name, "%s", r->name);
    bool ones = r->init == NORM && !asp_hf_is(c, ASP_HF_IS_one_plus_norms);
    t.init = r->init == NORMAL || r->init == DEEP ? "normal" : ones ? "ones" : "zeros";
    // Radford et al. 2019: what adds to the residual stream, by the root of how often that happens
    t.std = c->initializer_range / (r->init == DEEP ? sqrt(2.0 * (double)c->layers) : 1);
    *out_tensor = t;
    return true;
}

// Rows between LAYER rows are none: those of a family's layers stand in a row.
bool asp_hf_tensor_at(const asp_hf_config *c, int64_t i, asp_hf_tensor *out_tensor)
{
    asp_hf_part first = 0, once[ASP_COUNT_OF(rows)], layer[ASP_COUNT_OF(rows)];
    int64_t n_before = 0, n_once = 0, n_layer = 0;
    for (; first < ASP_COUNT_OF(rows); first++) {
        if (!has(c, &rows[first])) continue;
        if (rows[first].where == LAYER)
            layer[n_layer++] = first;
        else
            once[n_once++] = first;
        if (n_layer == 0) n_before = n_once;
    }
    int64_t in_layers = i - n_before, behind = in_layers - n_layer * c->layers;
    if (i < 0 || behind >= n_once - n_before) return false;
    if (in_layers < 0) return asp_hf_tensor_of(c, once[i], 0, out_tensor);
    if (behind >= 0) return asp_hf_tensor_of(c, once[n_before + behind], 0, out_tensor);
    return asp_hf_tensor_of(c, layer[in_layers % n_layer], in_layers / n_layer, out_tensor);
}

double asp_hf_count_parameters(const asp_hf_config *c)
{
    double total = 0;
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        if (!has(c, &rows[i])) continue;
        double count = (double)size_of(c, rows[i].rows);
        if (rows[i].columns != NONE) count *= (double)size_of(c, rows[i].columns);
        total += rows[i].where == LAYER ? count * (double)c->layers : count;
    }
    return total;
}
