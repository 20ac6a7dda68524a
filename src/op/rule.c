// Reads rule strings of op.def into letters, and finds each op's rule.  Neighbours: rule.h
// (contract), ir/op.def (rows), the family files (functions).
//
//   "b(gr)QD,bgKD,bgKE->b(gr)QE,b(gr)Q"     one text an operand, then one a result; (gr) is one dim
//   "...I,oI,o->...o"                       ... are the dims left over, aligned from the right
//   "...+o,...+i->oi"                       + : summed over ranks where split
//
// A size-1 dim whose letter is larger elsewhere broadcasts and has no letter.  Operands that the op
// leaves out are left out here.  SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

#include <ctype.h>

uint8_t asp_rule_letter(asp_rule_builder *b, asp_letter_kind kind, asp_size size)
{
    ASP_CHECK(b->rule->n_letters < ASP_MAX_LETTERS);
    b->rule->letter[b->rule->n_letters] = (asp_letter){.size = size, .kind = (uint8_t)kind};
    return (uint8_t)b->rule->n_letters++;
}

void asp_rule_put(asp_rule_builder *b, asp_rule_dim *dim, uint8_t letter)
{
    ASP_CHECK(dim->n < ASP_MAX_DIM_LETTERS && letter < b->rule->n_letters);
    dim->at[dim->n++] = letter;
}

// ---- strings -----------------------------------------------------------------------------------

// One dim of an operand's text: one letter, or several in brackets; ELLIPSIS + i is the i-th dim
// from the right of "...".
#define ELLIPSIS 0x80
typedef struct item {
    uint8_t key[ASP_MAX_DIM_LETTERS];
    bool sum[ASP_MAX_DIM_LETTERS];
    uint32_t n;
} item;

typedef struct reader {
    asp_rule_builder *b;
    const char *s;
    uint8_t letter_of[256]; // key -> letter + 1
} reader;

static uint8_t letter_for(reader *r, uint8_t key, bool sum)
{
    asp_letter_kind kind = sum                              ? ASP_LETTER_SUM
                           : key < ELLIPSIS && isupper(key) ? ASP_LETTER_WHOLE
                                                            : ASP_LETTER_SPLIT;
    if (!r->letter_of[key]) {
        uint8_t c = asp_rule_letter(r->b, kind, (asp_size){0});
        r->b->rule->letter[c].name = key < ELLIPSIS ? (char)key : 0;
        r->letter_of[key] = (uint8_t)(c + 1);
    }
    uint8_t c = (uint8_t)(r->letter_of[key] - 1);
    if (sum) r->b->rule->letter[c].kind = ASP_LETTER_SUM;
    return c;
}

static bool take(reader *r, char c)
{
    if (*r->s != c) return false;
    r->s++;
    return true;
}

static void read_letter(reader *r, item *it)
{
    it->key[it->n] = (uint8_t)*r->s++;
    it->sum[it->n++] = take(r, '+');
}

// Reads the text of one operand of `rank` dims, up to ',' or "->" or the end.
static void read_operand(reader *r, uint32_t rank, asp_rule_dim *dims)
{
    item items[ASP_MAX_RANK + 1] = {0};
    uint32_t n = 0, ellipsis = UINT32_MAX;
    bool ellipsis_sum = false;
    while (*r->s && *r->s != ',' && *r->s != '-') {
        if (*r->s == '.') {
            ellipsis = n;
            r->s += 3;
            ellipsis_sum = take(r, '+');
        } else if (take(r, '(')) {
            while (!take(r, ')')) read_letter(r, &items[n]);
            n++;
        } else
            read_letter(r, &items[n++]);
        ASP_CHECK(n <= ASP_MAX_RANK);
    }
    if (ellipsis == UINT32_MAX ? n != rank : n > rank) {
        r->b->fits = false;
        return;
    }
    for (uint32_t d = 0, i = 0, left = rank - n; d < rank; d++) {
        if (i == ellipsis && left > 0) {
            left--;
            asp_rule_put(r->b, &dims[d], letter_for(r, (uint8_t)(ELLIPSIS + left), ellipsis_sum));
            continue;
        }
        for (uint32_t k = 0; k < items[i].n; k++)
            asp_rule_put(r->b, &dims[d], letter_for(r, items[i].key[k], items[i].sum[k]));
        i++;
    }
}

static bool is_one(asp_graph *g, asp_size s)
{
    int64_t n;
    return asp_size_is_num(g, s, &n) && n == 1;
}

// A letter is as large as the largest dim that has it alone.
static void size_single_letters(asp_rule_builder *b, const asp_type *t, const asp_rule_dim *dims)
{
    for (uint32_t d = 0; d < t->rank; d++) {
        if (dims[d].n != 1) continue;
        asp_letter *c = &b->rule->letter[dims[d].at[0]];
        if (c->size.i == 0 || is_one(b->g, c->size)) c->size = t->dim[d];
    }
}

// Of (gr) one letter may be known from nowhere else: it is what remains of the dim.
static void size_composites(asp_rule_builder *b, const asp_type *t, const asp_rule_dim *dims)
{
    for (uint32_t d = 0; d < t->rank; d++) {
        if (dims[d].n < 2) continue;
        asp_letter *unknown = NULL;
        asp_size rest = t->dim[d];
        for (uint32_t i = 0; i < dims[d].n; i++) {
            asp_letter *c = &b->rule->letter[dims[d].at[i]];
            if (c->size.i == 0 && !unknown)
                unknown = c;
            else if (!asp_size_divides(b->g, c->size, rest, &rest))
                b->fits = false;
        }
        if (unknown)
            unknown->size = rest;
        else if (!is_one(b->g, rest))
            b->fits = false;
    }
}

// Drops the letters of dims that broadcast; what is left must have its letter's size.
static void drop_broadcasts(asp_rule_builder *b, const asp_type *t, asp_rule_dim *dims)
{
    for (uint32_t d = 0; d < t->rank; d++) {
        if (dims[d].n != 1) continue;
        asp_size size = b->rule->letter[dims[d].at[0]].size;
        if (asp_size_equal(size, t->dim[d])) continue;
        if (!is_one(b->g, t->dim[d])) b->fits = false;
        dims[d].n = 0;
    }
}

typedef void dims_fn(asp_rule_builder *b, const asp_type *t, const asp_rule_dim *dims);

static void for_each_operand(asp_rule_builder *b, dims_fn *fn)
{
    for (uint32_t i = 0; i < b->info->n_in; i++) fn(b, asp_rule_type(b, i), b->rule->in[i]);
    for (uint32_t i = 0; i < b->info->n_out; i++) fn(b, asp_rule_result(b, i), b->rule->out[i]);
}

void asp_rule_text(asp_rule_builder *b, const char *text)
{
    reader r = {.b = b, .s = text};
    for (uint32_t i = 0; *r.s && *r.s != '-'; i++) {
        if (i < b->info->n_in)
            read_operand(&r, asp_rule_type(b, i)->rank, b->rule->in[i]);
        else
            while (*r.s && *r.s != ',' && *r.s != '-') r.s++;
        take(&r, ',');
    }
    ASP_CHECK(take(&r, '-') && take(&r, '>'));
    for (uint32_t i = 0; i < b->info->n_out; i++) {
        read_operand(&r, asp_rule_result(b, i)->rank, b->rule->out[i]);
        take(&r, ',');
    }
    if (!b->fits) return;
    for_each_operand(b, size_single_letters);
    for_each_operand(b, size_composites);
    for (uint32_t i = 0; i < b->info->n_in; i++)
        drop_broadcasts(b, asp_rule_type(b, i), b->rule->in[i]);
    for (uint32_t i = 0; i < b->info->n_out; i++)
        drop_broadcasts(b, asp_rule_result(b, i), b->rule->out[i]);
}

void asp_rule_same_shape(asp_rule_builder *b, unsigned whole)
{
    const asp_type *x = asp_rule_type(b, 0);
    for (uint32_t d = 0; d < x->rank; d++) {
        asp_letter_kind kind = whole >> d & 1 ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, x->dim[d]);
        for (uint32_t i = 0; i < b->info->n_in; i++) asp_rule_put(b, &b->rule->in[i][d], c);
        for (uint32_t i = 0; i < b->info->n_out; i++) asp_rule_put(b, &b->rule->out[i][d], c);
    }
}

// ---- the table ---------------------------------------------------------------------------------

#define ROW_TEXT(name) NULL,
#define ROW_FN(name) asp_##name##_rule,
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) ASP_RULE_OF(name, rule, ROW)
asp_rule_fn *const asp_rule_table[] = {
#include "ir/op.def"
};
#undef OP

static_assert(ASP_COUNT_OF(asp_rule_table) == ASP_OP_COUNT, "one row an op");

bool asp_rule_of(asp_arena *a, asp_graph *g, asp_node n, asp_rule *out_rule)
{
    const asp_node_info *info = asp_node_at(g, n);
    asp_rule_fn *fn = asp_rule_table[info->op];
    const char *text = asp_ops[info->op].rule;
    if (!fn && !text) return false;
    asp_rule rule = {0};
    asp_rule_builder b = {.arena = a, .g = g, .info = info, .rule = &rule, .fits = true};
    for (uint32_t i = 0; i < info->n_in; i++)
        rule.in[i] = ASP_NEW_ARRAY(a, asp_rule_dim, asp_rule_type(&b, i)->rank);
    for (uint32_t i = 0; i < info->n_out; i++)
        rule.out[i] = ASP_NEW_ARRAY(a, asp_rule_dim, asp_rule_result(&b, i)->rank);
    if (fn)
        fn(&b);
    else
        asp_rule_text(&b, text);
    if (b.fits) *out_rule = rule;
    return b.fits;
}
