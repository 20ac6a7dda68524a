// What a call of attention asks for beside q, k and v.  Neighbours: attend.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "kern/attend.h"
#include "base/part.h"
#include "base/philox.h"

#include <math.h>

static void bias_steps(asp_attend *a)
{
    const asp_tensor *t = a->bias;
    int64_t step = 1;
    for (int d = 3; d >= 0; d--) {
        const int own = d - (4 - t->rank);
        a->bias_dim[d] = own >= 0 ? t->dim[own] : 1;
        a->bias_step[d] = a->bias_dim[d] == 1 ? 0 : step;
        step *= a->bias_dim[d];
    }
}

static void mix_key(const asp_kcall *k, const asp_sdpa_attr *attr, asp_attend *a)
{
    const uint64_t site = (uint64_t)attr->site, step = k->step;
    const uint32_t counter[4] = {(uint32_t)site, (uint32_t)(site >> 32), (uint32_t)step,
                                 (uint32_t)(step >> 32)};
    const uint32_t seed[2] = {(uint32_t)k->seed, (uint32_t)(k->seed >> 32)};
    uint32_t words[4];
    asp_philox4x32(counter, seed, words);
    a->key[0] = words[0], a->key[1] = words[1];
    if (attr->head_ranks > 1) {
        const int64_t rank = k->rank % attr->head_ranks; // of its group
        a->first_head = asp_part_of(attr->heads, attr->head_ranks, rank).at * attr->head_unit;
    }
    a->drop_below = (uint64_t)(attr->dropout * 4294967296.0);
    a->keep = 1 / (1 - attr->dropout);
}

void asp_attend_of(const asp_kcall *k, uint32_t first, asp_attend *out)
{
    const asp_sdpa_attr *attr = k->attr;
    *out = (asp_attend){.softcap = attr->softcap, .keep = 1};
    out->n_keys = attr->rings > 1 ? k->sizes[1] : k->in[1].dim[2];
    ASP_CHECK(asp_mask_read(attr->mask, &out->mask));
    const asp_sdpa_parts p = asp_sdpa_parts_of(attr, &out->mask, first);
    for (uint32_t i = 0; i < out->mask.n_lookups; i++) out->lookup[i] = &k->in[p.lookup[i]];
    if (p.bias) out->bias = &k->in[p.bias], bias_steps(out);
    if (p.sinks) out->sinks = &k->in[p.sinks];
    if (p.slopes) out->slopes = &k->in[p.slopes];
    out->distance = strcmp(attr->alibi, "distance") == 0;
    out->empty = strcmp(attr->empty, "mean") == 0  ? ASP_ATTEND_MEAN
                 : strcmp(attr->empty, "nan") == 0 ? ASP_ATTEND_NAN
                                                   : ASP_ATTEND_ZERO;
    if (attr->causal) ASP_CHECK(asp_mask_add_causal(&out->mask)); // inference saw to it
    out->causal = asp_mask_is_causal(&out->mask);
    out->masked = out->mask.n_atoms > out->causal ||
                  out->mask.node[out->mask.n_nodes - 1].kind == ASP_MASK_FALSE;
    if (attr->dropout > 0) mix_key(k, attr, out);
}

static int64_t lookup_at(const asp_tensor *t, int64_t batch, int64_t position)
{
    const int64_t n = t->dim[t->rank - 1], rows = t->rank == 2 ? t->dim[0] : 1;
    const int64_t i = (rows == 1 ? 0 : batch) * n + (n == 1 ? 0 : position);
    return t->dtype == ASP_BOOL ? ((const uint8_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}

void asp_attend_lookups(const asp_attend *a, uint32_t which, int64_t batch, int64_t position,
                        int64_t *out_value)
{
    for (uint32_t i = 0; i < a->mask.n_lookups; i++)
        out_value[i] = which >> i & 1 ? lookup_at(a->lookup[i], batch, position) : 0;
}

bool asp_attend_sees(const asp_attend *a, int64_t batch, int64_t q, int64_t k)
{
    int64_t at_q[ASP_MASK_MAX_LOOKUPS], at_k[ASP_MASK_MAX_LOOKUPS];
    if (!a->masked) return !a->causal || k <= q;
    asp_attend_lookups(a, a->mask.query_lookups, batch, q, at_q);
    asp_attend_lookups(a, a->mask.key_lookups, batch, k, at_k);
    return asp_mask_allows(&a->mask, q, k, at_q, at_k);
}

static double number_at(const asp_tensor *t, int64_t i)
{
    return t->dtype == ASP_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}

double asp_attend_bias(const asp_attend *a, int64_t batch, int64_t head, int64_t q, int64_t k)
{
    double sum = 0;
    if (a->bias) {
        const int64_t i = batch * a->bias_step[0] + head * a->bias_step[1] + q * a->bias_step[2] +
                          k * a->bias_step[3];
        if (a->bias->dtype == ASP_BOOL) {
            if (!((const uint8_t *)a->bias->data)[i]) return -HUGE_VAL;
        } else
            sum = number_at(a->bias, i);
    }
    if (a->slopes) {
        const double by = (double)(a->distance && k > q ? q - k : k - q);
        sum += number_at(a->slopes, head) * by;
    }
    return sum;
}

void asp_attend_keep4(const asp_attend *a, int64_t batch, int64_t head, int64_t q, int64_t k,
                      float *out)
{
    const uint32_t counter[4] = {(uint32_t)(k >> 2), (uint32_t)q, (uint32_t)(head + a->first_head),
                                 (uint32_t)batch};
    uint32_t words[4];
    asp_philox4x32(counter, a->key, words);
    for (int i = 0; i < 4; i++) out[i] = words[i] < a->drop_below ? 0.0f : 1.0f;
}

double asp_attend_keep(const asp_attend *a, int64_t batch, int64_t head, int64_t q, int64_t k)
{
    float of_four[4];
    if (!a->drop_below) return 1;
    asp_attend_keep4(a, batch, head, q, k, of_four);
    return of_four[k & 3] != 0 ? a->keep : 0;
}
