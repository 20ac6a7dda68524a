// Status, context, arenas, growable arrays, text, maps: what every other folder stands on.
// Neighbours: compiler.h (extensions), team.h (threads), file.h, json.h, philox.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "autosp.h"
#include "base/compiler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <assert.h>
#include <string.h>

// ---- status and context --------------------------------------------------------------------

#define ASP_MESSAGE_BYTES 4096

struct asp_ctx {
    char message[ASP_MESSAGE_BYTES];
    jmp_buf *on_nomem;        // where a failed small allocation returns to; borrowed from the API
                              // boundary's frame
    int64_t fail_allocation;  // fault injection in tests: the n-th block allocation from now fails;
                              // 0 = never
    struct asp_block *blocks; // memory of arenas since the outermost asp_guard began, newest first
    uint64_t n_arenas;        // ever made
    uint32_t n_models;        // made so far: values of one are told from those of another
    bool verify_each_pass;    // graph verifier, round trips and analysis checks after every pass
};

void asp_ctx_init(asp_ctx *cx); // a context in caller storage
// Sets the message and returns code; control characters (names from outside may hold them) become
// '?'.  `return asp_fail(cx, ASP_ERR_SHAPE, "matmul %s: ...", ...)`.
asp_status asp_fail(asp_ctx *cx, asp_status code, const char *fmt, ...) ASP_PRINTF(3, 4);
// Puts "text: " before the message of a failure that passes by; returns s.
asp_status asp_note(asp_ctx *cx, asp_status s, const char *fmt, ...) ASP_PRINTF(3, 4);

// Hands a failure up unchanged.  The only macro that hides a return.
#define ASP_TRY(e)                                       \
    do {                                                 \
        asp_status asp_try_ = (e);                       \
        if (ASP_UNLIKELY(asp_try_ < 0)) return asp_try_; \
    } while (0)
#define ASP_TRY_NOTE(cx, e, ...)                                                    \
    do {                                                                            \
        asp_status asp_try_ = (e);                                                  \
        if (ASP_UNLIKELY(asp_try_ < 0)) return asp_note(cx, asp_try_, __VA_ARGS__); \
    } while (0)

// A bug of ours: prints and aborts.  ASP_ASSERT is checked in debug builds, ASP_CHECK always.
ASP_NORETURN void asp_bug(const char *file, int line, const char *what);
#define ASP_CHECK(c) ((void)(ASP_LIKELY(c) || (asp_bug(__FILE__, __LINE__, #c), 0)))
#ifdef NDEBUG
#define ASP_ASSERT(c) ((void)0)
#else
#define ASP_ASSERT(c) ASP_CHECK(c)
#endif

// Runs body (which may allocate from arenas) so that a refused small allocation becomes
// ASP_ERR_NOMEM.  Used at the API boundary only: `asp_status asp_plan_create(...) { return
// asp_guard(cx, plan_create, &args); }`.  Nests.  Then every arena that body made is gone, and what
// lies on one (a graph, a plan) with it; arenas made before keep what they have.
typedef asp_status asp_guarded_fn(asp_ctx *cx, void *arg);
asp_status asp_guard(asp_ctx *cx, asp_guarded_fn *body, void *arg);

// ---- arenas --------------------------------------------------------------------------------

// Memory that dies together.  Allocation zeroes, checks overflow, aligns to 16 bytes, and does not
// return NULL: it leaves through the context's asp_guard, or aborts as a bug where there is none.
// ASP_ARENA=malloc in the environment makes every allocation separate so that sanitizers and
// valgrind see its bounds.
typedef struct asp_arena {
    asp_ctx *cx;              // borrowed
    struct asp_block *blocks; // owned; newest first
    size_t left;              // bytes free in the newest block
    char *next;
    size_t total_bytes; // held from the system
    uint64_t number;    // among those of the context
} asp_arena;

void asp_arena_init(asp_arena *a, asp_ctx *cx);
void asp_arena_fini(asp_arena *a);
void asp_arena_reset(asp_arena *a); // frees everything, keeps the arena usable
void *asp_alloc_bytes(asp_arena *a, size_t count, size_t size);
// NULL when refused: for what is large (files, weights), whose size the outside decides.
void *asp_try_alloc_bytes(asp_arena *a, size_t count, size_t size);
#define ASP_NEW(a, T) ((T *)asp_alloc_bytes(a, 1, sizeof(T)))
#define ASP_NEW_ARRAY(a, T, n) ((T *)asp_alloc_bytes(a, (size_t)(n), sizeof(T)))
void *asp_copy_bytes(asp_arena *a, const void *from, size_t bytes);
char *asp_copy_str(asp_arena *a, const char *s);
char *asp_printf(asp_arena *a, const char *fmt, ...) ASP_PRINTF(2, 3);

// ---- growable arrays -----------------------------------------------------------------------

// ASP_VEC(uint32_t) list = {0}; ASP_PUSH(arena, &list, 7); list.at[0].  Elements move when it
// grows; the old ones stay in the arena.
#define ASP_VEC(T)       \
    struct {             \
        T *at;           \
        uint32_t n, cap; \
    }
void *asp_vec_grow(asp_arena *a, void *at, uint32_t n, uint32_t *cap, uint32_t need, size_t size);
#define ASP_RESERVE(a, v, need) \
    ((v)->cap >= (need)         \
         ? (void)0              \
         : (void)((v)->at = asp_vec_grow(a, (v)->at, (v)->n, &(v)->cap, need, sizeof *(v)->at)))
#define ASP_PUSH(a, v, ...) \
    (ASP_RESERVE(a, v, (v)->n + 1), (v)->at[(v)->n] = (__VA_ARGS__), (void)(v)->n++)

// ---- text ----------------------------------------------------------------------------------

// Numbers are written and read with a point, whatever locale the calling program has set: these
// four stand for strtod, snprintf, vsnprintf and fprintf everywhere in src/.
double asp_strtod(const char *s, char **out_end);
int asp_format(char *buf, size_t bytes, const char *fmt, ...) ASP_PRINTF(3, 4);
int asp_vformat(char *buf, size_t bytes, const char *fmt, va_list args) ASP_PRINTF(3, 0);
int asp_print(FILE *f, const char *fmt, ...) ASP_PRINTF(2, 3);

// A growing string on an arena; text.at is always terminated once something was put.
typedef struct asp_text {
    asp_arena *arena;
    char *at;
    size_t n, cap;
} asp_text;

void asp_text_init(asp_text *t, asp_arena *a);
void asp_put(asp_text *t, const char *fmt, ...) ASP_PRINTF(2, 3);
void asp_put_bytes(asp_text *t, const char *s, size_t n);
// The shortest decimal of at least min_digits (trailing zeros dropped) that reads back to v.
void asp_put_f64(asp_text *t, int min_digits, double v);
void asp_put_quoted(asp_text *t, const char *s); // "a\"b\n", JSON escapes
// "1.50 GiB", "96 bytes"; buf of at least 32 bytes; returns buf.
const char *asp_human_bytes(char *buf, size_t buf_bytes, int64_t bytes);
// "4194304", "4MiB", "2 GB" (powers of ten for kB, MB, GB; of two for KiB, MiB, GiB); fails naming
// the text.
asp_status asp_parse_bytes(asp_ctx *cx, const char *s, int64_t *out_bytes);

// ---- maps ----------------------------------------------------------------------------------

// Byte strings to 32-bit numbers, in insertion order; open addressing on xxhash.  Keys are copied
// into the arena.
typedef struct asp_map {
    asp_arena *arena;
    struct asp_map_entry *entries;
    uint32_t n, cap;
    uint32_t *slots; // index + 1, 0 = empty
    uint32_t n_slots;
} asp_map;

void asp_map_init(asp_map *m, asp_arena *a);
// Index of the entry (0, 1, 2, ... in order of insertion), or UINT32_MAX.
uint32_t asp_map_find(const asp_map *m, const void *key, size_t bytes);
// Index of the entry for key, added when absent.
uint32_t asp_map_add(asp_map *m, const void *key, size_t bytes, bool *out_added);
const char *asp_map_key(const asp_map *m, uint32_t index, size_t *out_bytes); // terminated with 0

uint64_t asp_hash(const void *data, size_t bytes, uint64_t seed);
