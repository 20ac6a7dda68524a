// Matrix products: providers, the grid of chunks, the kernel.  Neighbours: gemm.h (contract),
// gemm_isa.c and gemm_dnnl.c (who multiply), ref/gemm.c (f64).  SPDX-License-Identifier: Apache-2.0
#include "kern/gemm_int.h"
#include "kern/half_ops.h"

#ifndef ASP_HAVE_DNNL
#define ASP_HAVE_DNNL 0
#endif

#define LEAST_CHUNK 96 // rows or columns; below it packing is felt
#define MOST_PACKED_BYTES ((int64_t)3 << 20)

// ---- grid --------------------------------------------------------------------------------------

static int64_t even_cut(int64_t n, int64_t parts, int64_t step)
{
    return asp_round_up(asp_ceil_div(n, parts), step);
}

void asp_gemm_grid(asp_gemm_plan *plan, asp_gemm_grid_limits l)
{
    int64_t parts_m = asp_ceil_div(plan->m, l.most_rows);
    int64_t parts_n = asp_ceil_div(plan->n, l.most_columns);
    while (parts_m * parts_n < l.multiple_of || parts_m * parts_n % l.multiple_of) {
        int64_t rows = plan->m / (parts_m + 1), cols = plan->n / (parts_n + 1);
        if (rows >= cols && rows >= LEAST_CHUNK)
            parts_m++;
        else if (cols >= LEAST_CHUNK)
            parts_n++;
        else
            break;
    }
    plan->chunk_m = even_cut(plan->m, parts_m, l.step_rows);
    plan->chunk_n = even_cut(plan->n, parts_n, 32);
}

// ---- built in ----------------------------------------------------------------------------------

// Products by pairs with a C of bf16 pack all of B's chunk, which is to stay in the cache.
static void pairs_plan(asp_gemm_plan *plan)
{
    const int64_t pairs = asp_ceil_div(plan->k, 2);
    const int64_t fit = MOST_PACKED_BYTES / (pairs * (int64_t)sizeof(float)) / 32 * 32;
    asp_gemm_grid(plan, (asp_gemm_grid_limits){.most_rows = 1024,
                                               .most_columns = asp_min(1024, asp_max(128, fit)),
                                               .multiple_of = plan->n_threads,
                                               .step_rows = 14});
    const int64_t columns = asp_round_up(plan->chunk_n, ASP_GEMM_PAD);
    plan->sums_rows = asp_min(plan->chunk_m, ASP_GEMM_MC);
    plan->thread_bytes = (pairs * columns + ASP_GEMM_KC * ASP_GEMM_MC) * (int64_t)sizeof(float);
}

static void builtin_plan(asp_gemm_plan *plan)
{
    static const int64_t tile_rows[] = {4, 6, 14};
    if (plan->pairs && plan->half_c) {
        pairs_plan(plan);
        return;
    }
    // As large as scratch allows: what is packed of one operand serves the whole chunk of the
    // other (measured on Zen 1: 512 x 512 spends 6 % of the time packing, this 4 %).
    // C of bf16 is summed in scratch.
    asp_gemm_grid(plan, (asp_gemm_grid_limits){.most_rows = plan->half_c ? 512 : 1024,
                                               .most_columns = plan->half_c ? 1024 : 2048,
                                               .multiple_of = plan->n_threads,
                                               .step_rows = tile_rows[plan->isa]});
    const int64_t columns = asp_round_up(plan->chunk_n, ASP_GEMM_PAD);
    plan->thread_bytes = ASP_GEMM_KC * (columns + ASP_GEMM_MC) * (int64_t)sizeof(float);
}

static void builtin_run(const asp_gemm_plan *plan, const asp_gemm_chunk *chunk)
{
#if defined(__x86_64__)
    static asp_gemm_chunk_fn *const levels[] = {asp_gemm_chunk_generic, asp_gemm_chunk_avx2,
                                                asp_gemm_chunk_avx512};
    (plan->pairs ? asp_gemm_chunk_avx512_bf16 : levels[plan->isa])(chunk);
#else
    (void)plan;
    asp_gemm_chunk_generic(chunk);
#endif
}

static const asp_gemm_provider builtin = {"builtin", builtin_plan, true, builtin_run};

// ---- providers ---------------------------------------------------------------------------------

static const asp_gemm_provider *const providers[] = {
#if ASP_HAVE_DNNL
    &asp_gemm_onednn,
#endif
    &builtin,
};

const char *asp_gemm_provider_name(int i)
{
    return i < (int)ASP_COUNT_OF(providers) ? providers[i]->name : NULL;
}

// Measured on Zen 1 (AVX2), rates of both as fractions of the fma probe: nt .88 and .88, nn .91 and
// .89, tn .89 and .78.  With AVX-512, and with neither, oneDNN is ahead where there is one.
static const asp_gemm_provider *preferred(void)
{
    return asp_isa_best() == ASP_ISA_AVX2 ? &builtin : providers[0];
}

static const asp_gemm_provider *find_provider(const char *name)
{
    if (!name) return preferred();
    for (size_t i = 0; i < ASP_COUNT_OF(providers); i++)
        if (!strcmp(providers[i]->name, name)) return providers[i];
    return NULL;
}

static asp_op form_of(const asp_bmm_attr *a)
{
    return a->ta ? ASP_OP_gemm_tn : a->tb ? ASP_OP_gemm_nt : ASP_OP_gemm_nn;
}

// Of bmm: the form and the shape of one matrix.
static void plan_shape(asp_gemm_plan *plan, asp_op op, const asp_kcall *k)
{
    const asp_tensor *a = &k->in[0], *c = &k->out[0];
    const bool batch = op == ASP_OP_bmm;
    plan->op = batch ? form_of(k->attr) : op;
    plan->isa = asp_isa_best();
    plan->m = batch ? c->dim[c->rank - 2] : asp_tensor_rows(c);
    plan->n = c->dim[c->rank - 1];
    plan->k = plan->op != ASP_OP_gemm_tn ? a->dim[a->rank - 1]
              : batch                    ? a->dim[a->rank - 2]
                                         : asp_tensor_rows(a);
    plan->half = a->dtype == ASP_BF16;
    plan->half_c = c->dtype == ASP_BF16;
    plan->pairs = plan->half && asp_isa_has_bf16();
    if (plan->half && !plan->provider->takes_half) plan->provider = &builtin;
    plan->provider->plan(plan);
    if (plan->half_c && !plan->sums_rows) plan->sums_rows = plan->chunk_m;
    plan->sums_bytes = plan->sums_rows * asp_round_up(plan->chunk_n, 16) * 4;
    plan->thread_bytes += plan->sums_bytes;
}

asp_status asp_gemm_prepare(asp_ctx *cx, const char *provider, asp_op op, const asp_kcall *call,
                            int n_threads, asp_gemm_plan *out_plan)
{
    const asp_gemm_provider *p = find_provider(provider);
    if (!p)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "matrix products: no provider \"%s\" in this build; use %s%s", provider,
                        providers[0]->name, ASP_HAVE_DNNL ? " or builtin" : "");
    *out_plan = (asp_gemm_plan){.provider = p, .n_threads = n_threads};
    plan_shape(out_plan, op, call);
    return ASP_OK;
}

int64_t asp_gemm_work_bytes(const asp_gemm_plan *plan, int n_threads)
{
    return plan->thread_bytes * n_threads;
}

// ---- the kernels -------------------------------------------------------------------------------

// The call's plan, or the built-in one made here: it is a few divisions.
static asp_gemm_plan plan_of(asp_op op, const asp_kcall *k, int n_threads)
{
    if (k->plan) return *(const asp_gemm_plan *)k->plan;
    asp_gemm_plan plan = {.provider = &builtin, .n_threads = n_threads};
    plan_shape(&plan, op, k);
    return plan;
}

static asp_gemm_operand operand_at(const asp_tensor *t, int64_t at)
{
    if (t->dtype == ASP_BF16) return (asp_gemm_operand){.half = (const uint16_t *)t->data + at};
    return (asp_gemm_operand){.f32 = (const float *)t->data + at};
}

// Chunk i of the product of the matrices at za of a and at zb of b into that at zc of the result.
static void run_chunk(const asp_gemm_plan *p, const asp_kcall *k, int64_t i, const int64_t z[3],
                      bool add, char *scratch)
{
    const int64_t grid_n = asp_ceil_div(p->n, p->chunk_n);
    const bool a_by_k = p->op == ASP_OP_gemm_tn, b_by_k = p->op != ASP_OP_gemm_nt;
    const int64_t lda = a_by_k ? p->m : p->k, ldb = b_by_k ? p->n : p->k;
    const int64_t m0 = i / grid_n * p->chunk_m, n0 = i % grid_n * p->chunk_n;
    const int64_t at = z[2] * p->m * p->n + m0 * p->n + n0;
    asp_gemm_chunk chunk = {
        .op = p->op,
        .m = asp_min(p->chunk_m, p->m - m0),
        .n = asp_min(p->chunk_n, p->n - n0),
        .k = p->k,
        .half = p->half,
        .a = operand_at(&k->in[0], z[0] * p->m * p->k + (a_by_k ? m0 : m0 * lda)),
        .b = operand_at(&k->in[1], z[1] * p->n * p->k + (b_by_k ? n0 : n0 * ldb)),
        .lda = lda,
        .ldb = ldb,
        .ldc = p->half_c ? asp_round_up(p->chunk_n, 16) : p->n,
        .add = add,
        .scratch = scratch + p->sums_bytes,
    };
    uint16_t *half_c = p->half_c ? (uint16_t *)k->out[0].data + at : NULL;
    chunk.c = half_c ? (float *)(void *)scratch : (float *)k->out[0].data + at;
    if (p->pairs) chunk.half_c = half_c, chunk.ld_half = p->n;
    p->provider->run(p, &chunk);
    for (int64_t r = 0; half_c && !p->pairs && r < chunk.m; r++)
        asp_half_ops_at(p->isa)->narrow(chunk.c + r * chunk.ldc, chunk.n, half_c + r * p->n);
}

static void run(asp_op op, const asp_kcall *k, asp_worker *w)
{
    const asp_gemm_plan p = plan_of(op, k, w->n_threads);
    const int64_t chunks = asp_ceil_div(p.n, p.chunk_n) * asp_ceil_div(p.m, p.chunk_m);
    const int64_t batch = asp_tensor_count(&k->out[0]) / (p.m * p.n);
    for (int64_t i; (i = asp_team_next(w, batch * chunks)) >= 0;) {
        const int64_t z = i / chunks;
        const int64_t at[3] = {batch > 1 ? asp_batch_matrix(k, 0, z) : 0,
                               batch > 1 ? asp_batch_matrix(k, 1, z) : 0, z};
        run_chunk(&p, k, i % chunks, at, op == ASP_OP_gemm_tn && k->chunk > 0,
                  (char *)k->work + w->thread * p.thread_bytes);
    }
}

static int64_t work_of(asp_op op, const asp_kcall *k, int n_threads)
{
    const asp_gemm_plan plan = plan_of(op, k, n_threads);
    return asp_gemm_work_bytes(&plan, n_threads);
}

void asp_gemm_nt_f32(const asp_kcall *k, asp_worker *w) { run(ASP_OP_gemm_nt, k, w); }
void asp_gemm_nn_f32(const asp_kcall *k, asp_worker *w) { run(ASP_OP_gemm_nn, k, w); }
void asp_gemm_tn_f32(const asp_kcall *k, asp_worker *w) { run(ASP_OP_gemm_tn, k, w); }
int64_t asp_gemm_nt_f32_work(const asp_kcall *k, int n) { return work_of(ASP_OP_gemm_nt, k, n); }
int64_t asp_gemm_nn_f32_work(const asp_kcall *k, int n) { return work_of(ASP_OP_gemm_nn, k, n); }
int64_t asp_gemm_tn_f32_work(const asp_kcall *k, int n) { return work_of(ASP_OP_gemm_tn, k, n); }
void asp_bmm_f32(const asp_kcall *k, asp_worker *w) { run(ASP_OP_bmm, k, w); }
int64_t asp_bmm_f32_work(const asp_kcall *k, int n) { return work_of(ASP_OP_bmm, k, n); }
