// Choice of kernels: levels, the environment, every op's reference.  SPDX-License-Identifier:
// Apache-2.0
#include "kern/kern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void every_op_has_the_kernel_that_its_cost_says(void **state)
{
    (void)state;
    for (int op = 0; op < ASP_OP_COUNT; op++) {
        const asp_kern_row *row = asp_kern_ref((asp_op)op);
        const asp_cost_class cost = asp_ops[op].cost;
        assert_int_equal(row == NULL, cost == ASP_COST_FREE || cost == ASP_COST_LINK);
        if (!row) continue;
        assert_int_equal(row->op, op);
        assert_true(row->is_ref && row->fn);
        assert_non_null(strstr(row->name, asp_ops[op].name));
    }
}

static void fast_kernels_are_found_by_dtype_and_level(void **state)
{
    (void)state;
    int n;
    const asp_kern_row *rows = asp_kern_rows(&n);
    for (int i = 0; i < n; i++) {
        const asp_kern_row *row = asp_kern_choose_at(rows[i].op, rows[i].dtype, rows[i].isa);
        assert_int_equal(row->isa, rows[i].isa);
        assert_false(row->is_ref);
    }
    assert_true(asp_kern_choose(ASP_OP_sdpa, ASP_F64)->is_ref);
    assert_null(asp_kern_choose(ASP_OP_view, ASP_F32));
    assert_null(asp_kern_choose(ASP_OP_all_to_all, ASP_F32));
}

static void environment_lowers_the_level_only(void **state)
{
    (void)state;
    unsetenv("ASP_ISA");
    const asp_isa best = asp_isa_best();
    setenv("ASP_ISA", "generic", 1);
    assert_int_equal(asp_isa_best(), ASP_ISA_GENERIC);
    assert_string_equal(asp_kern_choose(ASP_OP_sdpa, ASP_F32)->name, "asp_sdpa_f32_generic");
    setenv("ASP_ISA", "avx512", 1);
    assert_int_equal(asp_isa_best(), best);
    setenv("ASP_ISA", "sse9", 1);
    assert_int_equal(asp_isa_best(), best);
    unsetenv("ASP_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_the_kernel_that_its_cost_says),
        cmocka_unit_test(fast_kernels_are_found_by_dtype_and_level),
        cmocka_unit_test(environment_lowers_the_level_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
