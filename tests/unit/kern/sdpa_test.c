// Attention: hand values (sequence-parallel cases 17 and 18), the reference against finite
// differences, every level against the reference, edges, threads.  SPDX-License-Identifier:
// Apache-2.0
#include "kern/kern.h"
#include "op/attention.h"
#include "unit/kern/call.h"

static asp_ctx cx;

static double number(uint32_t *seed) // -1 .. 1
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(int32_t)*seed / 2147483648.0;
}

typedef struct dims {
    int64_t b, n, k, q, s, d, e;
    bool causal;
} dims;

enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, TENSORS };

// One problem: operands and results of both ops, in one dtype, each between guards.
typedef struct problem {
    dims dim;
    asp_sdpa_attr attr;
    asp_tensor t[TENSORS];
    unsigned char *memory[TENSORS]; // owned
} problem;

static double get(const asp_tensor *t, int64_t i)
{
    return t->dtype == ASP_F64 ? ((double *)t->data)[i] : (double)((float *)t->data)[i];
}

static void set(const asp_tensor *t, int64_t i, double v)
{
    if (t->dtype == ASP_F64)
        ((double *)t->data)[i] = v;
    else
        ((float *)t->data)[i] = (float)v;
}

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

static void problem_init(problem *p, dims z, asp_dtype dtype)
{
    const asp_tensor q = {NULL, dtype, 4, {z.b, z.n, z.q, z.d}};
    const asp_tensor k = {NULL, dtype, 4, {z.b, z.k, z.s, z.d}};
    const asp_tensor v = {NULL, dtype, 4, {z.b, z.k, z.s, z.e}};
    const asp_tensor out = {NULL, dtype, 4, {z.b, z.n, z.q, z.e}};
    const asp_tensor lse = {NULL, dtype, 3, {z.b, z.n, z.q}};
    const asp_tensor all[TENSORS] = {q, k, v, out, lse, out, q, k, v};
    uint32_t seed = (uint32_t)(z.q * 131 + z.s * 7 + z.d);
    *p = (problem){.dim = z, .attr = asp_sdpa_attr_of(1 / sqrt((double)z.d), z.causal)};
    for (int i = 0; i < TENSORS; i++) {
        p->t[i] = all[i];
        int64_t bytes = bytes_of(&p->t[i]);
        p->memory[i] = aligned(bytes + 2 * GUARD);
        memset(p->memory[i], 0xa5, (size_t)bytes + 2 * GUARD);
        p->t[i].data = p->memory[i] + GUARD;
        for (int64_t j = 0; (i <= V || i == DOUT) && j < asp_tensor_count(&p->t[i]); j++)
            set(&p->t[i], j, 2 * number(&seed));
    }
}

static void problem_fini(problem *p)
{
    for (int i = 0; i < TENSORS; i++) free(p->memory[i]);
}

static void guards_stand(const problem *p)
{
    for (int i = 0; i < TENSORS; i++)
        for (int64_t j = 0, n = bytes_of(&p->t[i]); j < GUARD; j++)
            assert_true(p->memory[i][j] == 0xa5 && p->memory[i][GUARD + n + j] == 0xa5);
}

static void call(const asp_kern_row *row, asp_kcall *k, int n_threads)
{
    k->work_bytes = row->work(k, n_threads);
    call_run(&cx, row, k, n_threads);
}

static void forward(const asp_kern_row *row, problem *p, int n_threads)
{
    asp_kcall k = {.attr = &p->attr, .n_in = 3, .n_out = 2};
    memcpy(k.in, p->t, 3 * sizeof *k.in);
    memcpy(k.out, p->t + OUT, 2 * sizeof *k.out);
    call(row, &k, n_threads);
}

static void backward(const asp_kern_row *row, problem *p, int n_threads)
{
    asp_kcall k = {.attr = &p->attr, .n_in = 6, .n_out = 3};
    memcpy(k.in, p->t, 6 * sizeof *k.in);
    memcpy(k.out, p->t + DQ, 3 * sizeof *k.out);
    call(row, &k, n_threads);
}

static const asp_kern_row *row_of(asp_op op, asp_dtype dtype, int isa)
{
    return isa < 0 ? asp_kern_ref(op) : asp_kern_choose_at(op, dtype, (asp_isa)isa);
}

// || a - b || / max(|| b ||, 1)
static double distance(const asp_tensor *a, const asp_tensor *b)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < asp_tensor_count(a); i++) {
        diff += (get(a, i) - get(b, i)) * (get(a, i) - get(b, i));
        norm += get(b, i) * get(b, i);
    }
    return sqrt(diff) / fmax(sqrt(norm), 1);
}

// ---- hand values: -1 is the reference in f64, then in f32, then the levels ---------------------

typedef void each_fn(asp_dtype dtype, int isa, double tolerance);

static void each_kernel(each_fn *fn)
{
    fn(ASP_F64, -1, 1e-12);
    for (int isa = -1; isa <= (int)asp_isa_best(); isa++) fn(ASP_F32, isa, 1e-6);
}

static const double case_17_dv[] = {2.717857, 1.717857, 1.217857, .884524,
                                    .634524,  .434524,  .267857,  .125};

static void case_17_of(asp_dtype dtype, int isa, double tolerance)
{
    // One head of width 1, and of width 16 (what the fast kernels take).
    for (int64_t width = 1; width <= 16; width += 15) {
        problem p;
        problem_init(&p, (dims){1, 1, 1, 8, 8, width, width, true}, dtype);
        for (int64_t i = 0; i < 8 * width; i++) {
            set(&p.t[Q], i, 0), set(&p.t[K], i, 0);
            set(&p.t[V], i, (double)(i / width + 1));
            set(&p.t[DOUT], i, 1); // L = sum of out
        }
        forward(row_of(ASP_OP_sdpa, dtype, isa), &p, 2);
        backward(row_of(ASP_OP_sdpa_grad, dtype, isa), &p, 2);
        for (int64_t i = 0; i < 8 * width; i++) {
            const int64_t t = i / width;
            assert_true(fabs(get(&p.t[OUT], i) - (double)(t + 2) / 2) < 10 * tolerance);
            assert_true(fabs(get(&p.t[LSE], t) - log((double)(t + 1))) < 10 * tolerance);
            assert_true(fabs(get(&p.t[DV], i) - case_17_dv[t]) < 1e-6 + tolerance);
            assert_true(fabs(get(&p.t[DQ], i)) < 10 * tolerance * 16);
            assert_true(fabs(get(&p.t[DK], i)) < 10 * tolerance * 16);
        }
        guards_stand(&p);
        problem_fini(&p);
    }
}

static void case_17_causal_means(void **state)
{
    (void)state;
    each_kernel(case_17_of);
}

static void case_18_of(asp_dtype dtype, int isa, double tolerance)
{
    problem p;
    problem_init(&p, (dims){1, 4, 2, 8, 8, 16, 16, true}, dtype);
    for (int64_t i = 0; i < asp_tensor_count(&p.t[Q]); i++)
        set(&p.t[Q], i, 0), set(&p.t[DOUT], i, 1);
    for (int64_t i = 0; i < asp_tensor_count(&p.t[K]); i++) {
        set(&p.t[K], i, 0);
        set(&p.t[V], i, (double)(i / 16 % 8) * (i / 128 ? 10 : 1)); // t and 10 t
    }
    forward(row_of(ASP_OP_sdpa, dtype, isa), &p, 2);
    backward(row_of(ASP_OP_sdpa_grad, dtype, isa), &p, 2);
    for (int64_t i = 0; i < asp_tensor_count(&p.t[OUT]); i++) {
        const double t = (double)(i / 16 % 8);
        const double want = i / 128 < 2 ? t / 2 : 5 * t;
        assert_true(fabs(get(&p.t[OUT], i) - want) < 50 * tolerance);
    }
    for (int64_t i = 0; i < asp_tensor_count(&p.t[DV]); i++)
        assert_true(fabs(get(&p.t[DV], i) - 2 * case_17_dv[i / 16 % 8]) < 2e-6 + tolerance);
    guards_stand(&p);
    problem_fini(&p);
}

static void case_18_groups(void **state)
{
    (void)state;
    each_kernel(case_18_of);
}

// ---- the reference against finite differences --------------------------------------------------

static double loss(problem *p)
{
    double sum = 0;
    forward(asp_kern_ref(ASP_OP_sdpa), p, 1);
    for (int64_t i = 0; i < asp_tensor_count(&p->t[OUT]); i++)
        sum += get(&p->t[OUT], i) * get(&p->t[DOUT], i);
    return sum;
}

static void finite_differences_of(dims z)
{
    const double h = 1e-5;
    problem p;
    problem_init(&p, z, ASP_F64);
    forward(asp_kern_ref(ASP_OP_sdpa), &p, 1);
    backward(asp_kern_ref(ASP_OP_sdpa_grad), &p, 1);
    for (int t = 0; t < 3; t++)
        for (int64_t i = 0; i < asp_tensor_count(&p.t[t]); i++) {
            const double x = get(&p.t[t], i);
            set(&p.t[t], i, x + h);
            double up = loss(&p);
            set(&p.t[t], i, x - h);
            double down = loss(&p);
            set(&p.t[t], i, x);
            assert_true(fabs((up - down) / (2 * h) - get(&p.t[DQ + t], i)) < 1e-8);
        }
    problem_fini(&p);
}

static void reference_has_the_derivative(void **state)
{
    (void)state;
    finite_differences_of((dims){2, 2, 1, 5, 5, 3, 3, true});
    finite_differences_of((dims){1, 2, 2, 3, 4, 2, 3, false});
}

// ---- levels against the reference ---------------------------------------------------------------

static void levels_of(dims z)
{
    problem want, p;
    problem_init(&want, z, ASP_F32);
    forward(asp_kern_ref(ASP_OP_sdpa), &want, 1);
    backward(asp_kern_ref(ASP_OP_sdpa_grad), &want, 1);
    for (int isa = 0; isa <= (int)asp_isa_best(); isa++) {
        unsigned char *first[TENSORS] = {NULL};
        for (int threads = 1; threads <= 3; threads++) {
            problem_init(&p, z, ASP_F32);
            forward(row_of(ASP_OP_sdpa, ASP_F32, isa), &p, threads);
            backward(row_of(ASP_OP_sdpa_grad, ASP_F32, isa), &p, threads);
            guards_stand(&p);
            for (int t = OUT; t < TENSORS; t++) {
                if (threads == 1) {
                    assert_true(distance(&p.t[t], &want.t[t]) < 2e-6);
                    first[t] = aligned(bytes_of(&p.t[t]));
                    memcpy(first[t], p.t[t].data, (size_t)bytes_of(&p.t[t]));
                }
                assert_memory_equal(first[t], p.t[t].data, (size_t)bytes_of(&p.t[t]));
            }
            problem_fini(&p);
        }
        for (int t = 0; t < TENSORS; t++) free(first[t]);
    }
    problem_fini(&want);
}

static void levels_agree_with_the_reference(void **state)
{
    (void)state;
    static const int64_t widths[] = {8, 16, 64, 80, 128, 12, 6};
    uint32_t seed = 3;
    for (size_t i = 0; i < ASP_COUNT_OF(widths); i++)
        for (int causal = 0; causal < 2; causal++) {
            const int64_t group = 1 + (int64_t)(fabs(number(&seed)) * 2.9);
            const int64_t q = 1 + (int64_t)(fabs(number(&seed)) * 110);
            const int64_t s = causal ? q : 1 + (int64_t)(fabs(number(&seed)) * 110);
            levels_of((dims){1 + causal, 2 * group, 2, q, s, widths[i], widths[i], causal});
        }
    levels_of((dims){1, 1, 1, 1, 1, 16, 16, true});
    levels_of((dims){1, 2, 1, 65, 65, 16, 32, true}); // values wider than keys
}

// Several chunks of keys, so that the order of dq's parts matters.
static void long_sequences(void **state)
{
    (void)state;
    levels_of((dims){1, 1, 1, 800, 800, 16, 16, true});
    levels_of((dims){1, 2, 1, 60, 800, 16, 16, false});
}

// Scores up to several hundred: the reference maximum has to move.
static void large_scores(void **state)
{
    (void)state;
    for (int isa = 0; isa <= (int)asp_isa_best(); isa++) {
        problem want, p;
        dims z = {1, 1, 1, 130, 130, 16, 16, true};
        problem_init(&want, z, ASP_F32);
        problem_init(&p, z, ASP_F32);
        want.attr.scale = p.attr.scale = 30;
        forward(asp_kern_ref(ASP_OP_sdpa), &want, 1);
        forward(row_of(ASP_OP_sdpa, ASP_F32, isa), &p, 1);
        assert_true(distance(&p.t[OUT], &want.t[OUT]) < 1e-4);
        assert_true(distance(&p.t[LSE], &want.t[LSE]) < 1e-6);
        problem_fini(&want);
        problem_fini(&p);
    }
}

static void nan_is_not_hidden(void **state)
{
    (void)state;
    for (int isa = 0; isa <= (int)asp_isa_best(); isa++) {
        problem p;
        problem_init(&p, (dims){1, 1, 1, 20, 20, 16, 16, true}, ASP_F32);
        set(&p.t[K], 5 * 16, (double)NAN);
        forward(row_of(ASP_OP_sdpa, ASP_F32, isa), &p, 1);
        for (int64_t i = 0; i < 20; i++) assert_true(isnan(get(&p.t[OUT], i * 16)) == (i >= 5));
        problem_fini(&p);
    }
}

// 512 queries and keys in blocks of 64.
static void blocks_are_counted(void **state)
{
    (void)state;
    const struct {
        bool causal;
        const char *mask;
        int64_t want;
    } cases[] = {
        {true, "", 512 * 513 / 2 + 512 * 32},
        {false, "", 512 * 512 + 512 * 32},
        // 8 blocks on the diagonal and 7 below it, each seen in part: half, and as much again twice
        {true, "q - k <= 31", 15 * (64 * 64 / 2 + 64 * 64)},
        {false, "q - k <= -512", 0},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(cases); i++) {
        asp_sdpa_attr a = asp_sdpa_attr_of(1, cases[i].causal);
        const asp_tensor t = {.rank = 4, .dim = {1, 1, 512, 8}};
        a.mask = cases[i].mask;
        const asp_kcall k = {
            .attr = &a, .ranks = 1, .n_in = 3, .n_out = 2, .in = {t, t, t}, .out = {t}};
        assert_int_equal(asp_sdpa_block_pairs(&k), cases[i].want);
    }
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_17_causal_means),
        cmocka_unit_test(case_18_groups),
        cmocka_unit_test(reference_has_the_derivative),
        cmocka_unit_test(levels_agree_with_the_reference),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(blocks_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
