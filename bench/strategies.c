// Is --sp auto as quick as the best strategy by name?  Over a grid of 24 programs every strategy is
// timed in turn; then what auto took and the quickest of them, in interleaved pairs.
//   bench_strategies [pairs=20] [least S=512]
// Prints the ratio auto / best with the interval of its median, and the time that was predicted;
// fails where the interval lies beyond 5 %.  SPDX-License-Identifier: Apache-2.0
#include "baselines/llama.h"
#include "baselines/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, ROUNDS = 5, VOCAB = 128 };

typedef struct candidate {
    char sp[32];
    asp_compiled *compiled;
    asp_trainer *trainer;
    double seconds[ROUNDS], median, predicted;
} candidate;

typedef struct point {
    int seq, ranks, heads, kv_heads, window;
} point;

static asp_ctx *cx;

static void fail(void)
{
    fprintf(stderr, "%s\n", asp_ctx_message(cx));
    exit(1);
}

static asp_compiled *compiled(const point *p, const char *sp)
{
    const baseline_shape s = {.layers = 1,
                              .heads = p->heads,
                              .kv_heads = p->kv_heads,
                              .width = 32,
                              .ffn = 256,
                              .vocab = VOCAB,
                              .window = p->window};
    char options[160];
    asp_compiled *c = NULL;
    asp_model *m = baseline_llama(cx, &s, BASELINE_SINGLE, p->ranks);
    snprintf(options, sizeof options, "seq = %d, ranks = %d, threads = 1, sp = %s", p->seq,
             p->ranks, sp);
    if (!m || asp_model_compile(m, options, &c) < 0) fail();
    asp_model_destroy(m);
    return c;
}

// The strategies that auto weighed, from its plan's record, and which it took.
static int read_candidates(const asp_compiled *c, candidate *out, char took[32])
{
    const char *json = asp_compiled_json(c), *at = strstr(json, "\"candidates\"");
    const char *strategy = strstr(json, "\"strategy\": \"");
    int n = 0;
    if (!at || !strategy || sscanf(strategy, "\"strategy\": \"%31[^\"]", took) != 1) exit(1);
    while ((at = strstr(at, "{\"sp\": \"")) && n < MOST) {
        double predicted;
        candidate *x = &out[n];
        *x = (candidate){0};
        if (sscanf(at, "{\"sp\": \"%31[^\"]\", \"seconds\": %lf", x->sp, &predicted) == 2) {
            x->predicted = predicted;
            n++;
        }
        at++;
    }
    return n;
}

static int quickest(candidate *all, int n)
{
    int best = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            candidate *x = &all[(i + round) % n];
            x->seconds[round] = pairs_step(cx, x->trainer);
        }
    for (int i = 0; i < n; i++) {
        all[i].median = pairs_median(all[i].seconds, ROUNDS);
        if (all[i].median < all[best].median) best = i;
    }
    return best;
}

static void print_all(const candidate *all, int n)
{
    for (int i = 0; i < n; i++)
        printf("  %s %.2f (%.2f)", all[i].sp, all[i].median * 1e3, all[i].predicted * 1e3);
    printf("\n");
    fflush(stdout);
}

static double run_point(const point *p, int n_pairs)
{
    candidate all[MOST];
    char took[32];
    asp_compiled *c = compiled(p, "auto");
    const int n = read_candidates(c, all, took);
    asp_compiled_destroy(c);
    int mine = 0;
    for (int i = 0; i < n; i++) {
        all[i].compiled = compiled(p, all[i].sp);
        all[i].trainer = pairs_trainer(cx, all[i].compiled, VOCAB);
        if (strcmp(all[i].sp, took) == 0) mine = i;
    }
    const int best = quickest(all, n);
    pairs r = {.ratio = 1, .low = 1, .high = 1};
    if (mine != best) r = pairs_time(cx, all[mine].trainer, all[best].trainer, n_pairs);
    printf("%5d %2d %3d %3d %5d  %-11s %-11s %6.3f [%.3f, %.3f] ", p->seq, p->ranks, p->heads,
           p->kv_heads, p->window, all[mine].sp, all[best].sp, r.ratio, r.low, r.high);
    print_all(all, n);
    for (int i = 0; i < n; i++) {
        asp_trainer_destroy(all[i].trainer);
        asp_compiled_destroy(all[i].compiled);
    }
    return r.ratio > 1.05 ? r.low : 1;
}

int main(int argc, char **argv)
{
    static const int heads[][2] = {{8, 8}, {8, 2}, {6, 3}};
    const int n_pairs = argc > 1 ? atoi(argv[1]) : 20, least = argc > 2 ? atoi(argv[2]) : 512;
    int slow = 0;
    cx = asp_ctx_create();
    if (!cx || n_pairs < 6 || n_pairs > PAIRS_MOST || least < 8) {
        fprintf(stderr, "usage: bench_strategies [pairs, 6 to %d] [least S]\n", PAIRS_MOST);
        return 2;
    }
    printf("%5s %2s %3s %3s %5s  %-11s %-11s %6s %15s   ms a step, measured (predicted)\n", "S",
           "P", "N", "K", "W", "auto", "quickest", "ratio", "with 95 %");
    for (int seq = least; seq <= 4 * least; seq *= 4)
        for (int ranks = 2; ranks <= 4; ranks *= 2)
            for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
                for (int window = 0; window <= 1; window++)
                    slow += run_point(&(point){seq, ranks, heads[h][0], heads[h][1],
                                               window ? seq / 16 : 0},
                                      n_pairs) > 1.05;
    printf("%d of 24 slower than the quickest by more than 5 %%\n", slow);
    asp_ctx_destroy(cx);
    return slow > 0;
}
