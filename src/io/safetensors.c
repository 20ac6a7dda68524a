// safetensors, reading.  Neighbours: safetensors.h (contract), safetensors_shards.c (many files),
// safetensors_convert.c (to f32 and f64), safetensors_write.c.
// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"
#include "base/json.h"

#include <stdlib.h>

#define MAX_HEADER_BYTES ((uint64_t)100 << 20) // as the format's own implementation has it

void asp_safetensors_init(asp_safetensors *s, asp_arena *a, const char *path)
{
    *s = (asp_safetensors){.arena = a, .path = path};
    asp_map_init(&s->index, a);
}

void asp_safetensors_close(asp_safetensors *s)
{
    for (uint32_t i = 0; i < s->maps.n; i++) asp_file_map_close(&s->maps.at[i]);
    s->maps.n = 0;
}

// One file while it is read.
typedef struct source {
    asp_safetensors *s;
    asp_ctx *cx;
    const char *file;
    json_t *header;            // borrowed
    const unsigned char *data; // behind the header
    int64_t data_bytes;
    uint32_t first; // of its tensors in s->tensors
} source;

// ---- one tensor ----------------------------------------------------------------------------

static asp_status read_dtype(const source *f, const json_t *o, asp_dtype *out)
{
    const char *text = json_string_value(json_object_get(o, "dtype"));
    char known[128] = "";
    if (!text) return asp_fail(f->cx, ASP_ERR_INPUT, "\"dtype\" is missing or no string");
    for (int i = 0; i < ASP_DTYPE_COUNT; i++) {
        if (strcmp(asp_dtypes[i].safetensors, text) == 0) {
            *out = (asp_dtype)i;
            return ASP_OK;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", asp_dtypes[i].safetensors);
    }
    return asp_fail(f->cx, ASP_ERR_INPUT, "its dtype is \"%.40s\"; known here are %s", text, known);
}

static asp_status read_shape(const source *f, const json_t *o, asp_st_tensor *t)
{
    const json_t *shape = json_object_get(o, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > ASP_MAX_RANK)
        return asp_fail(f->cx, ASP_ERR_INPUT, "\"shape\" must be a list of at most %d sizes",
                        ASP_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    t->count = 1;
    for (int d = 0; d < t->rank; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return asp_fail(f->cx, ASP_ERR_INPUT, "size %d of \"shape\" is no whole number >= 0",
                            d);
        t->dim[d] = (int64_t)json_integer_value(size);
        if (asp_mul_overflows(t->count, t->dim[d], &t->count))
            return asp_fail(f->cx, ASP_ERR_INPUT, "its shape overflows 63 bits");
    }
    if (asp_mul_overflows(t->count, asp_dtypes[t->dtype].bytes, &t->bytes))
        return asp_fail(f->cx, ASP_ERR_INPUT, "its bytes overflow 63 bits");
    return ASP_OK;
}

static asp_status read_offsets(const source *f, const json_t *o, asp_st_tensor *t)
{
    const json_t *offsets = json_object_get(o, "data_offsets");
    const json_t *a = json_array_get(offsets, 0), *b = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return asp_fail(f->cx, ASP_ERR_INPUT, "\"data_offsets\" must be two whole numbers");
    int64_t begin = (int64_t)json_integer_value(a), end = (int64_t)json_integer_value(b);
    if (begin < 0 || end < begin)
        return asp_fail(f->cx, ASP_ERR_INPUT, "data_offsets [%lld, %lld] are no range",
                        (long long)begin, (long long)end);
    if (end > f->data_bytes)
        return asp_fail(f->cx, ASP_ERR_INPUT,
                        "data_offsets [%lld, %lld] lie outside the file's %lld bytes of data; it "
                        "is truncated or damaged, fetch it again",
                        (long long)begin, (long long)end, (long long)f->data_bytes);
    if (end - begin != t->bytes)
        return asp_fail(f->cx, ASP_ERR_INPUT,
                        "data_offsets [%lld, %lld] span %lld bytes, dtype and shape make %lld",
                        (long long)begin, (long long)end, (long long)(end - begin),
                        (long long)t->bytes);
    t->data = f->data + begin;
    return ASP_OK;
}

static asp_status read_tensor(const source *f, const json_t *o, asp_st_tensor *t)
{
    if (!json_is_object(o)) return asp_fail(f->cx, ASP_ERR_INPUT, "its entry must be an object");
    ASP_TRY(read_dtype(f, o, &t->dtype));
    ASP_TRY(read_shape(f, o, t));
    return read_offsets(f, o, t);
}

static asp_status add_tensor(const source *f, const char *name, const json_t *o)
{
    asp_safetensors *s = f->s;
    asp_st_tensor t = {.file = f->file};
    bool added;
    ASP_TRY_NOTE(f->cx, read_tensor(f, o, &t), "%s: tensor \"%.200s\"", f->file, name);
    uint32_t i = asp_map_add(&s->index, name, strlen(name), &added);
    if (!added)
        return asp_fail(f->cx, ASP_ERR_INPUT, "%s: tensor \"%.200s\" is in %s too", f->file, name,
                        s->tensors.at[i].file);
    t.name = asp_map_key(&s->index, i, NULL);
    ASP_PUSH(s->arena, &s->tensors, t);
    return ASP_OK;
}

// ---- one file ------------------------------------------------------------------------------

static asp_status check_metadata(const source *f, json_t *metadata)
{
    const char *key;
    json_t *value;
    bool fine = json_is_object(metadata);
    json_object_foreach(metadata, key, value) fine &= json_is_string(value);
    if (fine) return ASP_OK;
    return asp_fail(f->cx, ASP_ERR_INPUT, "%s: __metadata__ must be an object of strings", f->file);
}

static int by_place(const void *a, const void *b)
{
    const asp_st_tensor *x = *(asp_st_tensor *const *)a, *y = *(asp_st_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

// The format leaves no byte of data without a tensor and none with two.
static asp_status check_cover(const source *f)
{
    asp_safetensors *s = f->s;
    uint32_t n = s->tensors.n - f->first;
    int64_t covered = 0;
    asp_st_tensor **sorted = ASP_NEW_ARRAY(s->arena, asp_st_tensor *, n);
    for (uint32_t i = 0; i < n; i++) sorted[i] = &s->tensors.at[f->first + i];
    if (n > 1) qsort(sorted, n, sizeof *sorted, by_place);
    for (uint32_t i = 0; i < n; i++) {
        const asp_st_tensor *t = sorted[i];
        int64_t begin = t->data - f->data;
        if (begin < covered)
            return asp_fail(f->cx, ASP_ERR_INPUT,
                            "%s: tensor \"%.200s\" overlaps \"%.200s\" at data byte %lld", f->file,
                            t->name, sorted[i - 1]->name, (long long)begin);
        if (begin > covered)
            return asp_fail(f->cx, ASP_ERR_INPUT,
                            "%s: data bytes %lld to %lld, before tensor \"%.200s\", belong to none",
                            f->file, (long long)covered, (long long)begin, t->name);
        covered = begin + t->bytes;
    }
    if (covered != f->data_bytes)
        return asp_fail(f->cx, ASP_ERR_INPUT, "%s: data bytes %lld to %lld belong to no tensor",
                        f->file, (long long)covered, (long long)f->data_bytes);
    return ASP_OK;
}

static asp_status read_tensors(asp_ctx *cx, void *arg)
{
    source *f = arg;
    const char *name;
    json_t *value;
    f->cx = cx;
    json_object_foreach(f->header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            ASP_TRY(check_metadata(f, value));
        else
            ASP_TRY(add_tensor(f, name, value));
    }
    return check_cover(f);
}

static asp_status check_start(asp_ctx *cx, const char *file, const unsigned char *data,
                              size_t bytes, uint64_t header_bytes)
{
    if (memcmp(data, "version ", 8) == 0)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s is a Git LFS pointer, not the file itself; fetch it with git lfs pull",
                        file);
    if (header_bytes > bytes - 8)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s: the header claims %llu bytes, the file has %zu; it is truncated or no "
                        "safetensors file",
                        file, (unsigned long long)header_bytes, bytes);
    if (header_bytes > MAX_HEADER_BYTES)
        return asp_fail(cx, ASP_ERR_INPUT, "%s: a header of %llu bytes is beyond the format's %llu",
                        file, (unsigned long long)header_bytes,
                        (unsigned long long)MAX_HEADER_BYTES);
    if (header_bytes == 0 || data[8] != '{')
        return asp_fail(cx, ASP_ERR_INPUT, "%s: the header does not begin with {", file);
    return ASP_OK;
}

asp_status asp_safetensors_parse(asp_safetensors *s, const char *file, const unsigned char *data,
                                 size_t bytes)
{
    asp_ctx *cx = s->arena->cx;
    uint64_t header_bytes = 0;
    json_t *header;
    if (bytes < 8)
        return asp_fail(cx, ASP_ERR_INPUT, "%s: %zu bytes are too few for a safetensors file", file,
                        bytes);
    for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | data[i];
    ASP_TRY(check_start(cx, file, data, bytes, header_bytes));
    ASP_TRY_NOTE(cx,
                 asp_json_parse(cx, file, (const char *)data + 8, (size_t)header_bytes, &header),
                 "the safetensors header");
    source f = {.s = s,
                .file = file,
                .header = header,
                .data = data + 8 + header_bytes,
                .data_bytes = (int64_t)(bytes - 8 - header_bytes),
                .first = s->tensors.n};
    asp_status status = asp_guard(cx, read_tensors, &f); // the header is not the arena's
    json_decref(header);
    return status;
}

// ---- looking up ----------------------------------------------------------------------------

const asp_st_tensor *asp_safetensors_find(const asp_safetensors *s, const char *name)
{
    uint32_t i = asp_map_find(&s->index, name, strlen(name));
    return i == UINT32_MAX ? NULL : &s->tensors.at[i];
}

// "[4, 8]"; returns out.
static const char *shape_text(char *out, size_t out_bytes, int rank, const int64_t *dim)
{
    int n = snprintf(out, out_bytes, "[");
    for (int d = 0; d < rank; d++)
        n += snprintf(out + n, out_bytes - (size_t)n, "%s%lld", d ? ", " : "", (long long)dim[d]);
    snprintf(out + n, out_bytes - (size_t)n, "]");
    return out;
}

asp_status asp_safetensors_want(const asp_safetensors *s, const char *name, int rank,
                                const int64_t *dim, const asp_st_tensor **out_tensor)
{
    const asp_st_tensor *t = asp_safetensors_find(s, name);
    asp_ctx *cx = s->arena->cx;
    char has[160], wanted[160];
    ASP_CHECK(rank >= 0 && rank <= ASP_MAX_RANK);
    if (!t)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s: tensor \"%.200s\" of the model is missing among its %u (\"%.200s\", "
                        "...); is this the model's config.json?",
                        s->path, name, s->tensors.n, s->tensors.n ? s->tensors.at[0].name : "");
    bool same = t->rank == rank;
    for (int d = 0; same && d < rank; d++) same = t->dim[d] == dim[d];
    if (!same)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s: tensor \"%.200s\" is %s, the model's config.json makes it %s", t->file,
                        name, shape_text(has, sizeof has, t->rank, t->dim),
                        shape_text(wanted, sizeof wanted, rank, dim));
    *out_tensor = t;
    return ASP_OK;
}
