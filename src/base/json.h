// JSON through jansson: reading with messages that say where, typed access with messages that name
// the key. Neighbours: io/hfconfig.c, io/safetensors.c, train/checkpoint.c.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

#include <jansson.h>

// An object, from text that need not end with 0.  Duplicate keys and what follows the object are
// refused.  `file` is for messages: "file:line:column: what".  The caller owns the result
// (json_decref).
asp_status asp_json_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                          json_t **out_object);
asp_status asp_json_read(asp_ctx *cx, const char *path, size_t max_bytes, json_t **out_object);

// Typed members of an object.  A missing key fails, naming file and key, unless standard is not
// NULL.  null counts as missing.
asp_status asp_json_i64(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                        const int64_t *standard, int64_t *out);
asp_status asp_json_f64(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                        const double *standard, double *out);
asp_status asp_json_bool(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                         const bool *standard, bool *out);
// Borrowed from the object.
asp_status asp_json_str(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                        const char *standard, const char **out);
