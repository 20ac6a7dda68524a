// What is said: text for people, one JSON record a line for scripts.  Neighbours: train.h
// (contract).  SPDX-License-Identifier: Apache-2.0
#include "train/train.h"

#include <math.h>

static const char *human(char buf[32], int64_t bytes) { return asp_human_bytes(buf, 32, bytes); }

// Names from outside may hold quotes, and bytes that are no UTF-8, which JSON does not have: those
// become '?'.
static int sequence_bytes(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (s[0] >= 0x80 && (s[0] < 0xc2 || s[0] > 0xf4)) return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (n > 2 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
                  (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)))
        return 0;
    return n;
}

static void put_string(FILE *f, const char *key, const char *text)
{
    asp_print(f, ", \"%s\": \"", key);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = sequence_bytes(s);
        if (*s < 0x20)
            asp_print(f, "\\u%04x", *s);
        else if (n == 0)
            fputc('?', f);
        else
            asp_print(f, "%s%.*s", *s == '"' || *s == '\\' ? "\\" : "", n, (const char *)s);
        s += n ? n : 1;
    }
    fputc('"', f);
}

// JSON has no NaN.
static void put_number(FILE *f, const char *key, double v)
{
    if (isfinite(v))
        asp_print(f, ", \"%s\": %.17g", key, v);
    else
        asp_print(f, ", \"%s\": null", key);
}

// What --sp auto weighed.  Times are of the models of cost/.
static void choice_json(FILE *f, const asp_choice *c)
{
    if (c->n == 0) return;
    put_string(f, "strategy", c->at[c->chosen].sp);
    asp_print(f, ", \"candidates\": [");
    for (int i = 0; i < c->n; i++) {
        const asp_candidate *x = &c->at[i];
        asp_print(f, "%s{\"sp\": \"%s\"", i ? ", " : "", x->sp);
        if (*x->why)
            put_string(f, "refused", x->why);
        else
            asp_print(f,
                      ", \"seconds\": %.9g, \"exchange_seconds\": %.9g, \"exchanges\": %lld, "
                      "\"received_bytes\": %lld, \"rank_bytes\": %lld",
                      x->price.seconds, x->price.exchange_seconds, (long long)x->price.exchanges,
                      (long long)x->price.received_bytes, (long long)x->rank_bytes);
        asp_print(f, "}");
    }
    asp_print(f, "]");
}

static void choice_text(FILE *f, const asp_choice *c, int64_t memory)
{
    char a[32], b[32];
    if (c->n == 0) return;
    const bool fits = memory <= 0 || c->at[c->chosen].rank_bytes <= memory;
    asp_print(f, "strategy  %s: %s of what --sp auto weighed\n", c->at[c->chosen].sp,
              fits ? "the quickest" : "the smallest");
    asp_print(f, "          %-14s %12s %12s %10s %13s %13s\n", "", "ms a step", "of exchanges",
              "exchanges", "received", "a rank");
    for (int i = 0; i < c->n; i++) {
        const asp_candidate *x = &c->at[i];
        if (*x->why) {
            asp_print(f, "          %-14s refused: %s\n", x->sp, x->why);
            continue;
        }
        asp_print(f, "        %c %-14s %12.3f %12.3f %10lld %13s %13s%s\n",
                  i == c->chosen ? '>' : ' ', x->sp, x->price.seconds * 1e3,
                  x->price.exchange_seconds * 1e3, (long long)x->price.exchanges,
                  human(a, x->price.received_bytes), human(b, x->rank_bytes),
                  memory > 0 && x->rank_bytes > memory ? " too much" : "");
    }
}

static void plan_json(FILE *f, const asp_plan *plan, int64_t seq, double compile_ms,
                      int64_t max_seq)
{
    const asp_plan_report *p = asp_plan_get_report(plan);
    asp_print(f,
              "{\"record\": \"plan\", \"seq\": %lld, \"ranks\": %lld, \"replicas\": %lld, "
              "\"predicted_peak_bytes_rank\": %lld, "
              "\"predicted_process_bytes\": %lld",
              (long long)seq, (long long)asp_plan_ranks(plan), (long long)asp_plan_replicas(plan),
              (long long)p->rank_bytes, (long long)p->process_bytes);
    put_string(f, "peak_at", p->peak_at);
    asp_print(f, ", \"bytes_by_kind\": {");
    for (int k = 0; k < ASP_MEM_KIND_COUNT; k++)
        asp_print(f, "%s\"%s\": %lld", k ? ", " : "", asp_mem_kind_name((asp_mem_kind)k),
                  (long long)p->bytes_by_kind[k]);
    asp_print(f,
              "}, \"offload_bytes\": %lld, \"kept_bytes\": %lld, \"arena_bytes\": %lld, "
              "\"max_live_bytes\": %lld, "
              "\"flops\": %.17g, "
              "\"collectives\": [",
              (long long)p->offload_bytes, (long long)p->kept_bytes, (long long)p->arena_bytes,
              (long long)p->max_live_bytes, p->flops);
    for (int i = 0; i < p->n_exchanges; i++)
        asp_print(f, "%s{\"op\": \"%s\", \"what\": \"%s\", \"count\": %lld, \"bytes\": %lld}",
                  i ? ", " : "", asp_comm_op_name(p->exchanges[i].op), p->exchanges[i].what,
                  (long long)p->exchanges[i].count, (long long)p->exchanges[i].bytes);
    asp_print(f, "], \"largest\": [");
    for (int i = 0; i < p->n_largest; i++) {
        asp_print(f, "%s{\"op\": \"%s\"", i ? ", " : "", p->largest[i].op);
        put_string(f, "layer", p->largest[i].loc);
        asp_print(f, ", \"kind\": \"%s\", \"bytes\": %lld}", asp_mem_kind_name(p->largest[i].kind),
                  (long long)p->largest[i].bytes);
    }
    asp_print(f, "]");
    asp_print(f, ", \"repeated_flops\": %.17g", p->repeated_flops);
    choice_json(f, asp_plan_get_choice(plan));
    asp_print(f, ", \"compile_ms\": %.3f, \"max_seq\": %lld}\n", compile_ms, (long long)max_seq);
    fflush(f);
}

static int64_t count_params(const asp_plan *p)
{
    int64_t n = 0;
    for (int i = 0; i < asp_plan_n_params(p); i++) n += asp_plan_get_param(p, i)->count;
    return n;
}

// The larger part of what is there at the fullest.
static void longest_text(FILE *f, const asp_plan_report *p, int64_t max_seq, int64_t memory)
{
    const int64_t momentary = p->bytes_by_kind[ASP_MEM_ACTIVATION] - p->kept_bytes;
    const struct {
        const char *what;
        int64_t bytes;
    } parts[] = {{"values kept for the backward", p->kept_bytes},
                 {"values between ops", momentary},
                 {"scratch of kernels and exchanges", p->bytes_by_kind[ASP_MEM_WORKSPACE]},
                 {"parameters, gradients and optimizer", p->bytes_by_kind[ASP_MEM_PARAM] +
                                                             p->bytes_by_kind[ASP_MEM_GRAD] +
                                                             p->bytes_by_kind[ASP_MEM_OPTIMIZER]}};
    size_t most = 0;
    char a[32], b[32];
    for (size_t i = 1; i < ASP_COUNT_OF(parts); i++)
        if (parts[i].bytes > parts[most].bytes) most = i;
    asp_print(f, "longest   S = %lld in %s a rank; what binds is %s: %s, at %s\n",
              (long long)max_seq, human(a, memory), parts[most].what, human(b, parts[most].bytes),
              p->peak_at);
}

static void plan_text(FILE *f, const asp_plan *plan, const asp_train_options *o, int64_t seq,
                      double compile_ms, int64_t max_seq)
{
    const asp_plan_report *p = asp_plan_get_report(plan);
    const asp_dtype dtype = o->dtype == ASP_BF16 ? ASP_BF16 : asp_plan_dtype(plan);
    char a[32], b[32], replicas[48] = "";
    if (o->dp > 1) snprintf(replicas, sizeof replicas, "%lld replicas x ", (long long)o->dp);
    asp_print(
        f,
        "plan      %.2f M parameters, S = %lld, batch %lld, %s%lld rank%s x %lld thread%s, %s, "
        "--sp %s, --ac %s%s\n",
        (double)count_params(plan) / 1e6, (long long)seq, (long long)o->batch, replicas,
        (long long)o->ranks, o->ranks == 1 ? "" : "s", (long long)o->threads,
        o->threads == 1 ? "" : "s", asp_dtypes[dtype].name, asp_train_sp(o), o->ac,
        o->fuse_optimizer ? ", --fuse-optimizer" : "");
    asp_print(f, "          compiled in %.0f ms: %d steps, %.1f GFLOP a rank\n", compile_ms,
              p->n_steps, p->flops / 1e9);
    if (p->repeated_flops > 0)
        asp_print(f, "          %.1f GFLOP of these (%.1f %%) again, for the backward\n",
                  p->repeated_flops / 1e9, 100 * p->repeated_flops / p->flops);
    choice_text(f, asp_plan_get_choice(plan), o->memory);
    asp_print(f, "memory    %s a rank, %s the process; peak at %s\n", human(a, p->rank_bytes),
              human(b, p->process_bytes), p->peak_at);
    for (int k = 0; k < ASP_MEM_KIND_COUNT; k++)
        asp_print(f, "          %-12s %12s%s%s\n", asp_mem_kind_name((asp_mem_kind)k),
                  human(a, p->bytes_by_kind[k]),
                  k == ASP_MEM_ACTIVATION ? ", kept for the backward " : "",
                  k == ASP_MEM_ACTIVATION ? human(b, p->kept_bytes) : "");
    int64_t lost = p->arena_bytes - p->max_live_bytes;
    asp_print(f, "          %-12s %12s (%.2f %% of the arena)\n", "fragments", human(a, lost),
              p->arena_bytes ? 100.0 * (double)lost / (double)p->arena_bytes : 0);
    for (int i = 0; i < p->n_largest; i++)
        asp_print(f, "%s %s: %s, %s%s\n", i ? "                   " : "          largest  ",
                  p->largest[i].loc, p->largest[i].op, human(a, p->largest[i].bytes),
                  p->largest[i].kind == ASP_MEM_WORKSPACE ? " of scratch"
                  : p->largest[i].kind == ASP_MEM_GRAD    ? " of gradients"
                                                          : "");
    if (p->n_exchanges == 0) asp_print(f, "exchanges none\n");
    for (int i = 0; i < p->n_exchanges; i++)
        asp_print(f, "%s %s: %lld x %s, %s a step received by rank 0\n",
                  i ? "         " : "exchanges", p->exchanges[i].what,
                  (long long)p->exchanges[i].count, asp_comm_op_name(p->exchanges[i].op),
                  human(a, p->exchanges[i].bytes));
    if (p->offload_bytes > 0)
        asp_print(f, "offloaded %s a rank, written and read once a step in %s\n",
                  human(a, p->offload_bytes), o->offload);
    if (max_seq > 0) longest_text(f, p, max_seq, o->memory);
    fflush(f);
}

void asp_report_plan(const asp_report *r, const asp_plan *p, const asp_train_options *o,
                     int64_t seq, double compile_ms, int64_t max_seq)
{
    if (r->json) plan_json(r->json, p, seq, compile_ms, max_seq);
    if (r->text) plan_text(r->text, p, o, seq, compile_ms, max_seq);
}

void asp_report_levers(const asp_report *r, const asp_levers *l)
{
    if (r->json) {
        asp_print(r->json, "{\"record\": \"levers\", \"levers\": [");
        for (int i = 0; i < l->n; i++)
            asp_print(r->json, "%s{\"options\": \"%s\", \"max_seq\": %lld}", i ? ", " : "",
                      l->at[i].says, (long long)l->at[i].seq);
        asp_print(r->json, "]}\n");
    }
    if (!r->text) return;
    if (l->n == 0) asp_print(r->text, "next      no other option makes it longer\n");
    for (int i = 0; i < l->n; i++)
        asp_print(r->text, "%s %-26s S = %lld, %.2f times as long\n", i ? "         " : "next     ",
                  l->at[i].says, (long long)l->at[i].seq, (double)l->at[i].seq / (double)l->seq);
    fflush(r->text);
}

static void resume_json(FILE *f, const asp_checkpoint *c)
{
    asp_print(f, "{\"record\": \"resume\", \"step\": %lld, \"changed\": \"%s\"}\n",
              (long long)c->step, c->changes); // options, words and numbers: nothing to quote
    fflush(f);
}

void asp_report_resume(const asp_report *r, const asp_checkpoint *c, const asp_train_options *o)
{
    if (r->json) resume_json(r->json, c);
    if (!r->text) return;
    asp_print(r->text, "resume    %s", c->folder);
    if (*c->changes)
        asp_print(r->text, " with %s: from here the bits are not those of the first run",
                  c->changes);
    asp_print(r->text, "\n");
    if (c->step >= o->steps)
        asp_print(r->text,
                  "nothing left to do: %s holds step %lld, --steps is %lld; a larger one goes on\n",
                  o->resume, (long long)c->step, (long long)o->steps);
    fflush(r->text);
}

void asp_report_step(const asp_report *r, const asp_step_report *s)
{
    char a[32];
    if (r->json) {
        asp_print(r->json, "{\"record\": \"step\", \"step\": %lld", (long long)s->step);
        put_number(r->json, "loss", s->loss);
        put_number(r->json, "grad_norm", s->grad_norm);
        put_number(r->json, "lr", s->lr);
        put_number(r->json, "exchange_seconds", s->exchange_seconds);
        put_number(r->json, "mfu", s->mfu);
        asp_print(
            r->json,
            ", \"tokens\": %lld, \"targets\": %lld, \"seconds\": %.6f, \"exchanged_bytes\": %lld, "
            "\"process_bytes\": %lld}\n",
            (long long)s->tokens, (long long)s->targets, s->seconds, (long long)s->exchanged_bytes,
            (long long)s->process_bytes);
        fflush(r->json);
    }
    if (!r->text) return;
    bool last = s->step == s->steps;
    if (!r->live && s->step != 1 && s->step % 10 != 0 && !last) return; // a log is not flooded
    asp_print(r->text, "%sstep %4lld/%lld  loss %.4f  %8.0f tokens/s  peak %s%s",
              r->live ? "\r" : "", (long long)s->step, (long long)s->steps, s->loss,
              (double)s->tokens / s->seconds, human(a, s->process_bytes),
              !r->live || last ? "\n" : "   ");
    fflush(r->text);
}

void asp_report_summary(const asp_report *r, const asp_plan *p, double first_loss, double last_loss,
                        int64_t process_bytes, int64_t exchanged_bytes, int64_t offloaded_bytes)
{
    const asp_plan_report *plan = asp_plan_get_report(p);
    char a[32], b[32];
    int64_t planned = 0;
    if (!r->text) return;
    for (int i = 0; i < plan->n_exchanges; i++) planned += plan->exchanges[i].bytes;
    asp_print(r->text, "loss      %.4f -> %.4f nats a token\n", first_loss, last_loss);
    if (process_bytes > 0)
        asp_print(r->text, "memory    predicted %s, measured %s (%+.2f %%)\n",
                  human(a, plan->process_bytes), human(b, process_bytes),
                  100.0 * ((double)process_bytes / (double)plan->process_bytes - 1));
    asp_print(r->text, "exchanged predicted %lld bytes a step, counted %lld (%s)\n",
              (long long)planned, (long long)exchanged_bytes,
              planned == exchanged_bytes ? "equal" : "DIFFERENT");
    if (plan->offload_bytes > 0)
        asp_print(r->text, "offloaded predicted %lld bytes a step, counted %lld (%s)\n",
                  (long long)(2 * plan->offload_bytes), (long long)offloaded_bytes,
                  2 * plan->offload_bytes == offloaded_bytes ? "equal" : "DIFFERENT");
    fflush(r->text);
}

void asp_report_verify(const asp_report *r, const asp_verify_report *v)
{
    if (r->json) {
        asp_print(r->json, "{\"record\": \"verify\", \"ranks\": %lld", (long long)v->ranks);
        put_number(r->json, "loss_1", v->loss_1);
        put_number(r->json, "loss_p", v->loss_p);
        put_number(r->json, "loss_rel", v->loss_rel);
        put_string(r->json, "worst_grad", v->worst_grad);
        put_number(r->json, "worst_grad_rel", v->worst_grad_rel);
        asp_print(r->json, ", \"params_equal\": %s, \"ok\": %s}\n",
                  v->params_equal ? "true" : "false", v->ok ? "true" : "false");
        fflush(r->json);
    }
    if (!r->text) return;
    asp_print(r->text, "verify    %lld rank%s against 1, one step of the same program\n",
              (long long)v->ranks, v->ranks == 1 ? "" : "s");
    asp_print(r->text, "          %-34s %12s %12s\n", "", "difference", "bound");
    asp_print(r->text, "          loss %.9g against %.9g %*s %10.2e %12.0e\n", v->loss_p, v->loss_1,
              1, "", v->loss_rel, v->loss_bound);
    asp_print(r->text, "          worst gradient: %s\n          %-34s %12.2e %12.0e\n",
              v->worst_grad, "", v->worst_grad_rel, v->grad_bound);
    asp_print(r->text, "          parameters after the step: %s on all ranks\n",
              v->params_equal ? "bit-equal" : "NOT equal");
    asp_print(r->text, "          %s\n", v->ok ? "ok" : "FAILED");
    fflush(r->text);
}

void asp_report_end(const asp_report *r, bool ok)
{
    if (!r->json) return;
    asp_print(r->json, "{\"record\": \"end\", \"ok\": %s}\n", ok ? "true" : "false");
    fflush(r->json);
}
