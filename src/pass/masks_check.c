// What was read of a mask is not trusted: predicate and arithmetic are run side by side on TRIALS
// small random inputs, and a difference is an error.  Neighbours: masks_read.c (who read it),
// interpret.h (who runs graphs).  SPDX-License-Identifier: Apache-2.0
#include "pass/interpret.h"
#include "pass/masks_int.h"

#define TRIALS 8

typedef struct trial {
    uint32_t seed;
    bool restart; // positions restart; else they are any numbers
} trial;

static uint32_t draw(trial *t, uint32_t below)
{
    t->seed = t->seed * 1664525u + 1013904223u;
    return (t->seed >> 8) % below;
}

static void fill_input(void *arg, const asp_node_info *n, const asp_tensor *x)
{
    trial *t = arg;
    const char *role = n->op == ASP_OP_input ? ((const asp_input_attr *)n->attr)->role : "";
    const bool positions = strcmp(role, "positions") == 0;
    const int64_t width = x->rank ? x->dim[x->rank - 1] : 1;
    for (int64_t i = 0; i < asp_tensor_count(x); i++) {
        const int64_t s = i % width, half = width / 2;
        const int64_t id =
            positions && t->restart ? (s < half ? s : s - half) : draw(t, positions ? 5 : 3);
        if (x->dtype == ASP_I64) ((int64_t *)x->data)[i] = id;
        if (x->dtype == ASP_BOOL) ((uint8_t *)x->data)[i] = id != 0;
        if (x->dtype == ASP_F32) ((float *)x->data)[i] = (float)draw(t, 1000) * 0.01f;
        if (x->dtype == ASP_F64) ((double *)x->data)[i] = (double)draw(t, 1000) * 0.01;
    }
}

static double at(const asp_tensor *x, int64_t i)
{
    switch (x->dtype) {
    case ASP_F32: return (double)((const float *)x->data)[i];
    case ASP_F64: return ((const double *)x->data)[i];
    case ASP_I64: return (double)((const int64_t *)x->data)[i];
    case ASP_BOOL: return ((const uint8_t *)x->data)[i];
    case ASP_BF16:
    case ASP_F16:
    case ASP_I32:
    case ASP_U16:
    case ASP_U8: break;
    }
    return 0;
}

// Element of a tensor that is read at batch, head, query and key, broadcast.
static double at_pair(const asp_tensor *x, const int64_t *index)
{
    int64_t i = 0;
    for (int d = 0; d < x->rank; d++)
        i = i * x->dim[d] + (x->dim[d] == 1 ? 0 : index[4 - x->rank + d]);
    return at(x, i);
}

// Look-ups at a position, from their operands ([1|B, 1|n]).
static void looked_up(const asp_masking *m, const asp_tensor *values, int64_t batch,
                      int64_t position, int64_t *out)
{
    for (uint32_t i = 0; i < m->n_lookups; i++) {
        const asp_tensor *x = &values[i];
        const int64_t row = x->dim[0] == 1 ? 0 : batch, column = x->dim[1] == 1 ? 0 : position;
        // In cross-attention a side that is not named may be longer than the look-up.
        out[i] = column < x->dim[1] ? (int64_t)at(x, row * x->dim[1] + column) : 0;
    }
}

static bool agrees_at(const asp_masking *m, const asp_tensor *values, const int64_t *index)
{
    int64_t at_q[ASP_MASK_MAX_LOOKUPS], at_k[ASP_MASK_MAX_LOOKUPS];
    const double given = at_pair(&values[m->n_lookups], index);
    looked_up(m, values, index[0], index[2], at_q);
    looked_up(m, values, index[0], index[3], at_k);
    bool sees = asp_mask_allows(&m->mask, index[2], index[3], at_q, at_k);
    if (m->dense) sees = sees && at_pair(&values[m->n_lookups + 1], index) != 0;
    if (m->adds)
        return given == (sees ? 0 : m->hides) || (!sees && given == (double)(float)m->hides);
    return (given != 0) == sees;
}

// A copy of the graph that computes values[0 .. n - 1] alone, from primitives; owned by the caller.
static asp_status only_values(asp_masking *m, const asp_val *values, uint32_t n,
                              asp_graph **out_graph)
{
    static const char pipeline[] = "dce,lower,dce";
    asp_graph *g = m->g;
    const uint32_t n_outputs = g->outputs.n;
    asp_output *kept = g->outputs.at;
    g->outputs.at = NULL, g->outputs.n = g->outputs.cap = 0;
    for (uint32_t i = 0; i < n; i++) asp_graph_add_output(g, values[i], "");
    asp_graph *copy = asp_graph_clone(g);
    g->outputs.at = kept, g->outputs.n = g->outputs.cap = n_outputs;
    const asp_status s = asp_passes_run(m->px->cx, copy, pipeline, m->px->options, NULL);
    if (s < 0) {
        asp_graph_destroy(copy);
        return s;
    }
    *out_graph = copy;
    return ASP_OK;
}

static asp_status different(const asp_masking *m, asp_arena *a)
{
    asp_text t;
    asp_text_init(&t, a);
    asp_mask_print(&t, &m->mask);
    return asp_fail(
        m->px->cx, ASP_ERR_UNSUPPORTED,
        "%s: its mask was read as \"%s\", but the two differ on a small example; give the mask "
        "as the attribute mask instead",
        asp_node_str(m->g, m->node), t.at);
}

static asp_status one_trial(asp_masking *m, asp_graph *g, uint32_t seed, asp_arena *a)
{
    trial t = {.seed = seed * 7919 + 17, .restart = seed % 2 == 0};
    const char *symbols[8];
    asp_env env = {.n = asp_size_symbols(g, symbols, 8)};
    asp_tensor *all, values[ASP_MASK_MAX_LOOKUPS + 2];
    const asp_type *q = asp_val_type(m->g, asp_node_at(m->g, m->node)->in[0]);
    const asp_type *k = asp_val_type(m->g, asp_node_at(m->g, m->node)->in[1]);
    const asp_size size[4] = {q->dim[0], q->dim[1], q->dim[2], k->dim[2]};
    int64_t n[4], i[4];
    for (int s = 0; s < env.n; s++) {
        env.at[s].symbol = symbols[s];
        env.at[s].value = strcmp(symbols[s], "B") == 0 ? 2 : 5 + draw(&t, 7);
    }
    ASP_TRY(asp_interpret(g, a, &env, fill_input, &t, &all));
    for (uint32_t v = 0; v < g->outputs.n; v++) values[v] = all[g->outputs.at[v].val.i];
    for (int d = 0; d < 4; d++) {
        if (asp_size_eval(m->g, size[d], &env, &n[d]) < 0) return ASP_ERR_UNSUPPORTED;
        n[d] = asp_min(n[d], 64); // of heads and batches some are enough; rows are few
    }
    for (i[0] = 0; i[0] < n[0]; i[0]++)
        for (i[1] = 0; i[1] < n[1]; i[1]++)
            for (i[2] = 0; i[2] < n[2]; i[2]++)
                for (i[3] = 0; i[3] < n[3]; i[3]++)
                    if (!agrees_at(m, values, i)) return different(m, a);
    return ASP_OK;
}

asp_status asp_masking_check(asp_masking *m, asp_val operand, bool *out_tried)
{
    asp_val values[ASP_MASK_MAX_LOOKUPS + 2];
    asp_graph *g;
    uint32_t n = 0;
    for (; n < m->n_lookups; n++) values[n] = m->lookup[n];
    values[n++] = operand;
    if (m->dense) values[n++] = asp_body_only_look(m->f, m->dense->x)->v;
    *out_tried = false;
    if (only_values(m, values, n, &g) < 0) return ASP_OK;
    asp_arena a;
    asp_arena_init(&a, m->px->cx);
    asp_status s = ASP_OK;
    for (uint32_t seed = 0; s == ASP_OK && seed < TRIALS; seed++) {
        s = one_trial(m, g, seed, &a);
        if (s < 0 && seed == 0 && !strstr(m->px->cx->message, "its mask was read")) {
            s = ASP_OK; // not to be run here
            break;
        }
        *out_tried = true;
        asp_arena_reset(&a);
    }
    asp_arena_fini(&a);
    asp_graph_destroy(g);
    return s;
}
