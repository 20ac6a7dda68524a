// The text form, reading.  Hostile input: every number is bounded before anything is allocated for
// it, and a message names file, line and column.  Neighbours: print.c (writes it), docs/ir.md (the
// grammar), tests/fuzz/graph_fuzz.c. SPDX-License-Identifier: Apache-2.0
#include "ir/ir_int.h"

#include <ctype.h>
#include <stdlib.h>

#define MAX_TEXT_BYTES ((size_t)256 << 20)

typedef struct parser {
    asp_ctx *cx;
    const char *file, *text, *s, *end;
    asp_graph *g;
    asp_map vals;            // "%name" or number text -> index into val_of
    ASP_VEC(asp_val) val_of; // in the order of vals
} parser;

static asp_status fail_at(const parser *p, const char *at, const char *what)
{
    int line = 1, column = 1;
    for (const char *s = p->text; s < at; s++) {
        column++;
        if (*s == '\n') {
            line++;
            column = 1;
        }
    }
    return asp_fail(p->cx, ASP_ERR_INPUT, "%s:%d:%d: %s", p->file, line, column, what);
}

static asp_status fail_printf(const parser *p, const char *at, const char *fmt, ...)
    ASP_PRINTF(3, 4);
static asp_status fail_printf(const parser *p, const char *at, const char *fmt, ...)
{
    char what[512];
    va_list args;
    va_start(args, fmt);
    asp_vformat(what, sizeof what, fmt, args);
    va_end(args);
    return fail_at(p, at, what);
}

static void skip_space(parser *p)
{
    while (p->s < p->end) {
        if (*p->s == '#')
            while (p->s < p->end && *p->s != '\n') p->s++;
        else if (isspace((unsigned char)*p->s))
            p->s++;
        else
            break;
    }
}

static bool take(parser *p, const char *token)
{
    skip_space(p);
    size_t n = strlen(token);
    if ((size_t)(p->end - p->s) < n || memcmp(p->s, token, n) != 0) return false;
    bool word = isalnum((unsigned char)token[n - 1]);
    if (word && p->s + n < p->end && (isalnum((unsigned char)p->s[n]) || p->s[n] == '_'))
        return false;
    p->s += n;
    return true;
}

static asp_status expect(parser *p, const char *token)
{
    if (take(p, token)) return ASP_OK;
    return fail_printf(p, p->s, "'%s' expected", token);
}

static bool is_name_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

// A run of name characters at the cursor; empty when there is none.
static size_t read_word(parser *p, const char **out_word)
{
    skip_space(p);
    *out_word = p->s;
    while (p->s < p->end && is_name_char(*p->s)) p->s++;
    return (size_t)(p->s - *out_word);
}

static asp_status parse_word(parser *p, const char *what, char *out, size_t out_bytes)
{
    const char *word;
    size_t n = read_word(p, &word);
    if (n == 0) return fail_printf(p, word, "%s expected", what);
    if (n >= out_bytes)
        return fail_printf(p, word, "%s is longer than %zu letters", what, out_bytes - 1);
    memcpy(out, word, n);
    out[n] = 0;
    return ASP_OK;
}

static asp_status parse_i64(parser *p, int64_t *out)
{
    skip_space(p);
    const char *at = p->s;
    bool negative = take(p, "-");
    int64_t n = 0;
    if (p->s >= p->end || !isdigit((unsigned char)*p->s))
        return fail_at(p, at, "a whole number expected");
    for (; p->s < p->end && isdigit((unsigned char)*p->s); p->s++)
        if (asp_mul_overflows(n, 10, &n) || asp_add_overflows(n, *p->s - '0', &n))
            return fail_at(p, at, "the number does not fit 63 bits");
    *out = negative ? -n : n;
    return ASP_OK;
}

static asp_status parse_f64(parser *p, double *out)
{
    skip_space(p);
    char buf[64];
    size_t n = 0;
    const char *at = p->s;
    for (; p->s < p->end && n + 1 < sizeof buf &&
           (is_name_char(*p->s) || *p->s == '-' || *p->s == '+');
         p->s++)
        buf[n++] = *p->s;
    buf[n] = 0;
    char *stop;
    *out = asp_strtod(buf, &stop);
    return n == 0 || *stop ? fail_at(p, at, "a number expected") : ASP_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "text" with the escapes that the printer writes.
static asp_status parse_string(parser *p, const char **out)
{
    ASP_TRY(expect(p, "\""));
    const char *at = p->s;
    asp_text t;
    asp_text_init(&t, &p->g->arena);
    asp_put(&t, "%s", "");
    while (p->s < p->end && *p->s != '"' && *p->s != '\n') {
        char c = *p->s++;
        if (c == '\\' && p->s < p->end) {
            c = *p->s++;
            if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (c == 'u') {
                if (p->end - p->s < 4 || hex_digit(p->s[2]) < 0 || hex_digit(p->s[3]) < 0)
                    return fail_at(p, p->s, "four hexadecimal digits expected after \\u");
                c = (char)(hex_digit(p->s[2]) * 16 + hex_digit(p->s[3]));
                p->s += 4;
            } else if (c != '"' && c != '\\')
                return fail_at(p, p->s - 1, "unknown escape in a string");
        }
        if (c == 0) return fail_at(p, p->s - 1, "a string cannot hold a zero byte");
        asp_put_bytes(&t, &c, 1);
    }
    if (p->s >= p->end || *p->s != '"')
        return fail_at(p, at, "the string does not end on its line");
    p->s++;
    *out = t.at;
    return ASP_OK;
}

static asp_status parse_size(parser *p, asp_size *out)
{
    const char *what;
    skip_space(p);
    if (asp_size_parse(p->g, &p->s, p->end, out, &what)) return ASP_OK;
    return fail_at(p, p->s, what);
}

static asp_status parse_dtype(parser *p, asp_dtype *out)
{
    const char *word;
    size_t n = read_word(p, &word);
    for (int i = 0; i < ASP_DTYPE_COUNT; i++) {
        if (strlen(asp_dtypes[i].name) != n || memcmp(asp_dtypes[i].name, word, n) != 0) continue;
        *out = (asp_dtype)i;
        return ASP_OK;
    }
    return fail_printf(p, word,
                       "'%.*s' is not a dtype (f32, f64, bf16, f16, i64, i32, u16, u8, bool)",
                       (int)asp_min((int64_t)n, 40), word);
}

// "[" item "," ... "]" with at most ASP_MAX_RANK items.
static asp_status parse_sizes(parser *p, asp_sizes *out)
{
    ASP_TRY(expect(p, "["));
    *out = (asp_sizes){0};
    if (take(p, "]")) return ASP_OK;
    do {
        if (out->n == ASP_MAX_RANK)
            return fail_printf(p, p->s, "more than %d dimensions", ASP_MAX_RANK);
        ASP_TRY(parse_size(p, &out->at[out->n]));
        out->n++;
    } while (take(p, ","));
    return expect(p, "]");
}

static asp_status parse_ints(parser *p, asp_ints *out)
{
    ASP_TRY(expect(p, "["));
    *out = (asp_ints){0};
    if (take(p, "]")) return ASP_OK;
    do {
        if (out->n == ASP_MAX_RANK)
            return fail_printf(p, p->s, "more than %d numbers", ASP_MAX_RANK);
        ASP_TRY(parse_i64(p, &out->at[out->n]));
        out->n++;
    } while (take(p, ","));
    return expect(p, "]");
}

static asp_status parse_type(parser *p, asp_type *out)
{
    asp_sizes dims;
    *out = (asp_type){0};
    ASP_TRY(parse_dtype(p, &out->dtype));
    ASP_TRY(parse_sizes(p, &dims));
    out->rank = dims.n;
    memcpy(out->dim, dims.at, dims.n * sizeof dims.at[0]);
    return ASP_OK;
}

static asp_status parse_field(parser *p, const asp_field *f, char *attr)
{
    void *x = attr + f->offset;
    switch (f->kind) {
    case ASP_KIND_i64: return parse_i64(p, x);
    case ASP_KIND_f64: return parse_f64(p, x);
    case ASP_KIND_bool:
        *(bool *)x = take(p, "true");
        return *(bool *)x ? ASP_OK : expect(p, "false");
    case ASP_KIND_str: return parse_string(p, x);
    case ASP_KIND_dtype: return parse_dtype(p, x);
    case ASP_KIND_size: return parse_size(p, x);
    case ASP_KIND_sizes: return parse_sizes(p, x);
    case ASP_KIND_ints: return parse_ints(p, x);
    }
    return ASP_OK;
}

// name "=" value "," ...
static asp_status parse_fields(parser *p, asp_op op, void *attr)
{
    const asp_op_info *info = &asp_ops[op];
    do {
        char name[40];
        skip_space(p);
        const char *at = p->s;
        ASP_TRY(parse_word(p, "an attribute's name", name, sizeof name));
        const asp_field *f = info->fields();
        while (f->name && strcmp(f->name, name) != 0) f++;
        if (!f->name) return fail_printf(p, at, "%s has no attribute '%s'", info->name, name);
        ASP_TRY(expect(p, "="));
        ASP_TRY(parse_field(p, f, attr));
    } while (take(p, ","));
    return ASP_OK;
}

static asp_status parse_attr(parser *p, asp_op op, void **out_attr)
{
    const asp_op_info *info = &asp_ops[op];
    *out_attr = asp_copy_bytes(&p->g->arena, info->attr_default, info->attr_bytes);
    if (!take(p, "{")) return ASP_OK;
    ASP_TRY(parse_fields(p, op, *out_attr));
    return expect(p, "}");
}

static asp_status parse_val_name(parser *p, char *out, size_t out_bytes)
{
    ASP_TRY(expect(p, "%"));
    return parse_word(p, "a value's name", out, out_bytes);
}

static asp_status parse_operand(parser *p, asp_val *out)
{
    char name[256];
    skip_space(p);
    const char *at = p->s;
    ASP_TRY(parse_val_name(p, name, sizeof name));
    uint32_t i = asp_map_find(&p->vals, name, strlen(name));
    if (i == UINT32_MAX) return fail_printf(p, at, "%%%s is not defined above", name);
    *out = p->val_of.at[i];
    return ASP_OK;
}

typedef struct results {
    uint32_t n;
    const char *name[ASP_MAX_OPERANDS]; // text of the name, on the graph's arena
    asp_type type[ASP_MAX_OPERANDS];
} results;

static asp_status parse_results(parser *p, results *r)
{
    r->n = 0;
    do {
        char name[256];
        skip_space(p);
        const char *at = p->s;
        if (r->n == ASP_MAX_OPERANDS)
            return fail_printf(p, at, "more than %d results", ASP_MAX_OPERANDS);
        ASP_TRY(parse_val_name(p, name, sizeof name));
        bool added;
        asp_map_add(&p->vals, name, strlen(name), &added);
        if (!added) return fail_printf(p, at, "%%%s is defined twice", name);
        ASP_PUSH(&p->g->arena, &p->val_of, (asp_val){0});
        r->name[r->n++] = asp_copy_str(&p->g->arena, name);
    } while (take(p, ","));
    ASP_TRY(expect(p, ":"));
    for (uint32_t i = 0; i < r->n; i++) {
        if (i) ASP_TRY(expect(p, ","));
        ASP_TRY(parse_type(p, &r->type[i]));
    }
    return ASP_OK;
}

static asp_status parse_op(parser *p, asp_op *out_op)
{
    const char *word;
    size_t n = read_word(p, &word);
    if (!asp_op_find(word, n, out_op))
        return fail_printf(p, word, "unknown op '%.*s'; `autosp docs ops` lists them",
                           (int)asp_min((int64_t)n, 60), word);
    return ASP_OK;
}

static asp_status parse_operands(parser *p, asp_op op, asp_val *in, uint32_t *out_n)
{
    const asp_op_info *info = &asp_ops[op];
    uint32_t n = 0;
    while (p->s < p->end && (*p->s == ' ' || *p->s == '\t'))
        p->s++; // a '%' on the next line is no operand
    const char *at = p->s;
    if (p->s < p->end && *p->s == '%') {
        do {
            if (n == ASP_MAX_OPERANDS)
                return fail_printf(p, p->s, "more than %d operands", ASP_MAX_OPERANDS);
            ASP_TRY(parse_operand(p, &in[n++]));
        } while (take(p, ","));
    }
    if (n < info->min_in || n > info->max_in)
        return fail_printf(p, at, "%s takes %u to %u operands, not %u", info->name, info->min_in,
                           info->max_in, n);
    *out_n = n;
    return ASP_OK;
}

static asp_status parse_number_of(parser *p, const char *what, uint32_t *out)
{
    char message[64];
    const char *at = p->s;
    int64_t number;
    ASP_TRY(parse_i64(p, &number));
    snprintf(message, sizeof message, "%s is a number of 32 bits", what);
    if (number < 0 || number > UINT32_MAX) return fail_at(p, at, message);
    *out = (uint32_t)number;
    return ASP_OK;
}

static asp_status parse_node(parser *p)
{
    results r;
    asp_op op;
    asp_val in[ASP_MAX_OPERANDS];
    uint32_t n_in;
    void *attr;
    uint32_t group = 0, tile = 0;
    const char *loc = "";
    uint32_t first = p->val_of.n;
    ASP_TRY(parse_results(p, &r));
    ASP_TRY(expect(p, "="));
    ASP_TRY(parse_op(p, &op));
    ASP_TRY(parse_operands(p, op, in, &n_in));
    ASP_TRY(parse_attr(p, op, &attr));
    if (take(p, "group")) ASP_TRY(parse_number_of(p, "a group", &group));
    if (take(p, "tile")) ASP_TRY(parse_number_of(p, "a tile", &tile));
    if (take(p, "@")) ASP_TRY(parse_string(p, &loc));
    asp_node n = asp_graph_insert(p->g, (asp_node){0}, op, attr, n_in, in, r.n, r.type, loc);
    asp_node_at(p->g, n)->group = group;
    asp_node_at(p->g, n)->tile = tile;
    for (uint32_t i = 0; i < r.n; i++) {
        asp_val v = asp_node_result(p->g, n, i);
        p->val_of.at[first + i] = v;
        if (!isdigit((unsigned char)r.name[i][0])) asp_graph_name(p->g, v, r.name[i]);
    }
    return ASP_OK;
}

static asp_status parse_return(parser *p)
{
    do {
        const char *name = "";
        asp_val v;
        skip_space(p);
        if (p->s < p->end && *p->s == '"') {
            ASP_TRY(parse_string(p, &name));
            ASP_TRY(expect(p, "="));
        }
        ASP_TRY(parse_operand(p, &v));
        asp_graph_add_output(p->g, v, name);
    } while (take(p, ","));
    return ASP_OK;
}

static asp_status parse_graph(parser *p)
{
    char name[128];
    ASP_TRY(expect(p, "graph"));
    ASP_TRY(parse_word(p, "the graph's name", name, sizeof name));
    p->g->name = asp_copy_str(&p->g->arena, name);
    if (take(p, "ranks")) {
        const char *at = p->s;
        ASP_TRY(parse_i64(p, &p->g->ranks));
        if (p->g->ranks < 1 || p->g->ranks > ASP_MAX_RANKS)
            return fail_at(p, at, "ranks is a number from 1 to 65536");
    }
    if (take(p, "tile")) {
        const char *at = p->s;
        ASP_TRY(parse_i64(p, &p->g->tile_rows));
        if (p->g->tile_rows < 1 || p->g->tile_rows > INT64_C(1) << 40)
            return fail_at(p, at, "tile is the number of rows of a chunk, at least 1");
    }
    ASP_TRY(expect(p, "{"));
    while (!take(p, "}")) {
        if (take(p, "return")) {
            ASP_TRY(parse_return(p));
            ASP_TRY(expect(p, "}"));
            break;
        }
        if (p->s >= p->end || *p->s != '%')
            return fail_at(p, p->s, "'%name : type = op ...', 'return' or '}' expected");
        ASP_TRY(parse_node(p));
    }
    skip_space(p);
    if (p->s < p->end) return fail_at(p, p->s, "nothing may follow the graph's '}'");
    return ASP_OK;
}

asp_status asp_graph_parse(asp_ctx *cx, const char *file, const char *text, size_t n,
                           asp_graph **out_graph)
{
    if (n > MAX_TEXT_BYTES)
        return asp_fail(cx, ASP_ERR_INPUT, "%s: %zu bytes of graph text; at most %zu are read",
                        file, n, MAX_TEXT_BYTES);
    parser p = {.cx = cx, .file = file, .text = text, .s = text, .end = text + n};
    p.g = asp_graph_create(cx, "graph");
    asp_map_init(&p.vals, &p.g->arena);
    asp_status s = parse_graph(&p);
    if (s == ASP_OK) s = asp_graph_verify(p.g);
    if (s < 0) {
        asp_graph_destroy(p.g);
        return s;
    }
    *out_graph = p.g;
    return ASP_OK;
}

// ---- pieces -------------------------------------------------------------------------------------

static parser piece(asp_graph *g, const char *what, const char *text, size_t n)
{
    return (parser){.cx = g->cx, .file = what, .text = text, .s = text, .end = text + n, .g = g};
}

static asp_status expect_end(parser *p)
{
    skip_space(p);
    return p->s == p->end ? ASP_OK : fail_at(p, p->s, "nothing more is expected here");
}

asp_status asp_type_parse(asp_graph *g, const char *what, const char *text, asp_type *out_type)
{
    asp_type type;
    parser p = piece(g, what, text, strlen(text));
    ASP_TRY(parse_type(&p, &type));
    ASP_TRY(expect_end(&p));
    *out_type = type;
    return ASP_OK;
}

asp_status asp_attr_parse(asp_graph *g, asp_op op, const char *text, const void **out_attr)
{
    const asp_op_info *info = &asp_ops[op];
    char what[80];
    snprintf(what, sizeof what, "attributes of %s", info->name);
    parser p = piece(g, what, text, strlen(text));
    void *attr = asp_copy_bytes(&g->arena, info->attr_default, info->attr_bytes);
    skip_space(&p);
    if (p.s < p.end) ASP_TRY(parse_fields(&p, op, attr));
    ASP_TRY(expect_end(&p));
    *out_attr = attr;
    return ASP_OK;
}

bool asp_is_name(const char *s, size_t max)
{
    size_t n = 0;
    while (n <= max && is_name_char(s[n])) n++;
    return n > 0 && n <= max && !s[n] && !isdigit((unsigned char)s[0]);
}
