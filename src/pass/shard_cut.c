// Cutting values for pass/shard.c: what a rank has of a value, slices of replicable values, tails
// in no sum, values gathered whole.
//
//   %x : f32[B, S, 8]          %1 = view %x ..; %2 = shard_slice %1 {dim = 1, ranks = 2}
//
// Parts are those of base/part.h.  Neighbours: shard_int.h (contract), shard.c (the walk).
// SPDX-License-Identifier: Apache-2.0
#include "pass/shard_int.h"

const asp_chain asp_state_whole = {{0}, {0}};

int64_t asp_parts_of(const asp_sharder *s, const asp_chain *state, uint32_t atom)
{
    if (!state) return s->x.atoms.at[atom].token ? s->ranks : 1;
    for (uint32_t i = 0; i < state->atoms.n; i++)
        if (state->atoms.at[i] == atom) return state->parts[i];
    // Between exchanges within groups the sequence is still split over the groups.
    if (s->sp.kind == ASP_SP_HYBRID && state != &asp_state_whole && s->x.atoms.at[atom].token)
        return s->rings;
    return 1;
}

int64_t asp_parts_of_list(const asp_sharder *s, const asp_chain *state, asp_atoms list)
{
    int64_t parts = 1;
    for (uint32_t i = 0; i < list.n; i++) parts *= asp_parts_of(s, state, list.at[i]);
    return parts;
}

// What a rank has room for of an atom.
static asp_size local_atom(const asp_sharder *s, const asp_chain *state, uint32_t atom)
{
    int64_t parts = asp_parts_of(s, state, atom);
    asp_size size = parts == 1 ? s->x.atoms.at[atom].size : asp_axes_base_size(&s->x, atom);
    if (parts > 1 && parts < s->ranks && s->x.atoms.at[atom].token) // of a group
        return asp_size_mul(s->g, asp_size_num(s->g, s->ranks / parts),
                            asp_size_ceil_div(s->g, size, asp_size_num(s->g, s->ranks)));
    return parts == 1 ? size : asp_size_ceil_div(s->g, size, asp_size_num(s->g, parts));
}

asp_size asp_whole_size(const asp_sharder *s, asp_atoms list)
{
    asp_size size = asp_size_num(s->g, 1);
    for (uint32_t i = 0; i < list.n; i++)
        size = asp_size_mul(s->g, size, s->x.atoms.at[list.at[i]].size);
    return size;
}

static asp_size local_size(const asp_sharder *s, const asp_chain *state, asp_atoms list)
{
    asp_size size = asp_size_num(s->g, 1);
    for (uint32_t i = 0; i < list.n; i++)
        size = asp_size_mul(s->g, size, local_atom(s, state, list.at[i]));
    return size;
}

asp_type asp_local_type(const asp_sharder *s, asp_val v, const asp_chain *state)
{
    asp_type t = *asp_val_type(s->g, v);
    for (uint32_t d = 0; d < t.rank; d++)
        if (asp_parts_of_list(s, state, s->x.dims[v.i][d]) > 1)
            t.dim[d] = local_size(s, state, s->x.dims[v.i][d]);
    return t;
}

// Adds a list of atoms, with their sizes whole, behind what p has.
static void extend(const asp_sharder *s, asp_cut *p, asp_atoms list, const asp_chain *state)
{
    for (uint32_t j = 0; j < list.n; j++) {
        int64_t parts = asp_parts_of(s, state, list.at[j]);
        asp_size size = s->x.atoms.at[list.at[j]].size;
        asp_size *to = parts > 1 ? &p->split : p->atom ? &p->inner : &p->outer;
        if (parts > 1 && !p->atom) {
            p->atom = list.at[j];
            p->ranks = s->x.atoms.at[p->atom].token ? s->ranks : s->sp.heads;
        }
        *to = asp_size_mul(s->g, *to, size);
        p->parts *= parts;
    }
    p->of = p->atom && s->x.atoms.at[p->atom].token ? asp_axes_base_size(&s->x, p->atom) : p->split;
}

static asp_cut no_cut(const asp_sharder *s, uint32_t dim)
{
    asp_size one = asp_size_num(s->g, 1);
    return (asp_cut){.dim = dim,
                     .outer = one,
                     .split = one,
                     .inner = one,
                     .of = one,
                     .parts = 1,
                     .ranks = s->ranks};
}

// Of the letters of one dim of a node.
static asp_cut cut_of_letters(const asp_sharder *s, const asp_node_axes *a, const asp_rule_dim *dim,
                              uint32_t d, const asp_chain *state)
{
    asp_cut p = no_cut(s, d);
    for (uint32_t k = 0; k < dim->n; k++) extend(s, &p, a->letter[dim->at[k]], state);
    return p;
}

// The dim of v in which its tokens stand; false: it has none.
static bool cut_of_tokens(const asp_sharder *s, asp_val v, asp_cut *out_cut)
{
    for (uint32_t d = 0; d < asp_val_type(s->g, v)->rank; d++) {
        asp_cut p = no_cut(s, d);
        extend(s, &p, s->x.dims[v.i][d], NULL);
        if (p.parts == 1) continue;
        *out_cut = p;
        return true;
    }
    return false;
}

void asp_find_single_item(const asp_sharder *s, asp_val v, const asp_chain *state,
                          asp_view_attr *out_attr)
{
    for (uint32_t d = 0; d < asp_val_type(s->g, v)->rank; d++) {
        asp_cut p = no_cut(s, d);
        asp_size room = asp_size_num(s->g, 1);
        asp_atoms list = s->x.dims[v.i][d];
        extend(s, &p, list, state);
        for (uint32_t i = 0; i < list.n; i++)
            if (asp_parts_of(s, state, list.at[i]) > 1)
                room = asp_size_mul(s->g, room, local_atom(s, state, list.at[i]));
        const asp_size one = asp_size_num(s->g, 1);
        // Nor does a size tell [1, 2 of 8] from [1 of 4, 2].
        const bool beside = d > 0 && asp_size_equal(asp_val_type(s->g, v)->dim[d - 1], one) &&
                            asp_size_equal(p.outer, one) && asp_size_is_num(s->g, room, NULL);
        if (p.parts == 1 || (!asp_size_equal(room, one) && !beside)) continue;
        out_attr->split = d;
        out_attr->before = p.outer;
    }
}

static asp_size room_of(const asp_sharder *s, const asp_cut *p)
{
    return asp_size_ceil_div(s->g, p->of, asp_size_num(s->g, p->ranks));
}

// The order of parts of the sequence; heads stand in their own.
static void set_order(const asp_sharder *s, const asp_cut *p, asp_part_attr *a)
{
    if (!p->atom || !s->x.atoms.at[p->atom].token) return;
    a->rings = s->rings;
    a->zigzag = s->zigzag;
}

// Known to have no tail.
static bool is_even(const asp_sharder *s, const asp_cut *p)
{
    int64_t n;
    return asp_size_equal(p->of, p->split) && asp_size_is_num(s->g, p->split, &n) &&
           n % p->ranks == 0;
}

// A view of a rank's part, which stands in dim d behind `before`.
static asp_val view_part(asp_sharder *s, asp_val x, const asp_type *t, asp_size part, uint32_t d,
                         asp_size before)
{
    asp_view_attr a = {.shape = {.n = t->rank}, .split = d, .before = before};
    if (s->b.status < 0 || asp_type_equal(asp_val_type(s->g, x), t) ||
        !asp_size_equal(part, asp_size_num(s->g, 1)))
        return asp_build_view(&s->b, x, t);
    memcpy(a.shape.at, t->dim, t->rank * sizeof t->dim[0]);
    return ASP_B1(&s->b, view, &a, x);
}

// x in a shape where what is split, or `local` of it, is a dim of its own; *out_dim is which.
static asp_status isolate(asp_sharder *s, asp_val x, const asp_cut *p, asp_size local,
                          asp_val *out_x, uint32_t *out_dim)
{
    asp_type t = *asp_val_type(s->g, x), cut = {.dtype = t.dtype};
    asp_size one = asp_size_num(s->g, 1);
    const asp_size parts[3] = {p->outer, local, p->inner};
    for (uint32_t d = 0; d < t.rank; d++) {
        for (uint32_t i = 0; i < 3; i++) {
            if (d != p->dim && i > 0) break;
            if (d == p->dim && i != 1 && asp_size_equal(parts[i], one)) continue;
            if (cut.rank == ASP_MAX_RANK)
                return asp_fail(s->px->cx, ASP_ERR_UNSUPPORTED,
                                "%s is %s; its tokens stand inside dimension %u, and more than %d "
                                "dimensions would be needed to cut them out; split it with a view",
                                asp_val_str(s->g, x), asp_type_str(s->g, &t), d, ASP_MAX_RANK);
            if (d == p->dim && i == 1) *out_dim = cut.rank;
            cut.dim[cut.rank++] = d == p->dim ? parts[i] : t.dim[d];
        }
    }
    *out_x = view_part(s, x, &cut, local, *out_dim, one);
    return s->b.status;
}

// ---- slices of replicable values ---------------------------------------------------------------

static asp_status build_slice(asp_sharder *s, asp_val v, asp_cut_slice *e)
{
    const asp_cut *p = &e->at;
    asp_type whole = *asp_val_type(s->g, v);
    asp_size local = room_of(s, p);
    asp_part_attr a = {.ranks = p->ranks, .fill = is_even(s, p) ? INT64_MIN : e->fill, .rings = 1};
    set_order(s, p, &a);
    uint32_t dim = 0;
    asp_val x;
    // Even parts of a whole dimension are cut as they stand: 4 of 8 heads of 16 are half of 128.
    if (is_even(s, p) && !a.zigzag && asp_size_equal(p->outer, asp_size_num(s->g, 1))) {
        x = v;
        dim = p->dim;
    } else
        ASP_TRY(isolate(s, v, p, p->split, &x, &dim));
    a.dim = dim;
    if (!asp_size_equal(p->of, p->split)) a.of = p->of;
    whole.dim[p->dim] = asp_size_mul(s->g, asp_size_mul(s->g, p->outer, local), p->inner);
    e->result = view_part(s, ASP_B1(&s->b, shard_slice, &a, x), &whole, local, p->dim, p->outer);
    return s->b.status;
}

static bool same_slice(const asp_cut_slice *a, const asp_cut_slice *b)
{
    return a->at.dim == b->at.dim && a->fill == b->fill &&
           asp_size_equal(a->at.outer, b->at.outer) && asp_size_equal(a->at.split, b->at.split) &&
           asp_size_equal(a->at.of, b->at.of);
}

static asp_status sliced(asp_sharder *s, asp_val v, asp_cut_slice e, asp_val *out)
{
    for (uint32_t i = s->newest[v.i]; i; i = s->slices.at[i - 1].older) {
        if (!same_slice(&s->slices.at[i - 1], &e)) continue;
        *out = s->slices.at[i - 1].result;
        return ASP_OK;
    }
    e.older = s->newest[v.i];
    ASP_TRY(build_slice(s, v, &e));
    ASP_PUSH(s->px->scratch, &s->slices, e);
    s->newest[v.i] = s->slices.n;
    *out = e.result;
    return ASP_OK;
}

// Labels past the end are ignored; of anything else the last one stands there again.
static int64_t fill_of(const asp_sharder *s, asp_node n, uint32_t i)
{
    const asp_node_info *info = asp_node_at(s->g, n);
    if (info->op == ASP_OP_cross_entropy && i == 1)
        return ((const asp_loss_attr *)info->attr)->ignore;
    if (info->op == ASP_OP_nll && i == 1) return ((const asp_nll_attr *)info->attr)->ignore;
    return INT64_MIN;
}

// Operand i of n is replicable: it is sliced where its letters have split atoms.  Attention on a
// ring counts rows of the whole sequence, so only heads are cut there.
asp_status asp_align_replicable(asp_sharder *s, asp_node n, uint32_t i, const asp_chain *state)
{
    const asp_node_axes *a = s->x.node[n.i];
    asp_val v = asp_node_at(s->g, n)->in[i], x = v;
    const bool rows_stay = asp_node_at(s->g, n)->op == ASP_OP_ring_sdpa;
    for (uint32_t d = 0; d < asp_val_type(s->g, v)->rank; d++) {
        asp_cut_slice e = {.at = cut_of_letters(s, a, &a->rule.in[i][d], d, state),
                           .fill = fill_of(s, n, i)};
        if (e.at.parts == 1 || (rows_stay && s->x.atoms.at[e.at.atom].token)) continue;
        if (e.at.parts != e.at.ranks || x.i != v.i)
            return asp_fail(s->px->cx, ASP_ERR_UNSUPPORTED,
                            "%s cannot be split over %lld ranks: a part of %s %s would have to be "
                            "taken in dimension %u; use 1 rank",
                            asp_node_str(s->g, n), (long long)s->ranks, asp_val_str(s->g, v),
                            asp_type_str(s->g, asp_val_type(s->g, v)), d);
        ASP_TRY(sliced(s, v, e, &x));
    }
    asp_graph_set_input(s->g, n, i, x);
    return ASP_OK;
}

// ---- sums over tokens --------------------------------------------------------------------------

// Operand i of n, of local sizes, with 0 in the tail of what is split in dim d.
static asp_status mask_tail(asp_sharder *s, asp_node n, uint32_t i, const asp_cut *p)
{
    asp_val x = asp_node_at(s->g, n)->in[i];
    asp_type shape = *asp_val_type(s->g, x);
    asp_part_attr a = {
        .ranks = s->ranks, .of = p->of, .length = p->split, .fill = INT64_MIN, .rings = 1};
    set_order(s, p, &a);
    uint32_t dim = 0;
    ASP_TRY(isolate(s, x, p, room_of(s, p), &x, &dim));
    a.dim = dim;
    x = view_part(s, ASP_B1(&s->b, mask_tail, &a, x), &shape, room_of(s, p), p->dim, p->outer);
    ASP_TRY(s->b.status);
    asp_graph_set_input(s->g, n, i, x);
    return ASP_OK;
}

// Where tokens are summed, one operand is cleared in the tail: the products vanish there.
static asp_status mask_sum(asp_sharder *s, asp_node n, uint8_t letter, const asp_chain *state)
{
    const asp_node_axes *a = s->x.node[n.i];
    const asp_node_info *info = asp_node_at(s->g, n);
    if (info->op == ASP_OP_cross_entropy || info->op == ASP_OP_nll) return ASP_OK; // by labels
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = info->in[i];
        // Of a product's operands a float one; else what is summed is whole numbers.
        if (info->n_in > 1 && !asp_dtypes[asp_val_type(s->g, v)->dtype].is_float) continue;
        for (uint32_t d = 0; d < asp_val_type(s->g, v)->rank; d++) {
            const asp_rule_dim *dim = &a->rule.in[i][d];
            bool has = false;
            for (uint32_t k = 0; k < dim->n; k++) has |= dim->at[k] == letter;
            if (!has) continue;
            asp_cut p = cut_of_letters(s, a, dim, d, state);
            return p.parts == 1 || is_even(s, &p) ? ASP_OK : mask_tail(s, n, i, &p);
        }
    }
    return ASP_OK;
}

asp_status asp_mask_sums(asp_sharder *s, asp_node n, const asp_chain *state)
{
    const asp_node_axes *a = s->x.node[n.i];
    for (uint32_t c = 0; a->has_rule && c < a->rule.n_letters; c++) {
        if (a->rule.letter[c].kind != ASP_LETTER_SUM) continue;
        if (asp_parts_of_list(s, state, a->letter[c]) > 1)
            ASP_TRY(mask_sum(s, n, (uint8_t)c, state));
    }
    return ASP_OK;
}

// ---- gathers -----------------------------------------------------------------------------------
//
// Each rank's part among zeros, all-reduced: the derivative comes with it.

asp_status asp_gather_tokens(asp_sharder *s, asp_val v, asp_val x, asp_val *out_x)
{
    asp_cut p;
    if (s->gathered[v.i].i || !cut_of_tokens(s, v, &p)) {
        *out_x = s->gathered[v.i].i ? s->gathered[v.i] : x;
        return ASP_OK;
    }
    asp_type whole = *asp_val_type(s->g, x);
    asp_part_attr a = {
        .ranks = s->ranks, .of = p.of, .length = p.split, .fill = INT64_MIN, .rings = 1};
    set_order(s, &p, &a);
    uint32_t dim = 0;
    for (uint32_t d = 0; d < whole.rank; d++) whole.dim[d] = asp_whole_size(s, s->x.dims[v.i][d]);
    ASP_TRY(isolate(s, x, &p, room_of(s, &p), &x, &dim));
    a.dim = dim;
    x = ASP_B1(&s->b, all_reduce, NULL, ASP_B1(&s->b, shard_pad, &a, x));
    *out_x = s->gathered[v.i] = asp_build_view(&s->b, x, &whole);
    return s->b.status;
}

asp_status asp_keep_part(asp_sharder *s, asp_val v, asp_val *out_x)
{
    asp_cut_slice e = {.fill = INT64_MIN};
    *out_x = v;
    if (!cut_of_tokens(s, v, &e.at)) return ASP_OK;
    ASP_TRY(build_slice(s, v, &e));
    *out_x = e.result;
    return ASP_OK;
}

asp_status asp_shorten_tokens(asp_sharder *s, asp_val v, uint32_t dim, asp_val x, asp_val *out_x)
{
    asp_cut p = no_cut(s, dim);
    extend(s, &p, s->x.dims[v.i][dim], NULL);
    asp_part_attr a = {.dim = dim,
                       .ranks = s->ranks,
                       .of = p.of,
                       .length = p.split,
                       .fill = INT64_MIN,
                       .rings = 1};
    set_order(s, &p, &a);
    *out_x = ASP_B1(&s->b, shorten, &a, x);
    return s->b.status;
}

// ---- ops with an algorithm for a split sequence ------------------------------------------------

static asp_seq_attr sequence_attr(const asp_sharder *s, asp_node n, uint32_t dim)
{
    const asp_node_info *info = asp_node_at(s->g, n);
    asp_cut p = no_cut(s, dim);
    extend(s, &p, s->x.dims[info->in[0].i][dim], NULL);
    asp_seq_attr a = {
        .dim = dim, .ranks = s->ranks, .of = p.of, .length = p.split, .dilation = 1, .groups = 1};
    if (info->op == ASP_OP_shift) a.by = ((const asp_shift_attr *)info->attr)->by;
    if (info->op == ASP_OP_select) a.at = ((const asp_select_attr *)info->attr)->at;
    if (info->op == ASP_OP_conv1d) {
        const asp_conv_attr *c = info->attr;
        a.dilation = c->dilation;
        a.groups = c->groups;
        a.left = c->left;
    }
    return a;
}

asp_status asp_run_split(asp_sharder *s, asp_node n, asp_op op, uint32_t dim, asp_val *out_x)
{
    const asp_node_info *info = asp_node_at(s->g, n);
    asp_seq_attr a = sequence_attr(s, n, dim);
    asp_val in[ASP_MAX_OPERANDS];
    uint32_t n_in = info->n_in;
    s->b.loc = info->loc;
    memcpy(in, info->in, n_in * sizeof in[0]);
    *out_x = asp_build(&s->b, op, &a, n_in, in);
    return s->b.status;
}

// ---- random numbers ----------------------------------------------------------------------------

// The atoms of dim d that are split, innermost first, as places of op/random.c.
static void add_random_places(const asp_sharder *s, asp_atoms list, uint32_t d,
                              const asp_chain *state, int64_t *stride, asp_dropout_attr *a)
{
    for (uint32_t j = list.n; j-- > 0;) {
        int64_t parts = asp_parts_of(s, state, list.at[j]);
        if (parts == 1) continue;
        uint32_t k = a->dims.n++;
        a->dims.at[k] = d;
        a->outer.at[k] = local_size(s, state, (asp_atoms){.n = j, .at = list.at});
        const asp_atom *atom = &s->x.atoms.at[list.at[j]];
        a->whole.at[k] = atom->size;
        a->of.at[k] = atom->token ? asp_axes_base_size(&s->x, list.at[j]) : atom->size;
        a->parts.at[k] = parts;
        a->stride.at[k] = *stride;
        a->rings.at[k] = atom->token ? s->rings : 1;
        if (atom->token) a->zigzag = s->zigzag;
        *stride *= parts;
    }
    a->outer.n = a->whole.n = a->of.n = a->parts.n = a->stride.n = a->rings.n = a->dims.n;
}

asp_status asp_place_random(asp_sharder *s, asp_node n, const asp_chain *state)
{
    asp_val v = asp_node_at(s->g, n)->first;
    asp_dropout_attr a = *(const asp_dropout_attr *)asp_node_at(s->g, n)->attr;
    int64_t stride = 1;
    for (uint32_t d = asp_val_type(s->g, v)->rank; d-- > 0;)
        add_random_places(s, s->x.dims[v.i][d], d, state, &stride, &a);
    asp_graph_set_attr(s->g, n, &a);
    return ASP_OK;
}

// Attention counts by head: rank r of a group has heads head_unit * asp_part_of(heads, head_ranks,
// r).
asp_status asp_place_heads(asp_sharder *s, asp_node n, const asp_chain *state)
{
    asp_sdpa_attr a = *(const asp_sdpa_attr *)asp_node_at(s->g, n)->attr;
    asp_atoms list = s->x.dims[asp_node_at(s->g, n)->first.i][1];
    int64_t all = 0, first = 0;
    if (!state || state == &asp_state_whole) return ASP_OK;
    if (!asp_size_is_num(s->g, asp_whole_size(s, list), &all) || list.n == 0 ||
        list.at[0] != state->atoms.at[0] ||
        !asp_size_is_num(s->g, s->x.atoms.at[list.at[0]].size, &first))
        return asp_fail(s->px->cx, ASP_ERR_UNSUPPORTED,
                        "%s cannot be split over %lld ranks: its dropout counts heads, and heads "
                        "are not what is split; use 1 rank",
                        asp_node_str(s->g, n), (long long)s->ranks);
    bool ragged = asp_chain_is_ragged(s->g, &s->x, state);
    a.heads = ragged ? first : all;
    a.head_unit = ragged ? all / first : 1;
    a.head_ranks = s->sp.heads;
    asp_graph_set_attr(s->g, n, &a);
    return ASP_OK;
}
