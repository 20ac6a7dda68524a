// The compiler's programs against those written by hand: the time of a step, in interleaved pairs.
//   bench_baselines [pairs=20] [seq=1024] [ranks=2]
// tests/parity/baselines_test.c shows that both are the same list of kernels and exchanges.
// SPDX-License-Identifier: Apache-2.0
#include "baselines/llama.h"
#include "baselines/pairs.h"

#include <stdio.h>
#include <stdlib.h>

static asp_compiled *compiled(asp_ctx *cx, const baseline_shape *s, baseline_kind kind, int ranks,
                              int seq, int batch, const char *sp)
{
    char options[160];
    asp_compiled *c;
    asp_model *m = baseline_llama(cx, s, kind, ranks);
    snprintf(options, sizeof options, "seq = %d, batch = %d, ranks = %d, threads = 1, sp = %s", seq,
             batch, ranks, sp);
    if (!m || asp_model_compile(m, options, &c) < 0) {
        fprintf(stderr, "%s\n", asp_ctx_message(cx));
        exit(1);
    }
    asp_model_destroy(m);
    return c;
}

static void compare(asp_ctx *cx, const char *what, const baseline_shape *s, asp_compiled *ours,
                    asp_compiled *hand, int n)
{
    asp_trainer *a = pairs_trainer(cx, ours, s->vocab), *b = pairs_trainer(cx, hand, s->vocab);
    const pairs p = pairs_time(cx, a, b, n);
    printf("%-10s %2d of %2d heads  %9.2f ms  %9.2f ms  %6.3f  [%.3f, %.3f]  %10lld  %10lld\n",
           what, s->kv_heads, s->heads, p.a_ms, p.b_ms, p.ratio, p.low, p.high,
           (long long)asp_compiled_bytes(ours, "rank"),
           (long long)asp_compiled_bytes(hand, "rank"));
    fflush(stdout);
    asp_trainer_destroy(a);
    asp_trainer_destroy(b);
    asp_compiled_destroy(ours);
    asp_compiled_destroy(hand);
}

int main(int argc, char **argv)
{
    static const baseline_shape shapes[] = {
        {.layers = 2, .heads = 8, .kv_heads = 8, .width = 32, .ffn = 704, .vocab = 256},
        {.layers = 2, .heads = 8, .kv_heads = 2, .width = 32, .ffn = 704, .vocab = 256}};
    const int n = argc > 1 ? atoi(argv[1]) : 20, seq = argc > 2 ? atoi(argv[2]) : 1024;
    const int ranks = argc > 3 ? atoi(argv[3]) : 2;
    asp_ctx *cx = asp_ctx_create();
    if (!cx || n < 6 || n > PAIRS_MOST) {
        fprintf(stderr, "usage: bench_baselines [pairs, 6 to %d] [seq] [ranks]\n", PAIRS_MOST);
        return 2;
    }
    printf("S = %d, %d ranks of 1 thread, medians of %d interleaved pairs, interval of the median "
           "with 95 %%\n%-10s %14s  %12s  %12s  %6s  %14s  %10s  %10s\n",
           seq, ranks, n, "", "", "compiled", "by hand", "ratio", "", "bytes", "by hand");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const baseline_shape *s = &shapes[i];
        compare(cx, "ulysses", s, compiled(cx, s, BASELINE_SINGLE, ranks, seq, 1, "ulysses"),
                compiled(cx, s, BASELINE_ULYSSES, ranks, seq, 1, "none"), n);
        compare(cx, "ring", s, compiled(cx, s, BASELINE_SINGLE, ranks, seq, 1, "ring"),
                compiled(cx, s, BASELINE_RING, ranks, seq, 1, "none"), n);
        // As many sequences as ranks, split by tokens or dealt out whole.
        compare(cx, "data", s, compiled(cx, s, BASELINE_SINGLE, ranks, seq, ranks, "auto"),
                compiled(cx, s, BASELINE_DATA, ranks, seq, ranks, "none"), n);
    }
    asp_ctx_destroy(cx);
}
