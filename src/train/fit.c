// Does it fit, and what is the longest that does?  Neighbours: train.h (contract), longest.c (the
// search), run/compile.h (plans), base/file.h (clock).
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "train/train_int.h"

#define NOMINAL_SEQ 4096

asp_compile_options asp_train_compile_options(const asp_train_options *o, int64_t seq)
{
    return (asp_compile_options){.ranks = o->ranks,
                                 .replicas = o->dp,
                                 .batch = asp_train_batch(o),
                                 .seq = seq,
                                 .threads = (int)o->threads,
                                 .sp = asp_train_sp(o),
                                 .ac = o->ac,
                                 .tile = asp_max(asp_train_tile(o), 0),
                                 .recompute = o->recompute,
                                 .save = o->save,
                                 .dtype = o->dtype,
                                 .half_params = asp_train_half_params(o),
                                 .links = o->links,
                                 .memory = o->memory,
                                 .backend = o->comm,
                                 .optimizer = true,
                                 .accumulates = o->accumulate > 1,
                                 .fuse_optimizer = o->fuse_optimizer,
                                 .offload = o->offload};
}

static asp_status refuse(asp_ctx *cx, const asp_graph *joint, const asp_compile_options *c,
                         const asp_train_options *o, const asp_plan *plan)
{
    char need[32], have[32];
    const asp_plan_report *r = asp_plan_get_report(plan);
    int64_t longest;
    asp_human_bytes(need, sizeof need, r->rank_bytes);
    asp_human_bytes(have, sizeof have, o->memory);
    ASP_TRY(asp_train_longest(cx, joint, c, o->memory, &longest));
    if (longest == 0)
        return asp_fail(cx, ASP_ERR_LIMIT,
                        "--memory %s a rank is too little for any sequence: parameters, gradients "
                        "and optimizer alone take %lld bytes; give more memory",
                        have,
                        (long long)(r->bytes_by_kind[ASP_MEM_PARAM] +
                                    r->bytes_by_kind[ASP_MEM_GRAD] +
                                    r->bytes_by_kind[ASP_MEM_OPTIMIZER]));
    return asp_fail(cx, ASP_ERR_LIMIT,
                    "--seq %lld takes %s a rank (peak at %s), but --memory is %s; the longest "
                    "sequence that fits is --seq %lld, or use more ranks or --ac layer",
                    (long long)c->seq, need, r->peak_at, have, (long long)longest);
}

// --tile auto: tiles where they make it longer, that is where their longest is too long without.
static asp_status longest_auto(asp_ctx *cx, const asp_graph *joint, int64_t memory,
                               asp_compile_options *c)
{
    asp_compile_options tiled = *c;
    tiled.tile = ASP_TRAIN_TILE_ROWS;
    ASP_TRY(asp_train_longest(cx, joint, &tiled, memory, &tiled.seq));
    if (tiled.seq == 0) return asp_train_longest(cx, joint, c, memory, &c->seq);
    ASP_TRY(asp_train_longer(cx, joint, c, memory, tiled.seq, 0, &c->seq));
    if (c->seq == 0) *c = tiled;
    return ASP_OK;
}

// *out_options: as the plan was made, with its length and tile.
static asp_status plan_joint(asp_ctx *cx, const asp_graph *joint, const asp_train_options *o,
                             asp_choice *choice, asp_plan **out_plan,
                             asp_compile_options *out_options)
{
    asp_compile_options c = asp_train_compile_options(o, o->seq);
    c.choice = choice;
    if (o->seq == 0) {
        if (o->memory <= 0)
            return asp_fail(cx, ASP_ERR_USAGE,
                            "--seq max needs --memory BYTES: what a rank may take");
        if (asp_train_tile(o) < 0)
            ASP_TRY(longest_auto(cx, joint, o->memory, &c));
        else
            ASP_TRY(asp_train_longest(cx, joint, &c, o->memory, &c.seq));
        if (c.seq == 0)
            return asp_fail(cx, ASP_ERR_LIMIT,
                            "--memory is too little for any sequence; give more memory, more ranks "
                            "or --ac layer");
    }
    asp_plan *plan;
    ASP_TRY(asp_compile_plan(cx, joint, &c, NULL, &plan));
    const bool too_large = o->memory > 0 && asp_plan_get_report(plan)->rank_bytes > o->memory;
    if (too_large && asp_train_tile(o) < 0 && c.tile == 0) {
        asp_plan_destroy(plan);
        c.tile = ASP_TRAIN_TILE_ROWS;
        ASP_TRY(asp_compile_plan(cx, joint, &c, NULL, &plan));
    }
    if (o->memory > 0 && asp_plan_get_report(plan)->rank_bytes > o->memory) {
        asp_status s = refuse(cx, joint, &c, o, plan);
        asp_plan_destroy(plan);
        return s;
    }
    *out_plan = plan;
    *out_options = c;
    return ASP_OK;
}

static asp_status check_positions(asp_ctx *cx, const asp_graph *module, const asp_train_options *o,
                                  int64_t seq)
{
    asp_env env = {.at = {{"S", seq}, {"B", asp_train_batch(o)}}, .n = 2};
    return asp_front_check_positions(cx, module, &env);
}

static bool is_budget(const asp_train_options *o) { return strcmp(o->ac, "budget") == 0; }

// --seq max: the strategy was chosen for some length; at the longest another may be quicker, and
// all that fit are weighed again.
static asp_status choose_again(asp_ctx *cx, const asp_graph *module, asp_compile_options *c,
                               asp_plan **plan)
{
    asp_graph *joint;
    asp_plan *other;
    if (!c->choice->n) return ASP_OK;
    ASP_TRY(asp_compile_joint(cx, module, c, NULL, &joint));
    asp_status s = asp_compile_plan(cx, joint, c, NULL, &other);
    asp_graph_destroy(joint);
    if (s < 0) return s;
    asp_plan_destroy(*plan);
    *plan = other;
    return ASP_OK;
}

static asp_status plan_at(asp_ctx *cx, const asp_graph *module, const asp_train_options *o,
                          asp_plan **out_plan, int64_t *out_seq)
{
    ASP_TRY(asp_check_replicas(cx, module, o));
    asp_compile_options c = asp_train_compile_options(o, o->seq);
    asp_choice choice = {0};
    asp_graph *joint;
    asp_plan *plan;
    c.choice = &choice;
    if (o->seq == 0) {
        c.seq = NOMINAL_SEQ * o->ranks; // prices of the placement only; sizes stay symbols
        c.memory = 0;
        if (is_budget(o)) c.ac = "layer"; // no memory, no budget
    } else
        ASP_TRY(check_positions(cx, module, o, o->seq));
    ASP_TRY(asp_compile_joint(cx, module, &c, NULL, &joint));
    asp_status s = plan_joint(cx, joint, o, &choice, &plan, &c);
    asp_graph_destroy(joint);
    if (s < 0) return s;
    if (o->seq == 0) {
        s = check_positions(cx, module, o, c.seq);
        if (s == ASP_OK) s = choose_again(cx, module, &c, &plan);
    }
    if (s < 0) {
        asp_plan_destroy(plan);
        return s;
    }
    *out_plan = plan;
    *out_seq = c.seq;
    return ASP_OK;
}

asp_status asp_train_plan(asp_ctx *cx, const asp_graph *module, const asp_train_options *o,
                          asp_plan **out_plan, int64_t *out_seq, double *out_compile_ms)
{
    double start = asp_seconds();
    ASP_TRY(plan_at(cx, module, o, out_plan, out_seq));
    *out_compile_ms = (asp_seconds() - start) * 1e3;
    return ASP_OK;
}
