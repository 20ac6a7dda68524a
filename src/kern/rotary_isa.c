// Rotary positions in vector types, one source for every level.  Neighbours: kern.def (rows),
// ref/rope.c (oracle, and the table of angles).  SPDX-License-Identifier: Apache-2.0
#include "kern/half.h"
#include "kern/kern_int.h"

#define ROWS_PER_CHUNK 256

// One row: (x0 c - x1 s, x1 c + x0 s), every product and sum rounded.  X and Y load and store
// elements of x and y; the angles are f32.
#define ROTATE(LOAD, X, Y)                                                     \
    do {                                                                       \
        asp_vf x0 = X(x), x1 = X(x + half), co = LOAD(c), si = turn * LOAD(s); \
        Y(y, x0 *co - x1 * si);                                                \
        Y(y + half, x1 * co + x0 * si);                                        \
    } while (0)
#define WHOLE(p) asp_vf_load((p) + j)
#define PART(p) asp_vf_load_part((p) + j, half - j)
#define PUT_WHOLE(p, v) asp_vf_store((p) + j, v)
#define PUT_PART(p, v) asp_vf_store_part((p) + j, v, half - j)
#define HALF_WHOLE(p) asp_vf_load_half((p) + j)
#define HALF_PART(p) asp_vf_load_half_part((p) + j, half - j)
#define PUT_HALF_WHOLE(p, v) asp_vf_store_half((p) + j, v)
#define PUT_HALF_PART(p, v) asp_vf_store_half_part((p) + j, v, half - j)

static void rotate(float *y, const float *x, const float *c, const float *s, int64_t half,
                   float sign)
{
    const asp_vf turn = asp_vf_all(sign);
    int64_t j = 0;
    for (; j + ASP_VF <= half; j += ASP_VF) ROTATE(WHOLE, WHOLE, PUT_WHOLE);
    if (j < half) ROTATE(PART, PART, PUT_PART);
}

static void rotate_half(uint16_t *y, const uint16_t *x, const float *c, const float *s,
                        int64_t half, float sign)
{
    const asp_vf turn = asp_vf_all(sign);
    int64_t j = 0;
    for (; j + ASP_VF <= half; j += ASP_VF) ROTATE(WHOLE, HALF_WHOLE, PUT_HALF_WHOLE);
    if (j < half) ROTATE(PART, HALF_PART, PUT_HALF_PART);
}

// x (B,N,S,H) f32 or bf16, cos and sin (S,H/2) or (B,S,H/2).
void ASP_ISA_NAME(asp_rotary_f32)(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0];
    const float *c = k->in[1].data, *s = k->in[2].data;
    const int64_t N = x->dim[1], S = x->dim[2], half = x->dim[3] / 2, rows = asp_tensor_rows(x);
    const int64_t batch_step = k->in[1].rank == 3 ? S : 0;
    const float sign = ((const asp_rotary_attr *)k->attr)->inverse ? -1.0f : 1.0f;
    int64_t chunk;
    while ((chunk = asp_team_next(w, asp_ceil_div(rows, ROWS_PER_CHUNK))) >= 0) {
        const int64_t end = asp_min(rows, (chunk + 1) * ROWS_PER_CHUNK);
        for (int64_t i = chunk * ROWS_PER_CHUNK; i < end; i++) {
            const int64_t at = (i % S + i / (N * S) * batch_step) * half, row = i * 2 * half;
            if (x->dtype == ASP_BF16)
                rotate_half((uint16_t *)k->out[0].data + row, (const uint16_t *)x->data + row,
                            c + at, s + at, half, sign);
            else
                rotate((float *)k->out[0].data + row, (const float *)x->data + row, c + at, s + at,
                       half, sign);
        }
    }
}
