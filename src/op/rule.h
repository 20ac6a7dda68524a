// Sharding rules: what an op does to each dimension of its operands, as letters.  A dimension is a
// list of letters, outer to inner; equal letters are the same axis.  Neighbours: ir/op.def (rule
// strings), the family files (rules that depend on attributes), pass/axes.c, place.c, shard.c and
// check.c (who read them).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/op.h"

#define ASP_MAX_LETTERS 24
#define ASP_MAX_DIM_LETTERS 12

typedef enum asp_letter_kind {
    ASP_LETTER_SPLIT, // may be split over ranks: every rank computes its part alone
    ASP_LETTER_WHOLE, // every rank needs all of it
    ASP_LETTER_SUM    // may be split; results without the letter are then partial sums
} asp_letter_kind;

typedef struct asp_letter {
    asp_size size;
    char name; // as in the rule's string, or 0
    uint8_t kind;
} asp_letter;

// n = 0: the dimension is a 1 that broadcasts, or a 1 that a view makes or drops.
typedef struct asp_rule_dim {
    uint32_t n;
    uint8_t at[ASP_MAX_DIM_LETTERS]; // indices of letters, outer to inner
} asp_rule_dim;

typedef struct asp_rule {
    uint32_t n_letters;
    asp_letter letter[ASP_MAX_LETTERS];
    asp_rule_dim *in[ASP_MAX_OPERANDS]; // one entry a dimension
    asp_rule_dim *out[ASP_MAX_OPERANDS];
} asp_rule;

// The rule of node n for the types it has now, on a.  False: the op has none, it cannot be split.
bool asp_rule_of(asp_arena *a, asp_graph *g, asp_node n, asp_rule *out_rule);

// ---- for the functions that give a rule --------------------------------------------------------

typedef struct asp_rule_builder {
    asp_arena *arena;
    asp_graph *g;
    const asp_node_info *info;
    asp_rule *rule;
    bool fits; // false: no rule after all
} asp_rule_builder;

// asp_<op>_rule of every row that says FN; called through the table.
typedef void asp_rule_fn(asp_rule_builder *b);
extern asp_rule_fn *const asp_rule_table[]; // ASP_OP_COUNT rows; NULL: a string or none

// The rule written as in op.def.
void asp_rule_text(asp_rule_builder *b, const char *text);
uint8_t asp_rule_letter(asp_rule_builder *b, asp_letter_kind kind, asp_size size);
void asp_rule_put(asp_rule_builder *b, asp_rule_dim *dim, uint8_t letter); // as the innermost
static inline const asp_type *asp_rule_type(const asp_rule_builder *b, uint32_t operand)
{
    return asp_val_type(b->g, b->info->in[operand]);
}
static inline const asp_type *asp_rule_result(const asp_rule_builder *b, uint32_t result)
{
    return asp_val_type(b->g, (asp_val){b->info->first.i + result});
}
