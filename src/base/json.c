// JSON adapter.  Neighbours: json.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "base/file.h"

asp_status asp_json_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                          json_t **out_object)
{
    json_error_t e;
    json_t *o = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!o && (json_error_code(&e) == json_error_out_of_memory || e.text[0] == 0))
        return asp_fail(cx, ASP_ERR_NOMEM, "no memory for what %s holds", file);
    if (!o) return asp_fail(cx, ASP_ERR_INPUT, "%s:%d:%d: %s", file, e.line, e.column, e.text);
    if (!json_is_object(o)) {
        json_decref(o);
        return asp_fail(cx, ASP_ERR_INPUT, "%s:1:1: a JSON object {...} is wanted", file);
    }
    *out_object = o;
    return ASP_OK;
}

asp_status asp_json_read(asp_ctx *cx, const char *path, size_t max_bytes, json_t **out_object)
{
    asp_arena a;
    char *text = NULL;
    size_t bytes = 0;
    asp_arena_init(&a, cx);
    asp_status s = asp_file_read(&a, path, max_bytes, &text, &bytes);
    if (s == ASP_OK) s = asp_json_parse(cx, path, text, bytes, out_object);
    asp_arena_fini(&a);
    return s;
}

// The member, NULL when it is absent or null.
static const json_t *find(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v && json_is_null(v) ? NULL : v;
}

static asp_status missing(asp_ctx *cx, const char *file, const char *key)
{
    return asp_fail(cx, ASP_ERR_INPUT, "%s: the key \"%s\" is missing", file, key);
}

static asp_status mistyped(asp_ctx *cx, const char *file, const char *key, const char *wanted)
{
    return asp_fail(cx, ASP_ERR_INPUT, "%s: \"%s\" must be %s", file, key, wanted);
}

asp_status asp_json_i64(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                        const int64_t *standard, int64_t *out)
{
    const json_t *v = find(o, key);
    if (!v && !standard) return missing(cx, file, key);
    if (v && !json_is_integer(v)) return mistyped(cx, file, key, "a whole number");
    *out = v ? (int64_t)json_integer_value(v) : *standard;
    return ASP_OK;
}

asp_status asp_json_f64(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                        const double *standard, double *out)
{
    const json_t *v = find(o, key);
    if (!v && !standard) return missing(cx, file, key);
    if (v && !json_is_number(v)) return mistyped(cx, file, key, "a number");
    *out = v ? json_number_value(v) : *standard;
    return ASP_OK;
}

asp_status asp_json_bool(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                         const bool *standard, bool *out)
{
    const json_t *v = find(o, key);
    if (!v && !standard) return missing(cx, file, key);
    if (v && !json_is_boolean(v)) return mistyped(cx, file, key, "true or false");
    *out = v ? json_is_true(v) : *standard;
    return ASP_OK;
}

asp_status asp_json_str(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                        const char *standard, const char **out)
{
    const json_t *v = find(o, key);
    if (!v && !standard) return missing(cx, file, key);
    if (v && !json_is_string(v)) return mistyped(cx, file, key, "a string");
    *out = v ? json_string_value(v) : standard;
    return ASP_OK;
}
