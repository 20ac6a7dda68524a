// Ops of the front end's own (autosp.*): what passes put into a framework's graph, read back from
// it.  Operands first, then fields of the op's attributes by the names that the row's parameters
// have; emit.def says the same the other way.  Neighbours: aten.def (rows), emit.def,
// python/autosp/ops.py (what they do there).  SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

static void set_field(aten_call *c, const asp_field *f, uint32_t arg, char *attr)
{
    void *at = attr + f->offset;
    switch (f->kind) {
    case ASP_KIND_i64: *(int64_t *)at = aten_int(c, arg); return;
    case ASP_KIND_f64: *(double *)at = aten_f64(c, arg); return;
    case ASP_KIND_bool: *(bool *)at = c->arg[arg].flag; return;
    case ASP_KIND_size: *(asp_size *)at = c->arg[arg].size; return;
    case ASP_KIND_str:
    case ASP_KIND_dtype:
    case ASP_KIND_sizes:
    case ASP_KIND_ints: break;
    }
    aten_refuse(c, "the field %s cannot be read", f->name);
}

void aten_own(aten_call *c)
{
    const asp_op_info *op = &asp_ops[c->row->op];
    char *attr = asp_copy_bytes(&c->m->arena, op->attr_default, op->attr_bytes), name[32];
    asp_val in[ATEN_MAX_ARGS];
    uint32_t n = 0;
    for (uint32_t i = 0; aten_param_name(c->row, i, name); i++) {
        if (c->arg[i].kind == ATEN_TENSOR) {
            in[n++] = c->arg[i].val;
            continue;
        }
        const asp_field *f = op->fields();
        while (f->name && strcmp(f->name, name) != 0) f++;
        ASP_CHECK(f->name);
        if (aten_given(c, i)) set_field(c, f, i, attr);
    }
    if (aten_ok(c)) aten_give(c, asp_build(&c->m->b, c->row->op, attr, n, in));
}
