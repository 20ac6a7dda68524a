// See random_chain.h.  SPDX-License-Identifier: Apache-2.0
#include "unit/flow/support/random_chain.h"

typedef struct dice {
    uint64_t state;
} dice;

// Numbers that look random and are the same everywhere.
static uint32_t roll(dice *d, uint32_t below)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(d->state >> 33) % below;
}

void random_chain(remat_builder *b, asp_ctx *cx, asp_arena *a, uint32_t seed, uint32_t n)
{
    static const asp_remat_class kinds[] = {ASP_REMAT_GEMM, ASP_REMAT_POINTWISE,
                                            ASP_REMAT_ATTENTION, ASP_REMAT_OTHER};
    dice d = {seed};
    uint32_t *v = ASP_NEW_ARRAY(a, uint32_t, n);
    for (int i = 0; i < 4; i++) roll(&d, 2);
    rb_init(b, cx, a);
    uint32_t x = rb_input(b, "x", 8, ASP_REMAT_STATIC);
    uint32_t w = rb_input(b, "w", 8, ASP_REMAT_STATIC | ASP_REMAT_TRAINED);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t reads[3] = {i ? v[i - 1] : x, w, i > 1 ? v[i - 2] : x};
        bool skips = roll(&d, 4) == 0;
        uint32_t bytes = 1 + roll(&d, 100), kind = roll(&d, 4); // one draw after the other
        v[i] = rb_add_op(b, asp_printf(a, "v%u", i), kinds[kind], bytes, reads, skips ? 3 : 2);
        rb_maker(b, v[i])->time_ps = 1 + roll(&d, 1000);
    }
    b->values.at[v[n - 1]].flags |= ASP_REMAT_FORWARD_OUTPUT;
    uint32_t g = rb_add_op(b, "seed", ASP_REMAT_OTHER, 1 + roll(&d, 100), &x, 1);
    b->ops.at[b->ops.n - 1].backward = true;
    for (uint32_t i = n; i-- > 0;) {
        uint32_t reads[4] = {g, w, v[i], i ? v[i - 1] : x}, what = 1 + roll(&d, 3);
        uint32_t n_reads = 2;
        if (what & 1) reads[n_reads++] = v[i];
        if (what & 2) reads[n_reads++] = i ? v[i - 1] : x;
        g = rb_add_op(b, "g", ASP_REMAT_OTHER, 1 + roll(&d, 100), reads, n_reads);
        b->ops.at[b->ops.n - 1].backward = true;
    }
    b->values.at[g].flags |= ASP_REMAT_BACKWARD_OUTPUT;
}
