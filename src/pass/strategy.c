// What --sp asks for, and which attention a ring can compute.  Neighbours: place.h (contract),
// placement.c (prices), shard.c (who builds it).  SPDX-License-Identifier: Apache-2.0
#include "op/attention.h"
#include "pass/place.h"

#include <stdlib.h>

static asp_status read_hybrid(asp_ctx *cx, const char *sp, int64_t ranks, asp_strategy *out)
{
    char *end;
    asp_strategy s = {.kind = ASP_SP_HYBRID};
    s.heads = strtoll(sp + strlen("hybrid:"), &end, 10);
    if (*end == 'x') s.rings = strtoll(end + 1, &end, 10);
    if (*end || s.heads < 1 || s.rings < 1 || s.heads > 1 << 20 || s.rings > 1 << 20)
        return asp_fail(
            cx, ASP_ERR_USAGE,
            "--sp %s: hybrid:UxR is wanted, U ranks that share heads out times R groups "
            "on a ring",
            sp);
    if (s.heads * s.rings != ranks)
        return asp_fail(cx, ASP_ERR_USAGE, "--sp %s is for %lld ranks, not for %lld", sp,
                        (long long)(s.heads * s.rings), (long long)ranks);
    if (s.heads == 1) s = (asp_strategy){.kind = ASP_SP_RING, .heads = ranks, .rings = 1};
    if (s.rings == 1 && s.kind == ASP_SP_HYBRID) s.kind = ASP_SP_ULYSSES;
    *out = s;
    return ASP_OK;
}

asp_status asp_strategy_parse(asp_ctx *cx, const char *sp, int64_t ranks, asp_strategy *out_sp)
{
    static const struct {
        const char *name;
        asp_sp_kind kind;
    } table[] = {{"auto", ASP_SP_AUTO},
                 {"mixed", ASP_SP_AUTO},
                 {"ulysses", ASP_SP_ULYSSES},
                 {"ring", ASP_SP_RING}};
    if (!sp) sp = "auto";
    for (size_t i = 0; i < ASP_COUNT_OF(table); i++) {
        if (strcmp(table[i].name, sp) != 0) continue;
        *out_sp = (asp_strategy){.kind = table[i].kind, .heads = ranks, .rings = 1};
        return ASP_OK;
    }
    if (strncmp(sp, "hybrid:", strlen("hybrid:")) == 0) return read_hybrid(cx, sp, ranks, out_sp);
    return asp_fail(cx, ASP_ERR_USAGE,
                    "--sp '%s' is not known; there are auto, ulysses, ring, hybrid:UxR and mixed",
                    sp);
}

// Tokens stand in dim 2 of q, k and v alone, and everything else is whole.
static bool has_own_dims(const asp_axes *x, const asp_node_info *info)
{
    for (uint32_t i = 0; i < 3; i++) {
        asp_val v = info->in[i];
        if (x->replicable[v.i] || !x->dims[v.i]) return false;
        for (uint32_t d = 0; d < 4; d++) {
            asp_atoms list = x->dims[v.i][d];
            uint32_t tokens = asp_axes_count_tokens(x, list);
            if (tokens != (d == 2) || (d == 2 && list.n != 1)) return false;
            if (d != 2) continue;
            if (!asp_size_equal(asp_axes_base_size(x, list.at[0]), x->atoms.at[list.at[0]].size))
                return false; // cut short
        }
    }
    for (uint32_t i = 3; i < info->n_in; i++)
        if (!x->replicable[info->in[i].i]) return false;
    return true;
}

const char *asp_ring_obstacle(const asp_axes *x, asp_node n)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    const asp_sdpa_attr *a = info->attr;
    asp_mask m;
    if (info->op != ASP_OP_sdpa) return "it is not fused attention";
    ASP_CHECK(asp_mask_read(a->mask, &m));
    const asp_sdpa_parts parts = asp_sdpa_parts_of(a, &m, 3);
    // The gradient of a bias is of pairs, and no rank has all keys.
    if (parts.bias && x->needs_grad[info->in[parts.bias].i]) return "its bias is trained";
    if (!has_own_dims(x, info)) return "its tokens do not stand in one dimension of their own";
    return NULL;
}

bool asp_takes_ring(const asp_strategy *sp, const asp_axes *x, asp_node n)
{
    if (sp->kind != ASP_SP_RING && sp->kind != ASP_SP_AUTO) return false;
    if (asp_ring_obstacle(x, n)) return false;
    const asp_sdpa_attr *a = asp_node_at(x->g, n)->attr;
    return !sp->plain || !(a->bias || a->sinks || *a->alibi);
}
