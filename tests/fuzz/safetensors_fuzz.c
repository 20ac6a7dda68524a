// safetensors: whatever is accepted covers the file's data exactly and converts.  The input is read
// twice: as a file, and as a header up to the first 0 with data behind it.
// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct job {
    const unsigned char *file;
    size_t bytes;
    asp_arena arena;
} job;

static void check_tensor(asp_ctx *cx, const job *j, const asp_safetensors *s,
                         const asp_st_tensor *t)
{
    const asp_st_tensor *found = NULL;
    ASP_CHECK(asp_safetensors_want(s, t->name, t->rank, t->dim, &found) == ASP_OK && found == t);
    ASP_CHECK(t->data >= j->file + 8 && t->bytes >= 0);
    ASP_CHECK(t->bytes <= j->file + j->bytes - t->data);
    ASP_CHECK(t->count * asp_dtypes[t->dtype].bytes == t->bytes);
    double *out = malloc((size_t)t->count * sizeof *out + 1);
    ASP_CHECK(out != NULL);
    (void)!asp_st_convert(cx, t, ASP_F64, out);
    (void)!asp_st_convert(cx, t, ASP_F32, out);
    free(out);
}

static asp_status try_file(asp_ctx *cx, void *arg)
{
    job *j = arg;
    asp_safetensors s;
    int64_t covered = 0;
    uint64_t header_bytes = 0;
    asp_safetensors_init(&s, &j->arena, "fuzz");
    ASP_TRY(asp_safetensors_parse(&s, "fuzz", j->file, j->bytes));
    memcpy(&header_bytes, j->file, 8);
    for (uint32_t i = 0; i < s.tensors.n; i++) {
        check_tensor(cx, j, &s, &s.tensors.at[i]);
        covered += s.tensors.at[i].bytes;
    }
    ASP_CHECK((uint64_t)covered == j->bytes - 8 - header_bytes);
    return ASP_OK;
}

static void run(const unsigned char *file, size_t bytes)
{
    asp_ctx cx;
    job j = {.file = file, .bytes = bytes};
    asp_ctx_init(&cx);
    asp_arena_init(&j.arena, &cx);
    asp_status s = asp_guard(&cx, try_file, &j);
    ASP_CHECK(s == ASP_OK || (s < 0 && strstr(cx.message, "fuzz")));
    asp_arena_fini(&j.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    run(data, n);
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    size_t header = end ? (size_t)(end - data) : n, rest = end ? n - header - 1 : 0;
    unsigned char *file = malloc(8 + header + rest);
    ASP_CHECK(file != NULL);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)header >> (8 * i));
    if (header) memcpy(file + 8, data, header);
    if (rest) memcpy(file + 8 + header, end + 1, rest);
    run(file, 8 + header + rest);
    free(file);
    return 0;
}
