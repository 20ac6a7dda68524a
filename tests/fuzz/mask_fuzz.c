// Predicate text: what is read must print and read back to the same predicate; nothing else may
// happen.  SPDX-License-Identifier: Apache-2.0
#include "op/mask.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct job {
    const uint8_t *data;
    size_t n;
} job;

static asp_status try_text(asp_ctx *cx, void *arg)
{
    static const int64_t values[] = {INT64_MAX, INT64_MIN, -3, 0};
    const job *j = arg;
    asp_arena a;
    asp_text t;
    asp_mask m, again;
    asp_arena_init(&a, cx);
    asp_text_init(&t, &a);
    asp_put_bytes(&t, (const char *)j->data, j->n);
    asp_put(&t, "%s", "");
    asp_status s = asp_mask_parse(cx, t.at, &m);
    if (s == ASP_OK) {
        t.n = 0;
        asp_mask_print(&t, &m);
        asp_text reprinted; // structs have padding: texts are compared
        asp_text_init(&reprinted, &a);
        if (asp_mask_parse(cx, t.at, &again) < 0) abort();
        asp_mask_print(&reprinted, &again);
        if (strcmp(reprinted.at, t.at) != 0) abort();
        for (int64_t i = 0; i < 4; i++)
            if (asp_mask_allows(&m, i, 3 - i, values, values) !=
                asp_mask_allows(&again, i, 3 - i, values, values))
                abort();
    }
    asp_arena_fini(&a);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    asp_ctx cx;
    asp_ctx_init(&cx);
    (void)!asp_guard(&cx, try_text, &(job){data, n});
    return 0;
}
