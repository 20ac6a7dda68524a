// Ops of the front end's own (autosp.*): what passes put into a framework's graph, read back from
// it.  Operands first, then fields of the op's attributes by the names that the row's parameters
// have; emit.def says the same the other way.  Neighbours: aten.def (rows), emit.def,
// python/autosp/ops.py (what they do there).  SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

static void set_list(aten_call *c, const asp_field *f, const aten_arg *list, void *at)
{
    if (list->n > ASP_MAX_RANK) {
        aten_refuse(c, "%s has %u items; %d at most", f->name, list->n, ASP_MAX_RANK);
        return;
    }
    asp_ints *ints = at;
    asp_sizes *sizes = at;
    for (uint32_t i = 0; i < list->n; i++) {
        if (f->kind == ASP_KIND_ints)
            ints->at[i] = (int64_t)list->at[i].num;
        else
            sizes->at[i] = list->at[i].size;
    }
    if (f->kind == ASP_KIND_ints)
        ints->n = list->n;
    else
        sizes->n = list->n;
}

static void set_field(aten_call *c, const asp_field *f, uint32_t arg, char *attr)
{
    void *at = attr + f->offset;
    switch (f->kind) {
    case ASP_KIND_i64: *(int64_t *)at = aten_int(c, arg); return;
    case ASP_KIND_f64: *(double *)at = aten_f64(c, arg); return;
    case ASP_KIND_bool: *(bool *)at = c->arg[arg].flag; return;
    case ASP_KIND_size: *(asp_size *)at = c->arg[arg].size; return;
    case ASP_KIND_str: *(const char **)at = c->arg[arg].text; return;
    case ASP_KIND_sizes:
    case ASP_KIND_ints: set_list(c, f, &c->arg[arg], at); return;
    case ASP_KIND_dtype: break;
    }
    aten_refuse(c, "the field %s cannot be read", f->name);
}

// The operands of an argument; false: it is none but a field.
static bool take_operands(aten_call *c, const aten_arg *a, asp_val *in, uint32_t *n)
{
    const bool list = a->kind == ATEN_LIST && a->n && a->at[0].kind == ATEN_TENSOR;
    const uint32_t more = list ? a->n : 1;
    if (a->kind != ATEN_TENSOR && !list) return false;
    if (*n + more > ASP_MAX_OPERANDS) {
        aten_refuse(c, "%u operands; %d at most", *n + more, ASP_MAX_OPERANDS);
        return true;
    }
    for (uint32_t i = 0; i < more; i++) in[(*n)++] = list ? a->at[i].val : a->val;
    return true;
}

void aten_own(aten_call *c)
{
    const asp_op_info *op = &asp_ops[c->row->op];
    char *attr = asp_copy_bytes(&c->m->arena, op->attr_default, op->attr_bytes), name[32];
    asp_val in[ASP_MAX_OPERANDS];
    uint32_t n = 0;
    for (uint32_t i = 0; aten_param_name(c->row, i, name); i++) {
        if (take_operands(c, &c->arg[i], in, &n) || strcmp(name, "more") == 0) continue;
        const asp_field *f = op->fields();
        while (f->name && strcmp(f->name, name) != 0) f++;
        ASP_CHECK(f->name);
        if (aten_given(c, i)) set_field(c, f, i, attr);
    }
    if (aten_ok(c)) aten_give(c, asp_build(&c->m->b, c->row->op, attr, n, in));
}
