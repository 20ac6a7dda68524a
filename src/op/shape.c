// Ops that move or sum elements: view, permute, expand, sum, repeat, slices.  Neighbours: ir/op.def
// (rows), kern/ref/shape.c. SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

static asp_type declared_shape(asp_dtype dtype, const asp_sizes *shape)
{
    asp_type t = {.dtype = dtype, .rank = shape->n};
    memcpy(t.dim, shape->at, shape->n * sizeof shape->at[0]);
    return t;
}

// Where a part of one item stands, `before` and `split` say: no size does.
static asp_status want_split(const asp_infer *in, const asp_view_attr *a, const asp_type *out)
{
    asp_size rest;
    if (!a->before.i && a->split == 0) return ASP_OK;
    ASP_TRY(asp_want_dim_attr(in, "split", a->split, out->rank));
    if (a->before.i && asp_size_divides(in->g, a->before, out->dim[a->split], &rest)) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "dimension %lld of %s does not begin with before = %s",
                          (long long)a->split, asp_type_str(in->g, out),
                          a->before.i ? asp_size_str(in->g, a->before) : "none");
}

asp_status asp_view_infer(asp_infer *in)
{
    const asp_view_attr *a = in->attr;
    asp_type out = declared_shape(in->in[0].dtype, &a->shape);
    ASP_TRY(want_split(in, a, &out));
    if (!asp_size_equal(asp_type_count(in->g, &in->in[0]), asp_type_count(in->g, &out)))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%s has not as many elements as %s",
                              asp_type_str(in->g, &in->in[0]), asp_type_str(in->g, &out));
    return asp_result(in, &out);
}

void asp_view_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_type shape = *asp_val_type(b->g, asp_in(b, n, 0));
    out_in[0] = asp_build_view(b, cotangent[0], &shape);
}

// The two shapes walked side by side: equal sizes are one letter, a size that divides the other is
// its outer part.
//
//   (B, S, 32) -> (B, S, 4, 8)      b s (n h) -> b s n h
//   (B, S, D) -> (B*S, D)           b s d -> (b s) d
//
// Where neither divides the other, as in (2, 3) -> (3, 2), the dims up to the next common boundary
// must be whole.  Dims of size 1 have no letter.
typedef struct side {
    const asp_type *type;
    asp_rule_dim *dims;
    uint32_t d;
    asp_size left; // what of dim d has no letter yet
} side;

static bool skip_ones(asp_rule_builder *b, side *s)
{
    asp_size one = asp_size_num(b->g, 1);
    while (s->d < s->type->rank && asp_size_equal(s->left, one)) {
        s->d++;
        if (s->d < s->type->rank) s->left = s->type->dim[s->d];
    }
    return s->d < s->type->rank;
}

static void take_letter(asp_rule_builder *b, side *s, uint8_t letter, asp_size left)
{
    asp_rule_put(b, &s->dims[s->d], letter);
    s->left = left;
}

// How many whole dims from s->left on multiply to a product of t's, for the shortest such run.
static void common_boundary(asp_rule_builder *b, const side *s, const side *t, uint32_t *out_s,
                            uint32_t *out_t)
{
    asp_size ps = s->left;
    for (uint32_t i = s->d; i < s->type->rank; i++) {
        if (i > s->d) ps = asp_size_mul(b->g, ps, s->type->dim[i]);
        asp_size pt = t->left;
        for (uint32_t j = t->d; j < t->type->rank; j++) {
            if (j > t->d) pt = asp_size_mul(b->g, pt, t->type->dim[j]);
            if (!asp_size_equal(ps, pt)) continue;
            *out_s = i + 1;
            *out_t = j + 1;
            return;
        }
    }
    *out_s = s->type->rank;
    *out_t = t->type->rank;
}

static void take_whole(asp_rule_builder *b, side *s, uint32_t end)
{
    for (; s->d < end; s->d++) {
        asp_size size = s->left;
        asp_rule_put(b, &s->dims[s->d], asp_rule_letter(b, ASP_LETTER_WHOLE, size));
        if (s->d + 1 < s->type->rank) s->left = s->type->dim[s->d + 1];
    }
}

void asp_view_rule(asp_rule_builder *b)
{
    const asp_type *x = asp_rule_type(b, 0), *y = asp_rule_result(b, 0);
    asp_size one = asp_size_num(b->g, 1), rest;
    side in = {.type = x, .dims = b->rule->in[0], .left = x->rank ? x->dim[0] : one};
    side out = {.type = y, .dims = b->rule->out[0], .left = y->rank ? y->dim[0] : one};
    for (;;) {
        bool more_in = skip_ones(b, &in), more_out = skip_ones(b, &out); // both, always
        if (!more_in || !more_out) break;
        if (asp_size_divides(b->g, in.left, out.left, &rest)) {
            uint8_t c = asp_rule_letter(b, ASP_LETTER_SPLIT, in.left);
            take_letter(b, &in, c, one);
            take_letter(b, &out, c, rest);
        } else if (asp_size_divides(b->g, out.left, in.left, &rest)) {
            uint8_t c = asp_rule_letter(b, ASP_LETTER_SPLIT, out.left);
            take_letter(b, &in, c, rest);
            take_letter(b, &out, c, one);
        } else {
            uint32_t in_end, out_end;
            common_boundary(b, &in, &out, &in_end, &out_end);
            take_whole(b, &in, in_end);
            take_whole(b, &out, out_end);
        }
    }
}

asp_status asp_permute_infer(asp_infer *in)
{
    const asp_permute_attr *a = in->attr;
    asp_type out = in->in[0];
    unsigned seen = 0;
    if (a->perm.n != out.rank)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "perm names %u dimensions of %s", a->perm.n,
                              asp_type_str(in->g, &out));
    for (uint32_t d = 0; d < out.rank; d++) {
        ASP_TRY(asp_want_dim_attr(in, "perm", a->perm.at[d], out.rank));
        seen |= 1u << a->perm.at[d];
        out.dim[d] = in->in[0].dim[a->perm.at[d]];
    }
    if (seen != (1u << out.rank) - 1)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "perm names a dimension twice");
    return asp_result(in, &out);
}

void asp_permute_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_permute_attr *a = ASP_ATTR(b, n, permute);
    int64_t inverse[ASP_MAX_RANK];
    for (uint32_t d = 0; d < a->perm.n; d++) inverse[a->perm.at[d]] = d;
    out_in[0] = asp_build_permute(b, cotangent[0], a->perm.n, inverse);
}

void asp_permute_rule(asp_rule_builder *b)
{
    const asp_permute_attr *a = b->info->attr;
    const asp_type *x = asp_rule_type(b, 0);
    for (uint32_t d = 0; d < x->rank; d++)
        asp_rule_put(b, &b->rule->in[0][d], asp_rule_letter(b, ASP_LETTER_SPLIT, x->dim[d]));
    for (uint32_t d = 0; d < x->rank; d++) b->rule->out[0][d] = b->rule->in[0][a->perm.at[d]];
}

asp_status asp_expand_infer(asp_infer *in)
{
    const asp_type *x = &in->in[0];
    asp_type out = declared_shape(x->dtype, &((const asp_expand_attr *)in->attr)->shape);
    asp_size one = asp_size_num(in->g, 1);
    bool ok = out.rank >= x->rank;
    for (uint32_t i = 1; ok && i <= x->rank; i++) {
        asp_size d = x->dim[x->rank - i];
        ok = asp_size_equal(d, one) || asp_size_equal(d, out.dim[out.rank - i]);
    }
    if (!ok)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%s does not broadcast to %s",
                              asp_type_str(in->g, x), asp_type_str(in->g, &out));
    return asp_result(in, &out);
}

void asp_expand_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_type shape = *asp_val_type(b->g, asp_in(b, n, 0));
    out_in[0] = asp_build_sum_to(b, cotangent[0], &shape);
}

// A dim that is stretched or new is a letter of the result alone.
void asp_expand_rule(asp_rule_builder *b)
{
    const asp_type *x = asp_rule_type(b, 0), *y = asp_rule_result(b, 0);
    uint32_t lead = y->rank - x->rank;
    for (uint32_t d = 0; d < y->rank; d++) {
        uint8_t c = asp_rule_letter(b, ASP_LETTER_SPLIT, y->dim[d]);
        asp_rule_put(b, &b->rule->out[0][d], c);
        if (d >= lead && asp_size_equal(x->dim[d - lead], y->dim[d]))
            asp_rule_put(b, &b->rule->in[0][d - lead], c);
    }
}

asp_type asp_kept_type(asp_graph *g, const asp_type *x, const asp_ints *dims)
{
    asp_type t = *x;
    for (uint32_t i = 0; i < dims->n; i++) t.dim[dims->at[i]] = asp_size_num(g, 1);
    return t;
}

asp_status asp_infer_reduced(const asp_infer *in, const asp_ints *dims, bool keep, asp_type *out)
{
    const asp_type *x = &in->in[0];
    bool gone[ASP_MAX_RANK] = {false};
    for (uint32_t i = 0; i < dims->n; i++) {
        ASP_TRY(asp_want_dim_attr(in, "dims", dims->at[i], x->rank));
        if (gone[dims->at[i]])
            return asp_infer_fail(in, ASP_ERR_SHAPE, "dims names a dimension twice");
        gone[dims->at[i]] = true;
    }
    *out = keep ? asp_kept_type(in->g, x, dims) : (asp_type){.dtype = x->dtype};
    for (uint32_t d = 0; !keep && d < x->rank; d++)
        if (!gone[d]) out->dim[out->rank++] = x->dim[d];
    return ASP_OK;
}

asp_status asp_sum_infer(asp_infer *in)
{
    const asp_sum_attr *a = in->attr;
    asp_type out;
    if (in->in[0].dtype != ASP_I64) ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_infer_reduced(in, &a->dims, a->keep, &out));
    return asp_result(in, &out);
}

void asp_sum_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_type x = *asp_val_type(b->g, asp_in(b, n, 0));
    asp_type with_ones = asp_kept_type(b->g, &x, &ASP_ATTR(b, n, sum)->dims);
    out_in[0] = asp_build_expand_to(b, asp_build_view(b, cotangent[0], &with_ones), &x);
}

void asp_rule_reduced_dims(asp_rule_builder *b, const asp_ints *dims, bool keep,
                           asp_letter_kind kind)
{
    const asp_type *x = asp_rule_type(b, 0);
    unsigned gone = 0;
    for (uint32_t i = 0; i < dims->n; i++) gone |= 1u << dims->at[i];
    for (uint32_t d = 0, o = 0; d < x->rank; d++) {
        bool reduced = gone >> d & 1;
        uint8_t c = asp_rule_letter(b, reduced ? kind : ASP_LETTER_SPLIT, x->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        for (uint32_t i = 0; !reduced && i < b->info->n_out; i++)
            asp_rule_put(b, &b->rule->out[i][o], c);
        if (!reduced || keep) o++;
    }
}

void asp_rule_reduced(asp_rule_builder *b, asp_letter_kind kind)
{
    const asp_sum_attr *a = b->info->attr;
    asp_rule_reduced_dims(b, &a->dims, a->keep, kind);
}

void asp_sum_rule(asp_rule_builder *b) { asp_rule_reduced(b, ASP_LETTER_SUM); }

static asp_status want_repeat(const asp_infer *in)
{
    const asp_repeat_attr *a = in->attr;
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank));
    if (a->times >= 1) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "times = %lld is not positive", (long long)a->times);
}

asp_status asp_repeat_infer(asp_infer *in)
{
    const asp_repeat_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(want_repeat(in));
    out.dim[a->dim] = asp_size_mul(in->g, out.dim[a->dim], asp_size_num(in->g, a->times));
    return asp_result(in, &out);
}

void asp_repeat_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B1(b, sum_groups, ASP_ATTR(b, n, repeat), cotangent[0]);
}

// The dim a->dim of the longer side is (d times), the copies inside.
static void repeat_rule(asp_rule_builder *b, const asp_type *shorter, asp_rule_dim *dims,
                        asp_rule_dim *longer, asp_letter_kind copies)
{
    const asp_repeat_attr *a = b->info->attr;
    for (uint32_t d = 0; d < shorter->rank; d++) {
        uint8_t c = asp_rule_letter(b, ASP_LETTER_SPLIT, shorter->dim[d]);
        asp_rule_put(b, &dims[d], c);
        asp_rule_put(b, &longer[d], c);
    }
    uint8_t times = asp_rule_letter(b, copies, asp_size_num(b->g, a->times));
    asp_rule_put(b, &longer[a->dim], times);
}

void asp_repeat_rule(asp_rule_builder *b)
{
    repeat_rule(b, asp_rule_type(b, 0), b->rule->in[0], b->rule->out[0], ASP_LETTER_SPLIT);
}

asp_status asp_sum_groups_infer(asp_infer *in)
{
    const asp_repeat_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(want_repeat(in));
    ASP_TRY(asp_size_div(in->g, out.dim[a->dim], asp_size_num(in->g, a->times), &out.dim[a->dim]));
    return asp_result(in, &out);
}

void asp_sum_groups_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B1(b, repeat, ASP_ATTR(b, n, repeat), cotangent[0]);
}

void asp_sum_groups_rule(asp_rule_builder *b)
{
    repeat_rule(b, asp_rule_result(b, 0), b->rule->out[0], b->rule->in[0], ASP_LETTER_SUM);
}
