// Plans for machines one does not have: closed formulas of what a device holds when a transformer
// of given sizes is trained in bf16 with AdamW.  They say how long a sequence a box trains and what
// binds; nothing runs, and the figures are planned ones.  Plans for this machine are exact and made
// of the program itself (run/run.h).  Neighbours: planner.def (presets), docs/memory.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

typedef struct asp_gpu {
    char name[64];
    double memory_bytes;    // that a program may fill
    double flops;           // a second, of the data sheet
    double link_bs, net_bs; // bytes a second to peers within a node, to other nodes
    double host_bytes;      // of the node, a device
} asp_gpu;

typedef struct asp_shape {
    char name[64];
    double hidden, ffn, layers, heads, kv_heads, head_dim, vocab, params;
} asp_shape;

typedef enum asp_box_method {
    ASP_BOX_WHOLE,   // every device has a sequence of its own
    ASP_BOX_ULYSSES, // heads against tokens by all-to-all
    ASP_BOX_RING
} asp_box_method;

typedef enum asp_box_keep {
    ASP_KEEP_ALL,    // every activation the backward reads
    ASP_KEEP_AUTOSP, // AutoSP's selective rule, as it ships
    ASP_KEEP_LAYERS  // the input of each layer
} asp_box_keep;

typedef struct asp_box {
    asp_gpu gpu;
    double devices; // that share the states (W)
    double ranks;   // that share a sequence (P); divides devices
    double per_node;
    int zero;              // stage 0 to 3
    bool bf16_grads;       // gradients are kept in bf16, not f32
    bool host_optimizer;   // states of the optimizer in host memory
    bool host_all;         // weights and gradients too, one layer at a time on the device
    bool host_checkpoints; // what is kept of each layer in host memory
    bool tile_loss, tile_mlp;
    asp_box_method method;
    asp_box_keep keep;
} asp_box;

typedef struct asp_box_plan {
    double tokens;       // the longest sequence; 0: the states alone do not fit
    double static_bytes; // of a device: weights, gradients, states, runtime
    double token_bytes;  // of a device for each of its tokens
    const char *binds;   // static text: the largest of what grows with the sequence, or the host
    double step_seconds, exchange_seconds; // of one step; exchanges as if nothing hid them
} asp_box_plan;

// False where there is no preset of that name.
bool asp_gpu_preset(const char *name, asp_gpu *out_gpu);
bool asp_shape_preset(const char *name, asp_shape *out_shape);
void asp_planner_presets(asp_text *t); // the names, for messages and docs

asp_box_plan asp_box_longest(const asp_shape *m, const asp_box *b);
// The least ZeRO stage whose states leave room: 0, 1, 1 with bf16 gradients, else 3.
void asp_box_choose_zero(const asp_shape *m, asp_box *b);
