// The op table as data: names, operand counts, flags, attribute fields.  What an op means stands in
// op/. Neighbours: op.def, attr.def (rows), print.c and parse.c (who walk the fields).
// SPDX-License-Identifier: Apache-2.0
#include "ir/ir_int.h"

#include <math.h>

// Each row of attr.def becomes its default values and its field list.  clang-format off: rows of
// braces.
// clang-format off
#define ATTRS(row, ...) static const asp_##row##_attr row##_default = {.unused_ = 0, __VA_ARGS__};
#define FIELD(kind, name, ...) .name = __VA_ARGS__,
#include "ir/attr.def"
#undef ATTRS
#undef FIELD

#define ATTRS(row, ...)                                                                            \
    static const asp_field *row##_fields(void)                                                     \
    {                                                                                              \
        typedef asp_##row##_attr row_type;                                                         \
        static const asp_field fields[] = {__VA_ARGS__ {NULL, ASP_KIND_i64, sizeof(row_type)}};    \
        return fields;                                                                             \
    }
#define FIELD(kind, name, ...) {#name, ASP_KIND_##kind, offsetof(row_type, name)},
#include "ir/attr.def"
#undef ATTRS
#undef FIELD

#define RULE(text) text, false
#define FN NULL, true
#define NONE NULL, false
#define OP_ROW(kind, name, min_in, max_in, attr, flags, cost, rule_text, rule_fn, doc)             \
    {#name, ASP_##kind, min_in, max_in, flags, ASP_COST_##cost, rule_text, rule_fn,                \
     sizeof(asp_##attr##_attr), attr##_fields, &attr##_default, #attr, doc},
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc)                               \
    OP_ROW(kind, name, min_in, max_in, attr, flags, cost, rule, doc)
const asp_op_info asp_ops[] = {
#include "ir/op.def"
};
#undef OP
// clang-format on

static_assert(ASP_COUNT_OF(asp_ops) == ASP_OP_COUNT, "one row an op");

bool asp_op_find(const char *name, size_t n, asp_op *out_op)
{
    for (int i = 0; i < ASP_OP_COUNT; i++) {
        if (strlen(asp_ops[i].name) == n && memcmp(asp_ops[i].name, name, n) == 0) {
            *out_op = (asp_op)i;
            return true;
        }
    }
    return false;
}

bool asp_field_equal(const asp_field *f, const void *a, const void *b)
{
    const void *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;
    switch (f->kind) {
    case ASP_KIND_i64: return *(const int64_t *)x == *(const int64_t *)y;
    case ASP_KIND_f64: return memcmp(x, y, sizeof(double)) == 0;
    case ASP_KIND_bool: return *(const bool *)x == *(const bool *)y;
    case ASP_KIND_str: return strcmp(*(const char *const *)x, *(const char *const *)y) == 0;
    case ASP_KIND_dtype: return *(const asp_dtype *)x == *(const asp_dtype *)y;
    case ASP_KIND_size: return asp_size_equal(*(const asp_size *)x, *(const asp_size *)y);
    case ASP_KIND_sizes: {
        const asp_sizes *s = x, *t = y;
        return s->n == t->n && memcmp(s->at, t->at, s->n * sizeof s->at[0]) == 0;
    }
    case ASP_KIND_ints: {
        const asp_ints *s = x, *t = y;
        return s->n == t->n && memcmp(s->at, t->at, s->n * sizeof s->at[0]) == 0;
    }
    }
    return false;
}

bool asp_attr_equal(asp_op op, const void *a, const void *b)
{
    for (const asp_field *f = asp_ops[op].fields(); f->name; f++)
        if (!asp_field_equal(f, a, b)) return false;
    return true;
}

// A copy on the graph's arena, strings included.
void *asp_attr_copy(asp_graph *g, asp_op op, const void *attr)
{
    const asp_op_info *info = &asp_ops[op];
    char *copy = asp_copy_bytes(&g->arena, attr ? attr : info->attr_default, info->attr_bytes);
    for (const asp_field *f = info->fields(); f->name; f++) {
        if (f->kind != ASP_KIND_str) continue;
        const char **s = (const char **)(void *)(copy + f->offset);
        *s = asp_copy_str(&g->arena, *s);
    }
    return copy;
}

asp_status asp_node_sizes(asp_arena *a, const asp_graph *g, asp_node n, const asp_env *env,
                          const int64_t **out_sizes)
{
    const asp_node_info *info = asp_node_at(g, n);
    ASP_VEC(int64_t) values = {0};
    for (const asp_field *f = asp_ops[info->op].fields(); f->name; f++) {
        const void *x = (const char *)info->attr + f->offset;
        const asp_sizes *list = x;
        asp_sizes one = {.n = 1};
        if (f->kind == ASP_KIND_size)
            one.at[0] = *(const asp_size *)x, list = &one;
        else if (f->kind != ASP_KIND_sizes)
            continue;
        for (uint32_t i = 0; i < list->n; i++) {
            int64_t value;
            ASP_TRY(asp_size_eval(g, list->at[i], env, &value));
            ASP_PUSH(a, &values, value);
        }
    }
    *out_sizes = values.at;
    return ASP_OK;
}
