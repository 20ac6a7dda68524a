// Graph text: whatever parses must print, parse again to the same text, and typecheck or be
// refused. SPDX-License-Identifier: Apache-2.0
#include "op/op.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct job {
    const char *text;
    size_t n;
} job;

static asp_status try_text(asp_ctx *cx, void *arg)
{
    const job *j = arg;
    asp_graph *g, *again;
    ASP_TRY(asp_graph_parse(cx, "fuzz", j->text, j->n, &g));
    asp_arena a;
    asp_text once, twice;
    asp_arena_init(&a, cx);
    asp_text_init(&once, &a);
    asp_text_init(&twice, &a);
    asp_graph_print(g, &once);
    if (asp_graph_parse(cx, "again", once.at, once.n, &again) < 0) abort();
    asp_graph_print(again, &twice);
    if (strcmp(once.at, twice.at) != 0) abort();
    asp_status s = asp_graph_typecheck(g);
    asp_graph_destroy(g);
    asp_graph_destroy(again);
    asp_arena_fini(&a);
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
