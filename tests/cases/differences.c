// Random programs by central differences: the derivative of every rank's program against the loss
// of one device, which shares no derivative with it.  Neighbours: property/property_test.c (random
// programs on ranks against one device, many more of them).
//   case_differences [PROGRAMS] [FIRST SEED]
// SPDX-License-Identifier: Apache-2.0
#include "cases/support/cases.h"
#include "property/support/random_program.h"
#include "unit/sparse.h"

#include <math.h>
#include <stdlib.h>

#define STEP 1e-6
#define BOUND 1e-6 // of the largest entry of all
#define ENTRIES 2  // of a parameter

static int programs = 24 / SPARSE(4);
static uint64_t first_seed = 480;

typedef struct counts {
    int ran, refused, kinks, entries;
} counts;

static double loss_at(text_case c, const char *name, int64_t at, double by)
{
    c.ranks = 1;
    c.sp = "auto", c.ac = "none";
    c.moved = name, c.moved_at = at, c.moved_by = by;
    text_result r = text_run(&c);
    if (r.status < 0) fail_msg("%s", r.message);
    const double loss = r.loss;
    text_free(&r);
    return loss;
}

// At a kink (relu, a maximum) there is no derivative: one-sided differences tell.
static bool is_smooth(const text_case *c, const char *name, int64_t at, double here, double largest)
{
    const double up = (loss_at(*c, name, at, STEP) - here) / STEP;
    const double down = (here - loss_at(*c, name, at, -STEP)) / STEP;
    return fabs(up - down) <= 1e-3 * fmax(largest, 1e-3);
}

static void compare(const text_case *c, const text_result *r, counts *n)
{
    double largest = 0;
    for (int p = 0; p < r->n; p++)
        for (int64_t i = 0; i < r->grad[p].count; i++)
            largest = fmax(largest, fabs(r->grad[p].at[i]));
    for (int p = 0; p < r->n; p++) {
        const text_gradient *g = &r->grad[p];
        for (int k = 0; k < ENTRIES; k++) {
            const int64_t at =
                (int64_t)((c->seed * 31 + (uint64_t)k * 17 + 5) % (uint64_t)g->count);
            const double slope =
                (loss_at(*c, g->name, at, STEP) - loss_at(*c, g->name, at, -STEP)) / (2 * STEP);
            n->entries++;
            // Differences of a loss of this size have no more digits than these.
            const double noise = 4e-16 * fmax(1, fabs(r->loss)) / STEP;
            if (fabs(slope - g->at[at]) <= BOUND * largest + noise) continue;
            if (!is_smooth(c, g->name, at, r->loss, largest)) {
                n->kinks++;
                continue;
            }
            fail_msg("seed %llu, %lld ranks, %s: d %s[%lld] is %.12g, by differences %.12g\n%s",
                     (unsigned long long)c->seed, (long long)c->ranks, c->sp, g->name,
                     (long long)at, g->at[at], slope, c->text);
        }
    }
}

static void one_program(uint64_t seed, counts *n)
{
    static const char *const sp[] = {"ulysses", "ring", "auto"};
    static const char *const ac[] = {"none", "sac", "layer"};
    const random_program p = random_program_draw(seed);
    asp_ctx cx;
    asp_arena a;
    asp_text t;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_text_init(&t, &a);
    random_program_text(&p, &t);
    text_case c = {.text = t.at,
                   .ranks = 2 + (int64_t)(seed % 3),
                   .batch = 1 + (int64_t)(seed % 2),
                   .seq = 5 + (int64_t)(seed % 4),
                   .threads = 1,
                   .sp = sp[seed / 3 % 3],
                   .ac = ac[seed % 3],
                   .seed = seed,
                   .vocab = 19};
    text_result r = text_run(&c);
    if (r.status == ASP_ERR_UNSUPPORTED)
        n->refused++;
    else if (r.status < 0)
        fail_msg("seed %llu: %s", (unsigned long long)seed, r.message);
    else if (isfinite(r.loss))
        compare(&c, &r, n), n->ran++;
    text_free(&r);
    asp_arena_fini(&a);
}

static void sp_case_48(void **state)
{
    (void)state;
    counts n = {0};
    for (int i = 0; i < programs; i++) one_program(first_seed + (uint64_t)i, &n);
    print_message("seeds %llu to %llu: %d programs ran, %d refused; %d entries, %d at kinks\n",
                  (unsigned long long)first_seed,
                  (unsigned long long)first_seed + (uint64_t)programs - 1, n.ran, n.refused,
                  n.entries, n.kinks);
    assert_true(n.ran * 10 >= programs * 8 && n.kinks * 20 <= n.entries);
}

int main(int argc, char **argv)
{
    if (argc > 1) programs = atoi(argv[1]);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(sp_case_48)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
