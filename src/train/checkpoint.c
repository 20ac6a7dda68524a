// Checkpoints: folder/step-000040/{config.json, model.safetensors, optimizer.safetensors,
// state.json}.
//
// Everything is written into step-000040.tmp, synced, and renamed: a name holds a whole checkpoint
// or nothing.  state.json carries a hash of each tensor file, so that damage afterwards is noticed;
// the newest whole one is used and damaged ones are named.  The three newest are kept.  Neighbours:
// train.h (contract), io/safetensors.h, io/hfconfig.h.  SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "train/train_int.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_STATE_BYTES ((size_t)1 << 20)
#define KEEP 3

static const char *const tensor_files[] = {"model.safetensors", "optimizer.safetensors"};

asp_status asp_checkpoint_folder(asp_ctx *cx, const char *folder)
{
    ASP_TRY_NOTE(cx, asp_folder_make(cx, folder), "choose another --out than %s", folder);
    if (access(folder, W_OK) != 0)
        return asp_fail(cx, ASP_ERR_IO, "cannot write into %s: %s; give another --out", folder,
                        strerror(errno));
    return ASP_OK;
}

// Names of the slab's tensors behind a prefix ("", "m.", "v.").
static void list_tensors(asp_arena *a, asp_rank *r, const asp_plan *p, asp_slab slab,
                         const char *prefix, asp_st_tensor *out)
{
    int64_t size = asp_dtypes[asp_plan_dtype(p)].bytes;
    for (int i = 0; i < asp_plan_n_params(p); i++) {
        const asp_plan_param *x = asp_plan_get_param(p, i);
        out[i] = (asp_st_tensor){.name = asp_printf(a, "%s%s", prefix, x->name),
                                 .dtype = asp_plan_dtype(p),
                                 .rank = x->rank,
                                 .data = (const unsigned char *)asp_rank_slab(r, slab) +
                                         x->offset * size,
                                 .count = x->count,
                                 .bytes = x->count * size};
        memcpy(out[i].dim, x->dim, sizeof x->dim);
    }
}

static asp_status hash_file(asp_ctx *cx, const char *path, uint64_t *out_hash)
{
    asp_file_map m;
    ASP_TRY(asp_file_map_open(cx, path, &m));
    *out_hash = asp_hash(m.data, m.bytes, m.bytes);
    asp_file_map_close(&m);
    return ASP_OK;
}

// What the model is, beside the names and shapes that its tensors have: also what leaves no trace
// in them, as the rotary base or how heads divide a projection.
static uint64_t hash_model(asp_arena *a, const asp_program *m)
{
    asp_text t;
    asp_text_init(&t, a);
    if (m->has_config)
        asp_hf_config_write(&t, &m->config);
    else
        asp_graph_print(m->graph, &t);
    return asp_hash(t.at, t.n, 0);
}

// What must be the same for a resumed run to continue the first one bit for bit, beside model, data
// and the plan's dtype.
typedef struct setting {
    const char *option;
    double value;
} setting;
#define N_SETTINGS 8

static void list_settings(const asp_train_options *o, const asp_plan *p, setting out[N_SETTINGS])
{
    const asp_plan_input *in = asp_plan_get_input(p, 0);
    const setting all[N_SETTINGS] = {{"steps", (double)o->steps},
                                     {"seed", (double)o->seed},
                                     {"seq", (double)in->dim[in->rank - 1]},
                                     {"batch", (double)o->batch},
                                     {"lr", o->lr},
                                     {"warmup", (double)o->warmup},
                                     {"clip", o->clip},
                                     {"weight-decay", o->weight_decay}};
    memcpy(out, all, sizeof all);
}

static asp_status write_state(asp_arena *a, const char *folder, const asp_plan *p,
                              const asp_program *m, const asp_train_options *o, int64_t step,
                              uint64_t data_hash)
{
    asp_text t;
    asp_text_init(&t, a);
    setting settings[N_SETTINGS];
    list_settings(o, p, settings);
    asp_put(&t,
            "{\n  \"step\": %lld,\n  \"data\": \"%016llx\",\n  \"model\": \"%016llx\",\n  "
            "\"dtype\": \"%s\"",
            (long long)step, (unsigned long long)data_hash, (unsigned long long)hash_model(a, m),
            asp_dtypes[asp_plan_dtype(p)].name);
    for (int i = 0; i < N_SETTINGS; i++)
        asp_put(&t, ",\n  \"%s\": %.17g", settings[i].option, settings[i].value);
    for (size_t i = 0; i < ASP_COUNT_OF(tensor_files); i++) {
        uint64_t hash;
        ASP_TRY(hash_file(a->cx, asp_printf(a, "%s/%s", folder, tensor_files[i]), &hash));
        asp_put(&t, ",\n  \"%s\": \"%016llx\"", tensor_files[i], (unsigned long long)hash);
    }
    asp_put(&t, "\n}\n");
    return asp_file_write_whole(a->cx, asp_printf(a, "%s/state.json", folder), t.at, t.n);
}

static asp_status write_files(asp_arena *a, const char *folder, asp_rank *r, const asp_plan *p,
                              const asp_program *m, const asp_train_options *o, int64_t step,
                              uint64_t data_hash)
{
    asp_ctx *cx = a->cx;
    int n = asp_plan_n_params(p);
    asp_st_tensor *tensors = ASP_NEW_ARRAY(a, asp_st_tensor, 2 * n);
    asp_text t;
    asp_text_init(&t, a);
    if (m->has_config) {
        asp_hf_config_write(&t, &m->config);
        ASP_TRY(asp_file_write_whole(cx, asp_printf(a, "%s/config.json", folder), t.at, t.n));
    }
    list_tensors(a, r, p, ASP_SLAB_PARAM, "", tensors);
    ASP_TRY(asp_safetensors_write(cx, asp_printf(a, "%s/model.safetensors", folder), tensors, n));
    list_tensors(a, r, p, ASP_SLAB_M, "m.", tensors);
    list_tensors(a, r, p, ASP_SLAB_V, "v.", tensors + n);
    ASP_TRY(asp_safetensors_write(cx, asp_printf(a, "%s/optimizer.safetensors", folder), tensors,
                                  2 * n));
    return write_state(a, folder, p, m, o, step, data_hash);
}

// The steps of the checkpoints in a folder, newest first.
static asp_status list_steps(asp_arena *a, const char *folder, int64_t **out_steps, int *out_n)
{
    ASP_VEC(int64_t) steps = {0};
    DIR *d = opendir(folder);
    if (!d)
        return asp_fail(a->cx, ASP_ERR_IO, "cannot open the folder %s: %s", folder,
                        strerror(errno));
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char *end;
        if (strncmp(e->d_name, "step-", 5) != 0) continue;
        long long step = strtoll(e->d_name + 5, &end, 10);
        if (*end || end == e->d_name + 5) continue;
        ASP_PUSH(a, &steps, step);
        for (uint32_t i = steps.n - 1; i > 0 && steps.at[i - 1] < steps.at[i]; i--) {
            int64_t swapped = steps.at[i];
            steps.at[i] = steps.at[i - 1];
            steps.at[i - 1] = swapped;
        }
    }
    closedir(d);
    *out_steps = steps.at;
    *out_n = (int)steps.n;
    return ASP_OK;
}

static const char *step_folder(asp_arena *a, const char *folder, int64_t step)
{
    return asp_printf(a, "%s/step-%06lld", folder, (long long)step);
}

static asp_status write_checkpoint(asp_arena *a, asp_rank *r, const asp_plan *p,
                                   const asp_program *m, const asp_train_options *o, int64_t step,
                                   uint64_t data_hash)
{
    asp_ctx *cx = a->cx;
    const char *final = step_folder(a, o->out, step), *beside = asp_printf(a, "%s.tmp", final);
    int64_t *steps;
    int n;
    ASP_TRY(asp_folder_remove(cx, beside));
    ASP_TRY(asp_folder_make(cx, beside));
    ASP_TRY(write_files(a, beside, r, p, m, o, step, data_hash));
    ASP_TRY(asp_folder_sync(cx, beside));
    ASP_TRY(asp_folder_remove(cx, final)); // written again after resuming from an older one
    if (rename(beside, final) != 0)
        return asp_fail(cx, ASP_ERR_IO, "cannot rename %s: %s", beside, strerror(errno));
    ASP_TRY(asp_folder_sync(cx, o->out));
    ASP_TRY(list_steps(a, o->out, &steps, &n));
    for (int i = KEEP; i < n; i++) ASP_TRY(asp_folder_remove(cx, step_folder(a, o->out, steps[i])));
    return ASP_OK;
}

asp_status asp_checkpoint_write(asp_ctx *cx, asp_rank *r, const asp_plan *p, const asp_program *m,
                                const asp_train_options *o, int64_t step, uint64_t data_hash)
{
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_status s = write_checkpoint(&a, r, p, m, o, step, data_hash);
    asp_arena_fini(&a);
    return s;
}

// ---- reading
// -------------------------------------------------------------------------------------

static asp_status check_hash(asp_arena *a, const char *folder, const char *state_path,
                             const json_t *state, const char *file)
{
    const char *written, *path = asp_printf(a, "%s/%s", folder, file);
    uint64_t hash;
    ASP_TRY(asp_json_str(a->cx, state_path, state, file, NULL, &written));
    ASP_TRY(hash_file(a->cx, path, &hash));
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
    for (size_t i = 0; i < ASP_COUNT_OF(tensor_files); i++) {
        asp_status s = check_hash(a, folder, path, state, tensor_files[i]);
        if (s < 0) {
            json_decref(state);
            return s;
        }
    }
    *out_state = state;
    return ASP_OK;
}

static asp_status same_hash(asp_ctx *cx, const char *folder, const json_t *state, const char *key,
                            uint64_t hash, bool *out_same)
{
    const char *then;
    char now[32];
    ASP_TRY(asp_json_str(cx, folder, state, key, NULL, &then));
    snprintf(now, sizeof now, "%016llx", (unsigned long long)hash);
    *out_same = strcmp(then, now) == 0;
    return ASP_OK;
}

static asp_status check_settings(asp_ctx *cx, const char *folder, const json_t *state,
                                 const asp_train_options *o, const asp_plan *p)
{
    setting settings[N_SETTINGS];
    const char *dtype;
    list_settings(o, p, settings);
    ASP_TRY(asp_json_str(cx, folder, state, "dtype", NULL, &dtype));
    if (strcmp(dtype, asp_dtypes[asp_plan_dtype(p)].name) != 0)
        return asp_fail(
            cx, ASP_ERR_INPUT,
            "%s was made with --dtype %s; resuming continues that run, so give the same", folder,
            dtype);
    for (int i = 0; i < N_SETTINGS; i++) {
        double was;
        ASP_TRY(asp_json_f64(cx, folder, state, settings[i].option, NULL, &was));
        if (was != settings[i].value)
            return asp_fail(cx, ASP_ERR_INPUT,
                            "%s was made with --%s %.12g, not %.12g; resuming continues that run, "
                            "so give the same",
                            folder, settings[i].option, was, settings[i].value);
    }
    return ASP_OK;
}

static asp_status check_same_run(asp_arena *a, const char *folder, const json_t *state,
                                 const asp_plan *p, const asp_program *m,
                                 const asp_train_options *o, uint64_t data_hash)
{
    asp_ctx *cx = a->cx;
    bool model, data;
    ASP_TRY(same_hash(cx, folder, state, "model", hash_model(a, m), &model));
    ASP_TRY(same_hash(cx, folder, state, "data", data_hash, &data));
    if (!model)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s is of another model than --model %s; give the model it was made with%s",
                        folder, o->model, m->has_config ? ": config.json lies there" : "");
    if (!data)
        return asp_fail(cx, ASP_ERR_INPUT, "%s was trained on other data; give the same --data",
                        folder);
    return check_settings(cx, folder, state, o, p);
}

static asp_status load_files(asp_arena *a, const char *folder, asp_rank *r, const asp_plan *p)
{
    asp_safetensors s;
    const char *path = asp_printf(a, "%s/optimizer.safetensors", folder);
    ASP_TRY_NOTE(a->cx,
                 asp_train_load_weights(a->cx, r, p, asp_printf(a, "%s/model.safetensors", folder)),
                 "resuming with another model");
    ASP_TRY(asp_safetensors_open(a, path, &s));
    asp_status status = asp_train_load_slab(a, asp_rank_slab(r, ASP_SLAB_M), p, "m.", &s);
    if (status == ASP_OK)
        status = asp_train_load_slab(a, asp_rank_slab(r, ASP_SLAB_V), p, "v.", &s);
    asp_safetensors_close(&s);
    return status;
}

static asp_status read_checkpoint(asp_arena *a, asp_rank *r, const asp_plan *p,
                                  const asp_program *m, const asp_train_options *o,
                                  uint64_t data_hash, FILE *warn, int64_t *out_step)
{
    int64_t *steps;
    int n;
    ASP_TRY(list_steps(a, o->resume, &steps, &n));
    for (int i = 0; i < n; i++) {
        const char *folder = step_folder(a, o->resume, steps[i]);
        json_t *state;
        if (open_whole(a, folder, &state) < 0) {
            if (warn) fprintf(warn, "autosp: %s; looking at the one before\n", a->cx->message);
            continue;
        }
        asp_status s = check_same_run(a, folder, state, p, m, o, data_hash);
        json_decref(state);
        ASP_TRY(s);
        *out_step = steps[i];
        return load_files(a, folder, r, p);
    }
    return asp_fail(a->cx, ASP_ERR_INPUT, "%s holds no whole checkpoint (step-*/state.json)",
                    o->resume);
}

asp_status asp_checkpoint_read(asp_ctx *cx, asp_rank *r, const asp_plan *p, const asp_program *m,
                               const asp_train_options *o, uint64_t data_hash, FILE *warn,
                               int64_t *out_step)
{
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_status s = read_checkpoint(&a, r, p, m, o, data_hash, warn, out_step);
    asp_arena_fini(&a);
    return s;
}
