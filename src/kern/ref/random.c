// Reference kernel of dropout.  Neighbours: op/random.c (what it means), kern/random_isa.c (fast).
// SPDX-License-Identifier: Apache-2.0
#include "kern/random.h"
#include "kern/ref/ref.h"

// Element number i of the unsplit tensor has word i mod 4 of block i / 4.
void asp_dropout_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_dropout_attr *a = k->attr;
    const asp_global_map m = asp_global_map_of(k);
    const asp_philox random = asp_dropout_stream(k, a->site);
    const double scale = asp_dropout_scale(a->p);
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    {
        const int64_t at = asp_global_index(&m, i.at);
        uint32_t word[4] = {0};
        if (at >= 0) asp_philox_block(random, (uint64_t)at / 4, word);
        bool kept = at >= 0 && word[at % 4] >= asp_dropout_threshold(a->p);
        asp_ref_put(&k->out[0], i.at, kept ? asp_ref_get(&k->in[0], i.at) * scale : 0.0);
    }
}
