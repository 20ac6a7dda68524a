// A step neither allocates nor calls the system, but to park threads: allocations of our code are
// counted by the linker's --wrap, system calls by a seccomp filter that traps all but a short list.
// SPDX-License-Identifier: Apache-2.0
#include "kern/gemm.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static const char *const options[] = {
    "seq = 256, ranks = 2, threads = 2",
    "seq = 256, ranks = 2, threads = 2, dtype = bf16, master = none, ac = layer, tile = 64"};

// ---- allocations -------------------------------------------------------------------------------

static atomic_int counting, n_allocations;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
    n_allocations += counting;
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    n_allocations += counting;
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    n_allocations += counting;
    return __real_realloc(p, n);
}

// ---- system calls ------------------------------------------------------------------------------

static atomic_int n_calls, first_call = -1;

static void on_call(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    int none = -1;
    if (!counting) return;
    atomic_compare_exchange_strong(&first_call, &none, info->si_syscall);
    n_calls++;
}

#define ALLOW(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

// For all threads of the process, for good.
static bool trap_calls(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_futex),         // parking
        ALLOW(SYS_sched_yield),   // and what comes before it
        ALLOW(SYS_clock_gettime), // where the machine's clock cannot be read without
        ALLOW(SYS_rt_sigreturn),  // of the handler
        ALLOW(SYS_write),         // what the test says
        ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    struct sigaction a = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSYS, &a, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

// ---- the test ----------------------------------------------------------------------------------

// A library that multiplies matrices keeps memory of its own, and no filter goes with it.
static bool library_multiplies(void)
{
    float x[4] = {0};
    asp_ctx *cx = asp_ctx_create();
    asp_kcall k = {.n_in = 2, .n_out = 1};
    asp_gemm_plan plan;
    k.in[0] = k.in[1] = k.out[0] = (asp_tensor){x, ASP_F32, 2, {2, 2}};
    bool is = asp_gemm_prepare(cx, NULL, ASP_OP_gemm_nn, &k, 1, &plan) < 0 ||
              strcmp(plan.provider->name, "builtin") != 0;
    asp_ctx_destroy(cx);
    return is;
}

static void give_batch(asp_trainer *t)
{
    int64_t ids[256];
    for (int i = 0; i < 256; i++) ids[i] = i;
    assert_int_equal(asp_trainer_input(t, "input_ids", ids, sizeof ids), ASP_OK);
    assert_int_equal(asp_trainer_input(t, "labels", ids, sizeof ids), ASP_OK);
}

enum { QUIET, ALLOCATED, CALLED, NO_FILTER, NO_STEP };

// In a child: the filter cannot be taken back.
static int run_steps(const char *how, bool with_filter)
{
    asp_ctx *cx = asp_ctx_create();
    asp_model *m;
    asp_compiled *c;
    asp_trainer *t;
    double loss, norm;
    if (asp_model_load(cx, ASP_SOURCE_DIR "/examples/demo/config.json", "f32", &m) < 0 ||
        asp_model_compile(m, how, &c) < 0 || asp_trainer_create(c, &t) < 0) {
        fprintf(stderr, "%s\n", asp_ctx_message(cx));
        return NO_STEP;
    }
    give_batch(t);
    if (asp_trainer_step(t, &loss) < 0 || asp_trainer_update(t, 1e-3, &norm) < 0) return NO_STEP;
    if (with_filter && !trap_calls()) return NO_FILTER;
    counting = 1;
    asp_status s = asp_trainer_step(t, &loss);
    if (s == ASP_OK) s = asp_trainer_update(t, 1e-3, &norm);
    counting = 0;
    if (s < 0) return NO_STEP;
    if (n_allocations) fprintf(stderr, "%d allocations in a step\n", n_allocations);
    if (n_calls)
        fprintf(stderr, "%d system calls in a step, the first number %d\n", n_calls, first_call);
    return n_allocations ? ALLOCATED : n_calls ? CALLED : QUIET;
}

// level: of instructions; NULL: the best there is.
static void check(const char *level, const char *how)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        if (level) setenv("ASP_ISA", level, 1);
        _exit(run_steps(how, !library_multiplies()));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), QUIET);
}

static void a_step_neither_allocates_nor_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) check(NULL, options[i]);
}

// Where a library multiplies at the best level, AVX2 is where it does not (gemm.c): so the filter
// is there on every processor that has AVX2.
static void nor_with_products_of_our_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) check("avx2", options[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_neither_allocates_nor_calls),
                                       cmocka_unit_test(nor_with_products_of_our_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
