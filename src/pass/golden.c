// Reads a golden file's header, runs its pipeline and compares.  Neighbours: golden.h (contract and
// format).  SPDX-License-Identifier: Apache-2.0
#include "pass/golden.h"

#include <stdlib.h>

static const char rule_line[] = "----\n";

typedef struct header {
    const char *passes;
    asp_pass_options options;
} header;

static asp_status read_number(asp_ctx *cx, const char *file, const char *key, const char *s,
                              int64_t *out)
{
    char *end;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end || v < 1 || v > INT64_C(1) << 40)
        return asp_fail(cx, ASP_ERR_INPUT, "%s: '%s' is not a number for %s", file, s, key);
    *out = v;
    return ASP_OK;
}

// "S = 4096, B = 1"; cuts the text apart.
static asp_status read_env(asp_ctx *cx, const char *file, char *s, asp_env *env)
{
    char *save, *symbol_save;
    for (char *part = strtok_r(s, ",", &save); part; part = strtok_r(NULL, ",", &save)) {
        const char *symbol = strtok_r(part, " =", &symbol_save);
        const char *value = strtok_r(NULL, " =", &symbol_save);
        if (!symbol || !value || env->n == (int)ASP_COUNT_OF(env->at))
            return asp_fail(cx, ASP_ERR_INPUT, "%s: env is a list such as 'S = 16, B = 2'", file);
        env->at[env->n].symbol = symbol;
        ASP_TRY(read_number(cx, file, symbol, value, &env->at[env->n].value));
        env->n++;
    }
    return ASP_OK;
}

static asp_status read_dtype(asp_ctx *cx, const char *file, const char *s, asp_dtype *out)
{
    for (int i = 0; i < ASP_DTYPE_COUNT; i++) {
        if (strcmp(asp_dtypes[i].name, s) != 0) continue;
        *out = (asp_dtype)i;
        return ASP_OK;
    }
    return asp_fail(cx, ASP_ERR_INPUT, "%s: '%s' is not a dtype", file, s);
}

// One "# key: value" line; a "#" line whose first word is no key is a comment.
static asp_status read_line(asp_ctx *cx, const char *file, char *line, header *h)
{
    char *key = line + 1 + strspn(line + 1, " "), *value = key + strcspn(key, ": ");
    if (*value != ':') return ASP_OK;
    *value++ = 0;
    value += strspn(value, " ");
    if (strcmp(key, "passes") == 0)
        h->passes = value;
    else if (strcmp(key, "sp") == 0)
        h->options.sp = value;
    else if (strcmp(key, "ac") == 0)
        h->options.ac = value;
    else if (strcmp(key, "recompute") == 0)
        h->options.recompute = value;
    else if (strcmp(key, "save") == 0)
        h->options.save = value;
    else if (strcmp(key, "budget") == 0)
        return read_number(cx, file, key, value, &h->options.budget);
    else if (strcmp(key, "ranks") == 0)
        return read_number(cx, file, key, value, &h->options.ranks);
    else if (strcmp(key, "tile") == 0)
        return read_number(cx, file, key, value, &h->options.tile);
    else if (strcmp(key, "dtype") == 0)
        return read_dtype(cx, file, value, &h->options.dtype);
    else if (strcmp(key, "master") == 0)
        h->options.half_params = strcmp(value, "none") == 0;
    else if (strcmp(key, "env") == 0)
        return read_env(cx, file, value, &h->options.env);
    else
        return asp_fail(
            cx, ASP_ERR_INPUT,
            "%s: unknown key '%s'; the keys are passes, ranks, sp, ac, recompute, save, "
            "budget, tile, dtype, master, env",
            file, key);
    return ASP_OK;
}

static asp_status read_header(asp_ctx *cx, const char *file, asp_arena *a, const char *text,
                              header *h)
{
    *h = (header){.options = {.ranks = 1, .sp = "ulysses", .ac = "none", .dtype = ASP_F32}};
    while (*text == '#') {
        size_t n = strcspn(text, "\n");
        char *line = asp_copy_bytes(a, text, n + 1);
        line[n] = 0;
        ASP_TRY(read_line(cx, file, line, h));
        text += n + (text[n] == '\n');
    }
    if (h->passes) return ASP_OK;
    return asp_fail(cx, ASP_ERR_INPUT, "%s: begins without a line '# passes: a,b'", file);
}

// The rule that ends the input: at the beginning of a line.
static const char *find_rule(const char *text)
{
    for (const char *s = text; (s = strstr(s, rule_line)); s++)
        if (s == text || s[-1] == '\n') return s;
    return NULL;
}

static asp_status transform(asp_ctx *cx, const char *file, const char *text, size_t n,
                            const header *h, asp_text *out)
{
    asp_graph *g;
    bool verify = cx->verify_each_pass;
    asp_status s = asp_graph_parse(cx, file, text, n, &g);
    if (s < 0) return s;
    cx->verify_each_pass = true;
    s = asp_graph_typecheck(g);
    if (s == ASP_OK) s = asp_passes_run(cx, g, h->passes, &h->options, NULL);
    cx->verify_each_pass = verify;
    if (s == ASP_OK) asp_graph_print(g, out);
    asp_graph_destroy(g);
    return s;
}

static asp_status compare(asp_ctx *cx, const char *file, const char *want, const char *have)
{
    for (int line = 1; *want || *have; line++) {
        size_t w = strcspn(want, "\n"), h = strcspn(have, "\n");
        if (w != h || memcmp(want, have, w) != 0)
            return asp_fail(cx, ASP_ERR_CHECK,
                            "%s: line %d of the output is\n  %.*s\nbut\n  %.*s\n"
                            "is expected",
                            file, line, (int)asp_min((int64_t)h, 400), have,
                            (int)asp_min((int64_t)w, 400), want);
        want += w + (want[w] == '\n');
        have += h + (have[h] == '\n');
    }
    return ASP_OK;
}

asp_status asp_golden_run(asp_ctx *cx, const char *file, const char *text, size_t n,
                          asp_text *out_actual)
{
    header h;
    text = asp_printf(out_actual->arena, "%.*s", (int)asp_min((int64_t)n, INT32_MAX), text);
    ASP_TRY(read_header(cx, file, out_actual->arena, text, &h));
    const char *rule = find_rule(text), *expected = rule ? rule + strlen(rule_line) : "";
    size_t input = rule ? (size_t)(rule - text) : strlen(text);
    asp_put_bytes(out_actual, text, input);
    asp_put(out_actual, "%s", rule_line);
    size_t start = out_actual->n;
    asp_status s = transform(cx, file, text, input, &h, out_actual);
    if (s < 0) asp_put(out_actual, "error %s: %s\n", asp_status_name(s), cx->message);
    return compare(cx, file, expected, out_actual->at + start);
}
