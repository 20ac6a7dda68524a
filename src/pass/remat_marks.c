// The user's marks: `--recompute layers.*.mlp` keeps nothing of the inside of a region, `--save
// layers.3.attn` never computes again what leaves one (or a value of that name).
//
// A pattern is a place in the program, part by part between dots, * for any one part; it stands for
// everything below it.  Several are joined by +.  What a region hands on is not its inside: whether
// that is kept the policy decides.
// O(patterns x values).  Neighbours: remat.h (contract), flow/remat.h (what the flags mean).
// SPDX-License-Identifier: Apache-2.0
#include "pass/remat.h"

// Does the pattern (up to end) stand for this place?
static bool matches(const char *pattern, const char *end, const char *place)
{
    for (;;) {
        size_t n = 0, m = strcspn(place, ".");
        while (pattern + n < end && pattern[n] != '.') n++;
        bool any = n == 1 && *pattern == '*';
        if (!any && (n != m || memcmp(pattern, place, n) != 0)) return false;
        pattern += n;
        place += m;
        if (pattern == end) return true;
        if (!*place) return false;
        pattern++, place++;
    }
}

static const char *place_of(const asp_remat_description *x, uint32_t op)
{
    return asp_node_at(x->g, x->node_of[op])->loc;
}

// By value: is it read by a forward op outside of the pattern?
static bool *find_leaving(const asp_remat_description *x, const char *pattern, const char *end)
{
    bool *leaves = ASP_NEW_ARRAY(x->arena, bool, x->values.n);
    for (uint32_t i = 0; i < x->ops.n; i++) {
        const asp_remat_op *o = &x->ops.at[i];
        if (o->backward || matches(pattern, end, place_of(x, i))) continue;
        for (uint32_t r = 0; r < o->n_reads; r++) leaves[x->reads.at[o->first_read + r]] = true;
    }
    return leaves;
}

static bool is_named(const asp_remat_description *x, uint32_t v, const char *pattern,
                     const char *end)
{
    const char *name = asp_val_at(x->g, x->val_of[v])->name;
    size_t n = (size_t)(end - pattern);
    return name && strlen(name) == n && memcmp(name, pattern, n) == 0;
}

// Marks what the pattern stands for; returns how many values.
static uint32_t mark(asp_remat_description *x, const char *pattern, const char *end, uint32_t flag)
{
    const bool *leaves = find_leaving(x, pattern, end);
    bool saves = flag == ASP_REMAT_MUST_SAVE;
    uint32_t marked = 0;
    for (uint32_t i = 0; i < x->ops.n; i++) {
        const asp_remat_op *o = &x->ops.at[i];
        if (o->backward) continue;
        bool here = matches(pattern, end, place_of(x, i));
        for (uint32_t v = o->first_result; v < o->first_result + o->n_results; v++) {
            bool output = x->values.at[v].flags & ASP_REMAT_FORWARD_OUTPUT;
            bool hit = is_named(x, v, pattern, end) ||
                       (here && (saves ? leaves[v] || output : !leaves[v] && !output));
            if (!hit) continue;
            x->values.at[v].flags |= flag;
            marked++;
        }
    }
    return marked;
}

static asp_status mark_all(const asp_pass *px, asp_remat_description *x, const char *option,
                           const char *patterns, uint32_t flag)
{
    for (const char *p = patterns, *end; p && *p; p = *end ? end + 1 : end) {
        end = p + strcspn(p, "+");
        if (end > p && mark(x, p, end, flag) > 0) continue;
        return asp_fail(px->cx, ASP_ERR_USAGE,
                        "--%s %.*s: nothing of the forward is called so; give a place as "
                        "layers.3.mlp or layers.*.mlp, or the name of a value",
                        option, (int)(end - p), p);
    }
    return ASP_OK;
}

asp_status asp_remat_mark(const asp_pass *px, asp_remat_description *x)
{
    ASP_TRY(mark_all(px, x, "recompute", px->options->recompute, ASP_REMAT_MUST_RECOMPUTE));
    ASP_TRY(mark_all(px, x, "save", px->options->save, ASP_REMAT_MUST_SAVE));
    for (uint32_t v = 0; v < x->values.n; v++) {
        const uint32_t both = ASP_REMAT_MUST_RECOMPUTE | ASP_REMAT_MUST_SAVE;
        if ((x->values.at[v].flags & both) == both)
            return asp_fail(px->cx, ASP_ERR_USAGE,
                            "%s is to be kept by --save and not to be kept by --recompute; drop "
                            "one of the two",
                            x->names.at[v]);
    }
    return ASP_OK;
}
