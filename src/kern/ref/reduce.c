// Reference kernels of reductions other than sums.  Neighbours: op/reduce.c (what they mean), ref.h
// (the order of a slice).  SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

#include <math.h>

// Does x take the place of the largest so far?  NaN is larger than all.
static bool above(double x, double most) { return x > most || (x != x && most == most); }

// The place in its slice of the first largest (of sign * x).
static int64_t first_most(const asp_tensor *x, const asp_ref_reduction *r, int64_t base,
                          double sign, double *out_most)
{
    int64_t first = 0;
    double most = sign * asp_ref_get(x, base);
    for (int64_t j = 1; j < r->n_gone; j++) {
        double here = sign * asp_ref_get(x, base + asp_ref_slice(r, j));
        if (!above(here, most)) continue;
        most = here;
        first = j;
    }
    *out_most = sign * most;
    return first;
}

// values, indices: result numbers or -1.
static void extreme(const asp_kcall *k, asp_worker *w, const asp_ints *dims, double sign,
                    int values, int indices)
{
    const asp_ref_reduction r = asp_ref_reduce(&k->in[0], dims);
    ASP_REF_EACH(i, w, r.n_kept)
    {
        double most;
        int64_t at = first_most(&k->in[0], &r, asp_ref_base(&r, i.at), sign, &most);
        if (values >= 0) asp_ref_put(&k->out[values], i.at, most);
        if (indices >= 0) ((int64_t *)k->out[indices].data)[i.at] = at;
    }
}

static void over_dims(const asp_kcall *k, asp_worker *w, double sign)
{
    extreme(k, w, &((const asp_sum_attr *)k->attr)->dims, sign, 0, -1);
}
static void along_dim(const asp_kcall *k, asp_worker *w, double sign, int values, int indices)
{
    const asp_ints dim = {.n = 1, .at = {((const asp_arg_attr *)k->attr)->dim}};
    extreme(k, w, &dim, sign, values, indices);
}

void asp_amax_ref(const asp_kcall *k, asp_worker *w) { over_dims(k, w, 1.0); }
void asp_amin_ref(const asp_kcall *k, asp_worker *w) { over_dims(k, w, -1.0); }
void asp_max_dim_ref(const asp_kcall *k, asp_worker *w) { along_dim(k, w, 1.0, 0, 1); }
void asp_min_dim_ref(const asp_kcall *k, asp_worker *w) { along_dim(k, w, -1.0, 0, 1); }
void asp_argmax_ref(const asp_kcall *k, asp_worker *w) { along_dim(k, w, 1.0, -1, 0); }
void asp_argmin_ref(const asp_kcall *k, asp_worker *w) { along_dim(k, w, -1.0, -1, 0); }

void asp_logsumexp_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0];
    const asp_ref_reduction r = asp_ref_reduce(x, &((const asp_sum_attr *)k->attr)->dims);
    ASP_REF_EACH(i, w, r.n_kept)
    {
        const int64_t base = asp_ref_base(&r, i.at);
        double most, sum = 0.0;
        first_most(x, &r, base, 1.0, &most);
        if (isinf(most)) most = 0.0; // the sum then is 0 or infinite by itself
        for (int64_t j = 0; j < r.n_gone; j++)
            sum += exp(asp_ref_get(x, base + asp_ref_slice(&r, j)) - most);
        asp_ref_put(&k->out[0], i.at, most + log(sum));
    }
}
