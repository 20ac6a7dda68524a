// Arguments of a node: the JSON forms of the file, matched with the parameters of the op's row.
//
//   "x:t dim:i=-1 keepdim:b=false *dtype:d?"      `*`: by keyword alone    `?`: null is allowed
//   t tensor      n number, also made of sizes      i constant whole number     z size     b s d
//   ts, is, zs lists of them      tn tensor or number      x read by nobody (device, layout, ...)
//
// Hostile input: lists are flat, sizes are read to a bounded depth, every symbol must be declared.
// Neighbours: aten_int.h (contract), aten.c (who calls), aten.def (the rows).
// SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

#include <ctype.h>
#include <stdlib.h>

// ---- dtypes and sizes --------------------------------------------------------------------------

// Floating-point tensors of any width compute in the program's dtype, whole numbers in i64.
asp_status aten_dtype(aten_import *m, const char *name, asp_dtype *out)
{
    for (int i = 0; i < ASP_DTYPE_COUNT; i++) {
        if (strcmp(asp_dtypes[i].name, name) != 0) continue;
        *out = asp_dtypes[i].is_float ? m->dtype : i == ASP_BOOL ? ASP_BOOL : ASP_I64;
        return ASP_OK;
    }
    return asp_fail(m->cx, ASP_ERR_INPUT,
                    "\"%s\" is not a dtype (f64, f32, bf16, f16, i64, i32, u8, bool)", name);
}

typedef struct size_reader {
    aten_import *m;
    const char *s;
    const char *what; // NULL while all is well
    int depth;
} size_reader;

static asp_size read_sum(size_reader *r);

static asp_size size_error(size_reader *r, const char *what)
{
    if (!r->what) r->what = what;
    return (asp_size){0};
}

static asp_size read_whole(size_reader *r)
{
    int64_t n = 0;
    for (; isdigit((unsigned char)*r->s); r->s++)
        if (asp_mul_overflows(n, 10, &n) || asp_add_overflows(n, *r->s - '0', &n) ||
            n > INT64_C(1) << 53)
            return size_error(r, "a number is above 2^53");
    if (r->s[0] == '.') {
        r->s++;
        while (*r->s == '0') r->s++;
        if (isdigit((unsigned char)*r->s) || *r->s == 'e' || *r->s == 'E')
            return size_error(r, "a number is not whole");
    }
    return asp_size_num(r->m->g, n);
}

static asp_size read_symbol(size_reader *r)
{
    const char *start = r->s;
    while (isalnum((unsigned char)*r->s) || *r->s == '_') r->s++;
    size_t n = (size_t)(r->s - start);
    if (n == 5 && memcmp(start, "float", 5) == 0 && *r->s == '(') {
        r->s++;
        asp_size inside = read_sum(r);
        if (*r->s != ')') return size_error(r, "')' is missing");
        r->s++;
        return inside;
    }
    for (int i = 0; i < r->m->g->examples.n; i++) {
        const char *name = r->m->g->examples.at[i].symbol;
        if (strlen(name) == n && memcmp(name, start, n) == 0) return asp_size_sym(r->m->g, name);
    }
    return size_error(r, "names a symbol that is not in \"symbols\"");
}

static asp_size read_atom(size_reader *r)
{
    if (r->what || r->depth > 16) return size_error(r, "is nested too deeply");
    if (isdigit((unsigned char)*r->s)) return read_whole(r);
    if (isalpha((unsigned char)*r->s) || *r->s == '_') {
        r->depth++;
        asp_size s = read_symbol(r);
        r->depth--;
        return s;
    }
    if (*r->s != '(') return size_error(r, "holds what is neither number, symbol nor + - * // **");
    r->s++;
    r->depth++;
    asp_size s = read_sum(r);
    r->depth--;
    if (*r->s != ')') return size_error(r, "')' is missing");
    r->s++;
    return s;
}

static asp_size read_power(size_reader *r)
{
    asp_size s = read_atom(r);
    if (r->what || r->s[0] != '*' || r->s[1] != '*') return s;
    r->s += 2;
    if (*r->s < '1' || *r->s > '6' || isdigit((unsigned char)r->s[1]))
        return size_error(r, "has a power that is not 1 to 6");
    asp_size product = s;
    for (int i = *r->s++ - '0'; i > 1; i--) product = asp_size_mul(r->m->g, product, s);
    return product;
}

// a // b for positive sizes: the quotient where b divides a, else floor(a/b) = ceil((a - b + 1)/b).
static asp_size floor_div(size_reader *r, asp_size a, asp_size b)
{
    asp_graph *g = r->m->g;
    asp_size q;
    if (asp_size_divides(g, b, a, &q)) return q;
    if (b.i == 0) return size_error(r, "divides by 0");
    asp_size rest = asp_size_add(g, asp_size_sub(g, a, b), asp_size_num(g, 1));
    return asp_size_ceil_div(g, rest, b);
}

static asp_size read_product(size_reader *r)
{
    asp_size s = read_power(r);
    while (!r->what) {
        bool divide = r->s[0] == '/';
        if (divide && r->s[1] != '/') return size_error(r, "divides by / and not by //");
        if (!divide && r->s[0] != '*') break;
        r->s += divide ? 2 : 1;
        asp_size by = read_power(r);
        if (r->what) break;
        s = divide ? floor_div(r, s, by) : asp_size_mul(r->m->g, s, by);
    }
    return s;
}

static asp_size read_sum(size_reader *r)
{
    bool negative = *r->s == '-';
    if (negative) r->s++;
    asp_size s = read_product(r);
    if (negative) s = asp_size_sub(r->m->g, (asp_size){0}, s);
    while (!r->what && (*r->s == '+' || *r->s == '-')) {
        bool plus = *r->s++ == '+';
        asp_size t = read_product(r);
        s = plus ? asp_size_add(r->m->g, s, t) : asp_size_sub(r->m->g, s, t);
    }
    return s;
}

static asp_status read_size_text(aten_import *m, const char *text, asp_size *out)
{
    size_reader r = {.m = m, .s = text};
    *out = read_sum(&r);
    if (!r.what && *r.s) r.what = "goes on behind a whole expression";
    if (!r.what && asp_size_mentions(m->g, *out, "overflow")) r.what = "is too large";
    if (!r.what) return ASP_OK;
    return asp_fail(m->cx, ASP_ERR_INPUT, "the size \"%.80s\" %s", text, r.what);
}

asp_status aten_size(aten_import *m, const json_t *v, asp_size *out)
{
    if (json_is_string(v)) return read_size_text(m, json_string_value(v), out);
    if (json_is_object(v) && json_is_string(json_object_get(v, "sym")))
        return read_size_text(m, json_string_value(json_object_get(v, "sym")), out);
    if (!json_is_integer(v))
        return asp_fail(m->cx, ASP_ERR_INPUT,
                        "a size is a whole number or an expression over the symbols");
    *out = asp_size_num(m->g, json_integer_value(v));
    return ASP_OK;
}

asp_status aten_type(aten_import *m, const json_t *v, asp_type *out)
{
    const char *dtype;
    const json_t *shape = json_object_get(v, "shape");
    *out = (asp_type){0};
    if (!json_is_object(v) || !json_is_array(shape))
        return asp_fail(m->cx, ASP_ERR_INPUT, "a type is {\"dtype\": ..., \"shape\": [...]}");
    ASP_TRY(asp_json_str(m->cx, m->file, v, "dtype", NULL, &dtype));
    ASP_TRY(aten_dtype(m, dtype, &out->dtype));
    if (json_array_size(shape) > ASP_MAX_RANK)
        return asp_fail(m->cx, ASP_ERR_UNSUPPORTED, "%zu dimensions; at most %d are supported",
                        json_array_size(shape), ASP_MAX_RANK);
    for (; out->rank < json_array_size(shape); out->rank++) {
        int64_t n;
        ASP_TRY(aten_size(m, json_array_get(shape, out->rank), &out->dim[out->rank]));
        if (!asp_size_fits_text(m->g, out->dim[out->rank]))
            return asp_fail(m->cx, ASP_ERR_INPUT, "dimension %u is above 2^53", out->rank);
        if (asp_size_is_num(m->g, out->dim[out->rank], &n) && n < 1)
            return asp_fail(m->cx, ASP_ERR_UNSUPPORTED,
                            "dimension %u has %lld elements; empty tensors are not supported",
                            out->rank, (long long)n);
    }
    return ASP_OK;
}

// ---- arguments ---------------------------------------------------------------------------------

static asp_status decode_ref(aten_call *c, const char *name, aten_arg *out)
{
    aten_import *m = c->m;
    uint32_t i = asp_map_find(&m->names, name, strlen(name));
    if (i == UINT32_MAX)
        return asp_fail(m->cx, ASP_ERR_INPUT, "\"%.80s\" is not defined above", name);
    const aten_value *v = &m->values.at[i];
    const aten_memory *memory = &m->memories.at[v->memory];
    if (v->version != memory->version)
        return asp_fail(m->cx, ASP_ERR_UNSUPPORTED,
                        "reads %.80s, whose memory %s changed in place; write it without the "
                        "in-place op (x = x + y for x += y)",
                        name, memory->changed_by);
    if (v->list)
        return asp_fail(m->cx, ASP_ERR_INPUT, "reads the list %.80s whole; getitem picks from it",
                        name);
    *out = (aten_arg){.kind = ATEN_TENSOR, .val = v->at[0], .memory = v->memory};
    aten_source_read(m, name, v->at[0]);
    return ASP_OK;
}

static aten_arg number(aten_import *m, asp_size size)
{
    int64_t n = 0;
    aten_arg a = {.kind = ATEN_NUMBER, .size = size, .is_const = asp_size_is_num(m->g, size, &n)};
    a.num = (double)n;
    return a;
}

static aten_arg floating(double value)
{
    return (aten_arg){.kind = ATEN_NUMBER, .is_float = true, .is_const = true, .num = value};
}

static bool spelled_float(const char *s, double *out)
{
    char *end;
    if (!*s || strlen(s) > 40) return false;
    *out = asp_strtod(s, &end);
    return *end == 0;
}

static asp_status decode_object(aten_call *c, const json_t *v, aten_arg *out)
{
    aten_import *m = c->m;
    const char *key = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)v));
    const char *text = key ? json_string_value(json_object_get(v, key)) : NULL;
    if (!text || json_object_size(v) != 1)
        return asp_fail(m->cx, ASP_ERR_INPUT,
                        "an argument is a number, true, false, null, a string, a list or one of "
                        "ref, sym, symf, float, dtype, device, layout");
    asp_size size;
    double value;
    if (strcmp(key, "ref") == 0) return decode_ref(c, text, out);
    if (strcmp(key, "sym") == 0 || strcmp(key, "symf") == 0) {
        ASP_TRY(read_size_text(m, text, &size));
        *out = number(m, size);
        out->is_float = key[3] == 'f';
        return ASP_OK;
    }
    if (strcmp(key, "float") == 0 && spelled_float(text, &value)) {
        *out = floating(value);
        return ASP_OK;
    }
    if (strcmp(key, "dtype") == 0) {
        *out = (aten_arg){.kind = ATEN_DTYPE};
        return aten_dtype(m, text, &out->dtype);
    }
    if (strcmp(key, "device") != 0 && strcmp(key, "layout") != 0)
        return asp_fail(m->cx, ASP_ERR_INPUT, "{\"%.40s\": \"%.40s\"} is no argument", key, text);
    *out = (aten_arg){.kind = ATEN_IGNORED};
    return ASP_OK;
}

static asp_status decode_value(aten_call *c, const json_t *v, bool in_list, aten_arg *out)
{
    *out = (aten_arg){0};
    switch (json_typeof(v)) {
    case JSON_OBJECT: return decode_object(c, v, out);
    case JSON_ARRAY: break;
    case JSON_STRING:
        out->kind = ATEN_STRING;
        out->text = json_string_value(v);
        return ASP_OK;
    case JSON_INTEGER: *out = number(c->m, asp_size_num(c->m->g, json_integer_value(v))); break;
    case JSON_REAL: *out = floating(json_real_value(v)); break;
    case JSON_TRUE:
    case JSON_FALSE: *out = (aten_arg){.kind = ATEN_BOOL, .flag = json_is_true(v)}; break;
    case JSON_NULL: break;
    }
    if (!json_is_array(v)) return ASP_OK;
    if (in_list) return asp_fail(c->m->cx, ASP_ERR_UNSUPPORTED, "a list of lists");
    size_t n = json_array_size(v);
    *out = (aten_arg){.kind = ATEN_LIST, .n = (uint32_t)n};
    out->at = ASP_NEW_ARRAY(&c->m->arena, aten_arg, n ? n : 1);
    for (size_t i = 0; i < n; i++)
        ASP_TRY(decode_value(c, json_array_get(v, i), true, &out->at[i]));
    return ASP_OK;
}

// Of an op that is not in the table: what it reads counts, the rest is not looked at.
asp_status aten_any_argument(aten_call *c, const json_t *v, aten_arg *out)
{
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            ASP_TRY(aten_any_argument(c, json_array_get(v, i), out));
        return ASP_OK;
    }
    const char *name = json_string_value(json_object_get(v, "ref"));
    return name ? decode_ref(c, name, out) : ASP_OK;
}

// ---- parameters --------------------------------------------------------------------------------

typedef struct param {
    char name[32], kind[4], standard[16];
    bool keyword, null, has_standard;
} param;

// The next of a row's parameters; false at the end.
static bool next_param(const char **s, param *out)
{
    while (**s == ' ') (*s)++;
    if (!**s) return false;
    *out = (param){.keyword = **s == '*'};
    *s += out->keyword;
    size_t name = strcspn(*s, ":"), end = strcspn(*s, " ");
    ASP_CHECK(name < end && name < sizeof out->name);
    memcpy(out->name, *s, name);
    const char *kind = *s + name + 1, *stop = *s + end;
    size_t n = strspn(kind, "abcdefghijklmnopqrstuvwxyz");
    ASP_CHECK(n >= 1 && n < sizeof out->kind);
    memcpy(out->kind, kind, n);
    kind += n;
    out->null = *kind == '?';
    kind += out->null;
    out->has_standard = kind < stop && *kind == '=';
    if (out->has_standard) {
        ASP_CHECK((size_t)(stop - kind) <= sizeof out->standard);
        memcpy(out->standard, kind + 1, (size_t)(stop - kind - 1));
    } else
        ASP_CHECK(kind == stop);
    *s = stop;
    return true;
}

const char *aten_param_name(const aten_row *row, uint32_t index, char buf[32])
{
    const char *s = row->params;
    param p;
    for (uint32_t i = 0; next_param(&s, &p); i++)
        if (i == index) return memcpy(buf, p.name, sizeof p.name);
    return NULL;
}

static bool item_fits(const aten_arg *a, char kind)
{
    switch (kind) {
    case 't': return a->kind == ATEN_TENSOR;
    case 'n': return a->kind == ATEN_NUMBER;
    case 'i': return a->kind == ATEN_NUMBER && !a->is_float && a->is_const;
    case 'z': return a->kind == ATEN_NUMBER && !a->is_float;
    case 'b': return a->kind == ATEN_BOOL;
    case 's': return a->kind == ATEN_STRING;
    case 'd': return a->kind == ATEN_DTYPE;
    default: return a->kind != ATEN_TENSOR; // x
    }
}

static bool fits(const param *p, const aten_arg *a)
{
    if (a->kind == ATEN_NONE) return p->null || p->kind[0] == 'x';
    if (p->kind[1] == 's') {
        // A list of tensors may leave some out: index(x, [None, i]).
        for (uint32_t i = 0; a->kind == ATEN_LIST && i < a->n; i++)
            if (!item_fits(&a->at[i], p->kind[0]) &&
                !(p->kind[0] == 't' && a->at[i].kind == ATEN_NONE))
                return false;
        return a->kind == ATEN_LIST;
    }
    return item_fits(a, p->kind[0]) || (p->kind[1] && item_fits(a, p->kind[1]));
}

static const char *kind_name(const param *p)
{
    static const struct {
        const char *kind, *name;
    } names[] = {{"t", "a tensor"},
                 {"tn", "a tensor or a number"},
                 {"ts", "a list of tensors"},
                 {"n", "a number"},
                 {"i", "a constant whole number"},
                 {"is", "a list of constant whole numbers"},
                 {"z", "a size"},
                 {"zs", "a list of sizes"},
                 {"b", "true or false"},
                 {"s", "a string"},
                 {"d", "a dtype"}};
    for (size_t i = 0; i < ASP_COUNT_OF(names); i++)
        if (strcmp(names[i].kind, p->kind) == 0) return names[i].name;
    return "no tensor";
}

static void standard_value(aten_call *c, const param *p, aten_arg *out)
{
    if (strcmp(p->standard, "true") == 0 || strcmp(p->standard, "false") == 0)
        *out = (aten_arg){.kind = ATEN_BOOL, .flag = p->standard[0] == 't'};
    else if (p->kind[0] == 's')
        *out = (aten_arg){.kind = ATEN_STRING, .text = asp_copy_str(&c->m->arena, p->standard)};
    else if (strchr(p->standard, '.') || strchr(p->standard, 'e'))
        *out = floating(asp_strtod(p->standard, NULL));
    else
        *out = number(c->m, asp_size_num(c->m->g, strtoll(p->standard, NULL, 10)));
}

#define MAX_NUMBER (INT64_C(1) << 53)

// Whole numbers stay below what graph text can hold; "to the end" is a slice's alone.
static bool too_large(const aten_import *m, const param *p, const aten_arg *a)
{
    int64_t n;
    for (uint32_t i = 0; a->kind == ATEN_LIST && i < a->n; i++)
        if (too_large(m, p, &a->at[i])) return true;
    if (a->kind != ATEN_NUMBER || !asp_size_is_num(m->g, a->size, &n)) return false;
    if (n == INT64_MAX && strcmp(p->kind, "z") == 0 && p->null) return false;
    return n > MAX_NUMBER || n < -MAX_NUMBER;
}

static asp_status take_param(aten_call *c, const param *p, const json_t *v, aten_arg *out)
{
    if (!v && p->has_standard) {
        standard_value(c, p, out);
        return ASP_OK;
    }
    if (!v && !p->null && p->kind[0] != 'x')
        return asp_fail(c->m->cx, ASP_ERR_INPUT, "the argument %s is missing", p->name);
    if (!v) return ASP_OK;
    ASP_TRY_NOTE(c->m->cx, decode_value(c, v, false, out), "argument %s", p->name);
    if (too_large(c->m, p, out))
        return asp_fail(c->m->cx, ASP_ERR_INPUT, "the argument %s is above 2^53", p->name);
    if (fits(p, out)) return ASP_OK;
    return asp_fail(c->m->cx, ASP_ERR_UNSUPPORTED, "the argument %s must be %s", p->name,
                    kind_name(p));
}

static asp_status refuse_unknown_keywords(aten_call *c, const json_t *kwargs)
{
    for (void *i = json_object_iter((json_t *)(uintptr_t)kwargs); i;
         i = json_object_iter_next((json_t *)(uintptr_t)kwargs, i)) {
        const char *s = c->row->params;
        param p;
        bool known = false;
        while (!known && next_param(&s, &p)) known = strcmp(p.name, json_object_iter_key(i)) == 0;
        if (!known)
            return asp_fail(c->m->cx, ASP_ERR_UNSUPPORTED, "the argument %.40s is not supported",
                            json_object_iter_key(i));
    }
    return ASP_OK;
}

asp_status aten_decode(aten_call *c, const json_t *args, const json_t *kwargs)
{
    const char *s = c->row->params;
    param p;
    size_t position = 0, n_args = json_array_size(args);
    for (uint32_t i = 0; next_param(&s, &p); i++) {
        ASP_CHECK(i < ATEN_MAX_ARGS);
        const json_t *v = json_object_get(kwargs, p.name);
        if (!p.keyword && position < n_args) {
            if (v) return asp_fail(c->m->cx, ASP_ERR_INPUT, "%s is given twice", p.name);
            v = json_array_get(args, position++);
        }
        ASP_TRY(take_param(c, &p, v, &c->arg[i]));
    }
    if (position < n_args)
        return asp_fail(c->m->cx, ASP_ERR_UNSUPPORTED, "%zu arguments; %zu are supported", n_args,
                        position);
    return refuse_unknown_keywords(c, kwargs);
}
