// Training data: files as one stream of tokens, without copying.  *.u16 and *.u32 hold
// little-endian token numbers, every other file is read as bytes (vocabulary 256).  Neighbours:
// base/file.h (maps), train/inputs.c (which windows).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

typedef struct asp_tokens asp_tokens;

// Fails on a missing or empty file, on a length that is no whole number of tokens, and when all
// files together have fewer than `least` tokens (a sequence).  Ids are checked against the
// vocabulary: the message names file and position.  The files must not shrink while they are open.
asp_status asp_tokens_open(asp_ctx *cx, const char *const *paths, int n_paths, int64_t least,
                           int64_t vocab, asp_tokens **out_tokens);
void asp_tokens_close(asp_tokens *t); // NULL is allowed
int64_t asp_tokens_count(const asp_tokens *t);
// Tokens start .. start + n - 1 of the stream; start + n <= count.
void asp_tokens_window(const asp_tokens *t, int64_t start, int64_t n, int64_t *out);
uint64_t asp_tokens_hash(const asp_tokens *t); // of the content: resuming on other data is noticed
