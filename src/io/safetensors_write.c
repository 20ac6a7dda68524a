// safetensors, writing: the header is padded to a multiple of 8 so that data is aligned.
// Neighbours: safetensors.h (contract), base/file.h (whole or not at all).
// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

typedef struct write_job {
    asp_arena arena;
    asp_text header;
    const asp_st_tensor *tensors;
    int n;
} write_job;

static void check_bytes(const asp_st_tensor *t)
{
    int64_t bytes = asp_dtypes[t->dtype].bytes;
    ASP_CHECK(t->rank >= 0 && t->rank <= ASP_MAX_RANK);
    for (int d = 0; d < t->rank; d++) ASP_CHECK(!asp_mul_overflows(bytes, t->dim[d], &bytes));
    ASP_CHECK(bytes == t->bytes);
}

static asp_status put_header(asp_ctx *cx, void *arg)
{
    write_job *j = arg;
    asp_text *t = &j->header;
    int64_t offset = 0;
    (void)cx;
    asp_put(t, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < j->n; i++) {
        const asp_st_tensor *x = &j->tensors[i];
        check_bytes(x);
        asp_put(t, ",");
        asp_put_quoted(t, x->name);
        asp_put(t, ":{\"dtype\":\"%s\",\"shape\":[", asp_dtypes[x->dtype].safetensors);
        for (int d = 0; d < x->rank; d++) asp_put(t, "%s%lld", d ? "," : "", (long long)x->dim[d]);
        asp_put(t, "],\"data_offsets\":[%lld,%lld]}", (long long)offset,
                (long long)(offset + x->bytes));
        offset += x->bytes;
    }
    asp_put(t, "}");
    while (t->n % 8) asp_put(t, " ");
    return ASP_OK;
}

static asp_status write_file(asp_ctx *cx, const char *path, const write_job *j)
{
    asp_file_out f;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)j->header.n >> (8 * i));
    ASP_TRY(asp_file_create(cx, path, &f));
    asp_file_write(&f, length, sizeof length);
    asp_file_write(&f, j->header.at, j->header.n);
    for (int i = 0; i < j->n; i++)
        asp_file_write(&f, j->tensors[i].data, (size_t)j->tensors[i].bytes);
    return asp_file_commit(&f);
}

asp_status asp_safetensors_write(asp_ctx *cx, const char *path, const asp_st_tensor *tensors, int n)
{
    write_job j = {.tensors = tensors, .n = n};
    asp_arena_init(&j.arena, cx);
    asp_text_init(&j.header, &j.arena);
    asp_status s = asp_guard(cx, put_header, &j);
    if (s == ASP_OK) s = write_file(cx, path, &j);
    asp_arena_fini(&j.arena);
    return s;
}
