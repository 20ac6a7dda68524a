// Files: reading whole, mapping, writing so that a name holds the old content or the new one, never
// half of it. Neighbours: json.h, io/ (formats).  Paths in messages are those of the caller.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

// The whole file on the arena, terminated with 0.  Larger than max_bytes is refused.
asp_status asp_file_read(asp_arena *a, const char *path, size_t max_bytes, char **out_text,
                         size_t *out_bytes);

// A read-only map of a whole file.  Empty files map to NULL with 0 bytes.
typedef struct asp_file_map {
    const unsigned char *data;
    size_t bytes;
} asp_file_map;
asp_status asp_file_map_open(asp_ctx *cx, const char *path, asp_file_map *out_map);
void asp_file_map_close(asp_file_map *m);

// Written beside its name, synced and renamed by asp_file_commit; asp_file_abandon removes what was
// written.  A failed write is kept and returned by commit.
typedef struct asp_file_out {
    asp_ctx *cx;
    char path[4096], beside[4096];
    int fd;
    asp_status status;
} asp_file_out;
asp_status asp_file_create(asp_ctx *cx, const char *path, asp_file_out *out_file);
void asp_file_write(asp_file_out *f, const void *data, size_t bytes);
asp_status asp_file_commit(asp_file_out *f);
void asp_file_abandon(asp_file_out *f);

asp_status asp_file_write_whole(asp_ctx *cx, const char *path, const void *data, size_t bytes);
asp_status asp_folder_make(asp_ctx *cx, const char *path); // parents too; fine when it is there
asp_status asp_folder_sync(asp_ctx *cx, const char *path); // its entries reach the disk
asp_status
asp_folder_remove(asp_ctx *cx,
                  const char *path); // and the plain files in it; fine when it is not there
bool asp_path_is_folder(const char *path);
bool asp_path_exists(const char *path);

// Growth of memory is measured with this: RssAnon of the process in bytes, 0 where the system does
// not tell.
int64_t asp_process_anon_bytes(void);
double asp_seconds(void); // monotonic
