// What a run is made of, as a table: written into checkpoints, taken from them, compared with them;
// and what of it makes no sense.  Neighbours: settings.def (rows), checkpoint.c, resume.c.
// SPDX-License-Identifier: Apache-2.0
#include "pass/place.h"
#include "train/train_int.h"

#include <stdlib.h>
#include <unistd.h>

#define MAX_RANKS 1024
#define MAX_THREADS 1024
#define STRATEGY_KEY "sp-chosen" // beside the settings: what --sp auto came to

typedef enum setting_kind { KIND_i64, KIND_f64, KIND_str, KIND_dtype } setting_kind;
typedef enum on_resume { FIXED, SAID, FREE } on_resume;

typedef struct setting_row {
    const char *option;
    setting_kind kind;
    on_resume change;
    size_t offset;
} setting_row;

static const setting_row rows[ASP_SETTING_COUNT] = {
#define SETTING(kind, field, option, change) \
    {option, KIND_##kind, change, offsetof(asp_train_options, field)},
#include "train/settings.def"
#undef SETTING
};

const char *asp_setting_option(int i) { return rows[i].option; }

static bool is_auto(const asp_train_options *o) { return strcmp(o->sp, "auto") == 0; }

static void *at(asp_train_options *o, const setting_row *r) { return (char *)o + r->offset; }

// As the command line has it, and as JSON has it where quotes are wanted around words.
static void put_value(asp_text *t, const asp_train_options *o, const setting_row *r, bool quotes)
{
    const void *v = (const char *)o + r->offset;
    const char *word = NULL;
    switch (r->kind) {
    case KIND_i64: asp_put(t, "%lld", (long long)*(const int64_t *)v); return;
    case KIND_f64: asp_put_f64(t, 6, *(const double *)v); return;
    case KIND_str: word = *(const char *const *)v; break;
    case KIND_dtype: word = asp_dtypes[*(const asp_dtype *)v].name; break;
    }
    if (quotes)
        asp_put_quoted(t, word);
    else
        asp_put(t, "%s", word);
}

void asp_settings_put(asp_text *t, const asp_train_options *o, const char *strategy)
{
    for (int i = 0; i < ASP_SETTING_COUNT; i++) {
        asp_put(t, ",\n  \"%s\": ", rows[i].option);
        put_value(t, o, &rows[i], true);
    }
    if (!is_auto(o) || !strategy) return;
    asp_put(t, ",\n  \"%s\": ", STRATEGY_KEY);
    asp_put_quoted(t, strategy);
}

// Another machine would weigh strategies otherwise, and go on with other bits.  Other ranks weigh
// anew.
static asp_status keep_strategy(asp_arena *a, const char *folder, const json_t *state,
                                const asp_train_options *was, asp_train_options *now)
{
    const char *word;
    now->strategy = NULL;
    if (!is_auto(was) || !is_auto(now) || was->ranks != now->ranks || was->dp != now->dp)
        return ASP_OK;
    ASP_TRY(asp_json_str(a->cx, folder, state, STRATEGY_KEY, "", &word));
    if (*word) now->strategy = asp_copy_str(a, word);
    return ASP_OK;
}

static asp_status read_dtype(asp_ctx *cx, const char *file, const char *word, asp_dtype *out)
{
    if (asp_train_dtype(word, out)) return ASP_OK;
    return asp_fail(cx, ASP_ERR_INPUT, "%s: \"dtype\" must be f32, f64 or bf16", file);
}

static asp_status read_value(asp_arena *a, const char *file, const json_t *state,
                             const setting_row *r, asp_train_options *o)
{
    const char *word;
    switch (r->kind) {
    case KIND_i64: return asp_json_i64(a->cx, file, state, r->option, NULL, at(o, r));
    case KIND_f64: return asp_json_f64(a->cx, file, state, r->option, NULL, at(o, r));
    case KIND_str:
        ASP_TRY(asp_json_str(a->cx, file, state, r->option, NULL, &word));
        *(const char **)at(o, r) = asp_copy_str(a, word);
        return ASP_OK;
    case KIND_dtype:
        ASP_TRY(asp_json_str(a->cx, file, state, r->option, NULL, &word));
        return read_dtype(a->cx, file, word, at(o, r));
    }
    return ASP_OK;
}

static const char *spell(asp_arena *a, const asp_train_options *o, const setting_row *r)
{
    asp_text t;
    asp_text_init(&t, a);
    put_value(&t, o, r, false);
    return t.at;
}

static bool was_set(const asp_train_options *o, int i)
{
    if (i == ASP_SETTING_seq && o->seq == 0) return false; // "max" was found by the first run
    return o->given >> i & 1;
}

asp_status asp_settings_resume(asp_arena *a, const char *folder, const json_t *state,
                               asp_train_options *o, const char **out_changes)
{
    asp_text changes;
    asp_train_options was = {0}, now = *o;
    asp_text_init(&changes, a);
    asp_put(&changes, "%s", "");
    for (int i = 0; i < ASP_SETTING_COUNT; i++) {
        const setting_row *r = &rows[i];
        ASP_TRY(read_value(a, folder, state, r, &was));
        if (!was_set(o, i)) {
            ASP_TRY(read_value(a, folder, state, r, &now));
            continue;
        }
        const char *then = spell(a, &was, r), *given = spell(a, o, r);
        if (strcmp(then, given) == 0 || r->change == FREE) continue;
        if (r->change == FIXED)
            return asp_fail(a->cx, ASP_ERR_INPUT,
                            "%s was made with --%s %s, not %s; resuming continues that run, so "
                            "give the same or leave it out",
                            folder, r->option, then, given);
        asp_put(&changes, "%s--%s %s -> %s", changes.n ? ", " : "", r->option, then, given);
    }
    ASP_TRY(keep_strategy(a, folder, state, &was, &now));
    if (!o->threads_given) now.threads = asp_train_threads(asp_train_world(&now));
    ASP_TRY_NOTE(a->cx, asp_train_check(a->cx, &now), "%s", folder);
    *o = now;
    *out_changes = changes.at;
    return ASP_OK;
}

int64_t asp_train_threads(int64_t ranks)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return asp_max(cores / asp_max(ranks, 1), 1);
}

int64_t asp_train_world(const asp_train_options *o) { return o->ranks * o->dp; }
int64_t asp_train_batch(const asp_train_options *o) { return o->batch / o->dp; }

const char *asp_train_sp(const asp_train_options *o)
{
    return is_auto(o) && o->strategy ? o->strategy : o->sp;
}

static asp_status check_replicas(asp_ctx *cx, const asp_train_options *o)
{
    if (o->dp < 1 || o->dp > MAX_RANKS || asp_train_world(o) > MAX_RANKS)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--dp %lld of --ranks %lld: 1 replica or more, and at most %d ranks in all",
                        (long long)o->dp, (long long)o->ranks, MAX_RANKS);
    return ASP_OK;
}

static asp_status want_one_of(asp_ctx *cx, const char *name, const char *value,
                              const char *const *known)
{
    for (const char *const *k = known; *k; k++)
        if (strcmp(*k, value) == 0) return ASP_OK;
    char list[128] = "";
    for (const char *const *k = known; *k; k++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", *k);
    }
    return asp_fail(cx, ASP_ERR_USAGE, "--%s '%s': %s is wanted", name, value, list);
}

bool asp_train_half_params(const asp_train_options *o) { return strcmp(o->master, "none") == 0; }

int64_t asp_train_tile(const asp_train_options *o)
{
    char *end;
    if (strcmp(o->tile, "auto") == 0) return -1;
    if (strcmp(o->tile, "off") == 0) return 0;
    long long n = strtoll(o->tile, &end, 10);
    return *end || end == o->tile || n < 1 || n > INT64_C(1) << 40 ? -2 : n;
}

// What needs all gradients at once.
static asp_status check_fused(asp_ctx *cx, const asp_train_options *o)
{
    if (o->fuse_optimizer && o->clip > 0)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--fuse-optimizer with --clip %g: the norm to clip by is that of all "
                        "gradients, and each is gone before the next is known; give --clip 0",
                        o->clip);
    if (o->fuse_optimizer && o->dp > 1)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--fuse-optimizer with --dp %lld: replicas weigh their gradients once the "
                        "backward has ended; use --dp 1",
                        (long long)o->dp);
    if (o->fuse_optimizer && o->accumulate > 1)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--fuse-optimizer with --accumulate %lld: gradients are added up over "
                        "micro-batches, and none of them lives so long; give one of the two",
                        (long long)o->accumulate);
    return ASP_OK;
}

asp_status asp_train_check(asp_ctx *cx, const asp_train_options *o)
{
    asp_strategy strategy;
    static const char *const acs[] = {"none", "default", "sac", "layer", "budget", NULL};
    static const char *const weights[] = {"tokens", "batches", NULL};
    static const char *const masters[] = {"f32", "none", NULL};
    if (o->ranks < 1 || o->ranks > MAX_RANKS)
        return asp_fail(cx, ASP_ERR_USAGE, "--ranks %lld: 1 to %d are possible",
                        (long long)o->ranks, MAX_RANKS);
    if (o->seq < 0 || o->batch < 1 || o->steps < 1)
        return asp_fail(cx, ASP_ERR_USAGE, "--seq, --batch and --steps must be at least 1");
    ASP_TRY(check_replicas(cx, o));
    if (o->accumulate < 1 || o->accumulate > 1 << 20)
        return asp_fail(cx, ASP_ERR_USAGE, "--accumulate %lld: 1 to %d are possible",
                        (long long)o->accumulate, 1 << 20);
    ASP_TRY(want_one_of(cx, "weigh", o->weigh, weights));
    ASP_TRY(check_fused(cx, o));
    ASP_TRY(want_one_of(cx, "master", o->master, masters));
    if (asp_train_half_params(o) && o->dtype != ASP_BF16)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--master none: weights are bf16 with --dtype bf16 alone; give both");
    if (o->threads < 1 || o->threads > MAX_THREADS)
        return asp_fail(cx, ASP_ERR_USAGE, "--threads %lld: 1 to %d are possible",
                        (long long)o->threads, MAX_THREADS);
    const char *sp = asp_train_sp(o);
    if (strcmp(sp, "none") != 0) ASP_TRY(asp_strategy_parse(cx, sp, o->ranks, &strategy));
    if (asp_train_tile(o) == -2)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--tile '%s': auto, off or the tokens of a chunk are wanted", o->tile);
    ASP_TRY(want_one_of(cx, "ac", o->ac, acs));
    if (strcmp(o->ac, "budget") == 0 && o->memory <= 0)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--ac budget needs --memory BYTES: what a rank may take");
    return ASP_OK;
}
