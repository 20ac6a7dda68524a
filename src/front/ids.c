// Which numbers an input of integers may hold, so that whoever fills it can say which element is
// wrong.  What a program computes of them (a sum, a quotient) has no range here: kernels check each
// row that they look up, and the step fails.  Neighbours: front.h (contract), train/inputs.c and
// train/trainer.c (who check).  SPDX-License-Identifier: Apache-2.0
#include "front/front.h"

// Ops that select by an operand: which one, from which, along which dimension (from the end where
// negative).
#define BY_ATTRIBUTE INT32_MAX // attribute dim
static const struct {
    asp_op op;
    uint32_t ids, table;
    int dim;
    bool ignores; // one value selects nothing: attribute ignore
} selectors[] = {{ASP_OP_embedding, 0, 1, 0, false},
                 {ASP_OP_gather, 1, 0, BY_ATTRIBUTE, false},
                 {ASP_OP_scatter, 1, 0, BY_ATTRIBUTE, false},
                 {ASP_OP_index_select, 1, 0, BY_ATTRIBUTE, false},
                 {ASP_OP_cross_entropy, 1, 0, -1, true},
                 {ASP_OP_nll_loss, 1, 0, -1, true},
                 {ASP_OP_nll, 1, 0, -1, true},
                 {ASP_OP_pick, 1, 0, -1, true},
                 {ASP_OP_label_weights, 0, 1, 0, true}};

// The operand that only says which elements are taken, and is in the result nowhere; -1: none.
static int ids_operand(const asp_node_info *info)
{
    for (size_t i = 0; i < ASP_COUNT_OF(selectors); i++)
        if (selectors[i].op == info->op) return (int)selectors[i].ids;
    return -1;
}

// Ops whose results are numbers of their operands, elsewhere.
static bool moves_numbers(asp_op op)
{
    static const asp_op ops[] = {
        ASP_OP_view,  ASP_OP_permute,     ASP_OP_expand,  ASP_OP_repeat,      ASP_OP_slice,
        ASP_OP_shift, ASP_OP_select,      ASP_OP_cat,     ASP_OP_stack,       ASP_OP_split,
        ASP_OP_pad,   ASP_OP_split_sizes, ASP_OP_unbind,  ASP_OP_flip,        ASP_OP_roll,
        ASP_OP_sort,  ASP_OP_gather,      ASP_OP_scatter, ASP_OP_index_select};
    for (size_t i = 0; i < ASP_COUNT_OF(ops); i++)
        if (ops[i] == op) return true;
    return false;
}

static int64_t ignored_of(const asp_node_info *info)
{
    for (const asp_field *f = asp_ops[info->op].fields(); f->name; f++)
        if (strcmp(f->name, "ignore") == 0)
            return *(const int64_t *)(const void *)((const char *)info->attr + f->offset);
    return 0;
}

static void narrow(const asp_graph *g, const asp_env *env, const asp_node_info *info,
                   const bool *reached, asp_id_range *r, int *n_selectors)
{
    for (size_t i = 0; i < ASP_COUNT_OF(selectors); i++) {
        if (selectors[i].op != info->op || !reached[info->in[selectors[i].ids].i]) continue;
        const asp_type *t = asp_val_type(g, info->in[selectors[i].table]);
        int dim = selectors[i].dim < 0 ? (int)t->rank + selectors[i].dim : selectors[i].dim;
        if (dim == BY_ATTRIBUTE) dim = (int)((const asp_dim_attr *)info->attr)->dim;
        int64_t rows;
        if (dim < 0 || dim >= (int)t->rank) continue;
        if (asp_size_eval(g, t->dim[dim], env, &rows) == ASP_OK) r->below = asp_min(r->below, rows);
        bool first = (*n_selectors)++ == 0;
        int64_t ignored = selectors[i].ignores ? ignored_of(info) : 0;
        r->has_ignored =
            selectors[i].ignores && (first || (r->has_ignored && ignored == r->ignored));
        r->ignored = ignored;
    }
}

asp_id_range asp_front_id_range(const asp_graph *g, const asp_env *env, asp_val v,
                                asp_arena *scratch)
{
    asp_id_range r = {.below = INT64_MAX};
    int n_selectors = 0;
    bool *reached = ASP_NEW_ARRAY(scratch, bool, g->vals.n);
    reached[v.i] = true;
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        bool read = false, from = false;
        for (uint32_t i = 0; i < info->n_in; i++) {
            read |= reached[info->in[i].i];
            from |= reached[info->in[i].i] && (int)i != ids_operand(info);
        }
        if (!read) continue;
        narrow(g, env, info, reached, &r, &n_selectors);
        from = from && moves_numbers(info->op);
        for (uint32_t i = 0; from && i < info->n_out; i++) {
            asp_val out = asp_node_result(g, n, i);
            asp_dtype dtype = asp_val_type(g, out)->dtype;
            reached[out.i] |= !asp_dtypes[dtype].is_float && dtype != ASP_BOOL;
        }
    }
    return r;
}

// ---- positions ---------------------------------------------------------------------------------

// One more than the largest position that v's node makes; 0: it makes none.
static int64_t positions_of(const asp_graph *g, const asp_env *env, const asp_node_info *info)
{
    const asp_type *t = asp_val_type(g, info->first);
    int64_t n;
    bool iota = info->op == ASP_OP_iota;
    if (!iota && (info->op != ASP_OP_input ||
                  strcmp(((const asp_input_attr *)info->attr)->role, "positions") != 0))
        return 0;
    if (t->rank == 0 || asp_size_eval(g, t->dim[t->rank - 1], env, &n) != ASP_OK) return 0;
    return n + (iota ? ((const asp_iota_attr *)info->attr)->start : 0);
}

asp_status asp_front_check_positions(asp_ctx *cx, const asp_graph *g, const asp_env *env)
{
    asp_arena scratch;
    asp_status s = ASP_OK;
    asp_arena_init(&scratch, cx);
    int64_t *end = ASP_NEW_ARRAY(&scratch, int64_t, g->vals.n); // by value, as positions_of
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        if (info->n_out) end[info->first.i] = positions_of(g, env, info);
        if (info->op == ASP_OP_view || info->op == ASP_OP_expand || info->op == ASP_OP_permute)
            end[info->first.i] = end[info->in[0].i];
        if (s < 0 || info->op != ASP_OP_embedding) continue;
        const asp_type *table = asp_val_type(g, info->in[1]);
        int64_t rows, wanted = end[info->in[0].i];
        if (asp_size_eval(g, table->dim[0], env, &rows) != ASP_OK) continue;
        if (wanted <= rows) continue;
        s = asp_fail(
            cx, ASP_ERR_LIMIT,
            "embedding (%s) looks up %lld positions, but its table has %lld rows; use --seq %lld "
            "or less",
            info->loc ? info->loc : "", (long long)wanted, (long long)rows, (long long)rows);
    }
    asp_arena_fini(&scratch);
    return s;
}

int64_t asp_front_vocab(const asp_graph *g)
{
    asp_arena scratch;
    int64_t below = INT64_MAX;
    asp_arena_init(&scratch, g->cx);
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        if (info->op != ASP_OP_input) continue;
        const char *role = ((const asp_input_attr *)info->attr)->role;
        if (strcmp(role, "tokens") != 0 && strcmp(role, "labels") != 0) continue;
        asp_id_range r = asp_front_id_range(g, &(asp_env){.n = 0}, info->first, &scratch);
        below = asp_min(below, r.below);
    }
    asp_arena_fini(&scratch);
    return below == INT64_MAX ? 0 : below;
}

// The name an input or a parameter goes by, or NULL.
static const char *outside_name(const asp_node_info *info)
{
    if (info->op == ASP_OP_input) return ((const asp_input_attr *)info->attr)->name;
    if (info->op == ASP_OP_param) return ((const asp_param_attr *)info->attr)->name;
    return NULL;
}

asp_status asp_front_check(asp_ctx *cx, const asp_graph *g)
{
    asp_arena scratch;
    asp_map names;
    asp_status s = ASP_OK;
    asp_arena_init(&scratch, cx);
    asp_map_init(&names, &scratch);
    ASP_FOR_NODES (g, n) {
        const char *name = outside_name(asp_node_at(g, n));
        bool added = true;
        if (name) asp_map_add(&names, name, strlen(name), &added);
        if (added) continue;
        s = asp_fail(cx, ASP_ERR_INPUT,
                     "graph %s has two inputs or parameters named \"%s\"; give each a name of its "
                     "own, or use one value twice",
                     g->name, name);
        break;
    }
    asp_arena_fini(&scratch);
    return s;
}
