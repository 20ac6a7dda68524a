// The kernels of row-wise ops outside row programs: reference kernels on hand values and closed
// forms, fast ones against them on random shapes, threads and levels bit for bit.  Cases 1 to 4 and
// 20 of the acceptance list.  SPDX-License-Identifier: Apache-2.0
#include "base/half.h"
#include "kern/kern.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define CANARY 0x5a
#define GUARD 64 // bytes before and after a result

static asp_ctx cx;
static uint32_t seed = 1;

static int64_t pick(int64_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)((seed >> 8) % (uint32_t)n);
}
static double number(void) { return (double)(pick(20001) - 10000) / 5000.0; }

static int64_t bytes_of(const asp_tensor *t)
{
    return asp_tensor_count(t) * asp_dtypes[t->dtype].bytes;
}

static void *aligned(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)asp_round_up(bytes + 1, 64));
    assert_non_null(p);
    return p;
}

static asp_tensor tensor(asp_dtype dtype, int rank, const int64_t *dim)
{
    asp_tensor t = {.dtype = dtype, .rank = rank};
    memcpy(t.dim, dim, (size_t)rank * sizeof *dim);
    char *data = aligned(bytes_of(&t) + 2 * GUARD);
    memset(data, CANARY, (size_t)bytes_of(&t) + 2 * GUARD);
    t.data = data + GUARD;
    return t;
}
#define TENSOR(dtype, ...) \
    tensor(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]){__VA_ARGS__})
#define SCALAR(dtype) tensor(dtype, 0, (const int64_t[]){0})

static void tensor_free(asp_tensor *t)
{
    const char *data = t->data;
    for (int i = 1; i <= GUARD; i++) {
        assert_int_equal(data[-i], CANARY);
        assert_int_equal(data[bytes_of(t) + i - 1], CANARY);
    }
    free((char *)t->data - GUARD);
}

static double get(const asp_tensor *t, int64_t i)
{
    if (t->dtype == ASP_F32) return (double)((float *)t->data)[i];
    if (t->dtype == ASP_BF16) return (double)asp_from_bf16(((uint16_t *)t->data)[i]);
    return t->dtype == ASP_F64 ? ((double *)t->data)[i] : (double)((int64_t *)t->data)[i];
}
static void put(const asp_tensor *t, int64_t i, double x)
{
    if (t->dtype == ASP_F32)
        ((float *)t->data)[i] = (float)x;
    else if (t->dtype == ASP_BF16)
        ((uint16_t *)t->data)[i] = asp_to_bf16((float)x);
    else if (t->dtype == ASP_F64)
        ((double *)t->data)[i] = x;
    else
        ((int64_t *)t->data)[i] = (int64_t)x;
}
static void set(const asp_tensor *t, const double *x)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++) put(t, i, x[i]);
}
static void fill(const asp_tensor *t)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++) put(t, i, number());
}
static void fill_ids(const asp_tensor *t, int64_t below, int64_t ignore)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++)
        put(t, i, (double)(ignore && pick(3) == 0 ? ignore : pick(below)));
}

typedef struct job {
    const asp_kern_row *row;
    const asp_kcall *call;
} job;
static void run_job(void *arg, asp_worker *w)
{
    const job *j = arg;
    j->row->fn(j->call, w);
}

static void run_row(const asp_kern_row *row, asp_kcall *k, int threads)
{
    asp_team *team;
    k->work_bytes = row->work ? row->work(k, threads) : 0;
    k->work = aligned(k->work_bytes);
    job j = {row, k};
    assert_int_equal(asp_team_create(&cx, threads, -1, &team), ASP_OK);
    asp_team_run(team, run_job, &j);
    asp_team_destroy(team);
    free(k->work);
}
static void run_ref(asp_op op, asp_kcall *k) { run_row(asp_kern_ref(op), k, 1); }

static void free_call(asp_kcall *k)
{
    for (int i = 0; i < k->n_in; i++) tensor_free(&k->in[i]);
    for (int i = 0; i < k->n_out; i++) tensor_free(&k->out[i]);
}

static void expect(const asp_tensor *t, const double *want, double tolerance)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++)
        if (!(fabs(get(t, i) - want[i]) <= tolerance)) {
            print_error("element %lld is %.17g, not %.17g\n", (long long)i, get(t, i), want[i]);
            fail();
        }
}

// ---- hand values -------------------------------------------------------------------------------

// The reference on f64 and f32, then what each level has: each must give the values.
typedef struct variant {
    int i;
    bool exists;
    asp_dtype dtype;
    bool is_ref;
    asp_isa level;
    double eps;
} variant;

static variant variant_at(int i)
{
    const asp_isa level = i < 2 ? ASP_ISA_GENERIC : (asp_isa)(i - 2);
    return (variant){i,     level <= asp_isa_best(), i ? ASP_F32 : ASP_F64, i < 2,
                     level, i ? 2e-6 : 1e-13};
}
#define EACH_VARIANT(v) for (variant v = variant_at(0); v.exists; v = variant_at(v.i + 1))

static void run_at(const variant *v, asp_op op, asp_kcall *k)
{
    run_row(v->is_ref ? asp_kern_ref(op) : asp_kern_choose_at(op, v->dtype, v->level), k, 2);
}

// Logits of the acceptance toys: log-probabilities, the label's being -loss.
static void nll_toy(asp_dtype dtype, const double *losses, asp_kcall *k)
{
    static const asp_nll_attr attr = {.ignore = -100};
    *k = (asp_kcall){.attr = &attr, .n_in = 2, .n_out = 2};
    k->in[0] = TENSOR(dtype, 1, 8, 3);
    k->in[1] = TENSOR(ASP_I64, 1, 8);
    k->out[0] = SCALAR(dtype);
    k->out[1] = TENSOR(dtype, 1, 8);
    for (int t = 0; t < 8; t++) {
        const int label = t % 3;
        const bool valid = losses[t] > 0;
        const double loss = valid ? losses[t] : 2, rest = log((1 - exp(-loss)) / 2);
        for (int v = 0; v < 3; v++) put(&k->in[0], t * 3 + v, v == label ? -loss : rest);
        put(&k->in[1], t, valid ? label : -100);
    }
}

// Cases 1 to 4: sums 34, 19, 6 and 0 over 7, 4, 1 and 0 labels; lse is 0.
static void losses_of_the_toys(void **state)
{
    (void)state;
    static const double toys[4][8] = {
        {1, 2, 3, 10, 5, 6, 7, 0}, {1, 0, 0, 0, 5, 6, 7, 0}, {0, 0, 0, 0, 0, 6, 0, 0}, {0}};
    static const double sums[] = {34, 19, 6, 0};
    const double zeros[8] = {0};
    EACH_VARIANT(t)
    {
        for (int c = 0; c < 4; c++) {
            asp_kcall k;
            nll_toy(t.dtype, toys[c], &k);
            run_at(&t, ASP_OP_nll, &k);
            expect(&k.out[0], &sums[c], 10 * t.eps);
            expect(&k.out[1], zeros, t.eps);
            free_call(&k);
        }
    }
}

// Weight 1/7 in valid rows; exactly 0 in ignored ones, even from an infinite or NaN cotangent.
static void loss_gradients_of_the_toys(void **state)
{
    (void)state;
    static const double losses[8] = {1, 2, 0, 10, 5, 6, 7, 0};
    static const double seeds[] = {1.0 / 7, HUGE_VAL, (double)NAN};
    EACH_VARIANT(t)
    {
        for (int c = 0; c < 3; c++) {
            asp_kcall k;
            nll_toy(t.dtype, losses, &k);
            k.n_in = 4;
            k.n_out = 1;
            k.in[2] = k.in[1];
            k.in[1] = k.out[1];
            fill_ids(&k.in[1], 1, 0); // lse 0
            k.in[3] = k.out[0];
            put(&k.in[3], 0, seeds[c]);
            k.out[0] = TENSOR(t.dtype, 1, 8, 3);
            run_at(&t, ASP_OP_nll_grad, &k);
            for (int s = 0; s < 8; s++)
                for (int v = 0; v < 3; v++) {
                    const double y = get(&k.out[0], s * 3 + v), p = exp(get(&k.in[0], s * 3 + v));
                    if (losses[s] <= 0)
                        assert_true(y == 0);
                    else if (c == 0)
                        assert_true(fabs(y - (p - (v == s % 3)) / 7) < t.eps);
                }
            free_call(&k);
        }
    }
}

// Case 20: with one radian a position, token 5 turns by 5 and, from offset 100, by 105.
static void angles_of_positions(void **state)
{
    (void)state;
    const asp_rope_table_attr attr = {.head_dim = 2, .theta = 10000, .scaling = ""};
    const double cosines[] = {.283662185463, -.240959049236}, one = .540302305868;
    asp_kcall k = {.attr = &attr, .n_in = 1, .n_out = 2};
    k.in[0] = TENSOR(ASP_I64, 3);
    k.out[0] = TENSOR(ASP_F64, 3, 1);
    k.out[1] = TENSOR(ASP_F64, 3, 1);
    set(&k.in[0], (double[]){5, 105, 1});
    run_ref(ASP_OP_rope_table, &k);
    expect(&k.out[0], (double[]){cosines[0], cosines[1], one}, 1e-11);
    expect(&k.out[1], (double[]){sin(5), sin(105), sin(1)}, 1e-12);
    free_call(&k);
}

// theta 16, head 8: frequencies 1, 1/2, 1/4, 1/8, wavelengths 2 pi (1, 2, 4, 8).  Kept up to 4 pi
// (there smooth = 1), divided from 16 pi on (smooth = 0), in between at 8 pi smooth = 1/3.
static void llama3_scaling_by_hand(void **state)
{
    (void)state;
    const double pi = acos(-1.0);
    const asp_rope_table_attr attr = {.head_dim = 8,
                                      .theta = 16,
                                      .scaling = "llama3",
                                      .factor = 8,
                                      .low = 1000 / (16 * pi),
                                      .high = 1000 / (4 * pi),
                                      .original = 1000};
    asp_kcall k = {.attr = &attr, .n_in = 1, .n_out = 2};
    k.in[0] = TENSOR(ASP_I64, 1);
    k.out[0] = TENSOR(ASP_F64, 1, 4);
    k.out[1] = TENSOR(ASP_F64, 1, 4);
    set(&k.in[0], (double[]){1});
    run_ref(ASP_OP_rope_table, &k);
    const double third = (2.0 / 3) * .25 / 8 + .25 / 3;
    expect(&k.out[1], (double[]){sin(1), sin(.5), sin(third), sin(1.0 / 64)}, 1e-14);
    free_call(&k);
}

// Halves rotate against each other: (1, 0 | 0, 2) by (90, 180) degrees is (0, 0 | 1, -2); back it
// is what it was.
static void rotary_by_hand(void **state)
{
    (void)state;
    EACH_VARIANT(t)
    {
        asp_rotary_attr attr = {.inverse = false};
        asp_kcall k = {.attr = &attr, .n_in = 3, .n_out = 1};
        k.in[0] = TENSOR(t.dtype, 1, 1, 1, 4);
        k.in[1] = TENSOR(t.dtype, 1, 2);
        k.in[2] = TENSOR(t.dtype, 1, 2);
        k.out[0] = TENSOR(t.dtype, 1, 1, 1, 4);
        set(&k.in[0], (double[]){1, 0, 0, 2});
        set(&k.in[1], (double[]){0, -1});
        set(&k.in[2], (double[]){1, 0});
        run_at(&t, ASP_OP_rotary, &k);
        expect(&k.out[0], (double[]){0, 0, 1, -2}, t.eps);
        attr.inverse = true;
        memcpy(k.in[0].data, k.out[0].data, (size_t)bytes_of(&k.in[0]));
        run_at(&t, ASP_OP_rotary, &k);
        expect(&k.out[0], (double[]){1, 0, 0, 2}, t.eps);
        free_call(&k);
    }
}

static void integers_by_hand(void **state)
{
    (void)state;
    const asp_shift_attr shift = {.by = 1, .fill = -100, .dim = -1};
    asp_kcall k = {.attr = &shift, .n_in = 1, .n_out = 1};
    k.in[0] = TENSOR(ASP_I64, 2, 3);
    k.out[0] = TENSOR(ASP_I64, 2, 3);
    set(&k.in[0], (double[]){1, 2, 3, 4, 5, 6});
    run_ref(ASP_OP_shift, &k);
    expect(&k.out[0], (double[]){2, 3, -100, 5, 6, -100}, 0);
    const asp_labels_attr labels = {.ignore = -100};
    asp_kcall c = {.attr = &labels, .n_in = 1, .n_out = 1, .in = {k.out[0]}};
    c.out[0] = SCALAR(ASP_I64);
    run_ref(ASP_OP_count_valid, &c);
    expect(&c.out[0], (double[]){4}, 0);
    const asp_cast_attr to = {.to = ASP_F32};
    asp_kcall f = {.attr = &to, .n_in = 1, .n_out = 1, .in = {c.out[0]}};
    f.out[0] = SCALAR(ASP_F32);
    run_ref(ASP_OP_cast, &f);
    expect(&f.out[0], (double[]){4}, 0);
    const asp_iota_attr iota = {.start = 7};
    asp_kcall i = {.attr = &iota, .n_out = 1, .out = {TENSOR(ASP_I64, 3)}};
    run_ref(ASP_OP_iota, &i);
    expect(&i.out[0], (double[]){7, 8, 9}, 0);
    const asp_constant_attr constant = {.value = 2.5};
    asp_kcall v = {.attr = &constant, .n_out = 1, .out = {TENSOR(ASP_F64, 2)}};
    run_ref(ASP_OP_constant, &v);
    expect(&v.out[0], (double[]){2.5, 2.5}, 0);
    free_call(&k);
    tensor_free(&c.out[0]);
    tensor_free(&f.out[0]);
    free_call(&i);
    free_call(&v);
}

// x = 0 .. 11 in (2, 3, 2).
static asp_kcall counting(asp_dtype dtype, const void *attr, asp_tensor out)
{
    asp_kcall k = {.attr = attr, .n_in = 1, .n_out = 1, .rank = 1, .ranks = 2, .out = {out}};
    k.in[0] = TENSOR(dtype, 2, 3, 2);
    for (int i = 0; i < 12; i++) put(&k.in[0], i, i);
    return k;
}

#define MOVES(op, row, attr_value, result, ...)         \
    EACH_VARIANT(t)                                     \
    {                                                   \
        const asp_##row##_attr attr = attr_value;       \
        asp_kcall k = counting(t.dtype, &attr, result); \
        run_at(&t, ASP_OP_##op, &k);                    \
        expect(&k.out[0], (double[]){__VA_ARGS__}, 0);  \
        free_call(&k);                                  \
    }
#define ATTR(...)   \
    {               \
        __VA_ARGS__ \
    }

static void moves_by_hand(void **state)
{
    (void)state;
    MOVES(permute, permute, ATTR(.perm = {3, {1, 0, 2}}), TENSOR(t.dtype, 3, 2, 2), 0, 1, 6, 7, 2,
          3, 8, 9, 4, 5, 10, 11)
    MOVES(permute, permute, ATTR(.perm = {3, {2, 1, 0}}), TENSOR(t.dtype, 2, 3, 2), 0, 6, 2, 8, 4,
          10, 1, 7, 3, 9, 5, 11)
    MOVES(repeat, repeat, ATTR(.dim = 0, .times = 2), TENSOR(t.dtype, 4, 3, 2), 0, 1, 2, 3, 4, 5, 0,
          1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 6, 7, 8, 9, 10, 11)
    MOVES(sum_groups, repeat, ATTR(.dim = 0, .times = 2), TENSOR(t.dtype, 1, 3, 2), 6, 8, 10, 12,
          14, 16)
    MOVES(sum_groups, repeat, ATTR(.dim = 2, .times = 2), TENSOR(t.dtype, 2, 3, 1), 1, 5, 9, 13, 17,
          21)
    MOVES(shard_slice, part, ATTR(.dim = 2, .ranks = 2, .fill = INT64_MIN),
          TENSOR(t.dtype, 2, 3, 1), 1, 3, 5, 7, 9, 11)
    MOVES(shard_slice, part, ATTR(.dim = 0, .ranks = 2, .fill = INT64_MIN),
          TENSOR(t.dtype, 1, 3, 2), 6, 7, 8, 9, 10, 11)
    // The test is rank 1 of 2: of 3 rows it has the last one and a tail.
    MOVES(shard_slice, part, ATTR(.dim = 1, .ranks = 2, .fill = INT64_MIN),
          TENSOR(t.dtype, 2, 2, 2), 4, 5, 4, 5, 10, 11, 10, 11)
    MOVES(shard_slice, part, ATTR(.dim = 1, .ranks = 2, .fill = -7), TENSOR(t.dtype, 2, 2, 2), 4, 5,
          -7, -7, 10, 11, -7, -7)
    MOVES(sum, sum, ATTR(.dims = {2, {0, 2}}), TENSOR(t.dtype, 3), 14, 22, 30)
    MOVES(sum, sum, ATTR(.dims = {1, {1}}, .keep = true), TENSOR(t.dtype, 2, 1, 2), 6, 9, 24, 27)
}

static void table_by_hand(void **state)
{
    (void)state;
    EACH_VARIANT(t)
    {
        asp_kcall k = {.n_in = 2, .n_out = 1};
        k.in[0] = TENSOR(ASP_I64, 4);
        k.in[1] = TENSOR(t.dtype, 3, 2);
        k.out[0] = TENSOR(t.dtype, 4, 2);
        set(&k.in[0], (double[]){2, 0, 2, 2});
        set(&k.in[1], (double[]){1, 2, 3, 4, 5, 6});
        run_at(&t, ASP_OP_embedding, &k);
        expect(&k.out[0], (double[]){5, 6, 1, 2, 5, 6, 5, 6}, t.eps);
        asp_rows_attr rows = {.padding = -1};
        asp_kcall g = {.attr = &rows, .n_in = 2, .n_out = 1, .in = {k.out[0], k.in[0]}};
        g.out[0] = TENSOR(t.dtype, 3, 2);
        run_at(&t, ASP_OP_embedding_grad, &g);
        expect(&g.out[0], (double[]){1, 2, 0, 0, 15, 18}, t.eps);
        rows.padding = 2;
        run_at(&t, ASP_OP_embedding_grad, &g);
        expect(&g.out[0], (double[]){1, 2, 0, 0, 0, 0}, t.eps);
        tensor_free(&g.out[0]);
        free_call(&k);
    }
}

static void pointwise_by_hand(void **state)
{
    (void)state;
    asp_kcall k = {.n_in = 2, .n_out = 1};
    k.in[0] = TENSOR(ASP_F64, 2, 2);
    k.in[1] = TENSOR(ASP_F64, 2, 1);
    k.out[0] = TENSOR(ASP_F64, 2, 2);
    set(&k.in[0], (double[]){1, 2, 3, 4});
    set(&k.in[1], (double[]){10, 20});
    run_ref(ASP_OP_sub, &k);
    expect(&k.out[0], (double[]){-9, -8, -17, -16}, 0);
    run_ref(ASP_OP_div, &k);
    expect(&k.out[0], (double[]){.1, .2, .15, .2}, 1e-16);
    const double s1 = 1 / (1 + exp(-1.0)), s2 = 1 / (1 + exp(-2.0));
    k.n_in = 1;
    run_ref(ASP_OP_silu, &k);
    assert_true(fabs(get(&k.out[0], 1) - 2 * s2) < 1e-15);
    run_ref(ASP_OP_rsqrt, &k);
    assert_true(fabs(get(&k.out[0], 3) - .5) < 1e-16);
    k.n_in = 2;
    run_ref(ASP_OP_silu_grad, &k);
    assert_true(fabs(get(&k.out[0], 0) - 10 * s1 * (2 - s1)) < 1e-14);
    free_call(&k);
}

// ---- fast against reference --------------------------------------------------------------------

static void random_call(asp_op op, asp_dtype dtype, asp_kcall *k, void *attr)
{
    const int64_t a = 1 + pick(4), b = 1 + pick(5), c = 1 + pick(9), d = 1 + pick(70);
    *k = (asp_kcall){.attr = attr, .n_in = 1, .n_out = 1};
    const int64_t dims[] = {a, b, c, d};
    if (op == ASP_OP_permute) {
        asp_permute_attr *p = attr;
        *p = (asp_permute_attr){.perm = {4, {0, 1, 2, 3}}};
        for (int i = 3; i > 0; i--) {
            const int64_t j = pick(i + 1), t = p->perm.at[i];
            p->perm.at[i] = p->perm.at[j], p->perm.at[j] = t;
        }
        if (pick(2)) p->perm = (asp_ints){4, {0, 2, 1, 3}};
        int64_t out[4];
        for (int i = 0; i < 4; i++) out[i] = dims[p->perm.at[i]];
        k->in[0] = tensor(dtype, 4, dims);
        k->out[0] = tensor(dtype, 4, out);
    } else if (op == ASP_OP_repeat || op == ASP_OP_sum_groups) {
        asp_repeat_attr *r = attr;
        *r = (asp_repeat_attr){.dim = pick(4), .times = 1 + pick(4)};
        int64_t big[] = {a, b, c, d};
        big[r->dim] *= r->times;
        k->in[0] = tensor(dtype, 4, op == ASP_OP_repeat ? dims : big);
        k->out[0] = tensor(dtype, 4, op == ASP_OP_repeat ? big : dims);
    } else if (op == ASP_OP_shard_slice) {
        asp_part_attr *s = attr;
        *s = (asp_part_attr){.dim = pick(4), .ranks = 1 + pick(4), .fill = INT64_MIN};
        int64_t big[] = {a, b, c, d}, room = big[s->dim];
        big[s->dim] = room * s->ranks - (room > 1 ? pick(s->ranks) : 0);
        k->ranks = (int)s->ranks, k->rank = (int)pick(s->ranks);
        k->in[0] = tensor(dtype, 4, big);
        k->out[0] = tensor(dtype, 4, dims);
    } else if (op == ASP_OP_rotary) {
        asp_rotary_attr *r = attr;
        *r = (asp_rotary_attr){.inverse = pick(2)};
        k->n_in = 3;
        k->in[0] = TENSOR(dtype, a, b, c, 2 * d);
        const bool batched = pick(2);
        for (int i = 1; i < 3; i++)
            k->in[i] = batched ? TENSOR(dtype, a, c, d) : TENSOR(dtype, c, d);
        k->out[0] = TENSOR(dtype, a, b, c, 2 * d);
    } else if (op == ASP_OP_nll || op == ASP_OP_nll_grad) {
        asp_nll_attr *n = attr;
        const bool grad = op == ASP_OP_nll_grad, d_lse = grad && pick(2);
        const int64_t V = 1 + pick(300);
        *n = (asp_nll_attr){.ignore = -100, .rows = pick(2), .weighted = pick(2)};
        if (pick(2)) n->smoothing = .1;
        if (pick(2)) n->softcap = .7;
        const asp_tensor loss = n->rows ? TENSOR(dtype, a, b * c) : SCALAR(dtype);
        k->n_in = grad ? 4 : 2;
        k->in[0] = TENSOR(dtype, a, b * c, V);
        k->in[grad ? 2 : 1] = TENSOR(ASP_I64, a, b * c);
        fill_ids(&k->in[grad ? 2 : 1], V, -100);
        if (grad) {
            k->in[1] = TENSOR(dtype, a, b * c);
            k->in[3] = loss;
            if (d_lse) k->in[k->n_in++] = TENSOR(dtype, a, b * c);
            k->out[0] = TENSOR(dtype, a, b * c, V);
        } else {
            k->n_out = 2;
            k->out[0] = loss;
            k->out[1] = TENSOR(dtype, a, b * c);
        }
        if (n->weighted) k->in[k->n_in++] = TENSOR(dtype, V);
    } else if (op == ASP_OP_softmax || op == ASP_OP_softmax_grad || op == ASP_OP_log_softmax ||
               op == ASP_OP_log_softmax_grad) {
        *(asp_dim_attr *)attr = (asp_dim_attr){.dim = 3 - pick(4) / 3};
        k->n_in = op == ASP_OP_softmax || op == ASP_OP_log_softmax ? 1 : 2;
        for (int i = 0; i < k->n_in; i++) k->in[i] = tensor(dtype, 4, dims);
        k->out[0] = tensor(dtype, 4, dims);
    } else if (op == ASP_OP_where) {
        k->n_in = 3;
        k->out[0] = tensor(dtype, 4, dims);
        for (int i = 0; i < 3; i++) { // leading dims left out, others 1
            int64_t own[4];
            const int rank = (int)pick(5);
            for (int e = 0; e < rank; e++) own[e] = pick(3) ? dims[4 - rank + e] : 1;
            k->in[i] = tensor(i ? dtype : ASP_BOOL, rank, own);
        }
        for (int64_t i = 0; i < asp_tensor_count(&k->in[0]); i++)
            ((uint8_t *)k->in[0].data)[i] = (uint8_t)pick(2);
    } else if (op == ASP_OP_bmm) {
        asp_bmm_attr *m = attr;
        const int64_t form = pick(3), rows = c, depth = d, cols = 1 + pick(40);
        *m = (asp_bmm_attr){.ta = form == 1, .tb = form == 2};
        k->n_in = 2;
        k->in[0] = m->ta ? TENSOR(dtype, a, b, depth, rows) : TENSOR(dtype, a, b, rows, depth);
        k->in[1] = m->tb ? TENSOR(dtype, b, cols, depth) : TENSOR(dtype, 1, depth, cols);
        k->out[0] = TENSOR(dtype, a, b, rows, cols);
    } else if (op == ASP_OP_embedding) {
        k->n_in = 2;
        k->in[0] = TENSOR(ASP_I64, a, b);
        k->in[1] = TENSOR(dtype, c, d);
        k->out[0] = TENSOR(dtype, a, b, d);
        fill_ids(&k->in[0], c, 0);
    } else {
        assert_int_equal(op, ASP_OP_embedding_grad);
        const int64_t rows = 1 + pick(200);
        *(asp_rows_attr *)attr = (asp_rows_attr){.padding = pick(rows) - 1};
        k->n_in = 2;
        k->in[0] = TENSOR(dtype, a, b * c, 5 * d);
        k->in[1] = TENSOR(ASP_I64, a, b * c);
        k->out[0] = TENSOR(dtype, rows, 5 * d);
        fill_ids(&k->in[1], rows, 0);
    }
    for (int i = 0; i < k->n_in; i++)
        if (k->in[i].dtype == dtype) fill(&k->in[i]);
}

static bool is_mine(asp_op op)
{
    static const asp_op ops[] = {ASP_OP_permute,
                                 ASP_OP_repeat,
                                 ASP_OP_sum_groups,
                                 ASP_OP_rotary,
                                 ASP_OP_shard_slice,
                                 ASP_OP_nll,
                                 ASP_OP_nll_grad,
                                 ASP_OP_embedding_grad,
                                 ASP_OP_embedding,
                                 ASP_OP_where,
                                 ASP_OP_bmm,
                                 ASP_OP_softmax,
                                 ASP_OP_softmax_grad,
                                 ASP_OP_log_softmax,
                                 ASP_OP_log_softmax_grad};
    for (size_t i = 0; i < ASP_COUNT_OF(ops); i++)
        if (ops[i] == op) return true;
    return false;
}

static void close_to(const asp_tensor *got, const asp_tensor *want)
{
    double most = 1e-30;
    for (int64_t i = 0; i < asp_tensor_count(want); i++) most = fmax(most, fabs(get(want, i)));
    for (int64_t i = 0; i < asp_tensor_count(want); i++)
        assert_true(fabs(get(got, i) - get(want, i)) <= 3e-6 * most);
}

static void check_row(const asp_kern_row *row)
{
    union {
        asp_permute_attr permute;
        asp_repeat_attr repeat;
        asp_part_attr part;
        asp_rotary_attr rotary;
        asp_nll_attr nll;
        asp_dim_attr dim;
        asp_bmm_attr bmm;
        asp_rows_attr rows;
    } attr;
    asp_kcall k;
    asp_tensor want[2], first[2];
    random_call(row->op, row->dtype, &k, &attr);
    run_ref(row->op, &k);
    for (int i = 0; i < k.n_out; i++) want[i] = k.out[i];
    const asp_kern_row *generic = asp_kern_choose_at(row->op, row->dtype, ASP_ISA_GENERIC);
    for (int threads = 0; threads <= 3; threads++) {
        for (int i = 0; i < k.n_out; i++) {
            k.out[i] = tensor(want[i].dtype, want[i].rank, want[i].dim);
            if (threads == 0) first[i] = k.out[i];
        }
        run_row(threads ? row : generic, &k, threads ? threads : 1);
        for (int i = 0; i < k.n_out; i++) {
            close_to(&k.out[i], &want[i]);
            assert_memory_equal(k.out[i].data, first[i].data, (size_t)bytes_of(&want[i]));
            if (threads) tensor_free(&k.out[i]);
        }
    }
    for (int i = 0; i < k.n_out; i++) tensor_free(&want[i]), tensor_free(&first[i]);
    k.n_out = 0;
    free_call(&k);
}

static void fast_kernels_agree_with_their_references(void **state)
{
    (void)state;
    int n, checked = 0;
    const asp_kern_row *rows = asp_kern_rows(&n);
    for (int i = 0; i < n; i++) {
        const asp_op op = rows[i].op;
        const bool mixed = op == ASP_OP_rotary || op == ASP_OP_nll_grad || op == ASP_OP_bmm;
        if (!is_mine(op) || rows[i].isa > asp_isa_best()) continue;
        if (rows[i].dtype == ASP_BF16 && mixed) continue; // beside f32: half_test.c
        for (int round = 0; round < 20; round++) {
            seed = (uint32_t)(i * 100 + round);
            check_row(&rows[i]);
        }
        checked++;
    }
    assert_true(checked >= 15);
}

static void the_gradient_may_replace_the_logits(void **state)
{
    (void)state;
    asp_nll_attr attr;
    asp_kcall k;
    seed = 5;
    random_call(ASP_OP_nll_grad, ASP_F32, &k, &attr);
    const asp_kern_row *row = asp_kern_choose(ASP_OP_nll_grad, ASP_F32);
    run_row(row, &k, 2);
    asp_kcall in_place = k;
    in_place.out[0] = k.in[0];
    run_row(row, &in_place, 2);
    assert_memory_equal(k.in[0].data, k.out[0].data, (size_t)bytes_of(&k.out[0]));
    free_call(&k);
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_of_the_toys),
        cmocka_unit_test(loss_gradients_of_the_toys),
        cmocka_unit_test(angles_of_positions),
        cmocka_unit_test(llama3_scaling_by_hand),
        cmocka_unit_test(rotary_by_hand),
        cmocka_unit_test(integers_by_hand),
        cmocka_unit_test(moves_by_hand),
        cmocka_unit_test(table_by_hand),
        cmocka_unit_test(pointwise_by_hand),
        cmocka_unit_test(fast_kernels_agree_with_their_references),
        cmocka_unit_test(the_gradient_may_replace_the_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
