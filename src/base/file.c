// Files.  Neighbours: file.h (contract).  SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static asp_status fail_io(asp_ctx *cx, const char *what, const char *path)
{
    return asp_fail(cx, ASP_ERR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

static asp_status open_plain(asp_ctx *cx, const char *path, int *out_fd, size_t *out_bytes)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe without a writer would wait
    if (fd < 0) return fail_io(cx, "open", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return asp_fail(cx, ASP_ERR_IO, "cannot read %s: it is not a plain file", path);
    }
    *out_fd = fd;
    *out_bytes = (size_t)st.st_size;
    return ASP_OK;
}

asp_status asp_file_read(asp_arena *a, const char *path, size_t max_bytes, char **out_text,
                         size_t *out_bytes)
{
    int fd;
    size_t bytes, done = 0;
    ASP_TRY(open_plain(a->cx, path, &fd, &bytes));
    if (bytes > max_bytes) {
        close(fd);
        return asp_fail(a->cx, ASP_ERR_INPUT, "%s has %zu bytes; at most %zu are read", path, bytes,
                        max_bytes);
    }
    char *text = asp_try_alloc_bytes(a, bytes + 1, 1);
    if (!text) {
        close(fd);
        return asp_fail(a->cx, ASP_ERR_NOMEM, "no memory for the %zu bytes of %s", bytes, path);
    }
    while (done < bytes) {
        ssize_t n = read(fd, text + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    close(fd);
    if (done < bytes)
        return asp_fail(a->cx, ASP_ERR_IO, "%s became shorter while it was read", path);
    *out_text = text;
    *out_bytes = bytes;
    return ASP_OK;
}

asp_status asp_file_map_open(asp_ctx *cx, const char *path, asp_file_map *out_map)
{
    int fd;
    size_t bytes;
    ASP_TRY(open_plain(cx, path, &fd, &bytes));
    void *p = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int error = errno;
    close(fd);
    errno = error;
    if (p == MAP_FAILED) return fail_io(cx, "map", path);
    *out_map = (asp_file_map){.data = p, .bytes = bytes};
    return ASP_OK;
}

void asp_file_map_close(asp_file_map *m)
{
    if (m->data) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (asp_file_map){0};
}

// ---- writing -------------------------------------------------------------------------------

asp_status asp_file_create(asp_ctx *cx, const char *path, asp_file_out *out_file)
{
    asp_file_out f = {.cx = cx, .fd = -1};
    int n = snprintf(f.beside, sizeof f.beside, "%s.tmp-%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof f.beside)
        return asp_fail(cx, ASP_ERR_IO, "the path %.200s... is too long", path);
    snprintf(f.path, sizeof f.path, "%s", path);
    f.fd = open(f.beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f.fd < 0) return fail_io(cx, "write", path);
    *out_file = f;
    return ASP_OK;
}

void asp_file_write(asp_file_out *f, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0 && f->status == ASP_OK) {
        ssize_t n = write(f->fd, at, bytes < (1u << 30) ? bytes : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            f->status = fail_io(f->cx, "write", f->path);
            return;
        }
        at += n;
        bytes -= (size_t)n;
    }
}

void asp_file_abandon(asp_file_out *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    unlink(f->beside);
}

static void folder_of(const char *path, char *out, size_t out_bytes)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        snprintf(out, out_bytes, ".");
    else
        snprintf(out, out_bytes, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

asp_status asp_file_commit(asp_file_out *f)
{
    char folder[4096];
    if (f->status == ASP_OK && fsync(f->fd) != 0) f->status = fail_io(f->cx, "sync", f->path);
    if (f->status == ASP_OK && rename(f->beside, f->path) != 0)
        f->status = fail_io(f->cx, "rename to", f->path);
    if (f->status < 0) {
        asp_file_abandon(f);
        return f->status;
    }
    close(f->fd);
    f->fd = -1;
    folder_of(f->path, folder, sizeof folder);
    return asp_folder_sync(f->cx, folder);
}

asp_status asp_file_write_whole(asp_ctx *cx, const char *path, const void *data, size_t bytes)
{
    asp_file_out f;
    ASP_TRY(asp_file_create(cx, path, &f));
    asp_file_write(&f, data, bytes);
    return asp_file_commit(&f);
}

// ---- folders -------------------------------------------------------------------------------

bool asp_path_exists(const char *path) { return access(path, F_OK) == 0; }

bool asp_path_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

asp_status asp_folder_make(asp_ctx *cx, const char *path)
{
    char part[4096];
    size_t n = strlen(path);
    if (n == 0) return asp_fail(cx, ASP_ERR_IO, "a folder's name is empty");
    if (n >= sizeof part) return asp_fail(cx, ASP_ERR_IO, "the path %.200s... is too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return fail_io(cx, "make the folder", part);
    }
    if (!asp_path_is_folder(path))
        return asp_fail(cx, ASP_ERR_IO, "%s is there but is not a folder", path);
    return ASP_OK;
}

asp_status asp_folder_sync(asp_ctx *cx, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_io(cx, "open the folder", path);
    int failed = fsync(fd);
    int error = errno;
    close(fd);
    errno = error;
    return failed && error != EINVAL ? fail_io(cx, "sync the folder", path) : ASP_OK;
}

asp_status asp_folder_remove(asp_ctx *cx, const char *path)
{
    DIR *d = opendir(path);
    if (!d) return errno == ENOENT ? ASP_OK : fail_io(cx, "open the folder", path);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    return rmdir(path) == 0 ? ASP_OK : fail_io(cx, "remove the folder", path);
}

// ---- the process ---------------------------------------------------------------------------

int64_t asp_process_anon_bytes(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %lld kB", &kib) == 1) break;
    if (f) fclose(f);
    return (int64_t)kib * 1024;
}

double asp_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
