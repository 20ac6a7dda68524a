// The safetensors format: 8 bytes of header length, a JSON header, raw little-endian data.
// Hostile input: nothing is allocated or read for a number before it is checked against the file.
// Neighbours: base/json.h, base/file.h (below), train/inputs.c, train/checkpoint.c (above).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/dtype.h"
#include "base/file.h"

typedef struct asp_st_tensor {
    const char *name;
    asp_dtype dtype;
    int rank;
    int64_t dim[ASP_MAX_RANK];
    const unsigned char *data; // inside a map; any alignment
    int64_t count, bytes;
    const char *file; // which it was read from, for messages; not read when writing
} asp_st_tensor;

// One file, or the shards of a folder, mapped.  On the arena given; close unmaps.
typedef struct asp_safetensors {
    asp_arena *arena; // borrowed
    const char *path; // as opened
    ASP_VEC(asp_file_map) maps;
    ASP_VEC(asp_st_tensor) tensors;
    asp_map index; // by name
} asp_safetensors;

// path: a .safetensors file, or a folder with model.safetensors or model.safetensors.index.json.
// A message names file, tensor and what is wrong.  Refused memory is a status too: nothing leaks.
asp_status asp_safetensors_open(asp_arena *a, const char *path, asp_safetensors *out_file);
void asp_safetensors_close(asp_safetensors *s);

// The same on bytes in memory, for tests and fuzzing: init once, parse any number of files.  file
// is for messages; it and data must outlive s.
void asp_safetensors_init(asp_safetensors *s, asp_arena *a, const char *path);
asp_status asp_safetensors_parse(asp_safetensors *s, const char *file, const unsigned char *data,
                                 size_t bytes);

// NULL when absent.
const asp_st_tensor *asp_safetensors_find(const asp_safetensors *s, const char *name);
// The tensor that must be there with this shape; a message says which of the two does not hold.
asp_status asp_safetensors_want(const asp_safetensors *s, const char *name, int rank,
                                const int64_t *dim, const asp_st_tensor **out_tensor);

// Copies count elements to f32 or f64 (out aligned for it), from f32, f64, bf16 or f16;
// ASP_ERR_INPUT for others.
asp_status asp_st_convert(asp_ctx *cx, const asp_st_tensor *t, asp_dtype to, void *out);

// What is written: name, dtype, shape, bytes and the data, which must stay until the write is done.
// Names are distinct; wide dtypes first keeps every tensor aligned.  The file appears whole or not
// at all.
asp_status asp_safetensors_write(asp_ctx *cx, const char *path, const asp_st_tensor *tensors,
                                 int n);
