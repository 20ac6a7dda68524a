// The command line from the table of options.  Neighbours: options.def (rows), cli.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static asp_status fail_value(asp_ctx *cx, const char *name, const char *value, const char *wanted)
{
    return asp_fail(cx, ASP_ERR_USAGE, "--%s '%s': %s is wanted", name, value, wanted);
}

static asp_status read_str(asp_ctx *cx, const char *name, const char *value, void *out)
{
    (void)cx;
    (void)name;
    *(const char **)out = value;
    return ASP_OK;
}

static asp_status read_i64(asp_ctx *cx, const char *name, const char *value, void *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (errno || *end || end == value || v < 0 || v > INT64_C(1) << 53)
        return fail_value(cx, name, value, "a whole number that is not negative");
    *(int64_t *)out = v;
    return ASP_OK;
}

static asp_status read_bytes(asp_ctx *cx, const char *name, const char *value, void *out)
{
    ASP_TRY_NOTE(cx, asp_parse_bytes(cx, value, out), "--%s", name);
    return ASP_OK;
}

static asp_status read_f64(asp_ctx *cx, const char *name, const char *value, void *out)
{
    char *end;
    double v = asp_strtod(value, &end);
    if (*end || end == value || !isfinite(v) || v < 0)
        return fail_value(cx, name, value, "a number that is not negative");
    *(double *)out = v;
    return ASP_OK;
}

static asp_status read_flag(asp_ctx *cx, const char *name, const char *value, void *out)
{
    (void)cx;
    (void)name;
    *(bool *)out = strcmp(value, "0") != 0;
    return ASP_OK;
}

static asp_status read_seq(asp_ctx *cx, const char *name, const char *value, void *out)
{
    if (strcmp(value, "max") == 0) {
        *(int64_t *)out = 0;
        return ASP_OK;
    }
    ASP_TRY(read_i64(cx, name, value, out));
    return *(int64_t *)out ? ASP_OK : fail_value(cx, name, value, "a positive number or max");
}

static asp_status read_dtype(asp_ctx *cx, const char *name, const char *value, void *out)
{
    *(asp_dtype *)out = strcmp(value, "f64") == 0 ? ASP_F64 : ASP_F32;
    return strcmp(value, "f64") == 0 || strcmp(value, "f32") == 0
               ? ASP_OK
               : fail_value(cx, name, value, "f32 or f64");
}

static asp_status read_comm(asp_ctx *cx, const char *name, const char *value, void *out)
{
    (void)name;
    return asp_comm_backend_find(cx, value, out);
}

typedef struct option_row {
    const char *name, *arg, *standard, *help;
    size_t offset;
    asp_status (*read)(asp_ctx *cx, const char *name, const char *value, void *out);
} option_row;

static const option_row rows[] = {
#define OPTION(kind, field, name, arg, standard, help) \
    {name, arg, standard, help, offsetof(asp_options, field), read_##kind},
#include "cli/options.def"
#undef OPTION
};

static_assert(ASP_COUNT_OF(rows) <= 64, "asp_options.given has a bit an option");

static asp_status set(asp_ctx *cx, const option_row *r, const char *value, asp_options *o)
{
    return r->read(cx, r->name, value, (char *)o + r->offset);
}

// Chosen by the user, on the command line or in the environment.
static asp_status choose(asp_ctx *cx, const option_row *r, const char *value, asp_options *o)
{
    o->given |= UINT64_C(1) << (r - rows);
    return set(cx, r, value, o);
}

// AUTOSP_CHECKPOINT_EVERY for --checkpoint-every.
static const char *from_environment(const option_row *r)
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
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        const char *value = from_environment(&rows[i]);
        if (value)
            ASP_TRY(choose(cx, &rows[i], value, o));
        else if (rows[i].standard)
            ASP_TRY(set(cx, &rows[i], rows[i].standard, o));
    }
    return ASP_OK;
}

static const option_row *find_row(const char *name, size_t n)
{
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++)
        if (strlen(rows[i].name) == n && strncmp(rows[i].name, name, n) == 0) return &rows[i];
    return NULL;
}

void asp_options_print(asp_text *t)
{
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s %s", rows[i].name, rows[i].arg ? rows[i].arg : "");
        asp_put(t, "  %-24s %s%s%s%s\n", left, rows[i].help, rows[i].standard ? " [" : "",
                rows[i].standard ? rows[i].standard : "", rows[i].standard ? "]" : "");
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
    const option_row *r = find_row(a + 2, n);
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

void asp_options_fini(asp_options *o) { free(o->files); }

// ---- for training
// --------------------------------------------------------------------------------

// Which of the settings that checkpoints keep were chosen.
static uint32_t given_settings(const asp_options *o)
{
    uint32_t given = 0;
    for (int i = 0; i < ASP_SETTING_COUNT; i++) {
        const char *name = asp_setting_option(i);
        const option_row *r = find_row(name, strlen(name));
        ASP_CHECK(r != NULL);
        given |= (uint32_t)(o->given >> (r - rows) & 1) << i;
    }
    return given;
}

asp_status asp_options_train(asp_ctx *cx, const asp_options *o, asp_train_options *out_options)
{
    asp_train_options t = {.model = o->model,
                           .data = o->files,
                           .n_data = o->n_files,
                           .seq = o->seq,
                           .batch = o->batch,
                           .ranks = o->ranks,
                           .steps = o->steps,
                           .warmup = o->warmup,
                           .seed = o->seed,
                           .checkpoint_every = o->checkpoint_every,
                           .memory = o->memory,
                           .threads = o->threads ? (int)asp_min(o->threads, INT_MAX)
                                                 : asp_train_threads(o->ranks),
                           .threads_given = o->threads != 0,
                           .given = given_settings(o),
                           .sp = o->sp,
                           .ac = o->ac,
                           .comm = o->comm,
                           .dtype = o->dtype,
                           .lr = o->lr,
                           .clip = o->clip,
                           .weight_decay = o->weight_decay,
                           .out = o->out,
                           .resume = o->resume,
                           .profile = o->profile};
    ASP_TRY(asp_train_check(cx, &t));
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
