// Neighbours: random_program.h (contract), random_int.h (pieces), random_attention.c (blocks that
// are attention).  SPDX-License-Identifier: Apache-2.0
#include "property/support/random_program.h"
#include "property/support/random_int.h"

static uint64_t draw(gen *g)
{
    g->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = g->state;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

int pick(gen *g, int n) { return (int)(draw(g) >> 33) % n; }
bool coin(gen *g) { return pick(g, 2); }

// ---- pieces ------------------------------------------------------------------------------------

void param_sq(gen *g, const char *name, long long o, long long i)
{
    PUT("  %%%s%d : f64[%lld, %lld] = param {name = \"%s%d\"}\n", name, I, o, i, name, I);
}

void norm(gen *g)
{
    int kind = pick(g, 3);
    if (kind == 0) PUT("  %%n%d : f64[B, S, %lld] = mul_scalar %%h%d {value = 0.9}\n", I, D, I);
    if (kind == 0) return;
    PUT("  %%g%d : f64[%lld] = param {name = \"norm%d\"}\n", I, D, I);
    if (kind == 1) {
        PUT("  %%n%d : f64[B, S, %lld] = rms_norm %%h%d, %%g%d\n", I, D, I, I);
        return;
    }
    PUT("  %%gb%d : f64[%lld] = param {name = \"gb%d\"}\n", I, D, I);
    PUT("  %%n%d : f64[B, S, %lld] = layer_norm %%h%d, %%g%d, %%gb%d\n", I, D, I, I, I);
}

void residual(gen *g)
{
    const char *r = "r";
    if (pick(g, 4) == 0) {
        PUT("  %%rd%d : f64[B, S, %lld] = dropout %%r%d {p = 0.3, site = %d}\n", I, D, I,
            g->site++);
        r = "rd";
    }
    PUT("  %%h%d : f64[B, S, %lld] = add %%h%d, %%%s%d\n", I + 1, D, I, r, I);
}

static const char *activation(gen *g)
{
    static const char *const names[] = {"gelu", "gelu_tanh", "relu",    "silu",
                                        "tanh", "sigmoid",   "softplus"};
    return names[pick(g, 7)];
}

// ---- blocks ------------------------------------------------------------------------------------

static void mlp(gen *g)
{
    bool flat = coin(g), gated = coin(g);
    const char *shape = flat ? "B*S" : "B, S", *act = activation(g);
    norm(g);
    param_sq(g, "u", 16, D);
    param_sq(g, "d", D, 16);
    if (flat) PUT("  %%f%d : f64[B*S, %lld] = view %%n%d {shape = [B*S, %lld]}\n", I, D, I, D);
    const char *in = flat ? "f" : "n";
    PUT("  %%a%d : f64[%s, 16] = linear %%%s%d, %%u%d\n", I, shape, in, I, I);
    PUT("  %%b%d : f64[%s, 16] = %s %%a%d\n", I, shape, act, I);
    if (gated) {
        param_sq(g, "v", 16, D);
        PUT("  %%c%d : f64[%s, 16] = linear %%%s%d, %%v%d\n", I, shape, in, I, I);
        PUT("  %%e%d : f64[%s, 16] = mul %%b%d, %%c%d\n", I, shape, I, I);
    }
    PUT("  %%o%d : f64[%s, %lld] = linear %%%s%d, %%d%d\n", I, shape, D, gated ? "e" : "b", I, I);
    PUT("  %%r%d : f64[B, S, %lld] = view %%o%d {shape = [B, S, %lld]}\n", I, D, I, D);
    residual(g);
}

static void along(gen *g)
{
    norm(g);
    switch (pick(g, 8)) {
    case 0: PUT("  %%r%d : f64[B, S, %lld] = cumsum %%n%d {dim = 1}\n", I, D, I); break;
    case 1:
        PUT("  %%r%d : f64[B, S, %lld] = shift %%n%d {by = -1, fill = 0, dim = 1}\n", I, D, I);
        break;
    case 2: PUT("  %%r%d : f64[B, S, %lld] = roll %%n%d {dim = 1, by = 2}\n", I, D, I); break;
    case 3: PUT("  %%r%d : f64[B, S, %lld] = flip %%n%d {dim = 1}\n", I, D, I); break;
    case 4:
        PUT("  %%pad%d : f64[B, S + 2, %lld] = pad %%n%d {dim = 1, left = 2}\n", I, D, I);
        PUT("  %%r%d : f64[B, S, %lld] = slice %%pad%d {dim = 1, end = S}\n", I, D, I);
        break;
    case 5:
        PUT("  %%sg%d : f64[B, S, %lld] = sigmoid %%n%d\n", I, D, I);
        PUT("  %%r%d : f64[B, S, %lld] = scan %%sg%d, %%n%d {dim = 1}\n", I, D, I, I);
        break;
    case 6:
        PUT("  %%ct%d : f64[B, %lld, S] = permute %%n%d {perm = [0, 2, 1]}\n", I, D, I);
        PUT("  %%cw%d : f64[%lld, 1, 3] = param {name = \"cw%d\"}\n", I, D, I);
        PUT("  %%cc%d : f64[B, %lld, S] = conv1d %%ct%d, %%cw%d {left = 2, groups = 0}\n", I, D, I,
            I);
        PUT("  %%r%d : f64[B, S, %lld] = permute %%cc%d {perm = [0, 2, 1]}\n", I, D, I);
        break;
    default:
        PUT("  %%ct%d : f64[B, %lld, S] = permute %%n%d {perm = [0, 2, 1]}\n", I, D, I);
        PUT("  %%cw%d : f64[%lld, %lld, 3] = param {name = \"cw%d\"}\n", I, D, D, I);
        PUT("  %%cc%d : f64[B, %lld, S] = conv1d %%ct%d, %%cw%d {left = 1, right = 1}\n", I, D, I,
            I);
        PUT("  %%r%d : f64[B, S, %lld] = permute %%cc%d {perm = [0, 2, 1]}\n", I, D, I);
        break;
    }
    residual(g);
}

// One vector a sequence, or a number, made of all tokens and given back to them.
static void pooled(gen *g)
{
    norm(g);
    switch (pick(g, 4)) {
    case 0: PUT("  %%pl%d : f64[B, %lld] = mean %%n%d {dims = [1]}\n", I, D, I); break;
    case 1: PUT("  %%pl%d : f64[B, %lld] = select %%n%d {dim = 1, at = S - 1}\n", I, D, I); break;
    case 2: PUT("  %%pl%d : f64[B, %lld] = amax %%n%d {dims = [1]}\n", I, D, I); break;
    default:
        PUT("  %%pl%d : f64[B, %lld] = var %%n%d {dims = [1], correction = 0}\n", I, D, I);
        break;
    }
    param_sq(g, "pw", D, D);
    PUT("  %%po%d : f64[B, %lld] = linear %%pl%d, %%pw%d\n", I, D, I, I);
    PUT("  %%pv%d : f64[B, 1, %lld] = view %%po%d {shape = [B, 1, %lld]}\n", I, D, I, D);
    PUT("  %%r%d : f64[B, S, %lld] = mul %%n%d, %%pv%d\n", I, D, I, I);
    residual(g);
}

// Statistics over batch and tokens.
static void batch_norm(gen *g)
{
    PUT("  %%mu%d : f64[%lld] = mean %%h%d {dims = [0, 1]}\n", I, D, I);
    PUT("  %%va%d : f64[%lld] = var %%h%d {dims = [0, 1], correction = 0}\n", I, D, I);
    PUT("  %%ve%d : f64[%lld] = add_scalar %%va%d {value = 0.01}\n", I, D, I);
    PUT("  %%rs%d : f64[%lld] = rsqrt %%ve%d\n", I, D, I);
    PUT("  %%ce%d : f64[B, S, %lld] = sub %%h%d, %%mu%d\n", I, D, I, I);
    PUT("  %%h%d : f64[B, S, %lld] = mul %%ce%d, %%rs%d\n", I + 1, D, I, I);
}

// [S, B, D] and back, with a linear between.
static void sequence_first(gen *g)
{
    norm(g);
    param_sq(g, "sw", D, D);
    PUT("  %%sf%d : f64[S, B, %lld] = permute %%n%d {perm = [1, 0, 2]}\n", I, D, I);
    PUT("  %%sl%d : f64[S, B, %lld] = linear %%sf%d, %%sw%d\n", I, D, I, I);
    PUT("  %%r%d : f64[B, S, %lld] = permute %%sl%d {perm = [1, 0, 2]}\n", I, D, I);
    residual(g);
}

// Positions learned, or given by a table.
static void positional(gen *g)
{
    if (coin(g)) {
        PUT("  %%wpe%d : f64[64, %lld] = param {name = \"wpe%d\"}\n", I, D, I);
        PUT("  %%pe%d : f64[S, %lld] = embedding %%positions, %%wpe%d\n", I, D, I);
    } else {
        PUT("  %%pf%d : f64[S] = cast %%positions {to = f64}\n", I);
        PUT("  %%ps%d : f64[S] = sin %%pf%d\n  %%pi%d : f64[S, 1] = view %%ps%d {shape = [S, 1]}\n",
            I, I, I, I);
        PUT("  %%pp%d : f64[1, %lld] = param {name = \"pp%d\"}\n", I, D, I);
        PUT("  %%pe%d : f64[S, %lld] = mul %%pi%d, %%pp%d\n", I, D, I, I);
    }
    PUT("  %%h%d : f64[B, S, %lld] = add %%h%d, %%pe%d\n", I + 1, D, I, I);
}

// Three experts, the two best of a softmax gate, weighted; a balance term in the stream.
static void experts(gen *g)
{
    norm(g);
    param_sq(g, "gate", 3, D);
    PUT("  %%gl%d : f64[B, S, 3] = linear %%n%d, %%gate%d\n", I, I, I);
    PUT("  %%gp%d : f64[B, S, 3] = softmax %%gl%d {dim = 2}\n", I, I);
    PUT("  %%tv%d, %%ti%d : f64[B, S, 2], i64[B, S, 2] = topk %%gp%d {dim = 2, k = 2}\n", I, I, I);
    PUT("  %%oh%d : f64[B, S, 2, 3] = one_hot %%ti%d {classes = 3, to = f64}\n", I, I);
    PUT("  %%tw%d : f64[B, S, 2, 1] = view %%tv%d {shape = [B, S, 2, 1]}\n", I, I);
    PUT("  %%ow%d : f64[B, S, 2, 3] = mul %%oh%d, %%tw%d\n", I, I, I);
    PUT("  %%ew%d : f64[B, S, 3] = sum %%ow%d {dims = [2]}\n", I, I);
    for (int e = 0; e < 3; e++) {
        PUT("  %%e%d.%d.w : f64[%lld, %lld] = param {name = \"e%d.%d.w\"}\n", I, e, D, D, I, e);
        PUT("  %%e%d.%d.l : f64[B, S, %lld] = linear %%n%d, %%e%d.%d.w\n", I, e, D, I, I, e);
        PUT("  %%e%d.%d.g : f64[B, S, 1] = slice %%ew%d {dim = 2, start = %d, end = %d}\n", I, e, I,
            e, e + 1);
        PUT("  %%e%d.%d : f64[B, S, %lld] = mul %%e%d.%d.l, %%e%d.%d.g\n", I, e, D, I, e, I, e);
    }
    PUT("  %%ea%d : f64[B, S, %lld] = add %%e%d.0, %%e%d.1\n", I, D, I, I);
    PUT("  %%eb%d : f64[B, S, %lld] = add %%ea%d, %%e%d.2\n", I, D, I, I);
    PUT("  %%bal%d : f64[3] = mean %%gp%d {dims = [0, 1]}\n", I, I);
    PUT("  %%cnt%d : f64[3] = mean %%ew%d {dims = [0, 1]}\n", I, I);
    PUT("  %%bp%d : f64[3] = mul %%bal%d, %%cnt%d\n  %%bs%d : f64[] = sum %%bp%d {dims = [0]}\n", I,
        I, I, I, I);
    PUT("  %%r%d : f64[B, S, %lld] = mul %%eb%d, %%bs%d\n", I, D, I, I);
    residual(g);
}

static const struct {
    const char *name;
    block_fn *put;
} blocks[] = {{"mlp", mlp},
              {"attention", attention},
              {"manual", manual},
              {"linear_attention", linear_attention},
              {"folded_heads", folded_heads},
              {"cross_attention", cross_attention},
              {"along", along},
              {"pooled", pooled},
              {"batch_norm", batch_norm},
              {"sequence_first", sequence_first},
              {"positional", positional},
              {"experts", experts},
              {"snippet", snippet},
              {"snippet", snippet},
              {"snippet", snippet},
              {"computed_mask", computed_mask}};

// ---- losses ------------------------------------------------------------------------------------

static void loss_shifted(gen *g)
{
    const char *reduction = coin(g) ? "mean" : "sum";
    PUT("  %%next : i64[B, S] = shift %%labels {by = %d}\n", 1 + pick(g, 2));
    PUT("  %%loss : f64[] = cross_entropy %%logits, %%next {reduction = \"%s\"}\n", reduction);
}

// Smoothing, soft cap and z-loss as attributes.
static void loss_forms(gen *g)
{
    static const char *const attrs[] = {"smoothing = 0.1", "softcap = 3", "zloss = 0.01",
                                        "smoothing = 0.1, softcap = 3, zloss = 0.01"};
    PUT("  %%next : i64[B, S] = shift %%labels\n");
    PUT("  %%loss : f64[] = cross_entropy %%logits, %%next {%s}\n", attrs[pick(g, 4)]);
}

// Summed over chunks of the sequence, as a chunked head does.
static void loss_chunks(gen *g)
{
    static const char *const end[] = {"0", "1", "S"}, *const n[] = {"1", "S - 1"};
    PUT("  %%next : i64[B, S] = shift %%labels\n");
    for (int i = 0; i < 2; i++) {
        PUT("  %%cut%d : f64[B, %s, 19] = slice %%logits {dim = 1, start = %s, end = %s}\n", i,
            n[i], end[i], end[i + 1]);
        PUT("  %%key%d : i64[B, %s] = slice %%next {dim = 1, start = %s, end = %s}\n", i, n[i],
            end[i], end[i + 1]);
        PUT("  %%sum%d : f64[] = cross_entropy %%cut%d, %%key%d {reduction = \"sum\"}\n", i, i, i);
    }
    PUT("  %%both : f64[] = add %%sum0, %%sum1\n  %%count : i64[] = count_valid %%next\n");
    PUT("  %%cf : f64[] = cast %%count {to = f64}\n  %%loss : f64[] = div %%both, %%cf\n");
}

static void loss_direct(gen *g)
{
    PUT("  %%fl : f64[B*S, 19] = view %%logits {shape = [B*S, 19]}\n");
    PUT("  %%ll : i64[B*S] = view %%labels {shape = [B*S]}\n");
    PUT("  %%loss : f64[] = cross_entropy %%fl, %%ll\n");
}

static void loss_sliced(gen *g)
{
    PUT("  %%cut : f64[B, S - 1, 19] = slice %%logits {dim = 1, end = S - 1}\n");
    PUT("  %%next : i64[B, S - 1] = slice %%labels {dim = 1, start = 1, end = S}\n");
    PUT("  %%loss : f64[] = cross_entropy %%cut, %%next\n");
}

static void loss_z(gen *g)
{
    PUT("  %%next : i64[B, S] = shift %%labels\n");
    PUT("  %%ce : f64[] = cross_entropy %%logits, %%next\n");
    PUT("  %%lz : f64[B, S] = logsumexp %%logits {dims = [2]}\n  %%lz2 : f64[B, S] = mul %%lz, "
        "%%lz\n");
    PUT("  %%zl : f64[] = mean %%lz2 {dims = [0, 1]}\n");
    PUT("  %%loss : f64[] = add %%ce, %%zl\n");
}

static void loss_squares(gen *g)
{
    PUT("  %%sq : f64[B, S, 19] = mul %%logits, %%logits\n");
    PUT("  %%loss : f64[] = mean %%sq {dims = [0, 1, 2]}\n");
}

static void loss_last_token(gen *g)
{
    PUT("  %%last : f64[B, 19] = select %%logits {dim = 1, at = S - 1}\n");
    PUT("  %%lp : f64[B, 19] = log_softmax %%last {dim = 1}\n");
    PUT("  %%loss : f64[] = mean %%lp {dims = [0, 1]}\n");
}

static block_fn *const losses[] = {loss_shifted, loss_direct,     loss_sliced, loss_z,
                                   loss_squares, loss_last_token, loss_forms,  loss_chunks,
                                   loss_snippet, loss_snippet,    loss_snippet};

// ---- what the first embedding reads ------------------------------------------------------------

#define READ_CAT                                                    \
    "  %ids1 : i64[B, S - 1] = slice %ids {dim = 1, end = S - 1}\n" \
    "  %bos : i64[B, 1] = constant {value = 2}\n"                   \
    "  %read : i64[B, S] = cat %bos, %ids1 {dim = 1}\n"
#define READ_WHERE                                                            \
    "  %zero : i64[] = constant\n  %valid : bool[B, S] = ge %labels, %zero\n" \
    "  %read : i64[B, S] = where %valid, %labels, %ids\n"

static const char *const first_ids[] = {
    "",
    "  %read : i64[B, S] = shift %ids {by = -1, fill = 3, dim = 1}\n",
    READ_CAT,
    READ_WHERE,
};

_Static_assert(ASP_COUNT_OF(first_ids) == RANDOM_IDS, "one text for each");

// ---- the program -------------------------------------------------------------------------------

const char *random_block_name(int kind) { return blocks[kind].name; }
int random_block_kinds(void) { return (int)ASP_COUNT_OF(blocks); }

random_program random_program_draw(uint64_t seed)
{
    gen g = {.state = seed * UINT64_C(0xda942042e4dd58b5)};
    random_program p = {.n = 1 + pick(&g, 4), .loss_seed = draw(&g), .width = coin(&g) ? 6 : 8};
    for (int i = 0; i < p.n; i++) {
        p.block[i].kind = pick(&g, random_block_kinds());
        p.block[i].seed = draw(&g);
    }
    p.loss = pick(&g, (int)ASP_COUNT_OF(losses));
    p.tied = coin(&g);
    p.ids = pick(&g, 3) ? 0 : pick(&g, RANDOM_IDS);
    return p;
}

void random_program_text(const random_program *p, asp_text *t)
{
    gen gg = {.t = t, .d = p->width}, *g = &gg;
    PUT("graph random {\n  %%ids : i64[B, S] = input {name = \"ids\", role = \"tokens\"}\n");
    PUT("  %%labels : i64[B, S] = input {name = \"labels\", role = \"labels\"}\n");
    PUT("  %%segments : i64[B, S] = input {name = \"segments\"}\n");
    PUT("  %%keep : i64[B, S] = input {name = \"keep\"}\n");
    PUT("  %%positions : i64[S] = iota\n");
    PUT("  %%table : f64[19, %lld] = param {name = \"table\"}\n", D);
    PUT("%s", first_ids[p->ids]);
    PUT("  %%h0 : f64[B, S, %lld] = embedding %%%s, %%table\n", D, p->ids ? "read" : "ids");
    for (; g->i < p->n; g->i++) {
        g->state = p->block[g->i].seed;
        g->site = 10 * g->i + 1;
        blocks[p->block[g->i].kind].put(g);
    }
    g->state = p->loss_seed;
    if (!p->tied) PUT("  %%head : f64[19, %lld] = param {name = \"head\"}\n", D);
    PUT("  %%logits : f64[B, S, 19] = linear %%h%d, %s\n", p->n, p->tied ? "%table" : "%head");
    losses[p->loss](g);
    PUT("  return \"loss\" = %%loss\n}\n");
}
