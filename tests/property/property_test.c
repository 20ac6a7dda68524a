// Random programs on several ranks against one device: same loss, same gradients, or a refusal
// before anything runs.  What fails is shrunk to the fewest blocks, printed as graph text and
// written to tests/property/found, from where every later run takes it up.
//   test_property [PROGRAMS] [FIRST SEED] [print]
// Prints how many ran, how many were refused and why.  SPDX-License-Identifier: Apache-2.0
#include "property/support/random_program.h"
#include "property/support/text_run.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>

#define FOUND ASP_SOURCE_DIR "/tests/property/found/"
#define BOUND 1e-12
// Programs that amplify rounding are held to what a few units in the last place of the parameters
// change on one device.
#define NUDGE 0x1p-50
#define AMPLIFIED 4
#define SHRUNK 10 // failures that are shrunk

typedef struct setting {
    int64_t ranks, batch, seq, tile;
    const char *ac;
    uint64_t seed;
    char sp[32];
} setting;

typedef struct counts {
    int ran, refused, failed, void_, amplify;
    double loss, gradient; // the largest differences of those that are equal
    char refusal[64][200];
    int times[64], n_refusals;
} counts;

// Groups of U ranks for which U R = ranks; 1 and ranks are ulysses and ring by another name.
static void draw_strategy(setting *s, uint64_t x)
{
    static const char *const plain[] = {"ulysses", "ring", "auto", "mixed"};
    const uint64_t which = x % 5;
    if (which < ASP_COUNT_OF(plain)) {
        snprintf(s->sp, sizeof s->sp, "%s", plain[which]);
        return;
    }
    int64_t heads = 1 + (int64_t)(x / 5 % (uint64_t)s->ranks);
    while (s->ranks % heads) heads--;
    snprintf(s->sp, sizeof s->sp, "hybrid:%lldx%lld", (long long)heads,
             (long long)(s->ranks / heads));
}

static setting draw_setting(uint64_t seed)
{
    static const int64_t ranks[] = {2, 3, 4, 5, 6, 8};
    static const char *const ac[] = {"none", "sac", "layer", "default"};
    uint64_t x = (seed + 77) * UINT64_C(0x9e3779b97f4a7c15);
    setting s = {.seed = seed};
    s.ranks = ranks[(x >> 20) % ASP_COUNT_OF(ranks)];
    s.batch = 1 + (int64_t)((x >> 26) % 3);
    s.seq = s.ranks + (int64_t)((x >> 32) % 8);
    s.ac = ac[(x >> 40) % ASP_COUNT_OF(ac)];
    s.tile = (x >> 42) % 3 ? 0 : 1 + (int64_t)((x >> 18) % 4);
    draw_strategy(&s, x >> 44);
    return s;
}

static text_result run(const char *text, const setting *s, int64_t ranks, double nudge)
{
    text_case c = {.text = text,
                   .ranks = ranks,
                   .batch = s->batch,
                   .seq = s->seq,
                   .threads = 1,
                   .tile = ranks > 1 ? s->tile : 0,
                   .sp = s->sp,
                   .ac = s->ac,
                   .seed = s->seed,
                   .vocab = 19,
                   .nudge = nudge,
                   .empty_from = s->seed % 4 == 0 ? (s->seq + 1) / 2 : 0};
    return text_run(&c);
}

typedef enum verdict { RIGHT, REFUSED, VOID, WRONG } verdict;

// Is the difference one that rounding makes in this program?
static bool is_rounding(const char *p, const setting *s, const text_result *one, double gradients)
{
    text_result other = run(p, s, 1, NUDGE);
    const double by_nudge = text_gradient_error(one, &other);
    text_free(&other);
    return gradients <= AMPLIFIED * by_nudge;
}

static verdict judge_text(const char *p, const setting *s, counts *c, char *why, size_t why_bytes)
{
    text_result one = run(p, s, 1, 0), many = {0};
    verdict v = RIGHT;
    if (one.status < 0) {
        snprintf(why, why_bytes, "on one device: %s", one.message);
        v = WRONG;
    } else if (!isfinite(one.loss)) {
        v = VOID;
    } else {
        many = run(p, s, s->ranks, 0);
        double loss = fabs(one.loss - many.loss) / fmax(fabs(one.loss), 1e-300);
        double gradients = text_gradient_error(&one, &many);
        if (many.status == ASP_ERR_UNSUPPORTED)
            v = REFUSED;
        else if (many.status < 0 || !(loss <= BOUND))
            v = WRONG;
        else if (!(gradients <= BOUND)) {
            v = is_rounding(p, s, &one, gradients) ? RIGHT : WRONG;
            if (v == RIGHT && c) c->amplify++;
        }
        if (v == RIGHT && c && gradients <= BOUND) {
            c->loss = fmax(c->loss, loss);
            c->gradient = fmax(c->gradient, gradients);
        }
        snprintf(why, why_bytes, "%s", many.message);
        if (v == WRONG && many.status >= 0)
            snprintf(why, why_bytes, "loss %.17g, %.17g on one device; gradients differ by %.2e",
                     many.loss, one.loss, gradients);
    }
    text_free(&one);
    text_free(&many);
    return v;
}

static char *text_of(asp_arena *a, const random_program *p, const setting *s, const char *why)
{
    asp_text t;
    asp_text_init(&t, a);
    if (why)
        asp_put(&t,
                "# seed %llu: ranks %lld, B %lld, S %lld, --sp %s, --ac %s, --tile %lld\n# %s\n",
                (unsigned long long)s->seed, (long long)s->ranks, (long long)s->batch,
                (long long)s->seq, s->sp, s->ac, (long long)s->tile, why);
    random_program_text(p, &t);
    return t.at;
}

static verdict judge(const random_program *p, const setting *s, counts *c, char *why,
                     size_t why_bytes)
{
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    verdict v = judge_text(text_of(&a, p, s, NULL), s, c, why, why_bytes);
    asp_arena_fini(&a);
    return v;
}

// To the file too, if one is named.
static void print(const random_program *p, const setting *s, const char *why, const char *path)
{
    asp_ctx cx;
    asp_arena a;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    const char *text = text_of(&a, p, s, why);
    fputs(text, stdout);
    FILE *f = path ? fopen(path, "w") : NULL;
    if (path && (!f || fputs(text, f) < 0 || fclose(f) != 0)) printf("%s is not written\n", path);
    if (path) printf("-> %s\n", path);
    fflush(stdout);
    asp_arena_fini(&a);
}

static void shrink(random_program p, const setting *s)
{
    char why[600], path[4096];
    for (int i = 0; i < p.n;) {
        random_program less = p;
        memmove(&less.block[i], &less.block[i + 1], (size_t)(p.n - i - 1) * sizeof p.block[0]);
        less.n--;
        if (judge(&less, s, NULL, why, sizeof why) == WRONG)
            p = less;
        else
            i++;
    }
    judge(&p, s, NULL, why, sizeof why);
    snprintf(path, sizeof path, FOUND "seed-%llu.ir", (unsigned long long)s->seed);
    print(&p, s, why, path);
}

// By the message without its numbers.
static void count_refusal(counts *c, const char *why)
{
    char key[200];
    size_t n = 0;
    for (; *why && n + 1 < sizeof key; why++)
        if (*why < '0' || *why > '9') key[n++] = *why;
    key[n] = '\0';
    int i = 0;
    while (i < c->n_refusals && strcmp(c->refusal[i], key) != 0) i++;
    if (i == 64) return;
    if (i == c->n_refusals) memcpy(c->refusal[c->n_refusals++], key, sizeof key);
    c->times[i]++;
}

// Programs that once were wrong: tests/property/found/*.ir, as `print` writes them.
static int run_found(void)
{
    glob_t files;
    int wrong = 0;
    if (glob(FOUND "*.ir", 0, NULL, &files) != 0) return 1;
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char text[32768], sp[32], ac[32], why[600] = "";
        long long seed, ranks, batch, seq, tile = 0; // older ones say nothing of tiles
        FILE *f = fopen(files.gl_pathv[i], "r");
        if (!f) return 1;
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        bool read = sscanf(text,
                           "# seed %lld: ranks %lld, B %lld, S %lld, --sp %31[^,], --ac %31[a-z], "
                           "--tile %lld",
                           &seed, &ranks, &batch, &seq, sp, ac, &tile) >= 6;
        setting s = {ranks, batch, seq, tile, ac, (uint64_t)seed, ""};
        snprintf(s.sp, sizeof s.sp, "%s", sp);
        verdict v = read ? judge_text(strstr(text, "graph "), &s, NULL, why, sizeof why) : WRONG;
        if (v != RIGHT) printf("%s: %s\n", files.gl_pathv[i], why);
        wrong += v != RIGHT;
    }
    printf("%zu programs that were wrong once: %d are\n", files.gl_pathc, wrong);
    globfree(&files);
    return wrong;
}

int main(int argc, char **argv)
{
    long programs = argc > 1 ? atol(argv[1]) : 2000, first = argc > 2 ? atol(argv[2]) : 1;
    counts *c = calloc(1, sizeof *c);
    if (!c) return 3;
    for (long i = 0; i < programs; i++) {
        char why[600] = "";
        random_program p = random_program_draw((uint64_t)(first + i));
        setting s = draw_setting((uint64_t)(first + i));
        if (argc > 3) print(&p, &s, "as drawn", NULL);
        switch (judge(&p, &s, c, why, sizeof why)) {
        case RIGHT: c->ran++; break;
        case VOID: c->void_++; break;
        case REFUSED:
            c->refused++;
            count_refusal(c, why);
            break;
        case WRONG:
            c->failed++;
            if (c->failed <= SHRUNK) shrink(p, &s);
            break;
        }
        if ((i + 1) % 500 == 0 && i + 1 < programs) {
            printf("%ld: %d equal, %d wrong\n", i + 1, c->ran, c->failed);
            fflush(stdout);
        }
    }
    printf("%ld programs: %d equal one device, %d refused (%.1f %%), %d without a finite loss, %d "
           "wrong\n",
           programs, c->ran, c->refused, 100.0 * c->refused / (double)programs, c->void_,
           c->failed);
    printf(
        "largest differences: loss %.1e, gradients %.1e (bound %.0e); %d amplify rounding more\n",
        c->loss, c->gradient, BOUND, c->amplify);
    for (int i = 0; i < c->n_refusals; i++) printf("%5d  %s\n", c->times[i], c->refusal[i]);
    bool good = run_found() == 0 && c->failed == 0 && c->refused * 20 <= programs;
    free(c);
    return good ? 0 : 1;
}
