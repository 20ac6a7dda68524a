// The gradients of a step: its micro-batches, one after the other on each replica, all replicas at
// once.
//
//   sequences of a step    0 1 2 3 | 4 5 6 7        micro-batches 0, 1 (--accumulate 2)
//   replica 0              0 1     | 4 5            --dp 2: number 2 m + replica of the run
//   replica 1                  2 3 |     6 7
//
// So N replicas see and draw what one sees in N times as many micro-batches, and the means are
// those of accumulate.c.  Neighbours: accumulate.c (sums over micro-batches), run/executor.c (means
// over replicas), targets.c (weights), loop.c and verify.c (who step).
// SPDX-License-Identifier: Apache-2.0
#include "train/train_int.h"

#include <math.h>

asp_status asp_train_gradients(asp_ctx *cx, const asp_batches *b, const asp_seat *seat,
                               asp_comm *comm, int64_t step, asp_gathered *out)
{
    asp_rank *r = seat->rank;
    const asp_train_options *o = b->o;
    const bool by_tokens = strcmp(o->weigh, "tokens") == 0;
    const int64_t replica = asp_comm_rank(comm) / o->ranks;
    asp_accumulated all = {0};
    *out = (asp_gathered){.loss = (double)NAN};
    for (int64_t m = step * o->accumulate; m < (step + 1) * o->accumulate; m++) {
        const int64_t i = m * o->dp + replica;
        int64_t n = 0;
        ASP_TRY(asp_train_fill_inputs(cx, r, b->plan, b->tokens, (uint64_t)o->seed, i));
        asp_rank_seed(r, (uint64_t)o->seed, (uint64_t)i);
        // Alone, one rank's count is enough for the report.
        if (o->accumulate > 1 || o->dp > 1 || asp_comm_rank(comm) == 0)
            ASP_TRY(asp_targets_count(seat->targets, cx, b->plan, r, &n));
        asp_rank_give_share(r, (asp_share){.weight = by_tokens ? (double)n : 1, .targets = n});
        ASP_TRY(asp_rank_step(r, &out->loss));
        if (o->dp > 1) n = asp_rank_shares(r).targets;
        out->targets += n;
        out->exchange_seconds += asp_rank_exchange_seconds(r);
        if (o->accumulate > 1)
            asp_accumulate(&all, r, b->plan, seat->team, out->loss, n, by_tokens);
    }
    if (o->accumulate > 1) out->loss = asp_accumulate_end(&all, r, b->plan, seat->team);
    return ASP_OK;
}

// ---- what replicas can share out ---------------------------------------------------------------

static asp_status check_type(asp_ctx *cx, asp_graph *g, asp_node n, int batch_dim)
{
    const asp_type *t = asp_val_type(g, asp_node_at(g, n)->first);
    for (uint32_t d = 0; d < t->rank; d++)
        if ((int)d != batch_dim && asp_size_mentions(g, t->dim[d], "B"))
            return asp_fail(
                cx, ASP_ERR_UNSUPPORTED,
                "--dp: %s, %s: dimension %u counts sequences of the batch and cannot be "
                "shared out over replicas, as that of an input that is B alone can; "
                "use --dp 1",
                asp_node_str(g, n), asp_type_str(g, t), d);
    return ASP_OK;
}

static asp_status check_sources(asp_ctx *cx, asp_graph *g)
{
    bool any = false;
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        if (info->op != ASP_OP_input && info->op != ASP_OP_param) continue;
        const bool input = info->op == ASP_OP_input;
        const int dim = input ? asp_batch_dim(g, asp_val_type(g, info->first)) : -1;
        ASP_TRY(check_type(cx, g, n, dim));
        any |= dim >= 0;
    }
    if (any) return ASP_OK;
    return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                    "--dp: graph %s has no input with a dimension B, so that there is nothing to "
                    "share out over replicas; use --dp 1",
                    g->name);
}

// A resumed run has its batch from the checkpoint, so that options alone do not tell.
static asp_status check_batch(asp_ctx *cx, const asp_train_options *o)
{
    const int64_t fewer = o->batch / o->dp * o->dp;
    if (o->batch == fewer) return ASP_OK;
    return asp_fail(cx, ASP_ERR_USAGE,
                    "--dp %lld: %lld sequences cannot be shared out over %lld replicas; give "
                    "--batch %lld",
                    (long long)o->dp, (long long)o->batch, (long long)o->dp,
                    (long long)(fewer ? fewer : o->dp));
}

asp_status asp_check_replicas(asp_ctx *cx, const asp_graph *module, const asp_train_options *o)
{
    if (o->dp == 1) return ASP_OK;
    ASP_TRY(check_batch(cx, o));
    asp_graph *g = asp_graph_clone(module); // messages lie on a graph's arena
    const asp_status s = check_sources(cx, g);
    asp_graph_destroy(g);
    return s;
}
