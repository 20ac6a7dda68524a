// Neighbours: decoder.h (contract).  Layer i reads %h<i> and makes %h<i+1>.
// SPDX-License-Identifier: Apache-2.0
#include "cases/support/decoder.h"

#include <math.h>
#include <stdlib.h>

decoder decoder_default(void)
{
    return (decoder){.layers = 2,
                     .width = 32,
                     .heads = 4,
                     .kv_heads = 4,
                     .head = 8,
                     .ffn = 64,
                     .vocab = 31,
                     .positions = "rope"};
}

typedef struct writer {
    const decoder *d;
    FILE *to;
    int i;
} writer;

// '#' is the layer, '^' the stream's leading sizes, D its width, other sizes as numbers: %d.
static void put(writer *w, const char *format, ...) ASP_PRINTF(2, 3);
static void put(writer *w, const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    for (const char *s = line; *s; s++) {
        if (*s == '#')
            fprintf(w->to, "%d", w->i);
        else if (*s == '^')
            fputs(w->d->layout == LAYOUT_SBD ? "S, B" : "B, S", w->to);
        else
            fputc(*s, w->to);
    }
}

static void norm(writer *w, const char *out, const char *in)
{
    int d = w->d->width;
    put(w, "%%%s#.g : f64[%d] = param {name = \"%s#.norm\"}\n", out, d, out);
    put(w, "%%%s# : f64[^, %d] = rms_norm %%%s#, %%%s#.g\n", out, d, in, out);
}

static void weight(writer *w, const char *name, int o, int i)
{
    put(w, "%%%s# : f64[%d, %d] = param {name = \"%s#\"}\n", name, o, i, name);
}

// %<name># : (B, n, S, H) of a product %<name>.l# : (B, S, n * H).
static void to_heads(writer *w, const char *name, int n)
{
    int h = w->d->head;
    put(w, "%%%s.v# : f64[^, %d, %d] = view %%%s.l# {shape = [^, %d, %d]}\n", name, n, h, name, n,
        h);
    put(w, "%%%s# : f64[B, %d, S, %d] = permute %%%s.v# {perm = %s}\n", name, n, h, name,
        w->d->layout == LAYOUT_SBD ? "[1, 2, 0, 3]" : "[0, 2, 1, 3]");
}

static void project(writer *w, const char *name, int n)
{
    char weights[16];
    int width = n * w->d->head;
    snprintf(weights, sizeof weights, "%s.w", name);
    weight(w, weights, width, w->d->width);
    put(w, "%%%s.l# : f64[^, %d] = linear %%n#, %%%s.w#\n", name, width, name);
    to_heads(w, name, n);
}

// q, k and v lie one beside the other in each head.
static void project_strided(writer *w)
{
    int n = w->d->heads, h = w->d->head;
    weight(w, "qkv.w", 3 * n * h, w->d->width);
    put(w, "%%qkv.l# : f64[B, S, %d] = linear %%n#, %%qkv.w#\n", 3 * n * h);
    put(w, "%%qkv.v# : f64[B, S, %d, 3, %d] = view %%qkv.l# {shape = [B, S, %d, 3, %d]}\n", n, h, n,
        h);
    for (int i = 0; i < 3; i++) {
        put(w, "%%%c.s# : f64[B, S, %d, %d] = select %%qkv.v# {dim = 3, at = %d}\n", "qkv"[i], n, h,
            i);
        put(w, "%%%c# : f64[B, %d, S, %d] = permute %%%c.s# {perm = [0, 2, 1, 3]}\n", "qkv"[i], n,
            h, "qkv"[i]);
    }
}

static void rotate(writer *w, const char *name, int n)
{
    if (strcmp(w->d->positions, "table") == 0 || strcmp(w->d->positions, "none") == 0) {
        put(w, "%%%sr# : f64[B, %d, S, %d] = mul_scalar %%%s# {value = 1}\n", name, n, w->d->head,
            name);
        return;
    }
    put(w, "%%%sr# : f64[B, %d, S, %d] = rope %%%s#, %%positions {theta = 100}\n", name, n,
        w->d->head, name);
}

// softmax(scale q k^T + mask) v of rows with these leading sizes.
static void written_out(writer *w, const char *lead, const char *q, const char *k, const char *v)
{
    int h = w->d->head;
    put(w, "%%kt# : f64[%s, %d, S] = permute %%%s# {perm = %s}\n", lead, h, k,
        strchr(lead, ',') ? "[0, 1, 3, 2]" : "[0, 2, 1]");
    put(w, "%%s# : f64[%s, S, S] = matmul %%%s#, %%kt#\n", lead, q);
    put(w, "%%sc# : f64[%s, S, S] = mul_scalar %%s# {value = %.17g}\n", lead, 1 / sqrt(h));
    put(w, "%%row# : i64[S, 1] = view %%pos {shape = [S, 1]}\n");
    put(w, "%%col# : i64[1, S] = view %%pos {shape = [1, S]}\n");
    put(w, "%%le# : bool[S, S] = le %%col#, %%row#\n%%zero# : f64[S, S] = constant\n");
    put(w, "%%far# : f64[S, S] = constant {value = -1e300}\n");
    put(w, "%%mask# : f64[S, S] = where %%le#, %%zero#, %%far#\n");
    put(w, "%%sm# : f64[%s, S, S] = add %%sc#, %%mask#\n", lead);
    put(w, "%%p# : f64[%s, S, S] = softmax %%sm# {dim = %d}\n", lead, strchr(lead, ',') ? 3 : 2);
    put(w, "%%o# : f64[%s, S, %d] = matmul %%p#, %%%s#\n", lead, h, v);
}

static void attend(writer *w)
{
    int n = w->d->heads, h = w->d->head;
    char lead[32];
    if (w->d->layout == LAYOUT_3D) {
        for (const char *s = "qkv"; *s; s++) // values are not rotated
            put(w, "%%%c3# : f64[B*%d, S, %d] = view %%%c%s# {shape = [B*%d, S, %d]}\n", *s, n, h,
                *s, *s == 'v' ? "" : "r", n, h);
        snprintf(lead, sizeof lead, "B*%d", n);
        written_out(w, lead, "q3", "k3", "v3");
        put(w, "%%o4# : f64[B, %d, S, %d] = view %%o# {shape = [B, %d, S, %d]}\n", n, h, n, h);
        return;
    }
    if (w->d->manual == w->i + 1) {
        snprintf(lead, sizeof lead, "B, %d", n);
        written_out(w, lead, "qr", "kr", "v");
    } else {
        put(w,
            "%%o#, %%lse# : f64[B, %d, S, %d], f64[B, %d, S] = sdpa %%qr#, %%kr#, %%v# {scale = "
            "%.17g",
            n, h, n, 1 / sqrt(h));
        if (w->d->dropout > 0) put(w, ", dropout = %g, site = %d", w->d->dropout, 2 * w->i);
        put(w, "} @ \"layers.#.attn\"\n");
    }
    put(w, "%%o4# : f64[B, %d, S, %d] = view %%o# {shape = [B, %d, S, %d]}\n", n, h, n, h);
}

static void attention(writer *w)
{
    int n = w->d->heads, k = w->d->kv_heads, h = w->d->head, d = w->d->width;
    norm(w, "n", "h");
    if (w->d->layout == LAYOUT_STRIDED) {
        project_strided(w);
    } else {
        project(w, "q", n), project(w, "k", k), project(w, "v", k);
    }
    rotate(w, "q", n), rotate(w, "k", k);
    attend(w);
    put(w, "%%op# : f64[^, %d, %d] = permute %%o4# {perm = %s}\n", n, h,
        w->d->layout == LAYOUT_SBD ? "[2, 0, 1, 3]" : "[0, 2, 1, 3]");
    put(w, "%%ov# : f64[^, %d] = view %%op# {shape = [^, %d]}\n", n * h, n * h);
    weight(w, "o.w", d, n * h);
    put(w, "%%r# : f64[^, %d] = linear %%ov#, %%o.w#\n", d);
    if (w->d->dropout > 0)
        put(w, "%%rd# : f64[^, %d] = dropout %%r# {p = %g, site = %d}\n", d, w->d->dropout,
            2 * w->i + 1);
    put(w, "%%a# : f64[^, %d] = add %%h#, %%%s#\n", d, w->d->dropout > 0 ? "rd" : "r");
}

static void mlp(writer *w)
{
    int d = w->d->width, f = w->d->ffn;
    const char *rows = w->d->flat ? "B*S" : "^", *in = w->d->flat ? "mf" : "m";
    norm(w, "m", "a");
    weight(w, "gate.w", f, d), weight(w, "up.w", f, d), weight(w, "down.w", d, f);
    if (w->d->flat) put(w, "%%mf# : f64[B*S, %d] = view %%m# {shape = [B*S, %d]}\n", d, d);
    put(w, "%%g# : f64[%s, %d] = linear %%%s#, %%gate.w#\n", rows, f, in);
    put(w, "%%u# : f64[%s, %d] = linear %%%s#, %%up.w#\n", rows, f, in);
    put(w, "%%gs# : f64[%s, %d] = silu %%g#\n%%gu# : f64[%s, %d] = mul %%gs#, %%u#\n", rows, f,
        rows, f);
    put(w, "%%dn# : f64[%s, %d] = linear %%gu#, %%down.w#\n", rows, d);
    put(w, "%%dv# : f64[^, %d] = view %%dn# {shape = [^, %d]}\n", d, d);
    put(w, "%%h%d : f64[^, %d] = add %%a#, %%dv#\n", w->i + 1, d);
}

static void positions(writer *w)
{
    const char *p = w->d->positions;
    int d = w->d->width;
    if (strcmp(p, "given") == 0)
        put(w, "%%positions : i64[S] = input {name = \"positions\", role = \"positions\"}\n");
    else if (strcmp(p, "given rows") == 0)
        put(w, "%%positions : i64[B, S] = input {name = \"positions\", role = \"positions\"}\n");
    else if (strcmp(p, "offset") == 0)
        put(w, "%%positions : i64[S] = add_scalar %%pos {value = 100}\n");
    else
        put(w, "%%positions : i64[S] = iota\n");
    put(w, "%%table : f64[%d, %d] = param {name = \"table\"}\n", w->d->vocab, d);
    put(w, "%%e : f64[B, S, %d] = embedding %%ids, %%table\n", d);
    const char *in = "e";
    if (strcmp(p, "table") == 0) {
        put(w, "%%wpe : f64[16, %d] = param {name = \"wpe\"}\n", d);
        put(w, "%%pe : f64[S, %d] = embedding %%positions, %%wpe\n", d);
        put(w, "%%ep : f64[B, S, %d] = add %%e, %%pe\n", d);
        in = "ep";
    }
    if (w->d->layout == LAYOUT_SBD)
        put(w, "%%h0 : f64[S, B, %d] = permute %%%s {perm = [1, 0, 2]}\n", d, in);
    else
        put(w, "%%h0 : f64[B, S, %d] = view %%%s {shape = [B, S, %d]}\n", d, in, d);
}

char *decoder_text(const decoder *d)
{
    char *text;
    size_t bytes;
    writer w = {.d = d, .to = open_memstream(&text, &bytes)};
    const int width = d->width;
    assert_non_null(w.to);
    positions(&w);
    for (; w.i < d->layers; w.i++) attention(&w), mlp(&w);
    put(&w, "%%hn.g : f64[%d] = param {name = \"last.norm\"}\n", width);
    put(&w, "%%hn : f64[^, %d] = rms_norm %%h#, %%hn.g\n", width);
    if (d->layout == LAYOUT_SBD)
        put(&w, "%%hidden : f64[B, S, %d] = permute %%hn {perm = [1, 0, 2]}\n", width);
    else
        put(&w, "%%hidden : f64[B, S, %d] = view %%hn {shape = [B, S, %d]}\n", width, width);
    if (!d->tied) put(&w, "%%head : f64[%d, %d] = param {name = \"head\"}\n", d->vocab, width);
    if (d->head_body) {
        fputs(d->head_body, w.to);
    } else {
        put(&w, "%%x : f64[B, S, %d] = linear %%hidden, %%%s\n", d->vocab,
            d->tied ? "table" : "head");
        fputs(d->loss ? d->loss
                      : "%n : i64[B, S] = shift %y\n%loss : f64[] = cross_entropy %x, %n\n",
              w.to);
    }
    fclose(w.to);
    return text;
}

sp_case decoder_case(const char *text)
{
    static const double labels[16] = {3, -100, -100, -100, 7, 30, 11,   2,
                                      5, 19,   28,   -100, 0, 9,  -100, 13};
    return (sp_case){.body = text,
                     .batch = 2,
                     .seq = 8,
                     .seed = 5,
                     .vocab = 31,
                     .random_ids = true,
                     .loss = (double)NAN,
                     .given = {{"labels", 16, labels}}};
}

void decoder_check(const decoder *d, const char *ac)
{
    char *text = decoder_text(d);
    sp_case c = decoder_case(text);
    c.ac = ac;
    c.vocab = d->vocab;
    sp_check(&c);
    free(text);
}
