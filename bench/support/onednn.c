// See onednn.h.  Of oneDNN 2, whose descriptors are structs; made once a call and not counted.
// SPDX-License-Identifier: Apache-2.0
#include "bench/support/onednn.h"
#include "base/file.h"

#if defined(ASP_HAVE_DNNL) && ASP_HAVE_DNNL
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#endif

#if defined(ASP_HAVE_DNNL) && ASP_HAVE_DNNL && DNNL_VERSION_MAJOR == 2

typedef struct product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_desc_t type[3];
    dnnl_memory_t memory[3];
    dnnl_primitive_desc_t described;
    dnnl_primitive_t primitive;
} product;

static bool good(dnnl_status_t s) { return s == dnnl_success; }

// rows x columns, or that transposed in memory.
static bool describe(dnnl_memory_desc_t *type, int64_t rows, int64_t columns, bool transposed,
                     dnnl_data_type_t dtype)
{
    const dnnl_dims_t dims = {rows, columns},
                      strides = {transposed ? 1 : columns, transposed ? rows : 1};
    return good(dnnl_memory_desc_init_by_strides(type, 2, dims, dtype, strides));
}

static bool make(product *p, asp_op op, int64_t m, int64_t n, int64_t k, void *const data[3])
{
    dnnl_matmul_desc_t d;
    const bool tn = op == ASP_OP_gemm_tn;
    bool ok = good(dnnl_engine_create(&p->engine, dnnl_cpu, 0)) &&
              good(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags)) &&
              describe(&p->type[0], m, k, tn, dnnl_bf16) &&
              describe(&p->type[1], k, n, op == ASP_OP_gemm_nt, dnnl_bf16) &&
              describe(&p->type[2], m, n, false, tn ? dnnl_f32 : dnnl_bf16) &&
              good(dnnl_matmul_desc_init(&d, &p->type[0], &p->type[1], NULL, &p->type[2])) &&
              good(dnnl_primitive_desc_create(&p->described, &d, NULL, p->engine, NULL)) &&
              good(dnnl_primitive_create(&p->primitive, p->described));
    for (int i = 0; ok && i < 3; i++)
        ok = good(dnnl_memory_create(&p->memory[i], &p->type[i], p->engine, data[i]));
    return ok;
}

static double run(const product *p)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->memory[0]},
                                    {DNNL_ARG_WEIGHTS, p->memory[1]},
                                    {DNNL_ARG_DST, p->memory[2]}};
    const double from = asp_seconds();
    if (!good(dnnl_primitive_execute(p->primitive, p->stream, 3, args)) ||
        !good(dnnl_stream_wait(p->stream)))
        return -1;
    return asp_seconds() - from;
}

static void destroy(product *p)
{
    for (int i = 0; i < 3; i++)
        if (p->memory[i]) dnnl_memory_destroy(p->memory[i]);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->described) dnnl_primitive_desc_destroy(p->described);
    if (p->stream) dnnl_stream_destroy(p->stream);
    if (p->engine) dnnl_engine_destroy(p->engine);
}

double support_onednn_bf16(asp_op op, int64_t m, int64_t n, int64_t k, int threads, void *a,
                           void *b, void *c)
{
    union {
        void *object;
        void (*function)(int);
    } set = {dlsym(RTLD_DEFAULT, "omp_set_num_threads")};
    if (set.object) set.function(threads);
    product p = {0};
    double seconds = make(&p, op, m, n, k, (void *const[]){a, b, c}) ? run(&p) : -1;
    if (seconds >= 0) seconds = run(&p);
    destroy(&p);
    return seconds;
}

#else
double support_onednn_bf16(asp_op op, int64_t m, int64_t n, int64_t k, int threads, void *a,
                           void *b, void *c)
{
    (void)op, (void)m, (void)n, (void)k, (void)threads, (void)a, (void)b, (void)c;
    return -1;
}
#endif
