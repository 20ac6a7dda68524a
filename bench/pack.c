// How long an arena layout takes and how near the lower bound it comes, on lives like those of a
// training step (kept blocks that die in reverse, short large ones) and on random ones.
//   bench_pack [blocks=20000]
// SPDX-License-Identifier: Apache-2.0
#include "flow/pack.h"

#include <stdlib.h>
#include <time.h>

#define ROUNDS 3

static double ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static uint32_t mixed(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// kept of every ten blocks live from the forward to their turn in the backward.
static void make_training(asp_block_life *b, uint32_t n, uint32_t steps, uint32_t kept)
{
    static const int64_t sizes[] = {64, 4096, 1 << 20, 1 << 23, 11 << 21, 1 << 26};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)((uint64_t)i * steps / n), mirror = steps - 1 - at;
        b[i].bytes = sizes[mixed(i) % ASP_COUNT_OF(sizes)] * (1 + mixed(i + n) % 3);
        b[i].first = at;
        b[i].last = at + 1 + mixed(i + 2 * n) % 6;
        if (at < steps / 2 && i % 10 < kept) b[i].last = mirror;
        if (b[i].last >= steps) b[i].last = steps - 1;
    }
}

static void make_random(asp_block_life *b, uint32_t n, uint32_t steps, uint32_t longest)
{
    for (uint32_t i = 0; i < n; i++) {
        b[i].bytes = 1 + mixed(i) % (1u << (8 + mixed(i + n) % 18));
        b[i].first = mixed(i + 2 * n) % steps;
        b[i].last = b[i].first + mixed(i + 3 * n) % longest;
        if (b[i].last >= steps) b[i].last = steps - 1;
    }
}

static void pack(asp_ctx *cx, asp_arena *a, const char *name, asp_block_life *b, uint32_t n,
                 uint32_t steps)
{
    double best = 1e30;
    asp_pack_result r = {0};
    for (int round = 0; round < ROUNDS; round++) {
        double start = ms();
        if (asp_pack(a, b, n, steps, &r) != ASP_OK) {
            printf("%s\n", cx->message);
            exit(1);
        }
        double took = ms() - start;
        best = took < best ? took : best;
    }
    printf("%-16s %u blocks, %u steps: %7.1f ms, height %lld, %.2f %% above the bound\n", name, n,
           steps, best, (long long)r.height, 100.0 * ((double)r.height / (double)r.max_live - 1.0));
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 20000;
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_block_life *b = ASP_NEW_ARRAY(&a, asp_block_life, n);
    for (uint32_t kept = 1; kept <= 7; kept += 3) {
        char name[32];
        snprintf(name, sizeof name, "training %u/10", kept);
        make_training(b, n, n / 2, kept);
        pack(&cx, &a, name, b, n, n / 2);
    }
    make_random(b, n, n, 20);
    pack(&cx, &a, "random short", b, n, n);
    make_random(b, n, n, n / 8 + 1);
    pack(&cx, &a, "random long", b, n, n);
    asp_arena_fini(&a);
    return 0;
}
