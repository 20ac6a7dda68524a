// Matrix products in plain C, f32 and f64, summed in double: the oracle of the fast ones and what
// f64 programs run on.  Neighbours: kern/gemm.h (the forms), ir/op.def (rows).
// SPDX-License-Identifier: Apache-2.0
//
// C is cut into blocks of ROWS x COLS; a chunk is one block.  For each slice of k both operands are
// brought to double in a layout whose inner loop runs over contiguous columns.  Each element is one
// sum over ascending k.
#include "kern/kern_int.h"

#define ROWS 32
#define COLS 32
#define SLICE 64

// Where element (row, p) of an operand stands: data[row * row_step + p * k_step].
typedef struct operand {
    const void *data;
    asp_dtype dtype;
    int64_t row_step, k_step;
} operand;

// Copies rows row0 .. row0 + rows, k p0 .. p0 + n_k to out[p][r], out[p] of `width` numbers;
// missing rows are zero.
static void load_slice(const operand *o, int64_t row0, int64_t rows, int64_t p0, int64_t n_k,
                       int64_t width, double *out)
{
    for (int64_t p = 0; p < n_k; p++)
        for (int64_t r = 0; r < width; r++) {
            int64_t at = (row0 + r) * o->row_step + (p0 + p) * o->k_step;
            double v = 0;
            if (r < rows)
                v = o->dtype == ASP_F64 ? ((const double *)o->data)[at]
                                        : (double)((const float *)o->data)[at];
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

static void store_block(const asp_tensor *c, int64_t i0, int64_t rows, int64_t j0, int64_t cols,
                        int64_t n, const double *acc)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const double v = acc[i * COLS + j];
            if (c->dtype == ASP_F64)
                ((double *)c->data)[(i0 + i) * n + j0 + j] = v;
            else
                ((float *)c->data)[(i0 + i) * n + j0 + j] = (float)v;
        }
}

static void multiply(const asp_tensor *c, int64_t m, int64_t n, int64_t k, operand a, operand b,
                     asp_worker *w)
{
    const int64_t grid_n = asp_ceil_div(n, COLS), n_chunks = grid_n * asp_ceil_div(m, ROWS);
    double acc[ROWS * COLS], slice_a[SLICE * ROWS], slice_b[SLICE * COLS];
    for (int64_t chunk; (chunk = asp_team_next(w, n_chunks)) >= 0;) {
        const int64_t i0 = chunk / grid_n * ROWS, j0 = chunk % grid_n * COLS;
        const int64_t rows = asp_min(ROWS, m - i0), cols = asp_min(COLS, n - j0);
        memset(acc, 0, sizeof acc);
        for (int64_t p = 0; p < k; p += SLICE) {
            const int64_t n_k = asp_min(SLICE, k - p);
            load_slice(&a, i0, rows, p, n_k, ROWS, slice_a);
            load_slice(&b, j0, cols, p, n_k, COLS, slice_b);
            multiply_slice(slice_a, slice_b, n_k, acc);
        }
        store_block(c, i0, rows, j0, cols, n, acc);
    }
}

// y[.., o] = x[.., i] w[o, i]
void asp_gemm_nt_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *z = &k->in[1];
    const int64_t m = asp_tensor_rows(x), n = z->dim[0], depth = z->dim[1];
    multiply(&k->out[0], m, n, depth, (operand){x->data, x->dtype, depth, 1},
             (operand){z->data, z->dtype, depth, 1}, w);
}

// y[.., i] = x[.., o] w[o, i]
void asp_gemm_nn_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *z = &k->in[1];
    const int64_t m = asp_tensor_rows(x), n = z->dim[1], depth = z->dim[0];
    multiply(&k->out[0], m, n, depth, (operand){x->data, x->dtype, depth, 1},
             (operand){z->data, z->dtype, 1, n}, w);
}

// y[o, i] = sum over rows of x[.., o] z[.., i]
void asp_gemm_tn_ref(const asp_kcall *k, asp_worker *w)
{
    const asp_tensor *x = &k->in[0], *z = &k->in[1];
    const int64_t m = x->dim[x->rank - 1], n = z->dim[z->rank - 1], depth = asp_tensor_rows(x);
    multiply(&k->out[0], m, n, depth, (operand){x->data, x->dtype, 1, m},
             (operand){z->data, z->dtype, 1, n}, w);
}
