// Reference kernels of values that come from nowhere or are integers.  They are the only kernels of
// these ops: memory-bound or tiny.  Neighbours: op/source.c (what they mean).
// SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

void asp_constant_ref(const asp_kcall *k, asp_worker *w)
{
    const double value = ((const asp_constant_attr *)k->attr)->value;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0])) asp_ref_put(&k->out[0], i.at, value);
}

void asp_iota_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t start = ((const asp_iota_attr *)k->attr)->start;
    int64_t *y = k->out[0].data;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0])) y[i.at] = start + i.at;
}

void asp_count_valid_ref(const asp_kcall *k, asp_worker *w)
{
    if (w->thread != 0) return;
    const int64_t ignore = ((const asp_labels_attr *)k->attr)->ignore;
    const int64_t *labels = k->in[0].data, n = asp_tensor_count(&k->in[0]);
    int64_t valid = 0;
    for (int64_t i = 0; i < n; i++) valid += labels[i] != ignore;
    *(int64_t *)k->out[0].data = valid;
}
