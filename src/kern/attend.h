// One call of attention, its attributes and operands beside q, k and v made ready: which pairs are
// seen, what is added to scores, what is dropped.  Neighbours: op/attention.h (what they mean),
// ref/sdpa.c and sdpa_isa.c (who ask), mask.h (tiles).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/kern.h"
#include "op/attention.h"

typedef enum asp_attend_empty { ASP_ATTEND_ZERO, ASP_ATTEND_MEAN, ASP_ATTEND_NAN } asp_attend_empty;

typedef struct asp_attend {
    asp_mask mask;       // k <= q among its conditions when causal
    bool causal, masked; // k <= q is a condition; there are more than that
    bool distance;       // slopes: -|q - k| and not k - q
    asp_attend_empty empty;
    double softcap; // 0: none
    const asp_tensor *lookup[ASP_MASK_MAX_LOOKUPS];
    const asp_tensor *bias, *sinks, *slopes; // NULL: none
    int64_t bias_dim[4], bias_step[4]; // of batch, head, query, key; step 0 where it broadcasts
    int64_t n_keys;                    // all that there are, on a ring those of all ranks
    uint32_t key[2];                   // dropout: of the random numbers
    int64_t first_head;                // dropout: of this rank, among those of the whole program
    uint64_t drop_below;               // of 2^32; 0: none
    double keep;                       // what is not dropped is multiplied by this
} asp_attend;

// first: index of the first operand behind q, k, v (, out, lse, dout).
void asp_attend_of(const asp_kcall *k, uint32_t first, asp_attend *out);

// Values of the look-ups at a position, for asp_mask_allows; those that the side does not name are
// 0.
void asp_attend_lookups(const asp_attend *a, uint32_t which, int64_t batch, int64_t position,
                        int64_t *out_value);
bool asp_attend_sees(const asp_attend *a, int64_t batch, int64_t q, int64_t k);
// What is added to the score: bias and slope; -infinity where the bias hides the key.  Float biases
// below ASP_HIDDEN_BIAS are given as they are.
double asp_attend_bias(const asp_attend *a, int64_t batch, int64_t head, int64_t q, int64_t k);
// The factor of a probability after the softmax: 0 or keep.  Numbers are counted by batch, head, q
// and k of the whole program.
double asp_attend_keep(const asp_attend *a, int64_t batch, int64_t head, int64_t q, int64_t k);
// Of the four keys k & ~3 and on: 0 or 1.
void asp_attend_keep4(const asp_attend *a, int64_t batch, int64_t head, int64_t q, int64_t k,
                      float *out);
