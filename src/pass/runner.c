// Runs pipelines given as text, checks and prints between passes.  Neighbours: pass.h (contract),
// pass.def (rows). SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

const asp_pass_info asp_passes[] = {
#define PASS(name, doc) {#name, asp_pass_##name, doc},
#include "pass/pass.def"
#undef PASS
    {NULL, NULL, NULL},
};

static asp_status unknown_pass(asp_ctx *cx, const char *name)
{
    char known[512] = "";
    for (const asp_pass_info *p = asp_passes; p->name; p++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", p->name);
    }
    return asp_fail(cx, ASP_ERR_USAGE, "unknown pass '%s'; the passes are %s", name, known);
}

static asp_status find_pass(asp_ctx *cx, const char *name, const asp_pass_info **out_pass)
{
    for (const asp_pass_info *p = asp_passes; p->name; p++) {
        if (strcmp(p->name, name) != 0) continue;
        *out_pass = p;
        return ASP_OK;
    }
    return unknown_pass(cx, name);
}

// print -> parse -> print gives the same text, and so does a clone: nothing a graph holds escapes
// its text form.
static asp_status round_trip(asp_ctx *cx, asp_arena *scratch, asp_graph *g)
{
    asp_text once, twice, cloned;
    asp_graph *back;
    asp_text_init(&once, scratch);
    asp_text_init(&twice, scratch);
    asp_text_init(&cloned, scratch);
    asp_graph_print(g, &once);
    ASP_TRY_NOTE(cx, asp_graph_parse(cx, "round trip", once.at, once.n, &back),
                 "reading back printed text");
    asp_graph_print(back, &twice);
    asp_graph_destroy(back);
    back = asp_graph_clone(g);
    asp_graph_print(back, &cloned);
    asp_graph_destroy(back);
    ASP_CHECK(strcmp(once.at, twice.at) == 0);
    ASP_CHECK(strcmp(once.at, cloned.at) == 0);
    return ASP_OK;
}

static asp_status run_one(asp_ctx *cx, asp_graph *g, const char *name,
                          const asp_pass_options *options, const asp_pass_trace *trace,
                          asp_arena *scratch)
{
    const asp_pass_info *pass;
    ASP_TRY(find_pass(cx, name, &pass));
    asp_pass px = {.cx = cx, .scratch = scratch, .options = options};
    ASP_TRY(pass->run(&px, g));
    if (cx->verify_each_pass) {
        ASP_TRY_NOTE(cx, asp_graph_verify(g), "after pass %s", name);
        ASP_TRY_NOTE(cx, asp_graph_typecheck(g), "after pass %s", name);
        ASP_TRY_NOTE(cx, round_trip(cx, scratch, g), "after pass %s", name);
    }
    if (trace && trace->print_after &&
        (strcmp(trace->print_after, name) == 0 || strcmp(trace->print_after, "all") == 0)) {
        asp_put(trace->text, "# after %s\n", name);
        asp_graph_print(g, trace->text);
    }
    return ASP_OK;
}

asp_status asp_passes_run(asp_ctx *cx, asp_graph *g, const char *pipeline,
                          const asp_pass_options *options, const asp_pass_trace *trace)
{
    asp_arena scratch;
    asp_arena_init(&scratch, cx);
    asp_status s = ASP_OK;
    for (const char *at = pipeline; s == ASP_OK && *at;) {
        char name[64];
        size_t n = strcspn(at, ",");
        if (n >= sizeof name) n = sizeof name - 1;
        memcpy(name, at, n);
        name[n] = 0;
        at += strcspn(at, ",");
        at += *at == ',';
        s = run_one(cx, g, name, options, trace, &scratch);
        asp_arena_reset(&scratch);
    }
    asp_arena_fini(&scratch);
    return s;
}

void asp_graph_rewire(asp_graph *g, const asp_val *map)
{
    ASP_FOR_NODES (g, n) {
        asp_node_info *info = asp_node_at(g, n);
        for (uint32_t i = 0; i < info->n_in; i++)
            if (map[info->in[i].i].i) info->in[i] = map[info->in[i].i];
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (map[g->outputs.at[i].val.i].i) g->outputs.at[i].val = map[g->outputs.at[i].val.i];
}
