// How a job of mpi ranks fails.  Waiting is polling, so that every wait also sees a peer's failure:
//   - a rank that fails sends its message to all others (a note) and leaves;
//   - a process on this host that is gone without a note (killed, or left by exit) is noticed by
//     its number within a second;  on other hosts it is mpirun that ends the job.
// After a failure MPI is not called again and not finalised: arrays of unfinished messages are
// gone.  Neighbours: mpi_int.h, mpi.c, mpi_ranks.c.  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "comm/mpi_int.h"

#ifdef ASP_HAVE_MPI

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#define TAG_NOTE 2

// Polling: this often as fast as can be, then yielding, after a while with short sleeps.
#define FAST_POLLS 1000
#define POLLS_PER_LOOK 64
#define SLEEP_AFTER_US 2000
#define SLEEP_US 50
#define LOOK_AT_PEERS_US 200000

#define SEND_NOTES_US 1000000 // a failed rank leaves by then, read or unread
#define TIE_US 300000         // two ranks that fail within this time are one failure

int64_t asp_mpi_now_us(void) { return (int64_t)(asp_seconds() * 1e6); }

void asp_mpi_sleep_us(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

bool asp_mpi_is_alive(const process *p) { return kill((pid_t)p->pid, 0) == 0 || errno == EPERM; }

asp_status asp_mpi_ended(job *j)
{
    const note *n = &j->note;
    if (n->together) return asp_fail(&j->cx, ASP_ERR_PEER, "%.4000s", n->text);
    return asp_fail(&j->cx, ASP_ERR_PEER, "rank %d failed: %.4000s", n->rank, n->text);
}

void asp_mpi_stand(job *j, const note *n, int speaker)
{
    j->note = *n;
    j->speaker = speaker;
    j->ended = true;
}

// Takes a note that has arrived; one from a lower rank displaces a higher one.
static bool take_note(job *j)
{
    int there = 0;
    MPI_Status from;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTE, j->control, &there, &from) != MPI_SUCCESS || !there)
        return false;
    note n;
    if (MPI_Recv(&n, (int)sizeof n, MPI_BYTE, from.MPI_SOURCE, TAG_NOTE, j->control,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    n.text[sizeof n.text - 1] = '\0';
    if (!j->ended || n.rank < j->note.rank) asp_mpi_stand(j, &n, n.rank);
    return true;
}

// Finds a process of this host that is gone; the lowest living rank speaks for it.
static bool miss_peer(job *j)
{
    int gone = -1, speaker = j->rank;
    for (int r = 0; r < j->ranks; r++) {
        const process *p = &j->peers[r];
        bool here = p->pid == 0 || asp_mpi_is_alive(p);
        if (!here && gone < 0) gone = r;
        if (here && r < speaker) speaker = r;
    }
    if (gone < 0 || take_note(j)) return gone >= 0;
    note n = {.status = ASP_ERR_PEER, .rank = gone};
    snprintf(n.text, sizeof n.text,
             "its process %lld ended before its work did (killed, or left by exit)",
             (long long)j->peers[gone].pid);
    asp_mpi_stand(j, &n, speaker);
    return true;
}

// Sends this rank's failure to all others and lets the lowest of several failures stand.
void asp_mpi_abort(asp_comm *base, asp_status s, const char *message, bool together)
{
    job *j = ((mpi_comm *)base)->job;
    while (take_note(j)) {
    }
    if (j->ended || j->told) return;
    j->told = true;
    // Where all found the same, rank 0 speaks.
    j->mine = (note){.status = s, .rank = together ? 0 : j->rank, .together = together};
    snprintf(j->mine.text, sizeof j->mine.text, "%s", message);
    asp_mpi_stand(j, &j->mine, j->mine.rank);
    // Short messages are on their way at once, whether the peer looks or not.
    int n = 0, bytes = (int)(offsetof(note, text) + strlen(j->mine.text) + 1);
    for (int r = 0; r < j->ranks; r++) {
        if (r == j->rank) continue;
        if (MPI_Isend(&j->mine, bytes, MPI_BYTE, r, TAG_NOTE, j->control, &j->notes[n]) ==
            MPI_SUCCESS)
            n++;
    }
    int64_t start = asp_mpi_now_us();
    for (int sent = 0;;) {
        take_note(j);
        if (!sent && MPI_Testall(n, j->notes, &sent, MPI_STATUSES_IGNORE) != MPI_SUCCESS) sent = 1;
        int64_t passed = asp_mpi_now_us() - start;
        bool tie_over = j->mine.rank == 0 || passed > TIE_US;
        if ((sent && tie_over) || passed > SEND_NOTES_US) break;
        asp_mpi_sleep_us(SLEEP_US);
    }
}

asp_status asp_mpi_error(job *j, const char *what, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(error, text, &n);
    return asp_fail(&j->cx, ASP_ERR_PEER, "%s: MPI says: %s", what, text);
}

// One look beside the messages; false when a failure is known.
static bool all_well(job *j, int64_t *looked_us)
{
    if (take_note(j)) return false;
    int64_t now = asp_mpi_now_us();
    if (!j->watch || now - *looked_us < LOOK_AT_PEERS_US) return true;
    *looked_us = now;
    return !miss_peer(j);
}

asp_status asp_mpi_wait(job *j, MPI_Request *requests, int n)
{
    int64_t start = asp_mpi_now_us(), looked = start;
    for (int64_t polls = 0;; polls++) {
        int done = 0, error = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        if (error != MPI_SUCCESS) return asp_mpi_error(j, "waiting for a peer", error);
        if (done) return ASP_OK;
        if (polls % POLLS_PER_LOOK == POLLS_PER_LOOK - 1 && !all_well(j, &looked))
            return asp_mpi_ended(j);
        if (polls < FAST_POLLS) continue;
        if (asp_mpi_now_us() - start < SLEEP_AFTER_US)
            sched_yield();
        else
            asp_mpi_sleep_us(SLEEP_US);
    }
}

#endif
