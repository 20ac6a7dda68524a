// Fast kernels of convolution over the last dimension, f32: for each pair of channels and each tap
// one pass over a stretch of the row, which is contiguous where the stride is 1.  Neighbours:
// kern.def (rows), ref/conv.c (oracle).
//
// A claim is a block of a row of the result (of conv_weight_grad: all taps of an output channel),
// summed in a fixed order.  SPDX-License-Identifier: Apache-2.0
#include "kern/move.h"

#define BLOCK 1024 // elements of a row of one claim

// x (B, C, L), w (O, I, K), y (B, O, M); groups of per_group output channels read I input channels.
typedef struct sizes {
    int64_t B, C, L, O, I, K, M, per_group;
} sizes;

static sizes sizes_of(const asp_tensor *x, const asp_tensor *w, const asp_tensor *y)
{
    sizes s = {.B = x->dim[0],
               .C = x->dim[1],
               .L = x->dim[2],
               .O = w->dim[0],
               .I = w->dim[1],
               .K = w->dim[2],
               .M = y->dim[2]};
    s.per_group = s.O / (s.C / s.I);
    return s;
}

// to[i] += f from[i step] for i in 0 .. n - 1.
static void add_scaled(float *to, float f, const float *from, int64_t step, int64_t n)
{
    if (step == 1)
        for (int64_t i = 0; i < n; i++) to[i] += f * from[i];
    else
        for (int64_t i = 0; i < n; i++) to[i] += f * from[i * step];
}

// The m of first .. end - 1 with 0 <= m stride + offset < L.
static void clip(int64_t stride, int64_t offset, int64_t L, int64_t *first, int64_t *end)
{
    if (offset < 0) *first = asp_max(*first, asp_ceil_div(-offset, stride));
    *end = offset >= L ? *first : asp_min(*end, asp_ceil_div(L - offset, stride));
}

// A block of a row: row number and elements.
typedef struct stretch {
    int64_t row, first, end;
} stretch;

static bool next_stretch(asp_worker *w, int64_t rows, int64_t length, stretch *out)
{
    const int64_t blocks = asp_ceil_div(length, BLOCK);
    const int64_t i = asp_team_next(w, rows * blocks);
    if (i < 0) return false;
    *out = (stretch){.row = i / blocks, .first = i % blocks * BLOCK};
    out->end = asp_min(length, out->first + BLOCK);
    return true;
}

void asp_conv_f32(const asp_kcall *k, asp_worker *w)
{
    const asp_conv_attr *a = k->attr;
    const sizes s = sizes_of(&k->in[0], &k->in[1], &k->out[0]);
    const float *x = k->in[0].data, *f = k->in[1].data;
    float *y = k->out[0].data;
    for (stretch r; next_stretch(w, s.B * s.O, s.M, &r);) {
        const int64_t o = r.row % s.O, b = r.row / s.O, channel = o / s.per_group * s.I;
        float *to = y + r.row * s.M;
        memset(to + r.first, 0, (size_t)(r.end - r.first) * sizeof *to);
        for (int64_t c = 0; c < s.I; c++)
            for (int64_t t = 0; t < s.K; t++) {
                const float *from = x + (b * s.C + channel + c) * s.L;
                const int64_t offset = t * a->dilation - a->left;
                int64_t first = r.first, end = r.end;
                clip(a->stride, offset, s.L, &first, &end);
                if (first < end)
                    add_scaled(to + first, f[(o * s.I + c) * s.K + t],
                               from + first * a->stride + offset, a->stride, end - first);
            }
    }
}

// in: dy, w.  Rows of dx; with a stride, those that a tap reaches are apart by it.
void asp_conv_input_grad_f32(const asp_kcall *k, asp_worker *w)
{
    const asp_conv_grad_attr *a = k->attr;
    const sizes s = sizes_of(&k->out[0], &k->in[1], &k->in[0]);
    const float *dy = k->in[0].data, *f = k->in[1].data;
    float *dx = k->out[0].data;
    for (stretch r; next_stretch(w, s.B * s.C, s.L, &r);) {
        const int64_t c = r.row % s.C, b = r.row / s.C, out = c / s.I * s.per_group;
        float *to = dx + r.row * s.L;
        memset(to + r.first, 0, (size_t)(r.end - r.first) * sizeof *to);
        for (int64_t o = out; o < out + s.per_group; o++)
            for (int64_t t = 0; t < s.K; t++) {
                const float scale = f[(o * s.I + c % s.I) * s.K + t];
                const float *from = dy + (b * s.O + o) * s.M;
                const int64_t offset = t * a->dilation - a->left; // l = m stride + offset
                int64_t first = 0, end = s.M;
                clip(a->stride, offset - r.first, r.end - r.first, &first, &end);
                for (int64_t m = first; m < end; m++) to[m * a->stride + offset] += scale * from[m];
            }
    }
}

// in: dy, x.
void asp_conv_weight_grad_f32(const asp_kcall *k, asp_worker *w)
{
    const asp_conv_grad_attr *a = k->attr;
    const sizes s = sizes_of(&k->in[1], &k->out[0], &k->in[0]);
    const float *dy = k->in[0].data, *x = k->in[1].data;
    float *dw = k->out[0].data;
    for (int64_t i; (i = asp_team_next(w, s.O * s.I)) >= 0;) {
        const int64_t o = i / s.I, c = o / s.per_group * s.I + i % s.I;
        for (int64_t t = 0; t < s.K; t++) {
            const int64_t offset = t * a->dilation - a->left;
            double sum = 0;
            for (int64_t b = 0; b < s.B; b++)
                for (int64_t at = 0; at < s.M; at += BLOCK) {
                    const float *d = dy + (b * s.O + o) * s.M, *from = x + (b * s.C + c) * s.L;
                    int64_t first = at, end = asp_min(s.M, at + BLOCK);
                    float part[8] = {0};
                    clip(a->stride, offset, s.L, &first, &end);
                    for (int64_t m = first; m < end; m++)
                        part[(m - first) % 8] += d[m] * from[m * a->stride + offset];
                    for (int p = 0; p < 8; p++) sum += (double)part[p];
                }
            dw[i * s.K + t] = (float)sum;
        }
    }
}
