// Reference kernels of the embedding table.  Neighbours: op/linear.c (what they mean), move.c and
// embedding_grad.c (fast).  SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

// in: ids (...), table (V, d).
void asp_embedding_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *ids = &k->in[0], *table = &k->in[1], *y = &k->out[0];
    const int64_t d = table->dim[1];
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        const int64_t row = asp_ref_id(ids, i.at / d);
        if (asp_kcall_index(k, row, table->dim[0]))
            asp_ref_copy(y, i.at, table, row * d + i.at % d);
    }
}

// in: dy (..., d), ids (...).  Each thread owns columns and walks all rows in order.  The row
// attr->padding stays 0.
void asp_embedding_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *dy = &k->in[0], *ids = &k->in[1], *y = &k->out[0];
    const int64_t n = asp_tensor_count(ids), rows = y->dim[0], d = y->dim[1];
    const int64_t padding = ((const asp_rows_attr *)k->attr)->padding;
    asp_ref_part mine = asp_ref_mine(w, d);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = mine.at; c < mine.end; c++) asp_ref_put(y, r * d + c, 0.0);
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = asp_ref_id(ids, i), row = id * d;
        if (id == padding || !asp_kcall_index(k, id, rows)) continue;
        for (int64_t c = mine.at; c < mine.end; c++)
            asp_ref_put(y, row + c, asp_ref_get(y, row + c) + asp_ref_get(dy, i * d + c));
    }
}
