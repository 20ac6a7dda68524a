// safetensors, writing: the header is padded to a multiple of 8 so that data is aligned.
// Neighbours: safetensors.h (contract). SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

static void put_header(asp_text *t, const asp_st_tensor *tensors, int n)
{
    int64_t offset = 0;
    asp_put(t, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < n; i++) {
        const asp_st_tensor *x = &tensors[i];
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
}

asp_status asp_safetensors_write(asp_ctx *cx, const char *path, const asp_st_tensor *tensors, int n)
{
    asp_arena a;
    asp_text header;
    asp_file_out f;
    unsigned char length[8];
    asp_arena_init(&a, cx);
    asp_text_init(&header, &a);
    put_header(&header, tensors, n);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header.n >> (8 * i));
    asp_status s = asp_file_create(cx, path, &f);
    if (s == ASP_OK) {
        asp_file_write(&f, length, sizeof length);
        asp_file_write(&f, header.at, header.n);
        for (int i = 0; i < n; i++) asp_file_write(&f, tensors[i].data, (size_t)tensors[i].bytes);
        s = asp_file_commit(&f);
    }
    asp_arena_fini(&a);
    return s;
}
