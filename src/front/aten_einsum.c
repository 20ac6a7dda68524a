// einsum: one or two operands, each letter a dimension.
//
//   "bshd,bthd->bhst"    b, h in both and the result: batch    d in both alone: contracted
//                        s, t: rows of the left, columns of the right
//   left (b h)(s)(d) times right (b h)(d)(t) = (b h)(s)(t), put in the order of the result
//
// A letter that stands in one operand alone and not in the result is summed first.  Letters twice
// in one operand (diagonals) and "..." are refused.  Neighbours: aten.def (the row), op/matmul.c
// (what it becomes). SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

#include <ctype.h>

#define B(c) (&(c)->m->b)
#define G(c) ((c)->m->g)

// A value whose dimensions have letters.
typedef struct lettered {
    asp_val val;
    char letter[ASP_MAX_RANK + 1];
} lettered;

static bool has(const char *letters, char c) { return c && strchr(letters, c) != NULL; }

// One comma-separated part of the equation, without spaces.
static const char *read_letters(aten_call *c, const char *s, char *out)
{
    size_t n = 0;
    out[0] = 0;
    for (; *s && *s != ',' && !(s[0] == '-' && s[1] == '>'); s++) {
        if (*s == ' ') continue;
        if (!isalpha((unsigned char)*s) || has(out, *s) || n == ASP_MAX_RANK) {
            aten_refuse(c, "the equation \"%.60s\": letters, each once in an operand, at most %d",
                        c->arg[0].text, ASP_MAX_RANK);
            break;
        }
        out[n++] = *s;
        out[n] = 0;
    }
    return s;
}

static asp_size size_of(aten_call *c, const lettered *x, char letter)
{
    const char *at = strchr(x->letter, letter);
    const asp_type *t = aten_type_of(c, x->val);
    return at && (uint32_t)(at - x->letter) < t->rank ? t->dim[at - x->letter] : (asp_size){0};
}

// Sums the letters that neither `keep` nor `also` names.
static lettered summed(aten_call *c, lettered x, const char *keep, const char *also)
{
    asp_sum_attr a = {.dims = {0}};
    lettered y = {.val = x.val};
    size_t n = 0;
    for (uint32_t d = 0; x.letter[d]; d++) {
        if (has(keep, x.letter[d]) || has(also, x.letter[d]))
            y.letter[n++] = x.letter[d];
        else
            a.dims.at[a.dims.n++] = d;
    }
    if (a.dims.n && aten_ok(c)) y.val = ASP_B1(B(c), sum, &a, x.val);
    return y;
}

// x with its dimensions in the order of letters, which are its own.
static lettered ordered(aten_call *c, lettered x, const char *letters)
{
    int64_t perm[ASP_MAX_RANK];
    uint32_t n = 0;
    bool same = strcmp(x.letter, letters) == 0;
    for (; letters[n]; n++) perm[n] = strchr(x.letter, letters[n]) - x.letter;
    lettered y = {.val = x.val};
    memcpy(y.letter, letters, n + 1);
    if (!same && aten_ok(c)) y.val = asp_build_permute(B(c), x.val, n, perm);
    return y;
}

// The letters of x that stand (or not) in each of two strings.
static void choose(const lettered *x, const char *a, bool in_a, const char *b, bool in_b, char *out)
{
    size_t n = 0;
    for (const char *s = x->letter; *s; s++)
        if (has(a, *s) == in_a && has(b, *s) == in_b) out[n++] = *s;
    out[n] = 0;
}

// The dimensions of letters as one.
static asp_size product_of(aten_call *c, const lettered *x, const char *letters)
{
    asp_size n = asp_size_num(G(c), 1);
    for (; *letters; letters++) n = asp_size_mul(G(c), n, size_of(c, x, *letters));
    return n;
}

// x as (batch..., first, second), the last two groups of letters merged into one dimension each.
static asp_val grouped(aten_call *c, lettered x, const char *batch, const char *first,
                       const char *second)
{
    char order[3 * ASP_MAX_RANK + 1];
    asp_type t = {.dtype = aten_type_of(c, x.val)->dtype};
    asp_format(order, sizeof order, "%s%s%s", batch, first, second);
    x = ordered(c, x, order);
    if (strlen(batch) + 2 > ASP_MAX_RANK) aten_refuse(c, "too many dimensions in both operands");
    if (!aten_ok(c)) return x.val;
    for (const char *s = batch; *s; s++) t.dim[t.rank++] = size_of(c, &x, *s);
    t.dim[t.rank++] = product_of(c, &x, first);
    t.dim[t.rank++] = product_of(c, &x, second);
    return asp_build_view(B(c), x.val, &t);
}

static lettered product(aten_call *c, lettered x, lettered y, const char *result)
{
    char batch[ASP_MAX_RANK + 1], inner[ASP_MAX_RANK + 1], rows[ASP_MAX_RANK + 1],
        columns[ASP_MAX_RANK + 1];
    choose(&x, y.letter, true, result, true, batch);
    choose(&x, y.letter, true, result, false, inner);
    choose(&x, y.letter, false, result, true, rows);
    choose(&y, x.letter, false, result, true, columns);
    asp_val in[] = {grouped(c, x, batch, rows, inner), grouped(c, y, batch, inner, columns)};
    lettered z = {{0}, ""};
    if (!aten_ok(c)) return z;
    z.val = asp_build(B(c), ASP_OP_matmul, NULL, 2, in);
    if (strlen(batch) + strlen(rows) + strlen(columns) > ASP_MAX_RANK)
        aten_refuse(c, "more than %d dimensions in the result", ASP_MAX_RANK);
    if (!aten_ok(c)) return z;
    asp_type t = {.dtype = aten_type_of(c, z.val)->dtype};
    asp_format(z.letter, sizeof z.letter, "%s%s%s", batch, rows, columns);
    for (const char *s = z.letter; *s; s++)
        t.dim[t.rank++] = size_of(c, has(x.letter, *s) ? &x : &y, *s);
    z.val = asp_build_view(B(c), z.val, &t);
    return z;
}

void aten_einsum(aten_call *c)
{
    lettered in[2] = {{{0}, ""}, {{0}, ""}};
    char result[ASP_MAX_RANK + 1] = "";
    const char *s = c->arg[0].text;
    uint32_t n = c->arg[1].n;
    if (n < 1 || n > 2) aten_refuse(c, "%u operands; one or two are supported", n);
    for (uint32_t i = 0; aten_ok(c) && i < n; i++) {
        s = read_letters(c, s, in[i].letter);
        if (c->arg[1].at[i].kind != ATEN_TENSOR) aten_refuse(c, "no tensor in the list");
        if (!aten_ok(c)) return;
        if (i + 1 < n && *s++ != ',') aten_refuse(c, "the equation names fewer operands");
        in[i].val = aten_cast(c, c->arg[1].at[i].val, c->type[0].dtype);
        if (strlen(in[i].letter) != aten_type_of(c, in[i].val)->rank)
            aten_refuse(c, "the equation names other dimensions than operand %u has", i);
    }
    if (aten_ok(c) && strncmp(s, "->", 2) != 0)
        aten_refuse(c, "the equation must name the result: \"...->...\" in letters");
    if (!aten_ok(c)) return;
    read_letters(c, s + 2, result);
    for (const char *r = result; *r; r++)
        if (!has(in[0].letter, *r) && !has(in[1].letter, *r))
            aten_refuse(c, "the result has a letter that no operand has");
    lettered x = summed(c, in[0], result, in[1].letter);
    if (n == 2) x = product(c, x, summed(c, in[1], result, in[0].letter), result);
    if (aten_ok(c)) aten_give(c, ordered(c, x, result).val);
}
