// Row programs: hand values, random programs against their ops one by one (which are checked
// against double arithmetic), tiles, joins, threads and levels bit for bit, the wrapping of single
// ops, the dump.  SPDX-License-Identifier: Apache-2.0
#include "base/half.h"
#include "kern/rowprog.h"
#include "unit/sparse.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define CANARY 7.25f
#define GUARD 32 // floats before and after an array
#define VALS 64

static asp_ctx cx;
static asp_arena arena;
static uint32_t seed = 1;

static int64_t pick(int64_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)((seed >> 8) % (uint32_t)n);
}
static float number(void) { return (float)(pick(20001) - 10000) / 10000.0f; }

static asp_isa best_of_cpu(void) { return asp_isa_best(); }

// An array with guards, owned by the test's arena of blocks.
static float *array(int64_t n)
{
    float *p = aligned_alloc(64, (size_t)asp_round_up((n + 2 * GUARD) * 4, 64));
    assert_non_null(p);
    for (int64_t i = 0; i < n + 2 * GUARD; i++) p[i] = CANARY;
    return p + GUARD;
}
static void array_free(float *p)
{
    if (p) free(p - GUARD);
}
static void check_guards(const float *p, int64_t n)
{
    for (int i = 1; i <= GUARD; i++) assert_true(p[-i] == CANARY && p[n + i - 1] == CANARY);
}

typedef struct call {
    const asp_rowprog *p;
    void *const *ptrs;
    void *work;
} call;

static void run_call(void *arg, asp_worker *w)
{
    const call *c = arg;
    asp_rowprog_run(c->p, c->ptrs, c->work, w);
}

static void run_on(const asp_rowprog *p, void *const *ptrs, int threads)
{
    asp_team *team;
    int64_t bytes = asp_rowprog_work_bytes(p, threads);
    float *work = array(bytes / 4);
    call c = {p, ptrs, work};
    assert_int_equal(asp_team_create(&cx, threads, -1, &team), ASP_OK);
    asp_team_run(team, run_call, &c);
    asp_team_destroy(team);
    check_guards(work, bytes / 4);
    array_free(work);
}

static bool same(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool nan = a[i] != a[i] && b[i] != b[i];
        if (!nan && memcmp(&a[i], &b[i], 4) != 0) return false;
    }
    return true;
}

// ---- random programs ---------------------------------------------------------------------------

typedef struct program {
    asp_rowdesc d;
    asp_rowval vals[VALS];
    asp_rowinstr ops[VALS];
    float *data[VALS]; // owned: inputs, and results of the ops one by one
    bool later[VALS];  // waits for a sum over rows
    int n_in;
} program;

static int64_t count(const program *p, int v)
{
    const int64_t n[] = {p->d.rows * p->d.cols, p->d.rows, p->d.cols, 1};
    return n[p->vals[v].kind];
}

// Recent values are likely, so that pairs of ops appear that can be joined.
static int pick_val(const program *p, int n, bool (*ok)(const program *, int))
{
    for (int tries = 0; tries < 50; tries++) {
        int v = pick(3) ? n - 1 - (int)pick(n < 3 ? n : 3) : (int)pick(n);
        if (ok(p, v)) return v;
    }
    return 0; // always FULL
}
static bool is_any(const program *p, int v) { return !p->later[v]; }
static bool is_full(const program *p, int v) { return p->vals[v].kind == ASP_ROW_FULL; }
static bool is_small(const program *p, int v) { return p->vals[v].kind == ASP_ROW_NUMBER; }
static bool is_row(const program *p, int v)
{
    return p->vals[v].kind == ASP_ROW_ROW || (is_small(p, v) && !p->later[v]);
}
static bool is_vector(const program *p, int v)
{
    return p->vals[v].kind == ASP_ROW_VECTOR || is_small(p, v);
}

static void add_op(program *p, int i)
{
    static const asp_rowop each[] = {
        ASP_ROWOP_add,       ASP_ROWOP_sub,        ASP_ROWOP_mul,       ASP_ROWOP_mul,
        ASP_ROWOP_add,       ASP_ROWOP_sub,        ASP_ROWOP_silu,      ASP_ROWOP_silu_grad,
        ASP_ROWOP_neg,       ASP_ROWOP_copy,       ASP_ROWOP_sub,       ASP_ROWOP_mul,
        ASP_ROWOP_silu_grad, ASP_ROWOP_add_scalar, ASP_ROWOP_relu,      ASP_ROWOP_relu_grad,
        ASP_ROWOP_tanh,      ASP_ROWOP_tanh_grad,  ASP_ROWOP_sigmoid,   ASP_ROWOP_sigmoid_grad,
        ASP_ROWOP_gelu,      ASP_ROWOP_gelu_grad,  ASP_ROWOP_gelu_tanh, ASP_ROWOP_gelu_tanh_grad,
        ASP_ROWOP_round_half};
    static const asp_rowop rare[] = {ASP_ROWOP_exp, ASP_ROWOP_rsqrt, ASP_ROWOP_div,
                                     ASP_ROWOP_mul_scalar}; // may make NaN, which hides errors
    const int n = p->n_in + i, out = n;
    asp_rowinstr *o = &p->ops[i];
    *o = (asp_rowinstr){.out = out, .value = (double)number()};
    asp_rowkind kind = ASP_ROW_FULL;
    int64_t what = pick(10);
    if (what == 0) {
        kind = ASP_ROW_ROW;
        o->op = ASP_ROWOP_sum_cols;
        o->in[0] = pick_val(p, n, is_full);
    } else if (what == 1) {
        o->op = ASP_ROWOP_sum_rows;
        o->in[0] = pick_val(p, n, pick(2) ? is_full : is_any);
        kind = p->vals[o->in[0]].kind == ASP_ROW_ROW ? ASP_ROW_NUMBER : ASP_ROW_VECTOR;
        if (kind == ASP_ROW_VECTOR) o->in[0] = pick_val(p, n, is_full);
        p->later[out] = true;
    } else {
        o->op = pick(12) ? each[pick(ASP_COUNT_OF(each))] : rare[pick(ASP_COUNT_OF(rare))];
        bool (*ok)(const program *, int) = is_any;
        if (what == 2) kind = ASP_ROW_ROW, ok = is_row;
        if (what == 3) kind = ASP_ROW_VECTOR, ok = is_vector;
        for (int k = 0; k < 2; k++) {
            o->in[k] = pick_val(p, n, ok);
            if (!ok(p, o->in[k])) kind = ASP_ROW_FULL;
        }
        for (int k = 0; k < 2; k++) p->later[out] |= p->later[o->in[k]];
        if (kind == ASP_ROW_FULL)
            for (int k = 0; k < 2; k++) o->in[k] = pick_val(p, n, is_any);
        if (kind == ASP_ROW_FULL) p->later[out] = false;
    }
    p->vals[out] = (asp_rowval){kind, -1};
}

static void program_init(program *p)
{
    static const int64_t rows[] = {1, 2, 3, 63, 64, 65, 130}, cols[] = {1, 3, 16, 64, 65, 200, 515};
    *p = (program){.n_in = 6};
    p->d.rows = rows[pick(ASP_COUNT_OF(rows))], p->d.cols = cols[pick(ASP_COUNT_OF(cols))];
    p->d.vals = p->vals, p->d.ops = p->ops;
    p->d.n_ops = 2 + (int)pick(20);
    p->d.n_vals = p->n_in + p->d.n_ops;
    static const asp_rowkind kinds[] = {ASP_ROW_FULL,   ASP_ROW_FULL, ASP_ROW_FULL,
                                        ASP_ROW_VECTOR, ASP_ROW_ROW,  ASP_ROW_NUMBER};
    for (int v = 0; v < p->n_in; v++) p->vals[v] = (asp_rowval){kinds[v], v};
    for (int i = 0; i < p->d.n_ops; i++) add_op(p, i);
    p->d.n_slots = p->n_in;
    for (int v = p->n_in; v < p->d.n_vals; v++)
        if (pick(3) == 0 || v == p->d.n_vals - 1) p->vals[v].slot = p->d.n_slots++;
    for (int v = 0; v < p->d.n_vals; v++) {
        p->data[v] = array(count(p, v));
        for (int64_t i = 0; v < p->n_in && i < count(p, v); i++) p->data[v][i] = number();
    }
    assert_null(asp_rowdesc_check(&p->d));
}

static void program_fini(program *p)
{
    for (int v = 0; v < p->d.n_vals; v++) array_free(p->data[v]);
}

static double element(const program *p, int v, int64_t r, int64_t c)
{
    const int64_t at[] = {r * p->d.cols + c, r, c, 0};
    return (double)p->data[v][at[p->vals[v].kind]];
}

static double op_of(const asp_rowinstr *o, double a, double b)
{
    const double value = (double)(float)o->value, s = 1 / (1 + exp(-a)), pi = acos(-1.0);
    const double normal = erfc(-a / sqrt(2)) / 2,
                 t = tanh(sqrt(2 / pi) * (a + .044715 * a * a * a));
    switch (o->op) {
    case ASP_ROWOP_copy: return a;
    case ASP_ROWOP_add: return a + b;
    case ASP_ROWOP_sub: return a - b;
    case ASP_ROWOP_mul: return a * b;
    case ASP_ROWOP_div: return a / b;
    case ASP_ROWOP_add_scalar: return a + value;
    case ASP_ROWOP_mul_scalar: return a * value;
    case ASP_ROWOP_neg: return -a;
    case ASP_ROWOP_exp: return exp(a);
    case ASP_ROWOP_rsqrt: return 1 / sqrt(a);
    case ASP_ROWOP_silu: return a * s;
    case ASP_ROWOP_silu_grad: return b * s * (1 + a * (1 - s));
    case ASP_ROWOP_relu: return a <= 0 ? 0 : a;
    case ASP_ROWOP_relu_grad: return a <= 0 ? 0 : b;
    case ASP_ROWOP_tanh: return tanh(a);
    case ASP_ROWOP_tanh_grad: return b * (1 - a * a);
    case ASP_ROWOP_sigmoid: return s;
    case ASP_ROWOP_sigmoid_grad: return b * a * (1 - a);
    case ASP_ROWOP_gelu: return a * normal;
    case ASP_ROWOP_gelu_grad: return b * (normal + a * exp(-a * a / 2) / sqrt(2 * pi));
    case ASP_ROWOP_gelu_tanh: return a / 2 * (1 + t);
    case ASP_ROWOP_gelu_tanh_grad:
        return b * ((1 + t) / 2 + a / 2 * (1 - t * t) * sqrt(2 / pi) * (1 + .134145 * a * a));
    case ASP_ROWOP_round_half: return (double)asp_from_bf16(asp_to_bf16((float)a));
    case ASP_ROWOP_load_half:
    case ASP_ROWOP_round_store:
    case ASP_ROWOP_store_half:
    case ASP_ROWOP_sum_cols:
    case ASP_ROWOP_sum_rows: break;
    }
    fail();
    return 0;
}

static void close_to(double got, double want, double scale)
{
    if (!isfinite(want) || fabs(want) > 1e38) return;
    if (fabs(got - want) > 2e-6 * scale + 1e-37) print_error("%.9g is not %.9g\n", got, want);
    assert_true(fabs(got - want) <= 2e-6 * scale + 1e-37);
}

// Where terms cancel, the error is relative to them.
static double scale_of(asp_rowop op, double a, double b, double want)
{
    switch ((int)op) {
    case ASP_ROWOP_silu_grad:
    case ASP_ROWOP_gelu_grad:
    case ASP_ROWOP_gelu_tanh_grad: return fabs(b);
    case ASP_ROWOP_silu: return fmax(fabs(want), 1.5e-31); // e^88.8 is infinite in f32
    case ASP_ROWOP_gelu:
    case ASP_ROWOP_gelu_tanh: return fabs(a);
    case ASP_ROWOP_tanh_grad:
    case ASP_ROWOP_sigmoid_grad: return fabs(b) * (1 + a * a);
    default: return fabs(want);
    }
}

// The result of op i, from the stored values before it, against double arithmetic.
static void check_op(const program *p, int i)
{
    const asp_rowinstr *o = &p->ops[i];
    const asp_rowkind kind = p->vals[o->out].kind;
    const int64_t rows = kind == ASP_ROW_FULL || kind == ASP_ROW_ROW ? p->d.rows : 1;
    const int64_t cols = kind == ASP_ROW_FULL || kind == ASP_ROW_VECTOR ? p->d.cols : 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0, scale = 0, got = element(p, o->out, r, c);
            if (o->op == ASP_ROWOP_sum_cols || o->op == ASP_ROWOP_sum_rows) {
                const bool across = o->op == ASP_ROWOP_sum_cols;
                for (int64_t j = 0; j < (across ? p->d.cols : p->d.rows); j++) {
                    double x = element(p, o->in[0], across ? r : j, across ? j : c);
                    sum += x;
                    scale += fabs(x);
                }
                close_to(got, sum, scale);
                continue;
            }
            double a = element(p, o->in[0], r, c), b = element(p, o->in[1], r, c);
            double want = op_of(o, a, b);
            close_to(got, want, scale_of(o->op, a, b, want));
        }
}

// Each op as a program of its own.
static void run_one_by_one(const program *p)
{
    for (int i = 0; i < p->d.n_ops; i++) {
        const asp_rowinstr *o = &p->ops[i];
        asp_rowval vals[3] = {p->vals[o->in[0]], p->vals[o->in[1]], p->vals[o->out]};
        asp_rowinstr one = {o->op, {0, 1}, 2, o->value};
        for (int k = 0; k < 3; k++) vals[k].slot = k;
        asp_rowdesc d = {p->d.rows, p->d.cols, 3, 3, 1, NULL, vals, &one};
        void *ptrs[] = {p->data[o->in[0]], p->data[o->in[1]], p->data[o->out]};
        run_on(asp_rowprog_build(&arena, &d, best_of_cpu()), ptrs, 1);
        check_guards(p->data[o->out], count(p, o->out));
        check_op(p, i);
    }
}

static void run_variant(const program *p, asp_isa isa, int64_t tile_cols, int64_t tile_rows,
                        bool join, int threads)
{
    void *ptrs[VALS] = {NULL};
    float *out[VALS] = {NULL};
    for (int v = 0; v < p->d.n_vals; v++) {
        if (v < p->n_in)
            ptrs[v] = p->data[v];
        else if (p->vals[v].slot >= 0)
            ptrs[p->vals[v].slot] = out[v] = array(count(p, v));
    }
    const asp_rowprog *prog =
        asp_rowprog_build_with(&arena, &p->d, isa, tile_cols, tile_rows, join);
    run_on(prog, ptrs, threads);
    for (int v = p->n_in; v < p->d.n_vals; v++) {
        if (!out[v]) continue;
        if (!same(out[v], p->data[v], count(p, v))) {
            asp_text t;
            asp_text_init(&t, &arena);
            asp_rowprog_print(prog, &t);
            print_error("value %d differs:\n%s", v, t.at);
        }
        assert_true(same(out[v], p->data[v], count(p, v)));
        check_guards(out[v], count(p, v));
        array_free(out[v]);
    }
}

static void programs_give_the_bits_of_their_ops(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i += SPARSE(5)) {
        program p;
        seed = (uint32_t)i + 77;
        program_init(&p);
        run_one_by_one(&p);
        for (asp_isa isa = ASP_ISA_GENERIC; isa <= best_of_cpu(); isa++) {
            run_variant(&p, isa, 0, 0, true, 1);
            run_variant(&p, isa, 0, 0, false, 1);
        }
        run_variant(&p, best_of_cpu(), 0, 0, true, 2);
        run_variant(&p, best_of_cpu(), 64, 0, true, 3);
        run_variant(&p, best_of_cpu(), 128, 2, true, 2);
        run_variant(&p, best_of_cpu(), 0, 8, false, 3);
        program_fini(&p);
        asp_arena_reset(&arena);
    }
}

// The program with the bf16 of its arrays as ops of their own: what an op stores as bf16 is rounded
// behind it, and what comes as bf16 is what it was rounded to before.
static void spell_out(const program *p, const bool *half, program *out)
{
    *out = *p;
    out->d.vals = out->vals, out->d.ops = out->ops;
    out->d.n_ops = 0;
    for (int i = 0; i < p->d.n_ops; i++) {
        asp_rowinstr o = p->ops[i];
        const int slot = p->vals[o.out].slot, v = o.out;
        const bool rounds = slot >= 0 && half[slot];
        if (rounds) {
            o.out = out->d.n_vals++;
            out->vals[o.out] = (asp_rowval){p->vals[v].kind, -1};
        }
        out->ops[out->d.n_ops++] = o;
        if (rounds)
            out->ops[out->d.n_ops++] =
                (asp_rowinstr){.op = ASP_ROWOP_round_half, .in = {o.out, o.out}, .out = v};
    }
}

static void check_half(program *p, const bool *half, int64_t tile_cols, int threads)
{
    program wide;
    void *ptrs[VALS] = {NULL}, *wide_ptrs[VALS] = {NULL};
    asp_rowdesc d = p->d;
    d.half = half;
    spell_out(p, half, &wide);
    for (int v = 0; v < p->d.n_vals; v++) {
        const int slot = p->vals[v].slot;
        if (slot < 0) continue;
        wide_ptrs[slot] = v < p->n_in ? p->data[v] : array(count(p, v));
        ptrs[slot] = v < p->n_in && !half[slot] ? p->data[v] : array(count(p, v));
        for (int64_t i = 0; v < p->n_in && half[slot] && i < count(p, v); i++) {
            ((uint16_t *)ptrs[slot])[i] = asp_to_bf16(p->data[v][i]);
            p->data[v][i] = asp_from_bf16(((uint16_t *)ptrs[slot])[i]);
        }
    }
    run_on(asp_rowprog_build(&arena, &wide.d, best_of_cpu()), wide_ptrs, 1);
    run_on(asp_rowprog_build_with(&arena, &d, best_of_cpu(), tile_cols, 0, threads > 1), ptrs,
           threads);
    for (int v = 0; v < p->d.n_vals; v++) {
        const int slot = p->vals[v].slot;
        if (slot < 0) continue;
        float *got = ptrs[slot], *want = wide_ptrs[slot];
        for (int64_t i = count(p, v); half[slot] && i-- > 0;) // over itself, from behind
            got[i] = asp_from_bf16(((const uint16_t *)ptrs[slot])[i]);
        assert_true(same(got, want, count(p, v)));
        check_guards(got, count(p, v));
        if (got != p->data[v]) array_free(got);
        if (want != p->data[v]) array_free(want);
    }
}

static void arrays_of_bf16_are_rounded_values(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        program p;
        bool half[VALS];
        seed = (uint32_t)i + 1234;
        program_init(&p);
        for (int s = 0; s < VALS; s++) half[s] = pick(2);
        check_half(&p, half, 0, 1 + i % 3);
        check_half(&p, half, 64, 2);
        program_fini(&p);
        asp_arena_reset(&arena);
    }
}

// Every output takes the memory of an input where that is allowed: the same bits.
static int run_in_place(const program *p, int64_t tile_cols, int threads)
{
    const asp_rowprog *prog =
        asp_rowprog_build_with(&arena, &p->d, best_of_cpu(), tile_cols, 0, true);
    void *ptrs[VALS] = {NULL};
    float *data[VALS] = {NULL};
    int taken = 0, used = 0;
    for (int v = 0; v < p->n_in; v++) {
        ptrs[v] = data[v] = array(count(p, v));
        memcpy(data[v], p->data[v], (size_t)count(p, v) * sizeof(float));
    }
    for (int v = p->n_in; v < p->d.n_vals; v++) {
        const int slot = p->vals[v].slot;
        for (int k = 0; slot >= 0 && !ptrs[slot] && k < p->n_in; k++) {
            if (used & 1 << k || !asp_rowprog_may_overwrite(prog, slot, k)) continue;
            used |= 1 << k;
            ptrs[slot] = data[k];
            taken++;
        }
        if (slot >= 0 && !ptrs[slot]) ptrs[slot] = data[v] = array(count(p, v));
    }
    run_on(prog, ptrs, threads);
    for (int v = p->n_in; v < p->d.n_vals; v++)
        if (p->vals[v].slot >= 0) assert_true(same(ptrs[p->vals[v].slot], p->data[v], count(p, v)));
    for (int v = 0; v < p->d.n_vals; v++)
        if (data[v]) array_free(data[v]);
    return taken;
}

static void outputs_may_take_the_place_of_inputs(void **state)
{
    (void)state;
    int taken = 0;
    for (int i = 0; i < 200; i += SPARSE(5)) {
        program p;
        seed = (uint32_t)i + 1977;
        program_init(&p);
        run_one_by_one(&p);
        taken += run_in_place(&p, 0, 1);
        taken += run_in_place(&p, 64, 3);
        program_fini(&p);
        asp_arena_reset(&arena);
    }
    assert_true(taken > 100 / SPARSE(5));
}

// (a op b) op c in every form: one primitive, the bits of two.
static void check_chain(asp_rowop first, asp_rowop second, bool swap, asp_rowkind b, asp_rowkind c)
{
    program p = {.n_in = 3, .d = {.rows = 3, .cols = 37, .n_slots = 4, .n_vals = 5, .n_ops = 2}};
    p.d.vals = p.vals, p.d.ops = p.ops;
    const asp_rowkind kinds[] = {ASP_ROW_FULL, b, c, ASP_ROW_FULL, ASP_ROW_FULL};
    for (int v = 0; v < 5; v++) {
        p.vals[v] = (asp_rowval){kinds[v], v < 3 ? v : v == 3 ? -1 : 3};
        p.data[v] = array(count(&p, v));
        for (int64_t i = 0; v < 3 && i < count(&p, v); i++) p.data[v][i] = number();
    }
    p.ops[0] = (asp_rowinstr){first, {0, 1}, 3, 0};
    p.ops[1] = (asp_rowinstr){second, {swap ? 2 : 3, swap ? 3 : 2}, 4, 0};
    asp_text t;
    asp_text_init(&t, &arena);
    asp_rowprog_print(asp_rowprog_build(&arena, &p.d, best_of_cpu()), &t);
    assert_non_null(strstr(t.at, "$3 = "));
    assert_null(strstr(t.at, "f3"));
    run_one_by_one(&p);
    for (asp_isa isa = ASP_ISA_GENERIC; isa <= best_of_cpu(); isa++)
        run_variant(&p, isa, 0, 0, true, 1);
    program_fini(&p);
    asp_arena_reset(&arena);
}

static void chains_keep_every_rounding(void **state)
{
    (void)state;
    static const asp_rowop ops[] = {ASP_ROWOP_add, ASP_ROWOP_sub, ASP_ROWOP_mul};
    for (int i = 0; i < 3 * 3 * 2 * 4 * 4; i++)
        check_chain(ops[i % 3], ops[i / 3 % 3], i / 9 % 2, (asp_rowkind)(i / 18 % 4),
                    (asp_rowkind)(i / 72));
}

// The derivative of a norm with the residual's: its end and the sum for the gain are one primitive
// each, with the bits of their ops.
static void norm_grad_keeps_every_rounding(void **state)
{
    (void)state;
    enum { X, DY, D, W, R, S, XR, M, DW, G, GX, DR, T, A, U, V, Y, N };
    static const asp_rowkind kinds[N] = {[W] = ASP_ROW_VECTOR,
                                         [R] = ASP_ROW_ROW,
                                         [S] = ASP_ROW_ROW,
                                         [DW] = ASP_ROW_VECTOR,
                                         [DR] = ASP_ROW_ROW};
    static const asp_rowinstr ops[] = {
        {ASP_ROWOP_mul, {X, R}, XR, 0},   {ASP_ROWOP_mul, {XR, DY}, M, 0},
        {ASP_ROWOP_sum_rows, {M}, DW, 0}, {ASP_ROWOP_mul, {DY, W}, G, 0},
        {ASP_ROWOP_mul, {G, X}, GX, 0},   {ASP_ROWOP_sum_cols, {GX}, DR, 0},
        {ASP_ROWOP_mul, {S, X}, T, 0},    {ASP_ROWOP_mul, {G, R}, A, 0},
        {ASP_ROWOP_add, {A, T}, U, 0},    {ASP_ROWOP_add, {U, T}, V, 0},
        {ASP_ROWOP_add, {V, D}, Y, 0}};
    program p = {.n_in = 6, .d = {.rows = 70, .cols = 37, .n_slots = 9, .n_vals = N, .n_ops = 11}};
    p.d.vals = p.vals, p.d.ops = p.ops;
    memcpy(p.ops, ops, sizeof ops);
    for (int v = 0; v < N; v++) {
        p.vals[v] = (asp_rowval){kinds[v], v < 6 ? v : v == DW ? 6 : v == Y ? 7 : v == DR ? 8 : -1};
        p.data[v] = array(count(&p, v));
        for (int64_t i = 0; v < 6 && i < count(&p, v); i++) p.data[v][i] = number();
    }
    asp_text t;
    asp_text_init(&t, &arena);
    asp_rowprog_print(asp_rowprog_build(&arena, &p.d, best_of_cpu()), &t);
    assert_non_null(strstr(t.at, "$7 = norm_grad f9, $4, $0, $5, $2\n"));
    assert_non_null(strstr(t.at, "$6 = mul.mul.sum_rows $0, $4, $1\n"));
    run_one_by_one(&p);
    for (asp_isa isa = ASP_ISA_GENERIC; isa <= best_of_cpu(); isa++)
        for (int threads = 1; threads <= 3; threads++) run_variant(&p, isa, 0, 0, true, threads);
    program_fini(&p);
    asp_arena_reset(&arena);
}

// ---- hand values and known groups --------------------------------------------------------------

static int F(asp_rowval *v, int *n, asp_rowkind kind, int slot)
{
    v[*n] = (asp_rowval){kind, slot};
    return (*n)++;
}

// y = x r w with r = 1 / sqrt(mean(x^2) + eps); x = (3, 4, 0, 0): mean 6.25, r = 0.4
static void rms_norm_by_hand(void **state)
{
    (void)state;
    asp_rowval v[16];
    int n = 0, x = F(v, &n, ASP_ROW_FULL, 0), w = F(v, &n, ASP_ROW_VECTOR, 1),
        sq = F(v, &n, ASP_ROW_FULL, -1), sum = F(v, &n, ASP_ROW_ROW, -1),
        mean = F(v, &n, ASP_ROW_ROW, -1), r = F(v, &n, ASP_ROW_ROW, -1),
        u = F(v, &n, ASP_ROW_FULL, -1), y = F(v, &n, ASP_ROW_FULL, 2);
    const asp_rowinstr ops[] = {{ASP_ROWOP_mul, {x, x}, sq, 0},
                                {ASP_ROWOP_sum_cols, {sq}, sum, 0},
                                {ASP_ROWOP_mul_scalar, {sum}, mean, 0.25},
                                {ASP_ROWOP_rsqrt, {mean}, r, 0},
                                {ASP_ROWOP_mul, {x, r}, u, 0},
                                {ASP_ROWOP_mul, {u, w}, y, 0}};
    const asp_rowdesc d = {2, 4, 3, n, 6, NULL, v, ops};
    float in[] = {3, 4, 0, 0, 6, 0, 8, 0}, weight[] = {1, 2, 3, 4}, out[8];
    const float want[] = {1.2f, 3.2f, 0, 0, 1.2f, 0, 4.8f, 0};
    void *ptrs[] = {in, weight, out};
    const asp_rowprog *p = asp_rowprog_build(&arena, &d, best_of_cpu());
    run_on(p, ptrs, 1);
    for (int i = 0; i < 8; i++) assert_float_equal(out[i], want[i], 1e-6f);
    assert_int_equal(asp_rowprog_traffic_bytes(p), 4 * (8 + 4 + 8));
    asp_text t;
    asp_text_init(&t, &arena);
    asp_rowprog_print(p, &t);
    assert_string_equal(t.at, "2 x 4 in tiles of 512 x 4, 80 bytes\n"
                              "  stage 0\n"
                              "    r3 = mul.sum_cols $0, $0\n"
                              "    r3 = tree r3\n"
                              "  stage 1\n"
                              "    r4 = mul r3, 0.25\n"
                              "    r5 = rsqrt r4\n"
                              "    $2 = mul.mul $0, r5, $1\n");
    asp_arena_reset(&arena);
}

// The backward of silu(g) * u: one primitive makes both gradients.
static void swiglu_is_joined(void **state)
{
    (void)state;
    asp_rowval v[16];
    int n = 0, g = F(v, &n, ASP_ROW_FULL, 0), u = F(v, &n, ASP_ROW_FULL, 1),
        dy = F(v, &n, ASP_ROW_FULL, 2), s = F(v, &n, ASP_ROW_FULL, -1),
        du = F(v, &n, ASP_ROW_FULL, 3), ds = F(v, &n, ASP_ROW_FULL, -1),
        dg = F(v, &n, ASP_ROW_FULL, 4);
    const asp_rowinstr ops[] = {{ASP_ROWOP_silu, {g}, s, 0},
                                {ASP_ROWOP_mul, {dy, s}, du, 0},
                                {ASP_ROWOP_mul, {dy, u}, ds, 0},
                                {ASP_ROWOP_silu_grad, {g, ds}, dg, 0}};
    const asp_rowdesc d = {3, 5, 5, n, 4, NULL, v, ops};
    asp_text t;
    asp_text_init(&t, &arena);
    asp_rowprog_print(asp_rowprog_build(&arena, &d, best_of_cpu()), &t);
    assert_string_equal(t.at, "1 x 15 in tiles of 128 x 15, 300 bytes\n"
                              "  stage 0\n"
                              "    $4, $3 = silu_grad.mul+silu.mul $0, $2, $1\n");
    asp_arena_reset(&arena);
}

static void unsound_descriptions_are_named(void **state)
{
    (void)state;
    const asp_rowval v[] = {{ASP_ROW_FULL, 0}, {ASP_ROW_VECTOR, -1}, {ASP_ROW_FULL, 1}};
    const asp_rowinstr ops[] = {{ASP_ROWOP_sum_rows, {0}, 1, 0}, {ASP_ROWOP_add, {0, 1}, 2, 0}};
    asp_rowdesc d = {4, 4, 2, 3, 2, NULL, v, ops};
    assert_string_equal(asp_rowdesc_check(&d), "a row depends on a sum over rows");
    d.ops = &ops[1], d.n_ops = 1;
    assert_string_equal(asp_rowdesc_check(&d), "read before it is made");
}

// ---- single ops of the graph -------------------------------------------------------------------

static void shape(asp_tensor *t, int rank, const int64_t *dim)
{
    *t = (asp_tensor){.dtype = ASP_F32, .rank = rank};
    memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
}

static void single_ops_are_wrapped(void **state)
{
    (void)state;
    asp_kcall k = {.n_in = 2, .n_out = 1};
    asp_rowdesc d;
    const int64_t big[] = {2, 3, 4, 5};
    shape(&k.in[0], 4, big);
    shape(&k.out[0], 4, big);
    shape(&k.in[1], 1, (int64_t[]){5});
    assert_true(asp_rowdesc_wrap(&arena, ASP_OP_mul, &k, &d));
    assert_int_equal(d.rows, 24);
    assert_int_equal(d.vals[1].kind, ASP_ROW_VECTOR);
    shape(&k.in[1], 4, (int64_t[]){2, 3, 4, 1});
    assert_true(asp_rowdesc_wrap(&arena, ASP_OP_mul, &k, &d));
    assert_int_equal(d.cols, 5);
    assert_int_equal(d.vals[1].kind, ASP_ROW_ROW);
    shape(&k.in[1], 4, (int64_t[]){2, 1, 4, 1}); // neither rows nor columns
    assert_false(asp_rowdesc_wrap(&arena, ASP_OP_mul, &k, &d));
    shape(&k.in[1], 0, big);
    assert_true(asp_rowdesc_wrap(&arena, ASP_OP_mul, &k, &d));
    assert_int_equal(d.vals[1].kind, ASP_ROW_NUMBER);
    k.in[1].dtype = ASP_F64;
    assert_false(asp_rowdesc_wrap(&arena, ASP_OP_mul, &k, &d));

    asp_sum_attr leading = {.dims = {.n = 3, .at = {0, 1, 2}}}, middle = {.dims = {1, {1}}},
                 all = {.dims = {.n = 4, .at = {0, 1, 2, 3}}}, last = {.dims = {1, {3}}};
    k.n_in = 1;
    k.attr = &leading;
    assert_true(asp_rowdesc_wrap(&arena, ASP_OP_sum, &k, &d));
    assert_int_equal(d.ops[0].op, ASP_ROWOP_sum_rows);
    assert_int_equal(d.rows, 24);
    k.attr = &last;
    assert_true(asp_rowdesc_wrap(&arena, ASP_OP_sum, &k, &d));
    assert_int_equal(d.ops[0].op, ASP_ROWOP_sum_cols);
    k.attr = &middle;
    assert_false(asp_rowdesc_wrap(&arena, ASP_OP_sum, &k, &d));
    k.attr = &all;
    assert_true(asp_rowdesc_wrap(&arena, ASP_OP_sum, &k, &d));
    float x[120], y = 0;
    for (int i = 0; i < 120; i++) x[i] = (float)i;
    run_on(asp_rowprog_build(&arena, &d, best_of_cpu()), (void *[]){x, &y}, 2);
    assert_float_equal(y, 7140.0f, 0.0f);
    asp_arena_reset(&arena);
}

int main(void)
{
    asp_ctx_init(&cx);
    asp_arena_init(&arena, &cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm_by_hand),
        cmocka_unit_test(swiglu_is_joined),
        cmocka_unit_test(chains_keep_every_rounding),
        cmocka_unit_test(norm_grad_keeps_every_rounding),
        cmocka_unit_test(programs_give_the_bits_of_their_ops),
        cmocka_unit_test(arrays_of_bf16_are_rounded_values),
        cmocka_unit_test(outputs_may_take_the_place_of_inputs),
        cmocka_unit_test(unsound_descriptions_are_named),
        cmocka_unit_test(single_ops_are_wrapped),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    asp_arena_fini(&arena);
    return failed;
}
