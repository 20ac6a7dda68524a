// bf16: rounding at every level, and each kernel that takes it against the reference kernel in
// double on the same operands: shapes with 1, primes and tails, canaries, any number of threads.
// SPDX-License-Identifier: Apache-2.0
#include "kern/gemm.h"
#include "kern/half_ops.h"
#include "kern/kern_int.h"
#include "unit/kern/call.h"

#define MOST_OF_BF16 3e-3
#define MOST_OF_F32 1e-5

static asp_ctx cx;

static uint32_t bits_of(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed ^ *seed >> 15;
}
static double number(uint32_t *seed) // -1 .. 1
{
    const uint32_t bits = bits_of(seed);
    return (double)(int32_t)bits / 2147483648.0;
}

// ---- rounding ----------------------------------------------------------------------------------

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void hand_values_round_to_even(void **state)
{
    (void)state;
    static const struct {
        uint32_t from;
        uint16_t to;
    } rows[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
                {0x3f818000, 0x3f82}, {0x3f817fff, 0x3f81}, {0x80000000, 0x8000},
                {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x7f7fffff, 0x7f80},
                {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0},
                {0xffffffff, 0xffff}, {0xbf7f8000, 0xbf80}};
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++)
        assert_int_equal(asp_to_bf16(float_of(rows[i].from)), rows[i].to);
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = asp_from_bf16((uint16_t)h);
        if (f == f) assert_int_equal(asp_to_bf16(f), h);
    }
}

static void levels_round_alike(void **state)
{
    (void)state;
    enum { N = 4099 };
    static float from[N], back[N];
    static uint16_t want[N], got[N];
    uint32_t seed = 3;
    for (int i = 0; i < N; i++) from[i] = float_of(bits_of(&seed)); // NaNs, denormals and all
    for (int i = 0; i < N; i++) want[i] = asp_to_bf16(from[i]);
    for (int isa = 0; isa <= (int)asp_isa_best(); isa++) {
        const asp_half_ops *ops = asp_half_ops_at((asp_isa)isa);
        ops->narrow(from, N, got);
        assert_memory_equal(got, want, sizeof want);
        ops->widen(got, N, back);
        for (int i = 0; i < N; i++) {
            const float f = asp_from_bf16(want[i]);
            assert_memory_equal(&back[i], &f, sizeof f);
        }
    }
}

// ---- a call, and the same in double ------------------------------------------------------------

typedef struct pair {
    asp_kcall call, exact;
    void *owned[2 * ASP_MAX_OPERANDS + ASP_MAX_OPERANDS];
    int n_owned;
} pair;

static void *aligned(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)asp_round_up(bytes + 1, 64));
    assert_non_null(p);
    return p;
}

// A tensor of the call between canaries, and its copy in double (i64: the same memory).
static asp_tensor *add(pair *p, bool result, asp_dtype dtype, int rank, const int64_t *dim)
{
    asp_tensor *t = result ? &p->call.out[p->call.n_out++] : &p->call.in[p->call.n_in++];
    asp_tensor *e = result ? &p->exact.out[p->exact.n_out++] : &p->exact.in[p->exact.n_in++];
    *t = (asp_tensor){.dtype = dtype, .rank = rank};
    memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
    char *memory = aligned(call_bytes(t) + 2 * GUARD);
    memset(memory, CANARY, (size_t)call_bytes(t) + 2 * GUARD);
    p->owned[p->n_owned++] = memory;
    t->data = memory + GUARD;
    *e = *t;
    if (dtype == ASP_I64) return t;
    e->dtype = ASP_F64;
    e->data = p->owned[p->n_owned++] = aligned(call_bytes(e));
    return t;
}
#define DIMS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

static void to_exact(pair *p)
{
    for (int i = 0; i < p->call.n_in; i++) {
        if (p->call.in[i].dtype == ASP_I64) continue;
        for (int64_t j = 0; j < asp_tensor_count(&p->call.in[i]); j++)
            ((double *)p->exact.in[i].data)[j] = call_get(&p->call.in[i], j);
    }
}

static void fill(asp_tensor *t, uint32_t *seed)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++) call_put(t, i, number(seed));
}

static void done(pair *p)
{
    for (int i = 0; i < p->n_owned; i++) free(p->owned[i]);
}

static void run_on(const asp_kern_row *row, asp_kcall *call, int n_threads)
{
    asp_arena arena;
    asp_arena_init(&arena, &cx);
    assert_int_equal(asp_kern_prepare(&cx, &arena, row, NULL, n_threads, call), ASP_OK);
    call_run(&cx, row, call, n_threads);
    asp_arena_fini(&arena);
}

static void guards_stand(const pair *p)
{
    for (int i = 0; i < p->call.n_out; i++) {
        const asp_tensor *t = &p->call.out[i];
        for (int j = 1; j <= GUARD; j++) {
            assert_int_equal(((const unsigned char *)t->data)[-j], CANARY);
            assert_int_equal(((const unsigned char *)t->data)[call_bytes(t) + j - 1], CANARY);
        }
    }
}

// Relative Frobenius.
static double error_of(const pair *p, int i)
{
    double error = 0, all = 0;
    for (int64_t j = 0; j < asp_tensor_count(&p->call.out[i]); j++) {
        const double want = call_get(&p->exact.out[i], j), is = call_get(&p->call.out[i], j);
        error += (is - want) * (is - want);
        all += want * want;
    }
    return all > 0 ? sqrt(error / all) : sqrt(error);
}

// One level; past the last, where there is one, products of pairs.
static void set_level(int isa)
{
    if (isa <= (int)asp_isa_best())
        setenv("ASP_ISA", asp_isa_name((asp_isa)isa), 1);
    else
        unsetenv("ASP_ISA");
}

// The kernel of every level on 1, 2 and 3 threads: within the bound, the same bits.
static void check(pair *p, asp_op op)
{
    to_exact(p);
    run_on(asp_kern_ref(op), &p->exact, 1);
    const int levels = (int)asp_isa_best() + 1 + asp_isa_has_bf16();
    for (int isa = 0; isa < levels; isa++) {
        set_level(isa);
        const asp_kern_row *row = asp_kern_choose(op, p->call.out[0].dtype);
        void *first[ASP_MAX_OPERANDS];
        for (int threads = 1; threads <= 3; threads++) {
            run_on(row, &p->call, threads);
            guards_stand(p);
            for (int i = 0; i < p->call.n_out; i++) {
                const asp_tensor *t = &p->call.out[i];
                if (threads == 1) {
                    first[i] = aligned(call_bytes(t));
                    memcpy(first[i], t->data, (size_t)call_bytes(t));
                    const double most = t->dtype == ASP_BF16 ? MOST_OF_BF16 : MOST_OF_F32;
                    if (error_of(p, i) > most)
                        fail_msg("%s: result %d differs by %g", row->name, i, error_of(p, i));
                }
                assert_memory_equal(first[i], t->data, (size_t)call_bytes(t));
            }
        }
        for (int i = 0; i < p->call.n_out; i++) free(first[i]);
        unsetenv("ASP_ISA");
    }
}

// ---- products ----------------------------------------------------------------------------------

static const int64_t sizes[][3] = {{1, 1, 1},     {3, 5, 7},      {17, 33, 300}, {130, 70, 65},
                                   {29, 97, 513}, {600, 1030, 3}, {2, 1, 259}};

static void products(void **state)
{
    (void)state;
    static const asp_op forms[] = {ASP_OP_gemm_nt, ASP_OP_gemm_nn, ASP_OP_gemm_tn};
    for (size_t i = 0; i < ASP_COUNT_OF(sizes); i++)
        for (int f = 0; f < 3; f++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            uint32_t seed = (uint32_t)i;
            pair p = {.n_owned = 0};
            fill(add(&p, false, ASP_BF16, DIMS(f == 2 ? k : m, f == 2 ? m : k)), &seed);
            fill(add(&p, false, ASP_BF16, DIMS(f == 0 ? n : k, f == 0 ? k : n)), &seed);
            add(&p, true, f == 2 ? ASP_F32 : ASP_BF16, DIMS(m, n));
            check(&p, forms[f]);
            done(&p);
        }
}

// A sum over rows that comes in two chunks is added to.
static void sums_over_chunks(void **state)
{
    (void)state;
    uint32_t seed = 8;
    pair p = {.n_owned = 0};
    fill(add(&p, false, ASP_BF16, DIMS(40, 7)), &seed);
    fill(add(&p, false, ASP_BF16, DIMS(40, 9)), &seed);
    add(&p, true, ASP_F32, DIMS(7, 9));
    to_exact(&p);
    const asp_kern_row *row = asp_kern_choose(ASP_OP_gemm_tn, ASP_F32);
    run_on(row, &p.call, 2);
    p.call.chunk = 1;
    run_on(row, &p.call, 2);
    run_on(asp_kern_ref(ASP_OP_gemm_tn), &p.exact, 1);
    for (int i = 0; i < 63; i++) ((double *)p.exact.out[0].data)[i] *= 2;
    assert_true(error_of(&p, 0) < MOST_OF_F32);
    done(&p);
}

static void batches(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        const asp_bmm_attr attr = {.ta = form == 1, .tb = form == 2};
        uint32_t seed = 4;
        pair p = {.call.attr = &attr, .exact.attr = &attr};
        fill(add(&p, false, ASP_BF16, DIMS(3, 1, attr.ta ? 19 : 13, attr.ta ? 13 : 19)), &seed);
        fill(add(&p, false, ASP_BF16, DIMS(2, attr.tb ? 11 : 19, attr.tb ? 19 : 11)), &seed);
        add(&p, true, attr.ta ? ASP_F32 : ASP_BF16, DIMS(3, 2, 13, 11));
        check(&p, ASP_OP_bmm);
        done(&p);
    }
}

// ---- attention ---------------------------------------------------------------------------------

typedef struct attention {
    int64_t batch, heads, kv_heads, n_q, n_k, d, e;
    bool causal;
    const char *mask;
    double softcap;
} attention;

static asp_sdpa_attr attr_of(const attention *a)
{
    asp_sdpa_attr attr = *(const asp_sdpa_attr *)asp_ops[ASP_OP_sdpa].attr_default;
    attr.scale = 1 / sqrt((double)a->d);
    attr.causal = a->causal;
    attr.mask = a->mask;
    attr.softcap = a->softcap;
    return attr;
}

static void add_qkv(pair *p, const attention *a, uint32_t *seed)
{
    fill(add(p, false, ASP_BF16, DIMS(a->batch, a->heads, a->n_q, a->d)), seed);
    fill(add(p, false, ASP_BF16, DIMS(a->batch, a->kv_heads, a->n_k, a->d)), seed);
    fill(add(p, false, ASP_BF16, DIMS(a->batch, a->kv_heads, a->n_k, a->e)), seed);
}

static void attend(const attention *a)
{
    const asp_sdpa_attr attr = attr_of(a);
    uint32_t seed = 11;
    pair p = {.call = {.attr = &attr, .ranks = 1}, .exact = {.attr = &attr, .ranks = 1}};
    pair g = {.call = {.attr = &attr, .ranks = 1}, .exact = {.attr = &attr, .ranks = 1}};
    add_qkv(&p, a, &seed);
    add(&p, true, ASP_BF16, DIMS(a->batch, a->heads, a->n_q, a->e));
    add(&p, true, ASP_F32, DIMS(a->batch, a->heads, a->n_q));
    check(&p, ASP_OP_sdpa);
    seed = 11;
    add_qkv(&g, a, &seed);
    asp_tensor *out = add(&g, false, ASP_BF16, DIMS(a->batch, a->heads, a->n_q, a->e));
    asp_tensor *lse = add(&g, false, ASP_F32, DIMS(a->batch, a->heads, a->n_q));
    memcpy(out->data, p.call.out[0].data, (size_t)call_bytes(out));
    memcpy(lse->data, p.call.out[1].data, (size_t)call_bytes(lse));
    fill(add(&g, false, ASP_BF16, DIMS(a->batch, a->heads, a->n_q, a->e)), &seed);
    for (int i = 0; i < 3; i++) add(&g, true, ASP_BF16, 4, g.call.in[i].dim);
    check(&g, ASP_OP_sdpa_grad);
    done(&p);
    done(&g);
}

static void attentions(void **state)
{
    (void)state;
    static const attention all[] = {{1, 1, 1, 1, 1, 1, 1, true, "", 0},
                                    {2, 4, 2, 37, 37, 16, 16, true, "", 0},
                                    {1, 6, 2, 131, 131, 24, 8, true, "", 0},
                                    {2, 3, 1, 19, 101, 16, 24, false, "", 0},
                                    {1, 2, 2, 67, 67, 7, 5, true, "", 0},
                                    {2, 4, 2, 103, 103, 16, 16, true, "q - k <= 9", 0},
                                    {1, 2, 1, 83, 83, 8, 16, false, "", 2.5},
                                    {1, 2, 1, 131, 131, 64, 64, true, "", 0},
                                    {2, 2, 2, 301, 301, 32, 64, true, "", 0},
                                    {1, 3, 1, 65, 131, 64, 32, false, "", 0},
                                    {1, 2, 2, 257, 129, 96, 32, true, "", 0}};
    for (size_t i = 0; i < ASP_COUNT_OF(all); i++) attend(&all[i]);
}

// ---- the rest ----------------------------------------------------------------------------------

static void rotary(void **state)
{
    (void)state;
    for (int64_t half = 1; half <= 19; half += 3) {
        const asp_rotary_attr attr = {.inverse = half % 2};
        uint32_t seed = 6;
        pair p = {.call.attr = &attr, .exact.attr = &attr};
        fill(add(&p, false, ASP_BF16, DIMS(2, 3, 11, 2 * half)), &seed);
        fill(add(&p, false, ASP_F32, DIMS(11, half)), &seed);
        fill(add(&p, false, ASP_F32, DIMS(11, half)), &seed);
        add(&p, true, ASP_BF16, DIMS(2, 3, 11, 2 * half));
        check(&p, ASP_OP_rotary);
        done(&p);
    }
}

static void add_labels(pair *p, int64_t rows, int64_t V, uint32_t *seed)
{
    int64_t *labels = add(p, false, ASP_I64, DIMS(rows))->data;
    for (int64_t i = 0; i < rows; i++) labels[i] = bits_of(seed) % V;
    if (rows > 2) labels[1] = -100;
}

static void losses(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 2}, {7, 31}, {131, 67}, {66, 1000}};
    for (size_t i = 0; i < 2 * ASP_COUNT_OF(shapes); i++) {
        const int64_t rows = shapes[i / 2][0], V = shapes[i / 2][1];
        const asp_nll_attr attr = {
            .ignore = -100, .smoothing = i % 2 ? 0.1 : 0, .softcap = i % 2 ? 3 : 0};
        uint32_t seed = 9;
        pair p = {.call.attr = &attr, .exact.attr = &attr};
        pair g = {.call.attr = &attr, .exact.attr = &attr};
        fill(add(&p, false, ASP_BF16, DIMS(rows, V)), &seed);
        add_labels(&p, rows, V, &seed);
        add(&p, true, ASP_F32, DIMS(1));
        add(&p, true, ASP_F32, DIMS(rows));
        p.call.out[0].rank = p.exact.out[0].rank = 0;
        check(&p, ASP_OP_nll);
        seed = 9;
        fill(add(&g, false, ASP_BF16, DIMS(rows, V)), &seed);
        memcpy(add(&g, false, ASP_F32, DIMS(rows))->data, p.call.out[1].data, (size_t)rows * 4);
        add_labels(&g, rows, V, &seed);
        fill(add(&g, false, ASP_F32, DIMS(1)), &seed);
        g.call.in[3].rank = g.exact.in[3].rank = 0;
        add(&g, true, ASP_BF16, DIMS(rows, V));
        check(&g, ASP_OP_nll_grad);
        done(&p);
        done(&g);
    }
}

static void look_ups(void **state)
{
    (void)state;
    const asp_rows_attr attr = {.padding = -1};
    uint32_t seed = 2;
    pair p = {.call.attr = &attr, .exact.attr = &attr};
    fill(add(&p, false, ASP_BF16, DIMS(53, 13)), &seed);
    add_labels(&p, 53, 17, &seed);
    ((int64_t *)p.call.in[1].data)[1] = 0;
    add(&p, true, ASP_F32, DIMS(17, 13));
    check(&p, ASP_OP_embedding_grad);
    done(&p);
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_values_round_to_even),
        cmocka_unit_test(levels_round_alike),
        cmocka_unit_test(products),
        cmocka_unit_test(sums_over_chunks),
        cmocka_unit_test(batches),
        cmocka_unit_test(attentions),
        cmocka_unit_test(rotary),
        cmocka_unit_test(losses),
        cmocka_unit_test(look_ups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
