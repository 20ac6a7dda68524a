// Arenas: bump allocation in blocks that die together, and the growable arrays on them. Neighbours:
// base.h (contract), status.c (asp_guard, where a refused block returns to).
// SPDX-License-Identifier: Apache-2.0
#include "base/base_int.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGN 16
#define MIN_BLOCK_BYTES ((size_t)64 << 10)
#define MAX_BLOCK_BYTES ((size_t)4 << 20)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

typedef struct asp_block asp_block;
struct asp_block {
    asp_block *older; // of the arena
    uint64_t arena;   // its number
    asp_block *next;  // of the context, inside a guard: newest first
    asp_block **at;   // what points here; NULL: not in that list
};

#define HEADER_BYTES ((sizeof(asp_block) + ALIGN - 1) / ALIGN * ALIGN) // what follows is aligned

void asp_arena_init(asp_arena *a, asp_ctx *cx)
{
    *a = (asp_arena){.cx = cx, .number = cx->n_arenas++};
}

static void list(asp_ctx *cx, asp_block *b)
{
    b->next = cx->blocks;
    b->at = &cx->blocks;
    if (b->next) b->next->at = &b->next;
    cx->blocks = b;
}

static void unlist(asp_block *b)
{
    if (!b->at) return;
    *b->at = b->next;
    if (b->next) b->next->at = b->at;
    b->at = NULL;
}

void asp_blocks_free(asp_ctx *cx, uint64_t first_arena)
{
    for (asp_block *b = cx->blocks, *next; b; b = next) {
        next = b->next;
        if (b->arena < first_arena) continue;
        unlist(b);
        free(b);
    }
}

void asp_blocks_forget(asp_ctx *cx)
{
    while (cx->blocks) unlist(cx->blocks);
}

void asp_arena_reset(asp_arena *a)
{
    for (asp_block *b = a->blocks, *older; b; b = older) {
        older = b->older;
        unlist(b);
        free(b);
    }
    *a = (asp_arena){.cx = a->cx, .number = a->number};
}

void asp_arena_fini(asp_arena *a) { asp_arena_reset(a); }

ASP_NORETURN static void out_of_memory(asp_ctx *cx)
{
    ASP_CHECK(cx->on_nomem != NULL);
    longjmp(*cx->on_nomem, 1);
}

// A hint: the first touch of every small page costs more than most passes do with what is in it.
static void prefer_huge_pages(void *p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t skip = (page - (uintptr_t)p % page) % page;
    if (bytes >= HUGE_PAGE_BYTES) madvise((char *)p + skip, bytes - skip, MADV_HUGEPAGE);
}

// NULL when refused.
static asp_block *try_block(asp_arena *a, size_t bytes)
{
    asp_ctx *cx = a->cx;
    bool fail = cx->fail_allocation > 0 && --cx->fail_allocation == 0;
    asp_block *b = fail ? NULL : calloc(1, bytes);
    if (!b) return NULL;
    prefer_huge_pages(b, bytes);
    *b = (asp_block){.older = a->blocks, .arena = a->number};
    if (cx->on_nomem) list(cx, b);
    a->blocks = b;
    a->total_bytes += bytes;
    return b;
}

static asp_block *new_block(asp_arena *a, size_t bytes)
{
    asp_block *b = try_block(a, bytes);
    if (!b) out_of_memory(a->cx);
    return b;
}

// One malloc an allocation: bounds are visible to ASan and valgrind.
static bool separate_allocations(void)
{
    const char *s = getenv("ASP_ARENA");
    return s && strcmp(s, "malloc") == 0;
}

void *asp_alloc_bytes(asp_arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 4) out_of_memory(a->cx);
    size_t rounded = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN; // nothing is a place, too
    if (rounded <= a->left) {
        void *p = a->next;
        a->next += rounded;
        a->left -= rounded;
        return p;
    }
    bool alone = rounded > MAX_BLOCK_BYTES / 4 || separate_allocations();
    if (alone) return (char *)new_block(a, HEADER_BYTES + (bytes ? bytes : 1)) + HEADER_BYTES;
    // Blocks double with the arena, so that small graphs stay small and large ones take few calls.
    size_t block =
        (size_t)asp_min(asp_max((int64_t)a->total_bytes, MIN_BLOCK_BYTES), MAX_BLOCK_BYTES);
    if (block < rounded + HEADER_BYTES) block = rounded + HEADER_BYTES;
    char *p = (char *)new_block(a, block) + HEADER_BYTES;
    a->next = p + rounded;
    a->left = block - HEADER_BYTES - rounded;
    return p;
}

void *asp_try_alloc_bytes(asp_arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 4) return NULL;
    char *b = (char *)try_block(a, HEADER_BYTES + (bytes ? bytes : 1));
    return b ? b + HEADER_BYTES : NULL;
}

void *asp_copy_bytes(asp_arena *a, const void *from, size_t bytes)
{
    void *p = asp_alloc_bytes(a, bytes, 1);
    if (bytes) memcpy(p, from, bytes);
    return p;
}

char *asp_copy_str(asp_arena *a, const char *s) { return asp_copy_bytes(a, s, strlen(s) + 1); }

char *asp_printf(asp_arena *a, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = asp_vformat(NULL, 0, fmt, args);
    va_end(args);
    ASP_CHECK(n >= 0);
    char *s = asp_alloc_bytes(a, (size_t)n + 1, 1);
    asp_vformat(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

void *asp_vec_grow(asp_arena *a, void *at, uint32_t n, uint32_t *cap, uint32_t need, size_t size)
{
    uint32_t grown = *cap < 8 ? 8 : *cap > UINT32_MAX / 2 ? UINT32_MAX : *cap * 2;
    if (grown < need) grown = need;
    void *moved = asp_alloc_bytes(a, grown, size);
    if (n) memcpy(moved, at, (size_t)n * size);
    *cap = grown;
    return moved;
}
