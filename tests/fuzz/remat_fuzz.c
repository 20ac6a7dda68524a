// Recomputation programs from JSON: whatever is accepted gets an answer or a message, an answer can
// be emitted, its peak is kept, and asking twice gives the same.  SPDX-License-Identifier:
// Apache-2.0
#include "flow/remat_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MOST_OPS 40u // larger programs are parsed only

typedef struct job {
    const char *text;
    size_t n;
    asp_arena arena;
} job;

static void check_choice(asp_ctx *cx, asp_arena *a, const asp_remat_file *f,
                         asp_remat_policy policy)
{
    asp_remat_choice c, again;
    asp_remat_schedule s;
    asp_remat_cost cost;
    if (asp_remat_choose(cx, a, &f->program, policy, &c) != ASP_OK) return;
    ASP_CHECK(asp_remat_choose(cx, a, &f->program, policy, &again) == ASP_OK);
    ASP_CHECK(c.n_saved == again.n_saved &&
              (c.n_saved == 0 || memcmp(c.saved, again.saved, c.n_saved * sizeof *c.saved) == 0));
    if (asp_remat_emit(cx, a, &f->program, c.saved, c.n_saved, &s) != ASP_OK) return;
    asp_remat_simulate(a, &f->program, c.saved, c.n_saved, &s, f->fused ? ASP_REMAT_FUSED : 0,
                       &cost);
    ASP_CHECK(cost.peak >= 0 && cost.repeated_ps >= 0);
}

static asp_status try_text(asp_ctx *cx, void *arg)
{
    job *j = arg;
    asp_remat_file f;
    asp_remat_frontier front;
    asp_remat_choice c;
    ASP_TRY(asp_remat_parse(cx, &j->arena, "fuzz", j->text, j->n, &f));
    ASP_CHECK(f.program.n_values >= f.program.n_inputs);
    if (f.program.n_ops > MOST_OPS) return ASP_OK;
    for (int p = ASP_REMAT_KEEP_ALL; p <= ASP_REMAT_LAYER; p++)
        check_choice(cx, &j->arena, &f, (asp_remat_policy)p);
    asp_status s = asp_remat_cut(cx, &j->arena, &f.program, f.keep, f.redo, &c);
    ASP_CHECK(s == ASP_OK || *cx->message);
    s = asp_remat_fraction(cx, &j->arena, &f.program, 0.5, &c);
    ASP_CHECK(s == ASP_OK || *cx->message);
    s = asp_remat_frontier_find(cx, &j->arena, &f.program, 0, &front);
    ASP_CHECK(s == ASP_OK || *cx->message);
    for (uint32_t i = 1; s == ASP_OK && i < front.n; i++)
        ASP_CHECK(front.at[i].cost.peak < front.at[i - 1].cost.peak &&
                  front.at[i].cost.repeated_ps >= front.at[i - 1].cost.repeated_ps);
    return ASP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    asp_ctx cx;
    job j = {.text = (const char *)data, .n = n};
    asp_ctx_init(&cx);
    asp_arena_init(&j.arena, &cx);
    asp_status s = asp_guard(&cx, try_text, &j);
    ASP_CHECK(s == ASP_OK || (s < 0 && strstr(cx.message, "fuzz")));
    asp_arena_fini(&j.arena);
    return 0;
}
