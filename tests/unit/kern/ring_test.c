// Attention on blocks, merged, against attention over all keys: every rank of a ring played in
// turn, in both orders, forward and backward, at every level.  SPDX-License-Identifier: Apache-2.0
#include "base/rows.h"
#include "kern/kern.h"
#include "op/attention.h"
#include "unit/sparse.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static asp_ctx cx;

typedef struct shape {
    int64_t b, n, k, tokens, keys, d, e;
    bool causal;
} shape;

enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, TENSORS };

typedef struct set {
    asp_tensor t[TENSORS];
} set;

static double get(const asp_tensor *t, int64_t i)
{
    return t->dtype == ASP_F64 ? ((double *)t->data)[i] : (double)((float *)t->data)[i];
}

static void put(const asp_tensor *t, int64_t i, double v)
{
    if (t->dtype == ASP_F64)
        ((double *)t->data)[i] = v;
    else
        ((float *)t->data)[i] = (float)v;
}

static void *zeroed(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)asp_round_up(bytes + 1, 64));
    assert_non_null(p);
    memset(p, 0, (size_t)bytes + 1);
    return p;
}

static set new_set(const shape *s, asp_dtype dtype, int64_t n_q, int64_t n_k)
{
    const asp_tensor q = {NULL, dtype, 4, {s->b, s->n, n_q, s->d}};
    const asp_tensor k = {NULL, dtype, 4, {s->b, s->k, n_k, s->d}};
    const asp_tensor v = {NULL, dtype, 4, {s->b, s->k, n_k, s->e}};
    const asp_tensor out = {NULL, dtype, 4, {s->b, s->n, n_q, s->e}};
    const asp_tensor lse = {NULL, dtype, 3, {s->b, s->n, n_q}};
    set x = {{q, k, v, out, lse, out, q, k, v}};
    for (int i = 0; i < TENSORS; i++)
        x.t[i].data = zeroed(asp_tensor_count(&x.t[i]) * asp_dtypes[dtype].bytes);
    return x;
}

static void free_set(set *x)
{
    for (int i = 0; i < TENSORS; i++) free(x->t[i].data);
}

static void fill(const asp_tensor *t, uint32_t seed)
{
    for (int64_t i = 0; i < asp_tensor_count(t); i++) {
        seed = seed * 1664525u + 1013904223u;
        put(t, i, 2.0 * (double)(int32_t)seed / 2147483648.0);
    }
}

// The rows of one group between whole and part; what stands in the tail of the part is rubbish.
static void move_rows(const asp_tensor *whole, const asp_tensor *part, const asp_rows *r,
                      bool to_part)
{
    const int64_t width = whole->rank == 4 ? whole->dim[3] : 1, n = whole->dim[2], m = part->dim[2];
    for (int64_t h = 0; h < whole->dim[0] * whole->dim[1]; h++)
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = asp_rows_place(r, i);
            for (int64_t x = 0; x < width; x++) {
                const int64_t in_part = (h * m + i) * width + x;
                if (to_part)
                    put(part, in_part, at < 0 ? 7.5 : get(whole, (h * n + at) * width + x));
                else if (at >= 0)
                    put(whole, (h * n + at) * width + x, get(part, in_part));
            }
        }
}

static void add_to(const asp_tensor *to, const asp_tensor *x)
{
    for (int64_t i = 0; i < asp_tensor_count(to); i++) put(to, i, get(to, i) + get(x, i));
}

typedef struct job {
    asp_kernel *fn;
    const asp_kcall *call;
} job;

static void work(void *arg, asp_worker *w)
{
    const job *j = arg;
    j->fn(j->call, w);
}

static void call(const asp_kern_row *row, asp_kcall *k)
{
    asp_team *team;
    assert_int_equal(asp_team_create(&cx, 2, -1, &team), ASP_OK);
    k->work_bytes = row->work ? row->work(k, 2) : 0;
    k->work = zeroed(k->work_bytes);
    asp_team_run(team, work, &(job){row->fn, k});
    free(k->work);
    asp_team_destroy(team);
}

typedef struct ring {
    shape s;
    asp_dtype dtype;
    int isa; // -1: the reference
    int64_t rings, sizes[2];
    asp_sdpa_attr attr;
} ring;

static const asp_kern_row *row_of(const ring *r, asp_op op)
{
    return r->isa < 0 ? asp_kern_ref(op) : asp_kern_choose_at(op, r->dtype, (asp_isa)r->isa);
}

static void attention(const ring *r, int64_t rank, const asp_sdpa_attr *attr, set *x, bool backward)
{
    asp_kcall k = {.attr = attr,
                   .sizes = r->sizes,
                   .rank = (int)rank,
                   .ranks = (int)r->rings,
                   .n_in = backward ? 6 : 3,
                   .n_out = backward ? 3 : 2};
    memcpy(k.in, x->t, (size_t)k.n_in * sizeof *k.in);
    memcpy(k.out, x->t + (backward ? DQ : OUT), (size_t)k.n_out * sizeof *k.out);
    call(row_of(r, backward ? ASP_OP_sdpa_grad : ASP_OP_sdpa), &k);
}

static void merge(const ring *r, set *all, const set *part)
{
    asp_kcall k = {.n_in = 4,
                   .n_out = 2,
                   .in = {all->t[OUT], all->t[LSE], part->t[OUT], part->t[LSE]},
                   .out = {all->t[OUT], all->t[LSE]}};
    call(row_of(r, ASP_OP_merge_attention), &k);
}

// Rank `rank` of the ring: out, lse, dq into their rows of `got`; dk, dv added to all their rows.
static void play_rank(const ring *r, int64_t rank, const set *whole, set *got)
{
    const int64_t n_q = asp_rows_room(r->s.tokens, r->rings);
    const int64_t n_k = asp_rows_room(r->s.keys, r->rings);
    const bool zigzag = r->attr.zigzag;
    const asp_rows q_rows = asp_rows_of_group(r->s.tokens, r->rings, zigzag, rank);
    set all = new_set(&r->s, r->dtype, n_q, n_k);
    for (int backward = 0; backward < 2; backward++)
        for (int64_t step = 0; step < r->rings; step++) {
            const int64_t from = (rank + r->rings - step) % r->rings;
            const asp_rows k_rows = asp_rows_of_group(r->s.keys, r->rings, zigzag, from);
            asp_sdpa_attr attr = r->attr;
            set part = new_set(&r->s, r->dtype, n_q, n_k);
            set back = new_set(&r->s, r->dtype, r->s.tokens, r->s.keys);
            attr.step = step;
            move_rows(&whole->t[Q], &part.t[Q], &q_rows, true);
            move_rows(&whole->t[DOUT], &part.t[DOUT], &q_rows, true);
            move_rows(&whole->t[K], &part.t[K], &k_rows, true);
            move_rows(&whole->t[V], &part.t[V], &k_rows, true);
            if (backward) {
                memcpy(part.t[OUT].data, all.t[OUT].data,
                       (size_t)(asp_tensor_count(&all.t[OUT]) * asp_dtypes[r->dtype].bytes));
                memcpy(part.t[LSE].data, all.t[LSE].data,
                       (size_t)(asp_tensor_count(&all.t[LSE]) * asp_dtypes[r->dtype].bytes));
            }
            attention(r, rank, &attr, &part, backward);
            if (!backward && step == 0) {
                for (int i = OUT; i <= LSE; i++)
                    for (int64_t j = 0; j < asp_tensor_count(&all.t[i]); j++)
                        put(&all.t[i], j, get(&part.t[i], j));
            } else if (!backward)
                merge(r, &all, &part);
            if (backward) {
                add_to(&all.t[DQ], &part.t[DQ]);
                for (int i = DK; i <= DV; i++) {
                    move_rows(&back.t[i], &part.t[i], &k_rows, false);
                    add_to(&got->t[i], &back.t[i]);
                    for (int64_t h = 0; h < r->s.b * r->s.k; h++) // the tail is exactly 0
                        for (int64_t j = asp_rows_count(&k_rows); j < n_k; j++)
                            assert_true(get(&part.t[i], (h * n_k + j) * part.t[i].dim[3]) == 0);
                }
            }
            free_set(&part);
            free_set(&back);
        }
    for (int i = OUT; i <= LSE; i++) move_rows(&got->t[i], &all.t[i], &q_rows, false);
    move_rows(&got->t[DQ], &all.t[DQ], &q_rows, false);
    free_set(&all);
}

static void compare(const ring *r, const set *want, const set *got, double bound)
{
    static const int results[] = {OUT, LSE, DQ, DK, DV};
    for (size_t i = 0; i < ASP_COUNT_OF(results); i++) {
        const asp_tensor *a = &want->t[results[i]], *b = &got->t[results[i]];
        double largest = 0, error = 0;
        for (int64_t j = 0; j < asp_tensor_count(a); j++) {
            largest = fmax(largest, fabs(get(a, j)));
            error = fmax(error, fabs(get(a, j) - get(b, j)));
        }
        if (!(error <= bound * largest))
            fail_msg("%lld of %d rings, %lld tokens, zigzag %d, causal %d, level %d: result %d is "
                     "off by %g of %g",
                     (long long)r->rings, (int)r->s.n, (long long)r->s.tokens, r->attr.zigzag,
                     r->s.causal, r->isa, results[i], error, largest);
    }
}

static void check_ring(ring r, double bound)
{
    set whole = new_set(&r.s, r.dtype, r.s.tokens, r.s.keys);
    set got = new_set(&r.s, r.dtype, r.s.tokens, r.s.keys);
    const asp_sdpa_attr plain = asp_sdpa_attr_of(0.3, r.s.causal);
    ring one = {.s = r.s, .dtype = r.dtype, .isa = -1, .rings = 1};
    for (int i = Q; i <= V; i++) fill(&whole.t[i], (uint32_t)i + 1);
    fill(&whole.t[DOUT], 9);
    attention(&one, 0, &plain, &whole, false);
    attention(&one, 0, &plain, &whole, true);
    r.attr = plain;
    r.attr.rings = r.rings;
    r.sizes[0] = r.s.tokens, r.sizes[1] = r.s.keys;
    for (int zigzag = 0; zigzag < 2; zigzag++) {
        r.attr.zigzag = zigzag;
        for (int i = 0; i < TENSORS; i++)
            memset(got.t[i].data, 0,
                   (size_t)(asp_tensor_count(&got.t[i]) * asp_dtypes[r.dtype].bytes));
        for (int64_t rank = 0; rank < r.rings; rank++) play_rank(&r, rank, &whole, &got);
        compare(&r, &whole, &got, bound);
    }
    free_set(&whole);
    free_set(&got);
}

static void small_rings_in_f64(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {2, 4, 2, 11, 11, 3, 2, true}, // groups, rows that do not divide
        {1, 2, 2, 8, 8, 4, 4, false},
        {1, 3, 1, 7, 12, 2, 3, false}, // cross-attention
        {1, 1, 1, 2, 2, 2, 2, true},   // fewer rows than chunks
    };
    for (size_t i = 0; i < ASP_COUNT_OF(shapes); i++)
        for (int64_t rings = 1; rings <= 5; rings += SPARSE(2))
            check_ring((ring){.s = shapes[i], .dtype = ASP_F64, .isa = -1, .rings = rings}, 1e-13);
}

// Long enough that blocks and chunks of the kernels end inside of segments.
static void rings_at_every_level(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {1, 2, 1, 1000, 1000, 16, 16, true},
        {1, 2, 2, 131, 131, 16, 32, true},
        {2, 2, 1, 90, 217, 16, 16, false},
    };
    for (int isa = 0; isa <= (int)asp_isa_best(); isa++)
        for (size_t i = 0; i < ASP_COUNT_OF(shapes); i++)
            for (int64_t rings = i == 0 ? 2 : 1; rings <= (i == 0 ? 2 : 4); rings++)
                check_ring((ring){.s = shapes[i], .dtype = ASP_F32, .isa = isa, .rings = rings},
                           2e-5);
}

// Pairs of all ranks and steps are the pairs there are; zig-zag shares them out within 5 %.
static void work_is_shared_out(void **state)
{
    (void)state;
    for (int64_t ranks = 2; ranks <= 8; ranks++)
        for (int zigzag = 0; zigzag < 2; zigzag++) {
            const int64_t n = 400 * ranks + 3, sizes[] = {n, n}, room = asp_rows_room(n, ranks);
            int64_t all = 0, most = 0;
            for (int rank = 0; rank < ranks; rank++) {
                int64_t mine = 0;
                for (int64_t step = 0; step < ranks; step++) {
                    asp_sdpa_attr a = asp_sdpa_attr_of(1, true);
                    a.rings = ranks, a.step = step, a.zigzag = zigzag;
                    const asp_kcall k = {
                        .attr = &a,
                        .sizes = sizes,
                        .rank = rank,
                        .ranks = (int)ranks,
                        .in = {{.dim = {1, 1, room, 1}}, {.dim = {1, 1, room, 1}}}};
                    mine += asp_sdpa_pairs(&k);
                }
                all += mine;
                most = asp_max(most, mine);
            }
            assert_int_equal(all, n * (n + 1) / 2);
            if (zigzag) assert_true(100 * most * ranks <= 105 * all);
        }
}

int main(void)
{
    asp_ctx_init(&cx);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_rings_in_f64),
        cmocka_unit_test(rings_at_every_level),
        cmocka_unit_test(work_is_shared_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
