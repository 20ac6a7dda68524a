// Scratch of the flash attention kernels.  Neighbours: sdpa_isa.c (the kernels), ref/sdpa.c (the
// plain ones, for head widths that are no multiple of 4).  SPDX-License-Identifier: Apache-2.0
#include "kern/sdpa_int.h"

static bool is_plain(const asp_sdpa_attr *a)
{
    return !*a->mask && a->softcap == 0 && !a->bias && !a->sinks && !*a->alibi && a->dropout == 0;
}

asp_sdpa_sizes asp_sdpa_sizes_of(const asp_kcall *k)
{
    const asp_tensor *q = &k->in[0], *key = &k->in[1], *v = &k->in[2];
    const asp_sdpa_attr *attr = k->attr;
    return (asp_sdpa_sizes){
        .batch = q->dim[0],
        .heads = q->dim[1],
        .kv_heads = key->dim[1],
        .group = q->dim[1] / key->dim[1],
        .n_q = q->dim[2],
        .n_k = key->dim[2],
        .d = q->dim[3],
        .e = v->dim[3],
        .scale = (float)attr->scale,
        .causal = attr->causal,
        .plain = is_plain(attr),
    };
}

static bool odd_width(const asp_sdpa_sizes *z)
{
    return !z->plain || z->d % 4 != 0 || z->e % 4 != 0;
}

int64_t asp_sdpa_f32_work(const asp_kcall *k, int n_threads)
{
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k);
    if (odd_width(&z)) return asp_sdpa_ref_work(k, n_threads);
    return asp_sdpa_thread_floats(&z) * n_threads * (int64_t)sizeof(float);
}

int64_t asp_sdpa_grad_f32_work(const asp_kcall *k, int n_threads)
{
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k);
    if (odd_width(&z)) return asp_sdpa_grad_ref_work(k, n_threads);
    return (asp_sdpa_thread_floats(&z) * n_threads + asp_sdpa_delta_floats(&z) +
            asp_sdpa_counters(&z)) *
           (int64_t)sizeof(float);
}
