// Times of the ops of a description that names FLOPs and bytes instead: FLOPs over the rate of
// their class, bytes read and written over that of memory or of the link, the longer of both for
// products and attention.  Views take none.  O(reads).  Neighbours: remat_json.c (who reads the
// rates). SPDX-License-Identifier: Apache-2.0
#include "flow/remat_json.h"

static double seconds(const asp_remat_program *p, const asp_remat_op *op,
                      const asp_remat_rates *rates)
{
    double moved = 0;
    if (op->kind == ASP_REMAT_VIEW || op->kind == ASP_REMAT_PICK) return 0;
    for (uint32_t i = 0; i < op->n_results; i++)
        moved += (double)p->values[op->first_result + i].bytes;
    if (op->kind == ASP_REMAT_COLLECTIVE) return moved / rates->link;
    for (uint32_t i = 0; i < op->n_reads; i++)
        moved += (double)p->values[p->reads[op->first_read + i]].bytes;
    moved /= rates->memory;
    const double rate = op->kind == ASP_REMAT_ATTENTION ? rates->attention : rates->gemm;
    const double computed = (double)op->flops / rate;
    return computed > moved ? computed : moved;
}

void asp_remat_fill_times(const asp_remat_program *p, asp_remat_op *ops,
                          const asp_remat_rates *rates)
{
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (ops[i].time_ps >= 0) continue;
        const double ps = rates ? seconds(p, &ops[i], rates) * 1e12 : 0;
        ops[i].time_ps = (int64_t)(ps < 0x1p52 ? ps : 0x1p52);
    }
}
