// Rows of ranks and groups: by hand, and against the definition counted out.
// SPDX-License-Identifier: Apache-2.0
#include "base/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void check_rows(asp_rows r, int n, const int64_t (*want)[3])
{
    assert_int_equal(r.n, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(r.seg[i].first, want[i][0]);
        assert_int_equal(r.seg[i].n, want[i][1]);
        assert_int_equal(r.seg[i].at, want[i][2]);
    }
}

static void orders_by_hand(void **state)
{
    (void)state;
    // 10 rows, 4 ranks: 3 3 2 2.
    check_rows(asp_rows_of_rank(10, 4, 4, false, 1), 1, (const int64_t[][3]){{0, 3, 3}});
    check_rows(asp_rows_of_rank(10, 4, 1, false, 3), 1, (const int64_t[][3]){{0, 2, 8}});
    // In 8 chunks: 0-1 2-3 4 5 6 7 8 9.
    check_rows(asp_rows_of_rank(10, 4, 4, true, 0), 2, (const int64_t[][3]){{0, 2, 0}, {2, 1, 9}});
    check_rows(asp_rows_of_rank(10, 4, 4, true, 2), 2, (const int64_t[][3]){{0, 1, 4}, {1, 1, 7}});
    // Two groups of two: chunks of 4 0-2 3-5 6-7 8-9; group 0 has 0-2 and 8-9, 3 of them on rank 0.
    check_rows(asp_rows_of_group(10, 2, true, 0), 2, (const int64_t[][3]){{0, 3, 0}, {3, 2, 8}});
    check_rows(asp_rows_of_rank(10, 4, 2, true, 0), 1, (const int64_t[][3]){{0, 3, 0}});
    check_rows(asp_rows_of_rank(10, 4, 2, true, 1), 1, (const int64_t[][3]){{0, 2, 8}});
    // More chunks than rows.
    check_rows(asp_rows_of_rank(1, 2, 2, true, 0), 1, (const int64_t[][3]){{0, 1, 0}});
    check_rows(asp_rows_of_rank(1, 2, 2, true, 1), 0, NULL);
    asp_rows r = asp_rows_of_rank(10, 4, 4, true, 0);
    assert_int_equal(asp_rows_place(&r, 1), 1);
    assert_int_equal(asp_rows_place(&r, 2), 9);
    assert_int_equal(asp_rows_place(&r, 3), -1);
}

// Every row is held once, nobody holds more than the room, groups hold what their ranks hold.
static void every_row_has_one_holder(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 40; n++)
        for (int64_t ranks = 1; ranks <= 12; ranks++)
            for (int64_t rings = 1; rings <= ranks; rings++)
                for (int zigzag = 0; zigzag < 2; zigzag++) {
                    int held[40] = {0};
                    if (ranks % rings) continue;
                    for (int64_t r = 0; r < ranks; r++) {
                        asp_rows rows = asp_rows_of_rank(n, ranks, rings, zigzag, r);
                        int64_t count = asp_rows_count(&rows);
                        assert_true(count <= asp_rows_room(n, ranks));
                        for (int64_t i = 0; i < count; i++) held[asp_rows_place(&rows, i)]++;
                    }
                    for (int64_t i = 0; i < n; i++) assert_int_equal(held[i], 1);
                    for (int64_t g = 0; g < rings; g++) {
                        asp_rows rows = asp_rows_of_group(n, rings, zigzag, g);
                        int64_t count = asp_rows_count(&rows), of_ranks = 0;
                        assert_true(count <= asp_rows_group_room(n, ranks, rings));
                        for (int64_t r = g * ranks / rings; r < (g + 1) * ranks / rings; r++) {
                            asp_rows mine = asp_rows_of_rank(n, ranks, rings, zigzag, r);
                            for (int64_t i = 0; i < asp_rows_count(&mine); i++, of_ranks++)
                                assert_int_equal(asp_rows_place(&mine, i),
                                                 asp_rows_place(&rows, of_ranks));
                        }
                        assert_int_equal(of_ranks, count);
                    }
                }
}

static int64_t counted_pairs(const asp_rows *q, const asp_rows *k)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < asp_rows_count(q); i++)
        for (int64_t j = 0; j < asp_rows_count(k); j++)
            pairs += asp_rows_place(k, j) <= asp_rows_place(q, i);
    return pairs;
}

static void causal_pairs_are_counted(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 30; n++)
        for (int64_t rings = 1; rings <= 5; rings++)
            for (int zigzag = 0; zigzag < 2; zigzag++)
                for (int64_t a = 0; a < rings; a++)
                    for (int64_t b = 0; b < rings; b++) {
                        asp_rows q = asp_rows_of_group(n, rings, zigzag, a);
                        asp_rows k = asp_rows_of_group(n, rings, zigzag, b);
                        assert_int_equal(asp_rows_causal_pairs(&q, &k), counted_pairs(&q, &k));
                    }
}

// Zig-zag: every rank has the same work, within 5 %, from 48 rows a rank on; in natural order the
// last rank has nearly twice its share.
static void zigzag_balances_causal_work(void **state)
{
    (void)state;
    static const int64_t ranks[] = {2, 3, 4, 6, 8}, each[] = {48, 65, 257, 1024};
    for (size_t p = 0; p < ASP_COUNT_OF(ranks); p++)
        for (size_t e = 0; e < ASP_COUNT_OF(each); e++) {
            int64_t n = ranks[p] * each[e] + 1, most = 0, natural = 0;
            const int64_t share = n * (n + 1) / 2 / ranks[p];
            for (int64_t a = 0; a < ranks[p]; a++) {
                int64_t work[2] = {0};
                for (int64_t b = 0; b < ranks[p]; b++)
                    for (int zigzag = 0; zigzag < 2; zigzag++) {
                        asp_rows q = asp_rows_of_group(n, ranks[p], zigzag, a);
                        asp_rows k = asp_rows_of_group(n, ranks[p], zigzag, b);
                        work[zigzag] += asp_rows_causal_pairs(&q, &k);
                    }
                most = asp_max(most, work[1]);
                natural = asp_max(natural, work[0]);
            }
            assert_true(100 * most <= 105 * share);
            assert_true(10 * natural > 14 * share);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_by_hand),
        cmocka_unit_test(every_row_has_one_holder),
        cmocka_unit_test(causal_pairs_are_counted),
        cmocka_unit_test(zigzag_balances_causal_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
