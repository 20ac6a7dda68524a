// Random numbers by counter (Philox4x32-10, Salmon et al. 2011): number i of a stream is a function
// of (seed, stream, i) alone, so any rank or thread can make any of them in any order.  Neighbours:
// train/ (initial weights, data order).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

// The bare generator: four words from a counter and a key.
void asp_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out_words[4]);

// What the functions below draw from.  The seed is the key; the stream is the upper half of the
// counter, so 2^64 streams of 2^64 blocks never overlap.
typedef struct asp_philox {
    uint64_t seed, stream;
} asp_philox;

// The four words of block i, from which the functions below draw.
void asp_philox_block(asp_philox p, uint64_t i, uint32_t out_words[4]);

// All are pure.  Every i has a block of its own, so use only one of them per stream and i.
uint64_t asp_philox_u64(asp_philox p, uint64_t i);
double asp_philox_uniform(asp_philox p, uint64_t i); // [0, 1), 53 bits
// 0 .. n - 1 for n >= 1, uneven by less than n / 2^64.
uint64_t asp_philox_below(asp_philox p, uint64_t i, uint64_t n);
// Mean 0, variance 1, |x| < 8.6.  Box-Muller in double on basic arithmetic only: the bits are the
// same with every C library and compiler.
double asp_philox_normal(asp_philox p, uint64_t i);
