// Attention and rotary positions.  Neighbours: attention.h (operands of attention), ir/op.def
// (rows), kern/sdpa_isa.c, kern/ref/.  SPDX-License-Identifier: Apache-2.0
#include "op/attention.h"
#include "op/op_int.h"

asp_sdpa_parts asp_sdpa_parts_of(const asp_sdpa_attr *a, const asp_mask *m, uint32_t first)
{
    asp_sdpa_parts p = {.n_in = first};
    for (uint32_t i = 0; i < m->n_lookups; i++) p.lookup[i] = p.n_in++;
    if (a->bias) p.bias = p.n_in++;
    if (a->sinks) p.sinks = p.n_in++;
    if (*a->alibi) p.slopes = p.n_in++;
    return p;
}

// ---- inference ---------------------------------------------------------------------------------

static bool is_one_of(const char *s, const char *a, const char *b, const char *c)
{
    return strcmp(s, a) == 0 || strcmp(s, b) == 0 || strcmp(s, c) == 0;
}

static asp_status want_settings(const asp_infer *in, const asp_sdpa_attr *a)
{
    if (!is_one_of(a->empty, "zero", "mean", "nan"))
        return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                              "empty = '%s' is not known; use zero, mean or nan", a->empty);
    if (!is_one_of(a->alibi, "", "relative", "distance"))
        return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                              "alibi = '%s' is not known; use relative or distance", a->alibi);
    if (!(a->softcap >= 0) || !(a->dropout >= 0 && a->dropout < 1))
        return asp_infer_fail(in, ASP_ERR_INPUT,
                              "softcap = %g must not be negative, and dropout = %g lie in 0 .. 1",
                              a->softcap, a->dropout);
    return ASP_OK;
}

// Queries and keys of the sequence, on a ring those of all ranks.
static void whole_lengths(const asp_infer *in, asp_size *out_q, asp_size *out_k)
{
    const asp_sdpa_attr *a = in->attr;
    *out_q = a->rings > 1 ? a->tokens : in->in[0].dim[2];
    *out_k = a->rings > 1 ? a->keys : in->in[1].dim[2];
}

// Token vectors ([1|B,] Sq) where Ti[q] is asked for, ([1|B,] Sk) for Ti[k].
static asp_status want_lookup(const asp_infer *in, uint32_t i, bool at_q, bool at_k)
{
    const asp_type *t = &in->in[i];
    ASP_TRY(asp_want_rank(in, i, 1, 2));
    if (t->dtype != ASP_I64 && t->dtype != ASP_BOOL)
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "operand %u, a look-up of the mask, is %s; i64 or bool is wanted", i,
                              asp_type_str(in->g, t));
    int64_t n;
    if (t->rank == 2 && !(asp_size_is_num(in->g, t->dim[0], &n) && n == 1))
        ASP_TRY(asp_want_same_dim(in, i, 0, 0, 0));
    if (asp_size_is_num(in->g, t->dim[t->rank - 1], &n) && n == 1) return ASP_OK;
    asp_size n_q, n_k;
    whole_lengths(in, &n_q, &n_k);
    const asp_size size = t->dim[t->rank - 1];
    if ((at_q && !asp_size_equal(size, n_q)) || (at_k && !asp_size_equal(size, n_k)))
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "operand %u, a look-up of the mask, is %s; %s %s "
                              "are wanted",
                              i, asp_type_str(in->g, t), asp_size_str(in->g, at_q ? n_q : n_k),
                              at_q ? "queries" : "keys");
    return ASP_OK;
}

static asp_status want_bias(const asp_infer *in, uint32_t i)
{
    const asp_type *t = &in->in[i], *q = &in->in[0], *k = &in->in[1];
    asp_size want[] = {q->dim[0], q->dim[1], q->dim[2], k->dim[2]};
    whole_lengths(in, &want[2], &want[3]);
    ASP_TRY(asp_want_rank(in, i, 1, 4));
    if (t->dtype != ASP_BOOL) ASP_TRY(asp_want_dtype(in, i, asp_sum_dtype(q->dtype)));
    for (uint32_t d = 0; d < t->rank; d++) {
        int64_t n;
        const asp_size size = want[4 - t->rank + d];
        if (asp_size_equal(t->dim[d], size)) continue;
        if (!asp_size_is_num(in->g, t->dim[d], &n) || n != 1)
            return asp_infer_fail(in, ASP_ERR_SHAPE,
                                  "operand %u, a mask, is %s; dimension %u must be %s or 1", i,
                                  asp_type_str(in->g, t), d, asp_size_str(in->g, size));
    }
    return ASP_OK;
}

static asp_status want_per_head(const asp_infer *in, uint32_t i)
{
    ASP_TRY(asp_want_rank(in, i, 1, 1));
    ASP_TRY(asp_want_dtype(in, i, asp_sum_dtype(in->in[0].dtype)));
    return asp_want_same_dim(in, i, 0, 0, 1);
}

// The operands behind the first ones.
static asp_status want_parts(const asp_infer *in, uint32_t first, asp_sdpa_parts *out_parts)
{
    const asp_sdpa_attr *a = in->attr;
    asp_mask m;
    ASP_TRY(want_settings(in, a));
    if (asp_mask_parse(in->g->cx, a->mask, &m) < 0)
        return asp_note(in->g->cx, ASP_ERR_INPUT, "%s (%s)", asp_ops[in->op].name,
                        in->loc ? in->loc : "");
    asp_mask whole = m;
    if (a->causal && !asp_mask_add_causal(&whole))
        return asp_infer_fail(in, ASP_ERR_LIMIT, "mask = \"%s\" and causal are too long together",
                              a->mask);
    const asp_sdpa_parts p = asp_sdpa_parts_of(a, &m, first);
    if (p.n_in != in->n_in)
        return asp_infer_fail(
            in, ASP_ERR_SHAPE,
            "has %u operands; its attributes ask for %u (%u look-ups of the mask)", in->n_in,
            p.n_in, m.n_lookups);
    for (uint32_t i = 0; i < m.n_lookups; i++)
        ASP_TRY(want_lookup(in, p.lookup[i], m.query_lookups >> i & 1, m.key_lookups >> i & 1));
    if (p.bias) ASP_TRY(want_bias(in, p.bias));
    if (p.sinks) ASP_TRY(want_per_head(in, p.sinks));
    if (p.slopes) ASP_TRY(want_per_head(in, p.slopes));
    *out_parts = p;
    return ASP_OK;
}

// out = softmax(scale q k^T + mask) v Dao et al. 2022 q (B, N, Sq, D)   k (B, K, Sk, D)   v (B, K,
// Sk, E)   N = K r; head h reads K/V head h / r out (B, N, Sq, E)   lse (B, N, Sq), the log of the
// sum of exponentials of each row, -infinity where a query sees no key.  causal is k <= q for any
// Sq and Sk, as in PyTorch.
asp_status asp_sdpa_infer(asp_infer *in)
{
    const asp_type *q = &in->in[0], *k = &in->in[1], *v = &in->in[2];
    asp_sdpa_parts parts;
    ASP_TRY(asp_want_float(in, 0));
    for (uint32_t i = 0; i < 3; i++) {
        ASP_TRY(asp_want_rank(in, i, 4, 4));
        ASP_TRY(asp_want_dtype(in, i, q->dtype));
    }
    ASP_TRY(asp_want_same_dim(in, 0, 0, 1, 0));
    ASP_TRY(asp_want_same_dim(in, 0, 3, 1, 3));
    for (int d = 0; d < 3; d++) ASP_TRY(asp_want_same_dim(in, 1, d, 2, d));
    int64_t heads, kv_heads;
    bool plain =
        asp_size_is_num(in->g, q->dim[1], &heads) && asp_size_is_num(in->g, k->dim[1], &kv_heads);
    if (!plain || kv_heads < 1 || heads % kv_heads != 0)
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "%s query heads are not a multiple of %s K/V heads",
                              asp_size_str(in->g, q->dim[1]), asp_size_str(in->g, k->dim[1]));
    ASP_TRY(want_parts(in, 3, &parts));
    asp_type out = *q, lse = *q;
    out.dim[3] = v->dim[3];
    lse.rank = 3;
    lse.dtype = asp_sum_dtype(q->dtype);
    ASP_TRY(asp_result(in, &out));
    return asp_result(in, &lse);
}

static asp_status want_grad_operands(const asp_infer *in, asp_sdpa_parts *out_parts)
{
    for (uint32_t i = 0; i < 3; i++) ASP_TRY(asp_want_rank(in, i, 4, 4));
    ASP_TRY(asp_want_rank(in, 4, 3, 3));
    ASP_TRY(asp_want_same_type(in, 3, 5));
    return want_parts(in, 6, out_parts);
}

asp_status asp_sdpa_grad_infer(asp_infer *in)
{
    asp_sdpa_parts parts;
    ASP_TRY(want_grad_operands(in, &parts));
    for (uint32_t i = 0; i < 3; i++) ASP_TRY(asp_result_like(in, i));
    return ASP_OK;
}

asp_status asp_sdpa_bias_grad_infer(asp_infer *in)
{
    asp_sdpa_parts parts;
    ASP_TRY(want_grad_operands(in, &parts));
    if (!parts.bias) return asp_infer_fail(in, ASP_ERR_SHAPE, "there is no bias");
    ASP_TRY(asp_want_float(in, parts.bias));
    return asp_result_like(in, parts.bias);
}

asp_status asp_sdpa_sink_grad_infer(asp_infer *in)
{
    ASP_TRY(asp_want_rank(in, 0, 1, 1));
    ASP_TRY(asp_want_rank(in, 2, 3, 3));
    ASP_TRY(asp_want_same_type(in, 1, 3));
    ASP_TRY(asp_want_same_dim(in, 0, 0, 2, 1));
    return asp_result_like(in, 0);
}

// ---- derivative, rule --------------------------------------------------------------------------

void asp_sdpa_refuse_lse(asp_builder *b, asp_node n)
{
    b->status = asp_fail(b->g->cx, ASP_ERR_UNSUPPORTED,
                         "%s has no derivative by its second result, the log-sum-exp, and the loss "
                         "depends on that; make it by logsumexp of the scores",
                         asp_node_str(b->g, n));
}

// Dao et al. 2022, algorithm 4.  The log-sum-exp is for this derivative alone.  What derives by
// bias and sinks stands alone, so that it goes where nothing reads it.
void asp_sdpa_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_node_info *info = asp_node_at(b->g, n);
    const asp_sdpa_attr *a = info->attr;
    if (cotangent[1].i) {
        asp_sdpa_refuse_lse(b, n);
        return;
    }
    asp_val in[ASP_MAX_OPERANDS + 3] = {asp_in(b, n, 0),  asp_in(b, n, 1),  asp_in(b, n, 2),
                                        asp_out(b, n, 0), asp_out(b, n, 1), cotangent[0]};
    const uint32_t n_in = info->n_in + 3;
    asp_mask m;
    ASP_CHECK(asp_mask_read(a->mask, &m));
    const asp_sdpa_parts parts = asp_sdpa_parts_of(a, &m, 3);
    for (uint32_t i = 3; i < info->n_in; i++) in[i + 3] = info->in[i];
    asp_val dq = asp_build(b, ASP_OP_sdpa_grad, a, n_in, in);
    for (uint32_t i = 0; i < 3; i++) out_in[i] = asp_build_result(b, dq, i);
    if (parts.bias && asp_val_type(b->g, in[parts.bias + 3])->dtype != ASP_BOOL)
        out_in[parts.bias] = asp_build(b, ASP_OP_sdpa_bias_grad, a, n_in, in);
    if (parts.sinks) {
        const asp_val of_sinks[] = {in[parts.sinks + 3], in[3], in[4], in[5]};
        out_in[parts.sinks] = asp_build(b, ASP_OP_sdpa_sink_grad, NULL, 4, of_sinks);
    }
}

static bool is_one(asp_graph *g, asp_size s)
{
    int64_t n;
    return asp_size_is_num(g, s, &n) && n == 1;
}

// Q, K: the positions of queries and keys; T, U, ...: of look-ups, whole on every rank.
void asp_sdpa_rule(asp_rule_builder *b)
{
    const asp_sdpa_attr *a = b->info->attr;
    char text[256] = "b(gr)QD,bgKD,bgKE";
    size_t n = strlen(text);
    asp_mask m;
    ASP_CHECK(asp_mask_read(a->mask, &m));
    for (uint32_t i = 0; i < m.n_lookups; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",%s%c",
                              asp_rule_type(b, 3 + i)->rank == 2 ? "b" : "", (char)('T' + i));
    if (a->bias) {
        const asp_type *t = asp_rule_type(b, 3 + m.n_lookups);
        static const char *const dims[] = {"b", "(gr)", "Q", "K"};
        n += (size_t)snprintf(text + n, sizeof text - n, ",");
        for (uint32_t d = 0; d < t->rank; d++) {
            const uint32_t at = 4 - t->rank + d;
            const bool one = at == 1 && is_one(b->g, t->dim[d]); // a 1 beside many heads
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", one ? "g" : dims[at]);
        }
    }
    for (int i = 0; i < a->sinks + (*a->alibi != 0); i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",(gr)");
    snprintf(text + n, sizeof text - n, "->b(gr)QE,b(gr)Q");
    asp_rule_text(b, text);
}

// ---- rotary positions --------------------------------------------------------------------------

// Positions are whole numbers, one a token, shared by the batch or one row a sequence.
static asp_status want_positions(const asp_infer *in, uint32_t x, uint32_t p)
{
    ASP_TRY(asp_want_rank(in, p, 1, 2));
    uint32_t rank = in->in[p].rank;
    if (rank == 2) ASP_TRY(asp_want_same_dim(in, p, 0, x, 0));
    return asp_want_same_dim(in, p, (int)rank - 1, x, 2);
}

// Su et al. 2021; halves of the head are rotated against each other, as in Llama.  x (B, N, S, H),
// positions ([B,] S)
asp_status asp_rope_infer(asp_infer *in)
{
    const asp_rope_attr *a = in->attr;
    int64_t width;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 4, 4));
    ASP_TRY(asp_want_dtype(in, 1, ASP_I64));
    ASP_TRY(want_positions(in, 0, 1));
    if (!asp_size_is_num(in->g, in->in[0].dim[3], &width) || width < 2 || width % 2)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "the head width %s is not an even number",
                              asp_size_str(in->g, in->in[0].dim[3]));
    if (*a->scaling && strcmp(a->scaling, "llama3") != 0)
        return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                              "scaling '%s' is not known; use llama3 or none", a->scaling);
    return asp_result_like(in, 0);
}

void asp_rope_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_rope_attr *a = ASP_ATTR(b, n, rope);
    const asp_type *x = asp_val_type(b->g, asp_in(b, n, 0));
    asp_rope_table_attr t = {.to = asp_sum_dtype(x->dtype),
                             .theta = a->theta,
                             .scaling = a->scaling,
                             .factor = a->factor,
                             .low = a->low,
                             .high = a->high,
                             .original = a->original};
    ASP_CHECK(asp_size_is_num(b->g, x->dim[3], &t.head_dim));
    asp_val cos = ASP_B1(b, rope_table, &t, asp_in(b, n, 1));
    out[0] = ASP_B3(b, rotary, NULL, asp_in(b, n, 0), cos, asp_build_result(b, cos, 1));
}

// The halves of a head are rotated against each other: its width stays whole.
void asp_rope_rule(asp_rule_builder *b)
{
    asp_rule_text(b, asp_rule_type(b, 1)->rank == 2 ? "bnsH,bs->bnsH" : "bnsH,s->bnsH");
}

asp_status asp_rope_table_infer(asp_infer *in)
{
    const asp_rope_table_attr *a = in->attr;
    ASP_TRY(asp_want_dtype(in, 0, ASP_I64));
    ASP_TRY(asp_want_rank(in, 0, 1, 2));
    if (a->head_dim < 2 || a->head_dim % 2)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "head_dim = %lld is not an even number",
                              (long long)a->head_dim);
    asp_type out = in->in[0];
    out.dtype = a->to;
    out.dim[out.rank++] = asp_size_num(in->g, a->head_dim / 2);
    ASP_TRY(asp_result(in, &out));
    return asp_result(in, &out);
}

// Of bf16 the tables are f32.
asp_status asp_rotary_infer(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 4, 4));
    ASP_TRY(asp_want_same_type(in, 1, 2));
    ASP_TRY(asp_want_dtype(in, 1, asp_sum_dtype(in->in[0].dtype)));
    ASP_TRY(asp_want_rank(in, 1, 2, 3));
    uint32_t rank = in->in[1].rank;
    if (rank == 3) ASP_TRY(asp_want_same_dim(in, 1, 0, 0, 0));
    ASP_TRY(asp_want_same_dim(in, 1, (int)rank - 2, 0, 2));
    asp_size twice = asp_size_mul(in->g, in->in[1].dim[rank - 1], asp_size_num(in->g, 2));
    if (!asp_size_equal(twice, in->in[0].dim[3]))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "tables %s do not fit heads of %s",
                              asp_type_str(in->g, &in->in[1]), asp_type_str(in->g, &in->in[0]));
    return asp_result_like(in, 0);
}

// A rotation's transpose is the rotation back.
void asp_rotary_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_rotary_attr back = {.inverse = !ASP_ATTR(b, n, rotary)->inverse};
    out_in[0] = ASP_B3(b, rotary, &back, cotangent[0], asp_in(b, n, 1), asp_in(b, n, 2));
}

void asp_rotary_rule(asp_rule_builder *b)
{
    asp_rule_text(b, asp_rule_type(b, 1)->rank == 3 ? "bnsH,bsF,bsF->bnsH" : "bnsH,sF,sF->bnsH");
}
