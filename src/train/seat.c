// What each rank of a run has, wherever it runs: threads, memory, the optimizer's numbers.
// Neighbours: loop.c, verify.c, trainer.c (whose ranks these are).  SPDX-License-Identifier:
// Apache-2.0
#include "train/train_int.h"

#include <stdlib.h>

asp_status asp_seat_open(asp_ctx *cx, const asp_plan *p, asp_comm *comm, int64_t threads,
                         int first_cpu, asp_seat *out_seat)
{
    asp_seat s = {0};
    ASP_TRY(asp_team_create(cx, (int)threads, first_cpu, &s.team));
    asp_status status = asp_rank_create(cx, p, comm, s.team, &s.rank);
    if (status == ASP_OK) {
        s.squares = calloc((size_t)asp_adamw_chunks(p) + 1, sizeof *s.squares);
        if (!s.squares) status = asp_fail(cx, ASP_ERR_NOMEM, "no memory for the gradient norm");
    }
    if (status < 0)
        asp_seat_close(&s);
    else
        *out_seat = s;
    return status;
}

void asp_seat_close(asp_seat *s)
{
    free(s->squares);
    asp_targets_close(s->targets);
    asp_rank_destroy(s->rank);
    asp_team_destroy(s->team);
    *s = (asp_seat){0};
}

asp_adamw asp_train_adamw(const asp_train_options *o, double lr)
{
    return (asp_adamw){.lr = lr,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .eps = 1e-8,
                       .weight_decay = o->weight_decay,
                       .clip = o->clip,
                       .seed = (uint64_t)o->seed};
}

int64_t asp_train_exchanged(const asp_comm *comm)
{
    asp_comm_counts c = asp_comm_counted(comm);
    int64_t sum = 0;
    for (int i = 0; i < ASP_COMM_OP_COUNT; i++) sum += c.bytes[i];
    return sum;
}
