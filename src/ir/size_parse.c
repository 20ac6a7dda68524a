// Size expressions, reading: sum = product (('+'|'-') product)*, product = atom (('*'|'/') atom)*,
// atom = number | symbol | ceil(sum, sum) | (sum).  Hostile input: depth and numbers are bounded.
// Neighbours: size.c (the arithmetic and the printing), parse.c (who calls).
// SPDX-License-Identifier: Apache-2.0
#include "ir/ir_int.h"

#include <ctype.h>

// ---------------

typedef struct reader {
    asp_graph *g;
    const char *s, *end;
    const char *what; // NULL while all is well
    int depth;
} reader;

static asp_size read_sum(reader *r);

static void skip_spaces(reader *r)
{
    while (r->s < r->end && (*r->s == ' ' || *r->s == '\t')) r->s++;
}

static bool take(reader *r, char c)
{
    skip_spaces(r);
    if (r->s >= r->end || *r->s != c) return false;
    r->s++;
    return true;
}

static asp_size refuse(reader *r, const char *what)
{
    if (!r->what) r->what = what;
    return (asp_size){0};
}

static asp_size read_number(reader *r)
{
    int64_t n = 0;
    for (; r->s < r->end && isdigit((unsigned char)*r->s); r->s++)
        if (asp_mul_overflows(n, 10, &n) || asp_add_overflows(n, *r->s - '0', &n) ||
            n > INT64_C(1) << 53)
            return refuse(r, "a number in a size is above 2^53");
    return asp_size_num(r->g, n);
}

static asp_size read_name(reader *r)
{
    char name[32];
    size_t n = 0;
    for (; r->s < r->end && (isalnum((unsigned char)*r->s) || *r->s == '_'); r->s++) {
        if (n + 1 >= sizeof name) return refuse(r, "a size symbol is longer than 31 letters");
        name[n++] = *r->s;
    }
    name[n] = 0;
    if (strcmp(name, "ceil") != 0) return asp_size_sym(r->g, name);
    if (!take(r, '(')) return refuse(r, "'(' expected after ceil");
    r->depth++;
    asp_size a = read_sum(r);
    if (!take(r, ',')) return refuse(r, "',' expected in ceil(a, b)");
    asp_size b = read_sum(r);
    r->depth--;
    if (!take(r, ')')) return refuse(r, "')' expected after ceil(a, b");
    return r->what ? (asp_size){0} : asp_size_ceil_div(r->g, a, b);
}

static asp_size read_atom(reader *r)
{
    skip_spaces(r);
    if (r->s >= r->end || r->what || r->depth > 16) return refuse(r, "a size expected");
    if (take(r, '(')) {
        r->depth++;
        asp_size s = read_sum(r);
        r->depth--;
        return take(r, ')') ? s : refuse(r, "')' expected in a size");
    }
    if (isdigit((unsigned char)*r->s)) return read_number(r);
    if (isalpha((unsigned char)*r->s) || *r->s == '_') return read_name(r);
    return refuse(r, "a size expected: numbers, symbols, + - * / ceil(a, b)");
}

// What is read stays small enough to be printed and read again.
static asp_size bounded(reader *r, asp_size s)
{
    return asp_size_fits_text(r->g, s) ? s : refuse(r, "the size expression is too large");
}

static asp_size read_product(reader *r)
{
    asp_size s = read_atom(r);
    while (!r->what) {
        bool multiply = take(r, '*');
        if (!multiply && !take(r, '/')) break;
        asp_size by = read_atom(r);
        if (r->what) break;
        if (multiply)
            s = asp_size_mul(r->g, s, by);
        else if (asp_size_div(r->g, s, by, &s) < 0)
            return refuse(r, "a size can be divided by one non-zero term only");
        s = bounded(r, s);
    }
    return s;
}

static asp_size read_sum(reader *r)
{
    bool negative = take(r, '-');
    asp_size s = read_product(r);
    if (negative && !r->what) s = asp_size_sub(r->g, asp_size_num(r->g, 0), s);
    while (!r->what) {
        bool plus = take(r, '+');
        if (!plus && !take(r, '-')) break;
        asp_size t = read_product(r);
        if (r->what) break;
        s = bounded(r, plus ? asp_size_add(r->g, s, t) : asp_size_sub(r->g, s, t));
    }
    return s;
}

bool asp_size_parse(asp_graph *g, const char **s, const char *end, asp_size *out_size,
                    const char **out_what)
{
    reader r = {.g = g, .s = *s, .end = end};
    asp_size size = read_sum(&r);
    *s = r.s;
    *out_what = r.what;
    if (r.what) return false;
    *out_size = size;
    return true;
}
