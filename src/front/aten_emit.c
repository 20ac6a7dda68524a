// Nodes that passes made, as calls in the schema of exported graphs: the arguments of a row of
// emit.def, written as JSON.
//
//   %3 = sum %x {dims = [1]}   ->   {"name": "x3", "op": "aten.sum.dim_IntList", "args": [{"ref":
//   "v9"}, [1], false], "kwargs": {}}
//
// A row fits where every field it does not name is at its default, so nothing a node holds is lost.
// Neighbours: emit.def (the rows), aten_edit.c (who asks).  SPDX-License-Identifier: Apache-2.0
#include "front/aten_edit.h"

#include <math.h>

typedef struct emit_row {
    asp_op op;
    const char *overload, *format;
} emit_row;

static const emit_row rows[] = {
#define EMIT(op, overload, format) {ASP_OP_##op, overload, format},
#include "front/emit.def"
#undef EMIT
};

// ---- fields ------------------------------------------------------------------------------------

static const asp_field *find_field(asp_op op, const char *name, size_t n)
{
    for (const asp_field *f = asp_ops[op].fields(); f->name; f++)
        if (strlen(f->name) == n && memcmp(f->name, name, n) == 0) return f;
    return NULL;
}

// Does the format say the field, as .field or -field?
static bool names_field(const char *format, const char *field)
{
    for (const char *s = format; *s;) {
        const size_t n = strcspn(s, " ");
        for (size_t i = 0; i + 1 < n; i++)
            if ((s[i] == '.' || s[i] == '-') && n - i - 1 == strlen(field) &&
                memcmp(s + i + 1, field, n - i - 1) == 0)
                return true;
        s += n + (s[n] == ' ');
    }
    return false;
}

// Are the fields that the format does not name at their defaults?
static bool fits(const emit_row *r, const asp_node_info *info, asp_arena *a)
{
    static const size_t bytes[] = {
#define ASP_X(kind, ctype) [ASP_KIND_##kind] = sizeof(ctype),
        ASP_KINDS(ASP_X)
#undef ASP_X
    };
    if (r->op != info->op) return false;
    const char *standard = asp_ops[r->op].attr_default;
    char *said = asp_copy_bytes(a, info->attr, asp_ops[r->op].attr_bytes);
    for (const asp_field *f = asp_ops[r->op].fields(); f->name; f++)
        if (!names_field(r->format, f->name))
            memcpy(said + f->offset, standard + f->offset, bytes[f->kind]);
    return asp_attr_equal(r->op, said, info->attr);
}

// ---- JSON --------------------------------------------------------------------------------------

void aten_put_size(asp_text *t, const asp_graph *g, asp_size s)
{
    int64_t n;
    if (asp_size_is_num(g, s, &n)) {
        asp_put(t, "%lld", (long long)n);
        return;
    }
    asp_put(t, "{\"sym\": \"");
    asp_size_put(t, g, s);
    asp_put(t, "\"}");
}

void aten_put_shape(asp_text *t, const asp_graph *g, const asp_type *type)
{
    asp_put(t, "[");
    for (uint32_t d = 0; d < type->rank; d++) {
        asp_put(t, "%s", d ? ", " : "");
        aten_put_size(t, g, type->dim[d]);
    }
    asp_put(t, "]");
}

static void put_number(asp_text *t, double x)
{
    if (isfinite(x))
        asp_put_f64(t, 1, x);
    else
        asp_put(t, "{\"float\": \"%s\"}", isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

static void put_field(asp_text *t, const asp_graph *g, const asp_field *f, const void *attr)
{
    const void *at = (const char *)attr + f->offset;
    switch (f->kind) {
    case ASP_KIND_i64:
        if (*(const int64_t *)at == INT64_MIN)
            asp_put(t, "null"); // none
        else
            asp_put(t, "%lld", (long long)*(const int64_t *)at);
        break;
    case ASP_KIND_f64: put_number(t, *(const double *)at); break;
    case ASP_KIND_bool: asp_put(t, "%s", *(const bool *)at ? "true" : "false"); break;
    case ASP_KIND_str: asp_put_quoted(t, *(const char *const *)at); break;
    case ASP_KIND_dtype:
        asp_put(t, "{\"dtype\": \"%s\"}", asp_dtypes[*(const asp_dtype *)at].name);
        break;
    case ASP_KIND_size: aten_put_size(t, g, *(const asp_size *)at); break;
    case ASP_KIND_sizes: {
        const asp_sizes *s = at;
        for (uint32_t i = 0; i < s->n; i++) {
            asp_put(t, "%s", i ? ", " : "[");
            aten_put_size(t, g, s->at[i]);
        }
        asp_put(t, "%s", s->n ? "]" : "[]");
        break;
    }
    case ASP_KIND_ints: {
        const asp_ints *s = at;
        asp_put(t, "[");
        for (uint32_t i = 0; i < s->n; i++)
            asp_put(t, "%s%lld", i ? ", " : "", (long long)s->at[i]);
        asp_put(t, "]");
        break;
    }
    }
}

// ---- arguments ---------------------------------------------------------------------------------

static const char *reduction_of(const asp_loss_attr *a)
{
    return strcmp(a->reduction, "mean") == 0 ? "1" : strcmp(a->reduction, "sum") == 0 ? "2" : "0";
}

static bool is_grouped(const asp_graph *g, const asp_node_info *info)
{
    return !asp_size_equal(asp_val_type(g, info->in[0])->dim[1],
                           asp_val_type(g, info->in[1])->dim[1]);
}

typedef struct emitting {
    asp_text *t;
    const asp_graph *g;
    const asp_node_info *info;
    const char *const *operand;
} emitting;

static void put_ref(const emitting *e, uint32_t i)
{
    asp_put(e->t, "{\"ref\": \"%s\"}", e->operand[i]);
}

static void put_operands(const emitting *e, const char *s, size_t n)
{
    uint32_t i = (uint32_t)(s[0] - '0');
    if (n == 1)
        put_ref(e, i);
    else if (s[1] == '?' && i >= e->info->n_in)
        asp_put(e->t, "null");
    else if (s[1] == '?')
        put_ref(e, i);
    else {
        asp_put(e->t, "[");
        for (const char *comma = ""; i < e->info->n_in; i++, comma = ", ") {
            asp_put(e->t, "%s", comma);
            put_ref(e, i);
        }
        asp_put(e->t, "]");
    }
}

static bool is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

static void put_argument(const emitting *e, const char *s, size_t n)
{
    const asp_type *out = asp_val_type(e->g, e->info->first);
    if (*s >= '0' && *s <= '9')
        put_operands(e, s, n);
    else if (*s == '.')
        put_field(e->t, e->g, find_field(e->info->op, s + 1, n - 1), e->info->attr);
    else if (is(s, n, "shape"))
        aten_put_shape(e->t, e->g, out);
    else if (is(s, n, "type"))
        asp_put(e->t, "{\"dtype\": \"%s\"}", asp_dtypes[out->dtype].name);
    else if (is(s, n, "any"))
        asp_put(e->t, "{\"device\": \"any\"}");
    else if (is(s, n, "reduction"))
        asp_put(e->t, "%s", reduction_of(e->info->attr));
    else if (is(s, n, "grouped"))
        asp_put(e->t, "%s", is_grouped(e->g, e->info) ? "true" : "false");
    else {
        ASP_CHECK(is(s, n, "[]"));
        asp_put(e->t, "[]");
    }
}

// The arguments by position, or those by keyword.
static void put_arguments(const emitting *e, const char *format, bool keyword)
{
    const char *comma = "";
    for (const char *s = format; *s;) {
        const size_t n = strcspn(s, " "), name = strcspn(s, "= ");
        if (*s != '-' && (name < n) == keyword) {
            asp_put(e->t, "%s", comma);
            if (keyword) asp_put(e->t, "\"%.*s\": ", (int)name, s);
            put_argument(e, keyword ? s + name + 1 : s, keyword ? n - name - 1 : n);
            comma = ", ";
        }
        s += n + (s[n] == ' ');
    }
}

static const emit_row *find_row(const asp_node_info *info, bool ours, asp_arena *a)
{
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++)
        if ((!ours || strncmp(rows[i].overload, "autosp.", 7) == 0) && fits(&rows[i], info, a))
            return &rows[i];
    return NULL;
}

asp_status aten_emit(asp_ctx *cx, asp_text *t, asp_graph *g, asp_node n, bool ours,
                     const char *name, const char *const *operand)
{
    const asp_node_info *info = asp_node_at(g, n);
    const emit_row *r = find_row(info, ours, t->arena);
    if (!r)
        return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                        "%s would have to run split over %lld ranks, which PyTorch cannot be told "
                        "yet; use 1 rank, or `autosp train` on the exported graph",
                        asp_node_str(g, n), (long long)g->ranks);
    emitting e = {.t = t, .g = g, .info = info, .operand = operand};
    asp_put(t, "\"name\": \"%s\", \"op\": \"%s\", \"args\": [", name, r->overload);
    put_arguments(&e, r->format, false);
    asp_put(t, "], \"kwargs\": {");
    put_arguments(&e, r->format, true);
    asp_put(t, "}");
    return ASP_OK;
}
