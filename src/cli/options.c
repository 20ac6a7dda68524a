// The command line from the table of options.  Neighbours: options.def (rows), cli.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const asp_option own_rows[] = {
#define OPTION(...) ASP_OPTION_ROW(asp_options, __VA_ARGS__),
#include "cli/options.def"
#undef OPTION
    {0}};

static const asp_option *const tables[] = {asp_train_option_rows, own_rows};

// Chosen by the user, on the command line or in the environment.
static asp_status choose(asp_ctx *cx, const asp_option *r, const char *value, asp_options *o)
{
    if (asp_option_find(own_rows, r->name, strlen(r->name)) == r)
        return r->read(cx, r->name, value, (char *)o + r->offset);
    return asp_train_option_choose(cx, r, value, &o->train);
}

// AUTOSP_CHECKPOINT_EVERY for --checkpoint-every.
static const char *from_environment(const asp_option *r)
{
    char name[64] = "AUTOSP_";
    size_t n = strlen(name);
    for (const char *s = r->name; *s && n + 1 < sizeof name; s++)
        name[n++] = *s == '-' ? '_' : (char)toupper((unsigned char)*s);
    name[n] = 0;
    return getenv(name);
}

static asp_status set_standards(asp_ctx *cx, asp_options *o)
{
    ASP_TRY(asp_train_options_init(cx, &o->train));
    for (const asp_option *r = own_rows; r->name; r++)
        if (r->standard) ASP_TRY(choose(cx, r, r->standard, o));
    for (size_t i = 0; i < ASP_COUNT_OF(tables); i++) {
        for (const asp_option *r = tables[i]; r->name; r++) {
            const char *value = from_environment(r);
            if (value) ASP_TRY(choose(cx, r, value, o));
        }
    }
    return ASP_OK;
}

void asp_options_print(asp_text *t)
{
    for (size_t i = 0; i < ASP_COUNT_OF(tables); i++) {
        for (const asp_option *r = tables[i]; r->name; r++) {
            char left[64];
            snprintf(left, sizeof left, "--%s %s", r->name, r->arg ? r->arg : "");
            asp_put(t, "  %-24s %s%s%s%s\n", left, r->help, r->standard ? " [" : "",
                    r->standard ? r->standard : "", r->standard ? "]" : "");
        }
    }
    asp_put(t, "  %-24s %s\n", "--data FILE...", "text as bytes, or tokens as *.u16, *.u32");
}

// One argument, which may take the next one along.
static asp_status parse_one(asp_ctx *cx, int argc, char **argv, int *i, asp_options *o)
{
    const char *a = argv[*i];
    if (strncmp(a, "--", 2) != 0) {
        o->files[o->n_files++] = a;
        return ASP_OK;
    }
    if (strcmp(a, "--data") == 0) return ASP_OK; // the files follow as plain arguments
    size_t n = strcspn(a + 2, "=");
    const asp_option *r = NULL;
    for (size_t t = 0; !r && t < ASP_COUNT_OF(tables); t++)
        r = asp_option_find(tables[t], a + 2, n);
    if (!r)
        return asp_fail(cx, ASP_ERR_USAGE, "there is no option %.*s; `autosp %s --help` lists them",
                        (int)n + 2, a, argv[0]);
    if (!r->arg) return choose(cx, r, "1", o);
    if (a[2 + n] == '=') return choose(cx, r, a + 3 + n, o);
    if (*i + 1 >= argc)
        return asp_fail(cx, ASP_ERR_USAGE, "--%s needs a value: --%s %s", r->name, r->name, r->arg);
    return choose(cx, r, argv[++*i], o);
}

asp_status asp_options_parse(asp_ctx *cx, int argc, char **argv, asp_options *out_options,
                             bool *out_help)
{
    asp_options o = {0};
    o.files = calloc((size_t)argc + 1, sizeof *o.files);
    if (!o.files) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for the arguments");
    asp_status s = set_standards(cx, &o);
    *out_help = false;
    for (int i = 1; s == ASP_OK && i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            *out_help = true;
        else
            s = parse_one(cx, argc, argv, &i, &o);
    }
    if (s < 0) {
        free(o.files);
        return s;
    }
    *out_options = o;
    return ASP_OK;
}

asp_comm_backend asp_options_comm(int argc, char **argv)
{
    const asp_option *r = asp_option_find(asp_train_option_rows, "comm", 4);
    asp_ctx cx;
    asp_comm_backend comm = ASP_COMM_thread;
    asp_ctx_init(&cx);
    const char *value = from_environment(r);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--comm=", 7) == 0) value = argv[i] + 7;
        if (strcmp(argv[i], "--comm") == 0 && i + 1 < argc) value = argv[i + 1];
    }
    return value && asp_comm_backend_find(&cx, value, &comm) < 0 ? ASP_COMM_thread : comm;
}

void asp_options_fini(asp_options *o) { free(o->files); }

// ---- for training ------------------------------------------------------------------------------

asp_status asp_options_train(asp_ctx *cx, const asp_options *o, asp_train_options *out_options)
{
    asp_train_options t = o->train;
    t.data = o->files;
    t.n_data = o->n_files;
    ASP_TRY(asp_train_options_settle(cx, &t));
    *out_options = t;
    return ASP_OK;
}

asp_status asp_report_open(asp_ctx *cx, const asp_options *o, asp_report *out_report)
{
    asp_report r = {.text = stdout, .live = isatty(STDOUT_FILENO)};
    if (o->json && strcmp(o->json, "-") == 0)
        r = (asp_report){.json = stdout};
    else if (o->json) {
        r.json = fopen(o->json, "we");
        if (!r.json)
            return asp_fail(cx, ASP_ERR_IO, "cannot write --json %s: %s", o->json, strerror(errno));
    }
    *out_report = r;
    return ASP_OK;
}

asp_status asp_report_close(asp_ctx *cx, asp_report *r)
{
    if (!r->json || r->json == stdout) return ASP_OK;
    return fclose(r->json) == 0 ? ASP_OK
                                : asp_fail(cx, ASP_ERR_IO, "the --json file could not be written");
}
