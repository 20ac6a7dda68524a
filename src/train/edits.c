// A framework's own graph through autosp.h: read, passes, what to change; and the proof that what
// was changed is what the passes made.  Neighbours: front/aten_edit.c (the list), pass/pass.h
// (ASP_PIPELINE_KEPT), python/autosp (who calls).  SPDX-License-Identifier: Apache-2.0
#include "base/rows.h"
#include "pass/axes.h"
#include "pass/pass.h"
#include "run/compile.h"
#include "train/train_int.h"

struct asp_edits {
    asp_ctx *cx;           // borrowed
    asp_arena arena;       // owns what follows and the struct
    const char *file, *sp; // sp: the strategy that was taken
    asp_dtype dtype;
    int64_t ranks;
    uint64_t hash; // of the graph's text
    bool told;     // some view says where its operand is split
    const char *json, *text, *canonical;
};

// ---- one text for equal programs ----------------------------------------------------------------

// Moves v's node behind what it reads, in the order of a walk from the outputs.
static void settle(asp_graph *g, asp_node n, bool *done, asp_arena *a)
{
    ASP_VEC(asp_node) stack = {0};
    ASP_PUSH(a, &stack, n);
    while (stack.n) {
        const asp_node at = stack.at[stack.n - 1];
        const asp_node_info *info = asp_node_at(g, at);
        uint32_t open = 0;
        for (uint32_t i = info->n_in; i-- > 0;) { // the first is settled first
            const asp_node in = asp_val_at(g, info->in[i])->node;
            if (done[in.i]) continue;
            ASP_PUSH(a, &stack, in);
            open++;
        }
        if (open) continue;
        stack.n--;
        if (done[at.i]) continue;
        done[at.i] = true;
        if (g->tail.i != at.i) asp_graph_move_before(g, at, (asp_node){0});
    }
}

static bool is_told(const asp_graph *g, asp_node n)
{
    const asp_node_info *info = asp_node_at(g, n);
    return info->op == ASP_OP_view && ((const asp_view_attr *)info->attr)->before.i;
}

// Does a view say where its operand is split?  A framework's views cannot.
static bool any_told(const asp_graph *g)
{
    ASP_FOR_NODES (g, n)
        if (is_told(g, n)) return true;
    return false;
}

static void untell_views(asp_graph *g)
{
    ASP_FOR_NODES (g, n) {
        if (!is_told(g, n)) continue;
        asp_view_attr a = *(const asp_view_attr *)asp_node_at(g, n)->attr;
        a.split = 0, a.before = (asp_size){0};
        asp_graph_set_attr(g, n, &a);
    }
}

// Without names and places, in an order that depends on what is computed alone.
static asp_status canonical(asp_ctx *cx, const asp_graph *g, asp_text *out)
{
    asp_arena a;
    asp_graph *c = asp_graph_clone(g);
    asp_arena_init(&a, cx);
    bool *done = ASP_NEW_ARRAY(&a, bool, c->nodes.n);
    c->name = "";
    untell_views(c);
    for (uint32_t v = 1; v < c->vals.n; v++) c->vals.at[v].name = NULL;
    for (uint32_t n = 1; n < c->nodes.n; n++) c->nodes.at[n].loc = "";
    for (uint32_t i = 0; i < c->outputs.n; i++)
        settle(c, asp_val_at(c, c->outputs.at[i].val)->node, done, &a);
    asp_pass px = {.cx = cx, .scratch = &a};
    asp_status s = asp_pass_dce(&px, c);
    for (asp_node n = c->head, next; n.i; n = next) { // dce leaves inputs and parameters
        next = asp_node_at(c, n)->next;
        if (!done[n.i]) asp_graph_remove(c, n);
    }
    asp_graph_print(c, out);
    asp_arena_fini(&a);
    asp_graph_destroy(c);
    return s;
}

// ---- making -------------------------------------------------------------------------------------

// An op that is not known runs as the framework says, on values that every rank has whole.
static asp_status check_unknown(asp_ctx *cx, asp_graph *g, const asp_aten_source *source)
{
    asp_arena a;
    asp_axes x;
    const char *what;
    const asp_val *in;
    uint32_t n;
    asp_status s = ASP_OK;
    asp_arena_init(&a, cx);
    asp_axes_analyse(&a, g, &x);
    for (uint32_t i = 0; s == ASP_OK && asp_aten_unknown(source, i, &what, &in, &n); i++)
        for (uint32_t k = 0; s == ASP_OK && k < n; k++)
            if (!x.replicable[in[k].i])
                s = asp_fail(cx, ASP_ERR_UNSUPPORTED,
                             "%s: this op is not supported where the sequence is split, and it "
                             "reads %s; `autosp docs aten` lists those that are",
                             what, asp_val_str(g, in[k]));
    asp_arena_fini(&a);
    return s;
}

static asp_status run_passes(asp_ctx *cx, const asp_edits *e, const char *sp, asp_graph *g,
                             const asp_aten_source *source)
{
    asp_machine machine;
    ASP_TRY(asp_machine_find(cx, &machine));
    const asp_device device = asp_device_of_rank(&machine, (int)e->ranks, 1);
    asp_pass_options o = {.ranks = e->ranks,
                          .sp = sp,
                          .ac = "none",
                          .dtype = e->dtype,
                          .kept = true,
                          .whole_outputs = asp_aten_wants_whole(source),
                          .device = &device};
    asp_env_fill(&o.env, &g->examples);
    if (e->ranks > 1) ASP_TRY(check_unknown(cx, g, source));
    ASP_TRY(asp_graph_typecheck(g));
    return asp_passes_run(cx, g, ASP_PIPELINE_KEPT, &o, NULL);
}

static asp_status fill(asp_ctx *cx, asp_edits *e, const char *json, size_t bytes, const char *sp)
{
    asp_graph *g;
    asp_aten_source *source;
    asp_text list, text, same;
    ASP_TRY(asp_front_aten_kept(cx, e->file, json, bytes, e->dtype, 1, &g, &source));
    asp_text_init(&list, &e->arena);
    asp_text_init(&text, &e->arena);
    asp_text_init(&same, &e->arena);
    asp_status s = run_passes(cx, e, sp, g, source);
    if (s == ASP_OK) s = asp_front_put_edits(cx, source, g, &list);
    if (s == ASP_OK) s = canonical(cx, g, &same);
    if (s == ASP_OK) asp_graph_print(g, &text);
    e->told = s == ASP_OK && any_told(g);
    asp_graph_destroy(g);
    asp_aten_source_destroy(source);
    e->json = list.at, e->text = text.at, e->canonical = same.at;
    e->sp = asp_copy_str(&e->arena, sp);
    return s < 0 ? asp_note(cx, s, "%s", e->file) : s;
}

// ---- which strategy -----------------------------------------------------------------------------

static int64_t example_of(const asp_graph *g, const char *symbol)
{
    for (int i = 0; i < g->examples.n; i++)
        if (strcmp(g->examples.at[i].symbol, symbol) == 0) return g->examples.at[i].value;
    return 1;
}

// What the program costs under each strategy, at the sizes of the file's examples.
static asp_status weigh(asp_ctx *cx, const asp_edits *e, const char *json, size_t bytes,
                        asp_choice *out)
{
    asp_graph *g, *joint;
    asp_aten_source *source;
    ASP_TRY(asp_front_aten_kept(cx, e->file, json, bytes, e->dtype, 1, &g, &source));
    const bool trains = g->outputs.n > 0 && strcmp(g->outputs.at[0].name, "loss") == 0;
    const asp_compile_options o = {.ranks = e->ranks,
                                   .batch = example_of(g, "B"),
                                   .seq = example_of(g, "S"),
                                   .threads = 1,
                                   .ac = "default",
                                   .dtype = e->dtype,
                                   .whole_outputs = asp_aten_wants_whole(source),
                                   .inference = !trains};
    const asp_status s = asp_compile_choose(cx, g, &o, out, &joint);
    if (s == ASP_OK) asp_graph_destroy(joint);
    asp_graph_destroy(g);
    asp_aten_source_destroy(source);
    return s;
}

// The quickest that has not been tried; NULL: none.
static asp_candidate *next_candidate(asp_choice *c)
{
    asp_candidate *best = NULL;
    for (int i = 0; i < c->n; i++)
        if (!*c->at[i].why && (!best || c->at[i].price.seconds < best->price.seconds))
            best = &c->at[i];
    return best;
}

// From the quickest on, the first that the framework can be told; else the mixed cut, whose refusal
// is the one to show.
static asp_status fill_best(asp_ctx *cx, asp_edits *e, const char *json, size_t bytes)
{
    asp_choice choice = {0};
    asp_status s = weigh(cx, e, json, bytes, &choice);
    if (s == ASP_ERR_NOMEM) return s;
    for (asp_candidate *c; s == ASP_OK && (c = next_candidate(&choice));) {
        const asp_status told = fill(cx, e, json, bytes, c->sp);
        if (told == ASP_OK || told == ASP_ERR_NOMEM) return told;
        snprintf(c->why, sizeof c->why, "PyTorch cannot be told");
    }
    return fill(cx, e, json, bytes, "mixed");
}

typedef struct edits_call {
    const char *file, *json, *dtype, *sp;
    size_t bytes;
    int64_t ranks;
    asp_edits *e;
} edits_call;

static asp_status create(asp_ctx *cx, void *arg)
{
    edits_call *call = arg;
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_edits *e = ASP_NEW(&a, asp_edits); // lies on its own arena
    e->cx = cx;
    e->arena = a;
    e->file = asp_copy_str(&e->arena, call->file);
    e->dtype = strcmp(call->dtype, "f64") == 0 ? ASP_F64 : ASP_F32;
    e->ranks = call->ranks;
    e->hash = asp_hash(call->json, call->bytes, 0);
    const bool weighs = e->ranks > 1 && (!call->sp || strcmp(call->sp, "auto") == 0);
    asp_status s = weighs ? fill_best(cx, e, call->json, call->bytes)
                          : fill(cx, e, call->json, call->bytes, call->sp ? call->sp : "auto");
    if (s == ASP_OK)
        call->e = e;
    else
        asp_edits_destroy(e);
    return s;
}

asp_status asp_edits_create(asp_ctx *cx, const char *file, const char *json, size_t bytes,
                            const char *dtype, int64_t ranks, const char *sp, asp_edits **out_edits)
{
    if (!cx) return ASP_ERR_USAGE;
    if (!file || !json || !dtype || !out_edits)
        return asp_fail(cx, ASP_ERR_USAGE, "file, json, dtype or out_edits is NULL");
    if (strcmp(dtype, "f32") != 0 && strcmp(dtype, "f64") != 0)
        return asp_fail(cx, ASP_ERR_USAGE, "dtype '%.20s' is neither f32 nor f64", dtype);
    if (ranks < 1 || ranks > ASP_MAX_RANKS)
        return asp_fail(cx, ASP_ERR_USAGE, "%lld ranks; 1 to %d", (long long)ranks, ASP_MAX_RANKS);
    edits_call call = {
        .file = file, .json = json, .dtype = dtype, .sp = sp, .bytes = bytes, .ranks = ranks};
    ASP_TRY(asp_guard(cx, create, &call));
    *out_edits = call.e;
    return ASP_OK;
}

void asp_edits_destroy(asp_edits *e)
{
    if (!e) return;
    asp_arena a = e->arena; // it lies there itself
    asp_arena_fini(&a);
}

const char *asp_edits_json(const asp_edits *e) { return e ? e->json : NULL; }
const char *asp_edits_text(const asp_edits *e) { return e ? e->text : NULL; }
const char *asp_edits_strategy(const asp_edits *e) { return e ? e->sp : NULL; }

// ---- proving ------------------------------------------------------------------------------------

asp_status asp_edits_fit(const asp_edits *e, const char *json, size_t bytes)
{
    if (!e || !json) return ASP_ERR_USAGE;
    if (asp_hash(json, bytes, 0) == e->hash) return ASP_OK;
    return asp_fail(
        e->cx, ASP_ERR_USAGE,
        "the edit list was made for another graph than the one it is applied to, or was "
        "applied to it before; make a new one");
}

typedef struct verify_call {
    const asp_edits *e;
    const char *json;
    size_t bytes;
} verify_call;

// The first line that differs.
static asp_status say_difference(asp_ctx *cx, const char *want, const char *have)
{
    while (*want && *have) {
        const size_t n = strcspn(want, "\n"), k = strcspn(have, "\n");
        if (n != k || memcmp(want, have, n) != 0)
            return asp_fail(cx, ASP_ERR_CHECK,
                            "the edited graph is not the split program: it has \"%.*s\" for "
                            "\"%.*s\"",
                            (int)k, have, (int)n, want);
        want += n + (want[n] == '\n');
        have += k + (have[k] == '\n');
    }
    return asp_fail(cx, ASP_ERR_CHECK, "the edited graph is not the split program: it is %s",
                    *want ? "shorter" : "longer");
}

static asp_status verify(asp_ctx *cx, void *arg)
{
    const verify_call *call = arg;
    const asp_edits *e = call->e;
    asp_graph *g;
    asp_aten_source *source;
    asp_arena a;
    asp_text text;
    ASP_TRY(
        asp_front_aten_kept(cx, e->file, call->json, call->bytes, e->dtype, e->ranks, &g, &source));
    asp_arena_init(&a, cx);
    asp_text_init(&text, &a);
    asp_pass_options o = {.ranks = e->ranks, .sp = e->sp, .dtype = e->dtype, .kept = true};
    asp_env_fill(&o.env, &g->examples);
    asp_status s = asp_graph_typecheck(g);
    // Where views had to say more than these can, the proof is that of the program, which is equal.
    if (s == ASP_OK) s = asp_passes_run(cx, g, e->told ? "dce" : "dce,check", &o, NULL);
    if (s == ASP_OK) s = canonical(cx, g, &text);
    if (s == ASP_OK && strcmp(text.at, e->canonical) != 0)
        s = say_difference(cx, e->canonical, text.at);
    asp_arena_fini(&a);
    asp_graph_destroy(g);
    asp_aten_source_destroy(source);
    return s;
}

asp_status asp_edits_verify(const asp_edits *e, const char *json, size_t bytes)
{
    if (!e || !json) return ASP_ERR_USAGE;
    verify_call call = {.e = e, .json = json, .bytes = bytes};
    return asp_guard(e->cx, verify, &call);
}

void asp_row_places(int64_t n, int64_t ranks, int64_t rings, bool zigzag, int64_t rank,
                    int64_t *out)
{
    const asp_rows rows = asp_rows_of_rank(n, ranks, rings, zigzag, rank);
    for (int64_t i = 0; i < asp_rows_room(n, ranks); i++) out[i] = asp_rows_place(&rows, i);
}
