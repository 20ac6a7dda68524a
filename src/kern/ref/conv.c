// Reference kernels of convolution over the last dimension.  Neighbours: op/conv.c (what they
// mean), kern/conv.c (fast).  SPDX-License-Identifier: Apache-2.0
#include "kern/ref/ref.h"

// x (B, C, L), w (O, I, K), y (B, O, M); output channel o reads input channels first .. first +
// I-1.
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

static int64_t first_channel(const sizes *s, int64_t o) { return o / s->per_group * s->I; }

void asp_conv_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_conv_attr *a = k->attr;
    const asp_tensor *x = &k->in[0], *f = &k->in[1], *y = &k->out[0];
    const sizes s = sizes_of(x, f, y);
    ASP_REF_EACH(i, w, asp_tensor_count(y))
    {
        const int64_t m = i.at % s.M, o = i.at / s.M % s.O, b = i.at / s.M / s.O;
        double sum = 0;
        for (int64_t c = 0; c < s.I; c++)
            for (int64_t t = 0; t < s.K; t++) {
                const int64_t l = m * a->stride + t * a->dilation - a->left;
                if (l < 0 || l >= s.L) continue;
                sum += asp_ref_get(f, (o * s.I + c) * s.K + t) *
                       asp_ref_get(x, (b * s.C + first_channel(&s, o) + c) * s.L + l);
            }
        asp_ref_put(y, i.at, sum);
    }
}

// in: dy, w.  Each element of dx sums over the output channels of its group and the taps.
void asp_conv_input_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_conv_grad_attr *a = k->attr;
    const asp_tensor *dy = &k->in[0], *f = &k->in[1], *dx = &k->out[0];
    const sizes s = sizes_of(dx, f, dy);
    ASP_REF_EACH(i, w, asp_tensor_count(dx))
    {
        const int64_t l = i.at % s.L, c = i.at / s.L % s.C, b = i.at / s.L / s.C;
        const int64_t first = c / s.I * s.per_group;
        double sum = 0;
        for (int64_t o = first; o < first + s.per_group; o++)
            for (int64_t t = 0; t < s.K; t++) {
                const int64_t at = l + a->left - t * a->dilation;
                if (at < 0 || at % a->stride || at / a->stride >= s.M) continue;
                sum += asp_ref_get(f, (o * s.I + c % s.I) * s.K + t) *
                       asp_ref_get(dy, (b * s.O + o) * s.M + at / a->stride);
            }
        asp_ref_put(dx, i.at, sum);
    }
}

// in: dy, x.
void asp_conv_weight_grad_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_conv_grad_attr *a = k->attr;
    const asp_tensor *dy = &k->in[0], *x = &k->in[1], *dw = &k->out[0];
    const sizes s = sizes_of(x, dw, dy);
    ASP_REF_EACH(i, w, asp_tensor_count(dw))
    {
        const int64_t t = i.at % s.K, c = i.at / s.K % s.I, o = i.at / s.K / s.I;
        double sum = 0;
        for (int64_t b = 0; b < s.B; b++)
            for (int64_t m = 0; m < s.M; m++) {
                const int64_t l = m * a->stride + t * a->dilation - a->left;
                if (l < 0 || l >= s.L) continue;
                sum += asp_ref_get(dy, (b * s.O + o) * s.M + m) *
                       asp_ref_get(x, (b * s.C + first_channel(&s, o) + c) * s.L + l);
            }
        asp_ref_put(dw, i.at, sum);
    }
}
