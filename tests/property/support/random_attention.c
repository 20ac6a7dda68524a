// Attention of random programs: packed or not, its masks, written out or as the op, by heads behind
// the batch, to another sequence.  Neighbours: random_program.h, random_int.h.
// SPDX-License-Identifier: Apache-2.0
#include "property/support/random_int.h"

static heads draw_heads(gen *g)
{
    static const heads all[] = {{1, 1, 4}, {2, 2, 4}, {2, 1, 4}, {3, 3, 2}, {4, 4, 2},
                                {4, 2, 2}, {4, 1, 2}, {6, 3, 2}, {6, 2, 2}, {6, 6, 2}};
    return all[pick(g, 10)];
}

// %<name><i> : f64[B, n, S, w] of %n<i>.
static void project_heads(gen *g, const char *name, int n, int w)
{
    PUT("  %%%s%d.w : f64[%d, %lld] = param {name = \"%s%d.w\"}\n", name, I, n * w, D, name, I);
    PUT("  %%%s%d.l : f64[B, S, %d] = linear %%n%d, %%%s%d.w\n", name, I, n * w, I, name, I);
    PUT("  %%%s%d.v : f64[B, S, %d, %d] = view %%%s%d.l {shape = [B, S, %d, %d]}\n", name, I, n, w,
        name, I, n, w);
    PUT("  %%%s%d : f64[B, %d, S, %d] = permute %%%s%d.v {perm = [0, 2, 1, 3]}\n", name, I, n, w,
        name, I);
}

// q, k and v of one linear: split, or a view and unbind.
static void project_packed(gen *g, int n, int w)
{
    bool unbind = coin(g);
    PUT("  %%p%d.w : f64[%d, %lld] = param {name = \"p%d.w\"}\n", I, 3 * n * w, D, I);
    PUT("  %%p%d : f64[B, S, %d] = linear %%n%d, %%p%d.w\n", I, 3 * n * w, I, I);
    if (unbind) {
        PUT("  %%p%d.v : f64[B, S, 3, %d, %d] = view %%p%d {shape = [B, S, 3, %d, %d]}\n", I, n, w,
            I, n, w);
        PUT("  %%p%d.p : f64[3, B, %d, S, %d] = permute %%p%d.v {perm = [2, 0, 3, 1, 4]}\n", I, n,
            w, I);
        PUT("  %%q%d, %%k%d, %%v%d : f64[B, %d, S, %d], f64[B, %d, S, %d], f64[B, %d, S, %d] = "
            "unbind %%p%d.p {dim = 0}\n",
            I, I, I, n, w, n, w, n, w, I);
        return;
    }
    PUT("  %%q%d.s, %%k%d.s, %%v%d.s : f64[B, S, %d], f64[B, S, %d], f64[B, S, %d] = split %%p%d "
        "{dim = 2, parts = 3}\n",
        I, I, I, n * w, n * w, n * w, I);
    for (const char *s = "qkv"; *s; s++) {
        PUT("  %%%c%d.v : f64[B, S, %d, %d] = view %%%c%d.s {shape = [B, S, %d, %d]}\n", *s, I, n,
            w, *s, I, n, w);
        PUT("  %%%c%d : f64[B, %d, S, %d] = permute %%%c%d.v {perm = [0, 2, 1, 3]}\n", *s, I, n, w,
            *s, I);
    }
}

static void project_all(gen *g, heads z)
{
    norm(g);
    if (z.n == z.k && coin(g)) {
        project_packed(g, z.n, z.w);
        return;
    }
    project_heads(g, "q", z.n, z.w);
    project_heads(g, "k", z.k, z.w);
    project_heads(g, "v", z.k, z.w);
}

// %r<i> of the heads' result %o<i> : f64[B, n, S, w].
static void output(gen *g, heads z)
{
    PUT("  %%o%d.w : f64[%lld, %d] = param {name = \"o%d.w\"}\n", I, D, z.n * z.w, I);
    PUT("  %%o%d.p : f64[B, S, %d, %d] = permute %%o%d {perm = [0, 2, 1, 3]}\n", I, z.n, z.w, I);
    PUT("  %%o%d.v : f64[B, S, %d] = view %%o%d.p {shape = [B, S, %d]}\n", I, z.n * z.w, I,
        z.n * z.w);
    PUT("  %%r%d : f64[B, S, %lld] = linear %%o%d.v, %%o%d.w\n", I, D, I, I);
    residual(g);
}

// ---- masks of the op ---------------------------------------------------------------------------

static void differences(gen *g) // %df<i> = q - k
{
    PUT("  %%rw%d : i64[S, 1] = view %%positions {shape = [S, 1]}\n", I);
    PUT("  %%cl%d : i64[1, S] = view %%positions {shape = [1, S]}\n", I);
    PUT("  %%df%d : i64[S, S] = sub %%rw%d, %%cl%d\n", I, I, I);
}

static void sinks(gen *g, heads z)
{
    PUT("  %%x%d : f64[%d] = param {name = \"x%d\"}\n", I, z.n, I);
}

static void slopes(gen *g, heads z)
{
    PUT("  %%sl%d : i64[%d] = iota {start = 1}\n  %%sf%d : f64[%d] = cast %%sl%d {to = f64}\n", I,
        z.n, I, z.n, I);
    PUT("  %%x%d : f64[%d] = mul_scalar %%sf%d {value = 0.2}\n", I, z.n, I);
}

// No line of distances, so no slope.
static void float_bias(gen *g, heads z)
{
    (void)z;
    differences(g);
    PUT("  %%ff%d : f64[S, S] = cast %%df%d {to = f64}\n  %%x%d : f64[S, S] = sin %%ff%d\n", I, I,
        I, I);
}

// Hides with the least number: row 0 sees nothing, so it sees all alike.
static void hidden_by_number(gen *g, heads z)
{
    (void)z;
    differences(g);
    PUT("  %%lo%d : i64[] = constant\n  %%al%d : bool[S, S] = gt %%df%d, %%lo%d\n", I, I, I, I);
    PUT("  %%ze%d : f64[S, S] = constant\n  %%le%d : f64[S, S] = constant {value = "
        "-1.7976931348623157e308}\n",
        I, I);
    PUT("  %%x%d : f64[S, S] = where %%al%d, %%ze%d, %%le%d\n", I, I, I, I);
}

// Of no shape that a predicate has; some rows see nothing.
static void dense_bool(gen *g, heads z)
{
    float_bias(g, z);
    PUT("  %%th%d : f64[] = constant {value = 0.4}\n", I);
    PUT("  %%y%d : bool[S, S] = gt %%x%d, %%th%d\n", I, I, I);
}

// A number for each distance and head, learned.
static void relative_bias(gen *g, heads z)
{
    differences(g);
    PUT("  %%rt%d : f64[64, %d] = param {name = \"rt%d\"}\n", I, z.n, I);
    PUT("  %%off%d : i64[] = constant {value = 31}\n", I);
    PUT("  %%at%d : i64[S, S] = add %%df%d, %%off%d\n", I, I, I);
    PUT("  %%re%d : f64[S, S, %d] = embedding %%at%d, %%rt%d\n", I, z.n, I, I);
    PUT("  %%x%d : f64[%d, S, S] = permute %%re%d {perm = [2, 0, 1]}\n", I, z.n, I);
}

static const struct {
    void (*before)(gen *g, heads z); // makes operand %x<i>, %y<i>
    const char *last;                // the name of the operand that it makes
    const char *operands, *attrs;
} masks[] = {
    {NULL, NULL, "", "causal = true"},
    {NULL, NULL, "", "causal = false"},
    {NULL, NULL, "", "mask = \"q - k <= 2\""},
    {NULL, NULL, ", %segments", "mask = \"T0[q] == T0[k]\""},
    {NULL, NULL, ", %keep", "causal = false, mask = \"T0[k] != 0\""},
    {NULL, NULL, ", %segments, %keep", "mask = \"T0[q] == T0[k] & T1[k] != 0\""},
    {NULL, NULL, "", "softcap = 2"},
    {NULL, NULL, "", "dropout = 0.2"},
    {NULL, NULL, "", "causal = false, mask = \"q - k <= 1 & k - q <= 1\""},
    {NULL, NULL, "", "causal = false, mask = \"k <= q | k <= 2\""},
    {NULL, NULL, "", "mask = \"q/3 == k/3\""},
    {NULL, NULL, "", "causal = false, mask = \"k - q <= -1\""},
    {NULL, NULL, "", "causal = false, mask = \"k - q <= -1\", empty = \"mean\""},
    {sinks, "x", "", "sinks = true"},
    {slopes, "x", "", "alibi = \"relative\""},
    {slopes, "x", "", "causal = false, alibi = \"distance\""},
    {float_bias, "x", "", "bias = true"},
    {hidden_by_number, "x", "", "causal = false, bias = true"},
    {dense_bool, "y", "", "causal = false, bias = true"},
    {relative_bias, "x", "", "bias = true"},
};

// %<name><i> : f64[B, k, S, w] with a copy of each head for each of its queries' heads.
static void repeat_heads(gen *g, const char *name, heads z)
{
    const int r = z.n / z.k;
    PUT("  %%%s%d.1 : f64[B, %d, 1, S, %d] = view %%%s%d {shape = [B, %d, 1, S, %d]}\n", name, I,
        z.k, z.w, name, I, z.k, z.w);
    PUT("  %%%s%d.2 : f64[B, %d, %d, S, %d] = expand %%%s%d.1 {shape = [B, %d, %d, S, %d]}\n", name,
        I, z.k, r, z.w, name, I, z.k, r, z.w);
    PUT("  %%%s%d.3 : f64[B, %d, S, %d] = view %%%s%d.2 {shape = [B, %d, S, %d]}\n", name, I, z.n,
        z.w, name, I, z.n, z.w);
}

void attention(gen *g)
{
    heads z = draw_heads(g);
    const int m = pick(g, (int)ASP_COUNT_OF(masks));
    project_all(g, z);
    const char *q = "q", *k = "k", *copy = "";
    if (coin(g)) {
        PUT("  %%qr%d : f64[B, %d, S, %d] = rope %%q%d, %%positions {theta = 10}\n", I, z.n, z.w,
            I);
        PUT("  %%kr%d : f64[B, %d, S, %d] = rope %%k%d, %%positions {theta = 10}\n", I, z.k, z.w,
            I);
        q = "qr", k = "kr";
    }
    if (coin(g)) {
        repeat_heads(g, k, z);
        repeat_heads(g, "v", z);
        copy = ".3";
    }
    if (masks[m].before) masks[m].before(g, z);
    PUT("  %%o%d, %%lse%d : f64[B, %d, S, %d], f64[B, %d, S] = sdpa %%%s%d, %%%s%d%s, %%v%d%s%s", I,
        I, z.n, z.w, z.n, q, I, k, I, copy, I, copy, masks[m].operands);
    if (masks[m].last) PUT(", %%%s%d", masks[m].last, I);
    PUT(" {scale = 0.6, %s, site = %d}\n", masks[m].attrs, g->site++);
    output(g, z);
}

// ---- written out -------------------------------------------------------------------------------

// softmax(scale q k^T + mask) v, written out.
void manual(gen *g)
{
    heads z = draw_heads(g);
    z.k = z.n;
    int mask = pick(g, 3);
    project_all(g, z);
    PUT("  %%kt%d : f64[B, %d, %d, S] = permute %%k%d {perm = [0, 1, 3, 2]}\n", I, z.n, z.w, I);
    PUT("  %%s%d : f64[B, %d, S, S] = matmul %%q%d, %%kt%d\n", I, z.n, I, I);
    PUT("  %%sc%d : f64[B, %d, S, S] = mul_scalar %%s%d {value = 0.7}\n", I, z.n, I);
    const char *s = "sc";
    if (mask == 2 && z.n > 1) { // talking heads
        PUT("  %%th%d : f64[%d, %d] = param {name = \"th%d\"}\n", I, z.n, z.n, I);
        PUT("  %%ta%d : f64[B, S, S, %d] = permute %%%s%d {perm = [0, 2, 3, 1]}\n", I, z.n, s, I);
        PUT("  %%tb%d : f64[B, S, S, %d] = linear %%ta%d, %%th%d\n", I, z.n, I, I);
        PUT("  %%tc%d : f64[B, %d, S, S] = permute %%tb%d {perm = [0, 3, 1, 2]}\n", I, z.n, I);
        s = "tc";
    }
    if (mask) {
        PUT("  %%rows%d : i64[S, 1] = view %%positions {shape = [S, 1]}\n", I);
        PUT("  %%cols%d : i64[1, S] = view %%positions {shape = [1, S]}\n", I);
        PUT("  %%allow%d : bool[S, S] = le %%cols%d, %%rows%d\n", I, I, I);
        PUT("  %%zero%d : f64[S, S] = constant\n  %%far%d : f64[S, S] = constant {value = -1e9}\n",
            I, I);
        PUT("  %%m%d : f64[S, S] = where %%allow%d, %%zero%d, %%far%d\n", I, I, I, I);
        PUT("  %%sm%d : f64[B, %d, S, S] = add %%%s%d, %%m%d\n", I, z.n, s, I, I);
        s = "sm";
    }
    PUT("  %%pr%d : f64[B, %d, S, S] = softmax %%%s%d {dim = 3}\n", I, z.n, s, I);
    PUT("  %%o%d : f64[B, %d, S, %d] = matmul %%pr%d, %%v%d\n", I, z.n, z.w, I, I);
    output(g, z);
}

// q (k^T v), no softmax: a sum over all tokens.
void linear_attention(gen *g)
{
    heads z = draw_heads(g);
    z.k = z.n;
    project_all(g, z);
    PUT("  %%kt%d : f64[B, %d, %d, S] = permute %%k%d {perm = [0, 1, 3, 2]}\n", I, z.n, z.w, I);
    PUT("  %%kv%d : f64[B, %d, %d, %d] = matmul %%kt%d, %%v%d\n", I, z.n, z.w, z.w, I, I);
    PUT("  %%o%d : f64[B, %d, S, %d] = matmul %%q%d, %%kv%d\n", I, z.n, z.w, I, I);
    output(g, z);
}

// Heads stand behind the batch in one dimension; [S, B, D] or [B, S, D] before it.
void folded_heads(gen *g)
{
    heads z = draw_heads(g);
    const bool first = coin(g), causal = coin(g);
    const char *x = "n", *of = first ? "S, B" : "B, S";
    norm(g);
    if (first) {
        PUT("  %%t%d : f64[S, B, %lld] = permute %%n%d {perm = [1, 0, 2]}\n", I, D, I);
        x = "t";
    }
    for (const char *s = "qkv"; *s; s++) {
        PUT("  %%%c%d.w : f64[%d, %lld] = param {name = \"%c%d.w\"}\n", *s, I, z.n * z.w, D, *s, I);
        PUT("  %%%c%d.l : f64[%s, %d] = linear %%%s%d, %%%c%d.w\n", *s, I, of, z.n * z.w, x, I, *s,
            I);
        if (first) {
            PUT("  %%%c%d.v : f64[S, B*%d, %d] = view %%%c%d.l {shape = [S, B*%d, %d]}\n", *s, I,
                z.n, z.w, *s, I, z.n, z.w);
            PUT("  %%%c%d : f64[B*%d, S, %d] = permute %%%c%d.v {perm = [1, 0, 2]}\n", *s, I, z.n,
                z.w, *s, I);
        } else {
            PUT("  %%%c%d.v : f64[B, S, %d, %d] = view %%%c%d.l {shape = [B, S, %d, %d]}\n", *s, I,
                z.n, z.w, *s, I, z.n, z.w);
            PUT("  %%%c%d.p : f64[B, %d, S, %d] = permute %%%c%d.v {perm = [0, 2, 1, 3]}\n", *s, I,
                z.n, z.w, *s, I);
            PUT("  %%%c%d : f64[B*%d, S, %d] = view %%%c%d.p {shape = [B*%d, S, %d]}\n", *s, I, z.n,
                z.w, *s, I, z.n, z.w);
        }
    }
    PUT("  %%s%d : f64[B*%d, S, S] = bmm %%q%d, %%k%d {tb = true}\n", I, z.n, I, I);
    PUT("  %%sc%d : f64[B*%d, S, S] = mul_scalar %%s%d {value = 0.7}\n", I, z.n, I);
    if (causal) {
        differences(g);
        PUT("  %%zi%d : i64[] = constant\n  %%al%d : bool[S, S] = ge %%df%d, %%zi%d\n", I, I, I, I);
        PUT("  %%ze%d : f64[S, S] = constant\n  %%fa%d : f64[S, S] = constant {value = -1e9}\n", I,
            I);
        PUT("  %%m%d : f64[S, S] = where %%al%d, %%ze%d, %%fa%d\n", I, I, I, I);
        PUT("  %%sm%d : f64[B*%d, S, S] = add %%sc%d, %%m%d\n", I, z.n, I, I);
    }
    PUT("  %%pr%d : f64[B*%d, S, S] = softmax %%%s%d {dim = 2}\n", I, z.n, causal ? "sm" : "sc", I);
    PUT("  %%ob%d : f64[B*%d, S, %d] = bmm %%pr%d, %%v%d\n", I, z.n, z.w, I, I);
    if (first) {
        PUT("  %%ot%d : f64[S, B*%d, %d] = permute %%ob%d {perm = [1, 0, 2]}\n", I, z.n, z.w, I);
        PUT("  %%ov%d : f64[S, B, %d] = view %%ot%d {shape = [S, B, %d]}\n", I, z.n * z.w, I,
            z.n * z.w);
        PUT("  %%ow%d : f64[%lld, %d] = param {name = \"ow%d\"}\n", I, D, z.n * z.w, I);
        PUT("  %%ol%d : f64[S, B, %lld] = linear %%ov%d, %%ow%d\n", I, D, I, I);
        PUT("  %%r%d : f64[B, S, %lld] = permute %%ol%d {perm = [1, 0, 2]}\n", I, D, I);
        residual(g);
        return;
    }
    PUT("  %%o%d : f64[B, %d, S, %d] = view %%ob%d {shape = [B, %d, S, %d]}\n", I, z.n, z.w, I, z.n,
        z.w);
    output(g, z);
}

// Keys and values of a sequence of another length.
void cross_attention(gen *g)
{
    heads z = draw_heads(g);
    norm(g);
    project_heads(g, "q", z.n, z.w);
    PUT("  %%mi%d : i64[B, S + 2] = input {name = \"memory%d\", role = \"tokens\"}\n", I, I);
    PUT("  %%me%d : f64[B, S + 2, %lld] = embedding %%mi%d, %%table\n", I, D, I);
    for (const char *s = "kv"; *s; s++) {
        PUT("  %%%c%d.w : f64[%d, %lld] = param {name = \"%c%d.w\"}\n", *s, I, z.k * z.w, D, *s, I);
        PUT("  %%%c%d.l : f64[B, S + 2, %d] = linear %%me%d, %%%c%d.w\n", *s, I, z.k * z.w, I, *s,
            I);
        PUT("  %%%c%d.v : f64[B, S + 2, %d, %d] = view %%%c%d.l {shape = [B, S + 2, %d, %d]}\n", *s,
            I, z.k, z.w, *s, I, z.k, z.w);
        PUT("  %%%c%d : f64[B, %d, S + 2, %d] = permute %%%c%d.v {perm = [0, 2, 1, 3]}\n", *s, I,
            z.k, z.w, *s, I);
    }
    PUT("  %%o%d, %%lse%d : f64[B, %d, S, %d], f64[B, %d, S] = sdpa %%q%d, %%k%d, %%v%d {scale = "
        "0.6, causal = %s}\n",
        I, I, z.n, z.w, z.n, I, I, I, coin(g) ? "true" : "false");
    output(g, z);
}
