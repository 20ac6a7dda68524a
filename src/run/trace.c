// Traces told to people.  Neighbours: trace.h (contract), executor.c (who measures).
// SPDX-License-Identifier: Apache-2.0
#include "run/trace.h"

#include <stdlib.h>

asp_status asp_trace_create(asp_ctx *cx, const asp_plan *plan, int n_threads, asp_trace **out)
{
    const size_t n = plan->steps.n, per_thread = n * (size_t)n_threads;
    asp_trace *t = calloc(1, sizeof *t);
    if (t) {
        t->n_threads = n_threads;
        t->steps = calloc(n, sizeof *t->steps);
        t->threads = calloc(per_thread, sizeof *t->threads);
        t->sums = calloc(n + per_thread, sizeof *t->sums);
        t->n_steps = n;
    }
    if (!t || !t->steps || !t->threads || !t->sums) {
        asp_trace_destroy(t);
        return asp_fail(cx, ASP_ERR_NOMEM, "no memory for a trace of %zu steps", n);
    }
    *out = t;
    return ASP_OK;
}

void asp_trace_destroy(asp_trace *t)
{
    if (!t) return;
    free(t->steps);
    free(t->threads);
    free(t->sums);
    free(t);
}

static double length(asp_span s) { return s.end - s.begin; }

// ---- loops -------------------------------------------------------------------------------------

void asp_trace_add_chunk(asp_trace *t, const asp_loop *l, int64_t trip)
{
    const size_t n = (size_t)t->n_threads;
    for (size_t i = l->first; i < l->end; i++) {
        double *of_threads = t->sums + t->n_steps + i * n;
        t->sums[i] = (trip ? t->sums[i] : 0) + length(t->steps[i]);
        for (size_t k = 0; k < n; k++)
            of_threads[k] = (trip ? of_threads[k] : 0) + length(t->threads[i * n + k]);
    }
}

void asp_trace_end_loop(asp_trace *t, const asp_loop *l, double begin)
{
    const size_t n = (size_t)t->n_threads;
    for (size_t i = l->first; i < l->end; i++) {
        t->steps[i] = (asp_span){begin, begin + t->sums[i]};
        for (size_t k = 0; k < n; k++)
            t->threads[i * n + k] = (asp_span){begin, begin + t->sums[t->n_steps + i * n + k]};
        begin += t->sums[i];
    }
}

// ---- profile -----------------------------------------------------------------------------------

typedef struct profile_row {
    const char *op;
    int calls;
    double seconds, flops;
} profile_row;

static int slower_first(const void *x, const void *y)
{
    const profile_row *a = x, *b = y;
    return a->seconds > b->seconds ? -1 : a->seconds < b->seconds;
}

// From the first step's begin to the last thing's end.
static asp_span whole(const asp_trace *t, const asp_plan *plan)
{
    asp_span s = {t->steps[0].begin, t->steps[plan->steps.n - 1].end};
    for (int i = 0; i < t->n_phases; i++) {
        if (t->phases[i].span.begin < s.begin) s.begin = t->phases[i].span.begin;
        if (t->phases[i].span.end > s.end) s.end = t->phases[i].span.end;
    }
    return s;
}

// Where the threads' time went: kernels, exchanges, phases, waiting for the slowest thread.
static void print_shares(const asp_trace *t, const asp_plan *plan, asp_text *out)
{
    const double n = t->n_threads, total = length(whole(t, plan));
    double kernels = 0, waits = 0, exchanges = 0, files = 0, phases = 0;
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        if (!asp_step_is_of_team(&plan->steps.at[i])) {
            const bool exchange = asp_step_is_exchange(&plan->steps.at[i]);
            *(exchange ? &exchanges : &files) += length(t->steps[i]);
            continue;
        }
        double inside = 0;
        for (int k = 0; k < t->n_threads; k++) inside += length(asp_trace_threads(t, i)[k]);
        kernels += inside / n;
        waits += length(t->steps[i]) - inside / n;
    }
    for (int i = 0; i < t->n_phases; i++) phases += length(t->phases[i].span);
    asp_put(out,
            "of %.3f s: in kernels %.1f %%, waiting for other threads %.1f %%, exchanges %.1f %%",
            total, 100 * kernels / total, 100 * waits / total, 100 * exchanges / total);
    if (files > 0) asp_put(out, ", files %.1f %%", 100 * files / total);
    for (int i = 0; i < t->n_phases; i++)
        asp_put(out, ", %s %.1f %%", t->phases[i].name, 100 * length(t->phases[i].span) / total);
    asp_put(out, ", between steps %.1f %%\n",
            100 * (total - kernels - waits - exchanges - files - phases) / total);
}

void asp_trace_print(const asp_trace *t, const asp_plan *plan, asp_text *out)
{
    profile_row rows[ASP_OP_COUNT + 9]; // beside ops: row programs, awaits, accumulate, scale,
                                        // update, weigh, files
    int n = 0;
    double total = 0;
    if (plan->steps.n == 0) return;
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        const asp_step *s = &plan->steps.at[i];
        int k = 0;
        while (k < n && strcmp(rows[k].op, s->op) != 0) k++;
        if (k == n) rows[n++] = (profile_row){.op = s->op};
        rows[k].calls += (int)s->trips;
        rows[k].seconds += length(t->steps[i]);
        rows[k].flops += s->flops * (double)s->trips;
        total += length(t->steps[i]);
    }
    qsort(rows, (size_t)n, sizeof rows[0], slower_first);
    for (int k = 0; k < n; k++) {
        asp_put(out, "%-16s %5d calls %9.2f ms %5.1f %%", rows[k].op, rows[k].calls,
                rows[k].seconds * 1e3, total > 0 ? 100 * rows[k].seconds / total : 0);
        if (rows[k].flops > 0)
            asp_put(out, " %8.1f GFLOP/s", rows[k].flops / rows[k].seconds / 1e9);
        asp_put(out, "\n");
    }
    print_shares(t, plan, out);
}

// ---- events ------------------------------------------------------------------------------------

enum { SHORTEST_WAIT_NS = 1000 }; // shorter ones are not worth a box

static void put_event(asp_text *out, int rank, int thread, const char *category, const char *name,
                      asp_span s)
{
    asp_put(out, "{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"cat\": \"%s\", \"name\": ", rank,
            thread, category);
    asp_put_quoted(out, name);
    asp_put(out, ", \"ts\": %.3f, \"dur\": %.3f", s.begin * 1e6, length(s) * 1e6);
}

static void put_step(asp_text *out, int rank, int thread, uint32_t i, const asp_step *s,
                     asp_span span)
{
    put_event(out, rank, thread,
              asp_step_is_exchange(s)  ? "exchange"
              : asp_step_is_of_team(s) ? "kernel"
                                       : "file",
              s->op, span);
    asp_put(out, ", \"args\": {\"step\": %u, \"direction\": \"%s\", \"layer\": ", i,
            s->backward ? "backward" : "forward");
    asp_put_quoted(out, s->loc);
    if (s->flops > 0) asp_put(out, ", \"gflop\": %.6g", s->flops * (double)s->trips / 1e9);
    if (s->trips > 1) asp_put(out, ", \"chunks\": %lld", (long long)s->trips);
    asp_put(out, "}},\n");
}

static void put_name(asp_text *out, int rank, int thread, const char *what, int number)
{
    asp_put(out,
            "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"%s_name\", \"args\": "
            "{\"name\": \"%s %d\"}},\n",
            rank, thread, strcmp(what, "rank") ? "thread" : "process", what, number);
}

void asp_trace_events(const asp_trace *t, const asp_plan *plan, int rank, asp_text *out)
{
    put_name(out, rank, 0, "rank", rank);
    for (int k = 0; k < t->n_threads; k++) put_name(out, rank, k, "thread", k);
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        const asp_step *s = &plan->steps.at[i];
        if (!asp_step_is_of_team(s)) {
            put_step(out, rank, 0, i, s, t->steps[i]);
            continue;
        }
        for (int k = 0; k < t->n_threads; k++) {
            const asp_span in = asp_trace_threads(t, i)[k], wait = {in.end, t->steps[i].end};
            put_step(out, rank, k, i, s, in);
            if (length(wait) * 1e9 < SHORTEST_WAIT_NS) continue;
            put_event(out, rank, k, "wait", "wait", wait);
            asp_put(out, "},\n");
        }
    }
    for (int i = 0; i < t->n_phases; i++) {
        put_event(out, rank, 0, "optimizer", t->phases[i].name, t->phases[i].span);
        asp_put(out, "},\n");
    }
}
