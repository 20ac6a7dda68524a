// pass/ring.c: attention around a ring becomes its steps.
//
//   %o, %l = ring_sdpa %q, %k, %v        %k1 = rotate %k           %v1 = rotate %v
//            {rings = 2, ..}       ->    %o0, %l0 = sdpa %q, %k, %v {rings = 2, step = 0, ..}
//                                        %o1, %l1 = sdpa %q, %k1, %v1 {rings = 2, step = 1, ..}
//                                        %o, %l = merge_attention %o0, %l0, %o1, %l1
//
// A block that no rank of the ring sees anything of, by positions (a window, chunks), is left out,
// and the rotations go past it in one.  Which ones that are depends on the sequence; where its
// length is not known all stay.
//
// A rotation stands before the block that hides it: it is begun there, and the program awaits it at
// its first reader (run/program.c).  In the derivative keys and values go round again, and what
// they have collected follows one block behind; each group's own block comes last, behind which
// the sums come home.  Per group and ring: (rings - 1) rotations of k and of v forward, the same
// and (rings - 1) of dk and dv backward.  Runs behind remat: nothing is kept of a step.
// O(nodes * rings).  Neighbours: op/ring.c, kern/sdpa_isa.c (blocks; empty ones cost nothing).
// SPDX-License-Identifier: Apache-2.0
#include "kern/kern.h"
#include "op/attention.h"
#include "pass/pass.h"

// The blocks of one kind of attention that are computed: 0, then as keys come by.
typedef struct steps {
    asp_sdpa_attr attr;
    int64_t *at;
    int64_t n;
    struct steps *older;
} steps;

typedef struct unroller {
    asp_graph *g;
    asp_builder b;
    asp_sdpa_attr attr;
    asp_rotate_attr by;
    uint32_t n_first;             // operands before look-ups, bias, sinks, slopes
    uint32_t n_in;                // all of them
    uint32_t sinks;               // index of the sinks; 0: none
    asp_val in[ASP_MAX_OPERANDS]; // of the node
    asp_val k, v;                 // where they have come
    const steps *steps;
} unroller;

// By so many groups.
static asp_val rotated(unroller *u, asp_val x, int64_t groups)
{
    asp_rotate_attr by = u->by;
    by.by *= groups;
    return ASP_B1(&u->b, rotate, &by, x);
}

// Of bf16 keys and values go round as such; where there are several blocks each is computed in f32,
// which is also what dk and dv are summed and go round in, and the whole is rounded once: rings
// give what one rank gives, but for the order of sums in f32.
static asp_val full(unroller *u, asp_val x)
{
    const asp_cast_attr to = {.to = ASP_F32};
    if (!x.i || asp_val_type(u->g, x)->dtype != ASP_BF16) return x;
    return ASP_B1(&u->b, cast, &to, x);
}

static asp_val like(unroller *u, asp_val x, asp_val of)
{
    const asp_cast_attr to = {.to = asp_val_type(u->g, of)->dtype};
    if (!x.i || asp_val_type(u->g, x)->dtype == to.to) return x;
    return ASP_B1(&u->b, cast, &to, x);
}

// ---- steps -------------------------------------------------------------------------------------

static bool any_rank_meets(const asp_graph *g, const asp_sdpa_attr *a, const int64_t *sizes)
{
    const int64_t in_group = g->ranks / a->rings;
    for (int64_t i = a->rings; i-- > 0;) { // the last ones see most
        const asp_kcall call = asp_sdpa_ring_call(a, sizes, g->ranks, i * in_group);
        if (asp_sdpa_meets(&call)) return true;
    }
    return false;
}

static bool same_steps(const asp_sdpa_attr *a, const asp_sdpa_attr *b)
{
    return strcmp(a->mask, b->mask) == 0 && strcmp(a->empty, b->empty) == 0 &&
           a->causal == b->causal && a->rings == b->rings && a->zigzag == b->zigzag &&
           asp_size_equal(a->tokens, b->tokens) && asp_size_equal(a->keys, b->keys);
}

static const steps *find_steps(asp_pass *px, const asp_graph *g, const asp_sdpa_attr *attr,
                               steps **known)
{
    int64_t sizes[2];
    const asp_size of[2] = {attr->tokens, attr->keys};
    bool sized = attr->rings > 1;
    for (steps *s = *known; s; s = s->older)
        if (same_steps(&s->attr, attr)) return s;
    for (int i = 0; i < 2 && sized; i++)
        sized = asp_size_eval(g, of[i], &px->options->env, &sizes[i]) == ASP_OK && sizes[i] > 0;
    steps *s = ASP_NEW(px->scratch, steps);
    *s = (steps){.attr = *attr, .n = 1, .older = *known}; // the own block begins everything
    s->at = ASP_NEW_ARRAY(px->scratch, int64_t, attr->rings);
    for (int64_t t = 1; t < attr->rings; t++) {
        asp_sdpa_attr a = *attr;
        a.step = t;
        if (!sized || any_rank_meets(g, &a, sizes)) s->at[s->n++] = t;
    }
    *known = s;
    return s;
}

// How far keys go behind block i.
static int64_t next(const unroller *u, int64_t i) { return u->steps->at[i + 1] - u->steps->at[i]; }

// ---- blocks ------------------------------------------------------------------------------------

// The block of the keys that have come `step` groups far.  Sinks count once, at the first.
static asp_val block(unroller *u, asp_op op, int64_t step)
{
    asp_sdpa_attr a = u->attr;
    asp_val in[ASP_MAX_OPERANDS];
    uint32_t n = 0;
    const bool sinks = step == 0 && op == ASP_OP_sdpa;
    a.step = step;
    a.sinks = a.sinks && sinks;
    for (uint32_t i = 0; i < u->n_in; i++)
        if (i == 0 || i != u->sinks || sinks) in[n++] = u->in[i];
    in[1] = u->k;
    in[2] = u->v;
    for (uint32_t i = 0; i < u->n_first && u->steps->n > 1; i++) in[i] = full(u, in[i]);
    return asp_build(&u->b, op, &a, n, in);
}

static void forward(unroller *u, asp_val *out)
{
    for (int64_t i = 0; i < u->steps->n; i++) {
        const bool last = i + 1 == u->steps->n;
        const asp_val k = last ? u->k : rotated(u, u->k, next(u, i));
        const asp_val v = last ? u->v : rotated(u, u->v, next(u, i));
        const asp_val o = block(u, ASP_OP_sdpa, u->steps->at[i]), l = asp_build_result(&u->b, o, 1);
        u->k = k, u->v = v;
        if (i == 0) {
            out[0] = o, out[1] = l;
            continue;
        }
        const asp_val both[] = {out[0], out[1], o, l};
        out[0] = asp_build(&u->b, ASP_OP_merge_attention, NULL, 4, both);
        out[1] = asp_build_result(&u->b, out[0], 1);
    }
}

static asp_val sum(unroller *u, asp_val a, asp_val b)
{
    b = full(u, b);
    return a.i ? ASP_B2(&u->b, add, NULL, a, b) : b;
}

static void backward(unroller *u, asp_val *out)
{
    asp_val collected[2] = {{0}, {0}}; // dk and dv, on their way with k and v
    if (u->steps->n > 1) {
        const asp_val k = rotated(u, u->k, next(u, 0));
        u->v = rotated(u, u->v, next(u, 0)), u->k = k;
    }
    for (int64_t i = 1; i < u->steps->n; i++) {
        const bool last = i + 1 == u->steps->n;
        const asp_val k = last ? u->in[1] : rotated(u, u->k, next(u, i)),
                      v = last ? u->in[2] : rotated(u, u->v, next(u, i));
        const asp_val dq = block(u, ASP_OP_sdpa_grad, u->steps->at[i]);
        const int64_t on = last ? u->attr.rings - u->steps->at[i] : next(u, i); // last: home
        u->k = k, u->v = v;
        out[0] = sum(u, out[0], dq);
        for (uint32_t j = 0; j < 2; j++)
            collected[j] = rotated(u, sum(u, collected[j], asp_build_result(&u->b, dq, j + 1)), on);
    }
    const asp_val own = block(u, ASP_OP_sdpa_grad, 0);
    out[0] = sum(u, out[0], own);
    for (uint32_t i = 0; i < 2; i++)
        out[i + 1] = sum(u, collected[i], asp_build_result(&u->b, own, i + 1));
}

static asp_status unroll(asp_pass *px, asp_graph *g, asp_node n, steps **known, asp_val *map)
{
    const asp_node_info info = *asp_node_at(g, n);
    const bool is_forward = info.op == ASP_OP_ring_sdpa;
    unroller u = {.g = g,
                  .b = {.g = g, .before = n, .loc = info.loc},
                  .attr = *(const asp_sdpa_attr *)info.attr,
                  .n_first = is_forward ? 3 : 6,
                  .n_in = info.n_in};
    asp_val out[3] = {{0}, {0}, {0}};
    asp_mask m;
    ASP_CHECK(asp_mask_read(u.attr.mask, &m));
    u.sinks = asp_sdpa_parts_of(&u.attr, &m, u.n_first).sinks;
    u.by = (asp_rotate_attr){.by = g->ranks / u.attr.rings, .ranks = g->ranks};
    memcpy(u.in, info.in, info.n_in * sizeof *info.in);
    u.k = u.in[1], u.v = u.in[2];
    u.steps = find_steps(px, g, &u.attr, known);
    if (is_forward)
        forward(&u, out);
    else
        backward(&u, out);
    for (uint32_t i = 0; i < info.n_out && u.b.status == ASP_OK; i++)
        out[i] = like(&u, out[i], (asp_val){info.first.i + i});
    ASP_TRY(u.b.status);
    for (uint32_t i = 0; i < info.n_out; i++) map[info.first.i + i] = out[i];
    return ASP_OK;
}

asp_status asp_pass_ring(asp_pass *px, asp_graph *g)
{
    uint32_t n_old = g->vals.n;
    asp_val *map = ASP_NEW_ARRAY(px->scratch, asp_val, n_old);
    steps *known = NULL;
    for (asp_node n = g->head, next; n.i; n = next) {
        next = asp_node_at(g, n)->next;
        asp_node_info *info = asp_node_at(g, n);
        for (uint32_t i = 0; i < info->n_in; i++)
            if (info->in[i].i < n_old && map[info->in[i].i].i) info->in[i] = map[info->in[i].i];
        if (info->op != ASP_OP_ring_sdpa && info->op != ASP_OP_ring_sdpa_grad) continue;
        ASP_TRY(unroll(px, g, n, &known, map));
        asp_graph_remove(g, n);
        px->changes++;
    }
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        asp_val v = g->outputs.at[i].val;
        if (v.i < n_old && map[v.i].i) g->outputs.at[i].val = map[v.i];
    }
    return ASP_OK;
}
