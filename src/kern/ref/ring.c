// Attention over two sets of keys from that of each, in double.  Neighbours: op/ring.c (where it is
// needed), merge_isa.c (the fast one).  SPDX-License-Identifier: Apache-2.0
//
//   lse = log(e^la + e^lb), out = (e^la oa + e^lb ob) / (e^la + e^lb); a row without keys has
//   lse = -infinity, and its out counts only where both have none: what it gets there is their sum
#include "kern/ref/ref.h"

#include <math.h>

void asp_merge_attention_ref(const asp_kcall *k, asp_worker *w)
{
    const int64_t e = k->in[0].dim[3];
    ASP_REF_EACH(row, w, asp_tensor_count(&k->in[1]))
    {
        const double la = asp_ref_get(&k->in[1], row.at), lb = asp_ref_get(&k->in[3], row.at);
        const double max = la > lb ? la : lb;
        const double a = la == -HUGE_VAL ? 0 : exp(la - max),
                     b = lb == -HUGE_VAL ? 0 : exp(lb - max);
        for (int64_t x = row.at * e; x < (row.at + 1) * e; x++) {
            double sum = 0;
            const double oa = asp_ref_get(&k->in[0], x), ob = asp_ref_get(&k->in[2], x);
            if (a > 0) sum += a * oa;
            if (b > 0) sum += b * ob;
            asp_ref_put(&k->out[0], x, a + b > 0 ? sum / (a + b) : oa + ob);
        }
        asp_ref_put(&k->out[1], row.at, a + b > 0 ? max + log(a + b) : -HUGE_VAL);
    }
}
