// Between sdpa.c (scratch) and sdpa_isa.c (the kernels of a level).  SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "base/rows.h"
#include "kern/kern_int.h"

// q (B,N,Q,D)  k (B,K,S,D)  v (B,K,S,E)  out (B,N,Q,E)  lse (B,N,Q); query head h of N reads key
// head h / group.
typedef struct asp_sdpa_sizes {
    int64_t batch, heads, kv_heads, group, n_q, n_k, d, e;
    float scale;
    bool causal;
    bool plain;              // causal or not, nothing else
    bool hides;              // a mask or bias hides pairs beside the causal ones
    bool flat;               // a query that sees nothing may get some of the values all the same
    uint32_t first;          // operand behind q, k, v (, out, lse, dout)
    int64_t n_bounds;        // ranges of look-ups (mask_tile.h)
    asp_rows q_rows, k_rows; // where the rows of q and of k stand in the sequence
    bool all_meet;           // every query of q_rows sees a key
} asp_sdpa_sizes;

// The rows of a call: all of them in order, or those of two groups in a ring of them: the group of
// this rank and the one whose keys have come `step` groups far.  The tail is outside of them.
void asp_sdpa_rows(const asp_kcall *k, asp_rows *out_q, asp_rows *out_k);

// Keys of a segment that a causal query at place q_at, or one before it, may see: those before.
static inline int64_t asp_sdpa_seen(bool causal, asp_segment keys, int64_t q_at)
{
    return causal ? asp_max(asp_min(keys.n, q_at + 1 - keys.at), 0) : keys.n;
}

// No query sees a key: a block that the mask empties.
bool asp_sdpa_is_empty(const asp_sdpa_sizes *z);

// A block of at most `most` queries; i counts the blocks of a head.  At least one, maybe empty.
typedef struct asp_sdpa_block {
    int64_t q0, n, at; // first row of q, number, place of the first in the sequence
} asp_sdpa_block;
int64_t asp_sdpa_blocks(const asp_sdpa_sizes *z, int64_t most);
asp_sdpa_block asp_sdpa_block_of(const asp_sdpa_sizes *z, int64_t most, int64_t i);

// first: the operand behind q, k, v (sdpa: 3) or behind dout (its derivative: 6).
asp_sdpa_sizes asp_sdpa_sizes_of(const asp_kcall *k, uint32_t first);

// Queries and keys of a block: at most, over the levels; each level's sizes divide
// ASP_SDPA_KEY_CHUNK.
#define ASP_SDPA_QUERIES 96
#define ASP_SDPA_LEAST_QUERIES 32
#define ASP_SDPA_KEYS 128
#define ASP_SDPA_LEAST_KEYS 64
#define ASP_SDPA_KEY_CHUNK 384 // keys whose dk and dv one thread computes at a time

// Scratch of one thread, in floats, each part a multiple of 16: blocks of queries transposed, of
// scores, of results, and rows of numbers per query.
static inline int64_t asp_sdpa_thread_floats(const asp_sdpa_sizes *z)
{
    return ASP_SDPA_QUERIES * (2 * asp_max(z->d, z->e) + 2 * ASP_SDPA_KEYS + 2);
}

// What masks and the like take (scores.h): ranges of look-ups, then for each thread two blocks of
// scores and the sides of relations.
static inline int64_t asp_sdpa_bounds_floats(const asp_sdpa_sizes *z)
{
    return asp_round_up(z->n_bounds * 4, 16);
}
int64_t asp_sdpa_extra_floats(const asp_sdpa_sizes *z);

// Scratch of the derivative beside the threads': delta (and flat weights where pairs are hidden),
// then progress counters, one a block of queries.
static inline int64_t asp_sdpa_delta_floats(const asp_sdpa_sizes *z)
{
    return asp_round_up(z->batch * z->heads * z->n_q, 16) * (z->hides ? 2 : 1);
}
static inline int64_t asp_sdpa_counters(const asp_sdpa_sizes *z)
{
    int64_t blocks = asp_sdpa_blocks(z, ASP_SDPA_LEAST_QUERIES);
    return asp_round_up(z->batch * z->heads * blocks, 16);
}

// sdpa_bf16.c, where asp_isa_has_bf16: what it takes, its scratch bytes, the kernel.
bool asp_sdpa_bf16_takes(const asp_sdpa_sizes *z);
int64_t asp_sdpa_bf16_work(const asp_sdpa_sizes *z, int n_threads);
asp_kernel asp_sdpa_bf16;
