// Options of a training program: the table's rows and how a value is read.
// Neighbours: train_options.def (rows), settings.c (checks), cli/options.c (the command line),
// compiled.c (the C API).  SPDX-License-Identifier: Apache-2.0
#include "train/train_int.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static asp_status fail_value(asp_ctx *cx, const char *name, const char *value, const char *wanted)
{
    return asp_fail(cx, ASP_ERR_USAGE, "--%s '%s': %s is wanted", name, value, wanted);
}

asp_status asp_option_str_read(asp_ctx *cx, const char *name, const char *value, void *out)
{
    (void)cx;
    (void)name;
    *(const char **)out = value;
    return ASP_OK;
}

asp_status asp_option_i64_read(asp_ctx *cx, const char *name, const char *value, void *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (errno || *end || end == value || v < 0 || v > INT64_C(1) << 53)
        return fail_value(cx, name, value, "a whole number from 0 to 2^53");
    *(int64_t *)out = v;
    return ASP_OK;
}

asp_status asp_option_bytes_read(asp_ctx *cx, const char *name, const char *value, void *out)
{
    ASP_TRY_NOTE(cx, asp_parse_bytes(cx, value, out), "--%s", name);
    return ASP_OK;
}

asp_status asp_option_f64_read(asp_ctx *cx, const char *name, const char *value, void *out)
{
    char *end;
    double v = asp_strtod(value, &end);
    if (*end || end == value || !isfinite(v) || v < 0)
        return fail_value(cx, name, value, "a number that is not negative");
    *(double *)out = v;
    return ASP_OK;
}

asp_status asp_option_flag_read(asp_ctx *cx, const char *name, const char *value, void *out)
{
    (void)cx;
    (void)name;
    *(bool *)out = strcmp(value, "0") != 0;
    return ASP_OK;
}

asp_status asp_option_seq_read(asp_ctx *cx, const char *name, const char *value, void *out)
{
    if (strcmp(value, "max") == 0) {
        *(int64_t *)out = 0;
        return ASP_OK;
    }
    ASP_TRY(asp_option_i64_read(cx, name, value, out));
    return *(int64_t *)out ? ASP_OK : fail_value(cx, name, value, "a positive number or max");
}

bool asp_train_dtype(const char *word, asp_dtype *out)
{
    static const asp_dtype trained[] = {ASP_F32, ASP_F64, ASP_BF16};
    for (size_t i = 0; i < ASP_COUNT_OF(trained); i++) {
        if (strcmp(word, asp_dtypes[trained[i]].name) != 0) continue;
        *out = trained[i];
        return true;
    }
    return false;
}

asp_status asp_option_dtype_read(asp_ctx *cx, const char *name, const char *value, void *out)
{
    return asp_train_dtype(value, out) ? ASP_OK : fail_value(cx, name, value, "f32, f64 or bf16");
}

asp_status asp_option_comm_read(asp_ctx *cx, const char *name, const char *value, void *out)
{
    (void)name;
    return asp_comm_backend_find(cx, value, out);
}

const asp_option asp_train_option_rows[] = {
#define OPTION(...) ASP_OPTION_ROW(asp_train_options, __VA_ARGS__),
#include "train/train_options.def"
#undef OPTION
    {0}};

const asp_option *asp_option_find(const asp_option *rows, const char *name, size_t n)
{
    for (const asp_option *r = rows; r->name; r++)
        if (strlen(r->name) == n && memcmp(r->name, name, n) == 0) return r;
    return NULL;
}

asp_status asp_train_options_init(asp_ctx *cx, asp_train_options *out_options)
{
    asp_train_options o = {0};
    for (const asp_option *r = asp_train_option_rows; r->name; r++)
        if (r->standard) ASP_TRY(r->read(cx, r->name, r->standard, (char *)&o + r->offset));
    *out_options = o;
    return ASP_OK;
}

asp_status asp_train_option_choose(asp_ctx *cx, const asp_option *row, const char *value,
                                   asp_train_options *o)
{
    ASP_TRY(row->read(cx, row->name, value, (char *)o + row->offset));
    for (int i = 0; i < ASP_SETTING_COUNT; i++)
        if (strcmp(asp_setting_option(i), row->name) == 0) o->given |= UINT32_C(1) << i;
    return ASP_OK;
}

asp_status asp_train_options_settle(asp_ctx *cx, asp_train_options *o)
{
    o->threads_given = o->threads != 0;
    if (!o->threads_given) o->threads = asp_train_threads(o->ranks * asp_max(o->dp, 1));
    return asp_train_check(cx, o);
}
