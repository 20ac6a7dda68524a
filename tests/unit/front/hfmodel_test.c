// Graphs of config.json's families: their parameters are the tensors that the file's weights have,
// in order; what the families differ in stands in the graph; nothing else is there.
// SPDX-License-Identifier: Apache-2.0
#include "front/front.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MODELS ASP_SOURCE_DIR "/tests/models/"

typedef struct job {
    const char *path;
    asp_program program;
    asp_text *text;
} job;

static asp_status load(asp_ctx *cx, void *arg)
{
    job *j = arg;
    ASP_TRY(asp_front_load(cx, j->path, ASP_F64, &j->program));
    asp_graph_print(j->program.graph, j->text);
    return ASP_OK;
}

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what)) n++;
    return n;
}

static void check_parameters(const asp_program *p)
{
    int64_t i = 0;
    asp_hf_tensor t;
    bool seen[256] = {false};
    int64_t n = 0;
    while (asp_hf_tensor_at(&p->config, n, &t)) n++;
    assert_true(n < 256);
    ASP_FOR_NODES (p->graph, node) {
        const asp_node_info *info = asp_node_at(p->graph, node);
        if (info->op != ASP_OP_param) continue;
        const asp_param_attr *a = info->attr;
        const asp_type *type = asp_val_type(p->graph, info->first);
        for (i = 0; asp_hf_tensor_at(&p->config, i, &t) && strcmp(t.name, a->name) != 0; i++) {
        }
        assert_true(i < n && !seen[i]);
        seen[i] = true;
        assert_int_equal(type->rank, t.rank);
        for (int d = 0; d < t.rank; d++) {
            int64_t size;
            assert_true(asp_size_is_num(p->graph, type->dim[d], &size) && size == t.dim[d]);
        }
        assert_string_equal(a->init, t.init);
    }
    for (i = 0; i < n; i++) assert_true(seen[i]);
}

static void families(void **state)
{
    (void)state;
    static const struct {
        const char *name, *what;
        int times;
    } rows[] = {
        {"llama", "linear", 15},
        {"llama", "mask =", 0},
        {"mistral", "mask = \"q - k <= 6\"", 2},
        {"qwen2", "mask = \"q - k <= 8\"", 1}, // the last of three layers
        {"qwen2", "proj.bias : f64", 9},
        {"qwen3", "= rms_norm", 9},
        {"gemma2", "= rms_norm", 9},
        {"gemma2", "= add_scalar", 9},
        {"gemma2", "softcap = 5", 2},
        {"gemma2", "mask = \"q - k <= 7\"", 1},
        {"gemma2", "= gelu_tanh", 2},
        {"gemma2", "scale = 0.2886751345948129", 2},      // 12 ^ -1/2
        {"gemma2", "mul_scalar %1 {value = 6.928203", 1}, // 48 ^ 1/2
        {"gemma2", "= tanh", 1},
        {"gpt2", "= layer_norm", 5},
        {"gpt2", "= matmul", 8},
        {"gpt2", "= split", 2},
        {"gpt2", "= dropout", 5},
        {"gpt2", "dropout = 0.1", 2},
        {"gpt2", "= rope", 0},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_ctx cx;
        asp_arena a;
        asp_text t;
        char path[512];
        asp_ctx_init(&cx);
        asp_arena_init(&a, &cx);
        asp_text_init(&t, &a);
        snprintf(path, sizeof path, MODELS "%s", rows[i].name);
        job j = {.path = path, .text = &t};
        if (asp_guard(&cx, load, &j) < 0) fail_msg("%s", cx.message);
        check_parameters(&j.program);
        if (count_of(t.at, rows[i].what) != rows[i].times)
            fail_msg("%s has \"%s\" %d times:\n%s", rows[i].name, rows[i].what,
                     count_of(t.at, rows[i].what), t.at);
        asp_program_fini(&j.program);
        asp_arena_fini(&a);
    }
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(families)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
