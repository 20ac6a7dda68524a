// Between the parts of placement: placement.c, chains.c, placement_auto.c. SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "pass/place.h"

// A size as a number; symbols without a value are priced as a long sequence.
int64_t asp_placement_size(const asp_placement *p, asp_size s);
// Of the whole value; at most 2^48.
int64_t asp_placement_bytes(const asp_placement *p, asp_val v);
// Would splitting this letter slice a parameter of a product (no accidental tensor parallelism)?
bool asp_slices_parameter(const asp_placement *p, asp_node n, uint8_t letter);
// An op that is illegal at "sequence", or gathers there.
bool asp_is_mixer(const asp_placement *p, asp_node n);
// Chains of the mixers, and every op's (chains.c).
void asp_find_chains(asp_placement *p);
// --sp auto: attention by the time it takes (placement_auto.c).
void asp_price_attention(asp_placement *p);
// Bytes of all ranks whose exchange takes so long.
int64_t asp_placement_as_bytes(const asp_placement *p, double seconds);
