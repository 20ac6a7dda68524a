// Reference kernels of comparisons and of what reads bools (a byte, 0 or 1).  Neighbours:
// op/compare.c (what they mean).  SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

#define COMPARE(op, sign)                                              \
    static double op(double a, double b) { return a sign b; }          \
    static int64_t op##_i64(int64_t a, int64_t b) { return a sign b; } \
    void asp_##op##_ref(const asp_kcall *k, asp_worker *w)             \
    {                                                                  \
        if (k->in[0].dtype == ASP_I64)                                 \
            asp_ref_binary_i64(k, w, op##_i64);                        \
        else                                                           \
            asp_ref_binary(k, w, op);                                  \
    }
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)

static double both(double a, double b) { return a != 0.0 && b != 0.0; }
static double either(double a, double b) { return a != 0.0 || b != 0.0; }
static double not_of(double x) { return x == 0.0; }
void asp_logical_and_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, both); }
void asp_logical_or_ref(const asp_kcall *k, asp_worker *w) { asp_ref_binary(k, w, either); }
void asp_logical_not_ref(const asp_kcall *k, asp_worker *w) { asp_ref_unary(k, w, not_of); }

void asp_where_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *c = &k->in[0], *y = &k->out[0];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        const bool yes = ((const uint8_t *)c->data)[asp_ref_broadcast(c, y, i.at)] != 0;
        const asp_tensor *x = &k->in[yes ? 1 : 2];
        asp_ref_copy(y, i.at, x, asp_ref_broadcast(x, y, i.at));
    }
}
