// autosp.h's recomputation: a description read from JSON, choices made on it, told as text.
// Neighbours: autosp.h (contract), remat_json.h (reading), remat.h (choosing), cli/remat.c.
// SPDX-License-Identifier: Apache-2.0
#include "flow/remat_json.h"

struct asp_recompute {
    asp_ctx *cx;     // borrowed
    asp_arena arena; // owns all, this struct too
    asp_remat_file file;
    bool chosen;
    const char *policy, *from;
    const uint32_t *saved;
    uint32_t n_saved;
    uint32_t *again; // values, in the order in which they are made again
    uint32_t n_again;
    asp_remat_cost cost;
    int64_t cut;
    const char *text, *json;
};

// ---- choosing ------------------------------------------------------------------------------

static const struct {
    const char *name;
    asp_remat_policy policy;
} policies[] = {{"none", ASP_REMAT_KEEP_ALL},
                {"default", ASP_REMAT_DEFAULT},
                {"sac", ASP_REMAT_SAC},
                {"layer", ASP_REMAT_LAYER}};

static uint32_t options_of(const asp_recompute *r)
{
    return (r->file.fused ? ASP_REMAT_FUSED : 0) | (r->file.sideways ? ASP_REMAT_SIDEWAYS : 0);
}

static asp_status choose_budget(asp_recompute *r, int64_t bytes)
{
    asp_remat_candidate c;
    if (bytes <= 0)
        return asp_fail(r->cx, ASP_ERR_USAGE,
                        "recompute: the policy budget needs the bytes that the peak may be");
    ASP_TRY(asp_remat_budget(r->cx, &r->arena, &r->file.program, options_of(r), bytes, &c));
    r->saved = c.saved;
    r->n_saved = c.n_saved;
    r->from = c.from;
    r->cut = 0;
    return ASP_OK;
}

static asp_status choose_by(asp_recompute *r, const char *policy)
{
    const asp_remat_file *f = &r->file;
    asp_remat_choice c;
    size_t i = 0;
    if (strcmp(policy, "cut") == 0) {
        ASP_TRY(asp_remat_cut(r->cx, &r->arena, &f->program, f->keep, f->redo, &c));
    } else if (strcmp(policy, "default") == 0 && f->fraction >= 0) {
        ASP_TRY(asp_remat_fraction(r->cx, &r->arena, &f->program, f->fraction, &c));
    } else {
        while (i < ASP_COUNT_OF(policies) && strcmp(policies[i].name, policy) != 0) i++;
        if (i == ASP_COUNT_OF(policies))
            return asp_fail(r->cx, ASP_ERR_USAGE,
                            "recompute: there is no policy '%.40s'; none, default, sac, layer, "
                            "budget and cut are known",
                            policy);
        ASP_TRY(asp_remat_choose(r->cx, &r->arena, &f->program, policies[i].policy, &c));
    }
    r->saved = c.saved;
    r->n_saved = c.n_saved;
    r->cut = c.cut;
    r->from = policy;
    return ASP_OK;
}

static asp_status measure(asp_recompute *r)
{
    const asp_remat_program *p = &r->file.program;
    asp_remat_schedule s;
    ASP_TRY(asp_remat_emit(r->cx, &r->arena, p, r->saved, r->n_saved, &s));
    asp_remat_simulate(&r->arena, p, r->saved, r->n_saved, &s, options_of(r), &r->cost);
    r->again = ASP_NEW_ARRAY(&r->arena, uint32_t, p->n_values);
    r->n_again = 0;
    for (uint32_t i = s.n_forward; i < s.n_steps; i++) {
        const asp_remat_op *o = &p->ops[s.steps[i].op];
        for (uint32_t k = 0; s.steps[i].repeated && k < o->n_results; k++)
            r->again[r->n_again++] = o->first_result + k;
    }
    return ASP_OK;
}

// ---- telling -------------------------------------------------------------------------------

static void put_names(asp_text *t, const asp_recompute *r, const uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) asp_put(t, " %s", r->file.program.names[list[i]]);
    asp_put(t, "\n");
}

static void tell(asp_recompute *r)
{
    asp_text t;
    const asp_remat_cost *c = &r->cost;
    asp_text_init(&t, &r->arena);
    asp_put(&t, "policy    %s%s%s\n", r->policy, strcmp(r->policy, r->from) ? ", found by " : "",
            strcmp(r->policy, r->from) ? r->from : "");
    asp_put(&t, "keeps     %lld bytes, %u values:", (long long)c->saved_bytes, r->n_saved);
    put_names(&t, r, r->saved, r->n_saved);
    asp_put(&t, "repeats   %lld ps, %u ops:", (long long)c->repeated_ps, c->repeated_ops);
    put_names(&t, r, r->again, r->n_again);
    asp_put(&t, "peak      %lld bytes (forward %lld, backward %lld)\n", (long long)c->peak,
            (long long)c->forward_peak, (long long)c->backward_peak);
    if (r->cut) asp_put(&t, "cut       %lld\n", (long long)r->cut);
    asp_put(&t, "hash      %016llx\n", (unsigned long long)asp_remat_hash(r->saved, r->n_saved));
    r->text = t.at;
}

static void put_list(asp_text *t, const asp_recompute *r, const char *key, const uint32_t *list,
                     uint32_t n)
{
    asp_put(t, ", \"%s\": [", key);
    for (uint32_t i = 0; i < n; i++) {
        asp_put(t, "%s", i ? ", " : "");
        asp_put_quoted(t, r->file.program.names[list[i]]);
    }
    asp_put(t, "]");
}

static void tell_json(asp_recompute *r)
{
    static const char *const numbers[] = {"peak", "forward_peak", "backward_peak",
                                          "kept", "ps",           "cut"};
    asp_text t;
    asp_text_init(&t, &r->arena);
    asp_put(&t, "{\"record\": \"recompute\", \"policy\": \"%s\", \"from\": \"%s\"", r->policy,
            r->from);
    for (size_t i = 0; i < ASP_COUNT_OF(numbers); i++)
        asp_put(&t, ", \"%s\": %lld", numbers[i], (long long)asp_recompute_number(r, numbers[i]));
    asp_put(&t, ", \"hash\": \"%016llx\"",
            (unsigned long long)asp_remat_hash(r->saved, r->n_saved));
    put_list(&t, r, "keep", r->saved, r->n_saved);
    put_list(&t, r, "again", r->again, r->n_again);
    asp_put(&t, "}");
    r->json = t.at;
}

// ---- the calls -----------------------------------------------------------------------------

typedef struct call {
    asp_recompute *r;
    const char *file, *text, *policy;
    size_t n;
    int64_t bytes;
} call;

static asp_status parse(asp_ctx *cx, void *arg)
{
    call *c = arg;
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_recompute *r = ASP_NEW(&a, asp_recompute); // lies on its own arena
    r->cx = cx;
    r->arena = a;
    asp_status s = asp_remat_parse(cx, &r->arena, c->file, c->text, c->n, &r->file);
    if (s == ASP_OK)
        c->r = r;
    else
        asp_recompute_destroy(r);
    return s;
}

asp_status asp_recompute_parse(asp_ctx *cx, const char *file, const char *text, size_t bytes,
                               asp_recompute **out_recompute)
{
    call c = {.file = file ? file : "recompute", .text = text, .n = bytes};
    if (!text || !out_recompute)
        return asp_fail(cx, ASP_ERR_USAGE, "asp_recompute_parse: an argument is NULL");
    ASP_TRY(asp_guard(cx, parse, &c));
    *out_recompute = c.r;
    return ASP_OK;
}

void asp_recompute_destroy(asp_recompute *r)
{
    if (!r) return;
    asp_arena a = r->arena;
    asp_arena_fini(&a);
}

static asp_status choose(asp_ctx *cx, void *arg)
{
    call *c = arg;
    asp_recompute *r = c->r;
    const char *policy = c->policy ? c->policy : r->file.policy ? r->file.policy : "default";
    int64_t bytes = c->bytes > 0 ? c->bytes : r->file.budget;
    r->chosen = false;
    r->policy = asp_copy_str(&r->arena, policy);
    if (strcmp(policy, "budget") == 0)
        ASP_TRY(choose_budget(r, bytes));
    else
        ASP_TRY(choose_by(r, r->policy));
    ASP_TRY(measure(r));
    (void)cx;
    r->chosen = true;
    tell(r);
    tell_json(r);
    return ASP_OK;
}

asp_status asp_recompute_choose(asp_recompute *r, const char *policy, int64_t bytes)
{
    if (!r) return ASP_ERR_USAGE;
    call c = {.r = r, .policy = policy, .bytes = bytes};
    return asp_guard(r->cx, choose, &c);
}

static const char *name_at(const asp_recompute *r, const uint32_t *list, uint32_t n, size_t i)
{
    return i < n ? r->file.program.names[list[i]] : NULL;
}

const char *asp_recompute_kept(const asp_recompute *r, size_t i)
{
    return r && r->chosen ? name_at(r, r->saved, r->n_saved, i) : NULL;
}

const char *asp_recompute_again(const asp_recompute *r, size_t i)
{
    return r && r->chosen ? name_at(r, r->again, r->n_again, i) : NULL;
}

int64_t asp_recompute_number(const asp_recompute *r, const char *name)
{
    if (!r || !r->chosen || !name) return -1;
    const struct {
        const char *name;
        int64_t value;
    } table[] = {{"peak", r->cost.peak},
                 {"forward_peak", r->cost.forward_peak},
                 {"backward_peak", r->cost.backward_peak},
                 {"kept", r->cost.saved_bytes},
                 {"ps", r->cost.repeated_ps},
                 {"cut", r->cut},
                 {"hash", (int64_t)(asp_remat_hash(r->saved, r->n_saved) >> 1)}};
    for (size_t i = 0; i < ASP_COUNT_OF(table); i++)
        if (strcmp(table[i].name, name) == 0) return table[i].value;
    return -1;
}

const char *asp_recompute_text(const asp_recompute *r) { return r && r->chosen ? r->text : NULL; }
const char *asp_recompute_json(const asp_recompute *r) { return r && r->chosen ? r->json : NULL; }
