// What would make the longest sequence longer: one more option at a time, and the length that it
// gives, found by planning.  Neighbours: train.h (contract), longest.c (the search), report.c (says
// it).  SPDX-License-Identifier: Apache-2.0
#include "train/train.h"

#include <stdlib.h>

#define SLACK 0.01 // of a length: what is said is a first look

// What a lever starts from.
typedef struct state {
    const asp_train_options *o;
    asp_compile_options now; // as the plan was made; what is the smallest is looked for once
} state;

// Changes the options, and says how; false: there is nothing to gain.
typedef bool pull_fn(const state *s, asp_compile_options *c, char *says, size_t room);

static bool pull_layer(const state *s, asp_compile_options *c, char *says, size_t room)
{
    c->ac = "layer";
    snprintf(says, room, "--ac layer");
    return strcmp(s->now.ac, "layer") != 0 && strcmp(s->now.ac, "budget") != 0;
}

static bool pull_budget(const state *s, asp_compile_options *c, char *says, size_t room)
{
    c->ac = "budget";
    snprintf(says, room, "--ac budget");
    return strcmp(s->now.ac, "budget") != 0;
}

static bool pull_tile(const state *s, asp_compile_options *c, char *says, size_t room)
{
    c->tile = ASP_TRAIN_TILE_ROWS;
    snprintf(says, room, "--tile %d", ASP_TRAIN_TILE_ROWS);
    return s->now.tile == 0;
}

static bool pull_fused(const state *s, asp_compile_options *c, char *says, size_t room)
{
    c->fuse_optimizer = true;
    snprintf(says, room, "--fuse-optimizer%s", s->o->clip > 0 ? " --clip 0" : "");
    return !s->now.fuse_optimizer && s->o->accumulate == 1;
}

static bool pull_ranks(const state *s, asp_compile_options *c, char *says, size_t room)
{
    c->ranks *= 2;
    snprintf(says, room, "--ranks %lld", (long long)c->ranks);
    return strcmp(s->o->sp, "none") != 0 && strncmp(s->o->sp, "hybrid", 6) != 0;
}

static bool pull_offload(const state *s, asp_compile_options *c, char *says, size_t room)
{
    c->offload = "."; // nothing is written by a plan
    snprintf(says, room, "--offload DIR");
    return !s->now.offload;
}

static pull_fn *const pulls[] = {pull_layer, pull_budget,  pull_tile,
                                 pull_fused, pull_offload, pull_ranks};
static_assert(ASP_COUNT_OF(pulls) <= ASP_MOST_LEVERS, "all have a place");

static int longer_first(const void *x, const void *y)
{
    const asp_lever *a = x, *b = y;
    return (a->seq < b->seq) - (a->seq > b->seq);
}

static asp_status try_lever(asp_ctx *cx, const asp_graph *module, const asp_graph *joint,
                            const state *s, const asp_compile_options *c, int64_t *out_seq)
{
    asp_graph *other = NULL;
    if (c->ranks != s->now.ranks) ASP_TRY(asp_compile_joint(cx, module, c, NULL, &other));
    asp_status r =
        asp_train_longer(cx, other ? other : joint, c, s->o->memory, s->now.seq, SLACK, out_seq);
    asp_graph_destroy(other);
    return r;
}

// Whoever asks for another length leaves --sp auto another choice: what was planned with is said.
static void say_strategy(const state *s, asp_lever *l)
{
    const size_t n = strlen(l->says);
    if (strcmp(s->o->sp, s->now.sp) != 0)
        snprintf(l->says + n, sizeof l->says - n, " --sp %s", s->now.sp);
}

static asp_status try_all(asp_ctx *cx, const asp_graph *module, const asp_graph *joint,
                          const state *s, asp_levers *out)
{
    for (size_t i = 0; i < ASP_COUNT_OF(pulls); i++) {
        asp_compile_options c = s->now;
        asp_lever *l = &out->at[out->n];
        if (!pulls[i](s, &c, l->says, sizeof l->says)) continue;
        asp_status r = try_lever(cx, module, joint, s, &c, &l->seq);
        if (r < 0 && c.ranks == s->now.ranks) return r;
        if (r < 0 || l->seq <= s->now.seq) continue; // more ranks may not be possible
        say_strategy(s, l);
        out->n++;
    }
    return ASP_OK;
}

asp_status asp_train_levers(asp_ctx *cx, const asp_graph *module, const asp_train_options *o,
                            const asp_plan *plan, int64_t seq, asp_levers *out_levers)
{
    state s = {.o = o, .now = asp_train_compile_options(o, seq)};
    const asp_choice *choice = asp_plan_get_choice(plan);
    asp_levers levers = {.memory = o->memory, .seq = seq};
    asp_graph *joint;
    s.now.tile = asp_plan_get_report(plan)->tile_rows;
    if (choice->n) s.now.sp = choice->at[choice->chosen].sp;
    ASP_TRY(asp_compile_joint(cx, module, &s.now, NULL, &joint));
    s.now.smallest = asp_smallest_create(cx);
    asp_status r = try_all(cx, module, joint, &s, &levers);
    asp_smallest_destroy(s.now.smallest);
    asp_graph_destroy(joint);
    if (r < 0) return r;
    qsort(levers.at, (size_t)levers.n, sizeof levers.at[0], longer_first);
    *out_levers = levers;
    return ASP_OK;
}
