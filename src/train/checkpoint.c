// Writing checkpoints: folder/step-000040/{config.json or model.ir, model.safetensors,
// optimizer.safetensors, state.json}.
//
// Everything is written into step-000040.tmp, synced, and renamed: a name holds a whole checkpoint
// or nothing.  state.json carries a hash of each tensor file, so that damage afterwards is noticed,
// and what the run is made of (settings.def).  The three newest are kept.  Neighbours: train.h
// (contract), resume.c (reads), io/safetensors.h, io/hfconfig.h.  SPDX-License-Identifier:
// Apache-2.0
#include "base/json.h"
#include "train/train_int.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define KEEP 3

const char *const asp_checkpoint_files[ASP_CHECKPOINT_FILES] = {"model.safetensors",
                                                                "optimizer.safetensors"};

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
    const asp_dtype dtype = asp_plan_slab_dtype(p, slab);
    const int64_t size = asp_dtypes[dtype].bytes;
    for (int i = 0; i < asp_plan_n_params(p); i++) {
        const asp_plan_param *x = asp_plan_get_param(p, i);
        out[i] = (asp_st_tensor){.name = asp_printf(a, "%s%s", prefix, x->name),
                                 .dtype = dtype,
                                 .rank = x->rank,
                                 .data = (const unsigned char *)asp_rank_slab(r, slab) +
                                         x->offset * size,
                                 .count = x->count,
                                 .bytes = x->count * size};
        memcpy(out[i].dim, x->dim, sizeof x->dim);
    }
}

// Of the program's own values beside its parameters; returns how many.
static int list_buffers(asp_rank *r, const asp_plan *p, asp_st_tensor *out)
{
    int n = 0;
    for (int k = 0; k < asp_plan_n_inputs(p); k++) {
        const asp_plan_input *in = asp_plan_get_input(p, k);
        if (strcmp(in->role, "buffer") != 0) continue;
        out[n] = (asp_st_tensor){.name = in->name,
                                 .dtype = in->dtype,
                                 .rank = in->rank,
                                 .data = asp_rank_input(r, k),
                                 .count = in->bytes / asp_dtypes[in->dtype].bytes,
                                 .bytes = in->bytes};
        memcpy(out[n++].dim, in->dim, sizeof in->dim);
    }
    return n;
}

asp_status asp_checkpoint_hash_file(asp_ctx *cx, const char *path, uint64_t *out_hash)
{
    asp_file_map m;
    ASP_TRY(asp_file_map_open(cx, path, &m));
    *out_hash = asp_hash(m.data, m.bytes, m.bytes);
    asp_file_map_close(&m);
    return ASP_OK;
}

// The model as text: config.json where it came from one, graph text otherwise.
static const char *put_model(asp_arena *a, const asp_program *m, asp_text *t)
{
    asp_text_init(t, a);
    if (m->has_config)
        asp_hf_config_write(t, &m->config);
    else
        asp_graph_print(m->graph, t);
    return m->has_config ? "config.json" : "model.ir";
}

// What the model is, beside the names and shapes that its tensors have: also what leaves no trace
// in them, as the rotary base or how heads divide a projection.
uint64_t asp_checkpoint_hash_model(asp_arena *a, const asp_program *m)
{
    asp_text t;
    put_model(a, m, &t);
    return asp_hash(t.at, t.n, 0);
}

// The data files as they are found from anywhere.
static void put_data(asp_text *t, const asp_train_options *o)
{
    asp_put(t, ",\n  \"data-files\": [");
    for (int i = 0; i < o->n_data; i++) {
        char *whole = realpath(o->data[i], NULL);
        asp_put(t, "%s", i ? ", " : "");
        asp_put_quoted(t, whole ? whole : o->data[i]);
        free(whole);
    }
    asp_put(t, "]");
}

static asp_status write_state(asp_arena *a, const char *folder, const asp_plan *p,
                              const asp_program *m, const asp_train_options *o, int64_t step,
                              uint64_t data_hash)
{
    const asp_choice *choice = asp_plan_get_choice(p);
    asp_text t;
    asp_text_init(&t, a);
    asp_put(&t, "{\n  \"step\": %lld,\n  \"data\": \"%016llx\",\n  \"model\": \"%016llx\"",
            (long long)step, (unsigned long long)data_hash,
            (unsigned long long)asp_checkpoint_hash_model(a, m));
    asp_settings_put(&t, o, choice->n ? choice->at[choice->chosen].sp : o->strategy);
    put_data(&t, o);
    for (size_t i = 0; i < ASP_CHECKPOINT_FILES; i++) {
        uint64_t hash;
        ASP_TRY(asp_checkpoint_hash_file(
            a->cx, asp_printf(a, "%s/%s", folder, asp_checkpoint_files[i]), &hash));
        asp_put(&t, ",\n  \"%s\": \"%016llx\"", asp_checkpoint_files[i], (unsigned long long)hash);
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
    asp_st_tensor *tensors = ASP_NEW_ARRAY(a, asp_st_tensor, 2 * n + asp_plan_n_inputs(p));
    asp_text t;
    const char *name = put_model(a, m, &t);
    ASP_TRY(asp_file_write_whole(cx, asp_printf(a, "%s/%s", folder, name), t.at, t.n));
    list_tensors(a, r, p, ASP_SLAB_PARAM, "", tensors);
    ASP_TRY(asp_safetensors_write(cx, asp_printf(a, "%s/model.safetensors", folder), tensors,
                                  n + list_buffers(r, p, tensors + n)));
    list_tensors(a, r, p, ASP_SLAB_M, "m.", tensors);
    list_tensors(a, r, p, ASP_SLAB_V, "v.", tensors + n);
    ASP_TRY(asp_safetensors_write(cx, asp_printf(a, "%s/optimizer.safetensors", folder), tensors,
                                  2 * n));
    return write_state(a, folder, p, m, o, step, data_hash);
}

// The steps of the checkpoints in a folder, newest first.
asp_status asp_checkpoint_steps(asp_arena *a, const char *folder, int64_t **out_steps, int *out_n)
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

const char *asp_checkpoint_step_folder(asp_arena *a, const char *folder, int64_t step)
{
    return asp_printf(a, "%s/step-%06lld", folder, (long long)step);
}

static asp_status write_checkpoint(asp_arena *a, asp_rank *r, const asp_plan *p,
                                   const asp_program *m, const asp_train_options *o, int64_t step,
                                   uint64_t data_hash)
{
    asp_ctx *cx = a->cx;
    const char *final = asp_checkpoint_step_folder(a, o->out, step),
               *beside = asp_printf(a, "%s.tmp", final);
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
    ASP_TRY(asp_checkpoint_steps(a, o->out, &steps, &n));
    for (int i = KEEP; i < n; i++)
        ASP_TRY(asp_folder_remove(cx, asp_checkpoint_step_folder(a, o->out, steps[i])));
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
