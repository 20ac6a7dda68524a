// Growing text and the spelling of byte counts.  Neighbours: base.h (contract), arena.c (where it
// lives). SPDX-License-Identifier: Apache-2.0
#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

// The plain locale for this thread.  The C library keeps it as a constant: nothing is allocated.
static locale_t enter_plain_locale(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

double asp_strtod(const char *s, char **out_end)
{
    locale_t callers = enter_plain_locale();
    double v = strtod(s, out_end);
    uselocale(callers);
    return v;
}

int asp_vformat(char *buf, size_t bytes, const char *fmt, va_list args)
{
    locale_t callers = enter_plain_locale();
    int n = vsnprintf(buf, bytes, fmt, args);
    uselocale(callers);
    return n;
}

int asp_format(char *buf, size_t bytes, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = asp_vformat(buf, bytes, fmt, args);
    va_end(args);
    return n;
}

int asp_print(FILE *f, const char *fmt, ...)
{
    va_list args;
    locale_t callers = enter_plain_locale();
    va_start(args, fmt);
    int n = vfprintf(f, fmt, args);
    va_end(args);
    uselocale(callers);
    return n;
}

void asp_text_init(asp_text *t, asp_arena *a) { *t = (asp_text){.arena = a}; }

static void reserve(asp_text *t, size_t more)
{
    if (t->cap - t->n > more) return;
    size_t cap = t->cap ? t->cap * 2 : 256;
    if (cap < t->n + more + 1) cap = t->n + more + 1;
    char *moved = asp_alloc_bytes(t->arena, cap, 1);
    if (t->n) memcpy(moved, t->at, t->n + 1);
    t->at = moved;
    t->cap = cap;
}

void asp_put_bytes(asp_text *t, const char *s, size_t n)
{
    reserve(t, n);
    if (n) memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = 0;
}

void asp_put(asp_text *t, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = asp_vformat(NULL, 0, fmt, args);
    va_end(args);
    ASP_CHECK(n >= 0);
    reserve(t, (size_t)n);
    asp_vformat(t->at + t->n, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n += (size_t)n;
}

void asp_put_f64(asp_text *t, int min_digits, double v)
{
    char buf[40];
    for (int digits = min_digits; digits <= 17; digits++) {
        asp_format(buf, sizeof buf, "%.*g", digits, v);
        double back = asp_strtod(buf, NULL);
        if (!(back < v) && !(back > v)) break; // NaN, too
    }
    asp_put(t, "%s", buf);
}

void asp_put_quoted(asp_text *t, const char *s)
{
    asp_put(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            asp_put(t, "\\%c", c);
        else if (c == '\n')
            asp_put(t, "\\n");
        else if (c == '\t')
            asp_put(t, "\\t");
        else if (c < 0x20)
            asp_put(t, "\\u%04x", c);
        else
            asp_put_bytes(t, s, 1);
    }
    asp_put(t, "\"");
}

const char *asp_human_bytes(char *buf, size_t buf_bytes, int64_t bytes)
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    if (bytes < 1024) {
        asp_format(buf, buf_bytes, "%lld bytes", (long long)bytes);
        return buf;
    }
    double v = (double)bytes / 1024;
    size_t u = 0;
    for (; v >= 1024 && u + 1 < ASP_COUNT_OF(unit); u++) v /= 1024;
    asp_format(buf, buf_bytes, "%.*f %s", v < 10 ? 2 : 1, v, unit[u]);
    return buf;
}

static double unit_scale(const char *unit)
{
    static const struct {
        const char *name;
        double scale;
    } rows[] = {{"", 1},         {"b", 1},        {"bytes", 1},  {"k", 0x1p10},   {"kb", 1e3},
                {"kib", 0x1p10}, {"m", 0x1p20},   {"mb", 1e6},   {"mib", 0x1p20}, {"g", 0x1p30},
                {"gb", 1e9},     {"gib", 0x1p30}, {"t", 0x1p40}, {"tb", 1e12},    {"tib", 0x1p40}};
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++)
        if (strcmp(rows[i].name, unit) == 0) return rows[i].scale;
    return 0;
}

asp_status asp_parse_bytes(asp_ctx *cx, const char *s, int64_t *out_bytes)
{
    char *end;
    errno = 0;
    double v = asp_strtod(s, &end);
    char unit[8] = "";
    size_t n = 0;
    bool ok = end != s && errno == 0 && isfinite(v) && v >= 0;
    while (isspace((unsigned char)*end)) end++;
    for (; *end && n + 1 < sizeof unit; end++) unit[n++] = (char)tolower((unsigned char)*end);
    double scale = unit_scale(unit);
    if (!ok || *end || scale == 0 || v * scale >= 0x1p62)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "'%s' is not a number of bytes; write 4194304, 512MiB or 1.5GiB", s);
    *out_bytes = (int64_t)(v * scale);
    return ASP_OK;
}
