// The public C API of libautosp: the only installed header.  SPDX-License-Identifier: Apache-2.0
//
// Every function that can fail returns an asp_status; the message of the last failure stands in the
// context.  Functions set their outputs only on success.  Objects are opaque and have one owner; a
// context and what was made with it may be used by one thread at a time, different contexts by
// different threads.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASP_API __attribute__((visibility("default")))
#define ASP_MUST_USE __attribute__((warn_unused_result))

// 0 is success, 1 is in progress, negative is an error.
typedef enum asp_status {
    ASP_OK = 0,
    ASP_IN_PROGRESS = 1,
    ASP_ERR_NOMEM = -1,       // the machine refused memory
    ASP_ERR_USAGE = -2,       // options or arguments that make no sense together
    ASP_ERR_INPUT = -3,       // a file or a graph from outside is malformed or does not match
    ASP_ERR_SHAPE = -4,       // an op's operands do not fit together
    ASP_ERR_UNSUPPORTED = -5, // well formed, but cannot be proved equal to the single-device
                              // program (or not built yet)
    ASP_ERR_LIMIT = -6,       // does not fit the memory or size given
    ASP_ERR_IO = -7,          // the operating system refused a file
    ASP_ERR_PEER = -8,        // another rank failed, left or disagrees
    ASP_ERR_CHECK = -9        // a verification ran and found a difference
} asp_status;

// One compiler context: error message and limits.  Created and destroyed by the user.
typedef struct asp_ctx asp_ctx;

ASP_API asp_ctx *asp_ctx_create(void); // NULL when out of memory
ASP_API void asp_ctx_destroy(asp_ctx *cx);
ASP_API const char *asp_ctx_message(
    const asp_ctx *cx); // of the last failure; borrowed from cx, valid until the next call
ASP_API const char *asp_status_name(asp_status s); // static text such as "unsupported"
ASP_API const char *asp_version(void);

#ifdef __cplusplus
}
#endif
