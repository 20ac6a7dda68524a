// One decision for all ranks.  Neighbours: remat.h (contract), run/plan.c (the hash of the whole
// program, which ranks compare before the first step).  SPDX-License-Identifier: Apache-2.0
#include "flow/remat.h"

uint64_t asp_remat_hash(const uint32_t *saved, uint32_t n_saved)
{
    return asp_hash(saved, n_saved * sizeof *saved, n_saved);
}

static bool same_op(const asp_remat_program *p, const asp_remat_program *q, uint32_t i)
{
    const asp_remat_op *x = &p->ops[i], *y = &q->ops[i];
    return x->kind == y->kind && x->backward == y->backward && x->fusible == y->fusible &&
           x->absorbs == y->absorbs && x->block == y->block && x->first_read == y->first_read &&
           x->n_reads == y->n_reads && x->first_result == y->first_result &&
           x->n_results == y->n_results;
}

static asp_status check_same(asp_ctx *cx, const asp_remat_program *p, const asp_remat_program *q,
                             uint32_t rank)
{
    bool same = p->n_values == q->n_values && p->n_inputs == q->n_inputs && p->n_ops == q->n_ops &&
                p->n_reads == q->n_reads;
    for (uint32_t i = 0; same && i < p->n_ops; i++) same = same_op(p, q, i);
    for (uint32_t i = 0; same && i < p->n_reads; i++) same = p->reads[i] == q->reads[i];
    for (uint32_t v = 0; same && v < p->n_values; v++)
        same = p->values[v].root == q->values[v].root && p->values[v].flags == q->values[v].flags;
    if (same) return ASP_OK;
    return asp_fail(cx, ASP_ERR_PEER,
                    "recompute: the programs of rank 0 and rank %u differ in more than sizes",
                    rank);
}

asp_status asp_remat_join(asp_ctx *cx, asp_arena *a, const asp_remat_program *const *programs,
                          uint32_t n, asp_remat_program *out_program)
{
    const asp_remat_program *first = programs[0];
    asp_remat_value *values = asp_copy_bytes(a, first->values, first->n_values * sizeof *values);
    asp_remat_op *ops = asp_copy_bytes(a, first->ops, first->n_ops * sizeof *ops);
    for (uint32_t k = 1; k < n; k++) {
        const asp_remat_program *p = programs[k];
        ASP_TRY(check_same(cx, first, p, k));
        for (uint32_t v = 0; v < p->n_values; v++)
            values[v].bytes = asp_max(values[v].bytes, p->values[v].bytes);
        for (uint32_t i = 0; i < p->n_ops; i++) {
            ops[i].time_ps = asp_max(ops[i].time_ps, p->ops[i].time_ps);
            ops[i].scratch = asp_max(ops[i].scratch, p->ops[i].scratch);
        }
    }
    *out_program = *first;
    out_program->values = values;
    out_program->ops = ops;
    return ASP_OK;
}
