// safetensors, opening: one file, or the shards that model.safetensors.index.json lists.
// Neighbours: safetensors.h (contract), safetensors.c (one file's bytes).
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "io/safetensors.h"

#define MAX_INDEX_BYTES ((size_t)64 << 20)

// What must be released when memory is refused on the way.
typedef struct opening {
    asp_safetensors s;
    asp_arena *arena;
    const char *path;
    const char *index_path;
    json_t *index; // owned
} opening;

static asp_status open_one(asp_safetensors *s, const char *path)
{
    asp_file_map m;
    const char *file = asp_copy_str(s->arena, path);
    ASP_RESERVE(s->arena, &s->maps, s->maps.n + 1); // before there is a map to lose
    ASP_TRY(asp_file_map_open(s->arena->cx, path, &m));
    s->maps.at[s->maps.n++] = m;
    return asp_safetensors_parse(s, file, m.data, m.bytes);
}

static asp_status check_file_name(const opening *o, const char *tensor, const char *file)
{
    if (file && file[0] && file[0] != '.' && !strchr(file, '/')) return ASP_OK;
    return asp_fail(o->arena->cx, ASP_ERR_INPUT,
                    "%s: the file of tensor \"%.200s\" must be a plain name, in the same folder",
                    o->index_path, tensor);
}

static asp_status check_in_file(const opening *o, const char *tensor, const char *file)
{
    const asp_st_tensor *t = asp_safetensors_find(&o->s, tensor);
    const char *actual = t ? strrchr(t->file, '/') + 1 : NULL;
    if (actual && strcmp(actual, file) == 0) return ASP_OK;
    return asp_fail(o->arena->cx, ASP_ERR_INPUT,
                    "%s: tensor \"%.200s\" should be in %.200s but is in %s", o->index_path, tensor,
                    file, actual ? actual : "none of the files");
}

// {"weight_map": {tensor: file}}: every file is read whole; then every tensor must be where it
// should.
static asp_status open_shards(opening *o)
{
    asp_safetensors *s = &o->s;
    asp_ctx *cx = s->arena->cx;
    json_t *map = json_object_get(o->index, "weight_map"), *value;
    const char *tensor;
    asp_map files;
    asp_map_init(&files, s->arena);
    if (!json_is_object(map) || json_object_size(map) == 0)
        return asp_fail(cx, ASP_ERR_INPUT, "%s: \"weight_map\" is missing or empty", o->index_path);
    json_object_foreach(map, tensor, value)
    {
        const char *file = json_string_value(value);
        bool added;
        ASP_TRY(check_file_name(o, tensor, file));
        asp_map_add(&files, file, strlen(file), &added);
        if (added)
            ASP_TRY_NOTE(cx, open_one(s, asp_printf(s->arena, "%s/%s", o->path, file)),
                         "a shard of %s", o->index_path);
    }
    json_object_foreach(map, tensor, value)
        ASP_TRY(check_in_file(o, tensor, json_string_value(value)));
    return ASP_OK;
}

static asp_status open_folder(opening *o)
{
    asp_ctx *cx = o->arena->cx;
    const char *single = asp_printf(o->arena, "%s/model.safetensors", o->path);
    o->index_path = asp_printf(o->arena, "%s/model.safetensors.index.json", o->path);
    if (asp_path_exists(single)) return open_one(&o->s, single);
    if (!asp_path_exists(o->index_path))
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s holds neither model.safetensors nor model.safetensors.index.json",
                        o->path);
    ASP_TRY(asp_json_read(cx, o->index_path, MAX_INDEX_BYTES, &o->index));
    return open_shards(o);
}

static asp_status open_path(asp_ctx *cx, void *arg)
{
    opening *o = arg;
    (void)cx;
    asp_safetensors_init(&o->s, o->arena, asp_copy_str(o->arena, o->path));
    return asp_path_is_folder(o->path) ? open_folder(o) : open_one(&o->s, o->path);
}

asp_status asp_safetensors_open(asp_arena *a, const char *path, asp_safetensors *out_file)
{
    opening o = {.arena = a, .path = path};
    asp_status status = asp_guard(a->cx, open_path, &o);
    json_decref(o.index);
    if (status < 0)
        asp_safetensors_close(&o.s);
    else
        *out_file = o.s;
    return status;
}
