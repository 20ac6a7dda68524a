// Planned lengths against published ones.  SPDX-License-Identifier: Apache-2.0
#include "cost/planner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

// Published maxima, with what each ran on.  States: planning notes of the sources are in
// docs/memory.md.
static const struct point {
    const char *what, *model, *gpu;
    double devices, ranks;
    int zero;
    bool bf16_grads, ac, host_optimizer, host_all, tile_loss, tile_mlp, offload;
    double published;
    double within;     // of it
    const char *binds; // where the plan says something else than a length: NULL
} points[] = {
    {"ZeRO-3 3B", "3b", "a100-80", 8, 1, 3, 0, 0, 0, 0, 0, 0, 0, 15e3, 0.10, NULL},
    {"ZeRO-3 8B", "8b", "a100-80", 8, 1, 3, 0, 0, 0, 0, 0, 0, 0, 8e3, 0.10, NULL},
    {"ZeRO-3 13B", "13b", "a100-80", 8, 1, 3, 0, 0, 0, 0, 0, 0, 0, 6e3, 0.10, NULL},
    {"Ulysses 3B", "3b", "a100-80", 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 35e3, 0.10, NULL},
    {"Ulysses 8B", "8b", "a100-80", 8, 8, 1, 0, 0, 0, 0, 0, 0, 0, 15e3, 0.20, NULL},
    {"Ulysses 13B", "13b", "a100-80", 8, 8, 1, 1, 0, 0, 0, 0, 0, 0, 8e3, 0.10, NULL},
    {"8B base", "8b", "h100-80", 8, 1, 3, 0, 1, 1, 0, 0, 0, 0, 32e3, 0.10, NULL},
    {"8B tiled loss", "8b", "h100-80", 8, 8, 3, 0, 1, 1, 0, 1, 0, 0, 1.1e6, 0.10, NULL},
    {"8B all of ALST", "8b", "h100-80", 8, 8, 3, 0, 1, 1, 0, 1, 1, 1, 3.7e6, 0.10, NULL},
    {"8B on 32", "8b", "h100-80", 32, 32, 3, 0, 1, 1, 0, 1, 1, 1, 15e6, 0.10, NULL},
    {"Qwen3-32B", "qwen3-32b", "h100-80", 8, 8, 3, 0, 1, 1, 0, 1, 1, 1, 1.55e6, 0.20, NULL},
    {"70B on 16", "70b", "h100-80", 16, 16, 3, 0, 1, 1, 0, 1, 1, 1, 1.2e6, (double)INFINITY,
     "host memory"},
    {"8B on an H200", "8b", "h200", 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 300e3, 0.10, NULL},
    {"8B, 8 x H100-96", "8b", "h100-96", 8, 8, 3, 0, 1, 0, 0, 0, 0, 0, 262144, 0.10, NULL},
};

static asp_box_plan plan_of(const struct point *p)
{
    asp_shape m;
    asp_box b = {.devices = p->devices,
                 .ranks = p->ranks,
                 .per_node = 8,
                 .zero = p->zero,
                 .bf16_grads = p->bf16_grads,
                 .host_optimizer = p->host_optimizer,
                 .host_all = p->host_all,
                 .host_checkpoints = p->offload,
                 .tile_loss = p->tile_loss,
                 .tile_mlp = p->tile_mlp,
                 .method = p->ranks > 1 ? ASP_BOX_ULYSSES : ASP_BOX_WHOLE,
                 .keep = p->ac ? ASP_KEEP_LAYERS : ASP_KEEP_ALL};
    assert_true(asp_shape_preset(p->model, &m) && asp_gpu_preset(p->gpu, &b.gpu));
    return asp_box_longest(&m, &b);
}

static void published_lengths(void **state)
{
    (void)state;
    int near = 0;
    for (size_t i = 0; i < ASP_COUNT_OF(points); i++) {
        const asp_box_plan p = plan_of(&points[i]);
        const double ratio = p.tokens / points[i].published;
        printf("%-16s published %9.0f planned %9.0f (%.2f), binds: %s\n", points[i].what,
               points[i].published, p.tokens, ratio, p.binds);
        near += fabs(ratio - 1) <= 0.10;
        assert_true(fabs(ratio - 1) <= points[i].within);
        if (points[i].binds) assert_string_equal(p.binds, points[i].binds);
    }
    assert_true(near >= 11);
}

// The published table of 8 x A100-80: AutoSP's column, and what layers and tiles reach at the same
// ZeRO stage and with ZeRO-3.
static void autosp_and_beyond(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        double published;
        bool compared;
    } rows[] = {{"3b", 75e3, true}, {"8b", 45e3, true}, {"13b", 15e3, false}};
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_shape m;
        asp_box b = {.devices = 8,
                     .ranks = 8,
                     .per_node = 8,
                     .method = ASP_BOX_ULYSSES,
                     .keep = ASP_KEEP_AUTOSP};
        assert_true(asp_shape_preset(rows[i].model, &m) && asp_gpu_preset("a100-80", &b.gpu));
        asp_box_choose_zero(&m, &b);
        const double autosp = asp_box_longest(&m, &b).tokens;
        assert_true(fabs(autosp / rows[i].published - 1) <= 0.15);
        b.keep = ASP_KEEP_LAYERS;
        b.tile_loss = b.tile_mlp = true;
        const double ours = asp_box_longest(&m, &b).tokens;
        b.zero = 3;
        b.bf16_grads = false;
        const double zero3 = asp_box_longest(&m, &b).tokens;
        printf("%s: AutoSP %.0f (published %.0f), ours %.0f, with ZeRO-3 %.0f\n", rows[i].model,
               autosp, rows[i].published, ours, zero3);
        if (!rows[i].compared) continue;
        assert_true(ours >= 5 * fmax(autosp, rows[i].published));
        assert_true(zero3 >= 15 * fmax(autosp, rows[i].published));
    }
}

static void states_that_do_not_fit(void **state)
{
    (void)state;
    asp_shape m;
    asp_box b = {.devices = 1, .ranks = 1, .per_node = 8, .keep = ASP_KEEP_LAYERS};
    assert_true(asp_shape_preset("70b", &m) && asp_gpu_preset("a100-80", &b.gpu));
    const asp_box_plan p = asp_box_longest(&m, &b);
    assert_true(p.tokens == 0);
    assert_string_equal(p.binds, "weights and states");
    assert_false(asp_gpu_preset("abacus", &b.gpu));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_lengths),
                                       cmocka_unit_test(autosp_and_beyond),
                                       cmocka_unit_test(states_that_do_not_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
