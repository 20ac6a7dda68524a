// einsum: products of any number of tensors by named dims, lowered to permute, view, products and
// sums.  Neighbours: ir/op.def (row), matmul.c (what it is lowered to).
//
//   "bqhd,bkhd->bhqk"   b h are batch, d is contracted: permute both to (b h) q d and (b h) k d,
//                       bmm with the second transposed, view to b h q k
//
// Operands are contracted from left to right; a dim that no later operand and no result names is
// summed as soon as it can be.  SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

#include <ctype.h>

#define ELLIPSIS 0x80 // + i: the i-th dim from the right of "..."

// The names of a tensor's dims, in order.
typedef struct names {
    uint32_t n;
    uint8_t at[ASP_MAX_RANK];
} names;

typedef struct equation {
    uint32_t n_in;
    names in[ASP_MAX_OPERANDS], out;
} equation;

static bool has(const names *s, uint8_t name)
{
    return s->n > 0 && memchr(s->at, name, s->n) != NULL;
}

// ---- reading -----------------------------------------------------------------------------------

typedef struct reader {
    const char *s;
    const char *wrong; // what is, or NULL
    uint32_t ellipsis; // dims that "..." stands for
} reader;

static void put(reader *r, names *to, uint8_t name)
{
    if (has(to, name))
        r->wrong = "a dimension twice in one operand is not there; take the diagonal first";
    else if (to->n == ASP_MAX_RANK)
        r->wrong = "too many dimensions";
    else
        to->at[to->n++] = name;
}

// Up to ',' or "->" or the end.  rank < 0: of the result, "..." as long as the longest.
static void read_names(reader *r, int rank, names *out)
{
    const char *end = r->s + strcspn(r->s, ",-");
    int letters = 0;
    for (const char *s = r->s; s < end; s++) letters += isalpha((unsigned char)*s) != 0;
    for (; r->s < end && !r->wrong; r->s++) {
        if (*r->s == ' ') continue;
        if (isalpha((unsigned char)*r->s)) {
            put(r, out, (uint8_t)*r->s);
        } else if (strncmp(r->s, "...", 3) == 0) {
            uint32_t n = rank < 0 ? r->ellipsis : rank < letters ? 0 : (uint32_t)(rank - letters);
            if (n > r->ellipsis) r->ellipsis = n;
            while (n-- > 0 && !r->wrong) put(r, out, (uint8_t)(ELLIPSIS + n));
            r->s += 2;
        } else {
            r->wrong = "only letters, '...', ',' and '->' are known";
        }
    }
    if (!r->wrong && rank >= 0 && out->n != (uint32_t)rank)
        r->wrong = "an operand has another number of dimensions";
}

// Without "->": "...", then what is named once, in alphabetical order.
static void imply_result(reader *r, equation *e)
{
    for (uint32_t n = r->ellipsis; n-- > 0 && !r->wrong;) put(r, &e->out, (uint8_t)(ELLIPSIS + n));
    for (int c = 'A'; c <= 'z'; c++) {
        int times = 0;
        for (uint32_t i = 0; i < e->n_in; i++) times += has(&e->in[i], (uint8_t)c);
        if (times == 1 && !r->wrong) put(r, &e->out, (uint8_t)c);
    }
}

// NULL, or what is wrong with it (static text).
static const char *read_equation(const char *text, uint32_t n_in, const asp_type *const *types,
                                 equation *e)
{
    reader r = {.s = text};
    *e = (equation){.n_in = n_in};
    for (uint32_t i = 0; i < n_in && !r.wrong; i++) {
        read_names(&r, (int)types[i]->rank, &e->in[i]);
        if (i + 1 < n_in && !r.wrong && *r.s++ != ',') r.wrong = "there are more operands";
    }
    if (!r.wrong && r.s[0] == '-' && r.s[1] == '>') {
        r.s += 2;
        read_names(&r, -1, &e->out);
    } else if (!r.wrong && *r.s == 0) {
        imply_result(&r, e);
    }
    if (!r.wrong && *r.s) r.wrong = "there are fewer operands, or text behind the result";
    for (uint32_t d = 0; d < e->out.n && !r.wrong; d++) {
        bool known = false;
        for (uint32_t i = 0; i < n_in; i++) known |= has(&e->in[i], e->out.at[d]);
        if (!known) r.wrong = "the result names a dimension that no operand has";
    }
    return r.wrong;
}

static asp_size size_of(const equation *e, const asp_type *const *types, uint8_t name)
{
    for (uint32_t i = 0; i < e->n_in; i++)
        for (uint32_t d = 0; d < e->in[i].n; d++)
            if (e->in[i].at[d] == name) return types[i]->dim[d];
    ASP_CHECK(false);
    return (asp_size){0};
}

// ---- what it is --------------------------------------------------------------------------------

asp_status asp_einsum_infer(asp_infer *in)
{
    const asp_einsum_attr *a = in->attr;
    const asp_type *types[ASP_MAX_OPERANDS];
    equation e;
    for (uint32_t i = 0; i < in->n_in; i++) {
        ASP_TRY(asp_want_float(in, i));
        ASP_TRY(asp_want_dtype(in, i, in->in[0].dtype));
        types[i] = &in->in[i];
    }
    const char *wrong = read_equation(a->equation, in->n_in, types, &e);
    if (wrong)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "equation \"%s\" on %u operands: %s", a->equation,
                              in->n_in, wrong);
    for (uint32_t i = 0; i < in->n_in; i++)
        for (uint32_t d = 0; d < e.in[i].n; d++) {
            asp_size size = size_of(&e, types, e.in[i].at[d]);
            if (!asp_size_equal(size, types[i]->dim[d]))
                return asp_infer_fail(in, ASP_ERR_SHAPE,
                                      "equation \"%s\": dimension %u of operand %u is %s, but was "
                                      "%s before",
                                      a->equation, d, i, asp_size_str(in->g, types[i]->dim[d]),
                                      asp_size_str(in->g, size));
        }
    asp_type out = {.dtype = in->in[0].dtype, .rank = e.out.n};
    for (uint32_t d = 0; d < e.out.n; d++) out.dim[d] = size_of(&e, types, e.out.at[d]);
    return asp_result(in, &out);
}

// What is contracted may be split: ranks then hold parts of a sum.
void asp_einsum_rule(asp_rule_builder *b)
{
    const asp_type *types[ASP_MAX_OPERANDS];
    uint8_t letter[256] = {0}; // + 1
    equation e;
    for (uint32_t i = 0; i < b->info->n_in; i++) types[i] = asp_rule_type(b, i);
    ASP_CHECK(!read_equation(((const asp_einsum_attr *)b->info->attr)->equation, b->info->n_in,
                             types, &e));
    for (uint32_t i = 0; i <= e.n_in; i++) {
        const names *s = i < e.n_in ? &e.in[i] : &e.out;
        asp_rule_dim *dims = i < e.n_in ? b->rule->in[i] : b->rule->out[0];
        for (uint32_t d = 0; d < s->n; d++) {
            uint8_t *c = &letter[s->at[d]];
            asp_letter_kind kind = has(&e.out, s->at[d]) ? ASP_LETTER_SPLIT : ASP_LETTER_SUM;
            if (!*c) *c = (uint8_t)(asp_rule_letter(b, kind, types[i]->dim[d]) + 1);
            asp_rule_put(b, &dims[d], (uint8_t)(*c - 1));
        }
    }
}

// ---- lowering ----------------------------------------------------------------------------------

typedef struct tensor {
    asp_val val;
    names dims;
} tensor;

static void append(names *to, const names *from)
{
    for (uint32_t i = 0; i < from->n && to->n < ASP_MAX_RANK; i++) to->at[to->n++] = from->at[i];
}

// The names of a that are (or are not) in b.
static names choose(const names *a, const names *b, bool in_b)
{
    names s = {0};
    for (uint32_t i = 0; i < a->n; i++)
        if (has(b, a->at[i]) == in_b) s.at[s.n++] = a->at[i];
    return s;
}

static void sum_out(asp_builder *b, tensor *x, const names *keep)
{
    asp_sum_attr a = {0};
    for (uint32_t d = 0; d < x->dims.n; d++)
        if (!has(keep, x->dims.at[d])) a.dims.at[a.dims.n++] = d;
    if (a.dims.n == 0) return;
    x->val = ASP_B1(b, sum, &a, x->val);
    x->dims = choose(&x->dims, keep, true);
}

static bool same(const names *a, const names *b)
{
    return a->n == b->n && memcmp(a->at, b->at, a->n) == 0;
}

static void permute_to(asp_builder *b, tensor *x, const names *order)
{
    int64_t perm[ASP_MAX_RANK];
    if (same(&x->dims, order)) return;
    for (uint32_t d = 0; d < order->n; d++)
        perm[d] = (const uint8_t *)memchr(x->dims.at, order->at[d], x->dims.n) - x->dims.at;
    x->val = asp_build_permute(b, x->val, order->n, perm);
    x->dims = *order;
}

static asp_size product(asp_builder *b, const tensor *x, const names *s)
{
    asp_size p = asp_size_num(b->g, 1);
    for (uint32_t d = 0; b->status >= 0 && d < x->dims.n; d++)
        if (has(s, x->dims.at[d])) p = asp_size_mul(b->g, p, asp_val_type(b->g, x->val)->dim[d]);
    return p;
}

// x as a matrix (batch, one, two), or transposed: whichever needs no copy, else the first.
static asp_val as_matrix(asp_builder *b, tensor x, const names *batch, const names *one,
                         const names *two, bool may_transpose, bool *out_transposed)
{
    names straight = *batch, turned = *batch;
    append(&straight, one), append(&straight, two);
    append(&turned, two), append(&turned, one);
    *out_transposed = may_transpose && same(&x.dims, &turned) && !same(&x.dims, &straight);
    if (!*out_transposed) permute_to(b, &x, &straight);
    if (b->status < 0) return x.val;
    asp_type t = {.dtype = asp_val_type(b->g, x.val)->dtype};
    if (batch->n) t.dim[t.rank++] = product(b, &x, batch);
    t.dim[t.rank++] = product(b, &x, *out_transposed ? two : one);
    t.dim[t.rank++] = product(b, &x, *out_transposed ? one : two);
    return asp_build_view(b, x.val, &t);
}

static asp_val multiply(asp_builder *b, asp_val x, asp_val y, bool batched, bool tx, bool ty)
{
    asp_bmm_attr a = {.ta = tx, .tb = ty};
    if (batched) return ASP_B2(b, bmm, &a, x, y);
    if (tx) return ASP_B2(b, gemm_tn, NULL, x, y);
    return ty ? ASP_B2(b, gemm_nt, NULL, x, y) : ASP_B2(b, gemm_nn, NULL, x, y);
}

// x y with what is in both and not needed summed; dims: batch, those of x, those of y.
static tensor contract(asp_builder *b, tensor x, tensor y, const names *needed)
{
    const names both = choose(&x.dims, &y.dims, true);
    const names batch = choose(&both, needed, true), k = choose(&both, needed, false);
    names keep_x = *needed, keep_y = *needed;
    for (uint32_t i = 0; i < k.n; i++) // may be more than a rank holds; then nothing fits anyway
        append(&keep_x, &(names){1, {k.at[i]}}), append(&keep_y, &(names){1, {k.at[i]}});
    sum_out(b, &x, &keep_x);
    sum_out(b, &y, &keep_y);
    names m = choose(&x.dims, &both, false), n = choose(&y.dims, &both, false), all = batch;
    if (batch.n + m.n + n.n > ASP_MAX_RANK) {
        if (b->status >= 0)
            b->status = asp_fail(b->g->cx, ASP_ERR_UNSUPPORTED,
                                 "einsum (%s): an intermediate result has more than %d dimensions; "
                                 "write it as two",
                                 b->loc, ASP_MAX_RANK);
        return x;
    }
    append(&all, &m), append(&all, &n);
    asp_type t = {.rank = all.n};
    for (uint32_t d = 0; d < all.n; d++)
        t.dim[d] = product(b, has(&x.dims, all.at[d]) ? &x : &y, &(names){1, {all.at[d]}});
    bool tx, ty;
    asp_val mx = as_matrix(b, x, &batch, &m, &k, true, &tx);
    asp_val my = as_matrix(b, y, &batch, &k, &n, !tx, &ty);
    return (tensor){asp_build_view(b, multiply(b, mx, my, batch.n > 0, tx, ty), &t), all};
}

// What operands from i on and the result name.
static names needed_from(const equation *e, uint32_t i, const names *of)
{
    names s = {0};
    for (uint32_t d = 0; d < of->n; d++) {
        bool need = has(&e->out, of->at[d]);
        for (uint32_t k = i; k < e->n_in; k++) need |= has(&e->in[k], of->at[d]);
        if (need) s.at[s.n++] = of->at[d];
    }
    return s;
}

void asp_einsum_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_node_info info = *asp_node_at(b->g, n);
    const asp_type *types[ASP_MAX_OPERANDS];
    equation e;
    for (uint32_t i = 0; i < info.n_in; i++) types[i] = asp_val_type(b->g, info.in[i]);
    ASP_CHECK(!read_equation(((const asp_einsum_attr *)info.attr)->equation, info.n_in, types, &e));
    tensor x = {info.in[0], e.in[0]};
    for (uint32_t i = 1; i < e.n_in; i++) {
        tensor y = {info.in[i], e.in[i]};
        names need_x = needed_from(&e, i + 1, &x.dims), need_y = needed_from(&e, i + 1, &y.dims);
        names more = choose(&need_y, &need_x, false);
        // The result's first dims come from the first operand, so that nothing is permuted.
        names own = choose(&e.out, &(names){0}, false), shared = choose(&x.dims, &y.dims, true);
        own = choose(&own, &shared, false);
        bool swap = i + 1 == e.n_in && own.n && has(&y.dims, own.at[0]);
        if (need_x.n + more.n > ASP_MAX_RANK) more.n = ASP_MAX_RANK - need_x.n;
        append(&need_x, &more);
        x = swap ? contract(b, y, x, &need_x) : contract(b, x, y, &need_x);
    }
    sum_out(b, &x, &e.out);
    permute_to(b, &x, &e.out);
    out[0] = x.val;
}
