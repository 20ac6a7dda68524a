// autosp plan --device: lengths and times for machines one does not have.  Neighbours:
// cost/planner.h (the formulas), training.c (plans for this machine).
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "cli/cli.h"
#include "cost/planner.h"
#include "io/hfconfig.h"

#include <stdlib.h>

#define MOST_DEVICES 65536
#define MOST_FILE_BYTES (1 << 20)

// ---- what is asked -----------------------------------------------------------------------------

static asp_status read_positive(asp_ctx *cx, const char *file, const json_t *o, const char *key,
                                double unit, double *out)
{
    ASP_TRY(asp_json_f64(cx, file, o, key, NULL, out));
    if (!(*out > 0 && *out < 1e9))
        return asp_fail(cx, ASP_ERR_INPUT, "%s: \"%s\" must be above 0", file, key);
    *out *= unit;
    return ASP_OK;
}

static asp_status read_gpu_of(asp_ctx *cx, const char *file, const json_t *o, asp_gpu *out)
{
    asp_gpu g = {0};
    snprintf(g.name, sizeof g.name, "%s", file);
    ASP_TRY(read_positive(cx, file, o, "memory_gib", 1073741824.0, &g.memory_bytes));
    ASP_TRY(read_positive(cx, file, o, "tflops", 1e12, &g.flops));
    ASP_TRY(read_positive(cx, file, o, "link_gbs", 1e9, &g.link_bs));
    ASP_TRY(read_positive(cx, file, o, "net_gbs", 1e9, &g.net_bs));
    ASP_TRY(read_positive(cx, file, o, "host_gb", 1e9, &g.host_bytes));
    *out = g;
    return ASP_OK;
}

static asp_status read_gpu(asp_ctx *cx, const char *name, asp_gpu *out)
{
    json_t *o;
    asp_arena a;
    if (asp_gpu_preset(name, out)) return ASP_OK;
    if (strchr(name, '.')) {
        ASP_TRY(asp_json_read(cx, name, MOST_FILE_BYTES, &o));
        asp_status s = read_gpu_of(cx, name, o, out);
        json_decref(o);
        return s;
    }
    asp_text known;
    asp_arena_init(&a, cx);
    asp_text_init(&known, &a);
    asp_planner_presets(&known);
    asp_status s = asp_fail(cx, ASP_ERR_USAGE,
                            "--device '%s' is not known; a file *.json with memory_gib, tflops, "
                            "link_gbs, net_gbs and host_gb, or one of these is wanted: %s",
                            name, known.at);
    asp_arena_fini(&a);
    return s;
}

static asp_status read_shape(asp_ctx *cx, const char *model, asp_shape *out)
{
    if (!model) return asp_fail(cx, ASP_ERR_USAGE, "no model; give --model 8b, or a config.json");
    if (asp_shape_preset(model, out)) return ASP_OK;
    asp_hf_config c;
    ASP_TRY(asp_hf_config_read(cx, model, &c));
    asp_shape s = {.hidden = (double)c.hidden,
                   .ffn = (double)c.intermediate,
                   .layers = (double)c.layers,
                   .heads = (double)c.heads,
                   .kv_heads = (double)c.kv_heads,
                   .head_dim = (double)c.head_dim,
                   .vocab = (double)c.vocab};
    asp_hf_tensor t;
    for (int64_t i = 0; asp_hf_tensor_at(&c, i, &t); i++)
        s.params += (double)t.dim[0] * (t.rank > 1 ? (double)t.dim[1] : 1);
    snprintf(s.name, sizeof s.name, "%s", model);
    *out = s;
    return ASP_OK;
}

static asp_status read_zero(asp_ctx *cx, const asp_options *o, const asp_shape *m, asp_box *b)
{
    if (strcmp(o->zero, "auto") == 0) {
        asp_box_choose_zero(m, b);
        return ASP_OK;
    }
    if (strlen(o->zero) != 1 || *o->zero < '0' || *o->zero > '3')
        return asp_fail(cx, ASP_ERR_USAGE, "--zero '%s': auto, 0, 1, 2 or 3 is wanted", o->zero);
    b->zero = *o->zero - '0';
    return ASP_OK;
}

// The box as the options say it.
static asp_status read_box(asp_ctx *cx, const asp_options *o, const asp_shape *m, asp_box *out)
{
    const asp_train_options *t = &o->train;
    asp_box b = {.host_optimizer = o->optimizer_offload, .host_checkpoints = o->checkpoint_offload};
    ASP_TRY(read_gpu(cx, o->device, &b.gpu));
    if (o->nodes < 1 || o->gpus < 1 || o->nodes > MOST_DEVICES || o->gpus > MOST_DEVICES ||
        o->nodes * o->gpus > MOST_DEVICES)
        return asp_fail(cx, ASP_ERR_USAGE, "--nodes %lld --gpus %lld: 1 to %d devices are possible",
                        (long long)o->nodes, (long long)o->gpus, MOST_DEVICES);
    if (t->dp != 1)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--dp %lld with --device: the formulas give all devices to one sequence; "
                        "ask about the devices of one replica",
                        (long long)t->dp);
    b.per_node = (double)o->gpus;
    b.devices = b.ranks = (double)(o->nodes * o->gpus);
    const bool ring = strcmp(t->sp, "ring") == 0;
    b.method = b.ranks > 1 ? ring ? ASP_BOX_RING : ASP_BOX_ULYSSES : ASP_BOX_WHOLE;
    b.keep = strcmp(t->ac, "none") == 0  ? ASP_KEEP_ALL
             : strcmp(t->ac, "sac") == 0 ? ASP_KEEP_AUTOSP
                                         : ASP_KEEP_LAYERS;
    b.tile_loss = b.tile_mlp = strcmp(t->tile, "off") != 0;
    ASP_TRY(read_zero(cx, o, m, &b));
    *out = b;
    return ASP_OK;
}

// ---- the table ---------------------------------------------------------------------------------

typedef struct row {
    const char *name;
    bool zero3, host_checkpoints, tile_loss, tile_mlp;
    asp_box_method method;
    asp_box_keep keep;
} row;

static const row rows[] = {
    {"ZeRO-3 / FSDP", true, false, false, false, ASP_BOX_WHOLE, ASP_KEEP_ALL},
    {"RingAttention", false, false, false, false, ASP_BOX_RING, ASP_KEEP_ALL},
    {"DeepSpeed-Ulysses", false, false, false, false, ASP_BOX_ULYSSES, ASP_KEEP_ALL},
    {"AutoSP's rules", false, false, false, false, ASP_BOX_ULYSSES, ASP_KEEP_AUTOSP},
    {"ours: layers kept", false, false, false, false, ASP_BOX_ULYSSES, ASP_KEEP_LAYERS},
    {"  + loss tiled", false, false, true, false, ASP_BOX_ULYSSES, ASP_KEEP_LAYERS},
    {"  + MLP tiled", false, false, true, true, ASP_BOX_ULYSSES, ASP_KEEP_LAYERS},
    {"  + ZeRO-3", true, false, true, true, ASP_BOX_ULYSSES, ASP_KEEP_LAYERS},
    {"  + layers on the host", true, true, true, true, ASP_BOX_ULYSSES, ASP_KEEP_LAYERS},
};

static void say(const asp_report *r, const char *name, const asp_shape *m, const asp_box *b)
{
    const asp_box_plan p = asp_box_longest(m, b);
    char stage[16];
    snprintf(stage, sizeof stage, "%d%s", b->zero, b->bf16_grads ? " bf16" : "");
    if (r->text)
        asp_print(r->text, "%-22s %-7s %12.0f %10.1f %11.1f %9.0f %9.1f  %s\n", name, stage,
                  p.tokens, p.static_bytes / 1e9, p.token_bytes / 1e3, p.step_seconds,
                  p.exchange_seconds, p.binds);
    if (r->json)
        asp_print(r->json,
                  "{\"record\": \"planned\", \"row\": \"%s\", \"zero\": %d, \"bf16_grads\": %s, "
                  "\"max_seq\": %.0f, \"static_bytes\": %.0f, \"token_bytes\": %.0f, "
                  "\"step_seconds\": %.3f, \"exchange_seconds\": %.3f, \"binds\": \"%s\"}\n",
                  name + strspn(name, " +"), b->zero, b->bf16_grads ? "true" : "false", p.tokens,
                  p.static_bytes, p.token_bytes, p.step_seconds, p.exchange_seconds, p.binds);
}

static void say_all(const asp_report *r, const asp_shape *m, const asp_box *asked)
{
    if (r->text)
        asp_print(r->text,
                  "planned   %s, %.2f B parameters, bf16, on %.0f x %s; nothing was run\n"
                  "%-22s %-7s %12s %10s %11s %9s %9s  %s\n",
                  m->name, m->params / 1e9, asked->devices, asked->gpu.name, "", "ZeRO", "longest",
                  "states GB", "kB a token", "step s", "exch. s", "what binds");
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_box b = {.gpu = asked->gpu,
                     .devices = asked->devices,
                     .per_node = asked->per_node,
                     .ranks = rows[i].method == ASP_BOX_WHOLE ? 1 : asked->devices,
                     .host_checkpoints = rows[i].host_checkpoints,
                     .tile_loss = rows[i].tile_loss,
                     .tile_mlp = rows[i].tile_mlp,
                     .method = rows[i].method,
                     .keep = rows[i].keep};
        asp_box_choose_zero(m, &b);
        if (rows[i].zero3) b.zero = 3, b.bf16_grads = false;
        say(r, rows[i].name, m, &b);
    }
    say(r, "as asked", m, asked);
}

asp_status asp_command_box(asp_ctx *cx, const asp_options *o)
{
    asp_shape m;
    asp_box b;
    asp_report r;
    ASP_TRY(read_shape(cx, o->train.model, &m));
    ASP_TRY(read_box(cx, o, &m, &b));
    ASP_TRY(asp_report_open(cx, o, &r));
    say_all(&r, &m, &b);
    asp_report_end(&r, true);
    return asp_report_close(cx, &r);
}
