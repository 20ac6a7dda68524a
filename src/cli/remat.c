// autosp remat: what to keep of a program described in JSON (docs/memory.md), by a policy or under
// a budget.  Neighbours: cli.h, flow/recompute.c (the calls of autosp.h, which this is thin over).
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "cli/cli.h"

#define MAX_TEXT_BYTES ((size_t)1 << 30)

// --ac and --memory go before what the file asks for.
static asp_status choose(asp_recompute *r, const asp_options *o, const char *ac)
{
    const char *policy = o->train.memory > 0 ? "budget" : ac;
    return asp_recompute_choose(r, policy, o->train.memory);
}

static asp_status run_file(asp_arena *a, const asp_options *o, const char *file, FILE *json)
{
    char *text;
    size_t n;
    asp_recompute *r;
    ASP_TRY(asp_file_read(a, file, MAX_TEXT_BYTES, &text, &n));
    ASP_TRY(asp_recompute_parse(a->cx, file, text, n, &r));
    asp_status s = choose(r, o, o->policy);
    if (s == ASP_OK && json)
        asp_print(json, "%s\n", asp_recompute_json(r));
    else if (s == ASP_OK)
        printf("%s", asp_recompute_text(r));
    asp_recompute_destroy(r);
    return s;
}

asp_status asp_command_remat(asp_ctx *cx, const asp_options *o)
{
    asp_arena a;
    asp_report report;
    if (o->n_files == 0)
        return asp_fail(cx, ASP_ERR_USAGE, "remat needs a file: autosp remat FILE.json");
    ASP_TRY(asp_report_open(cx, o, &report));
    asp_arena_init(&a, cx);
    asp_status s = ASP_OK;
    for (int i = 0; s == ASP_OK && i < o->n_files; i++)
        s = run_file(&a, o, o->files[i], report.json);
    asp_arena_fini(&a);
    asp_status closed = asp_report_close(cx, &report);
    return s < 0 ? s : closed;
}
