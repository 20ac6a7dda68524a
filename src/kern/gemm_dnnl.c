// The oneDNN provider, versions 2 and 3: dnnl_sgemm, the same in both, which wants no primitives,
// no scratchpad of ours and no reordered weights.  Neighbours: gemm.c (grid), gemm_isa.c (the other
// provider).  SPDX-License-Identifier: Apache-2.0
#include "kern/gemm_int.h"

#if defined(ASP_HAVE_DNNL) && ASP_HAVE_DNNL
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>

// oneDNN runs on OpenMP: the calling thread, which is one of a team already, wants a region of one.
// The setting is per thread.  The runtime library that oneDNN brought is asked by name, so that
// this file needs no OpenMP of its compiler.
static void use_one_thread(void)
{
    union {
        void *object;
        void (*function)(int);
    } set = {dlsym(RTLD_DEFAULT, "omp_set_num_threads")};
    if (set.object) set.function(1);
}

// The library writes its kernels when they are first called, some 10 MiB of code with AVX-512: here
// and not within a step, which takes what was planned.
static void write_kernels(void)
{
    enum { N = 64 };
    static const float a[N * N], b[N * N];
    static float c[N * N];
    use_one_thread();
    for (int i = 0; i < 6; i++) {
        const char ta = i % 3 == 1 ? 'T' : 'N', tb = i % 3 == 2 ? 'T' : 'N';
        const float beta = i < 3 ? 0.0f : 1.0f;
        ASP_CHECK(dnnl_sgemm(ta, tb, N, N, N, 1.0f, a, N, b, N, beta, c, N) == dnnl_success);
    }
}

// With AVX-512 it packs a chunk's rows and up to 384 columns, 768 of k at a time.
static int64_t packed_bytes(const asp_gemm_plan *plan)
{
    const int64_t k = asp_min(plan->k, 768);
    return (plan->chunk_m + asp_min(plan->chunk_n, 384)) * k * (int64_t)sizeof(float);
}

static void dnnl_plan(asp_gemm_plan *plan)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_kernels);
    // The library packs into memory of its own, which grows with the call: at this size all threads
    // together leave about 2 MiB behind, at twice the columns 20.
    // Its bits may depend on the size of a call, so the grid may not depend on the threads.
    asp_gemm_grid(plan, (asp_gemm_grid_limits){512, 512, .multiple_of = 16, .step_rows = 48});
    plan->thread_bytes = 0;
    plan->library_bytes = plan->isa == ASP_ISA_AVX512 ? packed_bytes(plan) : 0;
}

static void dnnl_run(const asp_gemm_plan *plan, const asp_gemm_chunk *g)
{
    (void)plan;
    use_one_thread();
    dnnl_status_t s = dnnl_sgemm(
        g->op == ASP_OP_gemm_tn ? 'T' : 'N', g->op == ASP_OP_gemm_nt ? 'T' : 'N', g->m, g->n, g->k,
        1.0f, g->a.f32, g->lda, g->b.f32, g->ldb, g->add ? 1.0f : 0.0f, g->c, g->ldc);
    ASP_CHECK(s == dnnl_success);
}

const asp_gemm_provider asp_gemm_onednn = {"onednn", dnnl_plan, false, dnnl_run};
#else
typedef int asp_gemm_dnnl_is_empty; // a translation unit is not empty
#endif
