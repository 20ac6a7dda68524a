// Attention with masks: hand values (sequence-parallel cases 22, 23, 24, 26 and 28), every level
// against the reference under predicates, biases, soft caps, sinks, slopes and dropout, tiles
// against brute force.  SPDX-License-Identifier: Apache-2.0
#include "kern/mask_tile.h"
#include "kern/kern.h"
#include "op/attention.h"
#include "unit/kern/call.h"
#include "unit/sparse.h"

static asp_ctx cx;

static uint32_t state = 9;
static double number(void) // -1 .. 1
{
    state = state * 1664525u + 1013904223u;
    return (double)(int32_t)state / 2147483648.0;
}
static int64_t below(int64_t n)
{
    state = state * 1664525u + 1013904223u;
    return (int64_t)(state >> 8) % n;
}

typedef struct dims {
    int64_t b, n, k, q, s, d, e;
} dims;

enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, MORE, TENSORS = MORE + 7 };

typedef struct problem {
    dims dim;
    asp_sdpa_attr attr;
    int n_more;
    asp_tensor t[TENSORS];
} problem;

static double get(const asp_tensor *t, int64_t i)
{
    return t->dtype == ASP_F64 ? ((double *)t->data)[i] : (double)((float *)t->data)[i];
}

static void set(const asp_tensor *t, int64_t i, double v)
{
    if (t->dtype == ASP_F64) ((double *)t->data)[i] = v;
    if (t->dtype == ASP_F32) ((float *)t->data)[i] = (float)v;
    if (t->dtype == ASP_I64) ((int64_t *)t->data)[i] = (int64_t)v;
    if (t->dtype == ASP_BOOL) ((uint8_t *)t->data)[i] = v != 0;
}

static void allocate(asp_tensor *t)
{
    const int64_t bytes = asp_tensor_count(t) * asp_dtypes[t->dtype].bytes;
    t->data = aligned_alloc(64, (size_t)asp_round_up(bytes + 1, 64));
    assert_non_null(t->data);
    memset(t->data, 0xa5, (size_t)bytes);
}

static void problem_init(problem *p, dims z, asp_dtype dtype)
{
    const asp_tensor q = {NULL, dtype, 4, {z.b, z.n, z.q, z.d}};
    const asp_tensor k = {NULL, dtype, 4, {z.b, z.k, z.s, z.d}};
    const asp_tensor v = {NULL, dtype, 4, {z.b, z.k, z.s, z.e}};
    const asp_tensor out = {NULL, dtype, 4, {z.b, z.n, z.q, z.e}};
    const asp_tensor lse = {NULL, dtype, 3, {z.b, z.n, z.q}};
    const asp_tensor all[MORE] = {q, k, v, out, lse, out, q, k, v};
    *p = (problem){.dim = z, .attr = asp_sdpa_attr_of(1 / sqrt((double)z.d), false)};
    for (int i = 0; i < MORE; i++) {
        p->t[i] = all[i];
        allocate(&p->t[i]);
        for (int64_t j = 0; (i <= V || i == DOUT) && j < asp_tensor_count(&p->t[i]); j++)
            set(&p->t[i], j, 2 * number());
    }
}

// A further operand; fill(i) gives its elements.
typedef double fill_fn(int64_t i);
static const asp_tensor *more(problem *p, asp_tensor t, fill_fn *fill)
{
    asp_tensor *x = &p->t[MORE + p->n_more++];
    *x = t;
    allocate(x);
    for (int64_t i = 0; i < asp_tensor_count(x); i++) set(x, i, fill(i));
    return x;
}

static void problem_fini(problem *p)
{
    for (int i = 0; i < MORE + p->n_more; i++) free(p->t[i].data);
}

// The same in another dtype: floats are copied, of whole numbers all stays.
static void problem_copy(problem *to, const problem *from, asp_dtype dtype)
{
    *to = *from;
    for (int i = 0; i < MORE + from->n_more; i++) {
        asp_tensor *t = &to->t[i];
        if (asp_dtypes[t->dtype].is_float) t->dtype = dtype;
        allocate(t);
        if (i > V && i != DOUT && i < MORE) continue;
        for (int64_t j = 0; j < asp_tensor_count(t); j++) {
            if (asp_dtypes[t->dtype].is_float)
                set(t, j, get(&from->t[i], j));
            else
                memcpy(t->data, from->t[i].data,
                       (size_t)(asp_tensor_count(t) * asp_dtypes[t->dtype].bytes));
        }
    }
}

static void call(const asp_kern_row *row, asp_kcall *k, int n_threads)
{
    k->work_bytes = row->work(k, n_threads);
    call_run(&cx, row, k, n_threads);
}

static void run(problem *p, int isa, int n_threads)
{
    const asp_dtype dtype = p->t[Q].dtype;
    const asp_kern_row *f =
        isa < 0 ? asp_kern_ref(ASP_OP_sdpa) : asp_kern_choose_at(ASP_OP_sdpa, dtype, (asp_isa)isa);
    const asp_kern_row *b = isa < 0 ? asp_kern_ref(ASP_OP_sdpa_grad)
                                    : asp_kern_choose_at(ASP_OP_sdpa_grad, dtype, (asp_isa)isa);
    asp_kcall k = {
        .attr = &p->attr, .n_in = 3 + p->n_more, .n_out = 2, .ranks = 1, .seed = 11, .step = 2};
    memcpy(k.in, p->t, 3 * sizeof *k.in);
    memcpy(k.in + 3, p->t + MORE, (size_t)p->n_more * sizeof *k.in);
    memcpy(k.out, p->t + OUT, 2 * sizeof *k.out);
    call(f, &k, n_threads);
    k.n_in = 6 + p->n_more, k.n_out = 3;
    memcpy(k.in, p->t, 6 * sizeof *k.in);
    memcpy(k.in + 6, p->t + MORE, (size_t)p->n_more * sizeof *k.in);
    memcpy(k.out, p->t + DQ, 3 * sizeof *k.out);
    call(b, &k, n_threads);
}

// || a - b || / max(|| b ||, 1); -infinity and NaN only where both have them.
static double distance(const asp_tensor *a, const asp_tensor *b)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < asp_tensor_count(a); i++) {
        const double x = get(a, i), y = get(b, i);
        if (isfinite(y) ? !isfinite(x) : (isnan(x) != isnan(y) || (!isnan(x) && x != y)))
            return HUGE_VAL;
        if (!isfinite(y)) continue;
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(diff) / fmax(sqrt(norm), 1);
}

// Every level, and the reference in f32, against the reference in f64, with 1 to 3 threads.
static void agrees(problem *p, const char *what)
{
    problem want, have;
    problem_copy(&want, p, ASP_F64);
    run(&want, -1, 2);
    for (int isa = -1; isa <= (int)asp_isa_best(); isa++)
        for (int threads = SPARSE(3); threads <= 3; threads += 2) {
            problem_copy(&have, p, ASP_F32);
            run(&have, isa, threads);
            for (int t = OUT; t < MORE; t++) {
                if (t == DOUT) continue;
                const double d = distance(&have.t[t], &want.t[t]);
                if (!(d < 4e-6)) fail_msg("%s: level %d, tensor %d is %g away", what, isa, t, d);
            }
            problem_fini(&have);
        }
    problem_fini(&want);
}

// ---- what is added to a problem -----------------------------------------------------------------

static int64_t width; // of the operand being filled
static double fill_document(int64_t i) { return (double)(i % width * 5 / width); }
static double fill_small(int64_t i) { return (double)(i * 7 % 5); }
static double fill_large(int64_t i) { return i % 3 ? 9e18 : -9e18; }
static double fill_padding(int64_t i) { return i % width + 3 < width && i % 7 != 2; }
static double fill_number(int64_t i) { return (void)i, number(); }
static double fill_bool(int64_t i) { return (void)i, below(4) != 0; }
static double fill_slope(int64_t i) { return pow(0.5, (double)i + 3); }
static double fill_hiding(int64_t i)
{
    return (void)i, below(3) ? number() : below(2) ? -3.4028234663852886e38 : -HUGE_VAL;
}

static void with(dims z, const char *what, bool causal, const char *mask, const char *lookups,
                 const char *extras)
{
    problem p;
    problem_init(&p, z, ASP_F64);
    p.attr.causal = causal;
    p.attr.mask = mask;
    width = z.s;
    for (const char *c = lookups; *c; c++) {
        const asp_tensor tokens = {NULL, *c == 'p' ? ASP_BOOL : ASP_I64, 2, {z.b, z.s}};
        more(&p, tokens,
             *c == 'd'   ? fill_document
             : *c == 's' ? fill_small
             : *c == 'l' ? fill_large
                         : fill_padding);
    }
    for (const char *c = extras; *c; c++) {
        const asp_tensor bias = {NULL, ASP_F64, 4, {z.b, z.n, z.q, z.s}},
                         rows = {NULL, ASP_F64, 4, {1, z.n, 1, z.s}};
        const asp_tensor dense = {NULL, ASP_BOOL, 2, {z.q, z.s}}, heads = {NULL, ASP_F64, 1, {z.n}};
        p.attr.bias |= strchr("bnrh", *c) != NULL;
        if (*c == 'b') more(&p, bias, fill_number);
        if (*c == 'h') more(&p, bias, fill_hiding);
        if (*c == 'r') more(&p, rows, fill_number);
        if (*c == 'n') more(&p, dense, fill_bool);
        if (*c == 'i') more(&p, heads, fill_number), p.attr.sinks = true;
        if (*c == 'a') more(&p, heads, fill_slope), p.attr.alibi = "relative";
        if (*c == 'A') more(&p, heads, fill_slope), p.attr.alibi = "distance";
        if (*c == 'c') p.attr.softcap = 2;
        if (*c == 'o') p.attr.dropout = 0.3, p.attr.site = 5;
        if (*c == 'm') p.attr.empty = "mean";
        if (*c == 'N') p.attr.empty = "nan";
    }
    agrees(&p, what);
    problem_fini(&p);
}

static void masks_of_all_kinds(void **s)
{
    (void)s;
    const dims z = {2, 2, 1, 100, 100, 16, 16}, wide = {1, 2, 1, 60, 130, 16, 32},
               tall = {1, 2, 2, 130, 60, 16, 16};
    with(z, "window", true, "q - k <= 20", "", "");
    with(z, "causal in the text", false, "k <= q & q - k <= 63", "", "");
    with(z, "band", false, "q - k <= 10 & k - q <= 5", "", "");
    with(z, "document", true, "T0[q] == T0[k]", "d", "");
    with(z, "documents of random numbers", false, "T0[q] == T0[k]", "s", "");
    with(z, "far numbers", false, "T0[q] == T0[k]", "l", "");
    with(z, "far order", false, "T0[q] <= T0[k]", "l", "");
    with(z, "padding", true, "T0[k] != 0", "p", "");
    with(z, "prefix", false, "k <= q | k <= 40", "", "");
    with(z, "prefix of documents", false, "(k <= q | T0[k] <= 1) & T0[q] == T0[k] & T1[k] != 0",
         "dp", "");
    with(z, "chunks", true, "q/32 == k/32", "", "");
    with(z, "all hidden", false, "false", "", "");
    with(z, "all seen", false, "true", "", "");
    with(wide, "causal across", true, "", "", "");
    with(wide, "window across", true, "q - k <= 7", "", "");
    with(tall, "window up", true, "q - k <= 30", "", "");
    with(tall, "mean of none", true, "q - k <= 30", "", "m");
    with(tall, "fill of none", true, "q - k <= 30", "", "mc");
    with(tall, "nan of none", true, "q - k <= 30", "", "N");
}

static void numbers_of_all_kinds(void **s)
{
    (void)s;
    const dims z = {2, 2, 1, 100, 100, 16, 16};
    with(z, "soft cap", true, "", "", "c");
    with(z, "bias", true, "", "", "b");
    with(z, "rows of bias", false, "", "", "r");
    with(z, "dense", true, "", "", "n");
    with(z, "sinks", true, "", "", "i");
    with(z, "sinks and window", true, "q - k <= 9", "", "i");
    with(z, "slopes", true, "", "", "a");
    with(z, "distance", false, "", "", "A");
    with(z, "dropout", true, "", "", "o");
    with(z, "hiding bias", true, "", "", "h");
    with(z, "hiding bias and empty rows", true, "T0[k] != 0", "p", "hm");
    with(z, "dropped mean", true, "q - k <= 9 & T0[k] != 0 & k != q", "p", "mo");
    with(z, "everything", true, "q - k <= 90 & T0[q] == T0[k]", "d", "biaco");
}

static void long_sequences(void **s)
{
    (void)s;
    const dims z = {1, 1, 1, 500, 500, 16, 16};
    with(z, "window", true, "q - k <= 120", "", "");
    with(z, "document", true, "T0[q] == T0[k]", "d", "c");
    with(z, "mean", false, "q - k <= -350", "", "m");
}

// ---- hand values -------------------------------------------------------------------------------

// Q = K = 0, so that out is the mean of the values seen; v_t = t + 1 of every head; dout = 1.
static void hand_problem(problem *p, int64_t batch, int64_t heads)
{
    problem_init(p, (dims){batch, heads, heads, 8, 8, 16, 16}, ASP_F64);
    for (int64_t i = 0; i < asp_tensor_count(&p->t[Q]); i++) {
        set(&p->t[Q], i, 0), set(&p->t[K], i, 0), set(&p->t[DOUT], i, 1);
        set(&p->t[V], i, (double)(i / 16 % 8 + 1));
    }
}

// want (rows of 8) by the reference in f64 and by every level; the problem is released.
static void gives(problem *p, const double *want)
{
    for (int isa = -2; isa <= (int)asp_isa_best(); isa++) {
        problem x;
        problem_copy(&x, p, isa == -2 ? ASP_F64 : ASP_F32);
        run(&x, isa < 0 ? -1 : isa, 1);
        for (int64_t i = 0; i < asp_tensor_count(&x.t[OUT]); i++)
            if (!(fabs(get(&x.t[OUT], i) - want[i / 16]) < (isa == -2 ? 1e-12 : 1e-5)))
                fail_msg("level %d: row %lld is %g, not %g", isa, (long long)(i / 16),
                         get(&x.t[OUT], i), want[i / 16]);
        problem_fini(&x);
    }
    problem_fini(p);
}

static double fill_causal(int64_t i) { return i % 8 <= i / 8 % 8; }
static double fill_causal_added(int64_t i) { return fill_causal(i) != 0 ? 0 : -HUGE_VAL; }
static double fill_causal_min(int64_t i)
{
    return fill_causal(i) != 0 ? 0 : -3.4028234663852886e38;
}
static double fill_first_six(int64_t i) { return i % 8 < 6; }
static double fill_first_six_of_batch_0(int64_t i) { return i >= 8 || i % 8 < 6; }
static double fill_two_heads(int64_t i) { return i < 64 ? i % 8 == i / 8 : fill_causal(i); }
static const double causal[] = {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5};

static void case_22_key_padding(void **s)
{
    (void)s;
    static const double want[] = {1, 1.5, 2, 2.5, 3, 3.5, 3.5, 3.5};
    problem p;
    hand_problem(&p, 1, 1);
    p.attr.causal = true;
    p.attr.mask = "T0[k] != 0";
    more(&p, (asp_tensor){NULL, ASP_BOOL, 2, {1, 8}}, fill_first_six);
    gives(&p, want);
}

static void case_23_dense_masks(void **s)
{
    (void)s;
    static const double keys[] = {3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5,
                                  4.5, 4.5, 4.5, 4.5, 4.5, 4.5, 4.5, 4.5};
    static const asp_tensor shapes[] = {{NULL, ASP_BOOL, 4, {1, 1, 8, 8}},
                                        {NULL, ASP_BOOL, 4, {2, 1, 8, 8}},
                                        {NULL, ASP_BOOL, 2, {8, 8}}};
    problem p;
    for (size_t i = 0; i < ASP_COUNT_OF(shapes); i++)
        for (int kind = 0; kind < 3; kind++) {
            asp_tensor t = shapes[i];
            hand_problem(&p, 2, 1);
            p.attr.bias = true;
            if (kind) t.dtype = ASP_F64;
            more(&p, t, kind == 0 ? fill_causal : kind == 1 ? fill_causal_added : fill_causal_min);
            gives(&p, causal);
        }
    hand_problem(&p, 2, 1);
    p.attr.bias = true;
    more(&p, (asp_tensor){NULL, ASP_BOOL, 4, {2, 1, 1, 8}}, fill_first_six_of_batch_0);
    gives(&p, keys);
}

static void case_24_masks_of_heads(void **s)
{
    (void)s;
    static const double want[] = {1, 2, 3, 4, 5, 6, 7, 8, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5};
    problem p;
    hand_problem(&p, 1, 2);
    p.attr.bias = true;
    more(&p, (asp_tensor){NULL, ASP_BOOL, 4, {1, 2, 8, 8}}, fill_two_heads);
    gives(&p, want);
}

static double fill_min(int64_t i) { return i < 8 ? -3.4028234663852886e38 : 0; }
static double fill_none(int64_t i) { return i < 8 ? -HUGE_VAL : 0; }

// The first query may see nothing: 0 and no gradient, or the mean of all values, future ones too.
static void case_26_row_without_keys(void **s)
{
    (void)s;
    static const double zero[] = {0, 4.5, 4.5, 4.5, 4.5, 4.5, 4.5, 4.5},
                        mean[] = {4.5, 4.5, 4.5, 4.5, 4.5, 4.5, 4.5, 4.5};
    problem p;
    hand_problem(&p, 1, 1);
    p.attr.mask = "q >= 1";
    gives(&p, zero);
    hand_problem(&p, 1, 1);
    p.attr.mask = "q >= 1", p.attr.empty = "mean";
    gives(&p, mean);
    hand_problem(&p, 1, 1);
    p.attr.bias = true;
    more(&p, (asp_tensor){NULL, ASP_F64, 2, {8, 8}}, fill_none);
    gives(&p, zero);
    hand_problem(&p, 1, 1);
    p.attr.bias = true;
    more(&p, (asp_tensor){NULL, ASP_F64, 2, {8, 8}}, fill_min);
    gives(&p, mean);
    for (int isa = -1; isa <= (int)asp_isa_best(); isa++) {
        problem x;
        hand_problem(&p, 1, 1);
        p.attr.mask = "false";
        problem_copy(&x, &p, ASP_F32);
        run(&x, isa, 1);
        for (int t = DQ; t <= DV; t++)
            for (int64_t i = 0; i < 128; i++) assert_true(get(&x.t[t], i) == 0);
        problem_fini(&x);
        problem_fini(&p);
    }
}

static void case_28_sliding_window(void **s)
{
    (void)s;
    static const double want[] = {1, 1.5, 2, 3, 4, 5, 6, 7};
    problem p;
    hand_problem(&p, 1, 1);
    p.attr.mask = "k <= q & q - k < 3";
    gives(&p, want);
}

// ---- tiles -------------------------------------------------------------------------------------

static int64_t tokens[2][200];

static void tile_of(const char *text)
{
    asp_attend a = {.masked = true};
    asp_tensor t[2];
    static asp_mask_tile tile;
    assert_int_equal(asp_mask_parse(&cx, text, &a.mask), ASP_OK);
    for (int i = 0; i < 2; i++) {
        t[i] = (asp_tensor){tokens[i], ASP_I64, 1, {200}};
        a.lookup[i] = &t[i];
    }
    const int64_t q0 = below(140), k0 = below(140), n_q = 1 + below(40), n_k = 1 + below(50);
    asp_mask_range look[ASP_MASK_MAX_LOOKUPS];
    asp_mask_look_ranges(&a, a.mask.key_lookups, 0, k0, n_k, look);
    asp_mask_queries(&tile, &a, 0, q0, n_q);
    const asp_mask_state whole = asp_mask_keys(&tile, &a, k0, n_k, look);
    int64_t seen = 0;
    for (int64_t q = 0; q < n_q; q++)
        for (int64_t k = 0; k < n_k; k++) seen += asp_attend_sees(&a, 0, q0 + q, k0 + k);
    if (whole == ASP_MASK_NEVER) assert_int_equal(seen, 0);
    if (whole == ASP_MASK_ALWAYS) assert_int_equal(seen, n_q * n_k);
    asp_mask_rows(&tile, &a, 0, k0, n_k);
    for (uint32_t i = 0; i < a.mask.n_atoms; i++) {
        if (tile.state[i] != ASP_MASK_SOMETIMES || tile.wide[i]) continue;
        for (int64_t q = 0; q < n_q; q++)
            for (int64_t k = 0; k < n_k; k++) {
                const int64_t x = tile.q_side[i][q], y = tile.k_side[i][k], u = tile.q_rel[i][q],
                              v = tile.k_rel[i][k];
                assert_true((x <= y) == (u <= v) && (x == y) == (u == v));
            }
    }
}

static void tiles_against_brute_force(void **s)
{
    (void)s;
    static const char *const texts[] = {"k <= q",
                                        "k <= q & q - k <= 30",
                                        "T0[q] == T0[k] & k <= q",
                                        "T0[q] != T0[k] | q/16 == k/16",
                                        "T1[k] != 0 & 2 * q - 3 * k <= 7",
                                        "T0[q] - T1[k] <= q - 90",
                                        "q/7 == k/5 | T0[k]/2 <= T1[q]/3",
                                        "T0[q] == 1 & T1[k] == 2"};
    for (int trial = 0; trial < 800 / SPARSE(8); trial++) {
        for (int i = 0; i < 200; i++)
            tokens[0][i] = trial % 2 ? i / 60 : below(3),
            tokens[1][i] = trial % 3 ? i / 25 - 3 : below(4) - 2;
        tile_of(texts[trial % (int)ASP_COUNT_OF(texts)]);
    }
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_of_all_kinds),
        cmocka_unit_test(numbers_of_all_kinds),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(case_22_key_padding),
        cmocka_unit_test(case_23_dense_masks),
        cmocka_unit_test(case_24_masks_of_heads),
        cmocka_unit_test(case_26_row_without_keys),
        cmocka_unit_test(case_28_sliding_window),
        cmocka_unit_test(tiles_against_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
