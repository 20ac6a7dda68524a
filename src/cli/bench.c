// autosp bench: what this machine reaches, written to the machine file that planning reads.
// Neighbours: kern/probe.h, cost/cost.h. SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "cli/cli.h"
#include "cost/cost.h"
#include "kern/probe.h"
#include "op/attention.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define TRIAD_FLOATS ((int64_t)16 << 20)

// One call of a kernel on one thread, best of three: seconds.
static asp_status time_call(asp_ctx *cx, asp_op op, asp_kcall *k, double *out_seconds);

typedef struct timed {
    asp_kernel *fn;
    asp_kcall *call;
} timed;

static void run_call(void *arg, asp_worker *w)
{
    const timed *t = arg;
    t->fn(t->call, w);
}

static asp_status time_call(asp_ctx *cx, asp_op op, asp_kcall *k, double *out_seconds)
{
    asp_arena a;
    asp_team *team;
    const asp_kern_row *row = asp_kern_choose(op, ASP_F32);
    double best = 1e30;
    asp_arena_init(&a, cx);
    asp_status s = asp_kern_prepare(cx, &a, row, NULL, 1, k);
    if (s == ASP_OK) s = asp_team_create(cx, 1, -1, &team);
    if (s == ASP_OK) {
        char *work = aligned_alloc(64, (size_t)asp_round_up(k->work_bytes + 1, 64));
        k->work = work;
        for (int i = 0; work && i < 3; i++) {
            double start = asp_seconds();
            asp_team_run(team, run_call, &(timed){row->fn, k});
            double took = asp_seconds() - start;
            best = took < best ? took : best;
        }
        if (!work) s = asp_fail(cx, ASP_ERR_NOMEM, "no memory for the bench");
        free(work);
        asp_team_destroy(team);
    }
    asp_arena_fini(&a);
    *out_seconds = best;
    return s;
}

static asp_status gemm_rate(asp_ctx *cx, float *x, double *out_gflops)
{
    const int64_t m = 1024, n = 1024, k = 1024;
    double seconds;
    asp_kcall c = {.n_in = 2, .n_out = 1, .ranks = 1};
    c.in[0] = (asp_tensor){x, ASP_F32, 2, {m, k}};
    c.in[1] = (asp_tensor){x + m * k, ASP_F32, 2, {n, k}};
    c.out[0] = (asp_tensor){x + m * k + n * k, ASP_F32, 2, {m, n}};
    ASP_TRY(time_call(cx, ASP_OP_gemm_nt, &c, &seconds));
    *out_gflops = asp_flops_gemm(m, n, k) / seconds / 1e9;
    return ASP_OK;
}

static asp_status attention_rate(asp_ctx *cx, float *x, double *out_gflops)
{
    const int64_t s = 2048, d = 64;
    double seconds;
    asp_sdpa_attr attr = asp_sdpa_attr_of(0.125, true);
    asp_kcall c = {.attr = &attr, .n_in = 3, .n_out = 2, .ranks = 1};
    for (int i = 0; i < 3; i++) c.in[i] = (asp_tensor){x + i * s * d, ASP_F32, 4, {1, 1, s, d}};
    c.out[0] = (asp_tensor){x + 3 * s * d, ASP_F32, 4, {1, 1, s, d}};
    c.out[1] = (asp_tensor){x + 4 * s * d, ASP_F32, 3, {1, 1, s}};
    ASP_TRY(time_call(cx, ASP_OP_sdpa, &c, &seconds));
    *out_gflops = asp_flops_sdpa(1, s, s, d, d, true) / seconds / 1e9;
    return ASP_OK;
}

typedef struct exchange_job {
    double gbs, latency_us;
} exchange_job;

// Of an exchange of next to nothing: the best of a few runs of many, in which ranks catch up with
// each other.
static asp_status exchange_latency(asp_comm *comm, float *x, double *out_us)
{
    enum { RUNS = 10, TIMES = 40 };
    const asp_tensor from = {x, ASP_F32, 2, {2, 1}}, to = {x + 2, ASP_F32, 2, {1, 2}};
    const asp_all_to_all a = {.split = 0, .gather = 1};
    double best = 1e9;
    for (int run = 0; run < RUNS; run++) {
        const double start = asp_seconds();
        for (int i = 0; i < TIMES; i++)
            ASP_TRY(asp_comm_all_to_all(comm, NULL, &from, &a, &to, NULL));
        best = fmin(best, (asp_seconds() - start) * 1e6 / TIMES);
    }
    *out_us = best;
    return ASP_OK;
}

static asp_status exchange_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    exchange_job *j = arg;
    const int64_t n = (int64_t)1 << 21;
    float *x = calloc((size_t)(2 * n), sizeof *x);
    if (!x) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for the bench");
    asp_tensor from = {x, ASP_F32, 2, {2, n / 2}}, to = {x + n, ASP_F32, 2, {1, n}};
    asp_status s = ASP_OK;
    for (int i = 0; s == ASP_OK && i < 5; i++) {
        double start = asp_seconds();
        const asp_all_to_all a = {.split = 0, .gather = 1};
        s = asp_comm_all_to_all(comm, NULL, &from, &a, &to, NULL);
        double rate =
            (double)asp_comm_bytes(ASP_COMM_all_to_all, n, 4, 2, 0) / (asp_seconds() - start) / 1e9;
        if (asp_comm_rank(comm) == 0 && rate > j->gbs) j->gbs = rate;
    }
    double latency = 0;
    if (s == ASP_OK) s = exchange_latency(comm, x, &latency);
    if (asp_comm_rank(comm) == 0) j->latency_us = latency;
    free(x);
    return s;
}

static asp_status measure(asp_ctx *cx, float *x, asp_machine *m)
{
    double gemm, attention;
    exchange_job exchange = {0};
    for (int64_t i = 0; i < 3 * TRIAD_FLOATS; i++) x[i] = (float)(i % 13) * 0.01f;
    m->fma_gflops = asp_probe_fma(asp_isa_best());
    ASP_TRY(gemm_rate(cx, x, &gemm));
    ASP_TRY(attention_rate(cx, x, &attention));
    m->gemm_fraction = fmin(gemm / m->fma_gflops, 1);
    m->attention_fraction = fmin(attention / m->fma_gflops, 1);
    m->triad_gbs = asp_probe_triad(x, x + TRIAD_FLOATS, x + 2 * TRIAD_FLOATS, TRIAD_FLOATS);
    ASP_TRY(asp_ranks_run(cx, ASP_COMM_thread, 2, exchange_main, &exchange));
    m->exchange_gbs = exchange.gbs;
    m->latency_us = exchange.latency_us;
    asp_print(stdout, "fma       %8.1f GFLOP/s a core, registers only (%s)\n", m->fma_gflops,
              asp_isa_name(asp_isa_best()));
    asp_print(stdout, "gemm      %8.1f GFLOP/s, %.2f of it (1024 x 1024 x 1024, one thread)\n",
              gemm, m->gemm_fraction);
    asp_print(stdout,
              "attention %8.1f GFLOP/s, %.2f of it (causal forward, S 2048, head 64, one thread)\n",
              attention, m->attention_fraction);
    asp_print(stdout, "triad     %8.1f GB/s, one core\n", m->triad_gbs);
    asp_print(stdout,
              "exchange  %8.1f GB/s received by each of 2 thread ranks (8 MiB all-to-all)\n",
              m->exchange_gbs);
    asp_print(stdout, "latency   %8.1f us an exchange of next to nothing\n", m->latency_us);
    return ASP_OK;
}

asp_status asp_command_bench(asp_ctx *cx, const asp_options *o)
{
    (void)o;
    char path[4096];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    asp_machine m = asp_machine_builtin(asp_isa_best(), (int)cores, memory);
    if (!asp_machine_path(path, sizeof path))
        return asp_fail(cx, ASP_ERR_USAGE,
                        "no place for the machine file: set HOME or AUTOSP_MACHINE");
    float *x = aligned_alloc(64, (size_t)(3 * TRIAD_FLOATS) * sizeof *x);
    if (!x) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for the bench");
    asp_status s = measure(cx, x, &m);
    free(x);
    ASP_TRY(s);
    ASP_TRY(asp_machine_write(cx, path, &m));
    asp_print(stdout, "written to %s\n", path);
    return ASP_OK;
}
