// Every graph of tests/fixtures/graphs on P ranks against one, in f64, with sequences that P does
// not divide: loss and all gradients.  SPDX-License-Identifier: Apache-2.0
#include "support/imported.h"
#include "unit/sparse.h"

#include <math.h>

#define GRAPHS ASP_SOURCE_DIR "/tests/fixtures/graphs/"
#define BOUND 1e-12

static const char *const names[] = {
    "attnconv", "bert",      "convnet", "encdec",       "fulllin",    "gemma2",     "gemma3",
    "gpt2",     "linattn",   "llama",   "llama_bf16",   "llama_deqs", "llama_docs", "llama_pad",
    "manual",   "minillama", "mistral", "mistral_docs", "mixtral",    "moe",        "mqa",
    "packed",   "packedqkv", "qwen3",   "qwen3_bf16",   "seqfirst",   "talking",    "tokenshift"};
static const int64_t rank_counts[] = {3, 2, 4, 8};

static void run(const char *name, int64_t ranks, int64_t seq, imported_result *out)
{
    asp_ctx cx;
    char path[512];
    asp_ctx_init(&cx);
    snprintf(path, sizeof path, GRAPHS "%s.json", name);
    // seqfirst's labels have a length of their own; encdec's decoder another one than its encoder.
    imported how = {.path = path, .ranks = ranks, .seq = seq, .other = seq + 2};
    if (imported_run(&cx, &how, out) < 0)
        fail_msg("%s on %lld ranks: %s", name, (long long)ranks, cx.message);
}

static void ranks_agree_with_one(const char *name)
{
    imported_result one, many;
    const char *worst;
    run(name, 1, 21, &one);
    assert_true(isfinite(one.loss) && one.n_params > 0);
    for (size_t i = 0; i < ASP_COUNT_OF(rank_counts); i += SPARSE(4)) {
        run(name, rank_counts[i], 21, &many);
        double loss = fabs(one.loss - many.loss) / fabs(one.loss),
               gradients = imported_difference(&one, &many, &worst);
        if (!(loss <= BOUND) || !(gradients <= BOUND))
            fail_msg("%s on %lld ranks: loss %.17g, %.17g on one; gradients differ by %g (%s)",
                     name, (long long)rank_counts[i], many.loss, one.loss, gradients, worst);
        imported_free(&many);
    }
    imported_free(&one);
}

static void test_graph(void **state) { ranks_agree_with_one(*state); }

int main(void)
{
    struct CMUnitTest tests[ASP_COUNT_OF(names)];
    for (size_t i = 0; i < ASP_COUNT_OF(names); i++)
        tests[i] = (struct CMUnitTest){.name = names[i],
                                       .test_func = test_graph,
                                       .initial_state = (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
