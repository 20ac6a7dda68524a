// Symbolic sizes: exact arithmetic on sums of terms, interned so that equal expressions have equal
// handles.
//
//   a term is  num/den * f1^e1 * f2^e2 ...   factors: symbols and ceil(a/b), ordered by name,
//   exponents not 0 a size is  a sum of terms, ordered by their factors, no two with the same
//   factors, none with num = 0
//
// This is a normal form: `B*S/2 + B*S/2` and `B*S` are one handle.  Neighbours: ir.h (contract),
// print.c, parse.c. SPDX-License-Identifier: Apache-2.0
#include "ir/ir_int.h"

#include <stdlib.h>

#define MAX_FACTORS 6
#define MAX_TERMS 8
#define RECENT 64u // products that are remembered: few sizes are multiplied, again and again

typedef struct term {
    int64_t num, den; // den > 0, coprime
    uint32_t n;
    struct {
        uint32_t factor;
        int32_t power;
    } f[MAX_FACTORS];
} term;

typedef struct sum {
    uint32_t n;
    term at[MAX_TERMS];
} sum;

typedef struct factor {
    const char *symbol; // or NULL: ceil(a/b)
    asp_size a, b;
} factor;

struct asp_size_table {
    asp_arena *arena;
    asp_map keys; // bytes of the used part of a sum -> index
    ASP_VEC(sum *) sums;
    asp_map factor_keys;
    ASP_VEC(factor) factors;
    asp_size one; // the number 1, once it was asked for
    struct {
        asp_size a, b, product;
    } recent[RECENT];
};

static int64_t gcd(int64_t a, int64_t b)
{
    a = a < 0 ? -a : a;
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a ? a : 1;
}

// What overflows 63 bits or has more terms or factors than any shape here becomes the symbol
// "overflow", which never gets a value: the size prints and compares, but nothing can be planned
// with it.
#define OVERFLOW_FACTOR 0
static const term overflow_term = {.num = 1, .den = 1, .n = 1, .f = {{OVERFLOW_FACTOR, 1}}};

// a * b; sets *over, and never clears it, when that does not fit.
static int64_t times(int64_t a, int64_t b, bool *over)
{
    int64_t r = 0;
    *over |= asp_mul_overflows(a, b, &r);
    return *over ? 1 : r;
}

static bool same_factors(const term *a, const term *b)
{
    return a->n == b->n && memcmp(a->f, b->f, a->n * sizeof a->f[0]) == 0;
}

// By name, so that the text does not depend on which symbol was met first; ceil(...) after symbols,
// as they were met.
static int factor_order(const struct asp_size_table *z, uint32_t a, uint32_t b)
{
    const char *x = z->factors.at[a].symbol, *y = z->factors.at[b].symbol;
    if (x && y) return strcmp(x, y);
    if (x || y) return x ? -1 : 1;
    return a < b ? -1 : a > b;
}

// Higher degree first, then by factors: "B*S - B + 1".
static int term_order(const struct asp_size_table *z, const term *a, const term *b)
{
    if (a->n != b->n) return a->n > b->n ? -1 : 1;
    for (uint32_t i = 0; i < a->n; i++) {
        int order = factor_order(z, a->f[i].factor, b->f[i].factor);
        if (order) return order;
        if (a->f[i].power != b->f[i].power) return a->f[i].power > b->f[i].power ? -1 : 1;
    }
    return 0;
}

static void overflow(sum *s)
{
    s->n = 1;
    s->at[0] = overflow_term;
}

// num/den of both, over one denominator; false when it does not fit.
static bool add_numbers(term *u, const term *t)
{
    bool over = false;
    int64_t den = times(u->den / gcd(u->den, t->den), t->den, &over);
    if (over) return false;
    int64_t x = times(u->num, den / u->den, &over), y = times(t->num, den / t->den, &over), num = 0;
    if (over || asp_add_overflows(x, y, &num) || num == INT64_MIN) return false;
    int64_t common = gcd(num, den);
    u->num = num / common;
    u->den = den / common;
    return true;
}

static bool is_overflow(const sum *s)
{
    return s->n == 1 && same_factors(&s->at[0], &overflow_term);
}

static void add_term(sum *s, term t)
{
    if (is_overflow(s)) return;
    if (same_factors(&t, &overflow_term)) {
        overflow(s);
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (!same_factors(&s->at[i], &t)) continue;
        if (!add_numbers(&s->at[i], &t))
            overflow(s);
        else if (s->at[i].num == 0)
            s->at[i] = s->at[--s->n];
        return;
    }
    if (t.num == 0) return;
    if (s->n == MAX_TERMS)
        overflow(s);
    else
        s->at[s->n++] = t;
}

static term multiply_terms(const struct asp_size_table *z, const term *a, const term *b)
{
    bool over = same_factors(a, &overflow_term) || same_factors(b, &overflow_term);
    int64_t across = gcd(a->num, b->den), back = gcd(b->num, a->den);
    term t = {.num = times(a->num / across, b->num / back, &over),
              .den = times(a->den / back, b->den / across, &over)};
    uint32_t i = 0, j = 0;
    if (over || t.num == INT64_MIN) return overflow_term;
    while (i < a->n || j < b->n) {
        if (t.n == MAX_FACTORS) return overflow_term;
        int order = i == a->n   ? 1
                    : j == b->n ? -1
                                : factor_order(z, a->f[i].factor, b->f[j].factor);
        if (order < 0)
            t.f[t.n++] = a->f[i++];
        else if (order > 0)
            t.f[t.n++] = b->f[j++];
        else {
            t.f[t.n] = a->f[i++];
            t.f[t.n].power += b->f[j++].power;
            if (t.f[t.n].power != 0)
                t.n++;
            else
                memset(&t.f[t.n], 0, sizeof t.f[0]); // terms are compared as bytes
        }
    }
    return t;
}

static asp_size intern(asp_graph *g, sum *s)
{
    struct asp_size_table *z = g->sizes;
    for (uint32_t i = 1; i < s->n; i++) {
        for (uint32_t j = i; j > 0 && term_order(z, &s->at[j], &s->at[j - 1]) < 0; j--) {
            term swapped = s->at[j];
            s->at[j] = s->at[j - 1];
            s->at[j - 1] = swapped;
        }
    }
    bool added;
    uint32_t i = asp_map_add(&z->keys, s->at, s->n * sizeof s->at[0], &added);
    if (added) ASP_PUSH(z->arena, &z->sums, asp_copy_bytes(z->arena, s, sizeof *s));
    return (asp_size){i};
}

static const sum *sum_of(const asp_graph *g, asp_size s)
{
    ASP_ASSERT(s.i < g->sizes->sums.n);
    return g->sizes->sums.at[s.i];
}

struct asp_size_table *asp_size_table_create(asp_arena *a)
{
    struct asp_size_table *z = ASP_NEW(a, struct asp_size_table);
    z->arena = a;
    asp_map_init(&z->keys, a);
    asp_map_init(&z->factor_keys, a);
    // Index 0 is the empty sum: the number 0.
    asp_map_add(&z->keys, "", 0, NULL);
    ASP_PUSH(a, &z->sums, ASP_NEW(a, sum));
    asp_map_add(&z->factor_keys, "overflow", strlen("overflow"), NULL);
    ASP_PUSH(a, &z->factors, (factor){.symbol = "overflow"});
    return z;
}

// The used part of each sum is its key, and keys are numbered as sums are.
struct asp_size_table *asp_size_table_copy(asp_arena *a, const struct asp_size_table *from)
{
    struct asp_size_table *z = asp_size_table_create(a);
    for (uint32_t i = 1; i < from->sums.n; i++) {
        const sum *s = from->sums.at[i];
        asp_map_add(&z->keys, s->at, s->n * sizeof s->at[0], NULL);
        ASP_PUSH(a, &z->sums, asp_copy_bytes(a, s, sizeof *s));
    }
    for (uint32_t i = 1; i < from->factors.n; i++) {
        factor f = from->factors.at[i];
        size_t bytes;
        const char *key = asp_map_key(&from->factor_keys, i, &bytes);
        asp_map_add(&z->factor_keys, key, bytes, NULL);
        if (f.symbol) f.symbol = asp_map_key(&z->factor_keys, i, NULL);
        ASP_PUSH(a, &z->factors, f);
    }
    return z;
}

void asp_env_fill(asp_env *env, const asp_env *more)
{
    for (int i = 0; i < more->n; i++) {
        int known = 0;
        while (known < env->n && strcmp(env->at[known].symbol, more->at[i].symbol) != 0) known++;
        if (known == env->n && env->n < (int)ASP_COUNT_OF(env->at)) env->at[env->n++] = more->at[i];
    }
}

asp_size asp_size_num(asp_graph *g, int64_t n)
{
    if (n == 1 && g->sizes->one.i) return g->sizes->one;
    sum s = {0};
    add_term(&s, (term){.num = n, .den = 1});
    const asp_size number = intern(g, &s);
    if (n == 1) g->sizes->one = number;
    return number;
}

static asp_size size_of_factor(asp_graph *g, const char *key, factor f)
{
    struct asp_size_table *z = g->sizes;
    bool added;
    uint32_t i = asp_map_add(&z->factor_keys, key, strlen(key), &added);
    if (added) {
        if (f.symbol) f.symbol = asp_map_key(&z->factor_keys, i, NULL);
        ASP_PUSH(z->arena, &z->factors, f);
    }
    sum s = {.n = 1, .at = {{.num = 1, .den = 1, .n = 1, .f = {{i, 1}}}}};
    return intern(g, &s);
}

asp_size asp_size_sym(asp_graph *g, const char *name)
{
    return size_of_factor(g, name, (factor){.symbol = name});
}

asp_size asp_size_add(asp_graph *g, asp_size a, asp_size b)
{
    sum s = *sum_of(g, a);
    const sum *t = sum_of(g, b);
    for (uint32_t i = 0; i < t->n; i++) add_term(&s, t->at[i]);
    return intern(g, &s);
}

asp_size asp_size_sub(asp_graph *g, asp_size a, asp_size b)
{
    return asp_size_add(g, a, asp_size_mul(g, b, asp_size_num(g, -1)));
}

static asp_size multiply(asp_graph *g, asp_size a, asp_size b)
{
    const sum *x = sum_of(g, a), *y = sum_of(g, b);
    sum s = {0};
    for (uint32_t i = 0; i < x->n; i++)
        for (uint32_t j = 0; j < y->n; j++)
            add_term(&s, multiply_terms(g->sizes, &x->at[i], &y->at[j]));
    return intern(g, &s);
}

asp_size asp_size_mul(asp_graph *g, asp_size a, asp_size b)
{
    struct asp_size_table *z = g->sizes;
    const uint32_t slot = (a.i * 31 + b.i) % RECENT;
    if (a.i == 0 || b.i == 0) return (asp_size){0}; // the number 0
    if (z->recent[slot].a.i != a.i || z->recent[slot].b.i != b.i) {
        z->recent[slot].product = multiply(g, a, b);
        z->recent[slot].a = a;
        z->recent[slot].b = b;
    }
    return z->recent[slot].product;
}

asp_status asp_size_div(asp_graph *g, asp_size a, asp_size b, asp_size *out_size)
{
    if (asp_size_equal(a, b) && a.i != 0 && !is_overflow(sum_of(g, a))) {
        *out_size = asp_size_num(g, 1);
        return ASP_OK;
    }
    const sum *y = sum_of(g, b);
    if (y->n != 1 || is_overflow(y))
        return asp_fail(g->cx, ASP_ERR_SHAPE, "cannot divide %s by %s: only by one non-zero term",
                        asp_size_str(g, a), asp_size_str(g, b));
    term inverse = y->at[0];
    inverse.num = y->at[0].num < 0 ? -y->at[0].den : y->at[0].den;
    inverse.den = y->at[0].num < 0 ? -y->at[0].num : y->at[0].num;
    for (uint32_t i = 0; i < inverse.n; i++) inverse.f[i].power = -inverse.f[i].power;
    sum s = {0};
    const sum *x = sum_of(g, a);
    for (uint32_t i = 0; i < x->n; i++) add_term(&s, multiply_terms(g->sizes, &x->at[i], &inverse));
    *out_size = intern(g, &s);
    return ASP_OK;
}

// b / a as one term without negative powers; false where there is none.  A fraction stays only with
// symbols, as in B*S/2 / B = S/2: it was whole before the division.
static bool divide_terms(const term *a, const term *b, term *out)
{
    term q = {.num = b->num, .den = b->den};
    uint32_t i = 0;
    for (uint32_t j = 0; j < b->n; j++) {
        int32_t power = b->f[j].power;
        bool common = i < a->n && a->f[i].factor == b->f[j].factor;
        if (common && a->f[i].power < 0) return false;
        if (common) power -= a->f[i++].power;
        if (power < 0) return false;
        if (power == 0) continue;
        q.f[q.n] = b->f[j];
        q.f[q.n++].power = power;
    }
    if (i != a->n || a->num == 0) return false;
    int64_t g1 = gcd(q.num, a->num), g2 = gcd(a->den, q.den);
    if (asp_mul_overflows(q.num / g1, a->den / g2, &q.num)) return false;
    if (asp_mul_overflows(q.den / g2, a->num / g1, &q.den)) return false;
    if (q.den < 0) {
        q.den = -q.den;
        q.num = -q.num;
    }
    *out = q;
    return q.den == 1 || (q.n > 0 && b->den % q.den == 0);
}

bool asp_size_divides(asp_graph *g, asp_size a, asp_size b, asp_size *out_quotient)
{
    const sum *x = sum_of(g, a), *y = sum_of(g, b);
    sum q = {0};
    if (x->n == 0 || y->n == 0) return false;
    if (x->n == 1) {
        for (; q.n < y->n; q.n++)
            if (!divide_terms(&x->at[0], &y->at[q.n], &q.at[q.n])) return false;
        *out_quotient = intern(g, &q);
        return true;
    }
    // Sums in one order: the quotient of the first terms is the only candidate.
    if (x->n != y->n || !divide_terms(&x->at[0], &y->at[0], &q.at[0])) return false;
    for (uint32_t i = 1; i < x->n; i++) {
        term t = {0};
        if (!divide_terms(&x->at[i], &y->at[i], &t)) return false;
        if (t.num != q.at[0].num || t.den != q.at[0].den || !same_factors(&t, &q.at[0]))
            return false;
    }
    q.n = 1;
    *out_quotient = intern(g, &q);
    return true;
}

asp_size asp_size_ceil_div(asp_graph *g, asp_size a, asp_size b)
{
    if (is_overflow(sum_of(g, a)) || is_overflow(sum_of(g, b))) return asp_size_sym(g, "overflow");
    int64_t x, y;
    if (asp_size_is_num(g, a, &x) && asp_size_is_num(g, b, &y) && x >= 0 && y > 0)
        return asp_size_num(g, asp_ceil_div(x, y));
    asp_size quotient;
    if (asp_size_divides(g, b, a, &quotient)) return quotient;
    char key[32];
    snprintf(key, sizeof key, "ceil %u %u", a.i, b.i);
    return size_of_factor(g, key, (factor){.a = a, .b = b});
}

bool asp_size_is_num(const asp_graph *g, asp_size s, int64_t *out_n)
{
    const sum *x = sum_of(g, s);
    if (x->n > 1 || (x->n == 1 && (x->at[0].n || x->at[0].den != 1))) return false;
    if (out_n) *out_n = x->n ? x->at[0].num : 0;
    return true;
}

int asp_size_symbols(const asp_graph *g, const char **out_names, int most)
{
    int n = 0;
    for (uint32_t i = 0; i < g->sizes->factors.n && n < most; i++)
        if (g->sizes->factors.at[i].symbol) out_names[n++] = g->sizes->factors.at[i].symbol;
    return n;
}

bool asp_size_mentions(const asp_graph *g, asp_size s, const char *symbol)
{
    const sum *x = sum_of(g, s);
    for (uint32_t i = 0; i < x->n; i++) {
        for (uint32_t j = 0; j < x->at[i].n; j++) {
            const factor *f = &g->sizes->factors.at[x->at[i].f[j].factor];
            if (f->symbol
                    ? strcmp(f->symbol, symbol) == 0
                    : asp_size_mentions(g, f->a, symbol) || asp_size_mentions(g, f->b, symbol))
                return true;
        }
    }
    return false;
}

static asp_status fail_eval(const asp_graph *g, asp_size s, const asp_env *env, const char *why)
{
    asp_arena a;
    asp_arena_init(&a, g->cx);
    asp_text t;
    asp_text_init(&t, &a);
    asp_size_put(&t, g, s);
    for (int i = 0; i < env->n; i++)
        asp_put(&t, "%s%s = %lld", i ? ", " : " with ", env->at[i].symbol,
                (long long)env->at[i].value);
    asp_status status = asp_fail(g->cx, ASP_ERR_SHAPE, "size %s: %s", t.at, why);
    asp_arena_fini(&a);
    return status;
}

static asp_status eval_factor(const asp_graph *g, const factor *f, const asp_env *env, int64_t *out)
{
    if (f->symbol) {
        for (int i = 0; i < env->n; i++) {
            if (strcmp(env->at[i].symbol, f->symbol) != 0) continue;
            *out = env->at[i].value;
            return ASP_OK;
        }
        return asp_fail(g->cx, ASP_ERR_USAGE, "the size symbol %s has no value", f->symbol);
    }
    int64_t a, b;
    ASP_TRY(asp_size_eval(g, f->a, env, &a));
    ASP_TRY(asp_size_eval(g, f->b, env, &b));
    if (a < 0 || b <= 0) return fail_eval(g, f->a, env, "ceil of negative or zero sizes");
    *out = asp_ceil_div(a, b);
    return ASP_OK;
}

static asp_status eval_term(const asp_graph *g, asp_size s, const term *t, const asp_env *env,
                            int64_t *out)
{
    int64_t num = t->num, den = t->den;
    for (uint32_t i = 0; i < t->n; i++) {
        int64_t v;
        ASP_TRY(eval_factor(g, &g->sizes->factors.at[t->f[i].factor], env, &v));
        int64_t *side = t->f[i].power > 0 ? &num : &den;
        for (int32_t p = abs(t->f[i].power); p > 0; p--)
            if (asp_mul_overflows(*side, v, side))
                return fail_eval(g, s, env, "does not fit 63 bits");
    }
    if (den == 0) return fail_eval(g, s, env, "division by zero");
    if (num % den != 0) return fail_eval(g, s, env, "is not a whole number");
    *out = num / den;
    return ASP_OK;
}

asp_status asp_size_eval(const asp_graph *g, asp_size s, const asp_env *env, int64_t *out_value)
{
    const sum *x = sum_of(g, s);
    int64_t total = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        int64_t v;
        ASP_TRY(eval_term(g, s, &x->at[i], env, &v));
        if (asp_add_overflows(total, v, &total))
            return fail_eval(g, s, env, "does not fit 63 bits");
    }
    *out_value = total;
    return ASP_OK;
}

static void put_factor(asp_text *t, const asp_graph *g, const factor *f)
{
    if (f->symbol) {
        asp_put(t, "%s", f->symbol);
        return;
    }
    asp_put(t, "ceil(");
    asp_size_put(t, g, f->a);
    asp_put(t, ", ");
    asp_size_put(t, g, f->b);
    asp_put(t, ")");
}

// The factors with positive (sign 1) or negative (-1) powers, each behind `op`; the first behind
// `first`.
static bool put_factors(asp_text *t, const asp_graph *g, const term *x, int sign, const char *first,
                        const char *op)
{
    bool any = false;
    for (uint32_t i = 0; i < x->n; i++) {
        for (int32_t p = x->f[i].power * sign; p > 0; p--) {
            asp_put(t, "%s", any ? op : first);
            put_factor(t, g, &g->sizes->factors.at[x->f[i].factor]);
            any = true;
        }
    }
    return any;
}

void asp_size_put(asp_text *t, const asp_graph *g, asp_size s)
{
    const sum *x = sum_of(g, s);
    if (x->n == 0) asp_put(t, "0");
    for (uint32_t i = 0; i < x->n; i++) {
        const term *u = &x->at[i];
        int64_t num = u->num < 0 ? -u->num : u->num;
        asp_put(t, "%s", u->num < 0 ? (i ? " - " : "-") : (i ? " + " : ""));
        bool has_positive = false;
        for (uint32_t j = 0; j < u->n; j++) has_positive |= u->f[j].power > 0;
        if (num != 1 || !has_positive) asp_put(t, "%lld", (long long)num);
        put_factors(t, g, u, 1, num != 1 ? "*" : "", "*");
        if (u->den != 1) asp_put(t, "/%lld", (long long)u->den);
        put_factors(t, g, u, -1, "/", "/");
    }
}

const char *asp_size_str(asp_graph *g, asp_size s)
{
    asp_text t;
    asp_text_init(&t, &g->arena);
    asp_size_put(&t, g, s);
    return t.at;
}

bool asp_size_fits_text(const asp_graph *g, asp_size s)
{
    const sum *x = sum_of(g, s);
    bool fits = !is_overflow(x);
    for (uint32_t i = 0; i < x->n; i++)
        fits &= llabs(x->at[i].num) <= INT64_C(1) << 53 && x->at[i].den <= INT64_C(1) << 53;
    return fits;
}
