// Rotary positions in vector types, one source for every level.  Neighbours: kern.def (rows),
// ref/rope.c (oracle, and the table of angles).  SPDX-License-Identifier: Apache-2.0
#include "kern/kern_int.h"
#include "kern/vec.h"

#define ROWS_PER_CHUNK 256

// One row: (x0 c - x1 s, x1 c + x0 s), every product and sum rounded.
#define ROTATE(LOAD, STORE)                                                          \
    do {                                                                             \
        asp_vf x0 = LOAD(x), x1 = LOAD(x + half), co = LOAD(c), si = turn * LOAD(s); \
        STORE(y, x0 *co - x1 * si);                                                  \
        STORE(y + half, x1 * co + x0 * si);                                          \
    } while (0)
#define WHOLE(p) asp_vf_load((p) + j)
#define PART(p) asp_vf_load_part((p) + j, half - j)
#define PUT_WHOLE(p, v) asp_vf_store((p) + j, v)
#define PUT_PART(p, v) asp_vf_store_part((p) + j, v, half - j)

static void rotate(float *y, const float *x, const float *c, const float *s, int64_t half,
                   float sign)
{
    const asp_vf turn = asp_vf_all(sign);
    int64_t j = 0;
    for (; j + ASP_VF <= half; j += ASP_VF) ROTATE(WHOLE, PUT_WHOLE);
    if (j < half) ROTATE(PART, PUT_PART);
}

// x (B,N,S,H), cos and sin (S,H/2) or (B,S,H/2).
void ASP_ISA_NAME(asp_rotary_f32)(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0];
    const float *from = x->data, *c = k->in[1].data, *s = k->in[2].data;
    float *to = k->out[0].data;
    const int64_t N = x->dim[1], S = x->dim[2], half = x->dim[3] / 2, rows = asp_tensor_rows(x);
    const int64_t batch_step = k->in[1].rank == 3 ? S : 0;
    const float sign = ((const asp_rotary_attr *)k->attr)->inverse ? -1.0f : 1.0f;
    int64_t chunk;
    while ((chunk = asp_team_next(w, asp_ceil_div(rows, ROWS_PER_CHUNK))) >= 0) {
        const int64_t end = asp_min(rows, (chunk + 1) * ROWS_PER_CHUNK);
        for (int64_t i = chunk * ROWS_PER_CHUNK; i < end; i++) {
            const int64_t at = (i % S + i / (N * S) * batch_step) * half;
            rotate(to + i * 2 * half, from + i * 2 * half, c + at, s + at, half, sign);
        }
    }
}
