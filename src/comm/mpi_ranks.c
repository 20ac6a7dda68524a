// How a job of mpi ranks begins and ends: MPI started where it is not, peers met, groups opened,
// one rank run, and who reports when some fail.  Without ASP_HAVE_MPI it is one refusal.
// Neighbours: mpi_int.h, mpi.c (operations), mpi_fail.c.  SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_int.h"

#ifndef ASP_HAVE_MPI

bool asp_mpi_is_built(void) { return false; }

asp_status asp_mpi_ranks_refuse(asp_ctx *cx, asp_status s)
{
    (void)cx;
    return s;
}

asp_status asp_mpi_ranks_run(asp_ctx *cx, int ranks, asp_rank_fn *fn, void *arg)
{
    (void)ranks, (void)fn, (void)arg;
    return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                    "--comm mpi: this autosp was built without MPI; install libopenmpi-dev and "
                    "openmpi-bin and build it again, or use --comm thread");
}

#else

#include <stdlib.h>
#include <unistd.h>

bool asp_mpi_is_built(void) { return true; }

#define LAST_WORD_US 2000000 // silent ranks let the speaking one end first

static asp_status start_mpi(asp_ctx *cx, bool *out_own)
{
    int running = 0, finished = 0, level = 0;
    MPI_Finalized(&finished);
    if (finished)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--comm mpi: MPI has ended in this process and cannot start again; run "
                        "one job per process");
    MPI_Initialized(&running);
    *out_own = !running;
    if (!running && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return asp_fail(cx, ASP_ERR_UNSUPPORTED, "--comm mpi: MPI does not start here");
    if (running) MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED)
        return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                        "--comm mpi: this MPI does not allow threads beside its own (level %d)",
                        level);
    return ASP_OK;
}

// Every rank learns who the others are; processes that this one can see are watched.
static void meet_peers(job *j, asp_status status)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int n = 0;
    MPI_Get_processor_name(name, &n);
    process me = {asp_hash(name, (size_t)n, 0), getpid(), status};
    MPI_Allgather(&me, (int)sizeof me, MPI_BYTE, j->peers, (int)sizeof me, MPI_BYTE, j->control);
    for (int r = 0; r < j->ranks; r++) {
        process *p = &j->peers[r];
        if (r == j->rank || p->host != me.host || !asp_mpi_is_alive(p)) p->pid = 0;
    }
}

static bool fill_comm(mpi_comm *c, job *j, int rank, int ranks)
{
    size_t n = (size_t)ranks;
    *c = (mpi_comm){
        .job = j, .small = malloc(n * ASP_COMM_SMALL_BYTES), .x = calloc(n, sizeof *c->x)};
    c->base = (asp_comm){.ops = &asp_mpi_ops,
                         .cx = &j->cx,
                         .rank = rank,
                         .ranks = ranks,
                         .kind = ASP_COMM_mpi,
                         .words = calloc(n, sizeof(uint64_t))};
    return c->small && c->x && c->base.words;
}

static void clear_comm(mpi_comm *c)
{
    free(c->small);
    free(c->x);
    free(c->base.words);
}

// Messages of a group go beside those of all: each pair of ranks sends and awaits in one order.
asp_status asp_mpi_open_group(asp_comm *base, int ranks, asp_comm **out_group)
{
    const int first = base->rank / ranks * ranks;
    mpi_comm *c = calloc(1, sizeof *c);
    if (c && fill_comm(c, ((mpi_comm *)base)->job, base->rank - first, ranks)) {
        c->base.first = first;
        *out_group = &c->base;
        return ASP_OK;
    }
    if (c) clear_comm(c);
    free(c);
    return asp_fail(base->cx, ASP_ERR_NOMEM, "no memory for a group of %d ranks", ranks);
}

static asp_status open_comm(asp_ctx *cx, asp_status before, mpi_comm *c, job *j)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &j->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &j->ranks);
    j->peers = calloc((size_t)j->ranks, sizeof *j->peers);
    j->notes = calloc((size_t)j->ranks, sizeof *j->notes);
    j->cx.verify_each_pass = cx->verify_each_pass;
    if (!fill_comm(c, j, j->rank, j->ranks) || !j->peers || !j->notes)
        return asp_fail(cx, ASP_ERR_NOMEM, "rank %d: the machine refused memory for %d ranks",
                        j->rank, j->ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &j->data);
    MPI_Comm_dup(MPI_COMM_WORLD, &j->control);
    MPI_Comm_set_errhandler(j->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(j->control, MPI_ERRORS_RETURN);
    meet_peers(j, before);
    j->watch = true;
    return ASP_OK;
}

static void free_comm(mpi_comm *c)
{
    mpi_comm *group = (mpi_comm *)c->base.group;
    if (group) clear_comm(group);
    free(group);
    clear_comm(c);
    free(c->job->peers);
    free(c->job->notes);
    free(c->job);
    free(c);
}

// mpirun ends the job as soon as one process leaves with an error: let the speaking one go first,
// so that its message is out.
static void let_speak(const job *j, int speaker)
{
    const process *p = &j->peers[speaker];
    int64_t start = asp_mpi_now_us();
    while (asp_mpi_now_us() - start < LAST_WORD_US && (p->pid == 0 || asp_mpi_is_alive(p)))
        asp_mpi_sleep_us(1000);
}

static asp_status report(asp_ctx *cx, const job *j)
{
    const note *n = &j->note;
    if (j->speaker != j->rank) {
        let_speak(j, j->speaker);
        cx->message[0] = '\0';
        return ASP_ERR_PEER;
    }
    if (n->together || j->ranks == 1)
        return asp_fail(cx, (asp_status)n->status, "%.4000s", n->text);
    return asp_fail(cx, (asp_status)n->status, "rank %d: %.4000s", n->rank, n->text);
}

// The given number of ranks against the processes there are; all find the same.
static asp_status check_ranks(mpi_comm *c, int ranks)
{
    if (ranks == c->base.ranks) return ASP_OK;
    return asp_fail(c->base.cx, ASP_ERR_USAGE,
                    "%d ranks (--ranks times --dp), but MPI started %d process%s; start it as "
                    "mpirun -n %d",
                    ranks, c->base.ranks, c->base.ranks == 1 ? "" : "es", ranks);
}

// Runs the rank; on success nobody leaves before all have come.
static asp_status run_rank(mpi_comm *c, asp_rank_fn *fn, void *arg)
{
    asp_status s = asp_rank_call(fn, arg, &c->base, c->base.cx);
    if (s < 0) return s;
    if (c->job->ended) return asp_mpi_ended(c->job);
    // A peer that has left the first barrier waits in the second, one that has left that may be
    // gone.
    ASP_TRY(asp_mpi_barrier(&c->base));
    c->job->watch = false;
    ASP_TRY(asp_mpi_barrier(&c->base));
    return s;
}

// Some have failed before their ranks could run: the lowest of them speaks, for all if all have.
static bool refused_before(const asp_ctx *cx, job *j)
{
    int first = -1, failed = 0;
    for (int r = 0; r < j->ranks; r++) {
        if (j->peers[r].status >= 0) continue;
        if (first < 0) first = r;
        failed++;
    }
    if (first < 0) return false;
    note n = {.status = (int)j->peers[first].status, .rank = first, .together = failed == j->ranks};
    if (first == j->rank) snprintf(n.text, sizeof n.text, "%s", cx->message);
    asp_mpi_stand(j, &n, first);
    return true;
}

static asp_status open_mpi(asp_ctx *cx, asp_status before, bool *out_own, mpi_comm **out_comm)
{
    ASP_TRY(start_mpi(cx, out_own));
    mpi_comm *c = calloc(1, sizeof *c);
    job *j = calloc(1, sizeof *j);
    if (!c || !j) {
        free(c);
        free(j);
        return asp_fail(cx, ASP_ERR_NOMEM, "the machine refused memory for a rank");
    }
    c->job = j;
    asp_status s = open_comm(cx, before, c, j);
    if (s < 0)
        free_comm(c);
    else
        *out_comm = c;
    return s;
}

asp_status asp_mpi_ranks_refuse(asp_ctx *cx, asp_status s)
{
    mpi_comm *c;
    bool own_mpi;
    asp_ctx opening;
    asp_ctx_init(&opening);
    if (open_mpi(&opening, s, &own_mpi, &c) < 0) return s; // alone with its message
    if (refused_before(cx, c->job)) s = report(cx, c->job);
    free_comm(c);
    return s;
}

asp_status asp_mpi_ranks_run(asp_ctx *cx, int ranks, asp_rank_fn *fn, void *arg)
{
    mpi_comm *c;
    bool own_mpi;
    ASP_TRY(open_mpi(cx, ASP_OK, &own_mpi, &c));
    asp_status s = ASP_OK;
    if (refused_before(cx, c->job)) {
        s = report(cx, c->job);
        free_comm(c);
        return s;
    }
    bool refused = (s = check_ranks(c, ranks)) < 0;
    if (!refused) s = run_rank(c, fn, arg);
    if (s < 0) asp_mpi_abort(&c->base, s, c->base.cx->message, refused);
    if (s < 0) {
        s = report(cx, c->job);
    } else {
        MPI_Comm_free(&c->job->data);
        MPI_Comm_free(&c->job->control);
        if (own_mpi) MPI_Finalize();
    }
    free_comm(c);
    return s;
}

#endif
