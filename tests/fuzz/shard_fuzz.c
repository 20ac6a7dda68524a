// Graph text through the passes that split it: whatever typechecks is split and proved, or refused.
// SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct job {
    const char *text;
    size_t n;
} job;

static asp_status try_text(asp_ctx *cx, void *arg)
{
    const job *j = arg;
    asp_graph *g;
    asp_pass_options options = {.ranks = 2, .sp = "ulysses", .ac = "none", .dtype = ASP_F32};
    ASP_TRY(asp_graph_parse(cx, "fuzz", j->text, j->n, &g));
    asp_status s = asp_graph_typecheck(g);
    if (s == ASP_OK) s = asp_passes_run(cx, g, ASP_PIPELINE_SHARD, &options, NULL);
    if (s == ASP_OK && (asp_graph_verify(g) < 0 || asp_graph_typecheck(g) < 0)) abort();
    asp_graph_destroy(g);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    job j = {(const char *)data, n};
    (void)!asp_guard(&cx, try_text, &j);
    return 0;
}
