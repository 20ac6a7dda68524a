// What the translating functions share: typed arguments, casts, scalars, slices.  Every function
// does nothing once the builder's status is a failure.  Neighbours: aten_int.h (contract),
// aten_args.c (who decoded the arguments). SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

void aten_refuse(aten_call *c, const char *fmt, ...)
{
    char what[512];
    va_list args;
    if (!aten_ok(c)) return;
    va_start(args, fmt);
    asp_vformat(what, sizeof what, fmt, args);
    va_end(args);
    c->m->b.status = asp_fail(c->m->cx, ASP_ERR_UNSUPPORTED, "%s", what);
}

const asp_type *aten_type_of(aten_call *c, asp_val v)
{
    static const asp_type scalar = {.dtype = ASP_F64};
    return aten_ok(c) && v.i ? asp_val_type(c->m->g, v) : &scalar;
}

void aten_give(aten_call *c, asp_val v)
{
    if (aten_ok(c)) ASP_PUSH(&c->m->arena, &c->out, v);
}

// ---- arguments ---------------------------------------------------------------------------------

bool aten_given(const aten_call *c, uint32_t arg) { return c->arg[arg].kind != ATEN_NONE; }

int64_t aten_int(aten_call *c, uint32_t arg)
{
    int64_t n = 0;
    const aten_arg *a = &c->arg[arg];
    if (a->kind != ATEN_NUMBER || a->is_float || !asp_size_is_num(c->m->g, a->size, &n))
        aten_refuse(c, "argument %u must be a constant whole number", arg);
    return n;
}

double aten_f64(aten_call *c, uint32_t arg)
{
    const aten_arg *a = &c->arg[arg];
    if (a->kind != ATEN_NUMBER || !a->is_const)
        aten_refuse(c, "argument %u must be a constant number", arg);
    return a->num;
}

uint32_t aten_dim(aten_call *c, int64_t dim, uint32_t rank)
{
    int64_t d = dim < 0 ? dim + rank : dim;
    if (d >= 0 && d < (int64_t)rank) return (uint32_t)d;
    aten_refuse(c, "dimension %lld of %u", (long long)dim, rank);
    return 0;
}

uint32_t aten_dim_arg(aten_call *c, uint32_t arg, uint32_t rank)
{
    return aten_dim(c, aten_int(c, arg), rank);
}

// ---- values ------------------------------------------------------------------------------------

static asp_val zero_like(aten_call *c, asp_dtype dtype)
{
    return asp_build_constant(&c->m->b, 0, &(asp_type){.dtype = dtype});
}

asp_val aten_cast(aten_call *c, asp_val x, asp_dtype to)
{
    asp_dtype from = aten_type_of(c, x)->dtype;
    if (!aten_ok(c) || from == to) return x;
    if (to == ASP_BOOL) return ASP_B2(&c->m->b, ne, NULL, x, zero_like(c, from));
    return ASP_B1(&c->m->b, cast, (&(asp_cast_attr){.to = to}), x);
}

asp_val aten_scalar(aten_call *c, const aten_arg *a, asp_dtype dtype)
{
    asp_type t = {.dtype = dtype};
    double value = a->kind == ATEN_BOOL ? a->flag : a->num;
    if (a->kind != ATEN_NUMBER && a->kind != ATEN_BOOL) {
        aten_refuse(c, "a number is missing");
        return (asp_val){0};
    }
    if (a->kind == ATEN_BOOL || a->is_const) {
        bool whole = value >= -0x1p53 && value <= 0x1p53 && value == (double)(int64_t)value;
        if (!asp_dtypes[dtype].is_float && !whole)
            aten_refuse(c, "%g is no number of an %s tensor", value, asp_dtypes[dtype].name);
        return aten_ok(c) ? asp_build_constant(&c->m->b, value, &t) : (asp_val){0};
    }
    return asp_build_declared(&c->m->b, ASP_OP_size_value, &(asp_size_attr){.size = a->size}, &t);
}

asp_val aten_reshape(aten_call *c, asp_val x, const asp_type *shape)
{
    return aten_ok(c) ? asp_build_view(&c->m->b, x, shape) : x;
}

asp_val aten_slice(aten_call *c, asp_val x, uint32_t dim, asp_size start, asp_size length)
{
    if (!aten_ok(c)) return x;
    asp_graph *g = c->m->g;
    if (start.i == 0 && asp_size_equal(length, asp_val_type(g, x)->dim[dim])) return x;
    asp_range_attr a = {.dim = dim, .start = start, .end = asp_size_add(g, start, length)};
    return ASP_B1(&c->m->b, slice, &a, x);
}
