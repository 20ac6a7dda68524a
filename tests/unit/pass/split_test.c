// Split programs against one device, in numbers: every rank's joint graph runs on the f64 reference
// kernels, all ranks in step in one thread, exchanges written down here.  Loss of every rank and
// the summed gradients must be those of one rank.  SPDX-License-Identifier: Apache-2.0
#include "base/part.h"
#include "kern/kern.h"
#include "pass/pass.h"
#include "unit/pass/llama.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MAX_RANKS 8

static asp_ctx cx;
static asp_arena arena;
static asp_team *team;

typedef struct machine {
    asp_graph *g;
    asp_env env;
    int ranks;
    asp_tensor *val[MAX_RANKS]; // by value
    int ignored;                // labels below this position are ignored
} machine;

static double noise(uint64_t key) // in [-0.5, 0.5)
{
    key = key * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    key ^= key >> 29;
    key *= UINT64_C(0xbf58476d1ce4e5b9);
    return (double)(key >> 11) * 0x1p-53 - 0.5;
}

static asp_tensor make(const machine *m, asp_val v)
{
    const asp_type *type = asp_val_type(m->g, v);
    asp_tensor t = {.dtype = type->dtype, .rank = (int)type->rank};
    for (uint32_t d = 0; d < type->rank; d++)
        assert_int_equal(asp_size_eval(m->g, type->dim[d], &m->env, &t.dim[d]), ASP_OK);
    t.data = asp_alloc_bytes(&arena, (size_t)asp_tensor_count(&t), 8);
    return t;
}

static void fill(const machine *m, const asp_node_info *info, asp_tensor *t)
{
    const char *name = info->op == ASP_OP_input ? ((const asp_input_attr *)info->attr)->name
                                                : ((const asp_param_attr *)info->attr)->name;
    uint64_t key = asp_hash(name, strlen(name), 7);
    for (int64_t i = 0; i < asp_tensor_count(t); i++) {
        int64_t position = t->rank ? i % t->dim[t->rank - 1] : 0;
        if (info->op == ASP_OP_param)
            ((double *)t->data)[i] = noise(key + (uint64_t)i);
        else if (strcmp(name, "pos") == 0)
            ((int64_t *)t->data)[i] = 100 + position;
        else
            ((int64_t *)t->data)[i] = (int64_t)((noise(key + (uint64_t)i) + 0.5) * LLAMA_VOCAB);
        if (strcmp(name, "labels") == 0 && (position < m->ignored || position % 5 == 3))
            ((int64_t *)t->data)[i] = -100;
    }
}

// Element i of a row-major array of these dims -> index per dim, and back.
static void unravel(const asp_tensor *t, int64_t i, int64_t *at)
{
    for (int d = t->rank - 1; d >= 0; d--) {
        at[d] = i % t->dim[d];
        i /= t->dim[d];
    }
}

static int64_t ravel(const asp_tensor *t, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < t->rank; d++) i = i * t->dim[d] + at[d];
    return i;
}

// Element `at` of rank r's result is global in dim gather and rank r's part of dim split.
static void all_to_all(const machine *m, const asp_node_info *info)
{
    const asp_a2a_attr *a = info->attr;
    const int64_t n = m->val[0][info->in[0].i].dim[a->split];
    for (int r = 0; r < m->ranks; r++) {
        asp_tensor *y = &m->val[r][info->first.i];
        const asp_part mine = asp_part_of(n, m->ranks, r);
        for (int64_t i = 0; i < asp_tensor_count(y); i++) {
            int64_t at[ASP_MAX_RANK], owner = 0;
            unravel(y, i, at);
            const bool tail = at[a->split] >= mine.n;
            if (tail) at[a->split] = mine.n - 1;
            while (asp_part_of(y->dim[a->gather], m->ranks, owner + 1).at <= at[a->gather]) owner++;
            const asp_tensor *x = &m->val[owner][info->in[0].i];
            at[a->gather] -= asp_part_of(y->dim[a->gather], m->ranks, owner).at;
            at[a->split] += mine.at;
            ((double *)y->data)[i] =
                tail && (a->zero || mine.n == 0) ? 0 : ((double *)x->data)[ravel(x, at)];
        }
    }
}

static void all_reduce(const machine *m, const asp_node_info *info)
{
    for (int r = 0; r < m->ranks; r++) {
        asp_tensor *y = &m->val[r][info->first.i];
        for (int64_t i = 0; i < asp_tensor_count(y); i++) {
            double sum = 0;
            for (int p = 0; p < m->ranks; p++) sum += ((double *)m->val[p][info->in[0].i].data)[i];
            ((double *)y->data)[i] = sum;
        }
    }
}

typedef struct kernel_call {
    asp_kernel *fn;
    asp_kcall k;
} kernel_call;

static void call(void *arg, asp_worker *w)
{
    kernel_call *c = arg;
    c->fn(&c->k, w);
}

static void run_kernel(const machine *m, const asp_node_info *info, int r)
{
    const asp_kern_row *row = asp_kern_ref(info->op);
    if (!row) fail_msg("no kernel for %s", asp_ops[info->op].name);
    int64_t sizes[8];
    int n_sizes = 0;
    kernel_call c = {.fn = row->fn,
                     .k = {.attr = info->attr,
                           .n_in = (int)info->n_in,
                           .n_out = (int)info->n_out,
                           .rank = r,
                           .ranks = m->ranks,
                           .sizes = sizes}};
    for (const asp_field *f = asp_ops[info->op].fields(); f->name; f++)
        if (f->kind == ASP_KIND_size) {
            const asp_size *size = (const void *)((const char *)info->attr + f->offset);
            assert_int_equal(asp_size_eval(m->g, *size, &m->env, &sizes[n_sizes++]), ASP_OK);
        }
    for (uint32_t i = 0; i < info->n_in; i++) c.k.in[i] = m->val[r][info->in[i].i];
    for (uint32_t i = 0; i < info->n_out; i++) c.k.out[i] = m->val[r][info->first.i + i];
    c.k.work_bytes = row->work ? row->work(&c.k, 1) : 0;
    c.k.work = asp_alloc_bytes(&arena, (size_t)c.k.work_bytes + 64, 1);
    c.k.work = (void *)(((uintptr_t)c.k.work + 63) / 64 * 64);
    asp_team_run(team, call, &c);
}

static void run_machine(machine *m)
{
    for (int r = 0; r < m->ranks; r++) m->val[r] = ASP_NEW_ARRAY(&arena, asp_tensor, m->g->vals.n);
    ASP_FOR_NODES (m->g, n) {
        const asp_node_info *info = asp_node_at(m->g, n);
        for (int r = 0; r < m->ranks; r++) {
            for (uint32_t i = 0; i < info->n_out; i++)
                m->val[r][info->first.i + i] = make(m, asp_node_result(m->g, n, i));
            asp_tensor *y = &m->val[r][info->first.i];
            if (info->op == ASP_OP_input || info->op == ASP_OP_param)
                fill(m, info, y);
            else if (info->op == ASP_OP_view)
                y->data = m->val[r][info->in[0].i].data;
            else if (!asp_op_has(info->op, ASP_COLLECTIVE))
                run_kernel(m, info, r);
        }
        if (info->op == ASP_OP_all_to_all) all_to_all(m, info);
        if (info->op == ASP_OP_all_reduce) all_reduce(m, info);
    }
}

// A program of f32 text in f64, split and with its derivative, run.
static machine run_text(const char *text, int ranks, int64_t S, int64_t B, int ignored)
{
    machine m = {.ranks = ranks, .ignored = ignored, .env = {.at = {{"S", S}, {"B", B}}, .n = 2}};
    char *wide = asp_copy_str(&arena, text);
    for (char *s = wide; (s = strstr(s, "f32"));) memcpy(s, "f64", 3);
    asp_pass_options options = {
        .ranks = ranks, .sp = "ulysses", .ac = "none", .dtype = ASP_F64, .env = m.env};
    if (asp_graph_parse(&cx, "t.ir", wide, strlen(wide), &m.g) < 0) fail_msg("%s", cx.message);
    if (asp_passes_run(&cx, m.g, ASP_PIPELINE_SHARD "," ASP_PIPELINE_JOINT, &options, NULL) < 0)
        fail_msg("%s", cx.message);
    run_machine(&m);
    return m;
}

// Sum over ranks of output o's element i; the loss itself is equal on all ranks.
static double output(const machine *m, uint32_t o, int64_t i)
{
    double sum = 0;
    uint32_t v = m->g->outputs.at[o].val.i;
    if (o == 0) return ((double *)m->val[0][v].data)[i];
    for (int r = 0; r < m->ranks; r++) sum += ((double *)m->val[r][v].data)[i];
    return sum;
}

static int64_t output_count(const machine *m, uint32_t o)
{
    return asp_tensor_count(&m->val[0][m->g->outputs.at[o].val.i]);
}

static double norm(const machine *m, uint32_t o)
{
    double sum = 0;
    for (int64_t i = 0; i < output_count(m, o); i++) sum += output(m, o, i) * output(m, o, i);
    return sqrt(sum);
}

// Gradient error: |dg| <= 1e-11 max(|g|, |all g| / 100); loss: 1e-12 of it.
static void compare(const machine *one, const machine *many)
{
    double all = 0;
    uint32_t n = one->g->outputs.n;
    assert_int_equal(n, many->g->outputs.n);
    for (int r = 0; r < many->ranks; r++) {
        double l = ((double *)many->val[r][many->g->outputs.at[0].val.i].data)[0];
        assert_true(fabs(l - output(one, 0, 0)) <= 1e-12 * fabs(output(one, 0, 0)));
    }
    for (uint32_t o = 1; o < n; o++) all += norm(one, o) * norm(one, o);
    assert_true(all > 0);
    for (uint32_t o = 1; o < n; o++) {
        double error = 0;
        assert_string_equal(one->g->outputs.at[o].name, many->g->outputs.at[o].name);
        for (int64_t i = 0; i < output_count(one, o); i++)
            error += pow(output(one, o, i) - output(many, o, i), 2);
        if (sqrt(error) > 1e-11 * fmax(norm(one, o), sqrt(all) / 100))
            fail_msg("%s on %d ranks: error %g, norm %g", one->g->outputs.at[o].name, many->ranks,
                     sqrt(error), norm(one, o));
    }
}

static void check(const char *text, const int *ranks, int64_t S, int64_t B, int ignored)
{
    machine one = run_text(text, 1, S, B, ignored);
    for (; *ranks; ranks++) {
        machine many = run_text(text, *ranks, S, B, ignored);
        compare(&one, &many);
        asp_graph_destroy(many.g);
    }
    asp_graph_destroy(one.g);
    asp_arena_reset(&arena);
}

static void llamas_equal_one_device(void **state)
{
    (void)state;
    static const int powers[] = {2, 4, 8, 0}, threes[] = {3, 6, 0}, twos[] = {2, 4, 0};
    static const int kv_heads[] = {1, 2, 8};
    for (int variant = 0; variant < 6; variant++) {
        llama_shape m = {.layers = 2, .heads = 8, .B = "B", .S = "S"};
        m.kv_heads = kv_heads[variant % 3];
        m.tied = variant == 1;
        m.flat_mlp = variant == 2 || variant == 5;
        m.given_positions = variant == 3;
        m.wpe = variant == 4;
        m.reduction = variant == 5 ? "sum" : "mean";
        // from the second variant on the first half of the labels is ignored: a shard without any
        check(llama_text(&arena, &m), powers, 16, variant == 2 ? 3 : 2, variant ? 8 : 0);
    }
    llama_shape m = {.layers = 1, .heads = 6, .kv_heads = 3, .B = "B", .S = "S"};
    check(llama_text(&arena, &m), threes, 12, 2, 0);
    llama_shape equal = {.layers = 1, .heads = 8, .kv_heads = 8, .B = "8", .S = "8"};
    check(llama_text(&arena, &equal), twos, 8, 8, 0);
}

#define IDS "%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n"
#define TABLE "%w : f32[31, 32] = param {name = \"w\"}\n"
#define SDPA(out, q, k, v) \
    "%" out ", %" out "l : f32[B, 4, S, 8], f32[B, 4, S] = sdpa %" q ", %" k ", %" v "\n"

// Sequence first and pooled over tokens before a product; attention that stays on its heads; the
// value that is q, k, v and residual; labels in flat rows.
static void other_layouts_equal_one_device(void **state)
{
    (void)state;
    static const int ranks[] = {2, 4, 0};
    static const char *const bodies[] = {
        IDS TABLE
        "%t : i64[S, B] = permute %ids {perm = [1, 0]}\n"
        "%x : f32[S, B, 32] = embedding %t, %w\n"
        "%h : f32[S, B, 4, 8] = view %x {shape = [S, B, 4, 8]}\n"
        "%q : f32[B, 4, S, 8] = permute %h {perm = [1, 2, 0, 3]}\n" SDPA(
            "o", "q", "q", "q") "%b : f32[S, B, 4, 8] = permute %o {perm = [2, 0, 1, 3]}\n"
                                "%c : f32[S, B, 32] = view %b {shape = [S, B, 32]}\n"
                                "%p : f32[B, 32] = sum %c {dims = [0]}\n"
                                "%u : f32[5, 32] = param {name = \"u\"}\n"
                                "%y : f32[B, 5] = linear %p, %u\n%s : f32[B, 5] = silu %y\n"
                                "%z : f32[] = sum %s {dims = [0, 1]}\nreturn \"loss\" = %z\n",
        IDS TABLE
        "%x : f32[B, S, 32] = embedding %ids, %w\n"
        "%h : f32[B, S, 4, 8] = view %x {shape = [B, S, 4, 8]}\n"
        "%q : f32[B, 4, S, 8] = permute %h {perm = [0, 2, 1, 3]}\n" SDPA(
            "o", "q", "q",
            "q") "%n : f32[B, 4, S, 8] = silu %o\n" SDPA("p", "n", "q",
                                                         "o") "%r : f32[B, 4, S, 8] = add %p, "
                                                              "%q\n%s : f32[B, 4, S, 8] = silu %r\n"
                                                              "%z : f32[] = sum %s {dims = [0, 1, "
                                                              "2, 3]}\nreturn \"loss\" = %z\n",
        IDS TABLE "%labels : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n"
                  "%next : i64[B, S] = shift %labels\n"
                  "%flat : i64[B*S] = view %next {shape = [B*S]}\n"
                  "%x : f32[B, S, 32] = embedding %ids, %w\n"
                  "%a : f32[B*S, 32] = view %x {shape = [B*S, 32]}\n"
                  "%y : f32[B*S, 31] = linear %a, %w\n"
                  "%z : f32[] = cross_entropy %y, %flat\nreturn \"loss\" = %z\n",
    };
    for (size_t i = 0; i < ASP_COUNT_OF(bodies); i++)
        check(asp_printf(&arena, "graph g {\n%s}\n", bodies[i]), ranks, 8, 3, 2);
}

static int setup(void **state)
{
    (void)state;
    asp_ctx_init(&cx);
    asp_arena_init(&arena, &cx);
    return asp_team_create(&cx, 1, -1, &team);
}

static int teardown(void **state)
{
    (void)state;
    asp_team_destroy(team);
    asp_arena_fini(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llamas_equal_one_device),
        cmocka_unit_test(other_layouts_equal_one_device),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
