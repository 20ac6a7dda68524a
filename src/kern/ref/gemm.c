// Matrix products in plain C, of any floating dtype, summed in double: the oracle of the fast ones
// and what f64 programs run on.  Neighbours: kern/gemm.h (the forms), ir/op.def (rows).
// SPDX-License-Identifier: Apache-2.0
//
// C is cut into blocks of ROWS x COLS; a chunk is one block.  For each slice of k both operands are
// brought to double in a layout whose inner loop runs over contiguous columns.  Each element is one
// sum over ascending k.
#include "kern/ref/ref.h"

#define ROWS 32
#define COLS 32
#define SLICE 64

// Where element (row, p) of an operand stands: at row * row_step + p * k_step.
typedef struct operand {
    asp_tensor of; // data and dtype alone
    int64_t row_step, k_step;
} operand;

static operand operand_of(const asp_tensor *t, int64_t row_step, int64_t k_step)
{
    return (operand){{.data = t->data, .dtype = t->dtype}, row_step, k_step};
}

// Copies rows row0 .. row0 + rows, k p0 .. p0 + n_k to out[p][r], out[p] of `width` numbers;
// missing rows are zero.
static void load_slice(const operand *o, int64_t row0, int64_t rows, int64_t p0, int64_t n_k,
                       int64_t width, double *out)
{
    for (int64_t p = 0; p < n_k; p++)
        for (int64_t r = 0; r < width; r++) {
            int64_t at = (row0 + r) * o->row_step + (p0 + p) * o->k_step;
            double v = 0;
            if (r < rows) v = asp_ref_get(&o->of, at);
            out[p * width + r] = v;
        }
}

static void multiply_slice(const double *a, const double *b, int64_t n_k, double *acc)
{
    for (int64_t i = 0; i < ROWS; i++) {
        double row[COLS];
        memcpy(row, acc + i * COLS, sizeof row);
        for (int64_t p = 0; p < n_k; p++) {
            const double x = a[p * ROWS + i];
            for (int j = 0; j < COLS; j++) row[j] += x * b[p * COLS + j];
        }
        memcpy(acc + i * COLS, row, sizeof row);
    }
}

// at: of the block's first element; n: elements between rows; add: to what is there.
static void store_block(const asp_tensor *c, int64_t at, int64_t rows, int64_t cols, int64_t n,
                        const double *acc, bool add)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const int64_t to = at + i * n + j;
            const double v = acc[i * COLS + j];
            asp_ref_put(c, to, add ? asp_ref_get(c, to) + v : v);
        }
}

static operand behind(operand o, int64_t elements)
{
    o.of.data = (char *)o.of.data + elements * asp_dtypes[o.of.dtype].bytes;
    return o;
}

// One product for each index of the leading dims of k's result, of m x n; operands broadcast.
static void multiply_all(const asp_kcall *k, int64_t batch, int64_t m, int64_t n, int64_t depth,
                         operand a, operand b, bool add, asp_worker *w)
{
    const int64_t grid_n = asp_ceil_div(n, COLS), blocks = grid_n * asp_ceil_div(m, ROWS);
    double acc[ROWS * COLS], slice_a[SLICE * ROWS], slice_b[SLICE * COLS];
    for (int64_t chunk; (chunk = asp_team_next(w, batch * blocks)) >= 0;) {
        const int64_t z = chunk / blocks, block = chunk % blocks;
        const operand za = batch > 1 ? behind(a, asp_batch_matrix(k, 0, z) * m * depth) : a;
        const operand zb = batch > 1 ? behind(b, asp_batch_matrix(k, 1, z) * n * depth) : b;
        const int64_t i0 = block / grid_n * ROWS, j0 = block % grid_n * COLS;
        const int64_t rows = asp_min(ROWS, m - i0), cols = asp_min(COLS, n - j0);
        memset(acc, 0, sizeof acc);
        for (int64_t p = 0; p < depth; p += SLICE) {
            const int64_t n_k = asp_min(SLICE, depth - p);
            load_slice(&za, i0, rows, p, n_k, ROWS, slice_a);
            load_slice(&zb, j0, cols, p, n_k, COLS, slice_b);
            multiply_slice(slice_a, slice_b, n_k, acc);
        }
        store_block(&k->out[0], (z * m + i0) * n + j0, rows, cols, n, acc, add);
    }
}

static void multiply(const asp_kcall *k, int64_t m, int64_t n, int64_t depth, operand a, operand b,
                     bool add, asp_worker *w)
{
    multiply_all(k, 1, m, n, depth, a, b, add, w);
}

// y[.., o] = x[.., i] w[o, i]
void asp_gemm_nt_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *z = &k->in[1];
    const int64_t m = asp_tensor_rows(x), n = z->dim[0], depth = z->dim[1];
    multiply(k, m, n, depth, operand_of(x, depth, 1), operand_of(z, depth, 1), false, w);
}

// y[.., i] = x[.., o] w[o, i]
void asp_gemm_nn_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *z = &k->in[1];
    const int64_t m = asp_tensor_rows(x), n = z->dim[1], depth = z->dim[0];
    multiply(k, m, n, depth, operand_of(x, depth, 1), operand_of(z, 1, n), false, w);
}

// y[o, i] = sum over rows of x[.., o] z[.., i]
void asp_gemm_tn_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *z = &k->in[1];
    const int64_t m = x->dim[x->rank - 1], n = z->dim[z->rank - 1], depth = asp_tensor_rows(x);
    multiply(k, m, n, depth, operand_of(x, 1, m), operand_of(z, 1, n), k->chunk > 0, w);
}

// Matrices of the last two dims, transposed by ta or tb first; the leading dims broadcast.
void asp_bmm_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_bmm_attr *at = k->attr;
    const asp_tensor *x = &k->in[0], *z = &k->in[1], *y = &k->out[0];
    const int64_t m = y->dim[y->rank - 2], n = y->dim[y->rank - 1];
    const int64_t depth = x->dim[x->rank - (at->ta ? 2 : 1)];
    const operand a = operand_of(x, at->ta ? 1 : depth, at->ta ? m : 1);
    const operand b = operand_of(z, at->tb ? depth : 1, at->tb ? 1 : n);
    multiply_all(k, asp_tensor_count(y) / (m * n), m, n, depth, a, b, false, w);
}
