// The decoder of the acceptance cases as graph text: pre-norm, SwiGLU, causal cross-entropy.
// Neighbours: cases.h (who runs it).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cases/support/cases.h"

// What holds the tokens of attention.
typedef enum decoder_layout {
    LAYOUT_BSNH,    // the usual: (B, S, N, H), then (B, N, S, H)
    LAYOUT_SBD,     // the stream is (S, B, D)
    LAYOUT_NO_HEAD, // one head as wide as the stream, never an axis of its own
    LAYOUT_3D,      // batch and heads in one: (B * N, S, H), softmax written out
    LAYOUT_STRIDED  // q, k and v are every third slice of one product
} decoder_layout;

typedef struct decoder {
    int layers, width, heads, kv_heads, head, ffn, vocab;
    decoder_layout layout;
    int manual;            // this layer (from 1) has its softmax written out; 0: none
    bool tied, flat;       // flat: the MLP sees (B * S, D)
    const char *positions; // "rope", "given", "given rows", "offset", "table", "none"
    double dropout;        // of attention and of residuals
    const char *loss;      // nodes from %x (logits), %y to %loss; NULL: of the next token
    const char *head_body; // nodes from %hidden and %head to %loss in place of logits
} decoder;

decoder decoder_default(void);
char *decoder_text(const decoder *d); // malloc
// One program of this text, 16 labels of which 5 are ignored where it is B = 2 and S = 8.
sp_case decoder_case(const char *text);
// Builds, checks on all ranks, frees.
void decoder_check(const decoder *d, const char *ac);
