// autosp opt: passes on graph text, and on models (which it prints as text).  Neighbours: cli.h,
// pass/pass.h, pass/golden.h. SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "cli/cli.h"
#include "front/front.h"
#include "pass/golden.h"

#define MAX_TEXT_BYTES ((size_t)256 << 20)

static asp_status run_golden(asp_arena *a, const asp_options *o, const char *file, const char *text,
                             size_t n)
{
    asp_text actual;
    asp_text_init(&actual, a);
    asp_status s = asp_golden_run(a->cx, file, text, n, &actual);
    if (o->update && s == ASP_ERR_CHECK)
        return asp_file_write_whole(a->cx, file, actual.at, actual.n);
    return s;
}

// *.json and folders are models as `autosp plan` takes them; the rest is graph text.
static asp_status read_graph(asp_arena *a, const asp_options *o, const char *file,
                             asp_graph **out_graph)
{
    char *text = NULL;
    size_t n = strlen(file);
    if (asp_path_is_folder(file) || (n > 5 && strcmp(file + n - 5, ".json") == 0)) {
        asp_program p;
        ASP_TRY(asp_front_load(a->cx, file, o->train.dtype, &p));
        *out_graph = p.graph;
        return ASP_OK;
    }
    ASP_TRY(asp_file_read(a, file, MAX_TEXT_BYTES, &text, &n));
    return asp_graph_parse(a->cx, file, text, n, out_graph);
}

static asp_status run_passes(asp_arena *a, const asp_options *o, const char *file)
{
    asp_graph *g;
    asp_text out;
    asp_pass_options options = {
        .ranks = o->train.ranks,
        .sp = o->train.sp,
        .ac = o->train.ac,
        .recompute = o->train.recompute,
        .save = o->train.save,
        .budget = o->train.memory,
        .dtype = o->train.dtype,
        .half_params = asp_train_half_params(&o->train),
        .env = {.at = {{"S", o->train.seq}, {"B", o->train.batch}}, .n = 2}};
    asp_pass_trace trace = {.print_after = o->print_after, .text = &out};
    asp_text_init(&out, a);
    a->cx->verify_each_pass = true;
    ASP_TRY(read_graph(a, o, file, &g));
    asp_env_fill(&options.env, &g->examples);
    asp_status s = asp_graph_typecheck(g);
    if (s == ASP_OK) s = asp_passes_run(a->cx, g, o->passes ? o->passes : "", &options, &trace);
    if (s == ASP_OK && o->dot)
        asp_graph_print_dot(g, &out);
    else if (s == ASP_OK)
        asp_graph_print(g, &out);
    if (out.n) fwrite(out.at, 1, out.n, stdout);
    asp_graph_destroy(g);
    return s;
}

static asp_status run_file(asp_arena *a, const asp_options *o, const char *file)
{
    char *text = NULL;
    size_t n = 0;
    if (!o->test && !o->update) return run_passes(a, o, file);
    ASP_TRY(asp_file_read(a, file, MAX_TEXT_BYTES, &text, &n));
    return run_golden(a, o, file, text, n);
}

asp_status asp_command_opt(asp_ctx *cx, const asp_options *o)
{
    asp_arena a;
    asp_status s =
        o->n_files ? ASP_OK
                   : asp_fail(cx, ASP_ERR_USAGE, "no file; autosp opt --passes=lower,grad FILE.ir");
    asp_arena_init(&a, cx);
    for (int i = 0; s == ASP_OK && i < o->n_files; i++) s = run_file(&a, o, o->files[i]);
    asp_arena_fini(&a);
    return s;
}
