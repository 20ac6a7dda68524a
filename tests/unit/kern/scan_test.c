// Kernels that carry a state along a dimension, convolution, dropout: references on hand values,
// fast ones against them, the same random numbers for every split.  Case 37 of the acceptance list.
// SPDX-License-Identifier: Apache-2.0
#include "base/rows.h"
#include "call.h"

static asp_ctx cx;

static void sums_by_hand(void **state)
{
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        asp_kcall k = {.attr = &(asp_scan_attr){.dim = 1}, .n_in = 1, .n_out = 1};
        k.in[0] = TENSOR(ASP_F32, 1, 8);
        k.out[0] = TENSOR(ASP_F32, 1, 8);
        SET(&k.in[0], 1, 2, 3, 4, 5, 6, 7, 8);
        const asp_kern_row *row =
            fast ? asp_kern_choose(ASP_OP_cumsum, ASP_F32) : asp_kern_ref(ASP_OP_cumsum);
        call_run(&cx, row, &k, 1);
        EXPECT(&k.out[0], 1, 3, 6, 10, 15, 21, 28, 36);
        k.attr = &(asp_scan_attr){.dim = 1, .reverse = true};
        call_run(&cx, row, &k, 1);
        EXPECT(&k.out[0], 36, 35, 33, 30, 26, 21, 15, 8);
        call_free(&k);
    }
}

// h = a h + b from 2: 1/2 * 2 + 1 = 2, 3 * 2 - 1 = 5, 0 * 5 + 4 = 4; backwards from 2: 0 * 2 + 4,
// 3 * 4 - 1, 1/2 * 11 + 1.
static void states_by_hand(void **state)
{
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        asp_kcall k = {.attr = &(asp_scan_attr){.dim = 0}, .n_in = 3, .n_out = 1};
        k.in[0] = TENSOR(ASP_F32, 3, 1);
        k.in[1] = TENSOR(ASP_F32, 3, 2);
        k.in[2] = TENSOR(ASP_F32, 1, 2);
        k.out[0] = TENSOR(ASP_F32, 3, 2);
        SET(&k.in[0], 0.5, 3, 0);
        SET(&k.in[1], 1, 0, -1, 0, 4, 0);
        SET(&k.in[2], 2, 1);
        const asp_kern_row *row =
            fast ? asp_kern_choose(ASP_OP_scan, ASP_F32) : asp_kern_ref(ASP_OP_scan);
        call_run(&cx, row, &k, 1);
        EXPECT(&k.out[0], 2, 0.5, 5, 1.5, 4, 0);
        k.attr = &(asp_scan_attr){.dim = 0, .reverse = true};
        call_run(&cx, row, &k, 1);
        EXPECT(&k.out[0], 6.5, 0, 11, 0, 4, 0);
        call_free(&k);
    }
}

// Case 37: width 3 of ones on 1 .. 8.
static void convolution_by_hand(void **state)
{
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        const asp_kern_row *row =
            fast ? asp_kern_choose(ASP_OP_conv, ASP_F32) : asp_kern_ref(ASP_OP_conv);
        asp_conv_attr attr = {.stride = 1, .dilation = 1, .groups = 0, .left = 2};
        asp_kcall k = {.attr = &attr, .n_in = 2, .n_out = 1};
        k.in[0] = TENSOR(ASP_F32, 1, 1, 8);
        k.in[1] = TENSOR(ASP_F32, 1, 1, 3);
        k.out[0] = TENSOR(ASP_F32, 1, 1, 8);
        SET(&k.in[0], 1, 2, 3, 4, 5, 6, 7, 8);
        SET(&k.in[1], 1, 1, 1);
        call_run(&cx, row, &k, 1);
        EXPECT(&k.out[0], 1, 3, 6, 9, 12, 15, 18, 21);
        call_free_tensor(&k.out[0]);
        // Every third place, taps two apart: places 0, 3, 6 see x[m - 1] + 10 x[m + 1] + 100 x[m +
        // 3].
        attr = (asp_conv_attr){.stride = 3, .dilation = 2, .groups = 1, .left = 1, .right = 3};
        k.out[0] = TENSOR(ASP_F32, 1, 1, 3);
        SET(&k.in[1], 1, 10, 100);
        call_run(&cx, row, &k, 1);
        EXPECT(&k.out[0], 420, 753, 86);
        call_free(&k);
    }
}

// ---- fast against reference --------------------------------------------------------------------

static union {
    asp_scan_attr scan;
    asp_conv_attr conv;
    asp_conv_grad_attr conv_grad;
    asp_dropout_attr dropout;
} attr;

static void make_scan(call_random *r, const asp_kern_row *row, asp_kcall *k)
{
    const int64_t dims[] = {1 + call_pick(r, 3), 1 + call_pick(r, 9), 1 + call_pick(r, 4),
                            1 + call_pick(r, call_pick(r, 2) ? 900 : 3)};
    const int64_t dim = call_pick(r, 4);
    int64_t a[4], first[4];
    memcpy(first, dims, sizeof first);
    first[dim] = 1;
    for (int d = 0; d < 4; d++) a[d] = d != dim && call_pick(r, 2) ? 1 : dims[d];
    attr.scan = (asp_scan_attr){.dim = dim, .reverse = call_pick(r, 2)};
    k->in[0] = call_tensor(row->dtype, 4, row->op == ASP_OP_scan ? a : dims);
    k->out[0] = call_tensor(row->dtype, 4, dims);
    if (row->op == ASP_OP_cumsum) return;
    k->n_in = 2 + (int)call_pick(r, 2);
    k->in[1] = call_tensor(row->dtype, 4, dims);
    if (k->n_in == 3) k->in[2] = call_tensor(row->dtype, 4, first);
}

static void make_conv(call_random *r, const asp_kern_row *row, asp_kcall *k)
{
    const int64_t groups = 1 + call_pick(r, 3), outputs = groups * (1 + call_pick(r, 3));
    const bool depthwise = call_pick(r, 3) == 0;
    const int64_t inputs = depthwise ? 1 : 1 + call_pick(r, 3), taps = 1 + call_pick(r, 5);
    attr.conv = (asp_conv_attr){.stride = 1 + call_pick(r, 3),
                                .dilation = 1 + call_pick(r, 3),
                                .left = call_pick(r, 6),
                                .right = call_pick(r, 4),
                                .groups = depthwise ? 0 : groups};
    const int64_t channels = depthwise ? outputs : groups * inputs;
    const int64_t length =
        (taps - 1) * attr.conv.dilation + 1 + call_pick(r, call_pick(r, 3) ? 30 : 3000);
    const int64_t after =
        (length + attr.conv.left + attr.conv.right - (taps - 1) * attr.conv.dilation - 1) /
            attr.conv.stride +
        1;
    asp_tensor x = TENSOR(row->dtype, 2, channels, length);
    asp_tensor w = TENSOR(row->dtype, outputs, inputs, taps);
    asp_tensor y = TENSOR(row->dtype, 2, outputs, after);
    k->n_in = 2;
    if (row->op == ASP_OP_conv) {
        k->in[0] = x, k->in[1] = w, k->out[0] = y;
        return;
    }
    const asp_conv_attr a = attr.conv;
    attr.conv_grad = (asp_conv_grad_attr){.stride = a.stride,
                                          .dilation = a.dilation,
                                          .groups = a.groups,
                                          .left = a.left,
                                          .right = a.right};
    bool input = row->op == ASP_OP_conv_input_grad;
    k->in[0] = y, k->in[1] = input ? w : x, k->out[0] = input ? x : w;
}

static void make_dropout(call_random *r, const asp_kern_row *row, asp_kcall *k)
{
    static int64_t sizes[3];
    const int64_t outer = 1 + call_pick(r, 3), whole = 1 + call_pick(r, 20),
                  parts = 1 + call_pick(r, 4);
    const int64_t of = whole + call_pick(r, 3), behind = 1 + call_pick(r, 5);
    const int64_t room = asp_rows_room(of, parts);
    const int64_t dim = call_pick(r, 3);
    int64_t dims[] = {1 + call_pick(r, 3), 1 + call_pick(r, 3), 1 + call_pick(r, 300)};
    attr.dropout = (asp_dropout_attr){.p = (double)call_pick(r, 11) / 10,
                                      .site = call_pick(r, 9),
                                      .dims = {1, {dim}},
                                      .parts = {1, {parts}},
                                      .stride = {1, {1}},
                                      .rings = {1, {1}}};
    dims[dim] = outer * room * behind;
    sizes[0] = outer;
    sizes[1] = whole;
    sizes[2] = of;
    if (call_pick(r, 3) == 0) attr.dropout.dims.n = 0;
    k->sizes = sizes;
    k->seed = 7;
    k->step = (uint64_t)call_pick(r, 5);
    k->ranks = (int)parts;
    k->rank = (int)call_pick(r, parts);
    k->in[0] = call_tensor(row->dtype, 3, dims);
    k->out[0] = call_tensor(row->dtype, 3, dims);
}

static void make(call_random *r, const asp_kern_row *row, asp_kcall *k)
{
    *k = (asp_kcall){.attr = &attr, .n_in = 1, .n_out = 1};
    if (row->op == ASP_OP_cumsum || row->op == ASP_OP_scan)
        make_scan(r, row, k);
    else if (row->op == ASP_OP_dropout)
        make_dropout(r, row, k);
    else
        make_conv(r, row, k);
    for (int i = 0; i < k->n_in; i++)
        for (int64_t e = 0; e < asp_tensor_count(&k->in[i]); e++)
            call_put(&k->in[i], e, (double)(call_pick(r, 20001) - 10000) / 10000.0);
}

static void fast_kernels_agree_with_their_references(void **state)
{
    (void)state;
    static const asp_op mine[] = {
        ASP_OP_cumsum,           ASP_OP_scan,   ASP_OP_conv, ASP_OP_conv_input_grad,
        ASP_OP_conv_weight_grad, ASP_OP_dropout};
    int n, checked = 0;
    const asp_kern_row *rows = asp_kern_rows(&n);
    for (int i = 0; i < n; i++)
        for (size_t m = 0; m < ASP_COUNT_OF(mine); m++) {
            if (rows[i].op != mine[m] || rows[i].isa > asp_isa_best()) continue;
            for (uint32_t round = 0; round < 12; round++)
                call_compare(&cx, &rows[i], make, (uint32_t)i * 100 + round, 2e-6);
            checked++;
        }
    assert_true(checked >= 7);
}

// ---- dropout -----------------------------------------------------------------------------------

#define TOKENS 11
#define WIDTH 6

// Ones through dropout on each of P ranks, tokens split; each element is compared with the whole.
static void masks_do_not_depend_on_the_split(void **state)
{
    (void)state;
    asp_dropout_attr a = {.p = 0.4, .site = 5};
    asp_kcall whole = {.attr = &a, .n_in = 1, .n_out = 1, .seed = 3, .step = 9, .ranks = 1};
    whole.in[0] = TENSOR(ASP_F64, 2, TOKENS, WIDTH);
    whole.out[0] = TENSOR(ASP_F64, 2, TOKENS, WIDTH);
    for (int i = 0; i < 2 * TOKENS * WIDTH; i++) call_put(&whole.in[0], i, 1);
    call_run(&cx, asp_kern_ref(ASP_OP_dropout), &whole, 1);
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int zigzag = 0; zigzag < 2; zigzag++)
            for (int rank = 0; rank < ranks; rank++) {
                const int64_t room = asp_rows_room(TOKENS, ranks), sizes[] = {1, TOKENS, TOKENS};
                const asp_rows rows =
                    asp_rows_of_rank(TOKENS, ranks, zigzag ? ranks : 1, zigzag, rank);
                asp_dropout_attr s = {.p = 0.4, .site = 5, .zigzag = zigzag};
                s.dims = (asp_ints){1, {1}};
                s.parts = (asp_ints){1, {ranks}};
                s.stride = (asp_ints){1, {1}};
                s.rings = (asp_ints){1, {zigzag ? ranks : 1}};
                s.outer.n = s.whole.n = 1;
                asp_kcall k = {.attr = &s,
                               .sizes = sizes,
                               .n_in = 1,
                               .n_out = 1,
                               .seed = 3,
                               .step = 9,
                               .rank = rank,
                               .ranks = ranks};
                k.in[0] = TENSOR(ASP_F64, 2, room, WIDTH);
                k.out[0] = TENSOR(ASP_F64, 2, room, WIDTH);
                for (int i = 0; i < 2 * room * WIDTH; i++) call_put(&k.in[0], i, 1);
                call_run(&cx, asp_kern_choose(ASP_OP_dropout, ASP_F64), &k, 2);
                for (int64_t i = 0; i < 2 * room * WIDTH; i++) {
                    const int64_t at = asp_rows_place(&rows, i / WIDTH % room);
                    const double want =
                        at < 0 ? 0
                               : call_get(&whole.out[0],
                                          (i / WIDTH / room * TOKENS + at) * WIDTH + i % WIDTH);
                    assert_true(call_get(&k.out[0], i) == want);
                }
                call_free(&k);
            }
    call_free(&whole);
}

// Two places in one dim: 4 groups x 6 in pairs over 2 x 3 ranks.
static void two_places_in_one_dim(void **state)
{
    (void)state;
    asp_dropout_attr a = {.p = 0.5, .site = 1};
    asp_kcall whole = {.attr = &a, .n_in = 1, .n_out = 1, .ranks = 1};
    whole.in[0] = TENSOR(ASP_F32, 3, 24, 2);
    whole.out[0] = TENSOR(ASP_F32, 3, 24, 2);
    for (int i = 0; i < 144; i++) call_put(&whole.in[0], i, 1);
    call_run(&cx, asp_kern_ref(ASP_OP_dropout), &whole, 1);
    asp_dropout_attr s = {.p = 0.5, .site = 1};
    s.dims = (asp_ints){2, {1, 1}};
    s.parts = (asp_ints){2, {3, 2}}; // the inner place first
    s.stride = (asp_ints){2, {1, 3}};
    s.rings = (asp_ints){2, {1, 1}};
    s.outer.n = s.whole.n = 2;
    const int64_t sizes[] = {2, 1, 6, 4,
                             6, 4}; // two groups stand before the pairs here, nothing before groups
    for (int rank = 0; rank < 6; rank++) {
        asp_kcall k = {.attr = &s, .sizes = sizes, .n_in = 1, .n_out = 1, .rank = rank, .ranks = 6};
        k.in[0] = TENSOR(ASP_F32, 3, 4, 2);
        k.out[0] = TENSOR(ASP_F32, 3, 4, 2);
        for (int i = 0; i < 24; i++) call_put(&k.in[0], i, 1);
        call_run(&cx, asp_kern_choose(ASP_OP_dropout, ASP_F32), &k, 1);
        for (int i = 0; i < 24; i++) {
            const int head = i / 2 % 4, group = rank / 3 * 2 + head / 2,
                      in = rank % 3 * 2 + head % 2;
            assert_true(call_get(&k.out[0], i) ==
                        call_get(&whole.out[0], i / 8 * 48 + (group * 6 + in) * 2 + i % 2));
        }
        call_free(&k);
    }
    call_free(&whole);
}

// About p of many are dropped, sites and steps differ, the rest is scaled: the mean stays.
static void shares_and_means(void **state)
{
    (void)state;
    asp_dropout_attr a = {.p = 0.25, .site = 0};
    asp_kcall k = {.attr = &a, .n_in = 1, .n_out = 1, .ranks = 1};
    k.in[0] = TENSOR(ASP_F32, 40000);
    k.out[0] = TENSOR(ASP_F32, 40000);
    double sum[4] = {0}, both = 0;
    static uint8_t first[40000];
    for (int i = 0; i < 40000; i++) call_put(&k.in[0], i, 1);
    for (int c = 0; c < 4; c++) {
        a.site = c == 1;
        k.step = c == 2;
        k.seed = c == 3;
        call_run(&cx, asp_kern_choose(ASP_OP_dropout, ASP_F32), &k, 1);
        for (int i = 0; i < 40000; i++) {
            const double y = call_get(&k.out[0], i);
            assert_true(y == 0 || fabs(y - 4.0 / 3) < 1e-6);
            sum[c] += y;
            if (c == 0) first[i] = y != 0;
            if (c == 1) both += first[i] && y != 0;
        }
        assert_true(fabs(sum[c] / 40000 - 1) < 0.02);
        assert_true(c == 0 || sum[c] != sum[0]);
    }
    assert_true(fabs(both / 40000 - 0.75 * 0.75) < 0.02);
    call_free(&k);
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_by_hand),
        cmocka_unit_test(states_by_hand),
        cmocka_unit_test(convolution_by_hand),
        cmocka_unit_test(fast_kernels_agree_with_their_references),
        cmocka_unit_test(masks_do_not_depend_on_the_split),
        cmocka_unit_test(two_places_in_one_dim),
        cmocka_unit_test(shares_and_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
