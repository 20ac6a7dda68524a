// Ordered hash map from byte strings to dense indices.  Neighbours: base.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "base/base.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct asp_map_entry {
    const char *key; // owned by the arena
    size_t bytes;
    uint64_t hash;
} asp_map_entry;

uint64_t asp_hash(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

void asp_map_init(asp_map *m, asp_arena *a) { *m = (asp_map){.arena = a}; }

// The slot that holds key, or the empty one where it belongs.
static uint32_t slot_of(const asp_map *m, const void *key, size_t bytes, uint64_t hash)
{
    uint32_t mask = m->n_slots - 1;
    for (uint32_t s = (uint32_t)hash & mask;; s = (s + 1) & mask) {
        if (m->slots[s] == 0) return s;
        const asp_map_entry *e = &m->entries[m->slots[s] - 1];
        if (e->hash == hash && e->bytes == bytes && memcmp(e->key, key, bytes) == 0) return s;
    }
}

static void grow(asp_map *m)
{
    m->n_slots = m->n_slots ? m->n_slots * 2 : 16;
    m->slots = ASP_NEW_ARRAY(m->arena, uint32_t, m->n_slots);
    for (uint32_t i = 0; i < m->n; i++) {
        const asp_map_entry *e = &m->entries[i];
        m->slots[slot_of(m, e->key, e->bytes, e->hash)] = i + 1;
    }
}

uint32_t asp_map_find(const asp_map *m, const void *key, size_t bytes)
{
    if (m->n == 0) return UINT32_MAX;
    if (bytes == 0) key = ""; // memcmp and memcpy take no NULL
    uint32_t s = m->slots[slot_of(m, key, bytes, asp_hash(key, bytes, 0))];
    return s ? s - 1 : UINT32_MAX;
}

uint32_t asp_map_add(asp_map *m, const void *key, size_t bytes, bool *out_added)
{
    if (2 * (m->n + 1) > m->n_slots) grow(m);
    if (bytes == 0) key = "";
    uint64_t hash = asp_hash(key, bytes, 0);
    uint32_t slot = slot_of(m, key, bytes, hash);
    bool added = m->slots[slot] == 0;
    if (added) {
        if (m->n == m->cap)
            m->entries =
                asp_vec_grow(m->arena, m->entries, m->n, &m->cap, m->n + 1, sizeof *m->entries);
        char *copy = asp_alloc_bytes(m->arena, bytes + 1, 1);
        memcpy(copy, key, bytes);
        m->entries[m->n] = (asp_map_entry){.key = copy, .bytes = bytes, .hash = hash};
        m->slots[slot] = ++m->n;
    }
    if (out_added) *out_added = added;
    return m->slots[slot] - 1;
}

const char *asp_map_key(const asp_map *m, uint32_t index, size_t *out_bytes)
{
    ASP_ASSERT(index < m->n);
    if (out_bytes) *out_bytes = m->entries[index].bytes;
    return m->entries[index].key;
}
