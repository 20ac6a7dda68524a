// Reads the format of tests/fixtures/joint-graphs/README.md.  SPDX-License-Identifier: Apache-2.0
#include "unit/flow/support/joint_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const char *const class_names[] = {
    [ASP_REMAT_POINTWISE] = "pointwise", [ASP_REMAT_VIEW] = "view",
    [ASP_REMAT_REDUCTION] = "reduction", [ASP_REMAT_GEMM] = "gemm",
    [ASP_REMAT_ATTENTION] = "attention", [ASP_REMAT_COLLECTIVE] = "collective",
    [ASP_REMAT_RANDOM] = "random",       [ASP_REMAT_CONCAT] = "concat",
    [ASP_REMAT_PICK] = "pick",           [ASP_REMAT_OTHER] = "other",
};

static int64_t number(json_t *list, size_t at)
{
    json_t *x = json_array_get(list, at);
    assert_true(json_is_integer(x));
    return json_integer_value(x);
}

static asp_remat_class class_named(const char *name)
{
    size_t i = 0;
    while (i < ASP_COUNT_OF(class_names) && strcmp(class_names[i], name) != 0) i++;
    assert_true(i < ASP_COUNT_OF(class_names));
    return (asp_remat_class)i;
}

static asp_remat_op make_op(json_t *kind, json_t *node, uint32_t value)
{
    return (asp_remat_op){.kind = class_named(json_string_value(json_array_get(kind, 2))),
                          .backward = number(kind, 3),
                          .fusible = number(kind, 4),
                          .absorbs = number(kind, 5),
                          .time_ps = number(kind, 6),
                          .flops = number(kind, 7),
                          .intensive = number(kind, 7) > 0,
                          .block = (int32_t)number(node, 1),
                          .first_result = value,
                          .n_results = 1};
}

joint_graph joint_graph_load(asp_arena *a, const char *name)
{
    joint_graph g = {0};
    json_error_t error;
    g.file = json_load_file(
        asp_printf(a, "%s/tests/fixtures/joint-graphs/%s.json", ASP_SOURCE_DIR, name), 0, &error);
    if (!g.file) fail_msg("%s: %s", name, error.text);
    json_t *kinds = json_object_get(g.file, "kinds"), *nodes = json_object_get(g.file, "nodes");
    uint32_t n = (uint32_t)json_array_size(nodes);
    uint32_t n_inputs = (uint32_t)json_integer_value(json_object_get(g.file, "inputs"));
    asp_remat_op *ops = ASP_NEW_ARRAY(a, asp_remat_op, n);
    ASP_VEC(uint32_t) reads = {0};
    g.values = ASP_NEW_ARRAY(a, asp_remat_value, n);
    for (uint32_t i = 0; i < n; i++) {
        json_t *node = json_array_get(nodes, i);
        json_t *kind = json_array_get(kinds, (size_t)number(node, 0));
        g.values[i] = (asp_remat_value){.bytes = number(kind, 0),
                                        .root = i - (uint32_t)number(node, 2),
                                        .flags = (uint32_t)number(kind, 1)};
        if (i < n_inputs) continue;
        asp_remat_op *o = &ops[i - n_inputs];
        *o = make_op(kind, node, i);
        o->first_read = reads.n;
        for (size_t r = 3; r < json_array_size(node); r++)
            ASP_PUSH(a, &reads, i - (uint32_t)number(node, r));
        o->n_reads = reads.n - o->first_read;
        o->n_named = (uint32_t)number(kind, 8);
    }
    g.program = (asp_remat_program){.values = g.values,
                                    .n_values = n,
                                    .n_inputs = n_inputs,
                                    .ops = ops,
                                    .n_ops = n - n_inputs,
                                    .reads = reads.at,
                                    .n_reads = reads.n};
    g.cut = json_integer_value(json_object_get(g.file, "cut"));
    g.fused = json_is_true(json_object_get(g.file, "fused"));
    return g;
}

void joint_graph_free(joint_graph *g) { json_decref(g->file); }

json_t *joint_graph_expected(const joint_graph *g, const char *policy, const char *key)
{
    json_t *x = json_object_get(json_object_get(g->file, "expected"), policy);
    x = json_object_get(x, key);
    assert_non_null(x);
    return x;
}
