// Reference kernel of move_rows: a window of rows that depends on the rank.  Neighbours:
// op/sequence.h (the windows), kern/move.c (fast).  SPDX-License-Identifier: Apache-2.0
#include "kern/sequence.h"

void asp_move_rows_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_rows_map_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *y = &k->out[0];
    const asp_row_window m = asp_row_window_of(k);
    const int64_t inner = asp_ref_inner(y, a->dim), n = y->dim[a->dim];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        int64_t outer = i.at / inner / n, j = i.at / inner % n - m.to;
        if (j >= 0 && j < m.n)
            asp_ref_copy(y, i.at, x, (outer * x->dim[a->dim] + m.from + j) * inner + i.at % inner);
        else
            asp_ref_put(y, i.at, 0.0);
    }
}
