// See spill.h.  One lock, one queue; the thread holds no lock while it moves bytes.
// SPDX-License-Identifier: Apache-2.0
#include "run/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct move {
    bool writes;
    char *memory;
    int64_t at, bytes;
} move;

struct asp_spill {
    int fd;
    pthread_t thread;
    int64_t moved;
    uint64_t n_awaited; // by the rank alone
    char folder[512];

    pthread_mutex_t lock; // of what follows
    pthread_cond_t wake;
    move queue[ASP_SPILL_MOST];
    uint64_t n_begun, n_done;
    int error; // errno of the first failure
    bool ends;
};

// 0, or errno.  A file that ends early was cut by others.
static int move_all(int fd, const move *m)
{
    for (int64_t done = 0; done < m->bytes;) {
        const size_t rest = (size_t)(m->bytes - done);
        const ssize_t n = m->writes ? pwrite(fd, m->memory + done, rest, m->at + done)
                                    : pread(fd, m->memory + done, rest, m->at + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : EIO;
        done += n;
    }
    return 0;
}

static void *thread_main(void *arg)
{
    asp_spill *s = arg;
    sigset_t all; // are the host's; a file that may not grow is an error here, and no signal
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->n_done == s->n_begun && !s->ends) pthread_cond_wait(&s->wake, &s->lock);
        if (s->n_done == s->n_begun) break;
        const move m = s->queue[s->n_done % ASP_SPILL_MOST];
        const int failed = s->error;
        pthread_mutex_unlock(&s->lock);
        const int error = failed ? failed : move_all(s->fd, &m);
        pthread_mutex_lock(&s->lock);
        if (!s->error) s->error = error;
        s->n_done++;
        pthread_cond_broadcast(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static asp_status open_file(asp_ctx *cx, const char *folder, int64_t bytes, int *out_fd)
{
    char path[600], size[32];
    snprintf(path, sizeof path, "%.512s/autosp-offload-XXXXXX", folder);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return asp_fail(cx, ASP_ERR_IO, "--offload %.200s: no file can be made there: %s", folder,
                        strerror(errno));
    unlink(path);
    if (fallocate(fd, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
        const int why = errno;
        close(fd);
        return asp_fail(cx, ASP_ERR_IO,
                        "--offload %.200s: %s are wanted there for each rank: %s; give another "
                        "folder, or leave --offload out",
                        folder, asp_human_bytes(size, sizeof size, bytes), strerror(why));
    }
    *out_fd = fd;
    return ASP_OK;
}

asp_status asp_spill_create(asp_ctx *cx, const char *folder, int64_t bytes, asp_spill **out_spill)
{
    asp_spill *s = calloc(1, sizeof *s);
    if (!s) return asp_fail(cx, ASP_ERR_NOMEM, "no memory for --offload");
    asp_status status = open_file(cx, folder, bytes, &s->fd);
    if (status < 0) {
        free(s);
        return status;
    }
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    if (pthread_create(&s->thread, NULL, thread_main, s) != 0) {
        close(s->fd);
        free(s);
        return asp_fail(cx, ASP_ERR_NOMEM, "the system refused a thread for --offload");
    }
    *out_spill = s;
    return ASP_OK;
}

void asp_spill_destroy(asp_spill *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    close(s->fd);
    free(s);
}

void asp_spill_begin(asp_spill *s, bool writes, void *memory, int64_t at, int64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    ASP_CHECK(s->n_begun - s->n_awaited < ASP_SPILL_MOST);
    s->queue[s->n_begun++ % ASP_SPILL_MOST] = (move){writes, memory, at, bytes};
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

asp_status asp_spill_await(asp_spill *s, asp_ctx *cx)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_done == s->n_awaited) pthread_cond_wait(&s->wake, &s->lock);
    const move m = s->queue[s->n_awaited % ASP_SPILL_MOST];
    const int error = s->error;
    pthread_mutex_unlock(&s->lock);
    s->n_awaited++;
    if (error)
        return asp_fail(cx, ASP_ERR_IO,
                        "--offload %.200s: the file cannot be %s: %s; the step is given up, and "
                        "checkpoints written before are whole",
                        s->folder, m.writes ? "written" : "read", strerror(error));
    s->moved += m.bytes;
    return ASP_OK;
}

void asp_spill_cancel(asp_spill *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_done < s->n_begun) pthread_cond_wait(&s->wake, &s->lock);
    s->n_awaited = s->n_done;
    pthread_mutex_unlock(&s->lock);
}

int64_t asp_spill_moved(const asp_spill *s) { return s->moved; }
