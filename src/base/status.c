// Status codes, the context and its message, the out-of-memory boundary.  Neighbours: base.h
// (contract), arena.c (who jumps). SPDX-License-Identifier: Apache-2.0
#include "base/base_int.h"

#include <stdlib.h>

#define ASP_VERSION "0.1.0"

const char *asp_version(void) { return ASP_VERSION; }

const char *asp_status_name(asp_status s)
{
    switch (s) {
    case ASP_OK: return "ok";
    case ASP_IN_PROGRESS: return "in progress";
    case ASP_ERR_NOMEM: return "out of memory";
    case ASP_ERR_USAGE: return "usage";
    case ASP_ERR_INPUT: return "input";
    case ASP_ERR_SHAPE: return "shape";
    case ASP_ERR_UNSUPPORTED: return "unsupported";
    case ASP_ERR_LIMIT: return "limit";
    case ASP_ERR_IO: return "io";
    case ASP_ERR_PEER: return "peer";
    case ASP_ERR_CHECK: return "check";
    }
    return "unknown status";
}

void asp_ctx_init(asp_ctx *cx) { *cx = (asp_ctx){0}; }

asp_ctx *asp_ctx_create(void)
{
    asp_ctx *cx = malloc(sizeof *cx);
    if (cx) asp_ctx_init(cx);
    return cx;
}

void asp_ctx_destroy(asp_ctx *cx) { free(cx); }

const char *asp_ctx_message(const asp_ctx *cx) { return cx ? cx->message : ""; }

static bool is_control(char c)
{
    unsigned char u = (unsigned char)c;
    return (u < 0x20 && u != '\n' && u != '\t') || u == 0x7f;
}

asp_status asp_fail(asp_ctx *cx, asp_status code, const char *fmt, ...)
{
    ASP_CHECK(code < 0);
    va_list args;
    va_start(args, fmt);
    asp_vformat(cx->message, sizeof cx->message, fmt, args);
    va_end(args);
    for (char *c = cx->message; *c; c++)
        if (is_control(*c)) *c = '?';
    return code;
}

asp_status asp_note(asp_ctx *cx, asp_status s, const char *fmt, ...)
{
    char before[512], after[ASP_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    asp_vformat(before, sizeof before, fmt, args);
    va_end(args);
    memcpy(after, cx->message, sizeof after);
    snprintf(cx->message, sizeof cx->message, "%s: %.3500s", before, after);
    return s;
}

void asp_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "autosp: bug at %s:%d: %s does not hold\n", file, line, what);
    abort();
}

asp_status asp_guard(asp_ctx *cx, asp_guarded_fn *body, void *arg)
{
    jmp_buf here;
    jmp_buf *const outer = cx->on_nomem;
    const uint64_t first_arena = cx->n_arenas;
    if (setjmp(here) != 0) {
        cx->on_nomem = outer;
        asp_blocks_free(cx, first_arena);
        if (!outer) asp_blocks_forget(cx);
        return asp_fail(cx, ASP_ERR_NOMEM,
                        "the machine refused memory for the compiler's own tables");
    }
    cx->on_nomem = &here;
    asp_status s = body(cx, arg);
    cx->on_nomem = outer;
    if (!outer) asp_blocks_forget(cx);
    return s;
}
