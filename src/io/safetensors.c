// safetensors, reading.  Neighbours: safetensors.h (contract), safetensors_write.c.
// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"
#include "base/json.h"

#include <math.h>

#define MAX_HEADER_BYTES ((uint64_t)100 << 20)
#define MAX_INDEX_BYTES ((size_t)64 << 20)

void asp_safetensors_init(asp_safetensors *s, asp_arena *a)
{
    *s = (asp_safetensors){.arena = a};
    asp_map_init(&s->index, a);
}

void asp_safetensors_close(asp_safetensors *s)
{
    for (uint32_t i = 0; i < s->maps.n; i++) asp_file_map_close(&s->maps.at[i]);
    s->maps.n = 0;
}

// Where a tensor's entry stands, for messages.
typedef struct entry {
    asp_safetensors *s;
    const char *file, *name;
    const unsigned char *data; // of the file, behind the header
    int64_t data_bytes;
} entry;

static asp_status fail_entry(const entry *e, const char *what)
{
    return asp_fail(e->s->arena->cx, ASP_ERR_INPUT, "%s: tensor \"%.200s\": %s", e->file, e->name,
                    what);
}

static asp_status read_dtype(const entry *e, const json_t *o, asp_dtype *out)
{
    const char *text = json_string_value(json_object_get(o, "dtype"));
    for (int i = 0; text && i < ASP_DTYPE_COUNT; i++) {
        if (strcmp(asp_dtypes[i].safetensors, text) != 0) continue;
        *out = (asp_dtype)i;
        return ASP_OK;
    }
    return fail_entry(e, "its dtype is missing or not one that is known here");
}

static asp_status read_shape(const entry *e, const json_t *o, asp_st_tensor *t)
{
    const json_t *shape = json_object_get(o, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > ASP_MAX_RANK)
        return fail_entry(e, "its shape must be a list of at most 6 sizes");
    t->rank = (int)json_array_size(shape);
    t->count = 1;
    for (int d = 0; d < t->rank; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return fail_entry(e, "a size in its shape is not a whole number");
        t->dim[d] = (int64_t)json_integer_value(size);
        if (asp_mul_overflows(t->count, t->dim[d], &t->count))
            return fail_entry(e, "its shape overflows 63 bits");
    }
    if (asp_mul_overflows(t->count, asp_dtypes[t->dtype].bytes, &t->bytes))
        return fail_entry(e, "its shape overflows 63 bits");
    return ASP_OK;
}

static asp_status read_offsets(const entry *e, const json_t *o, asp_st_tensor *t)
{
    const json_t *offsets = json_object_get(o, "data_offsets");
    const json_t *a = json_array_get(offsets, 0), *b = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return fail_entry(e, "data_offsets must be two whole numbers");
    int64_t begin = (int64_t)json_integer_value(a), end = (int64_t)json_integer_value(b);
    if (begin < 0 || end < begin || end > e->data_bytes)
        return fail_entry(e, "data_offsets lie outside the file; it is truncated or damaged");
    if (end - begin != t->bytes)
        return fail_entry(e, "data_offsets do not match its dtype and shape");
    t->data = e->data ? e->data + begin : NULL;
    return ASP_OK;
}

static asp_status add_tensor(const entry *e, const json_t *o)
{
    asp_safetensors *s = e->s;
    asp_st_tensor t = {0};
    bool added;
    if (!json_is_object(o)) return fail_entry(e, "its entry must be an object");
    ASP_TRY(read_dtype(e, o, &t.dtype));
    ASP_TRY(read_shape(e, o, &t));
    ASP_TRY(read_offsets(e, o, &t));
    uint32_t i = asp_map_add(&s->index, e->name, strlen(e->name), &added);
    if (!added) return fail_entry(e, "is there twice");
    t.name = asp_map_key(&s->index, i, NULL);
    ASP_PUSH(s->arena, &s->tensors, t);
    return ASP_OK;
}

static asp_status read_header(asp_safetensors *s, const char *file, const unsigned char *data,
                              size_t bytes, uint64_t header_bytes)
{
    json_t *o;
    asp_ctx *cx = s->arena->cx;
    ASP_TRY_NOTE(cx, asp_json_parse(cx, file, (const char *)data + 8, (size_t)header_bytes, &o),
                 "the header");
    entry e = {.s = s,
               .file = file,
               .data = data + 8 + header_bytes,
               .data_bytes = (int64_t)(bytes - 8 - header_bytes)};
    asp_status status = ASP_OK;
    const char *name;
    json_t *value;
    json_object_foreach(o, name, value)
    {
        e.name = name;
        if (status == ASP_OK && strcmp(name, "__metadata__") != 0) status = add_tensor(&e, value);
    }
    json_decref(o);
    return status;
}

asp_status asp_safetensors_parse(asp_safetensors *s, const char *file, const unsigned char *data,
                                 size_t bytes)
{
    asp_ctx *cx = s->arena->cx;
    uint64_t header_bytes = 0;
    if (bytes < 8)
        return asp_fail(cx, ASP_ERR_INPUT, "%s: %zu bytes are too few for a safetensors file", file,
                        bytes);
    for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | data[i];
    if (header_bytes > MAX_HEADER_BYTES || header_bytes > bytes - 8)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s: the header claims %llu bytes, the file has %zu; it is truncated or no "
                        "safetensors file",
                        file, (unsigned long long)header_bytes, bytes);
    return read_header(s, file, data, bytes, header_bytes);
}

static asp_status open_one(asp_safetensors *s, const char *path)
{
    asp_file_map m;
    ASP_TRY(asp_file_map_open(s->arena->cx, path, &m));
    ASP_PUSH(s->arena, &s->maps, m);
    return asp_safetensors_parse(s, path, m.data, m.bytes);
}

// model.safetensors.index.json: {"weight_map": {tensor: file}}.  Every file is read whole; then
// every tensor must be there.
static asp_status open_shards(asp_safetensors *s, const char *folder, const char *index_path,
                              const json_t *index)
{
    asp_ctx *cx = s->arena->cx;
    json_t *map = json_object_get(index, "weight_map"), *value;
    const char *name;
    asp_map files;
    asp_map_init(&files, s->arena);
    if (!json_is_object(map))
        return asp_fail(cx, ASP_ERR_INPUT, "%s: \"weight_map\" is missing", index_path);
    json_object_foreach(map, name, value)
    {
        const char *file = json_string_value(value);
        bool added;
        if (!file || strchr(file, '/') || file[0] == '.')
            return asp_fail(cx, ASP_ERR_INPUT, "%s: the file of \"%.200s\" must be a plain name",
                            index_path, name);
        asp_map_add(&files, file, strlen(file), &added);
        if (added) ASP_TRY(open_one(s, asp_printf(s->arena, "%s/%s", folder, file)));
    }
    json_object_foreach(map, name, value) if (!asp_safetensors_find(s, name)) return asp_fail(
        cx, ASP_ERR_INPUT, "%s: tensor \"%.200s\" is in none of the files", index_path, name);
    return ASP_OK;
}

static asp_status open_folder(asp_safetensors *s, const char *folder)
{
    json_t *index;
    const char *single = asp_printf(s->arena, "%s/model.safetensors", folder);
    const char *index_path = asp_printf(s->arena, "%s/model.safetensors.index.json", folder);
    if (asp_path_exists(single)) return open_one(s, single);
    if (!asp_path_exists(index_path))
        return asp_fail(s->arena->cx, ASP_ERR_INPUT,
                        "%s holds neither model.safetensors nor model.safetensors.index.json",
                        folder);
    ASP_TRY(asp_json_read(s->arena->cx, index_path, MAX_INDEX_BYTES, &index));
    asp_status status = open_shards(s, folder, index_path, index);
    json_decref(index);
    return status;
}

asp_status asp_safetensors_open(asp_arena *a, const char *path, asp_safetensors *out_file)
{
    asp_safetensors s;
    asp_safetensors_init(&s, a);
    asp_status status = asp_path_is_folder(path) ? open_folder(&s, path) : open_one(&s, path);
    if (status < 0) {
        asp_safetensors_close(&s);
        return status;
    }
    *out_file = s;
    return ASP_OK;
}

const asp_st_tensor *asp_safetensors_find(const asp_safetensors *s, const char *name)
{
    uint32_t i = asp_map_find(&s->index, name, strlen(name));
    return i == UINT32_MAX ? NULL : &s->tensors.at[i];
}

// ---- conversion
// ----------------------------------------------------------------------------------

static uint32_t read_u16(const unsigned char *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }

static double read_f32_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static double read_f32(const unsigned char *p)
{
    return read_f32_bits(read_u16(p) | read_u16(p + 2) << 16);
}
static double read_bf16(const unsigned char *p) { return read_f32_bits(read_u16(p) << 16); }

static double read_f64(const unsigned char *p)
{
    double d;
    memcpy(&d, p, sizeof d);
    return d;
}

static double read_f16(const unsigned char *p)
{
    uint32_t h = read_u16(p), exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 0    ? ldexp((double)fraction, -24)
               : exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                                : ldexp((double)(fraction + 1024), (int)exponent - 25);
    return h >> 15 ? -v : v;
}

// By asp_dtype; NULL: not a floating-point dtype.
static double (*const readers[ASP_DTYPE_COUNT])(const unsigned char *) = {
    [ASP_F32] = read_f32, [ASP_F64] = read_f64, [ASP_BF16] = read_bf16, [ASP_F16] = read_f16};

asp_status asp_st_convert(asp_ctx *cx, const asp_st_tensor *t, asp_dtype to, void *out)
{
    ASP_CHECK(to == ASP_F32 || to == ASP_F64);
    if (!readers[t->dtype])
        return asp_fail(cx, ASP_ERR_INPUT,
                        "tensor \"%.200s\" is %s; weights are f32, f64, bf16 or f16", t->name,
                        asp_dtypes[t->dtype].name);
    int64_t size = asp_dtypes[t->dtype].bytes;
    for (int64_t i = 0; i < t->count; i++) {
        double v = readers[t->dtype](t->data + i * size);
        if (to == ASP_F64)
            ((double *)out)[i] = v;
        else
            ((float *)out)[i] = (float)v;
    }
    return ASP_OK;
}
