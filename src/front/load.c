// A model from a path: config.json, a folder, graph text, an exported PyTorch graph.  Neighbours:
// front.h (contract), hfmodel.c, aten.c, io/.  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "front/front.h"

#define MAX_GRAPH_BYTES ((size_t)256 << 20)

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

asp_status asp_front_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                           asp_program *out_program)
{
    asp_program p = {0};
    ASP_TRY(asp_graph_parse(cx, file, text, bytes, &p.graph));
    asp_status s = asp_graph_typecheck(p.graph);
    if (s == ASP_OK) s = asp_front_check(cx, p.graph);
    if (s < 0) {
        asp_graph_destroy(p.graph);
        return asp_note(cx, s, "%s", file);
    }
    p.vocab = asp_front_vocab(p.graph);
    *out_program = p;
    return ASP_OK;
}

static asp_status load_graph(asp_ctx *cx, const char *path, asp_program *out_program)
{
    asp_arena a;
    char *text = NULL;
    size_t n = 0;
    asp_arena_init(&a, cx);
    asp_status s = asp_file_read(&a, path, MAX_GRAPH_BYTES, &text, &n);
    if (s == ASP_OK) s = asp_front_parse(cx, path, text, n, out_program);
    asp_arena_fini(&a);
    return s;
}

static asp_status load_config(asp_ctx *cx, const char *path, asp_dtype dtype, asp_program *p)
{
    ASP_TRY(asp_hf_config_read(cx, path, &p->config));
    ASP_TRY_NOTE(cx, asp_front_hf(cx, &p->config, dtype, &p->graph), "%s", path);
    p->has_config = true;
    p->vocab = p->config.vocab;
    return ASP_OK;
}

// An exported graph's parameters and buffers stand in the same folder.
static void find_weights_beside(const char *path, asp_program *p)
{
    char weights[4096];
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) : 1;
    const char *folder = slash ? path : ".";
    snprintf(weights, sizeof weights, "%.*s/model.safetensors", n, folder);
    if (asp_path_exists(weights)) p->weights = asp_copy_str(&p->graph->arena, weights);
}

// *.json holds an exported graph or a config.json: the former has nodes.
static asp_status load_json(asp_ctx *cx, const char *path, asp_dtype dtype, asp_program *p)
{
    json_t *json;
    ASP_TRY(asp_json_read(cx, path, MAX_GRAPH_BYTES, &json));
    if (!asp_front_is_aten(json)) {
        json_decref(json);
        return load_config(cx, path, dtype, p);
    }
    asp_status s = asp_front_aten(cx, path, json, dtype, &p->graph);
    json_decref(json);
    ASP_TRY(s);
    p->vocab = asp_front_vocab(p->graph);
    find_weights_beside(path, p);
    return ASP_OK;
}

static asp_status load_folder(asp_ctx *cx, const char *folder, asp_dtype dtype, asp_program *p)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", folder);
    ASP_TRY(load_config(cx, path, dtype, p));
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < ASP_COUNT_OF(weights); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, weights[i]);
        if (asp_path_exists(path)) p->weights = asp_copy_str(&p->graph->arena, folder);
    }
    return ASP_OK;
}

asp_status asp_front_load(asp_ctx *cx, const char *path, asp_dtype dtype, asp_program *out_program)
{
    if (dtype == ASP_BF16) dtype = ASP_F32; // pass cast does the rest
    asp_program p = {0};
    if (asp_path_is_folder(path))
        ASP_TRY(load_folder(cx, path, dtype, &p));
    else if (ends_with(path, ".ir"))
        ASP_TRY(load_graph(cx, path, &p));
    else if (ends_with(path, ".json"))
        ASP_TRY(load_json(cx, path, dtype, &p));
    else
        return asp_fail(cx, asp_path_exists(path) ? ASP_ERR_USAGE : ASP_ERR_IO,
                        "%s: a model is a config.json, a folder that holds one, an exported graph "
                        "named *.json, or graph text named *.ir%s",
                        path, asp_path_exists(path) ? "" : "; there is no such file");
    *out_program = p;
    return ASP_OK;
}

void asp_program_fini(asp_program *p)
{
    asp_graph_destroy(p->graph);
    *p = (asp_program){0};
}

asp_program asp_program_clone(const asp_program *p)
{
    asp_program c = *p;
    c.graph = asp_graph_clone(p->graph);
    if (p->weights) c.weights = asp_copy_str(&c.graph->arena, p->weights);
    return c;
}
