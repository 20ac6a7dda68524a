// The optimizer in the backward (--fuse-optimizer): parameters and states have the bits of an
// update behind it, on any ranks, and the memory of gradients is what is planned.
// SPDX-License-Identifier: Apache-2.0
#include "front/front.h"
#include "train/train_int.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct way {
    int64_t ranks, tile;
    int threads;
    const char *sp, *ac;
    bool tied;
    asp_dtype dtype;
} way;

typedef struct job {
    const way *w;
    bool fused;
    asp_plan *plan;
    char *params; // and both states, of rank 0 after the steps; owned
    uint64_t hash[8];
    double loss, norm;
} job;

static const asp_slab kept[] = {ASP_SLAB_PARAM, ASP_SLAB_M, ASP_SLAB_V};

static size_t slab_bytes(const asp_plan *p)
{
    return (size_t)(asp_plan_slab_count(p) * asp_dtypes[asp_plan_dtype(p)].bytes);
}

static asp_status compile(asp_ctx *cx, void *arg)
{
    job *j = arg;
    const asp_hf_config c = {.vocab = 97,
                             .hidden = 32,
                             .layers = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 8,
                             .intermediate = 48,
                             .rope_theta = 100,
                             .norm_eps = 1e-5,
                             .initializer_range = 0.2,
                             .tied = j->w->tied};
    const asp_compile_options o = {.ranks = j->w->ranks,
                                   .batch = 1,
                                   .seq = 150,
                                   .threads = j->w->threads,
                                   .sp = j->w->sp,
                                   .ac = j->w->ac,
                                   .tile = j->w->tile,
                                   .backend = ASP_COMM_thread,
                                   .optimizer = true,
                                   .fuse_optimizer = j->fused};
    asp_graph *g;
    ASP_TRY(asp_front_hf(cx, &c, j->w->dtype, &g));
    asp_status s = asp_compile(cx, g, &o, NULL, &j->plan);
    asp_graph_destroy(g);
    return s;
}

static asp_status two_steps(job *j, asp_seat *seat, asp_comm *comm)
{
    const asp_adamw a = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    asp_train_initialise(seat->rank, j->plan, seat->team, 7);
    for (int step = 0; step < 2; step++) {
        for (int k = 0; k < asp_plan_n_inputs(j->plan); k++) {
            int64_t *at = asp_rank_input(seat->rank, k);
            for (int64_t i = 0; i < asp_plan_get_input(j->plan, k)->bytes / 8; i++)
                at[i] = (i * i * 3 + i * (step + 5)) % 97;
        }
        asp_adamw_prepare(&a, seat, j->plan, step);
        double loss = (double)NAN;
        ASP_TRY(asp_rank_step(seat->rank, &loss));
        const double norm = asp_adamw_step(&a, seat, j->plan, step);
        if (asp_comm_rank(comm) == 0) j->loss = loss, j->norm = norm;
    }
    return ASP_OK;
}

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    asp_seat seat;
    const size_t bytes = slab_bytes(j->plan);
    ASP_TRY(asp_seat_open(cx, j->plan, comm, j->w->threads, -1, &seat));
    asp_status s = two_steps(j, &seat, comm);
    for (size_t i = 0; s == ASP_OK && i < ASP_COUNT_OF(kept); i++) {
        const void *slab = asp_rank_slab(seat.rank, kept[i]);
        j->hash[asp_comm_rank(comm)] = asp_hash(slab, bytes, j->hash[asp_comm_rank(comm)]);
        if (asp_comm_rank(comm) == 0) memcpy(j->params + i * bytes, slab, bytes);
    }
    asp_seat_close(&seat);
    return s;
}

static job run(asp_ctx *cx, const way *w, bool fused)
{
    job j = {.w = w, .fused = fused};
    if (asp_guard(cx, compile, &j) < 0) fail_msg("%s", cx->message);
    j.params = calloc(ASP_COUNT_OF(kept), slab_bytes(j.plan));
    if (asp_ranks_run(cx, ASP_COMM_thread, (int)w->ranks, rank_main, &j) < 0)
        fail_msg("%s", cx->message);
    for (int64_t r = 1; r < w->ranks; r++) assert_true(j.hash[r] == j.hash[0]);
    return j;
}

static void compare(const way *w)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    cx.verify_each_pass = true;
    job behind = run(&cx, w, false), within = run(&cx, w, true);
    assert_true(within.loss == behind.loss);
    assert_true(fabs(within.norm - behind.norm) <= 1e-12 * behind.norm);
    assert_memory_equal(within.params, behind.params, ASP_COUNT_OF(kept) * slab_bytes(behind.plan));
    const asp_plan_report *a = asp_plan_get_report(behind.plan),
                          *b = asp_plan_get_report(within.plan);
    assert_true(b->rank_bytes < a->rank_bytes);
    assert_true(b->bytes_by_kind[ASP_MEM_GRAD] < a->bytes_by_kind[ASP_MEM_GRAD]);
    asp_plan_destroy(behind.plan), asp_plan_destroy(within.plan);
    free(behind.params), free(within.params);
}

static void parameters_have_the_same_bits(void **state)
{
    (void)state;
    static const way ways[] = {
        {1, 0, 1, "auto", "none", false, ASP_F64},   {1, 64, 3, "auto", "layer", true, ASP_F32},
        {2, 0, 1, "ulysses", "sac", false, ASP_F32}, {2, 64, 2, "ulysses", "layer", true, ASP_F32},
        {4, 64, 1, "ring", "none", false, ASP_F64},  {3, 0, 1, "ring", "default", true, ASP_F32},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(ways); i++) compare(&ways[i]);
}

// What a gradient needs of the whole step is refused by name.
static void what_needs_all_gradients_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *says;
    } rows[] = {{"clip", "1", "--fuse-optimizer with --clip 1"},
                {"accumulate", "2", "--fuse-optimizer with --accumulate 2"}};
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_ctx cx;
        asp_train_options o;
        asp_ctx_init(&cx);
        assert_int_equal(asp_train_options_init(&cx, &o), ASP_OK);
        const struct {
            const char *name, *value;
        } chosen[] = {{"fuse-optimizer", "1"}, {"clip", "0"}, {rows[i].name, rows[i].value}};
        for (size_t k = 0; k < ASP_COUNT_OF(chosen); k++) {
            const asp_option *r =
                asp_option_find(asp_train_option_rows, chosen[k].name, strlen(chosen[k].name));
            assert_int_equal(asp_train_option_choose(&cx, r, chosen[k].value, &o), ASP_OK);
        }
        assert_int_equal(asp_train_options_settle(&cx, &o), ASP_ERR_USAGE);
        assert_non_null(strstr(cx.message, rows[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_the_same_bits),
        cmocka_unit_test(what_needs_all_gradients_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
