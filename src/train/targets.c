// How many labels count in a batch: the part of a program between its labels and the counts of its
// losses, interpreted.  Neighbours: train.h (contract), pass/interpret.h, pass/loss.c (who divides
// by the same counts).
//
//   %n = shift %y                          %n = shift %y
//   %l = cross_entropy %x, %n      ->      %c = count_valid %n
//   return "loss" = %l                     return "targets" = %c
//
// Counts are i64, of the whole labels, whatever the dtype of the loss.
// SPDX-License-Identifier: Apache-2.0
#include "pass/interpret.h"
#include "train/train_int.h"

#include <stdlib.h>

struct asp_targets {
    asp_graph *g; // owned; NULL: all tokens are targets
    asp_val sum;
};

// The sum of the counts of all losses; none: {0}.
static asp_status add_counts(asp_graph *g, asp_val *out_sum)
{
    asp_val sum = {0};
    for (asp_node n = g->head; n.i; n = asp_node_at(g, n)->next) {
        const asp_node_info info = *asp_node_at(g, n);
        if (info.op != ASP_OP_cross_entropy) continue;
        asp_builder b = {.g = g, .before = n, .loc = info.loc};
        asp_labels_attr labels = {.ignore = ((const asp_loss_attr *)info.attr)->ignore};
        asp_val count = ASP_B1(&b, count_valid, &labels, info.in[1]);
        sum = sum.i ? ASP_B2(&b, add, NULL, sum, count) : count;
        ASP_TRY(b.status);
    }
    *out_sum = sum;
    return ASP_OK;
}

// Passes leave parameters and inputs, which may be large: those that nobody reads go.  False: what
// is counted depends on a parameter.
static bool drop_unread(asp_arena *a, asp_graph *g)
{
    const uint32_t *uses = asp_graph_count_uses(g, a);
    for (asp_node n = g->head, next; n.i; n = next) {
        const asp_node_info *info = asp_node_at(g, n);
        next = info->next;
        if (info->op != ASP_OP_input && info->op != ASP_OP_param) continue;
        const bool read = uses[info->first.i] > 0;
        if (read && info->op == ASP_OP_param) return false;
        if (!read) asp_graph_remove(g, n);
    }
    return true;
}

static asp_status make(asp_arena *a, asp_graph *g, const char **out_text)
{
    const asp_pass_options o = {.ranks = 1};
    asp_val sum;
    asp_text t;
    *out_text = "";
    if (g->ranks != 1) return ASP_OK; // split by hand: a rank has a part of the labels
    ASP_TRY(asp_graph_typecheck(g));
    ASP_TRY(asp_passes_run(a->cx, g, "canonicalise", &o, NULL));
    ASP_TRY(add_counts(g, &sum));
    if (!sum.i) return ASP_OK;
    g->outputs.n = 0;
    asp_graph_add_output(g, sum, "targets");
    ASP_TRY(asp_passes_run(a->cx, g, "dce,lower,dce", &o, NULL));
    if (!drop_unread(a, g)) return ASP_OK;
    asp_text_init(&t, a);
    asp_graph_print(g, &t);
    *out_text = t.at;
    return ASP_OK;
}

asp_status asp_targets_text(asp_arena *a, const asp_graph *module, const asp_train_options *o,
                            const char **out_text)
{
    const bool several = o->accumulate > 1 || o->dp > 1;
    if (module->ranks != 1 && several && strcmp(o->weigh, "tokens") == 0)
        return asp_fail(a->cx, ASP_ERR_UNSUPPORTED,
                        "graph %s is split by hand, so that nobody knows which labels count in "
                        "all: micro-batches and replicas of it take --weigh batches",
                        module->name);
    asp_graph *g = asp_graph_clone(module);
    asp_status s = make(a, g, out_text);
    asp_graph_destroy(g);
    return s;
}

asp_status asp_targets_open(asp_ctx *cx, const char *text, asp_targets **out_targets)
{
    asp_targets t = {0};
    if (*text) {
        ASP_TRY(asp_graph_parse(cx, "targets", text, strlen(text), &t.g));
        asp_status s = asp_graph_typecheck(t.g);
        if (s < 0) {
            asp_graph_destroy(t.g);
            return s;
        }
        t.sum = t.g->outputs.at[0].val;
    }
    asp_targets *made = malloc(sizeof *made);
    if (!made) {
        if (t.g) asp_graph_destroy(t.g);
        return asp_fail(cx, ASP_ERR_NOMEM, "no memory to count targets");
    }
    *made = t;
    *out_targets = made;
    return ASP_OK;
}

void asp_targets_close(asp_targets *t)
{
    if (!t) return;
    if (t->g) asp_graph_destroy(t->g);
    free(t);
}

typedef struct source {
    const asp_plan *plan;
    asp_rank *rank;
} source;

static int find_input(const asp_plan *p, const char *name)
{
    for (int i = 0; i < asp_plan_n_inputs(p); i++)
        if (strcmp(asp_plan_get_input(p, i)->name, name) == 0) return i;
    return -1;
}

static void fill_input(void *arg, const asp_node_info *n, const asp_tensor *t)
{
    const source *s = arg;
    const int i = find_input(s->plan, ((const asp_input_attr *)n->attr)->name);
    const size_t bytes = (size_t)(asp_tensor_count(t) * asp_dtypes[t->dtype].bytes);
    if (i >= 0 && (size_t)asp_plan_get_input(s->plan, i)->bytes == bytes)
        memcpy(t->data, asp_rank_input(s->rank, i), bytes);
    else
        memset(t->data, 0, bytes); // what the plan does not read
}

static int64_t all_tokens(const asp_env *env)
{
    int64_t n = 1;
    for (int i = 0; i < env->n; i++)
        if (strcmp(env->at[i].symbol, "S") == 0 || strcmp(env->at[i].symbol, "B") == 0)
            n *= env->at[i].value;
    return n;
}

asp_status asp_targets_count(asp_targets *t, asp_ctx *cx, const asp_plan *p, asp_rank *r,
                             int64_t *out_count)
{
    const asp_env *env = asp_plan_env(p);
    asp_arena a;
    asp_tensor *vals;
    source from = {p, r};
    if (!t->g) {
        *out_count = all_tokens(env);
        return ASP_OK;
    }
    asp_arena_init(&a, cx);
    asp_status s = asp_interpret(t->g, &a, env, fill_input, &from, &vals);
    if (s == ASP_OK) *out_count = *(const int64_t *)vals[t->sum.i].data;
    asp_arena_fini(&a);
    return s;
}
