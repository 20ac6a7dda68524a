// The op harness: every op of ir/op.def that has a derivative, alone in a graph, against finite
// differences.  The table is made from op.def: an op without a sample does not compile.
// Neighbours: op/ (the derivatives), kern/ref/ (what runs them in f64).
// SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"
#include "run/run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

// Nodes that end with %y, the shape of %y, and its dims.  Parameters are what is differentiated.
typedef struct sample {
    const char *nodes, *shape, *dims;
} sample;

#define P(name, shape) "%" name " : f64[" shape "] = param {name = \"" name "\"}\n"
#define IDS(name, shape) "%" name " : i64[" shape "] = input {name = \"" name "\"}\n"
#define UNARY(op, attr)                                                       \
    {                                                                         \
        P("x", "2, 3") "%y : f64[2, 3] = " op " %x" attr "\n", "2, 3", "0, 1" \
    }
#define BINARY(op)                                                                 \
    {                                                                              \
        P("a", "2, 1, 3")                                                          \
        P("b", "4, 3") "%y : f64[2, 4, 3] = " op " %a, %b\n", "2, 4, 3", "0, 1, 2" \
    }

static const sample sample_cast = UNARY("cast", " {to = f64}");
static const sample sample_add = BINARY("add");
static const sample sample_sub = BINARY("sub");
static const sample sample_mul = BINARY("mul");
static const sample sample_div = BINARY("div");
static const sample sample_add_scalar = UNARY("add_scalar", " {value = 0.7}");
static const sample sample_mul_scalar = UNARY("mul_scalar", " {value = -1.3}");
static const sample sample_neg = UNARY("neg", "");
static const sample sample_exp = UNARY("exp", "");
static const sample sample_rsqrt = UNARY("rsqrt", "");
static const sample sample_silu = UNARY("silu", "");
// x from -0.9 to 0.9: both sides of what bends at 0.
#define SIGNED(op, attr)                                                                     \
    {                                                                                        \
        P("p", "2, 3")                                                                       \
        "%x : f64[2, 3] = add_scalar %p {value = -1}\n%y : f64[2, 3] = " op " %x" attr "\n", \
            "2, 3", "0, 1"                                                                   \
    }
static const sample sample_abs = SIGNED("abs", "");
static const sample sample_sign = SIGNED("sign", "");
static const sample sample_remainder = BINARY("remainder");
static const sample sample_sqrt = UNARY("sqrt", "");
static const sample sample_pow = UNARY("pow", " {value = 2.5}");
static const sample sample_log = UNARY("log", "");
static const sample sample_log1p = UNARY("log1p", "");
static const sample sample_sin = UNARY("sin", "");
static const sample sample_cos = UNARY("cos", "");
static const sample sample_erf = SIGNED("erf", "");
static const sample sample_clamp = UNARY("clamp", " {min = 0.75, max = 1.25}");
static const sample sample_minimum = BINARY("minimum");
static const sample sample_maximum = BINARY("maximum");
static const sample sample_where = {P("a", "2, 1, 3")
                                        P("b", "4, 3") "%o : bool[2, 4, 3] = lt %b, %a\n"
                                                       "%y : f64[2, 4, 3] = where %o, %a, %b\n",
                                    "2, 4, 3", "0, 1, 2"};
static const sample sample_relu = SIGNED("relu", "");
static const sample sample_tanh = SIGNED("tanh", "");
static const sample sample_sigmoid = SIGNED("sigmoid", "");
static const sample sample_gelu = SIGNED("gelu", "");
static const sample sample_gelu_tanh = SIGNED("gelu_tanh", "");
static const sample sample_softplus = UNARY("softplus", " {beta = 2, threshold = 2.5}");
static const sample sample_elu = SIGNED("elu", " {alpha = 0.7}");
static const sample sample_softmax = {
    P("x", "2, 4, 3") "%y : f64[2, 4, 3] = softmax %x {dim = 1}\n", "2, 4, 3", "0, 1, 2"};
static const sample sample_log_softmax = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = log_softmax %x {dim = 2}\n", "2, 3, 4", "0, 1, 2"};
static const sample sample_bmm = {
    P("a", "2, 1, 5, 3") P("b", "4, 5, 2")
        P("z", "2, 1, 4, 2") "%ab : f64[2, 4, 3, 2] = bmm %a, %b {ta = true}\n"
                             "%abc : f64[2, 4, 3, 4] = bmm %ab, %z {tb = true}\n"
                             "%y : f64[2, 4, 3, 3] = bmm %abc, %abc {tb = true}\n",
    "2, 4, 3, 3", "0, 1, 2, 3"};
static const sample sample_matmul = {P("a", "2, 1, 3, 5")
                                         P("b", "4, 5, 2") "%y : f64[2, 4, 3, 2] = matmul %a, %b\n",
                                     "2, 4, 3, 2", "0, 1, 2, 3"};
// Three operands: batch b and h, then a product with a matrix whose result comes first.
static const sample sample_einsum = {P("q", "2, 3, 2, 2") P("k", "2, 4, 2, 2")
                                         P("w", "3, 4") "%y : f64[3, 2, 2, 3] = einsum %q, %k, "
                                                        "%w {equation = \"bqhd,bkhd,ok->obhq\"}\n",
                                     "3, 2, 2, 3", "0, 1, 2, 3"};
static const sample sample_group_norm = {
    P("x", "2, 4, 3") P("w", "4")
        P("b", "4") "%y : f64[2, 4, 3] = group_norm %x, %w, %b {groups = 2}\n",
    "2, 4, 3", "0, 1, 2"};
static const sample sample_batch_norm = {
    P("x", "2, 3, 4") P("w", "3") P("b", "3") "%y, %m, %v : f64[2, 3, 4], f64[3], f64[3] = "
                                              "batch_norm %x, %w, %b\n",
    "2, 3, 4", "0, 1, 2"};
static const sample sample_layer_norm = {
    P("x", "2, 3, 5") P("w", "5") P("b", "5") "%y : f64[2, 3, 5] = layer_norm %x, %w, %b\n",
    "2, 3, 5", "0, 1, 2"};
static const sample sample_sum = {
    P("x", "2, 3, 4") "%y : f64[2, 1, 4] = sum %x {dims = [1], keep = true}\n", "2, 1, 4",
    "0, 1, 2"};
#define REDUCED(op)                                                             \
    {                                                                           \
        P("x", "2, 3, 4") "%y : f64[3] = " op " %x {dims = [0, 2]}\n", "3", "0" \
    }
static const sample sample_amax = REDUCED("amax");
static const sample sample_amin = REDUCED("amin");
static const sample sample_logsumexp = REDUCED("logsumexp");
static const sample sample_mean = REDUCED("mean");
static const sample sample_var = REDUCED("var");
static const sample sample_max_dim = {
    P("x", "2, 3, 4") "%y, %i : f64[2, 4], i64[2, 4] = max_dim %x {dim = 1}\n", "2, 4", "0, 1"};
static const sample sample_min_dim = {
    P("x", "2, 3, 4") "%y, %i : f64[2, 3, 1], i64[2, 3, 1] = min_dim %x {dim = 2, keep = true}\n",
    "2, 3, 1", "0, 1, 2"};
// Bools have no derivative: here they choose.
#define OF_BOOLS(op)                                             \
    {                                                            \
        P("a", "2, 3")                                           \
        P("b", "2, 3")                                           \
        "%o : bool[2, 3] = lt %b, %a\n%d : bool[3] = " op        \
        " %o {dims = [0]}\n%y : f64[2, 3] = where %d, %a, %b\n", \
            "2, 3", "0, 1"                                       \
    }
static const sample sample_any = OF_BOOLS("any");
static const sample sample_all = OF_BOOLS("all");
static const sample sample_expand = {
    P("x", "1, 3") "%y : f64[4, 2, 3] = expand %x {shape = [4, 2, 3]}\n", "4, 2, 3", "0, 1, 2"};
static const sample sample_view = {P("x", "2, 6") "%y : f64[3, 4] = view %x {shape = [3, 4]}\n",
                                   "3, 4", "0, 1"};
static const sample sample_permute = {
    P("x", "2, 3, 4") "%y : f64[4, 2, 3] = permute %x {perm = [2, 0, 1]}\n", "4, 2, 3", "0, 1, 2"};
static const sample sample_repeat = {
    P("x", "2, 2, 3") "%y : f64[2, 6, 3] = repeat %x {dim = 1, times = 3}\n", "2, 6, 3", "0, 1, 2"};
static const sample sample_sum_groups = {
    P("x", "2, 6, 3") "%y : f64[2, 2, 3] = sum_groups %x {dim = 1, times = 3}\n", "2, 2, 3",
    "0, 1, 2"};
static const sample sample_slice = {
    P("x", "2, 5, 3") "%y : f64[2, 2, 3] = slice %x {dim = 1, start = 2, end = 4}\n", "2, 2, 3",
    "0, 1, 2"};
static const sample sample_select = {
    P("x", "2, 5, 3") "%y : f64[2, 3] = select %x {dim = 1, at = 3}\n", "2, 3", "0, 1"};
static const sample sample_pad = {
    P("x", "2, 3, 2") "%y : f64[2, 6, 2] = pad %x {dim = 1, left = 1, right = 2, value = 0.5}\n",
    "2, 6, 2", "0, 1, 2"};
static const sample sample_cat = {
    P("a", "2, 1, 3") P("b", "2, 4, 3")
        P("d", "2, 2, 3") "%y : f64[2, 7, 3] = cat %a, %b, %d {dim = 1}\n",
    "2, 7, 3", "0, 1, 2"};
static const sample sample_stack = {
    P("a", "2, 3") P("b", "2, 3") "%y : f64[2, 2, 3] = stack %a, %b {dim = 1}\n", "2, 2, 3",
    "0, 1, 2"};
static const sample sample_split = {
    P("x", "2, 6, 2") "%p, %q, %r : f64[2, 2, 2], f64[2, 2, 2], f64[2, 2, 2] = split %x {dim = 1, "
                      "parts = 3}\n%y : f64[2, 2, 2] = mul %p, %r\n",
    "2, 2, 2", "0, 1, 2"};
static const sample sample_split_sizes = {
    P("x",
      "2, 6") "%p, %q, %r : f64[2, 3], f64[2, 1], f64[2, 2] = split_sizes %x {dim = 1, sizes = "
              "[3, 1, 2]}\n%y : f64[2, 3] = mul %p, %q\n",
    "2, 3", "0, 1"};
static const sample sample_unbind = {
    P("x", "2, 2, 3") "%p, %q : f64[2, 3], f64[2, 3] = unbind %x {dim = 1}\n"
                      "%y : f64[2, 3] = div %p, %q\n",
    "2, 3", "0, 1"};
static const sample sample_flip = {P("x", "2, 3, 2") "%y : f64[2, 3, 2] = flip %x {dim = 1}\n",
                                   "2, 3, 2", "0, 1, 2"};
static const sample sample_roll = {
    P("x", "2, 5, 2") "%y : f64[2, 5, 2] = roll %x {dim = 1, by = -7}\n", "2, 5, 2", "0, 1, 2"};
static const sample sample_shift = {
    P("x", "2, 5, 2") "%y : f64[2, 5, 2] = shift %x {by = -2, fill = 3, dim = 1}\n", "2, 5, 2",
    "0, 1, 2"};
static const sample sample_diff = {
    P("x", "2, 3") P("p", "2, 1") "%y : f64[2, 3] = diff %x, %p {dim = 1}\n", "2, 3", "0, 1"};
static const sample sample_triangle = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = triangle %x {diagonal = 1}\n", "2, 3, 4", "0, 1, 2"};
static const sample sample_gather = {
    IDS("ids", "2, 4, 3") P("x", "2, 5, 3") "%y : f64[2, 4, 3] = gather %x, %ids {dim = 1}\n",
    "2, 4, 3", "0, 1, 2"};
static const sample sample_scatter = {
    IDS("ids", "3, 4") P("x", "3, 5")
        P("s", "3, 4") "%y : f64[3, 5] = scatter %x, %ids, %s {dim = 1}\n",
    "3, 5", "0, 1"};
static const sample sample_scatter_add = {
    IDS("ids", "2, 7, 3")
        P("x", "2, 7, 3") "%y : f64[2, 5, 3] = scatter_add %ids, %x {dim = 1, size = 5}\n",
    "2, 5, 3", "0, 1, 2"};
static const sample sample_index_select = {
    IDS("ids", "2, 4") P("x", "2, 5, 3") "%y : f64[2, 2, 4, 3] = index_select %x, %ids {dim = 1}\n",
    "2, 2, 4, 3", "0, 1, 2, 3"};
static const sample sample_index_add = {
    IDS("ids", "2, 4")
        P("x", "2, 2, 4, 3") "%y : f64[2, 5, 3] = index_add %ids, %x {dim = 1, size = 5}\n",
    "2, 5, 3", "0, 1, 2"};
static const sample sample_topk = {
    P("x", "2, 5, 3") "%y, %i : f64[2, 2, 3], i64[2, 2, 3] = topk %x {dim = 1, k = 2}\n", "2, 2, 3",
    "0, 1, 2"};
static const sample sample_sort = {
    P("x", "2, 5") "%y, %i : f64[2, 5], i64[2, 5] = sort %x {dim = 1, descending = true}\n", "2, 5",
    "0, 1"};
static const sample sample_cumsum = {
    P("x", "2, 5, 3") "%y : f64[2, 5, 3] = cumsum %x {dim = 1, reverse = true}\n", "2, 5, 3",
    "0, 1, 2"};
static const sample sample_scan = {
    P("a", "2, 4, 1") P("b", "2, 4, 3")
        P("h", "2, 1, 3") "%y : f64[2, 4, 3] = scan %a, %b, %h {dim = 1}\n",
    "2, 4, 3", "0, 1, 2"};
static const sample sample_cumprod = {P("x", "2, 4") "%y : f64[2, 4] = cumprod %x {dim = 1}\n",
                                      "2, 4", "0, 1"};
static const sample sample_conv = {
    P("x", "2, 4, 9")
        P("w", "6, 2, 3") "%y : f64[2, 6, 4] = conv %x, %w {stride = 2, dilation = 2, "
                          "groups = 2, left = 2, right = 1}\n",
    "2, 6, 4", "0, 1, 2"};
static const sample sample_conv1d = {
    P("x", "2, 3, 5") P("w", "3, 1, 4")
        P("b", "3") "%y : f64[2, 3, 5] = conv1d %x, %w, %b {groups = 0, left = 3}\n",
    "2, 3, 5", "0, 1, 2"};
static const sample sample_dropout = UNARY("dropout", " {p = 0.4, site = 3}");
static const sample sample_gemm_nt = {
    P("x", "2, 3, 5") P("w", "4, 5") "%y : f64[2, 3, 4] = gemm_nt %x, %w\n", "2, 3, 4", "0, 1, 2"};
static const sample sample_gemm_nn = {
    P("x", "2, 3, 5") P("w", "5, 4") "%y : f64[2, 3, 4] = gemm_nn %x, %w\n", "2, 3, 4", "0, 1, 2"};
static const sample sample_gemm_tn = {
    P("x", "2, 3, 5") P("z", "2, 3, 4") "%y : f64[5, 4] = gemm_tn %x, %z\n", "5, 4", "0, 1"};
static const sample sample_embedding = {
    IDS("ids", "2, 4") P("w", "5, 3") "%y : f64[2, 4, 3] = embedding %ids, %w\n", "2, 4, 3",
    "0, 1, 2"};
static const sample sample_rotary = {
    P("x", "2, 2, 3, 4") "%c0 : f64[3, 2] = constant {value = 0.6}\n"
                         "%s0 : f64[3, 2] = constant {value = 0.8}\n%y : f64[2, 2, 3, 4] = rotary "
                         "%x, %c0, %s0\n",
    "2, 2, 3, 4", "0, 1, 2, 3"};
static const sample sample_sdpa = {
    P("q", "2, 4, 5, 3") P("k", "2, 2, 5, 3") P(
        "v",
        "2, 2, 5, 2") "%y, %lse : f64[2, 4, 5, 2], f64[2, 4, 5] = sdpa %q, %k, %v {scale = 0.7}\n",
    "2, 4, 5, 2", "0, 1, 2, 3"};
// Masks, cap, bias, sinks, slopes, dropout of sdpa; the ids of 5 tokens are 2, 0, 3, 1, 4.
#define QKV P("q", "2, 4, 5, 3") P("k", "2, 2, 5, 3") P("v", "2, 2, 5, 2")
#define SDPA(more, operands, attr)                                                     \
    {                                                                                  \
        QKV more "%y, %lse : f64[2, 4, 5, 2], f64[2, 4, 5] = sdpa %q, %k, %v" operands \
                 " {scale = 0.7, " attr "}\n",                                         \
            "2, 4, 5, 2", "0, 1, 2, 3"                                                 \
    }
static const sample sdpa_variants[] = {
    SDPA("", "", "causal = false"),
    SDPA("", "", "mask = \"q - k <= 1\""),
    SDPA("", "", "mask = \"k <= 1 | q/2 == k/2\", causal = false"),
    SDPA(IDS("t", "2, 5"), ", %t", "mask = \"T0[q] <= T0[k]\", causal = false"),
    SDPA(IDS("t", "5"), ", %t", "mask = \"T0[k] <= 1\""), // the first query sees nothing
    SDPA(IDS("t", "5"), ", %t", "mask = \"T0[k] <= 1\", empty = \"mean\""),
    SDPA("", "", "softcap = 1.5"),
    SDPA(P("bias", "2, 4, 5, 5"), ", %bias", "bias = true, causal = false, softcap = 2"),
    SDPA(P("bias", "1, 4, 1, 5"), ", %bias", "bias = true"),
    SDPA(P("bias", "5, 5"), ", %bias", "bias = true, mask = \"q - k <= 2\""),
    SDPA(P("sinks", "4"), ", %sinks", "sinks = true, mask = \"q - k <= 2\""),
    SDPA("%m : f64[4] = constant {value = 0.3}\n", ", %m", "alibi = \"relative\""),
    SDPA("%m : f64[4] = constant {value = 0.3}\n", ", %m", "alibi = \"distance\", causal = false"),
    SDPA("", "", "dropout = 0.4, site = 7"),
    SDPA(IDS("t", "2, 5") P("bias", "1, 4, 5, 5") P("sinks", "4"), ", %t, %bias, %sinks",
         "mask = \"T0[q] <= T0[k] + 2\", bias = true, sinks = true, softcap = 3, dropout = 0.3"),
};
// A cross attention whose causal mask starts at the first key, as in PyTorch.
static const sample sdpa_cross[] = {
    {P("q", "1, 2, 3, 3") P("k", "1, 2, 5, 3") P(
         "v",
         "1, 2, 5, 2") "%y, %lse : f64[1, 2, 3, 2], f64[1, 2, 3] = sdpa %q, %k, %v {scale = 0.7}\n",
     "1, 2, 3, 2", "0, 1, 2, 3"},
    {P("q", "1, 2, 5, 3") P("k", "1, 2, 3, 3")
         P("v", "1, 2, 3, 2") "%y, %lse : f64[1, 2, 5, 2], f64[1, 2, 5] = sdpa %q, %k, %v {mask = "
                              "\"q - k <= 1\"}\n",
     "1, 2, 5, 2", "0, 1, 2, 3"}};
#define CLASS_WEIGHTS "%n : i64[5] = iota {start = 1}\n%k : f64[5] = cast %n {to = f64}\n"
static const sample sample_nll = {
    IDS("ids", "2, 4") P("x", "2, 4, 5") CLASS_WEIGHTS
    "%y, %lse : f64[2, 4], f64[2, 4] = nll %x, %ids, %k {ignore = 1, smoothing = 0.1, softcap = 2, "
    "rows = true}\n",
    "2, 4", "0, 1"};
static const sample sample_pick = {
    IDS("ids", "2, 4") P("x", "2, 4, 5") "%y : f64[2, 4] = pick %x, %ids {ignore = 1}\n", "2, 4",
    "0, 1"};
static const sample sample_nll_loss = {IDS("ids", "2, 4") P("x", "2, 4, 5") CLASS_WEIGHTS
                                       "%y : f64[] = nll_loss %x, %ids, %k {ignore = 1}\n",
                                       "", ""};
static const sample sample_mse_loss = {
    P("a", "2, 3") P("b", "2, 3") "%y : f64[] = mse_loss %a, %b\n", "", ""};
static const sample sample_linear = {P("x", "2, 3, 5") P("w", "4, 5")
                                         P("b", "4") "%y : f64[2, 3, 4] = linear %x, %w, %b\n",
                                     "2, 3, 4", "0, 1, 2"};
static const sample sample_rms_norm = {
    P("x", "2, 3, 5") P("w", "5") "%y : f64[2, 3, 5] = rms_norm %x, %w\n", "2, 3, 5", "0, 1, 2"};
static const sample sample_rope = {
    IDS("ids", "2, 3") P("x", "2, 2, 3, 4") "%y : f64[2, 2, 3, 4] = rope %x, %ids {theta = 10}\n",
    "2, 2, 3, 4", "0, 1, 2, 3"};
static const sample sample_cross_entropy = {
    IDS("ids", "2, 4") P("x", "2, 4, 5") CLASS_WEIGHTS
    "%y : f64[] = cross_entropy %x, %ids, %k {ignore = 1, smoothing = 0.2, softcap = 1.5, zloss = "
    "0.3}\n",
    "", ""};
// On one rank an exchange is the identity, and so is its derivative; on several: unit.run.ranks.
static const sample sample_all_to_all = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = all_to_all %x {split = 0, gather = 1}\n", "2, 3, 4",
    "0, 1, 2"};
static const sample sample_shard_slice = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = shard_slice %x {dim = 1}\n", "2, 3, 4", "0, 1, 2"};
static const sample sample_shard_pad = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = shard_pad %x {dim = 1, length = 3}\n", "2, 3, 4",
    "0, 1, 2"};
#define SEQ_PART "dim = 1, of = 3, length = 3"
static const sample sample_move_rows = {
    P("x", "2, 3, 4") "%y : f64[2, 2, 4] = move_rows %x {" SEQ_PART
                      ", map = \"last\", count = 2}\n",
    "2, 2, 4", "0, 1, 2"};
static const sample sample_seq_shift = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = seq_shift %x {" SEQ_PART ", by = -1}\n", "2, 3, 4",
    "0, 1, 2"};
static const sample sample_seq_conv1d = {
    P("x", "2, 2, 4") P("w", "3, 2, 3") P("b", "3") "%y : f64[2, 3, 4] = seq_conv1d %x, %w, %b "
                                                    "{dim = 2, of = 4, length = 4, left = 2}\n",
    "2, 3, 4", "0, 1, 2"};
static const sample sample_seq_cumsum = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = seq_cumsum %x {" SEQ_PART "}\n", "2, 3, 4", "0, 1, 2"};
static const sample sample_seq_scan = {
    P("a", "2, 3, 1") P("x", "2, 3, 4") P("h", "2, 1, 4") "%y : f64[2, 3, 4] = seq_scan %a, %x, %h "
                                                          "{" SEQ_PART "}\n",
    "2, 3, 4", "0, 1, 2"};
static const sample sample_seq_select = {
    P("x", "2, 3, 4") "%y : f64[2, 4] = seq_select %x {" SEQ_PART ", at = 1}\n", "2, 4", "0, 1"};
static const sample sample_shorten = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = shorten %x {dim = 1, of = 3, length = 3}\n", "2, 3, 4",
    "0, 1, 2"};
static const sample sample_mask_tail = {
    P("x", "2, 3, 4") "%y : f64[2, 3, 4] = mask_tail %x {dim = 1, of = 3, length = 2}\n", "2, 3, 4",
    "0, 1, 2"};
static const sample sample_all_reduce = UNARY("all_reduce", "");
static const sample sample_rotate = UNARY("rotate", "");
// A ring of one: on several ranks: unit.run.ring.
static const sample sample_ring_sdpa = {
    P("q", "2, 4, 5, 3") P("k", "2, 2, 5, 3") P("v", "2, 2, 5, 2")
        P("s",
          "4") "%y, %lse : f64[2, 4, 5, 2], f64[2, 4, 5] = ring_sdpa %q, %k, %v, %s {scale = 0.7, "
               "sinks = true}\n",
    "2, 4, 5, 2", "0, 1, 2, 3"};

static const struct {
    const char *op;
    const sample *s;
} samples[] = {
#define SAMPLE_MODULE(name) {#name, &sample_##name},
#define SAMPLE_PRIMITIVE(name) {#name, &sample_##name},
#define SAMPLE_TERMINAL(name)
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) SAMPLE_##kind(name)
#include "ir/op.def"
#undef OP
};

typedef struct run {
    asp_plan *plan;
    asp_rank *r;
    asp_team *team;
} run;

// loss = sum(y * c) with c a parameter too: its gradient is y itself.
static asp_status compile(asp_ctx *cx, const sample *s, asp_plan **out_plan)
{
    char text[2048];
    asp_graph *g;
    snprintf(
        text, sizeof text,
        "graph t {\n%s%%c : f64[%s] = param {name = \"c\"}\n%%weighted : f64[%s] = mul %%y, %%c\n"
        "%%loss : f64[] = sum %%weighted {dims = [%s]}\nreturn \"loss\" = %%loss\n}\n",
        s->nodes, s->shape, s->shape, s->dims);
    asp_pass_options options = {.ranks = 1, .sp = "auto", .ac = "none"};
    asp_run_options run_options = {.threads = 1};
    ASP_TRY(asp_graph_parse(cx, "sample", text, strlen(text), &g));
    asp_status status = asp_graph_typecheck(g);
    cx->verify_each_pass = true;
    if (status == ASP_OK)
        status = asp_passes_run(cx, g, ASP_PIPELINE_JOINT ",ring", &options, NULL);
    if (status == ASP_OK) status = asp_plan_create(cx, g, &run_options, out_plan);
    asp_graph_destroy(g);
    return status;
}

static asp_status loss_of(run *x, double *out_loss)
{
    for (int k = 0; k < asp_plan_n_inputs(x->plan); k++) {
        int64_t *at = asp_rank_input(x->r, k), n = asp_plan_get_input(x->plan, k)->bytes / 8;
        for (int64_t i = 0; i < n; i++) at[i] = (3 * i + 2) % 5;
    }
    return asp_rank_step(x->r, out_loss);
}

static asp_status compare(run *x, const char *op)
{
    int64_t n = asp_plan_slab_count(x->plan);
    double *p = asp_rank_slab(x->r, ASP_SLAB_PARAM), *g = asp_rank_slab(x->r, ASP_SLAB_GRAD), loss,
           largest = 0;
    for (int64_t i = 0; i < n; i++) p[i] = 1 + 0.45 * sin(1.7 * (double)i + 0.3);
    ASP_TRY(loss_of(x, &loss));
    double *gradient = malloc((size_t)n * sizeof *gradient);
    assert_non_null(gradient);
    memcpy(gradient, g, (size_t)n * sizeof *gradient);
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(gradient[i]));
    assert_true(largest > 1e-3);
    for (int k = 0; k < asp_plan_n_params(x->plan); k++) {
        const asp_plan_param *a = asp_plan_get_param(x->plan, k);
        for (int64_t i = a->offset; i < a->offset + a->count; i++) {
            double kept = p[i], up, down;
            p[i] = kept + 1e-5;
            ASP_TRY(loss_of(x, &up));
            p[i] = kept - 1e-5;
            ASP_TRY(loss_of(x, &down));
            p[i] = kept;
            double slope = (up - down) / 2e-5;
            if (!(fabs(slope - gradient[i]) <= 1e-7 * largest))
                fail_msg("%s: %s[%lld] is %.12g by differences, %.12g by derivative", op, a->name,
                         (long long)(i - a->offset), slope, gradient[i]);
        }
    }
    free(gradient);
    return ASP_OK;
}

typedef struct job {
    const char *op;
    const sample *s;
} job;

static asp_status one_rank(void *arg, asp_comm *comm, asp_ctx *cx)
{
    const job *j = arg;
    run x = {0};
    ASP_TRY(compile(cx, j->s, &x.plan));
    ASP_TRY(asp_team_create(cx, 1, -1, &x.team));
    ASP_TRY(asp_rank_create(cx, x.plan, comm, x.team, &x.r));
    ASP_TRY(compare(&x, j->op));
    asp_rank_destroy(x.r);
    asp_team_destroy(x.team);
    asp_plan_destroy(x.plan);
    return ASP_OK;
}

static void meets_finite_differences(const char *op, const sample *s)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    job j = {op, s};
    if (asp_ranks_run(&cx, ASP_COMM_thread, 1, one_rank, &j) < 0)
        fail_msg("%s: %s", op, cx.message);
}

static void every_derivative_meets_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(samples); i++)
        meets_finite_differences(samples[i].op, samples[i].s);
}

static void attention_in_all_its_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < ASP_COUNT_OF(sdpa_variants); i++)
        meets_finite_differences(sdpa_variants[i].nodes, &sdpa_variants[i]);
    for (size_t i = 0; i < ASP_COUNT_OF(sdpa_cross); i++)
        meets_finite_differences(sdpa_cross[i].nodes, &sdpa_cross[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_derivative_meets_finite_differences),
                                       cmocka_unit_test(attention_in_all_its_forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
