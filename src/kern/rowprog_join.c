// Row programs, first half of the compiler: broadcasts read in place, and pairs of ops joined into
// one primitive where no rounding changes.
//
//   t = mul x, r                                 t = mul x, r
//   u = copy w (ROW -> FULL)       becomes       y = mul.add t, w, z      (t * w rounded, then + z)
//   v = mul t, u
//   y = add v, z
//
// A temporary that is read once moves to its reader.  Neighbours: rowprog_build.c (second half),
// rowprog_join.h.  SPDX-License-Identifier: Apache-2.0
#include "kern/rowprog_join.h"

typedef asp_rowcode code;

static asp_rowkind kind_of(const asp_rowcode_list *l, int v) { return l->vals.at[v].kind; }

// Is operand v read element by element where the result has this kind?
bool asp_rowcode_is_v(const asp_rowcode_list *l, int v, asp_rowkind result)
{
    asp_rowkind kind = kind_of(l, v);
    return kind == result || (result == ASP_ROW_FULL && kind == ASP_ROW_VECTOR);
}

static int new_val(asp_rowcode_list *l, asp_rowkind kind)
{
    ASP_PUSH(l->arena, &l->vals, (asp_rowval){kind, -1});
    return (int)l->vals.n - 1;
}

// ---- reading the description -------------------------------------------------------------------

// Constants become NUMBER values after those of the description.
static void load_constants(asp_rowcode_list *l, const asp_rowdesc *d)
{
    for (int i = 0; i < d->n_vals; i++) ASP_PUSH(l->arena, &l->vals, d->vals[i]);
    for (int i = 0; i < d->n_ops; i++) {
        if (d->ops[i].op != ASP_ROWOP_add_scalar && d->ops[i].op != ASP_ROWOP_mul_scalar) continue;
        ASP_PUSH(l->arena, &l->constants, (float)d->ops[i].value);
        new_val(l, ASP_ROW_NUMBER);
    }
}

// No primitive reads one number a row twice: such an op is done on the smaller kind, then copied.
static void push_code(asp_rowcode_list *l, code c)
{
    asp_rowkind result = kind_of(l, c.out[0]);
    bool sum = c.form == ASP_CODE_SUM, any_v = sum || c.n_in == 1;
    for (int k = 0; k < c.n_in; k++) any_v |= asp_rowcode_is_v(l, c.in[k], result);
    if (!any_v) {
        bool row = kind_of(l, c.in[0]) == ASP_ROW_ROW || kind_of(l, c.in[1]) == ASP_ROW_ROW;
        int small = new_val(l, row ? ASP_ROW_ROW : ASP_ROW_NUMBER), out = c.out[0];
        c.out[0] = small;
        ASP_PUSH(l->arena, &l->codes, c);
        c = (code){.op = ASP_ROWOP_copy, .n_in = 1, .in = {small}, .n_out = 1, .out = {out}};
    }
    ASP_PUSH(l->arena, &l->codes, c);
}

// v is an array of bf16.
static bool is_half(const asp_rowdesc *d, int v)
{
    return d->half && v < d->n_vals && d->vals[v].slot >= 0 && d->half[d->vals[v].slot];
}

static int put_unary(asp_rowcode_list *l, asp_rowop op, int in, int out)
{
    ASP_PUSH(l->arena, &l->codes,
             (code){.op = op, .n_in = 1, .in = {in}, .n_out = 1, .out = {out}});
    return out;
}

// What op o reads as its operand v: bf16 is widened once, before its first reader.
static int operand_of(asp_rowcode_list *l, const asp_rowdesc *d, int *alias, int v)
{
    if (alias[v] == v && is_half(d, v))
        alias[v] = put_unary(l, ASP_ROWOP_load_half, v, new_val(l, kind_of(l, v)));
    return alias[v];
}

static bool is_read(const asp_rowdesc *d, int v)
{
    for (int i = 0; i < d->n_ops; i++)
        for (int k = 0; k < asp_rowop_operands(d->ops[i].op); k++)
            if (d->ops[i].in[k] == v) return true;
    return false;
}

// Op c makes v, an array of bf16: what later ops read is rounded, and storing what is rounded
// changes nothing.  A rounding that nobody reads is that of the store alone.
static void put_half(asp_rowcode_list *l, const asp_rowdesc *d, code c, int v, int *alias)
{
    const asp_rowkind kind = kind_of(l, v);
    int made = c.in[0];
    if (c.op != ASP_ROWOP_round_half || kind_of(l, made) != kind) {
        made = c.out[0] = new_val(l, kind);
        push_code(l, c);
    }
    if (!is_read(d, v)) {
        put_unary(l, ASP_ROWOP_store_half, made, v);
        return;
    }
    alias[v] = new_val(l, kind);
    ASP_PUSH(l->arena, &l->codes,
             (code){.op = ASP_ROWOP_round_store,
                    .n_in = 1,
                    .in = {made},
                    .n_out = 2,
                    .out = {alias[v], v}});
}

static void load(asp_rowcode_list *l, const asp_rowdesc *d)
{
    int constant = d->n_vals, alias[ASP_ROW_MAX_VALS];
    bool summed[ASP_ROW_MAX_VALS] = {false};
    load_constants(l, d);
    for (int i = 0; i < d->n_vals; i++) alias[i] = i;
    for (int i = 0; i < d->n_ops; i++)
        if (d->ops[i].op == ASP_ROWOP_sum_cols || d->ops[i].op == ASP_ROWOP_sum_rows)
            summed[d->ops[i].in[0]] = true;
    for (int i = 0; i < d->n_ops; i++) {
        const asp_rowinstr *o = &d->ops[i];
        code c = {.op = o->op, .n_in = asp_rowop_operands(o->op), .n_out = 1, .out = {o->out}};
        for (int k = 0; k < c.n_in; k++) c.in[k] = operand_of(l, d, alias, o->in[k]);
        const bool same_kind = d->vals[o->in[0]].kind == d->vals[o->out].kind;
        if (o->op == ASP_ROWOP_copy && d->vals[o->out].slot < 0 && (same_kind || !summed[o->out])) {
            alias[o->out] = c.in[0];
            continue;
        }
        if (o->op == ASP_ROWOP_add_scalar || o->op == ASP_ROWOP_mul_scalar) {
            c.op = o->op == ASP_ROWOP_add_scalar ? ASP_ROWOP_add : ASP_ROWOP_mul;
            c.in[c.n_in++] = constant++;
        }
        if (o->op == ASP_ROWOP_sum_cols || o->op == ASP_ROWOP_sum_rows) c.form = ASP_CODE_SUM;
        if (is_half(d, o->out))
            put_half(l, d, c, o->out, alias);
        else
            push_code(l, c);
    }
}

// ---- joining -----------------------------------------------------------------------------------

static bool reads(const code *c, int v)
{
    for (int k = 0; k < c->n_in; k++)
        if (c->in[k] == v) return true;
    return false;
}

// The code of kind FULL that makes v, when v is read so many times and never reaches memory.
static code *maker_of(asp_rowcode_list *l, const int *uses, int v, int times)
{
    if (l->vals.at[v].slot >= 0 || kind_of(l, v) != ASP_ROW_FULL || uses[v] != times) return NULL;
    for (uint32_t i = 0; i < l->codes.n; i++)
        if (!l->codes.at[i].dead && l->codes.at[i].out[0] == v) return &l->codes.at[i];
    return NULL;
}

static bool is_chain(const code *c, int first, int second)
{
    return c && c->form == ASP_CODE_CHAIN && c->first == first && c->second == second;
}

static bool is_v(const asp_rowcode_list *l, int v) { return asp_rowcode_is_v(l, v, ASP_ROW_FULL); }

// silu(a) * b, all read element by element
static bool join_silu_mul(asp_rowcode_list *l, code *c, code *maker, int other)
{
    if (c->op != ASP_ROWOP_mul || maker->op != ASP_ROWOP_silu) return false;
    if (!is_v(l, maker->in[0]) || !is_v(l, other)) return false;
    c->form = ASP_CODE_SILU_MUL;
    c->in[0] = maker->in[0];
    c->in[1] = other;
    return true;
}

// silu_grad(a, b * c)
static bool join_silu_grad(asp_rowcode_list *l, code *c, code *maker, int k)
{
    if (c->op != ASP_ROWOP_silu_grad || maker->op != ASP_ROWOP_mul || k != 1) return false;
    if (!is_v(l, c->in[0]) || !is_v(l, maker->in[0]) || !is_v(l, maker->in[1])) return false;
    c->form = ASP_CODE_SILU_GRAD_MUL;
    c->n_in = 3;
    c->in[1] = maker->in[0];
    c->in[2] = maker->in[1];
    return true;
}

// Sums of products, over rows of two products.
static bool join_sum(asp_rowcode_list *l, code *c, code *maker)
{
    if (c->op == ASP_ROWOP_sum_rows && is_chain(maker, ASP_CHAIN1_mul, ASP_CHAIN2_mul)) {
        c->form = ASP_CODE_MUL_MUL_SUM;
        c->n_in = 3;
        memcpy(c->in, maker->in, sizeof c->in);
        return true;
    }
    if (maker->form != ASP_CODE_PLAIN || maker->op != ASP_ROWOP_mul) return false;
    int a = maker->in[0], b = maker->in[1];
    c->form = ASP_CODE_MUL_SUM;
    c->n_in = 2;
    c->in[0] = is_v(l, a) ? a : b;
    c->in[1] = is_v(l, a) ? b : a;
    return true;
}

static bool first_of_chain(const code *maker, int *out_first)
{
    *out_first = maker->op == ASP_ROWOP_add   ? ASP_CHAIN1_add
                 : maker->op == ASP_ROWOP_sub ? ASP_CHAIN1_sub
                 : maker->op == ASP_ROWOP_mul ? ASP_CHAIN1_mul
                                              : -1;
    return *out_first >= 0;
}

// (a op b) op other, the temporary being operand k of the second op.
static bool join_chain(asp_rowcode_list *l, code *c, code *maker, int k, int other)
{
    int first, second = c->op == ASP_ROWOP_add   ? ASP_CHAIN2_add
                        : c->op == ASP_ROWOP_mul ? ASP_CHAIN2_mul
                        : c->op != ASP_ROWOP_sub ? -1
                        : k == 0                 ? ASP_CHAIN2_sub
                                                 : ASP_CHAIN2_rsub;
    if (c->form != ASP_CODE_PLAIN || second < 0 || !first_of_chain(maker, &first)) return false;
    int a = maker->in[0], b = maker->in[1];
    if (!is_v(l, a)) {
        if (first == ASP_CHAIN1_sub) return false;
        int swap = a;
        a = b;
        b = swap;
    }
    *c = (code){.form = ASP_CODE_CHAIN,
                .op = c->op,
                .first = first,
                .second = second,
                .n_in = 3,
                .in = {a, b, other},
                .n_out = 1,
                .out = {c->out[0]}};
    return true;
}

static void join_into(asp_rowcode_list *l, code *c, const int *uses)
{
    for (int k = 0; k < c->n_in; k++) {
        code *maker = maker_of(l, uses, c->in[k], 1);
        const bool plain = maker && maker->form == ASP_CODE_PLAIN;
        if (!maker || (!plain && c->form != ASP_CODE_SUM) || (c->n_in == 2 && c->in[0] == c->in[1]))
            continue;
        int other = c->in[c->n_in - 1 - k];
        bool joined = c->form == ASP_CODE_SUM
                          ? join_sum(l, c, maker)
                          : join_silu_mul(l, c, maker, other) || join_silu_grad(l, c, maker, k) ||
                                join_chain(l, c, maker, k, other);
        if (joined) {
            maker->dead = true;
            return;
        }
    }
}

// ((a b + t) + t) + d with t = s x, of which nobody else reads anything: x enters a norm twice.
static void join_norm_grad(asp_rowcode_list *l, code *c, const int *uses)
{
    if (!is_chain(c, ASP_CHAIN1_add, ASP_CHAIN2_add) || !is_v(l, c->in[2])) return;
    code *u = maker_of(l, uses, c->in[0], 1), *t = maker_of(l, uses, c->in[1], 2);
    if (!is_chain(u, ASP_CHAIN1_mul, ASP_CHAIN2_add) || u->in[2] != c->in[1]) return;
    if (!t || t->form != ASP_CODE_PLAIN || t->op != ASP_ROWOP_mul) return;
    const int k = is_v(l, t->in[0]) ? 0 : 1; // where x is
    if (is_v(l, t->in[1 - k])) return;
    *c = (code){.form = ASP_CODE_NORM_GRAD,
                .op = c->op,
                .n_in = 5,
                .in = {u->in[0], u->in[1], t->in[k], t->in[1 - k], c->in[2]},
                .n_out = 1,
                .out = {c->out[0]}};
    u->dead = t->dead = true;
}

// Code m moves behind code j.
static void move_behind(asp_rowcode_list *l, uint32_t m, uint32_t j)
{
    const code moved = l->codes.at[m];
    for (; m < j; m++) l->codes.at[m] = l->codes.at[m + 1];
    l->codes.at[j] = moved;
}

// What reads v between codes i and j stores it, and can do so later: it moves behind j, which
// *j follows.
static bool store_later(asp_rowcode_list *l, int v, uint32_t i, uint32_t *j)
{
    for (uint32_t m = i + 1; m < *j; m++) {
        const code *c = &l->codes.at[m];
        if (!c->dead && reads(c, v) && c->op != ASP_ROWOP_store_half) return false;
    }
    for (uint32_t m = *j - 1; m > i; m--)
        if (!l->codes.at[m].dead && reads(&l->codes.at[m], v)) move_behind(l, m, (*j)--);
    return true;
}

// silu_grad(a, b * c) beside silu(a) * b: one exponential for both, at the place of the later one
// when nobody but a store reads the earlier result before it.
static bool join_both(asp_rowcode_list *l, uint32_t i, uint32_t j)
{
    code *x = &l->codes.at[i], *y = &l->codes.at[j];
    bool grad_first = x->form == ASP_CODE_SILU_GRAD_MUL;
    code *grad = grad_first ? x : y, *value = grad_first ? y : x;
    if (grad->form != ASP_CODE_SILU_GRAD_MUL || value->form != ASP_CODE_SILU_MUL) return false;
    if (grad->in[0] != value->in[0] || !(reads(grad, value->in[1]))) return false;
    int b = value->in[1], c = grad->in[1] == b ? grad->in[2] : grad->in[1];
    if ((grad->in[1] != b && grad->in[2] != b) || reads(y, x->out[0])) return false;
    const code both = {.form = ASP_CODE_SILU_BOTH,
                       .op = ASP_ROWOP_silu_grad,
                       .n_in = 3,
                       .in = {grad->in[0], b, c},
                       .n_out = 2,
                       .out = {grad->out[0], value->out[0]}};
    if (!store_later(l, x->out[0], i, &j)) return false;
    l->codes.at[i].dead = true;
    l->codes.at[j] = both;
    return true;
}

static void join_pairs(asp_rowcode_list *l)
{
    for (uint32_t i = 0; i < l->codes.n; i++)
        for (uint32_t j = i + 1; j < l->codes.n && !l->codes.at[i].dead; j++)
            if (!l->codes.at[j].dead) join_both(l, i, j);
}

void asp_rowcode_load(asp_rowcode_list *l, const asp_rowdesc *d, bool join)
{
    load(l, d);
    if (!join) return;
    int *uses = ASP_NEW_ARRAY(l->arena, int, l->vals.n);
    for (uint32_t i = 0; i < l->codes.n; i++)
        for (int k = 0; k < l->codes.at[i].n_in; k++) uses[l->codes.at[i].in[k]]++;
    for (uint32_t i = 0; i < l->codes.n; i++) {
        code *c = &l->codes.at[i];
        bool full = kind_of(l, c->out[0]) == ASP_ROW_FULL || c->form == ASP_CODE_SUM;
        if (full) join_into(l, c, uses);
    }
    for (uint32_t i = 0; i < l->codes.n; i++) join_norm_grad(l, &l->codes.at[i], uses);
    join_pairs(l);
}
