// Training data as one stream.  Neighbours: tokens.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens.h"

#include <stdlib.h>

typedef struct piece {
    asp_file_map map;
    int width;            // bytes a token
    int64_t first, count; // in the stream
} piece;

struct asp_tokens {
    piece *pieces;
    int n;
    int64_t count;
};

static int64_t read_token(const piece *p, int64_t i)
{
    const unsigned char *at = p->map.data + i * p->width;
    int64_t v = 0;
    for (int b = p->width; b-- > 0;) v = v << 8 | at[b];
    return v;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static asp_status check_ids(asp_ctx *cx, const piece *p, const char *path, int64_t vocab)
{
    if (vocab >> (8 * p->width) > 0) return ASP_OK; // no id of this width is beyond it
    for (int64_t i = 0; i < p->count; i++) {
        int64_t id = read_token(p, i);
        if (id >= vocab)
            return asp_fail(cx, ASP_ERR_INPUT,
                            "%s: token %lld is %lld, but the model's vocabulary ends at %lld; use "
                            "data tokenised for it or a larger vocab_size",
                            path, (long long)i, (long long)id, (long long)vocab - 1);
    }
    return ASP_OK;
}

static asp_status open_piece(asp_ctx *cx, const char *path, int64_t vocab, piece *p)
{
    p->width = ends_with(path, ".u16") ? 2 : ends_with(path, ".u32") ? 4 : 1;
    if (p->width == 1 && vocab < 256)
        return asp_fail(
            cx, ASP_ERR_INPUT,
            "%s is read as bytes, which needs a vocabulary of 256; the model has vocab_size %lld: "
            "raise it, or give tokens of its own as .u16 or .u32",
            path, (long long)vocab);
    ASP_TRY(asp_file_map_open(cx, path, &p->map));
    if (p->map.bytes == 0)
        return asp_fail(cx, ASP_ERR_INPUT, "%s is empty; leave it out of --data", path);
    if (p->map.bytes % (size_t)p->width)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s has %zu bytes, not a whole number of %d-byte tokens; it is truncated, "
                        "or no .u%d file",
                        path, p->map.bytes, p->width, 8 * p->width);
    p->count = (int64_t)(p->map.bytes / (size_t)p->width);
    return check_ids(cx, p, path, vocab);
}

static asp_status open_all(asp_ctx *cx, asp_tokens *t, const char *const *paths, int n_paths,
                           int64_t least, int64_t vocab)
{
    for (; t->n < n_paths; t->n++) {
        ASP_TRY(open_piece(cx, paths[t->n], vocab, &t->pieces[t->n]));
        t->pieces[t->n].first = t->count;
        t->count += t->pieces[t->n].count;
    }
    if (t->count < least)
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s%s: %lld tokens of data, but one sequence takes %lld; give more --data "
                        "or a smaller --seq",
                        paths[0], n_paths > 1 ? " and the others" : "", (long long)t->count,
                        (long long)least);
    return ASP_OK;
}

asp_status asp_tokens_open(asp_ctx *cx, const char *const *paths, int n_paths, int64_t least,
                           int64_t vocab, asp_tokens **out_tokens)
{
    if (n_paths < 1) return asp_fail(cx, ASP_ERR_USAGE, "no data; name files with --data");
    asp_tokens *t = calloc(1, sizeof *t);
    piece *pieces = calloc((size_t)n_paths, sizeof *pieces);
    if (!t || !pieces) {
        free(t);
        free(pieces);
        return asp_fail(cx, ASP_ERR_NOMEM, "no memory for %d data files", n_paths);
    }
    t->pieces = pieces;
    asp_status s = open_all(cx, t, paths, n_paths, least, vocab);
    if (s < 0) {
        t->n += t->n < n_paths; // the file that failed may be mapped
        asp_tokens_close(t);
        return s;
    }
    *out_tokens = t;
    return ASP_OK;
}

void asp_tokens_close(asp_tokens *t)
{
    if (!t) return;
    for (int i = 0; i < t->n; i++) asp_file_map_close(&t->pieces[i].map);
    free(t->pieces);
    free(t);
}

int64_t asp_tokens_count(const asp_tokens *t) { return t->count; }

// The last piece that begins at or before token i.
static int piece_of(const asp_tokens *t, int64_t i)
{
    int low = 0, high = t->n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (t->pieces[middle].first <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void asp_tokens_window(const asp_tokens *t, int64_t start, int64_t n, int64_t *out)
{
    ASP_CHECK(start >= 0 && n >= 0 && n <= t->count && start <= t->count - n);
    int p = piece_of(t, start);
    for (int64_t i = 0; i < n; i++) {
        while (start + i >= t->pieces[p].first + t->pieces[p].count) p++;
        out[i] = read_token(&t->pieces[p], start + i - t->pieces[p].first);
    }
}

uint64_t asp_tokens_hash(const asp_tokens *t)
{
    uint64_t hash = 0;
    for (int i = 0; i < t->n; i++) {
        const piece *p = &t->pieces[i];
        hash = asp_hash(p->map.data, p->map.bytes, hash ^ (uint64_t)p->width);
    }
    return hash;
}
