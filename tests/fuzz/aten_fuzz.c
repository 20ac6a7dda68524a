// Exported graphs: whatever is accepted typechecks, and its text parses back to an equal graph;
// whatever is refused names the file.  SPDX-License-Identifier: Apache-2.0
#include "front/front.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct job {
    const char *text;
    size_t n;
    asp_arena arena;
    json_t *json;
    asp_graph *graph, *again;
} job;

static asp_status try_text(asp_ctx *cx, void *arg)
{
    job *j = arg;
    asp_text t;
    ASP_TRY(asp_json_parse(cx, "fuzz", j->text, j->n, &j->json));
    ASP_TRY(asp_front_aten(cx, "fuzz", j->json, ASP_F64, &j->graph));
    ASP_CHECK(asp_graph_verify(j->graph) == ASP_OK);
    ASP_CHECK(asp_graph_typecheck(j->graph) == ASP_OK);
    asp_text_init(&t, &j->arena);
    asp_graph_print(j->graph, &t);
    ASP_CHECK(asp_graph_parse(cx, "fuzz", t.at, t.n, &j->again) == ASP_OK);
    ASP_CHECK(asp_graph_hash(j->again) == asp_graph_hash(j->graph));
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
    asp_graph_destroy(j.graph);
    asp_graph_destroy(j.again);
    json_decref(j.json);
    asp_arena_fini(&j.arena);
    return 0;
}
