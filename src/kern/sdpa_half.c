// Attention of bf16, but for what sdpa_bf16.c takes: operands become f32 in scratch, the f32
// kernels run, results are rounded once. What a thread team works on at a time is one K/V head with
// its query heads, so that the scratch does not grow with their number; where masks, slopes or
// dropout go by batch and head it is all of them.  Neighbours: sdpa.c and sdpa_isa.c (the f32
// kernels), sdpa_bf16.c, half_ops.h. SPDX-License-Identifier: Apache-2.0
#include "kern/half_ops.h"
#include "kern/move.h"
#include "kern/sdpa_int.h"

enum { RUN = 16384 }; // elements that a thread converts at a time

// Operands and results that are bf16, in f32: where in the scratch, and how many elements a unit
// has of each.
typedef struct unpacked {
    asp_kcall call; // of the f32 kernel on one unit; its data is set by unit
    const asp_kern_row *row;
    int64_t units;
    int64_t n_in[ASP_MAX_OPERANDS], n_out[ASP_MAX_OPERANDS]; // 0: not bf16, as it is
    int64_t n_lse;                                           // elements of lse in a unit
    int64_t floats;                                          // of all of them
    int lse;                                                 // operand or result number of lse
} unpacked;

static int64_t padded(int64_t floats) { return asp_round_up(floats, 16); }

// One K/V head of one batch; its query heads stand together.
static void cut(asp_tensor *t, int64_t kv_heads)
{
    t->dim[0] = 1;
    t->dim[1] /= kv_heads;
}

static unpacked unpack_of(asp_op op, const asp_kcall *k)
{
    const bool grad = op == ASP_OP_sdpa_grad;
    unpacked u = {.call = *k, .row = asp_kern_choose(op, ASP_F32), .units = 1, .lse = grad ? 4 : 1};
    const int64_t batch = k->in[1].dim[0], kv_heads = k->in[1].dim[1];
    for (int i = 0; i < k->n_in + k->n_out; i++) {
        asp_tensor *t = i < k->n_in ? &u.call.in[i] : &u.call.out[i - k->n_in];
        if (t->dtype == ASP_BF16) t->dtype = ASP_F32;
    }
    if (asp_sdpa_sizes_of(&u.call, grad ? 6 : 3).plain) {
        u.units = batch * kv_heads;
        for (int i = 0; i < k->n_in; i++) cut(&u.call.in[i], kv_heads);
        for (int i = 0; i < k->n_out; i++) cut(&u.call.out[i], kv_heads);
    }
    for (int i = 0; i < k->n_in; i++)
        if (k->in[i].dtype == ASP_BF16) u.n_in[i] = asp_tensor_count(&u.call.in[i]);
    for (int i = 0; i < k->n_out; i++)
        if (k->out[i].dtype == ASP_BF16) u.n_out[i] = asp_tensor_count(&u.call.out[i]);
    for (int i = 0; i < ASP_MAX_OPERANDS; i++) u.floats += padded(u.n_in[i]) + padded(u.n_out[i]);
    u.n_lse = asp_tensor_count(grad ? &u.call.in[u.lse] : &u.call.out[u.lse]);
    return u;
}

static void convert(const asp_half_ops *ops, bool widen, uint16_t *half, float *full, int64_t n,
                    asp_worker *w)
{
    for (int64_t i, end; asp_claim(w, n, RUN, &i, &end);) {
        if (widen)
            ops->widen(half + i, end - i, full + i);
        else
            ops->narrow(full + i, end - i, half + i);
    }
    asp_team_barrier(w);
}

static void run_unit(unpacked *u, const asp_half_ops *ops, const asp_kcall *k, int64_t unit,
                     asp_worker *w)
{
    float *next = k->work;
    for (int i = 0; i < k->n_in; i++) {
        const int64_t n = u->n_in[i];
        if (!n) continue;
        u->call.in[i].data = next;
        convert(ops, true, (uint16_t *)k->in[i].data + unit * n, next, n, w);
        next += padded(n);
    }
    for (int i = 0; i < k->n_out; i++) {
        if (u->n_out[i]) u->call.out[i].data = next;
        next += padded(u->n_out[i]);
    }
    const bool grad = k->n_out == 3;
    asp_tensor *lse = grad ? &u->call.in[u->lse] : &u->call.out[u->lse];
    lse->data = (float *)(grad ? k->in[u->lse].data : k->out[u->lse].data) + unit * u->n_lse;
    u->call.work = next;
    u->row->fn(&u->call, w);
    asp_team_barrier(w);
    for (int i = 0; i < k->n_out; i++)
        if (u->n_out[i])
            convert(ops, false, (uint16_t *)k->out[i].data + unit * u->n_out[i],
                    u->call.out[i].data, u->n_out[i], w);
}

static void run(asp_op op, const asp_kcall *k, asp_worker *w)
{
    unpacked u = unpack_of(op, k);
    const asp_half_ops *ops = asp_half_ops_at(asp_isa_best());
    for (int64_t i = 0; i < u.units; i++) run_unit(&u, ops, k, i, w);
}

static int64_t work(asp_op op, const asp_kcall *k, int n_threads)
{
    const unpacked u = unpack_of(op, k);
    return u.floats * (int64_t)sizeof(float) + u.row->work(&u.call, n_threads);
}

// Does sdpa_bf16.c serve?  Only x86-64 has it.
#if defined(__x86_64__)
static bool stays_half(const asp_kcall *k)
{
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k, 3);
    return asp_isa_has_bf16() && asp_sdpa_bf16_takes(&z);
}
#endif

void asp_sdpa_half(const asp_kcall *k, asp_worker *w)
{
#if defined(__x86_64__)
    if (stays_half(k)) {
        asp_sdpa_bf16(k, w);
        return;
    }
#endif
    run(ASP_OP_sdpa, k, w);
}
void asp_sdpa_grad_half(const asp_kcall *k, asp_worker *w) { run(ASP_OP_sdpa_grad, k, w); }
int64_t asp_sdpa_half_work(const asp_kcall *k, int n)
{
#if defined(__x86_64__)
    const asp_sdpa_sizes z = asp_sdpa_sizes_of(k, 3);
    if (stays_half(k)) return asp_sdpa_bf16_work(&z, n);
#endif
    return work(ASP_OP_sdpa, k, n);
}
int64_t asp_sdpa_grad_half_work(const asp_kcall *k, int n) { return work(ASP_OP_sdpa_grad, k, n); }
