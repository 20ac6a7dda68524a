// What a kernel is and how one is chosen.  Neighbours: ir/op.def (the ops), kern.def (fast
// kernels), ref/ (a plain C kernel for every op), run/ (who calls them).  SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "base/dtype.h"
#include "base/team.h"

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
    int n_in, n_out;
    int rank, ranks; // of this process or thread in its sequence-parallel group; 0 of 1 alone
    asp_tensor in[ASP_MAX_OPERANDS];
    asp_tensor out[ASP_MAX_OPERANDS];
    void *work; // work_bytes of scratch, 64-byte aligned, contents undefined
    int64_t work_bytes;
    const void
        *plan; // what the kernel's prepare made (a GEMM provider's primitive), or NULL; borrowed
} asp_kcall;

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
typedef enum asp_isa { ASP_ISA_GENERIC, ASP_ISA_AVX2, ASP_ISA_AVX512 } asp_isa;
// The best level of this processor, lowered by the environment variable ASP_ISA (generic, avx2,
// avx512).
asp_isa asp_isa_best(void);

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
