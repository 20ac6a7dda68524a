// Programs from files, compiled and stepped once.  Neighbours: imported.h.
// SPDX-License-Identifier: Apache-2.0
#include "imported.h"

#include <math.h>
#include <stdlib.h>

static double wave(int64_t i, double scale)
{
    return scale * sin(0.7 + 1.3 * (double)(i % 1009) + 0.01 * (double)(i / 1009));
}

static int64_t hash_of(const char *name)
{
    return (int64_t)(asp_hash(name, strlen(name), 1) % 1000003);
}

static void fill_param(const asp_plan_param *p, double *at)
{
    bool norm = p->rank == 1 && strstr(p->name, "bias") == NULL;
    double scale = p->rank == 1 ? 0.2 : 1.5 / sqrt((double)p->dim[p->rank - 1]);
    for (int64_t i = 0; i < p->count; i++)
        at[i] = (norm ? 1.0 : 0.0) + wave(i * 7 + hash_of(p->name), scale);
}

// One whole number of an input, by its role: row b, position i of n.
static int64_t number(const char *role, const char *name, int64_t vocab, int64_t b, int64_t i,
                      int64_t n)
{
    int64_t token = (i * i * 3 + i * 7 + b * 5 + hash_of(name)) % vocab;
    if (strcmp(role, "labels") == 0)
        return (b == 0 && i < n * 3 / 8) || (b == 1 && i % 5 == 1) ? -100 : token;
    if (strcmp(role, "positions") == 0) return i < n * 2 / 5 ? i : i - n * 2 / 5;
    if (strcmp(role, "padding") == 0) return b == 0 ? i < n - n / 5 : i < n - 1;
    if (strcmp(role, "segments") == 0) return i / (5 + 3 * b);
    if (strcmp(role, "buffer") == 0) return strstr(name, "position") ? i : 0;
    return token;
}

static void fill_input(const asp_plan_input *in, int64_t vocab, void *at)
{
    int64_t count = in->bytes / asp_dtypes[in->dtype].bytes;
    int64_t n = in->rank ? in->dim[in->rank - 1] : 1;
    for (int64_t i = 0; i < count; i++) {
        if (in->dtype == ASP_F64)
            ((double *)at)[i] = strcmp(in->role, "buffer") == 0
                                    ? 0.1 + 0.9 * fabs(wave(i + hash_of(in->name), 1))
                                    : wave(i + hash_of(in->name), 1);
        else
            ((int64_t *)at)[i] = number(in->role, in->name, vocab, i / n, i % n, n);
    }
}

typedef struct job {
    const imported *how;
    asp_program program;
    asp_plan *plan;
    imported_result *out;
} job;

static asp_status rank_main(void *arg, asp_comm *comm, asp_ctx *cx)
{
    job *j = arg;
    asp_team *team;
    asp_rank *r;
    double loss = (double)NAN;
    ASP_TRY(asp_team_create(cx, 1, -1, &team));
    ASP_TRY(asp_rank_create(cx, j->plan, comm, team, &r));
    double *params = asp_rank_slab(r, ASP_SLAB_PARAM);
    const double *gradients = asp_rank_slab(r, ASP_SLAB_GRAD);
    for (int p = 0; p < asp_plan_n_params(j->plan); p++) {
        const asp_plan_param *a = asp_plan_get_param(j->plan, p);
        fill_param(a, params + a->offset);
    }
    // Labels are classes of the loss, of which some graphs have fewer than rows in the table.
    int64_t vocab = asp_min(j->program.vocab, 7);
    for (int k = 0; k < asp_plan_n_inputs(j->plan); k++)
        fill_input(asp_plan_get_input(j->plan, k), vocab, asp_rank_input(r, k));
    asp_status s = asp_rank_step(r, &loss);
    if (s == ASP_OK && asp_comm_rank(comm) == 0) {
        j->out->loss = loss;
        j->out->n_params = asp_plan_n_params(j->plan);
        for (int p = 0; p < j->out->n_params; p++) {
            const asp_plan_param *a = asp_plan_get_param(j->plan, p);
            j->out->param[p].name = strdup(a->name);
            j->out->param[p].count = a->count;
            j->out->param[p].gradient = malloc((size_t)a->count * sizeof(double));
            memcpy(j->out->param[p].gradient, gradients + a->offset,
                   (size_t)a->count * sizeof(double));
        }
    }
    asp_rank_destroy(r);
    asp_team_destroy(team);
    return s;
}

static asp_status compile(asp_ctx *cx, void *arg)
{
    job *j = arg;
    const imported *how = j->how;
    ASP_TRY(asp_front_load(cx, how->path, ASP_F64, &j->program));
    asp_compile_options o = {.ranks = how->ranks,
                             .batch = 2,
                             .seq = how->seq,
                             .threads = 1,
                             .sp = how->sp ? how->sp : "auto",
                             .ac = how->ac ? how->ac : "none",
                             .backend = ASP_COMM_thread};
    asp_env *sizes = &j->program.graph->examples;
    for (int i = 0; i < sizes->n; i++) {
        bool is_seq = strcmp(sizes->at[i].symbol, "S") == 0;
        if (is_seq && !o.seq) o.seq = sizes->at[i].value;
        if (!is_seq && how->seq) sizes->at[i].value = how->other;
    }
    asp_arena a;
    asp_text text;
    asp_arena_init(&a, cx);
    asp_text_init(&text, &a);
    asp_pass_trace trace = {.print_after = how->print_after, .text = &text};
    asp_status s = asp_compile(cx, j->program.graph, &o, &trace, &j->plan);
    if (text.n) j->out->text = strdup(text.at);
    asp_arena_fini(&a);
    return s;
}

asp_status imported_run(asp_ctx *cx, const imported *how, imported_result *out)
{
    *out = (imported_result){0};
    job j = {.how = how, .out = out};
    asp_status s = asp_guard(cx, compile, &j);
    if (s == ASP_OK) s = asp_ranks_run(cx, ASP_COMM_thread, (int)how->ranks, rank_main, &j);
    asp_plan_destroy(j.plan);
    asp_program_fini(&j.program);
    return s;
}

void imported_free(imported_result *r)
{
    for (int p = 0; p < r->n_params; p++) {
        free(r->param[p].name);
        free(r->param[p].gradient);
    }
    free(r->text);
}

static double norm(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(sum);
}

double imported_difference(const imported_result *a, const imported_result *b,
                           const char **out_worst)
{
    double worst = 0, all = 0;
    *out_worst = "";
    for (int p = 0; p < a->n_params; p++)
        all = hypot(all, norm(a->param[p].gradient, NULL, a->param[p].count));
    for (int p = 0; p < a->n_params; p++) {
        const double *x = a->param[p].gradient, *y = b->param[p].gradient;
        double scale = fmax(norm(x, NULL, a->param[p].count), 0.01 * all);
        double error = norm(x, y, a->param[p].count) / scale;
        if (error <= worst) continue; // keeps NaN out of neither side: see below
        worst = error;
        *out_worst = a->param[p].name;
    }
    return isnan(all) ? (double)NAN : worst;
}
