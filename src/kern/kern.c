// Which kernel runs an op: the table of fast kernels, the reference kernels.
// Neighbours: kern.def (rows), ref/ (reference kernels), gemm.h (plans), run/ (who asks).
// SPDX-License-Identifier: Apache-2.0
#include "kern/kern.h"
#include "kern/gemm.h"
#include "kern/kern_int.h"
#include "kern/random.h"
#include "kern/sequence.h"

// ---- tables ------------------------------------------------------------------------------------

#if defined(__x86_64__)
#define KERN_X86(...) __VA_ARGS__
#else
#define KERN_X86(...)
#endif
#define KERN_GENERIC(...) __VA_ARGS__
#define KERN_AVX2 KERN_X86
#define KERN_AVX512 KERN_X86

static const asp_kern_row rows[] = {
#define KERN(op, dtype, isa, kernel, scratch) \
    KERN_##isa({ASP_OP_##op, ASP_##dtype, ASP_ISA_##isa, false, kernel, scratch, #kernel}, )
#include "kern/kern.def"
#undef KERN
};

// The cost class says whether a kernel runs the op (FREE: none, LINK: the communicator does) and
// whether its reference needs scratch.
#define REF_FREE(name) {ASP_OP_##name, ASP_F64, ASP_ISA_GENERIC, true, NULL, NULL, NULL},
#define REF_LINK REF_FREE
#define REF_STREAM(name) \
    {ASP_OP_##name, ASP_F64, ASP_ISA_GENERIC, true, asp_##name##_ref, NULL, "asp_" #name "_ref"},
#define REF_GEMM REF_STREAM
#define REF_SDPA(name)                                                                            \
    {ASP_OP_##name,      ASP_F64, ASP_ISA_GENERIC, true, asp_##name##_ref, asp_##name##_ref_work, \
     "asp_" #name "_ref"},
#define REF_SDPA_GRAD REF_SDPA
static const asp_kern_row refs[] = {
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) REF_##cost(name)
#include "ir/op.def"
#undef OP
};
static_assert(ASP_COUNT_OF(refs) == ASP_OP_COUNT,
              "one reference row an op, in the order of op.def");

const asp_kern_row *asp_kern_rows(int *out_n)
{
    *out_n = (int)ASP_COUNT_OF(rows);
    return rows;
}

const asp_kern_row *asp_kern_ref(asp_op op) { return refs[op].fn ? &refs[op] : NULL; }

const asp_kern_row *asp_kern_choose_at(asp_op op, asp_dtype dtype, asp_isa isa)
{
    const asp_kern_row *best = NULL;
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        const asp_kern_row *r = &rows[i];
        if (r->op != op || r->dtype != dtype || r->isa > isa) continue;
        if (!best || r->isa >= best->isa) best = r;
    }
    return best ? best : asp_kern_ref(op);
}

const asp_kern_row *asp_kern_choose(asp_op op, asp_dtype dtype)
{
    return asp_kern_choose_at(op, dtype, asp_isa_best());
}

// A halo comes from the rank beside alone: every rank that has a neighbour behind holds it whole.
static asp_status check_halo(asp_ctx *cx, const asp_kcall *k)
{
    const asp_rows_map_attr *a = k->attr;
    for (int64_t r = 0; r + 1 < a->ranks; r++) {
        if (strcmp(a->map, "last") != 0 || asp_rows_part(k, r).n >= a->count) continue;
        return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                        "%lld tokens over %lld ranks: rank %lld holds %lld of the %lld that its "
                        "neighbour wants; use fewer ranks or a longer sequence",
                        (long long)k->sizes[1], (long long)a->ranks, (long long)r,
                        (long long)asp_rows_part(k, r).n, (long long)a->count);
    }
    return ASP_OK;
}

// What type inference could not see while sizes were symbols.
static asp_status check_sizes(asp_ctx *cx, asp_op op, const asp_kcall *k)
{
    if (op == ASP_OP_slice) {
        const int64_t dim = ((const asp_range_attr *)k->attr)->dim, n = k->in[0].dim[dim];
        if (k->sizes[0] < 0 || k->sizes[1] > n)
            return asp_fail(
                cx, ASP_ERR_SHAPE, "elements %lld to %lld of dimension %lld, which has %lld",
                (long long)k->sizes[0], (long long)k->sizes[1], (long long)dim, (long long)n);
    }
    if (op == ASP_OP_pad && (k->sizes[0] < 0 || k->sizes[1] < 0))
        return asp_fail(cx, ASP_ERR_SHAPE,
                        "%lld elements before and %lld behind; none may be negative",
                        (long long)k->sizes[0], (long long)k->sizes[1]);
    if (op == ASP_OP_move_rows) return check_halo(cx, k);
    if (op == ASP_OP_topk) {
        const asp_topk_attr *a = k->attr;
        if (a->k > k->in[0].dim[a->dim])
            return asp_fail(cx, ASP_ERR_SHAPE, "the %lld largest of %lld elements", (long long)a->k,
                            (long long)k->in[0].dim[a->dim]);
    }
    asp_global_map map;
    if (op == ASP_OP_dropout && !asp_global_map_make(k, &map))
        return asp_fail(cx, ASP_ERR_SHAPE, "the places where it is split do not go with its shape");
    return ASP_OK;
}

asp_status asp_kern_prepare(asp_ctx *cx, asp_arena *a, const asp_kern_row *row,
                            const char *gemm_provider, int n_threads, asp_kcall *call)
{
    ASP_TRY(check_sizes(cx, row->op, call));
    if (asp_ops[row->op].cost == ASP_COST_GEMM && !row->is_ref) {
        asp_gemm_plan *plan = ASP_NEW(a, asp_gemm_plan);
        ASP_TRY(asp_gemm_prepare(cx, gemm_provider, row->op, call, n_threads, plan));
        call->plan = plan;
    }
    call->work_bytes = row->work ? row->work(call, n_threads) : 0;
    return ASP_OK;
}
