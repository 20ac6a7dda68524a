// The formulas.  Neighbours: planner.h (contract), planner.def (presets), tests/unit/cost
// (published lengths they are held against).  SPDX-License-Identifier: Apache-2.0
//
// Bytes of a device:
//   static    weights 2 N and gradients 4 N (2 N in bf16) and 12 N of f32 weights and moments,
//             shared by ZeRO; runtime; under ZeRO-3 two gathered layers, the embedding and the head
//   a token   no checkpoints: layers x what the backward reads, and the logits
//             else: what is kept of each layer, and the largest of what one part holds at a time:
//             logits 14 V, MLP 15 f, attention 34 q; a tiled part holds none
//   in host memory: two checkpoints stay on the device, one on its way
// Letters as in docs/memory.md: h hidden, f ffn, L layers, a heads, k KV heads, d head size, V, N.
#include "cost/planner.h"

#include <math.h>

#define GB 1e9
#define GIB 1073741824.0
#define RUNTIME (3.5 * GB)    // context, communicator, the bucket of one reduction in bf16
#define F32_BUCKET (4.0 * GB) // the bucket in f32: 5e8 elements, twice
#define FLOPS_REACHED 0.5     // of the data sheet's rate
#define LINK_REACHED 0.7

static const struct {
    const char *name;
    double gib, tflops, link_gbs, net_gbs, host_gb;
} devices[] = {
#define DEVICE(...) {__VA_ARGS__},
#include "cost/planner.def"
};

static const struct {
    const char *name, *what;
    double hidden, ffn, layers, heads, kv_heads, head_dim, vocab, params;
} presets[] = {
#define PRESET(...) {__VA_ARGS__},
#include "cost/planner.def"
};

bool asp_gpu_preset(const char *name, asp_gpu *out_gpu)
{
    for (size_t i = 0; i < ASP_COUNT_OF(devices); i++) {
        if (strcmp(devices[i].name, name) != 0) continue;
        asp_gpu g = {.memory_bytes = devices[i].gib * GIB,
                     .flops = devices[i].tflops * 1e12,
                     .link_bs = devices[i].link_gbs * GB,
                     .net_bs = devices[i].net_gbs * GB,
                     .host_bytes = devices[i].host_gb * GB};
        snprintf(g.name, sizeof g.name, "%s", name);
        *out_gpu = g;
        return true;
    }
    return false;
}

bool asp_shape_preset(const char *name, asp_shape *out_shape)
{
    for (size_t i = 0; i < ASP_COUNT_OF(presets); i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        asp_shape s = {.hidden = presets[i].hidden,
                       .ffn = presets[i].ffn,
                       .layers = presets[i].layers,
                       .heads = presets[i].heads,
                       .kv_heads = presets[i].kv_heads,
                       .head_dim = presets[i].head_dim,
                       .vocab = presets[i].vocab,
                       .params = presets[i].params};
        snprintf(s.name, sizeof s.name, "%s", presets[i].what);
        *out_shape = s;
        return true;
    }
    return false;
}

void asp_planner_presets(asp_text *t)
{
    asp_put(t, "devices ");
    for (size_t i = 0; i < ASP_COUNT_OF(devices); i++)
        asp_put(t, "%s%s", i ? ", " : "", devices[i].name);
    asp_put(t, "; models ");
    for (size_t i = 0; i < ASP_COUNT_OF(presets); i++)
        asp_put(t, "%s%s", i ? ", " : "", presets[i].name);
}

// ---- memory ------------------------------------------------------------------------------------

static double states(const asp_shape *m, const asp_box *b)
{
    const double W = b->devices, N = m->params,
                 gathered = 4 * N / m->layers + 4 * m->vocab * m->hidden;
    const double weights = 2 * N, grads = (b->bf16_grads ? 2 : 4) * N;
    const double optimizer = b->host_optimizer || b->host_all ? 0 : 12 * N;
    const double bucket = b->zero > 0 && b->zero < 3 && !b->bf16_grads ? F32_BUCKET : 0;
    if (b->host_all) return 6 * N / m->layers + 4 * m->vocab * m->hidden;
    return weights / (b->zero == 3 ? W : 1) + grads / (b->zero >= 2 ? W : 1) +
           optimizer / (b->zero >= 1 ? W : 1) + bucket + (b->zero == 3 ? gathered : 0);
}

static double q_width(const asp_shape *m) { return fmax(m->hidden, m->heads * m->head_dim); }

// What the backward reads of one layer and token, attention's probabilities not among it.
static double all_of_layer(const asp_shape *m)
{
    const double ad = m->heads * m->head_dim, kd = m->kv_heads * m->head_dim;
    return 2 * (4 * m->hidden + 2 * ad) + 4 * kd + 8 * m->ffn + 4 * m->heads;
}

// AutoSP drops its bans on products, and on what the backward would have to write where a rank has
// this many tokens.  Kept always: both residuals, attention's output and log-sum-exp, two norms'
// numbers.  Below the wall also the norms' outputs, q, k, v and the operand of the MLP's last
// product.
#define AUTOSP_WALL 4096.0
#define AUTOSP_STEP 15000.0 // its published lengths are multiples of this
#define AUTOSP_CLOSE 1.05   // a try that the formula puts this near is taken to fit

static double autosp_of_layer(const asp_shape *m, bool below_wall)
{
    const double ad = m->heads * m->head_dim, kd = m->kv_heads * m->head_dim;
    const double kept = 4 * m->hidden + 2 * ad + 4 * m->heads + 8;
    return kept + (below_wall ? 4 * m->hidden + 2 * ad + 4 * kd + 2 * m->ffn : 0);
}

static double logits(const asp_shape *m) { return 14 * m->vocab; }

// A search that goes up in steps ends at the first that fails: it passes the wall only where the
// steps below it fit.
static double autosp_token(const asp_shape *m, const asp_box *b, double room)
{
    const double below = m->layers * autosp_of_layer(m, true) + logits(m);
    for (double s = AUTOSP_STEP / b->ranks; s < AUTOSP_WALL; s += AUTOSP_STEP / b->ranks)
        if (s * below > AUTOSP_CLOSE * room) return below;
    return m->layers * autosp_of_layer(m, false) + logits(m);
}

// The largest part that is there at a time.
static double widest(const asp_shape *m, const asp_box *b, const char **out_what)
{
    double most = 34 * q_width(m);
    *out_what = "attention of one layer";
    if (!b->tile_mlp && 15 * m->ffn > most) most = 15 * m->ffn, *out_what = "MLP of one layer";
    if (!b->tile_loss && logits(m) > most) most = logits(m), *out_what = "logits";
    return most;
}

static double token(const asp_shape *m, const asp_box *b, double room, const char **out_binds)
{
    double part, kept;
    if (b->keep == ASP_KEEP_LAYERS) {
        part = widest(m, b, out_binds);
        kept = b->host_checkpoints ? 4 * m->hidden : 2 * m->hidden * m->layers;
        if (kept > part) *out_binds = "inputs of the layers";
        return part + kept;
    }
    kept = b->keep == ASP_KEEP_ALL ? m->layers * all_of_layer(m)
                                   : autosp_token(m, b, room) - logits(m);
    part = b->tile_loss ? 0 : logits(m);
    *out_binds = kept > part ? "activations of the layers" : "logits";
    if (b->method == ASP_BOX_RING) { // two buffers of k and v, the output and dk, dv in f32
        const double ad = m->heads * m->head_dim, kd = m->kv_heads * m->head_dim;
        part += 8 * kd + 4 * ad + 16 * kd;
    }
    return kept + part;
}

// Tokens of a device whose checkpoints, beside the optimizer, fill the host's memory.
static double host_tokens(const asp_shape *m, const asp_box *b)
{
    const bool optimizer = b->host_optimizer || b->host_all;
    double room = b->gpu.host_bytes - (optimizer ? 12 * m->params / b->devices : 0);
    if (b->host_all) room -= 6 * m->params / b->devices;
    return b->host_checkpoints ? fmax(room, 0) / (2 * m->hidden * m->layers) : (double)INFINITY;
}

// ---- time --------------------------------------------------------------------------------------

static void times(const asp_shape *m, const asp_box *b, asp_box_plan *p)
{
    const double S = p->tokens, s = S / b->ranks, L = m->layers, ad = m->heads * m->head_dim;
    const double kd = m->kv_heads * m->head_dim, P = b->ranks;
    const double linear = 6 * (m->params - m->vocab * m->hidden) * S, pairs = 2 * S * S * ad * L;
    const bool again = b->keep == ASP_KEEP_LAYERS, some = b->keep == ASP_KEEP_AUTOSP;
    const double flops = linear * (again || some ? 4.0 / 3 : 1) + pairs * (again ? 4.5 : 3.5);
    const bool crosses = P > b->per_node;
    const double link = LINK_REACHED * (crosses ? b->gpu.net_bs : b->gpu.link_bs);
    double bytes = 0;
    if (b->method == ASP_BOX_ULYSSES)
        bytes = (2 + again) * (P - 1) / P * s * (2 * ad + 2 * kd) * 2 * L;
    if (b->method == ASP_BOX_RING) bytes = (4 + again) * (P - 1) * s * 2 * kd * 2 * L;
    const double net = LINK_REACHED * (b->devices > b->per_node ? b->gpu.net_bs : b->gpu.link_bs);
    double shared = b->zero == 3 ? 6 * m->params : b->devices > 1 ? 4 * m->params : 0;
    p->step_seconds = flops / (FLOPS_REACHED * b->gpu.flops * P);
    p->exchange_seconds = bytes / link + shared / net;
}

asp_box_plan asp_box_longest(const asp_shape *m, const asp_box *b)
{
    asp_box_plan p = {.static_bytes = states(m, b) + RUNTIME, .binds = "weights and states"};
    const double room = b->gpu.memory_bytes - p.static_bytes;
    if (room <= 0) return p;
    p.token_bytes = token(m, b, room, &p.binds);
    double tokens = room / p.token_bytes;
    if (host_tokens(m, b) < tokens) {
        tokens = host_tokens(m, b);
        p.binds = "host memory";
    }
    p.tokens = floor(tokens * b->ranks);
    times(m, b, &p);
    return p;
}

void asp_box_choose_zero(const asp_shape *m, asp_box *b)
{
    static const struct {
        int zero;
        bool bf16_grads;
    } stages[] = {{0, false}, {1, false}, {1, true}, {3, false}};
    for (size_t i = 0; i < ASP_COUNT_OF(stages); i++) {
        b->zero = stages[i].zero;
        b->bf16_grads = stages[i].bf16_grads;
        if (states(m, b) + 2 * RUNTIME < b->gpu.memory_bytes) return;
    }
}
