// Predicates on blocks of scores: which blocks are empty, which need no masks, and the sides of
// relations in the others.  Neighbours: attend.h (the call), op/mask.h (predicates), scores.h (who
// applies them to scores).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/attend.h"
#include "kern/sdpa_int.h"

typedef struct asp_mask_range {
    int64_t lo, hi;
} asp_mask_range;

typedef enum asp_mask_state { ASP_MASK_NEVER, ASP_MASK_ALWAYS, ASP_MASK_SOMETIMES } asp_mask_state;

// A block of queries against a block of keys, on one thread.
typedef struct asp_mask_tile {
    int64_t n_q;
    asp_mask_range q_range[ASP_MASK_MAX_ATOMS];
    asp_mask_state state[ASP_MASK_MAX_ATOMS]; // of the relations in the block
    // Sides of relations by row.  Where not `wide`, q_rel and k_rel compare as the sides do.
    int64_t q_side[ASP_MASK_MAX_ATOMS][ASP_SDPA_QUERIES];
    int64_t k_side[ASP_MASK_MAX_ATOMS][ASP_SDPA_KEYS];
    int32_t q_rel[ASP_MASK_MAX_ATOMS][ASP_SDPA_QUERIES];
    int32_t k_rel[ASP_MASK_MAX_ATOMS][ASP_SDPA_KEYS];
    bool wide[ASP_MASK_MAX_ATOMS];
} asp_mask_tile;

// The range of a side over places lo .. hi, look-ups within look[i].
asp_mask_range asp_mask_side_range(const asp_mask_side *s, int64_t lo, int64_t hi,
                                   const asp_mask_range *look);
// What a relation is for all pairs of the two ranges; what the whole predicate is then.
asp_mask_state asp_mask_relate(asp_mask_rel rel, asp_mask_range q, asp_mask_range k);
asp_mask_state asp_mask_whole(const asp_mask *m, const asp_mask_state *atom);
// Values of the look-ups `which` over places at .. at + n - 1.
void asp_mask_look_ranges(const asp_attend *a, uint32_t which, int64_t batch, int64_t at, int64_t n,
                          asp_mask_range *out);

// Ranges of the key look-ups over every block of `keys` keys of each segment, so that nobody needs
// to look at them again: [batch][block][look-up].  All threads call it; a barrier stands at its
// end.
int64_t asp_mask_n_bounds(const asp_sdpa_sizes *z, const asp_attend *a, int64_t keys);
void asp_mask_bounds(const asp_sdpa_sizes *z, const asp_attend *a, int64_t keys,
                     asp_mask_range *bounds, asp_worker *w);
// Those of the block whose first key is row `from` of k; NULL where the mask has no look-ups.
const asp_mask_range *asp_mask_bounds_at(const asp_sdpa_sizes *z, const asp_attend *a, int64_t keys,
                                         const asp_mask_range *bounds, int64_t batch, int64_t from);

// A block of n >= 1 queries at places from `at` on; then, against n keys: is any pair seen, is
// every one?
void asp_mask_queries(asp_mask_tile *t, const asp_attend *a, int64_t batch, int64_t at, int64_t n);
asp_mask_state asp_mask_keys(asp_mask_tile *t, const asp_attend *a, int64_t at, int64_t n,
                             const asp_mask_range *bounds);
// Sides by row of the relations that hold sometimes.
void asp_mask_rows(asp_mask_tile *t, const asp_attend *a, int64_t batch, int64_t at, int64_t n);
