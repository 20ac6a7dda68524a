// What the kernels that move memory share: chunks of contiguous runs, claimed by the threads.
// Inside kern/ only.  Neighbours: move.c, slice.c, index.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/kern_int.h"

#define ASP_CHUNK_BYTES 65536 // written per claim, about

ASP_INLINE size_t asp_element_bytes(const asp_tensor *t)
{
    return (size_t)asp_dtypes[t->dtype].bytes;
}

// Runs per claim, from the bytes of one.
ASP_INLINE int64_t asp_runs_per_chunk(size_t run_bytes)
{
    return asp_max(1, ASP_CHUNK_BYTES / (int64_t)(run_bytes ? run_bytes : 1));
}

// The next runs to do, [at, end); false when all are claimed.
ASP_INLINE bool asp_claim(asp_worker *w, int64_t n, int64_t each, int64_t *at, int64_t *end)
{
    int64_t chunk = asp_team_next(w, asp_ceil_div(n, each));
    if (chunk < 0) return false;
    *at = chunk * each;
    *end = asp_min(n, *at + each);
    return true;
}

// Product of the dims from .. end - 1.
ASP_INLINE int64_t asp_dim_product(const asp_tensor *t, int64_t from, int64_t end)
{
    int64_t n = 1;
    for (int64_t d = from; d < end; d++) n *= t->dim[d];
    return n;
}
