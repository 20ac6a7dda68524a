// The text form of predicates, reading and printing.  Hostile input: depth, numbers and counts are
// bounded.  Neighbours: mask.h (contract), mask.c (normal form), tests/fuzz/mask_fuzz.c.
// SPDX-License-Identifier: Apache-2.0
//
//   or   = and { "|" and }            and = one { "&" one }
//   one  = "!" one | "(" or ")" | "true" | "false" | sum rel sum      rel = <= < >= > == !=
//   sum  = ["-"] term { ("+" | "-") term }
//   term = NUMBER ["*" var ["/" NUMBER]] | var ["/" NUMBER]           division rounds down
//   var  = "q" | "k" | "T" NUMBER "[" ("q" | "k") "]"
#include "op/mask.h"

#include <ctype.h>

#define MAX_TEXT 4096
#define MAX_DEPTH 24
#define NONE UINT32_MAX

typedef struct reader {
    const char *text, *s;
    asp_mask *m;
    const char *wrong; // what, at s; the first fault stays
    int depth;
} reader;

static uint32_t fail(reader *r, const char *what)
{
    if (!r->wrong) r->wrong = what;
    return NONE;
}

static void skip_space(reader *r)
{
    while (*r->s == ' ') r->s++;
}

static bool take(reader *r, const char *token)
{
    skip_space(r);
    const size_t n = strlen(token);
    if (strncmp(r->s, token, n) != 0) return false;
    const bool word = isalpha((unsigned char)token[0]);
    if (word && isalnum((unsigned char)r->s[n])) return false;
    r->s += n;
    return true;
}

static bool read_number(reader *r, int64_t *out)
{
    skip_space(r);
    if (!isdigit((unsigned char)*r->s)) return false;
    int64_t n = 0;
    while (isdigit((unsigned char)*r->s)) {
        n = n * 10 + (*r->s++ - '0');
        if (n > ASP_MASK_MAX_NUMBER) return fail(r, "number too large"), false;
    }
    *out = n;
    return true;
}

// A variable: the look-up (-1: the position itself) and whose it is.
static bool read_var(reader *r, int *lookup, bool *of_key)
{
    *lookup = -1;
    if (take(r, "q")) return *of_key = false, true;
    if (take(r, "k")) return *of_key = true, true;
    if (*r->s != 'T') return false;
    int64_t i;
    r->s++;
    if (!read_number(r, &i)) return fail(r, "number of a look-up expected"), false;
    if (i >= ASP_MASK_MAX_LOOKUPS) return fail(r, "too many look-ups"), false;
    *lookup = (int)i;
    if (!take(r, "[")) return fail(r, "'[' expected"), false;
    *of_key = take(r, "k");
    if (!*of_key && !take(r, "q")) return fail(r, "q or k expected"), false;
    if (!take(r, "]")) return fail(r, "']' expected"), false;
    return true;
}

// Adds sign * a term to the atom's sides, all as if left of the relation.
static bool read_term(reader *r, int64_t sign, asp_mask_atom *a)
{
    int64_t coef = 1, div = 1;
    int lookup;
    bool of_key, number = read_number(r, &coef);
    if (r->wrong) return false;
    if (number && !take(r, "*")) return a->query.constant += sign * coef, true;
    if (!read_var(r, &lookup, &of_key))
        return fail(r, "q, k, a look-up or a number expected"), false;
    if (take(r, "/") && (!read_number(r, &div) || div < 1))
        return fail(r, "a positive number expected"), false;
    const int64_t c = sign * coef;
    if (!(of_key ? asp_mask_add_term(&a->key, lookup, -c, div)
                 : asp_mask_add_term(&a->query, lookup, c, div)))
        return fail(r, "too many terms"), false;
    return true;
}

static bool read_sum(reader *r, int64_t sign, asp_mask_atom *a)
{
    if (!read_term(r, take(r, "-") ? -sign : sign, a)) return false;
    for (int n = 0; n < 4 * ASP_MASK_MAX_TERMS; n++) {
        const bool plus = take(r, "+");
        if (!plus && !take(r, "-")) return true;
        if (!read_term(r, plus ? sign : -sign, a)) return false;
    }
    return fail(r, "too many terms"), false;
}

static void negate(asp_mask_side *s)
{
    s->constant = -s->constant;
    for (uint32_t i = 0; i < s->n; i++) s->term[i].coef = -s->term[i].coef;
}

static uint32_t read_relation(reader *r)
{
    static const struct {
        const char *text;
        asp_mask_rel rel;
        bool flip, strict;
    } rels[] = {{"<=", ASP_MASK_LE, false, false}, {"<", ASP_MASK_LE, false, true},
                {">=", ASP_MASK_LE, true, false},  {">", ASP_MASK_LE, true, true},
                {"==", ASP_MASK_EQ, false, false}, {"!=", ASP_MASK_NE, false, false}};
    asp_mask_atom a = {0};
    size_t i = 0;
    if (!read_sum(r, 1, &a)) return NONE;
    while (i < ASP_COUNT_OF(rels) && !take(r, rels[i].text)) i++;
    if (i == ASP_COUNT_OF(rels)) return fail(r, "a comparison expected");
    if (!read_sum(r, -1, &a)) return NONE;
    a.rel = rels[i].rel;
    if (rels[i].flip) negate(&a.query), negate(&a.key);
    if (rels[i].strict) a.query.constant++;
    const uint32_t node = asp_mask_put_atom(r->m, &a);
    return node == NONE ? fail(r, "too many relations") : node;
}

static uint32_t read_or(reader *r);

static uint32_t read_one(reader *r)
{
    if (r->depth == MAX_DEPTH) return fail(r, "nested too deep");
    r->depth++;
    uint32_t node;
    if (take(r, "!")) {
        node = read_one(r);
        if (node != NONE) node = asp_mask_put_not(r->m, node);
    } else if (take(r, "(")) {
        node = read_or(r);
        if (node != NONE && !take(r, ")")) return fail(r, "')' expected");
    } else if (take(r, "true"))
        node = asp_mask_put(r->m, ASP_MASK_TRUE, 0, 0);
    else if (take(r, "false"))
        node = asp_mask_put(r->m, ASP_MASK_FALSE, 0, 0);
    else
        node = read_relation(r);
    r->depth--;
    return node == NONE ? fail(r, "too many conditions") : node;
}

static uint32_t read_run(reader *r, asp_mask_kind kind)
{
    const bool and = kind == ASP_MASK_AND;
    uint32_t node = and? read_one(r) : read_run(r, ASP_MASK_AND);
    while (node != NONE && take(r, and? "&" : "|")) {
        const uint32_t right = and? read_one(r) : read_run(r, ASP_MASK_AND);
        node = asp_mask_put(r->m, kind, node, right);
        if (node == NONE) return fail(r, "too many conditions");
    }
    return node;
}

static uint32_t read_or(reader *r) { return read_run(r, ASP_MASK_OR); }

static bool read_mask(reader *r, asp_mask *m)
{
    *m = (asp_mask){0};
    r->m = m;
    if (strnlen(r->text, MAX_TEXT + 1) > MAX_TEXT) return fail(r, "text too long"), false;
    skip_space(r);
    const uint32_t node = *r->s ? read_or(r) : asp_mask_put(m, ASP_MASK_TRUE, 0, 0);
    skip_space(r);
    if (node != NONE && *r->s) fail(r, "'&', '|' or the end expected");
    if (r->wrong || node == NONE) return false;
    asp_mask_finish(m, node);
    return true;
}

bool asp_mask_read(const char *text, asp_mask *out_mask)
{
    reader r = {.text = text, .s = text};
    return read_mask(&r, out_mask);
}

asp_status asp_mask_parse(asp_ctx *cx, const char *text, asp_mask *out_mask)
{
    reader r = {.text = text, .s = text};
    asp_mask m;
    if (!read_mask(&r, &m))
        return asp_fail(cx, ASP_ERR_INPUT, "mask \"%.80s\", character %d: %s", text,
                        (int)(r.s - text) + 1, r.wrong);
    *out_mask = m;
    return ASP_OK;
}

// ---- printing ----------------------------------------------------------------------------------

static void print_term(asp_text *t, const asp_mask_term *x, int64_t coef, char of, bool first)
{
    const int64_t size = coef < 0 ? -coef : coef;
    asp_put(t, "%s", first ? (coef < 0 ? "-" : "") : coef < 0 ? " - " : " + ");
    if (size != 1) asp_put(t, "%lld * ", (long long)size);
    if (x->lookup < 0)
        asp_put(t, "%c", of);
    else
        asp_put(t, "T%d[%c]", x->lookup, of);
    if (x->div != 1) asp_put(t, "/%lld", (long long)x->div);
}

static bool print_terms(asp_text *t, const asp_mask_side *s, int64_t sign, char of, bool first)
{
    for (uint32_t i = 0; i < s->n; i++) {
        print_term(t, &s->term[i], sign * s->term[i].coef, of, first);
        first = false;
    }
    return first;
}

// -q <= -k reads as k <= q; with a constant the terms stand left of it.
static void print_atom(asp_text *t, const asp_mask_atom *a)
{
    static const char *const names[] = {"<=", "==", "!="};
    const int64_t c = a->key.constant;
    const bool flip = a->rel == ASP_MASK_LE && c == 0 && a->query.n && a->query.term[0].coef < 0;
    if (c == 0 && a->query.n && a->key.n) {
        if (flip) {
            print_terms(t, &a->key, -1, 'k', true);
            asp_put(t, " <= ");
            print_terms(t, &a->query, -1, 'q', true);
            return;
        }
        print_terms(t, &a->query, 1, 'q', true);
        asp_put(t, " %s ", names[a->rel]);
        print_terms(t, &a->key, 1, 'k', true);
        return;
    }
    if (!a->query.n) { // 0 <= key side
        print_terms(t, &a->key, 1, 'k', true);
        asp_put(t, " %s %lld", a->rel == ASP_MASK_LE ? ">=" : names[a->rel], -(long long)c);
        return;
    }
    bool first = print_terms(t, &a->query, 1, 'q', true);
    first = print_terms(t, &a->key, -1, 'k', first);
    ASP_CHECK(!first);
    asp_put(t, " %s %lld", names[a->rel], (long long)c);
}

static void print_node(asp_text *t, const asp_mask *m, uint32_t i, bool inside_and)
{
    const asp_mask_node *n = &m->node[i];
    switch (n->kind) {
    case ASP_MASK_TRUE: asp_put(t, "true"); return;
    case ASP_MASK_FALSE: asp_put(t, "false"); return;
    case ASP_MASK_ATOM: print_atom(t, &m->atom[n->a]); return;
    case ASP_MASK_AND:
        print_node(t, m, n->a, true);
        asp_put(t, " & ");
        print_node(t, m, n->b, true);
        return;
    case ASP_MASK_OR: break;
    }
    if (inside_and) asp_put(t, "(");
    print_node(t, m, n->a, false);
    asp_put(t, " | ");
    print_node(t, m, n->b, false);
    if (inside_and) asp_put(t, ")");
}

void asp_mask_print(asp_text *t, const asp_mask *m) { print_node(t, m, m->n_nodes - 1, false); }
