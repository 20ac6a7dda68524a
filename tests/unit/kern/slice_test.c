// Kernels that cut, join and move along a dimension and that look up by data: references on hand
// values, fast ones against them.  SPDX-License-Identifier: Apache-2.0
#include "call.h"

static asp_ctx cx;

// ---- hand values -------------------------------------------------------------------------------

// x = 0 .. 11 in (2, 3, 2); every dtype's kernel gives the values.
static void check(asp_op op, const void *attr, const int64_t *sizes, asp_tensor shape,
                  const double *want)
{
    static const asp_dtype dtypes[] = {ASP_F64, ASP_F32, ASP_I64};
    for (size_t i = 0; i < 2 * ASP_COUNT_OF(dtypes); i++) {
        const asp_dtype dtype = dtypes[i / 2];
        const asp_kern_row *row = i % 2 ? asp_kern_choose(op, dtype) : asp_kern_ref(op);
        asp_kcall k = {.attr = attr, .sizes = sizes, .n_in = 1, .n_out = 1};
        k.in[0] = TENSOR(dtype, 2, 3, 2);
        k.out[0] = call_tensor(dtype, shape.rank, shape.dim);
        for (int e = 0; e < 12; e++) call_put(&k.in[0], e, e);
        call_run(&cx, row, &k, 2);
        call_expect(&k.out[0], want, 0);
        call_free(&k);
    }
}
#define SIZES(...) \
    (const int64_t[]) { __VA_ARGS__ }
#define SHAPE(...)                                                           \
    (asp_tensor)                                                             \
    {                                                                        \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = { __VA_ARGS__ } \
    }
#define WANT(...) \
    (const double[]) { __VA_ARGS__ }

static void moves_by_hand(void **state)
{
    (void)state;
    check(ASP_OP_slice, &(asp_range_attr){.dim = 1}, SIZES(1, 3), SHAPE(2, 2, 2),
          WANT(2, 3, 4, 5, 8, 9, 10, 11));
    check(ASP_OP_slice, &(asp_range_attr){.dim = 2}, SIZES(1, 2), SHAPE(2, 3, 1),
          WANT(1, 3, 5, 7, 9, 11));
    check(ASP_OP_pad, &(asp_pad_attr){.dim = 1, .value = -1}, SIZES(1, 0), SHAPE(2, 4, 2),
          WANT(-1, -1, 0, 1, 2, 3, 4, 5, -1, -1, 6, 7, 8, 9, 10, 11));
    check(ASP_OP_pad, &(asp_pad_attr){.dim = 0}, SIZES(0, 1), SHAPE(3, 3, 2),
          WANT(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0, 0, 0));
    check(ASP_OP_flip, &(asp_dim_attr){.dim = 1}, NULL, SHAPE(2, 3, 2),
          WANT(4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7));
    check(ASP_OP_roll, &(asp_roll_attr){.dim = 1, .by = 1}, NULL, SHAPE(2, 3, 2),
          WANT(4, 5, 0, 1, 2, 3, 10, 11, 6, 7, 8, 9));
    check(ASP_OP_roll, &(asp_roll_attr){.dim = 1, .by = -4}, NULL, SHAPE(2, 3, 2),
          WANT(2, 3, 4, 5, 0, 1, 8, 9, 10, 11, 6, 7));
    check(ASP_OP_shift, &(asp_shift_attr){.by = -1, .fill = 7, .dim = 1}, NULL, SHAPE(2, 3, 2),
          WANT(7, 7, 0, 1, 2, 3, 7, 7, 6, 7, 8, 9));
    check(ASP_OP_shift, &(asp_shift_attr){.by = 2, .dim = 1}, NULL, SHAPE(2, 3, 2),
          WANT(4, 5, 0, 0, 0, 0, 10, 11, 0, 0, 0, 0));
    check(ASP_OP_shift, &(asp_shift_attr){.by = 9, .fill = 1, .dim = -1}, NULL, SHAPE(2, 3, 2),
          WANT(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
    check(ASP_OP_triangle, &(asp_triangle_attr){.diagonal = -1}, NULL, SHAPE(2, 3, 2),
          WANT(0, 0, 2, 0, 4, 5, 0, 0, 8, 0, 10, 11));
    check(ASP_OP_triangle, &(asp_triangle_attr){.upper = true}, NULL, SHAPE(2, 3, 2),
          WANT(0, 1, 0, 3, 0, 0, 6, 7, 0, 9, 0, 0));
}

static void pieces_by_hand(void **state)
{
    (void)state;
    const asp_dim_attr dim = {.dim = 1};
    asp_kcall k = {.attr = &dim, .n_in = 2, .n_out = 1};
    k.in[0] = TENSOR(ASP_F32, 2, 1, 2);
    k.in[1] = TENSOR(ASP_F32, 2, 2, 2);
    k.out[0] = TENSOR(ASP_F32, 2, 3, 2);
    SET(&k.in[0], 1, 2, 3, 4);
    SET(&k.in[1], 5, 6, 7, 8, 9, 10, 11, 12);
    call_run(&cx, asp_kern_choose(ASP_OP_cat, ASP_F32), &k, 1);
    EXPECT(&k.out[0], 1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11, 12);
    const asp_pieces_attr pieces = {.dim = 1};
    asp_kcall back = {.attr = &pieces, .n_in = 1, .n_out = 2, .in = {k.out[0]}};
    back.out[0] = TENSOR(ASP_F32, 2, 1, 2);
    back.out[1] = TENSOR(ASP_F32, 2, 2, 2);
    call_run(&cx, asp_kern_choose(ASP_OP_split_sizes, ASP_F32), &back, 1);
    EXPECT(&back.out[0], 1, 2, 3, 4);
    EXPECT(&back.out[1], 5, 6, 7, 8, 9, 10, 11, 12);
    back.n_in = 0;
    call_free(&back);
    call_free(&k);
}

static void lookups_by_hand(void **state)
{
    (void)state;
    const asp_dim_attr dim = {.dim = 1};
    asp_kcall k = {.attr = &dim, .n_in = 2, .n_out = 1};
    k.in[0] = TENSOR(ASP_F64, 2, 3);
    k.in[1] = TENSOR(ASP_I64, 2, 2);
    k.out[0] = TENSOR(ASP_F64, 2, 2);
    SET(&k.in[0], 10, 11, 12, 20, 21, 22);
    SET(&k.in[1], 2, 0, 1, 1);
    call_run(&cx, asp_kern_ref(ASP_OP_gather), &k, 1);
    EXPECT(&k.out[0], 12, 10, 21, 21);
    const asp_index_add_attr add = {.dim = 1};
    asp_kcall back = {.attr = &add, .n_in = 2, .n_out = 1, .in = {k.in[1], k.out[0]}};
    back.out[0] = TENSOR(ASP_F64, 2, 3);
    call_run(&cx, asp_kern_ref(ASP_OP_scatter_add), &back, 1);
    EXPECT(&back.out[0], 10, 0, 12, 0, 42, 0);
    asp_kcall s = {.attr = &dim, .n_in = 3, .n_out = 1, .in = {k.in[0], k.in[1], k.out[0]}};
    s.out[0] = TENSOR(ASP_F64, 2, 3);
    SET(&k.out[0], 1, 2, 3, 4);
    call_run(&cx, asp_kern_ref(ASP_OP_scatter), &s, 1);
    EXPECT(&s.out[0], 2, 11, 1, 20, 4, 22);
    call_free_tensor(&s.out[0]);
    call_free_tensor(&back.out[0]);
    call_free(&k);
}

static void slices_by_hand(void **state)
{
    (void)state;
    const asp_dim_attr dim = {.dim = 1};
    asp_kcall k = {.attr = &dim, .n_in = 2, .n_out = 1};
    k.in[0] = TENSOR(ASP_F64, 2, 3);
    k.in[1] = TENSOR(ASP_I64, 2, 2);
    k.out[0] = TENSOR(ASP_F64, 2, 2, 2);
    SET(&k.in[0], 10, 11, 12, 20, 21, 22);
    SET(&k.in[1], 2, 0, 1, 2);
    call_run(&cx, asp_kern_ref(ASP_OP_index_select), &k, 1);
    EXPECT(&k.out[0], 12, 10, 11, 12, 22, 20, 21, 22);
    const asp_index_add_attr add = {.dim = 1};
    asp_kcall back = {.attr = &add, .n_in = 2, .n_out = 1, .in = {k.in[1], k.out[0]}};
    back.out[0] = TENSOR(ASP_F64, 2, 3);
    call_run(&cx, asp_kern_ref(ASP_OP_index_add), &back, 1);
    EXPECT(&back.out[0], 10, 11, 24, 20, 21, 44);
    call_free_tensor(&back.out[0]);
    call_free(&k);
}

static void orders_by_hand(void **state)
{
    (void)state;
    asp_kcall k = {
        .attr = &(asp_topk_attr){.dim = 0, .k = 3, .largest = true}, .n_in = 1, .n_out = 2};
    k.in[0] = TENSOR(ASP_F64, 5);
    k.out[0] = TENSOR(ASP_F64, 3);
    k.out[1] = TENSOR(ASP_I64, 3);
    SET(&k.in[0], 2, 7, 7, -1, 7);
    call_run(&cx, asp_kern_ref(ASP_OP_topk), &k, 1);
    EXPECT(&k.out[0], 7, 7, 7);
    EXPECT(&k.out[1], 1, 2, 4);
    k.attr = &(asp_topk_attr){.dim = 0, .k = 3, .largest = false};
    call_run(&cx, asp_kern_ref(ASP_OP_topk), &k, 1);
    EXPECT(&k.out[0], -1, 2, 7);
    EXPECT(&k.out[1], 3, 0, 1);
    asp_kcall s = {.attr = &(asp_sort_attr){.dim = 0}, .n_in = 1, .n_out = 2, .in = {k.in[0]}};
    s.out[0] = TENSOR(ASP_F64, 5);
    s.out[1] = TENSOR(ASP_I64, 5);
    SET(&k.in[0], 2, (double)NAN, 7, 2, 0);
    call_run(&cx, asp_kern_ref(ASP_OP_sort), &s, 1);
    EXPECT(&s.out[1], 4, 0, 3, 2, 1);
    s.n_in = 0;
    call_free(&s);
    call_free(&k);
    asp_kcall h = {.attr = &(asp_one_hot_attr){.classes = 3}, .n_in = 1, .n_out = 1};
    h.in[0] = TENSOR(ASP_I64, 2);
    h.out[0] = TENSOR(ASP_I64, 2, 3);
    SET(&h.in[0], 2, 0);
    call_run(&cx, asp_kern_ref(ASP_OP_one_hot), &h, 1);
    EXPECT(&h.out[0], 0, 0, 1, 1, 0, 0);
    call_free(&h);
}

// Heapsort and k = n passes give the same order, along a dim that is not the last, with equal ones.
static void sorting_is_taking_all(void **state)
{
    (void)state;
    call_random r = {4};
    for (int round = 0; round < 40; round++) {
        const int64_t n = 1 + call_pick(&r, 40), inner = 1 + call_pick(&r, 3);
        const bool down = call_pick(&r, 2);
        const asp_topk_attr top = {.dim = 1, .k = n, .largest = down};
        const asp_sort_attr sort = {.dim = 1, .descending = down};
        asp_kcall k = {.attr = &top, .n_in = 1, .n_out = 2};
        k.in[0] = TENSOR(ASP_F32, 2, n, inner);
        k.out[0] = TENSOR(ASP_F32, 2, n, inner);
        k.out[1] = TENSOR(ASP_I64, 2, n, inner);
        for (int64_t i = 0; i < 2 * n * inner; i++)
            call_put(&k.in[0], i, (double)(call_pick(&r, 12) - 6));
        asp_kcall s = {.attr = &sort, .n_in = 1, .n_out = 2, .in = {k.in[0]}};
        s.out[0] = TENSOR(ASP_F32, 2, n, inner);
        s.out[1] = TENSOR(ASP_I64, 2, n, inner);
        call_run(&cx, asp_kern_ref(ASP_OP_topk), &k, 1);
        call_run(&cx, asp_kern_ref(ASP_OP_sort), &s, 2);
        for (int i = 0; i < 2; i++)
            assert_memory_equal(k.out[i].data, s.out[i].data, (size_t)call_bytes(&k.out[i]));
        s.n_in = 0;
        call_free(&s);
        call_free(&k);
    }
}

// Nothing is read or written outside; the call is marked.
static void indices_outside_are_reported(void **state)
{
    (void)state;
    static const asp_op ops[] = {ASP_OP_gather, ASP_OP_scatter_add, ASP_OP_index_select,
                                 ASP_OP_index_add, ASP_OP_embedding};
    static const double bad[] = {-1, 3, 1e15};
    for (size_t i = 0; i < 2 * ASP_COUNT_OF(ops); i++)
        for (size_t j = 0; j < ASP_COUNT_OF(bad); j++) {
            const asp_op op = ops[i / 2];
            const bool sums = op == ASP_OP_scatter_add || op == ASP_OP_index_add;
            const bool ids_first = sums || op == ASP_OP_embedding;
            const bool square = op == ASP_OP_gather || op == ASP_OP_scatter_add;
            const asp_index_add_attr sum = {.dim = 0};
            const asp_dim_attr dim = {.dim = 0};
            atomic_int bad_index = 0;
            asp_kcall k = {.n_in = 2, .n_out = 1, .bad_index = &bad_index};
            k.attr = sums ? (const void *)&sum : &dim;
            asp_tensor *ids = &k.in[!ids_first], *x = &k.in[ids_first];
            *ids = square ? TENSOR(ASP_I64, 2, 2) : TENSOR(ASP_I64, 2);
            *x = sums ? TENSOR(ASP_F32, 2, 2) : TENSOR(ASP_F32, 3, 2);
            k.out[0] = sums ? TENSOR(ASP_F32, 3, 2) : TENSOR(ASP_F32, 2, 2);
            for (int e = 0; e < asp_tensor_count(x); e++) call_put(x, e, e + 1);
            for (int e = 0; e < asp_tensor_count(ids); e++) call_put(ids, e, e % 2);
            const asp_kern_row *row = i % 2 ? asp_kern_choose(op, ASP_F32) : asp_kern_ref(op);
            call_run(&cx, row, &k, 1);
            assert_int_equal(bad_index, 0);
            call_put(ids, 1, bad[j]);
            call_run(&cx, row, &k, 1);
            assert_int_equal(bad_index, 1);
            call_free(&k);
        }
}

// ---- fast against reference --------------------------------------------------------------------

static union {
    asp_range_attr range;
    asp_pad_attr pad;
    asp_dim_attr dim;
    asp_roll_attr roll;
    asp_shift_attr shift;
    asp_split_attr split;
    asp_pieces_attr pieces;
    asp_index_add_attr index_add;
} attr;
static int64_t sizes[2];

static void fill(call_random *r, const asp_tensor *t)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++)
        call_put(t, i, (double)(call_pick(r, 20001) - 10000) / 5000.0);
}

static void fill_ids(call_random *r, const asp_tensor *t, int64_t below)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++) call_put(t, i, (double)call_pick(r, below));
}

static void shapes_of_moves(call_random *r, asp_op op, int64_t dim, const int64_t *dims,
                            asp_kcall *k, asp_dtype dtype)
{
    int64_t other[4];
    memcpy(other, dims, sizeof other);
    if (op == ASP_OP_slice) {
        attr.range = (asp_range_attr){.dim = dim};
        sizes[0] = call_pick(r, dims[dim]);
        sizes[1] = sizes[0] + 1 + call_pick(r, dims[dim] - sizes[0]);
        other[dim] = sizes[1] - sizes[0];
    } else if (op == ASP_OP_pad) {
        attr.pad = (asp_pad_attr){.dim = dim, .value = (double)call_pick(r, 3) - 1};
        sizes[0] = call_pick(r, 4);
        sizes[1] = call_pick(r, 4);
        other[dim] += sizes[0] + sizes[1];
    } else if (op == ASP_OP_roll)
        attr.roll = (asp_roll_attr){.dim = dim, .by = call_pick(r, 50) - 25};
    else if (op == ASP_OP_shift)
        attr.shift = (asp_shift_attr){.dim = dim == 3 && call_pick(r, 2) ? -1 : dim,
                                      .by = call_pick(r, 30) - 15,
                                      .fill = call_pick(r, 3) - 1};
    else
        attr.dim = (asp_dim_attr){.dim = dim};
    k->out[0] = call_tensor(dtype, 4, other);
}

static void shapes_of_pieces(call_random *r, asp_op op, int64_t dim, const int64_t *dims,
                             asp_kcall *k, asp_dtype dtype)
{
    const int n = 1 + (int)call_pick(r, 5);
    int64_t other[4], whole[4];
    asp_tensor *pieces = op == ASP_OP_cat ? k->in : k->out;
    memcpy(whole, dims, sizeof whole);
    memcpy(other, dims, sizeof other);
    whole[dim] = 0;
    for (int i = 0; i < n; i++) {
        if (op != ASP_OP_split) other[dim] = 1 + call_pick(r, 9);
        whole[dim] += other[dim];
        pieces[i] = call_tensor(dtype, 4, other);
    }
    if (op == ASP_OP_cat) {
        attr.dim = (asp_dim_attr){.dim = dim};
        k->n_in = n;
        k->out[0] = call_tensor(dtype, 4, whole);
        return;
    }
    if (op == ASP_OP_split)
        attr.split = (asp_split_attr){.dim = dim, .parts = n};
    else
        attr.pieces = (asp_pieces_attr){.dim = dim};
    k->n_out = n;
    k->in[0] = call_tensor(dtype, 4, whole);
}

static void shapes_of_lookups(call_random *r, asp_op op, int64_t dim, const int64_t *dims,
                              asp_kcall *k, asp_dtype dtype)
{
    const int64_t m = 1 + call_pick(r, 9);
    const bool sums = op == ASP_OP_scatter_add || op == ASP_OP_index_add;
    int64_t picked[4], longer[5];
    memcpy(picked, dims, sizeof picked);
    picked[dim] = m;
    for (int64_t d = 0, o = 0; d < 4; d++) {
        longer[o++] = d == dim ? m : dims[d];
        if (d == dim) longer[o++] = 2;
    }
    k->n_in = 2;
    if (sums)
        attr.index_add = (asp_index_add_attr){.dim = dim};
    else
        attr.dim = (asp_dim_attr){.dim = dim};
    const bool select = op == ASP_OP_index_select || op == ASP_OP_index_add;
    asp_tensor ids = select ? TENSOR(ASP_I64, m, 2) : call_tensor(ASP_I64, 4, picked);
    asp_tensor small = call_tensor(dtype, 4, dims);
    asp_tensor large = select ? call_tensor(dtype, 5, longer) : call_tensor(dtype, 4, picked);
    fill_ids(r, &ids, dims[dim]);
    k->in[sums ? 0 : 1] = ids;
    k->in[sums ? 1 : 0] = sums ? large : small;
    k->out[0] = sums ? small : large;
    if (op != ASP_OP_scatter) return;
    k->n_in = 3;
    k->in[2] = large;
    k->out[0] = call_tensor(dtype, 4, dims);
}

static bool is_one_of(asp_op op, int n, const asp_op *ops)
{
    for (int i = 0; i < n; i++)
        if (ops[i] == op) return true;
    return false;
}
static const asp_op moves[] = {ASP_OP_slice, ASP_OP_pad, ASP_OP_flip, ASP_OP_roll, ASP_OP_shift};
static const asp_op pieces[] = {ASP_OP_cat, ASP_OP_split, ASP_OP_split_sizes};
static const asp_op lookups[] = {ASP_OP_gather, ASP_OP_scatter, ASP_OP_scatter_add,
                                 ASP_OP_index_select, ASP_OP_index_add};
#define IS_ONE_OF(op, list) is_one_of(op, ASP_COUNT_OF(list), list)

// One shape in eight has runs longer than a chunk, or more lanes than a claim.
static void make(call_random *r, const asp_kern_row *row, asp_kcall *k)
{
    const bool large = call_pick(r, 8) == 0, lookup = IS_ONE_OF(row->op, lookups);
    const int64_t dims[] = {1 + call_pick(r, large ? 1 : 3), 1 + call_pick(r, large ? 2 : 4),
                            1 + call_pick(r, large ? 2 : 9),
                            !large   ? 1 + call_pick(r, 40)
                            : lookup ? 1020 + call_pick(r, 20)
                                     : 16380 + call_pick(r, 20)};
    const int64_t dim = call_pick(r, large ? 3 : 4);
    *k = (asp_kcall){.attr = &attr, .sizes = sizes, .n_in = 1, .n_out = 1};
    if (IS_ONE_OF(row->op, moves)) {
        k->in[0] = call_tensor(row->dtype, 4, dims);
        shapes_of_moves(r, row->op, dim, dims, k, row->dtype);
    } else if (IS_ONE_OF(row->op, pieces))
        shapes_of_pieces(r, row->op, dim, dims, k, row->dtype);
    else
        shapes_of_lookups(r, row->op, dim, dims, k, row->dtype);
    const bool ids_first = row->op == ASP_OP_scatter_add || row->op == ASP_OP_index_add;
    for (int i = 0; i < k->n_in; i++)
        if (!lookup || i != !ids_first) fill(r, &k->in[i]);
}

static void fast_kernels_agree_with_their_references(void **state)
{
    (void)state;
    int n, checked = 0;
    const asp_kern_row *rows = asp_kern_rows(&n);
    for (int i = 0; i < n; i++) {
        const asp_op op = rows[i].op;
        if (!IS_ONE_OF(op, moves) && !IS_ONE_OF(op, pieces) && !IS_ONE_OF(op, lookups)) continue;
        const bool sums = op == ASP_OP_scatter_add || op == ASP_OP_index_add;
        // The reference has no number in a bool: what is filled stays within copies there.
        if (rows[i].dtype == ASP_BOOL && (op == ASP_OP_pad || op == ASP_OP_shift)) continue;
        for (uint32_t round = 0; round < 8; round++)
            call_compare(&cx, &rows[i], make, (uint32_t)i * 100 + round, sums ? 1e-6 : 0);
        checked++;
    }
    assert_true(checked >= 40);
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_by_hand),
        cmocka_unit_test(pieces_by_hand),
        cmocka_unit_test(lookups_by_hand),
        cmocka_unit_test(slices_by_hand),
        cmocka_unit_test(orders_by_hand),
        cmocka_unit_test(sorting_is_taking_all),
        cmocka_unit_test(indices_outside_are_reported),
        cmocka_unit_test(fast_kernels_agree_with_their_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
