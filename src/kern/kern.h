// What a kernel is and how one is chosen.  Neighbours: ir/op.def (the ops), kern.def (fast
// kernels), ref/ (a plain C kernel for every op), run/ (who calls them).  SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "base/dtype.h"
#include "base/team.h"
#include "ir/ir.h"

#include <stdatomic.h>

// A contiguous, row-major array.  data is 64-byte aligned.
typedef struct asp_tensor {
    void *data; // borrowed from the rank's arena
    asp_dtype dtype;
    int rank;
    int64_t dim[ASP_MAX_RANK];
} asp_tensor;

// One call of an op: operands in the order of the graph node, its typed attributes (ir/attr.def),
// scratch memory.
typedef struct asp_kcall {
    const void *attr; // asp_<op>_attr of the op, or NULL; borrowed
    // Values of the attributes that are symbolic sizes, in the order of attr.def; borrowed.  NULL
    // where there are none.
    const int64_t *sizes;
    int n_in, n_out;
    int rank, ranks;     // of this process or thread in its sequence-parallel group; 0 of 1 alone
    uint64_t seed, step; // what random ops draw from (with their attribute site)
    asp_tensor in[ASP_MAX_OPERANDS];
    asp_tensor out[ASP_MAX_OPERANDS];
    void *work; // work_bytes of scratch, 64-byte aligned, contents undefined
    int64_t work_bytes;
    const void
        *plan; // what the kernel's prepare made (a GEMM provider's primitive), or NULL; borrowed
    // Set by asp_kcall_bad_index, looked at by the executor; NULL: nobody asks.  Borrowed.
    atomic_int *bad_index;
    // Of a tiled loop (pass/tile.h): the number of the chunk, and memory that goes with the call
    // from the first chunk to the last, or NULL.  What sums over rows adds to its result from the
    // second chunk on.
    int64_t chunk;
    void *carry;
} asp_kcall;

// An index that the data of an operand holds lies outside of what it indexes.  The kernel reads and
// writes nothing for it and goes on; the step fails.
static inline void asp_kcall_bad_index(const asp_kcall *k)
{
    if (k->bad_index) atomic_store_explicit(k->bad_index, 1, memory_order_relaxed);
}
static inline bool asp_kcall_index(const asp_kcall *k, int64_t i, int64_t n)
{
    if (i >= 0 && i < n) return true;
    asp_kcall_bad_index(k);
    return false;
}

// Every thread of the team calls the kernel with the same call.  It claims chunks with
// asp_team_next or splits by w->thread, and its results must not depend on the number of threads.
// It may use asp_team_barrier; the executor puts one after every kernel. It does not allocate and
// cannot fail: what can be refused is refused when the plan is made.
typedef void asp_kernel(const asp_kcall *k, asp_worker *w);
// Scratch bytes the kernel wants for a call of these shapes (data pointers are NULL) on n_threads
// threads; NULL means 0.
typedef int64_t asp_kernel_work(const asp_kcall *k, int n_threads);

// What the processor can do, from the least.  X_isa.c files are compiled once a level with
// -DASP_ISA=generic, avx2 (-mavx2 -mfma) and avx512 (-mavx512f -mavx512bw -mavx512dq -mavx512vl);
// vec.h gives them vector types and names of their own.  Elsewhere than on x86-64 only generic is.
// X_bf16.c files are compiled for avx512 with -mavx512bf16.
typedef enum asp_isa { ASP_ISA_GENERIC, ASP_ISA_AVX2, ASP_ISA_AVX512 } asp_isa;
// The best level of this processor, lowered by the environment variable ASP_ISA (generic, avx2,
// avx512, which is without the next).
asp_isa asp_isa_best(void);
bool asp_isa_has_bf16(void);           // sums of products of pairs of bf16 by one instruction
const char *asp_isa_name(asp_isa isa); // static text: "avx2"

// ---- choosing ----------------------------------------------------------------------------------

// One kernel: a row of kern.def, or the reference kernel of an op.
typedef struct asp_kern_row {
    asp_op op;
    asp_dtype dtype; // of the op's first result; a reference kernel takes any the op allows
    asp_isa isa;     // the least level it runs on
    bool is_ref;
    asp_kernel *fn;
    asp_kernel_work *work; // may be NULL
    const char *name;      // static text: "asp_sdpa_f32_avx2"
} asp_kern_row;

// The kernel of the highest level not above isa that kern.def has for an op and the dtype of its
// first result, else the op's reference kernel; NULL for ops that are not run by a kernel (modules,
// collectives, views, inputs).
const asp_kern_row *asp_kern_choose_at(asp_op op, asp_dtype dtype, asp_isa isa);
const asp_kern_row *asp_kern_choose(asp_op op, asp_dtype dtype); // at asp_isa_best()
const asp_kern_row *asp_kern_ref(asp_op op);
// All rows of kern.def, for harnesses.
const asp_kern_row *asp_kern_rows(int *out_n);

// Completes a call whose shapes and attributes stand (data pointers need not): sets plan (on the
// arena, for GEMM) and work_bytes.  gemm_provider: kern/gemm.h; NULL is the best there is.  Fails
// where sizes, now that they are numbers, do not fit: a slice that ends behind its operand.
asp_status asp_kern_prepare(asp_ctx *cx, asp_arena *a, const asp_kern_row *row,
                            const char *gemm_provider, int n_threads, asp_kcall *call);

// Value number i of the attributes that are sizes; 0 where none is known.
static inline int64_t asp_size_at(const asp_kcall *k, int i) { return k->sizes ? k->sizes[i] : 0; }

// Pairs of a query and a key it sees, per head, of a call of sdpa or sdpa_grad by rank call->rank.
int64_t asp_sdpa_pairs(const asp_kcall *call);
// ... and the time of how many pairs of full blocks the kernels take: a block that the diagonal or
// a side of the sequence cuts is computed whole; where a mask cuts one, deciding which pairs are
// seen costs as much again as half of it (bench_sdpa with a window).
int64_t asp_sdpa_block_pairs(const asp_kcall *call);
// Can there be any?  Looks at positions alone, whole runs of rows at a time, and at no data.
bool asp_sdpa_meets(const asp_kcall *call);
// A call of one block of a ring for asp_sdpa_pairs and asp_sdpa_meets, by its attributes and the
// rows of q and k in all groups: sizes (2 of them) are kept.
asp_kcall asp_sdpa_ring_call(const void *attr, const int64_t *sizes, int64_t ranks, int64_t rank);

// Sums in double of the chunks before, where rows come in chunks: the bits of the whole.
static inline double asp_carried_sum(const asp_kcall *k)
{
    return k->carry && k->chunk > 0 ? *(const double *)k->carry : 0.0;
}
static inline void asp_carry_sum(const asp_kcall *k, double sum)
{
    if (k->carry) *(double *)k->carry = sum;
}

static inline int64_t asp_tensor_count(const asp_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

// Product of all dims but the last: the number of rows.
static inline int64_t asp_tensor_rows(const asp_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i + 1 < t->rank; i++) n *= t->dim[i];
    return n;
}
