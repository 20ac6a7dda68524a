// autosp docs: the generated tables of docs/ (ops, attributes, passes, options).  Neighbours:
// ir/op.def, pass/pass.def, options.def. SPDX-License-Identifier: Apache-2.0
#include "cli/cli.h"

static void put_ops(asp_text *t)
{
    static const char *const kinds[] = {"module", "primitive", "terminal"};
    asp_put(
        t, "| op | kind | operands | rule | what it computes |\n| --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < ASP_OP_COUNT; i++) {
        const asp_op_info *o = &asp_ops[i];
        asp_put(t, "| `%s` | %s | %u", o->name, kinds[o->kind], o->min_in);
        if (o->max_in != o->min_in) asp_put(t, " to %u", o->max_in);
        asp_put(t, " | %s%s%s | %s |\n", o->rule ? "`" : "",
                o->rule      ? o->rule
                : o->rule_fn ? "by attributes"
                             : "none",
                o->rule ? "`" : "", o->doc);
    }
}

static void put_attributes(asp_text *t)
{
    static const char *const kinds[] = {"i64",   "f64",  "bool",  "str",
                                        "dtype", "size", "sizes", "ints"};
    asp_put(t, "| op | attributes |\n| --- | --- |\n");
    for (int i = 0; i < ASP_OP_COUNT; i++) {
        const asp_field *f = asp_ops[i].fields();
        if (!f->name) continue;
        asp_put(t, "| `%s` |", asp_ops[i].name);
        for (; f->name; f++)
            asp_put(t, " `%s` %s%s", f->name, kinds[f->kind], f[1].name ? "," : "");
        asp_put(t, " |\n");
    }
}

static void put_passes(asp_text *t)
{
    asp_put(t, "| pass | what it does |\n| --- | --- |\n");
    for (const asp_pass_info *p = asp_passes; p->name; p++)
        asp_put(t, "| `%s` | %s |\n", p->name, p->doc);
}

static const struct {
    const char *name;
    void (*put)(asp_text *t);
} tables[] = {{"ops", put_ops},
              {"attributes", put_attributes},
              {"passes", put_passes},
              {"options", asp_options_print},
              {"aten", asp_front_put_aten}};

asp_status asp_command_docs(asp_ctx *cx, const asp_options *o)
{
    asp_arena a;
    asp_text t;
    asp_arena_init(&a, cx);
    asp_text_init(&t, &a);
    for (size_t i = 0; i < ASP_COUNT_OF(tables); i++)
        if (o->n_files == 1 && strcmp(o->files[0], tables[i].name) == 0) tables[i].put(&t);
    if (t.n) fwrite(t.at, 1, t.n, stdout);
    bool found = t.n > 0;
    asp_arena_fini(&a);
    return found ? ASP_OK
                 : asp_fail(cx, ASP_ERR_USAGE,
                            "autosp docs prints one of: ops, attributes, passes, options, aten");
}
