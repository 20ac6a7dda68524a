// Element types.  Neighbours: ir/op.def and io/safetensors.h (who names them).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#define ASP_MAX_RANK 6      // dimensions of a tensor
#define ASP_MAX_OPERANDS 16 // inputs or results of one op

// name in graph text, bytes, is floating point, name in safetensors
#define ASP_DTYPES(X)             \
    X(F32, "f32", 4, 1, "F32")    \
    X(F64, "f64", 8, 1, "F64")    \
    X(BF16, "bf16", 2, 1, "BF16") \
    X(F16, "f16", 2, 1, "F16")    \
    X(I64, "i64", 8, 0, "I64")    \
    X(I32, "i32", 4, 0, "I32")    \
    X(U16, "u16", 2, 0, "U16")    \
    X(U8, "u8", 1, 0, "U8")       \
    X(BOOL, "bool", 1, 0, "BOOL")

typedef enum asp_dtype {
#define ASP_X(id, name, bytes, is_float, st) ASP_##id,
    ASP_DTYPES(ASP_X)
#undef ASP_X
} asp_dtype;
enum {
#define ASP_X(id, name, bytes, is_float, st) +1
    ASP_DTYPE_COUNT = 0 ASP_DTYPES(ASP_X)
#undef ASP_X
};

typedef struct asp_dtype_info {
    const char *name;
    int64_t bytes;
    int is_float;
    const char *safetensors;
} asp_dtype_info;

static const asp_dtype_info asp_dtypes[] = {
#define ASP_X(id, name, bytes, is_float, st) {name, bytes, is_float, st},
    ASP_DTYPES(ASP_X)
#undef ASP_X
};
