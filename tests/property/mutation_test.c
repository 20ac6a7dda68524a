// The checker against faults: random programs split over ranks are broken in one place each, as a
// faulty pass might, and must not pass.  A fault that changes nothing is told apart by running both
// programs.  Prints each kind with how many were noticed.  SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"
#include "property/support/random_program.h"
#include "property/support/text_run.h"

#include <math.h>
#include <stdlib.h>

#define FAULTS 300

typedef struct fault_site {
    asp_graph *g;
    uint64_t choice;
    int64_t ranks;
} fault_site;

static asp_val operand(const asp_graph *g, asp_node n) { return asp_node_at(g, n)->in[0]; }
static asp_val result(const asp_graph *g, asp_node n) { return asp_node_result(g, n, 0); }

// One of the nodes of an op; none when there is none.
static asp_node pick_node(const fault_site *f, asp_op op)
{
    uint32_t n = 0;
    asp_node found = {0};
    ASP_FOR_NODES (f->g, node) n += asp_node_at(f->g, node)->op == op;
    if (n == 0) return found;
    uint32_t which = (uint32_t)(f->choice % n);
    ASP_FOR_NODES (f->g, node)
        if (asp_node_at(f->g, node)->op == op && which-- == 0) found = node;
    return found;
}

static bool bypass(const fault_site *f, asp_op op)
{
    asp_node n = pick_node(f, op);
    if (!n.i) return false;
    asp_graph_replace_uses(f->g, result(f->g, n), operand(f->g, n));
    asp_graph_remove(f->g, n);
    return true;
}

static bool all_reduce_dropped(const fault_site *f) { return bypass(f, ASP_OP_all_reduce); }
static bool tail_counted(const fault_site *f) { return bypass(f, ASP_OP_mask_tail); }

// The exchange read as a view: right number of elements, wrong ones.
static bool exchange_dropped(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_all_to_all);
    if (!n.i) return false;
    asp_builder b = {.g = f->g, .before = n, .loc = ""};
    asp_type type = *asp_val_type(f->g, result(f->g, n)),
             from = *asp_val_type(f->g, operand(f->g, n));
    asp_val v = asp_build_view(&b, operand(f->g, n), &type);
    if (b.status < 0) { // another size: the parts where they are
        b.status = ASP_OK;
        const asp_a2a_attr *a = asp_node_at(f->g, n)->attr;
        asp_part_attr slice = {.dim = a->split, .ranks = f->ranks, .fill = INT64_MIN};
        (void)from;
        v = ASP_B1(&b, shard_slice, &slice, operand(f->g, n));
    }
    asp_graph_replace_uses(f->g, result(f->g, n), v);
    asp_graph_remove(f->g, n);
    return true;
}

static bool reduced_twice(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_all_reduce);
    if (!n.i) return false;
    asp_builder b = {.g = f->g, .before = asp_node_at(f->g, n)->next, .loc = ""};
    asp_val again = ASP_B1(&b, all_reduce, NULL, result(f->g, n));
    asp_graph_replace_uses(f->g, result(f->g, n), again);
    asp_graph_set_input(f->g, asp_val_at(f->g, again)->node, 0, result(f->g, n));
    return true;
}

// Every rank takes the first part.
static bool offset_lost(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_shard_slice);
    if (!n.i) return false;
    const asp_part_attr *a = asp_node_at(f->g, n)->attr;
    asp_builder b = {.g = f->g, .before = n, .loc = ""};
    asp_range_attr first = {.dim = a->dim, .end = asp_val_type(f->g, result(f->g, n))->dim[a->dim]};
    asp_val v = ASP_B1(&b, slice, &first, operand(f->g, n));
    if (b.status < 0) return false;
    asp_graph_replace_uses(f->g, result(f->g, n), v);
    asp_graph_remove(f->g, n);
    return true;
}

static bool change_part(const fault_site *f, asp_op op,
                        void (*change)(const fault_site *f, asp_part_attr *a))
{
    asp_node n = pick_node(f, op);
    if (!n.i) return false;
    asp_part_attr a = *(const asp_part_attr *)asp_node_at(f->g, n)->attr, old = a;
    change(f, &a);
    asp_graph_set_attr(f->g, n, &a);
    return memcmp(&a, &old, sizeof a) != 0;
}

static void no_fill(const fault_site *f, asp_part_attr *a)
{
    (void)f;
    a->fill = INT64_MIN;
}
static void other_fill(const fault_site *f, asp_part_attr *a)
{
    (void)f;
    if (a->fill != INT64_MIN) a->fill += 99;
}
static void one_more(const fault_site *f, asp_part_attr *a)
{
    asp_size *s = a->length.i ? &a->length : &a->of;
    if (s->i) *s = asp_size_add(f->g, *s, asp_size_num(f->g, 1));
}
static void fewer_ranks(const fault_site *f, asp_part_attr *a)
{
    (void)f;
    a->ranks = f->ranks == 2 ? 1 : 2;
}
static void next_dim(const fault_site *f, asp_part_attr *a)
{
    (void)f;
    a->dim = a->dim ? a->dim - 1 : 1;
}

static bool labels_without_fill(const fault_site *f)
{
    return change_part(f, ASP_OP_shard_slice, no_fill);
}
static bool labels_filled_otherwise(const fault_site *f)
{
    return change_part(f, ASP_OP_shard_slice, other_fill);
}
static bool tail_one_longer(const fault_site *f)
{
    return change_part(f, ASP_OP_mask_tail, one_more);
}
static bool pad_one_longer(const fault_site *f)
{
    return change_part(f, ASP_OP_shard_pad, one_more);
}
static bool slice_among_others(const fault_site *f)
{
    return change_part(f, ASP_OP_shard_slice, fewer_ranks);
}
static bool tail_of_other_dim(const fault_site *f)
{
    return change_part(f, ASP_OP_mask_tail, next_dim);
}
static bool slice_of_other_dim(const fault_site *f)
{
    return change_part(f, ASP_OP_shard_slice, next_dim);
}

// Split and gathered dims swapped, sizes left as they are.
static bool exchange_backwards(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_all_to_all);
    if (!n.i) return false;
    asp_a2a_attr a = *(const asp_a2a_attr *)asp_node_at(f->g, n)->attr;
    int64_t split = a.split;
    a.split = a.gather;
    a.gather = split;
    asp_graph_set_attr(f->g, n, &a);
    return true;
}

static bool exchange_of_other_whole(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_all_to_all);
    if (!n.i) return false;
    asp_a2a_attr a = *(const asp_a2a_attr *)asp_node_at(f->g, n)->attr;
    asp_size room = asp_val_type(f->g, operand(f->g, n))->dim[a.gather];
    a.whole = asp_size_mul(f->g, room, asp_size_num(f->g, f->ranks));
    asp_graph_set_attr(f->g, n, &a);
    asp_type t = *asp_val_type(f->g, result(f->g, n));
    bool other = !asp_size_equal(t.dim[a.gather], a.whole);
    t.dim[a.gather] = a.whole;
    asp_graph_set_type(f->g, result(f->g, n), &t);
    return other;
}

// A count of this rank's tokens where that of all is wanted.
static bool local_count(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_size_value);
    if (!n.i) return false;
    asp_size_attr a = *(const asp_size_attr *)asp_node_at(f->g, n)->attr;
    if (!asp_size_mentions(f->g, a.size, "S")) return false;
    if (asp_size_div(f->g, a.size, asp_size_num(f->g, f->ranks), &a.size) < 0) return false;
    asp_graph_set_attr(f->g, n, &a);
    return true;
}

static bool local_labels_counted(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_count_valid);
    if (!n.i) return false;
    asp_val labels = operand(f->g, n);
    ASP_FOR_NODES (f->g, node) {
        if (asp_node_at(f->g, node)->op != ASP_OP_shard_slice) continue;
        if (operand(f->g, node).i != labels.i) continue;
        asp_graph_move_before(f->g, node, n);
        asp_graph_set_input(f->g, n, 0, result(f->g, node));
        return true;
    }
    return false;
}

// Dropout that draws as if this rank's part were all there is.
static bool local_random(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_dropout);
    if (!n.i) return false;
    asp_dropout_attr a = *(const asp_dropout_attr *)asp_node_at(f->g, n)->attr;
    if (a.dims.n == 0) return false;
    a.dims.n = a.outer.n = a.whole.n = a.parts.n = a.stride.n = a.rings.n = 0;
    asp_graph_set_attr(f->g, n, &a);
    return true;
}

static bool local_heads(const fault_site *f)
{
    ASP_FOR_NODES (f->g, n) {
        if (asp_node_at(f->g, n)->op != ASP_OP_sdpa) continue;
        asp_sdpa_attr a = *(const asp_sdpa_attr *)asp_node_at(f->g, n)->attr;
        if (a.dropout == 0 || a.head_ranks == 1) continue;
        a.head_ranks = 1;
        asp_graph_set_attr(f->g, n, &a);
        return true;
    }
    return false;
}

// One head a rank, said to stand in another dim than it does.
static bool view_of_other_dim(const fault_site *f)
{
    asp_node last = {0};
    ASP_FOR_NODES (f->g, n)
        if (asp_node_at(f->g, n)->op == ASP_OP_view &&
            ((const asp_view_attr *)asp_node_at(f->g, n)->attr)->before.i)
            last = n;
    if (!last.i) return false;
    asp_view_attr a = *(const asp_view_attr *)asp_node_at(f->g, last)->attr;
    a.split = (a.split + 1) % a.shape.n;
    a.before = asp_size_num(f->g, 1);
    asp_graph_set_attr(f->g, last, &a);
    return true;
}

// ---- rings and groups --------------------------------------------------------------------------

// Changes attention around a ring; false where there is none.
static bool change_ring(const fault_site *f, void (*change)(const fault_site *f, asp_sdpa_attr *a))
{
    asp_node n = pick_node(f, ASP_OP_ring_sdpa);
    if (!n.i) return false;
    asp_sdpa_attr a = *(const asp_sdpa_attr *)asp_node_at(f->g, n)->attr, old = a;
    change(f, &a);
    asp_graph_set_attr(f->g, n, &a);
    return memcmp(&a, &old, sizeof a) != 0;
}

// The keys of this rank, or of its group, are all there are.
static bool ring_lost(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_ring_sdpa);
    if (!n.i) return false;
    asp_sdpa_attr a = *(const asp_sdpa_attr *)asp_node_at(f->g, n)->attr;
    a.rings = 1;
    a.zigzag = false;
    a.tokens = a.keys = (asp_size){0};
    asp_graph_set_op(f->g, n, ASP_OP_sdpa);
    asp_graph_set_attr(f->g, n, &a);
    return true;
}

static void other_order(const fault_site *f, asp_sdpa_attr *a)
{
    (void)f;
    a->zigzag = !a->zigzag;
}
static void other_groups(const fault_site *f, asp_sdpa_attr *a)
{
    a->rings = a->rings == f->ranks ? 1 : f->ranks;
}
static void other_keys(const fault_site *f, asp_sdpa_attr *a)
{
    a->keys = asp_size_add(f->g, a->keys, asp_size_num(f->g, 1));
}

static bool ring_of_other_order(const fault_site *f) { return change_ring(f, other_order); }
static bool ring_of_other_groups(const fault_site *f) { return change_ring(f, other_groups); }
static bool ring_of_more_keys(const fault_site *f) { return change_ring(f, other_keys); }

static void natural_order(const fault_site *f, asp_part_attr *a)
{
    (void)f;
    a->zigzag = !a->zigzag;
}
static void other_rings(const fault_site *f, asp_part_attr *a)
{
    if (a->rings > 1) a->rings = a->rings == f->ranks ? f->ranks / 2 : f->ranks;
}

static bool slice_of_other_order(const fault_site *f)
{
    return change_part(f, ASP_OP_shard_slice, natural_order);
}
static bool slice_of_other_groups(const fault_site *f)
{
    return change_part(f, ASP_OP_shard_slice, other_rings);
}

// An exchange among all ranks where it is one of a group, or within halves where it is of all.
static bool exchange_among_others(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_all_to_all);
    if (!n.i) return false;
    asp_a2a_attr a = *(const asp_a2a_attr *)asp_node_at(f->g, n)->attr;
    a.ranks = a.ranks == f->ranks ? 1 : f->ranks;
    asp_graph_set_attr(f->g, n, &a);
    return true;
}

// An exchange within a group that takes the group's rows for a whole sequence, or the other way
// round: which rows are tails is then wrong.
static bool group_gathers_otherwise(const fault_site *f)
{
    asp_node n = pick_node(f, ASP_OP_all_to_all);
    if (!n.i) return false;
    asp_a2a_attr a = *(const asp_a2a_attr *)asp_node_at(f->g, n)->attr;
    if (a.ranks == f->ranks) return false;
    a.whole = a.whole.i ? (asp_size){0} : asp_val_type(f->g, result(f->g, n))->dim[a.gather];
    asp_graph_set_attr(f->g, n, &a);
    return true;
}

static const struct {
    const char *name;
    bool (*make)(const fault_site *f);
    const char *needs; // words of programs that can have it, where few can
} faults[] = {{"an exchange dropped", exchange_dropped, NULL},
              {"an exchange backwards", exchange_backwards, NULL},
              {"an exchange with its tails", exchange_of_other_whole, NULL},
              {"an all-reduce dropped", all_reduce_dropped, NULL},
              {"a sum reduced twice", reduced_twice, NULL},
              {"a tail counted", tail_counted, NULL},
              {"a tail one longer", tail_one_longer, NULL},
              {"a tail of another dim", tail_of_other_dim, NULL},
              {"a gather one longer", pad_one_longer, NULL},
              {"an offset lost", offset_lost, NULL},
              {"a slice of another dim", slice_of_other_dim, NULL},
              {"a slice among other ranks", slice_among_others, NULL},
              {"labels repeated in the tail", labels_without_fill, NULL},
              {"labels filled otherwise", labels_filled_otherwise, NULL},
              {"a local size as divisor", local_count, NULL},
              {"local labels counted", local_labels_counted, NULL},
              {"dropout of local indices", local_random, NULL},
              {"attention dropout of local heads", local_heads, "dropout = 0.2"},
              {"a view that names another dim", view_of_other_dim, "f64[B*2, S, S] = bmm"},
              {"a ring lost", ring_lost, NULL},
              {"a ring in another order", ring_of_other_order, NULL},
              {"a ring of other groups", ring_of_other_groups, NULL},
              {"a ring of more keys", ring_of_more_keys, NULL},
              {"a slice in another order", slice_of_other_order, NULL},
              {"a slice of other groups", slice_of_other_groups, NULL},
              {"an exchange among other ranks", exchange_among_others, NULL},
              {"a group's tails counted", group_gathers_otherwise, NULL}};

// Every strategy in turn.
static const struct {
    const char *sp;
    int64_t ranks; // 0: any
} strategies[] = {{"ulysses", 0}, {"hybrid:2x2", 4}, {"ring", 0}, {"hybrid:2x3", 6}};

typedef struct attempt {
    random_program program;
    const char *sp;
    int64_t ranks;
    int kind;
    uint64_t choice;
    bool made, noticed;
    char *sound, *broken; // malloc: the split programs as text
    char message[256];
} attempt;

static asp_status attempt_body(asp_ctx *cx, void *arg)
{
    attempt *a = arg;
    asp_arena arena;
    asp_text t;
    asp_graph *g;
    asp_arena_init(&arena, cx);
    asp_text_init(&t, &arena);
    random_program_text(&a->program, &t);
    asp_pass_options o = {.ranks = a->ranks, .sp = a->sp, .ac = "none", .dtype = ASP_F64};
    ASP_TRY(asp_graph_parse(cx, "program", t.at, strlen(t.at), &g));
    asp_status s = asp_passes_run(cx, g, ASP_PIPELINE_SHARD, &o, NULL);
    if (s == ASP_OK) {
        asp_text sound, broken;
        asp_text_init(&sound, &arena);
        asp_text_init(&broken, &arena);
        asp_graph_print(g, &sound);
        fault_site site = {.g = g, .choice = a->choice, .ranks = a->ranks};
        a->made = faults[a->kind].make(&site);
        if (a->made) a->noticed = asp_passes_run(cx, g, "check", &o, NULL) < 0;
        snprintf(a->message, sizeof a->message, "%.250s", a->noticed ? cx->message : "");
        asp_graph_print(g, &broken);
        a->sound = strdup(sound.at);
        a->broken = strdup(broken.at);
    }
    asp_graph_destroy(g);
    asp_arena_fini(&arena);
    return s;
}

// Do both split programs compute the same after all?
static bool harmless(const attempt *a)
{
    text_case c = {.ranks = a->ranks,
                   .batch = 2,
                   .seq = 4 * a->ranks + 1,
                   .threads = 1,
                   .sp = "none",
                   .ac = "none",
                   .seed = 5,
                   .vocab = 19};
    c.text = a->sound;
    text_result x = text_run(&c);
    c.text = a->broken;
    text_result y = text_run(&c);
    bool same = x.status == ASP_OK && y.status == ASP_OK &&
                fabs(x.loss - y.loss) <= 1e-11 * fabs(x.loss) &&
                text_gradient_error(&x, &y) <= 1e-9;
    if (x.status < 0) printf("the sound program does not run: %s\n", x.message);
    text_free(&x);
    text_free(&y);
    return same;
}

#define DRAWS 500 // of programs, until one has the words that are wanted

static random_program draw_program(uint64_t seed, const char *needs)
{
    random_program p = random_program_draw(seed * 31);
    for (uint64_t i = 1; needs && i < DRAWS; i++) {
        asp_ctx cx;
        asp_arena arena;
        asp_text t;
        asp_ctx_init(&cx);
        asp_arena_init(&arena, &cx);
        asp_text_init(&t, &arena);
        random_program_text(&p, &t);
        const bool has = strstr(t.at, needs) != NULL;
        asp_arena_fini(&arena);
        if (has) break;
        p = random_program_draw(seed * 31 + i * 100003);
    }
    return p;
}

int main(int argc, char **argv)
{
    int wanted = argc > 1 ? atoi(argv[1]) : FAULTS, made = 0, missed = 0;
    int of_kind[ASP_COUNT_OF(faults)] = {0}, neutral[ASP_COUNT_OF(faults)] = {0};
    for (uint64_t seed = 1; made < wanted && seed < 100000; seed++) {
        const int kind = (int)(seed % ASP_COUNT_OF(faults));
        attempt a = {.program = draw_program(seed, faults[kind].needs),
                     .ranks = 2 + (int64_t)(seed % 3),
                     .kind = kind,
                     .choice = seed * UINT64_C(0x9e3779b97f4a7c15) >> 17};
        const uint64_t s = seed / ASP_COUNT_OF(faults) % ASP_COUNT_OF(strategies);
        a.sp = strategies[s].sp;
        if (strategies[s].ranks) a.ranks = strategies[s].ranks;
        asp_ctx cx;
        asp_ctx_init(&cx);
        if (asp_guard(&cx, attempt_body, &a) < 0) a.made = false;
        if (a.made && !a.noticed && harmless(&a)) {
            neutral[a.kind]++;
        } else if (a.made) {
            made++;
            of_kind[a.kind]++;
            if (!a.noticed && ++missed <= 5)
                printf("not noticed: %s, %s (seed %llu)\n%s\n", faults[a.kind].name, a.sp,
                       (unsigned long long)seed, a.broken);
        }
        free(a.sound);
        free(a.broken);
    }
    int absent = 0;
    for (size_t k = 0; k < ASP_COUNT_OF(faults); k++) {
        printf("%4d  %s (%d more changed nothing)\n", of_kind[k], faults[k].name, neutral[k]);
        absent += of_kind[k] == 0 && wanted >= FAULTS;
    }
    printf("%d faults, %d not noticed, %d kinds that did not occur\n", made, missed, absent);
    return made >= wanted && missed == 0 && absent == 0 ? 0 : 1;
}
