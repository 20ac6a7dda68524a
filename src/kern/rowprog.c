// Row programs as data: the table of primitives, checking a description, one op of the graph as a
// description, the dump.  Neighbours: rowprog.h (contract), rowprog_build.c (compiles).
// SPDX-License-Identifier: Apache-2.0
#include "kern/rowprog_int.h"

static const struct {
    const char *name;
    int n_in;
} rowops[ASP_ROWOP_COUNT] = {
#define ROWOP(name, n_in, doc) {#name, n_in},
#include "kern/rowop.def"
#undef ROWOP
};

bool asp_rowop_of(asp_op op, asp_rowop *out_rowop)
{
    for (int i = 0; i < ASP_ROWOP_COUNT; i++) {
        if (strcmp(rowops[i].name, asp_ops[op].name) != 0) continue;
        *out_rowop = (asp_rowop)i;
        return true;
    }
    return false;
}

const char *asp_rowop_name(asp_rowop op) { return rowops[op].name; }
int asp_rowop_operands(asp_rowop op) { return rowops[op].n_in; }

// ---- checking ----------------------------------------------------------------------------------

// May an operand of this kind be broadcast to the result?
static bool fits(asp_rowkind in, asp_rowkind out)
{
    return in == out || out == ASP_ROW_FULL || in == ASP_ROW_NUMBER;
}

static const char *check_kinds(const asp_rowdesc *d, const asp_rowinstr *o)
{
    const asp_rowkind out = d->vals[o->out].kind, in = d->vals[o->in[0]].kind;
    if (o->op == ASP_ROWOP_sum_cols)
        return in == ASP_ROW_FULL && out == ASP_ROW_ROW ? NULL : "sum_cols is FULL -> ROW";
    if (o->op == ASP_ROWOP_sum_rows) {
        bool down = in == ASP_ROW_ROW && out == ASP_ROW_NUMBER;
        return down || (in == ASP_ROW_FULL && out == ASP_ROW_VECTOR)
                   ? NULL
                   : "sum_rows is FULL -> VECTOR or ROW -> NUMBER";
    }
    for (int i = 0; i < rowops[o->op].n_in; i++)
        if (!fits(d->vals[o->in[i]].kind, out)) return "an operand is not broadcast to the result";
    return NULL;
}

const char *asp_rowdesc_check(const asp_rowdesc *d)
{
    bool made[ASP_ROW_MAX_VALS] = {false}, later[ASP_ROW_MAX_VALS] = {false};
    bool slots[ASP_ROW_MAX_VALS] = {false};
    if (d->rows < 1 || d->cols < 1) return "rows and cols are at least 1";
    if (d->n_vals > ASP_ROW_MAX_VALS || d->n_ops > ASP_ROW_MAX_VALS) return "too many values";
    for (int i = 0; i < d->n_vals; i++) {
        int slot = d->vals[i].slot;
        if (slot >= d->n_slots || slot >= ASP_ROW_MAX_VALS) return "a slot is out of range";
        if (slot < 0) continue;
        if (slots[slot]) return "two values have one slot";
        slots[slot] = true;
    }
    for (int i = d->n_ops - 1; i >= 0; i--) {
        int out = d->ops[i].out;
        if (out < 0 || out >= d->n_vals) return "a value is out of range";
        if (made[out]) return "a value is made twice";
        made[out] = true;
    }
    bool seen[ASP_ROW_MAX_VALS] = {false};
    for (int i = 0; i < d->n_ops; i++) {
        const asp_rowinstr *o = &d->ops[i];
        for (int k = 0; k < rowops[o->op].n_in; k++) {
            int in = o->in[k];
            if (in < 0 || in >= d->n_vals) return "a value is out of range";
            if (!seen[in] && (made[in] || d->vals[in].slot < 0)) return "read before it is made";
            later[o->out] |= later[in];
        }
        const char *wrong = check_kinds(d, o);
        if (wrong) return wrong;
        asp_rowkind kind = d->vals[o->out].kind;
        if (later[o->out] &&
            (kind == ASP_ROW_FULL || kind == ASP_ROW_ROW || o->op == ASP_ROWOP_sum_rows))
            return "a row depends on a sum over rows";
        if (o->op == ASP_ROWOP_sum_rows) later[o->out] = true;
        seen[o->out] = true;
    }
    return NULL;
}

// ---- one op of the graph -----------------------------------------------------------------------

// Where the dims that an operand has (as large as the result's) end or begin: those of size 1 in
// the result do not count.  Kind by the split into rows (dims before `at`) and columns; at -1: any.
typedef struct split {
    bool ok;
    asp_rowkind kind;
    int at;
} split;

static split split_of(const bool has[], const asp_tensor *whole)
{
    int first = -1, last = -1, n = 0, n_has = 0, first_not = -1, last_not = -1;
    for (int d = 0; d < whole->rank; d++) {
        if (whole->dim[d] == 1) continue;
        n++;
        if (has[d]) {
            n_has++;
            if (first < 0) first = d;
            last = d;
        } else {
            if (first_not < 0) first_not = d;
            last_not = d;
        }
    }
    if (n_has == n) return (split){true, ASP_ROW_FULL, -1};
    if (n_has == 0) return (split){true, ASP_ROW_NUMBER, -1};
    if (last_not < first) return (split){true, ASP_ROW_VECTOR, first};
    if (last < first_not) return (split){true, ASP_ROW_ROW, first_not};
    return (split){.ok = false};
}

static split split_of_operand(const asp_tensor *in, const asp_tensor *out)
{
    bool has[ASP_MAX_RANK];
    for (int d = 0; d < out->rank; d++) {
        int from = d - (out->rank - in->rank);
        has[d] = from >= 0 && in->dim[from] == out->dim[d];
    }
    return split_of(has, out);
}

static void set_shape(asp_rowdesc *d, const asp_tensor *whole, int at)
{
    d->rows = d->cols = 1;
    for (int i = 0; i < whole->rank; i++) *(i < at ? &d->rows : &d->cols) *= whole->dim[i];
}

static bool wrap_each(asp_rowop op, const asp_kcall *k, asp_rowval *vals, asp_rowinstr *o,
                      asp_rowdesc *d)
{
    int at = -1;
    for (int i = 0; i < k->n_in; i++) {
        split s = split_of_operand(&k->in[i], &k->out[0]);
        if (!s.ok || (at >= 0 && s.at >= 0 && s.at != at)) return false;
        if (s.at >= 0) at = s.at;
        vals[i] = (asp_rowval){s.kind, i};
        o[0].in[i] = i;
    }
    vals[k->n_in] = (asp_rowval){ASP_ROW_FULL, k->n_in};
    o[0].op = op;
    o[0].out = k->n_in;
    if (op == ASP_ROWOP_add_scalar || op == ASP_ROWOP_mul_scalar)
        o[0].value = ((const asp_scalar_attr *)k->attr)->value;
    d->n_vals = k->n_in + 1;
    d->n_ops = 1;
    set_shape(d, &k->out[0], at);
    return true;
}

// All dims: each row of the last one, then the rows.
static bool wrap_sum(const asp_kcall *k, asp_rowval *vals, asp_rowinstr *o, asp_rowdesc *d)
{
    const asp_sum_attr *a = k->attr;
    const asp_tensor *x = &k->in[0];
    bool has[ASP_MAX_RANK];
    for (int i = 0; i < x->rank; i++) has[i] = true;
    for (uint32_t i = 0; i < a->dims.n; i++) has[a->dims.at[i]] = false;
    split s = split_of(has, x);
    if (!s.ok) return false;
    vals[0] = (asp_rowval){ASP_ROW_FULL, 0};
    vals[1] = (asp_rowval){s.kind, 1};
    o[0] = (asp_rowinstr){.in = {0}, .out = 1};
    d->n_vals = 2;
    d->n_ops = 1;
    set_shape(d, x, s.kind == ASP_ROW_NUMBER ? x->rank - 1 : s.at);
    switch (s.kind) {
    case ASP_ROW_FULL: o[0].op = ASP_ROWOP_copy; break;
    case ASP_ROW_ROW: o[0].op = ASP_ROWOP_sum_cols; break;
    case ASP_ROW_VECTOR: o[0].op = ASP_ROWOP_sum_rows; break;
    case ASP_ROW_NUMBER:
        vals[2] = (asp_rowval){ASP_ROW_ROW, -1};
        o[0] = (asp_rowinstr){.op = ASP_ROWOP_sum_cols, .in = {0}, .out = 2};
        o[1] = (asp_rowinstr){.op = ASP_ROWOP_sum_rows, .in = {2}, .out = 1};
        d->n_vals = 3;
        d->n_ops = 2;
        break;
    }
    return true;
}

static bool is_f32_or_half(const asp_tensor *t)
{
    return t->dtype == ASP_F32 || t->dtype == ASP_BF16;
}

static bool wrap_cast(asp_arena *a, const asp_kcall *k, asp_rowval *vals, asp_rowinstr *o,
                      asp_rowdesc *d)
{
    bool *half = ASP_NEW_ARRAY(a, bool, 2);
    if (!is_f32_or_half(&k->in[0]) || !is_f32_or_half(&k->out[0])) return false;
    half[0] = k->in[0].dtype == ASP_BF16;
    half[1] = k->out[0].dtype == ASP_BF16;
    d->half = half;
    return wrap_each(half[1] ? ASP_ROWOP_round_half : ASP_ROWOP_copy, k, vals, o, d);
}

bool asp_rowdesc_wrap(asp_arena *a, asp_op op, const asp_kcall *k, asp_rowdesc *out_desc)
{
    asp_rowval *vals = ASP_NEW_ARRAY(a, asp_rowval, 3);
    asp_rowinstr *ops = ASP_NEW_ARRAY(a, asp_rowinstr, 2);
    asp_rowdesc d = {.n_slots = k->n_in + 1, .vals = vals, .ops = ops};
    asp_rowop rowop;
    *out_desc = d;
    if (op == ASP_OP_cast) return wrap_cast(a, k, vals, ops, out_desc);
    for (int i = 0; i < k->n_in; i++)
        if (k->in[i].dtype != ASP_F32) return false;
    if (k->n_out != 1 || k->out[0].dtype != ASP_F32) return false;
    if (op == ASP_OP_sum) {
        if (!wrap_sum(k, vals, ops, &d)) return false;
    } else if (op == ASP_OP_expand) {
        if (!wrap_each(ASP_ROWOP_copy, k, vals, ops, &d)) return false;
    } else if (!asp_rowop_of(op, &rowop) || !wrap_each(rowop, k, vals, ops, &d)) {
        return false;
    }
    *out_desc = d;
    return true;
}

// ---- the dump ----------------------------------------------------------------------------------

static void put_val(const asp_rowprog *p, asp_text *t, int v)
{
    static const char kinds[] = {'f', 'r', 'v', 'n'};
    if (v >= p->n_described && v < p->n_described + p->n_constants)
        asp_put(t, "%.9g", (double)p->constants[v - p->n_described]);
    else if (p->vals[v].slot >= 0)
        asp_put(t, "$%d", p->vals[v].slot);
    else
        asp_put(t, "%c%d", kinds[p->vals[v].kind], v);
}

static void put_steps(const asp_rowprog *p, asp_text *t, int from, int end)
{
    for (int i = from; i < end; i++) {
        const asp_rowstep *s = &p->steps[i];
        asp_put(t, "    ");
        for (int k = 0; k < s->n_out; k++) {
            if (k) asp_put(t, ", ");
            put_val(p, t, s->out[k]);
        }
        asp_put(t, " = %s", s->name);
        for (int k = 0; k < s->n_in; k++) {
            asp_put(t, k ? ", " : " ");
            put_val(p, t, s->in[k]);
        }
        asp_put(t, "\n");
    }
}

void asp_rowprog_print(const asp_rowprog *p, asp_text *t)
{
    asp_put(t, "%lld x %lld in tiles of %lld x %lld, %lld bytes\n", (long long)p->rows,
            (long long)p->cols, (long long)p->tile_rows, (long long)p->tile_cols,
            (long long)p->traffic_bytes);
    if (p->before_end) asp_put(t, "  before\n");
    put_steps(p, t, 0, p->before_end);
    for (int s = 0; s < p->n_stages; s++) {
        asp_put(t, "  stage %d\n", s);
        put_steps(p, t, p->stages[s].rows, p->stages[s].end);
    }
    if (p->after < p->n_steps || p->blocks < p->after) asp_put(t, "  after\n");
    put_steps(p, t, p->blocks, p->n_steps);
}
