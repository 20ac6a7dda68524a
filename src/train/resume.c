// Reading checkpoints: the newest whole one of a folder is used, damaged ones are named and passed
// over.  What the run is made of comes first, since the model is planned with it; parameters and
// optimizer states are loaded by each rank later.  Neighbours: train.h (contract), checkpoint.c
// (writes), settings.c (what may differ from the first run).  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "train/train_int.h"

#include <stdlib.h>

#define MAX_STATE_BYTES ((size_t)16 << 20)

static asp_status check_hash(asp_arena *a, const char *folder, const char *state_path,
                             const json_t *state, const char *file)
{
    const char *written, *path = asp_printf(a, "%s/%s", folder, file);
    uint64_t hash;
    ASP_TRY(asp_json_str(a->cx, state_path, state, file, NULL, &written));
    ASP_TRY(asp_checkpoint_hash_file(a->cx, path, &hash));
    if (strcmp(written, asp_printf(a, "%016llx", (unsigned long long)hash)) != 0)
        return asp_fail(a->cx, ASP_ERR_INPUT, "%s is truncated or damaged", path);
    return ASP_OK;
}

// Is this checkpoint whole?  Leaves its state object to the caller.
static asp_status open_whole(asp_arena *a, const char *folder, json_t **out_state)
{
    const char *path = asp_printf(a, "%s/state.json", folder);
    json_t *state;
    ASP_TRY(asp_json_read(a->cx, path, MAX_STATE_BYTES, &state));
    for (size_t i = 0; i < ASP_CHECKPOINT_FILES; i++) {
        asp_status s = check_hash(a, folder, path, state, asp_checkpoint_files[i]);
        if (s < 0) {
            json_decref(state);
            return s;
        }
    }
    *out_state = state;
    return ASP_OK;
}

static asp_status read_hash(asp_arena *a, const char *path, const json_t *state, const char *key,
                            const char **out)
{
    const char *s;
    ASP_TRY(asp_json_str(a->cx, path, state, key, NULL, &s));
    *out = asp_copy_str(a, s);
    return ASP_OK;
}

static asp_status read_data(asp_arena *a, const char *path, const json_t *state, asp_checkpoint *c)
{
    const json_t *list = json_object_get(state, "data-files");
    size_t n = json_array_size(list);
    const char **files = ASP_NEW_ARRAY(a, const char *, n);
    for (size_t i = 0; i < n; i++) {
        const char *file = json_string_value(json_array_get(list, i));
        if (!file)
            return asp_fail(a->cx, ASP_ERR_INPUT, "%s: \"data-files\" must be names of files",
                            path);
        files[i] = asp_copy_str(a, file);
    }
    c->data = files;
    c->n_data = (int)n;
    return ASP_OK;
}

static asp_status read_state(asp_arena *a, const json_t *state, asp_train_options *o,
                             asp_checkpoint *c)
{
    const char *path = asp_printf(a, "%s/state.json", c->folder);
    const char *const models[] = {"config.json", "model.ir"};
    ASP_TRY(read_hash(a, path, state, "data", &c->data_hash));
    ASP_TRY(read_hash(a, path, state, "model", &c->model_hash));
    ASP_TRY(read_data(a, path, state, c));
    for (size_t i = 0; !c->model && i < ASP_COUNT_OF(models); i++) {
        const char *model = asp_printf(a, "%s/%s", c->folder, models[i]);
        if (asp_path_exists(model)) c->model = model;
    }
    if (!o->model && !c->model)
        return asp_fail(a->cx, ASP_ERR_INPUT,
                        "%s holds no config.json any more; give the model with --model", c->folder);
    ASP_TRY(asp_settings_resume(a, c->folder, state, o, &c->changes));
    if (!o->model) o->model = c->model;
    if (o->n_data == 0) {
        o->data = c->data;
        o->n_data = c->n_data;
    }
    char *text = json_dumps(state, JSON_SORT_KEYS);
    if (!text) return asp_fail(a->cx, ASP_ERR_NOMEM, "no memory for what %s holds", path);
    c->identity = asp_hash(text, strlen(text), (uint64_t)c->step);
    free(text);
    return ASP_OK;
}

asp_status asp_checkpoint_find(asp_arena *a, asp_train_options *o, asp_checkpoint *out_checkpoint)
{
    asp_ctx *cx = a->cx;
    asp_text damaged;
    int64_t *steps;
    int n;
    asp_text_init(&damaged, a);
    asp_put(&damaged, "%s", "");
    if (!asp_path_is_folder(o->resume))
        return asp_fail(cx, ASP_ERR_INPUT, "--resume %s is not a folder", o->resume);
    ASP_TRY(asp_checkpoint_steps(a, o->resume, &steps, &n));
    for (int i = 0; i < n; i++) {
        json_t *state;
        asp_checkpoint c = {.folder = asp_checkpoint_step_folder(a, o->resume, steps[i]),
                            .step = steps[i]};
        asp_status s = open_whole(a, c.folder, &state);
        if (s == ASP_ERR_NOMEM) return s;
        if (s < 0) {
            asp_put(&damaged, "autosp: %s; looking at the one before\n", cx->message);
            continue;
        }
        s = read_state(a, state, o, &c);
        json_decref(state);
        ASP_TRY(s);
        c.damaged = damaged.at;
        *out_checkpoint = c;
        return ASP_OK;
    }
    asp_status s =
        asp_fail(cx, ASP_ERR_INPUT, "%s holds no whole checkpoint (step-*/state.json)", o->resume);
    return damaged.n ? asp_note(cx, s, "%.*s", (int)damaged.n - 1, damaged.at + 8) : s;
}

static bool same_hash(const char *then, uint64_t now)
{
    char text[32];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)now);
    return strcmp(then, text) == 0;
}

asp_status asp_checkpoint_match(asp_arena *a, const asp_checkpoint *c, const asp_train_options *o,
                                const asp_program *m, uint64_t data_hash)
{
    asp_ctx *cx = a->cx;
    if (!same_hash(c->model_hash, asp_checkpoint_hash_model(a, m)))
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s is of another model than --model %s; leave --model out: the model "
                        "lies there",
                        c->folder, o->model);
    if (same_hash(c->data_hash, data_hash)) return ASP_OK;
    if (o->data == c->data)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s was trained on %s%s, which changed since; give the old content with "
                        "--data, or start anew with --model %s",
                        c->folder, c->data[0], c->n_data > 1 ? " and others" : "", c->folder);
    return asp_fail(cx, ASP_ERR_INPUT,
                    "%s was trained on other data (%s%s); give the same, leave --data out, or "
                    "start anew with --model %s",
                    c->folder, c->n_data ? c->data[0] : "", c->n_data > 1 ? ", ..." : "",
                    c->folder);
}

static asp_status load(asp_arena *a, const asp_checkpoint *c, asp_rank *r, const asp_plan *p)
{
    asp_safetensors s;
    const char *model = asp_printf(a, "%s/model.safetensors", c->folder);
    ASP_TRY(asp_train_load_weights(a->cx, r, p, model));
    ASP_TRY(asp_safetensors_open(a, asp_printf(a, "%s/optimizer.safetensors", c->folder), &s));
    asp_status status = asp_train_load_slab(a, r, p, ASP_SLAB_M, "m.", &s);
    if (status == ASP_OK) status = asp_train_load_slab(a, r, p, ASP_SLAB_V, "v.", &s);
    asp_safetensors_close(&s);
    return status;
}

asp_status asp_checkpoint_load(asp_ctx *cx, const asp_checkpoint *c, asp_rank *r, const asp_plan *p)
{
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_status s = load(&a, c, r, p);
    asp_arena_fini(&a);
    return s;
}
