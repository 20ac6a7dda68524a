// config.json: whatever is accepted keeps what the contract says, and is the same when written and
// read back.  SPDX-License-Identifier: Apache-2.0
#include "io/hfconfig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct job {
    const char *text;
    size_t n;
    asp_arena arena;
} job;

static bool same(double x, double y) { return !(x < y) && !(x > y); }

static void check_same(const asp_hf_config *x, const asp_hf_config *y)
{
    ASP_CHECK(x->family == y->family && x->act == y->act);
#define NUMBER(families, key, field, standard, max) ASP_CHECK(x->field == y->field);
#define OPTIONAL NUMBER
#include "io/hfconfig.def"
#define REAL(families, key, field, standard, from, open, to, wanted) \
    ASP_CHECK(same(x->field, y->field));
#define OPTIONAL_REAL REAL
#include "io/hfconfig.def"
#define FLAG(families, key, field, standard) ASP_CHECK(x->field == y->field);
#include "io/hfconfig.def"
    ASP_CHECK(memcmp(x->windowed, y->windowed, sizeof x->windowed) == 0);
    ASP_CHECK(x->rope_llama3 == y->rope_llama3 && same(x->rope_factor, y->rope_factor));
    ASP_CHECK(same(x->rope_low, y->rope_low) && same(x->rope_high, y->rope_high));
    ASP_CHECK(x->rope_original == y->rope_original);
}

static void check_contract(const asp_hf_config *c)
{
    asp_hf_tensor t;
    int64_t params = 0, i = 0;
    ASP_CHECK(c->vocab > 0 && c->hidden > 0 && c->layers > 0 && c->intermediate > 0);
    ASP_CHECK(c->heads > 0 && c->kv_heads > 0 && c->heads % c->kv_heads == 0);
    ASP_CHECK(c->head_dim > 0 && (c->head_dim % 2 == 0 || !asp_hf_is(c, ASP_HF_IS_rotary)) &&
              c->max_positions > 0);
    for (; asp_hf_tensor_at(c, i, &t); i++) {
        ASP_CHECK(t.rank == 1 || t.rank == 2);
        ASP_CHECK(t.dim[0] > 0 && strlen(t.name) < sizeof t.name - 1);
        params += t.dim[0] * (t.rank == 2 ? t.dim[1] : 1);
    }
    ASP_CHECK(i >= 2 + 9 * c->layers + !c->tied);
    for (int64_t k = c->layers; k < ASP_HF_MAX_LAYERS; k++) ASP_CHECK(!asp_hf_is_windowed(c, k));
    ASP_CHECK(c->window >= 0 && c->attention_dropout >= 0 && c->attention_dropout < 1);
    ASP_CHECK(params > 0 && params <= (INT64_C(1) << 50) + c->hidden);
}

static asp_status try_text(asp_ctx *cx, void *arg)
{
    job *j = arg;
    asp_hf_config c, again;
    asp_text t;
    ASP_TRY(asp_hf_config_parse(cx, "fuzz", j->text, j->n, &c));
    check_contract(&c);
    asp_text_init(&t, &j->arena);
    asp_hf_config_write(&t, &c);
    ASP_CHECK(asp_hf_config_parse(cx, "fuzz", t.at, t.n, &again) == ASP_OK);
    check_same(&c, &again);
    return ASP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    asp_ctx cx;
    job j = {.text = (const char *)data, .n = n};
    asp_ctx_init(&cx);
    asp_arena_init(&j.arena, &cx);
    asp_status s = asp_guard(&cx, try_text, &j);
    ASP_CHECK(s == ASP_OK || (s < 0 && strstr(cx.message, "fuzz")));
    asp_arena_fini(&j.arena);
    return 0;
}
