// What the reference kernels share: elements of any dtype as doubles, the part of a thread, indices
// of several dimensions.  They are plain on purpose: the oracle of the fast kernels, and what f64
// programs run on.  Inside kern/ref/ only.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/half.h"
#include "kern/kern_int.h"

ASP_INLINE double asp_ref_get(const asp_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case ASP_F32: return (double)((const float *)t->data)[i];
    case ASP_F64: return ((const double *)t->data)[i];
    case ASP_I64: return (double)((const int64_t *)t->data)[i];
    case ASP_I32: return (double)((const int32_t *)t->data)[i];
    case ASP_BOOL: return ((const uint8_t *)t->data)[i] != 0;
    case ASP_BF16: return (double)asp_from_bf16(((const uint16_t *)t->data)[i]);
    case ASP_F16:
    case ASP_U16:
    case ASP_U8: break;
    }
    asp_bug(__FILE__, __LINE__, "a dtype that no op computes in");
}

ASP_INLINE void asp_ref_put(const asp_tensor *t, int64_t i, double x)
{
    switch (t->dtype) {
    case ASP_F32: ((float *)t->data)[i] = (float)x; return;
    case ASP_F64: ((double *)t->data)[i] = x; return;
    case ASP_I64: ((int64_t *)t->data)[i] = (int64_t)x; return;
    case ASP_I32: ((int32_t *)t->data)[i] = (int32_t)x; return;
    case ASP_BOOL: ((uint8_t *)t->data)[i] = x != 0.0; return;
    case ASP_BF16: ((uint16_t *)t->data)[i] = asp_to_bf16((float)x); return;
    case ASP_F16:
    case ASP_U16:
    case ASP_U8: break;
    }
    asp_bug(__FILE__, __LINE__, "a dtype that no op computes in");
}

ASP_INLINE int64_t asp_ref_id(const asp_tensor *t, int64_t i)
{
    return ((const int64_t *)t->data)[i];
}

// This thread's part of 0 .. n - 1; each element is made by one thread, so bits do not depend on
// how many there are.
typedef struct asp_ref_part {
    int64_t at, end;
} asp_ref_part;

ASP_INLINE asp_ref_part asp_ref_mine(const asp_worker *w, int64_t n)
{
    int64_t each = asp_ceil_div(n, w->n_threads);
    return (asp_ref_part){asp_min(n, each * w->thread), asp_min(n, each * (w->thread + 1))};
}
#define ASP_REF_EACH(i, w, n) for (asp_ref_part i = asp_ref_mine(w, n); i.at < i.end; i.at++)

// Copies one element between arrays of one dtype.
ASP_INLINE void asp_ref_copy(const asp_tensor *to, int64_t i, const asp_tensor *from, int64_t j)
{
    size_t bytes = (size_t)asp_dtypes[from->dtype].bytes;
    memcpy((char *)to->data + (size_t)i * bytes, (const char *)from->data + (size_t)j * bytes,
           bytes);
}

// The array around dimension dim: outer x t->dim[dim] x inner.
ASP_INLINE int64_t asp_ref_inner(const asp_tensor *t, int64_t dim)
{
    int64_t n = 1;
    for (int64_t d = dim + 1; d < t->rank; d++) n *= t->dim[d];
    return n;
}

// Index into an operand that is broadcast from the right to out, of out's element i.
ASP_INLINE int64_t asp_ref_broadcast(const asp_tensor *in, const asp_tensor *out, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int b = 1; b <= in->rank; b++) {
        int64_t size = out->dim[out->rank - b], here = i % size;
        i /= size;
        if (in->dim[in->rank - b] != 1) at += here * step;
        step *= in->dim[in->rank - b];
    }
    return at;
}

// Element by element: one operand, or two that are broadcast.
ASP_INLINE void asp_ref_unary(const asp_kcall *k, asp_worker *w, double (*f)(double))
{
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0]))
    asp_ref_put(&k->out[0], i.at, f(asp_ref_get(&k->in[0], i.at)));
}

ASP_INLINE void asp_ref_binary(const asp_kcall *k, asp_worker *w, double (*f)(double, double))
{
    const asp_tensor *a = &k->in[0], *b = &k->in[1], *y = &k->out[0];
    const int64_t n = asp_tensor_count(y);
    const bool whole_a = asp_tensor_count(a) == n, whole_b = asp_tensor_count(b) == n;
    ASP_REF_EACH(i, w, n)
    {
        double x = asp_ref_get(a, whole_a ? i.at : asp_ref_broadcast(a, y, i.at));
        double z = asp_ref_get(b, whole_b ? i.at : asp_ref_broadcast(b, y, i.at));
        asp_ref_put(y, i.at, f(x, z));
    }
}

// Integers exactly, without a turn through double.
ASP_INLINE void asp_ref_binary_i64(const asp_kcall *k, asp_worker *w,
                                   int64_t (*f)(int64_t, int64_t))
{
    const asp_tensor *a = &k->in[0], *b = &k->in[1], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        int64_t x = asp_ref_id(a, asp_ref_broadcast(a, y, i.at));
        int64_t z = asp_ref_id(b, asp_ref_broadcast(b, y, i.at));
        if (y->dtype == ASP_BOOL)
            ((uint8_t *)y->data)[i.at] = f(x, z) != 0;
        else
            ((int64_t *)y->data)[i.at] = f(x, z);
    }
}

ASP_INLINE void asp_ref_unary_i64(const asp_kcall *k, asp_worker *w, int64_t (*f)(int64_t))
{
    int64_t *y = k->out[0].data;
    ASP_REF_EACH(i, w, asp_tensor_count(&k->out[0])) y[i.at] = f(asp_ref_id(&k->in[0], i.at));
}

// Reductions: the result's elements are the indices of the dims that stay; element j of the slice
// behind one stands at base + asp_ref_slice(&r, j).
typedef struct asp_ref_reduction {
    const asp_tensor *x;
    bool gone[ASP_MAX_RANK];
    int64_t step[ASP_MAX_RANK + 1], n_kept, n_gone;
} asp_ref_reduction;

ASP_INLINE asp_ref_reduction asp_ref_reduce(const asp_tensor *x, const asp_ints *dims)
{
    asp_ref_reduction r = {.x = x, .n_kept = 1, .n_gone = 1};
    r.step[x->rank] = 1;
    for (uint32_t i = 0; i < dims->n; i++) r.gone[dims->at[i]] = true;
    for (int d = x->rank - 1; d >= 0; d--) {
        r.step[d] = r.step[d + 1] * x->dim[d];
        *(r.gone[d] ? &r.n_gone : &r.n_kept) *= x->dim[d];
    }
    return r;
}

ASP_INLINE int64_t asp_ref_index(const asp_ref_reduction *r, int64_t i, bool gone)
{
    int64_t at = 0;
    for (int d = r->x->rank - 1; d >= 0; d--) {
        if (r->gone[d] != gone) continue;
        at += i % r->x->dim[d] * r->step[d + 1];
        i /= r->x->dim[d];
    }
    return at;
}
ASP_INLINE int64_t asp_ref_base(const asp_ref_reduction *r, int64_t i)
{
    return asp_ref_index(r, i, false);
}
ASP_INLINE int64_t asp_ref_slice(const asp_ref_reduction *r, int64_t j)
{
    return asp_ref_index(r, j, true);
}
