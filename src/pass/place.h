// Placement: where each op runs, at "sequence" (its tokens split over the ranks) or at "other" (all
// tokens, split along a chain of other atoms: heads).  Neighbours: axes.h (what dimensions are),
// flow/maxflow.h (the solver); placement.c (what is legal and what it costs), network.c (the cut),
// place.c (the pass).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/part.h"
#include "flow/maxflow.h"
#include "pass/axes.h"
#include "pass/pass.h"

#define ASP_NO_CHAIN UINT32_MAX

// --sp: how attention meets the whole sequence.
typedef enum asp_sp_kind {
    ASP_SP_AUTO,    // whatever is cheapest, op by op
    ASP_SP_ULYSSES, // heads split, by exchanges
    ASP_SP_RING,    // keys and values go round
    ASP_SP_HYBRID   // heads over groups of ranks, rings across the groups
} asp_sp_kind;

typedef struct asp_strategy {
    asp_sp_kind kind;
    int64_t heads, rings; // of hybrid:UxR, their product is the ranks; else all ranks and 1
    bool plain;           // what is added to scores does not go round a ring
} asp_strategy;

// NULL: auto.
asp_status asp_strategy_parse(asp_ctx *cx, const char *sp, int64_t ranks, asp_strategy *out_sp);

// Atoms split together, outer to inner; P is spread over them: all but the last are split
// completely and the last divides, so that each rank's part is one contiguous block of one size.
// Where that is not possible the first atom alone is split, in parts of different sizes (ragged).
typedef struct asp_chain {
    asp_atoms atoms;
    int64_t parts[ASP_MAX_DIM_LETTERS]; // by atom; their product is P
} asp_chain;

// What a node is at either label.
typedef struct asp_op_place {
    int64_t sequence_price; // bytes of all ranks; ASP_FLOW_INF: illegal at "sequence"
    int64_t other_price;    // beside exchanges, where it is legal
    uint32_t chain;         // its chain at "other"; ASP_NO_CHAIN: illegal at "other"
    bool other;             // the cut's answer
} asp_op_place;

typedef struct asp_placement {
    asp_ctx *cx;
    asp_arena *arena;
    asp_graph *g;
    asp_axes axes;
    int64_t ranks;
    asp_strategy sp;
    asp_env env;       // for prices
    int64_t *nominal;  // by size: its value with these; 0: not asked yet
    asp_device device; // for those of --sp auto
    int64_t latency;   // of an exchange, in bytes of all ranks; 1: only that fewer are better
    ASP_VEC(asp_chain) chains;
    asp_op_place *op;  // by node; meaningful where axes.node is set
    uint32_t vertices; // of the network
    int64_t cost; // of the cut: bytes moved by all ranks, forward and backward, + 1 an exchange
} asp_placement;

// Bytes of an exchange of v between "sequence" and the chain, forward and backward, plus 1;
// ASP_FLOW_INF when v cannot be exchanged.
int64_t asp_exchange_price(const asp_placement *p, asp_val v, uint32_t chain);
// How often v is repeated before the exchange: the parts of the chain's atoms that v lacks;
// P when it has none of them, and every rank gets all of it.
int64_t asp_exchange_copies(const asp_placement *p, asp_val v, uint32_t chain);
// The dim of operand i of node n that stands outside of the chain's atoms which the operand lacks:
// of k in sdpa "b(gr)QD,bgKD", g's.  -1: none, so the operand cannot be repeated.
int asp_repeat_dim(const asp_placement *p, asp_node n, uint32_t i, const asp_chain *chain);
// How this list of atoms is split over P ranks.  False: there is none, or its size is a symbol.
bool asp_chain_spread(const asp_graph *g, const asp_axes *x, asp_atoms atoms, int64_t ranks,
                      asp_chain *out_chain);

bool asp_chain_is_ragged(const asp_graph *g, const asp_axes *x, const asp_chain *c);
// What a rank has room for of the chain's atom i.
int64_t asp_chain_room(const asp_graph *g, const asp_axes *x, const asp_chain *c, uint32_t i);

// For --sp hybrid: attention whose heads stand behind the batch gets them as a dim (unfold.c).
asp_status asp_unfold_heads(asp_pass *px, asp_graph *g);
// Legality, prices and chains of every op (placement.c, chains.c).
asp_status asp_placement_prepare(asp_pass *px, asp_graph *g, asp_placement *out_placement);
// Builds the network and sets `other` of every op (network.c).  Ties: as few exchanges as possible,
// then as many ops as possible at "sequence".
asp_status asp_placement_cut(asp_placement *p);
// Attention that a ring can compute: op n, of these operands.  NULL, or why not (static text).
const char *asp_ring_obstacle(const asp_axes *x, asp_node n);
// At "sequence" op n goes round a ring.
bool asp_takes_ring(const asp_strategy *sp, const asp_axes *x, asp_node n);
// Does a letter of the rule of n stand in operand i?
bool asp_operand_has(const asp_placement *p, asp_node n, uint32_t i, uint8_t letter);
// Why op n cannot be split at all; returns the failure (refuse.c).
asp_status asp_placement_refuse(asp_placement *p, asp_node n);
// "dimension 1 (S) of operand 0 f32[B, S, 32]": where the tokens stand that op n reads.
const char *asp_placement_tokens(asp_placement *p, asp_node n);
