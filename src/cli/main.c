// autosp: which command, and the exit code.  Neighbours: cli.h (commands). SPDX-License-Identifier:
// Apache-2.0
#include "cli/cli.h"

#include <signal.h>

static const struct {
    const char *name;
    asp_command_fn *run;
    const char *help;
} commands[] = {
    {"train", asp_command_train, "train a model, on one or many ranks"},
    {"verify", asp_command_verify, "one step on 1 rank and on P: loss, gradients, parameters"},
    {"plan", asp_command_plan, "memory, exchanges, time of a program, without running it"},
    {"opt", asp_command_opt, "run passes on graph text"},
    {"remat", asp_command_remat, "what to keep of a program described in JSON"},
    {"bench", asp_command_bench, "measure this machine and write its file"},
    {"docs", asp_command_docs, "print the generated tables of the documentation"},
};

// 0 fine, 1 a check failed, 2 bad usage or input, 3 a run failed.
static int exit_code(asp_status s)
{
    switch (s) {
    case ASP_OK:
    case ASP_IN_PROGRESS: return 0;
    case ASP_ERR_CHECK: return 1;
    case ASP_ERR_USAGE:
    case ASP_ERR_INPUT:
    case ASP_ERR_SHAPE:
    case ASP_ERR_UNSUPPORTED:
    case ASP_ERR_LIMIT:
    case ASP_ERR_IO: return 2;
    case ASP_ERR_NOMEM:
    case ASP_ERR_PEER: return 3;
    }
    return 3;
}

static int usage(FILE *f)
{
    fprintf(f, "autosp %s: trains transformers on sequences that do not fit one device\n\n",
            asp_version());
    for (size_t i = 0; i < ASP_COUNT_OF(commands); i++)
        fprintf(f, "  autosp %-7s %s\n", commands[i].name, commands[i].help);
    fprintf(f, "\n`autosp COMMAND --help` lists the options.\n");
    return f == stdout ? 0 : 2;
}

static void print_help(asp_ctx *cx, const char *name, const char *help)
{
    asp_arena a;
    asp_text t;
    asp_arena_init(&a, cx);
    asp_text_init(&t, &a);
    asp_options_print(&t);
    printf("autosp %s: %s\n\n%s", name, help, t.at);
    asp_arena_fini(&a);
}

typedef struct job {
    int argc;
    char **argv;
    size_t command;
} job;

static asp_status run(asp_ctx *cx, void *arg)
{
    const job *j = arg;
    asp_options o;
    bool help;
    asp_status s = asp_options_parse(cx, j->argc, j->argv, &o, &help);
    if (s < 0) return asp_ranks_refuse(cx, asp_options_comm(j->argc, j->argv), s);
    if (help)
        print_help(cx, commands[j->command].name, commands[j->command].help);
    else
        s = commands[j->command].run(cx, &o);
    asp_options_fini(&o);
    return s;
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error with a message
    if (argc < 2) return usage(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) return usage(stdout);
    if (strcmp(argv[1], "--version") == 0) return printf("autosp %s\n", asp_version()) < 0;
    for (size_t i = 0; i < ASP_COUNT_OF(commands); i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        asp_ctx cx;
        asp_ctx_init(&cx);
        job j = {.argc = argc - 1, .argv = argv + 1, .command = i};
        asp_status s = asp_guard(&cx, run, &j);
        if (s < 0 && *cx.message)
            fprintf(stderr, "autosp: %s\n", cx.message); // under MPI one process has the message
        return exit_code(s);
    }
    fprintf(stderr, "autosp: there is no command '%s'\n", argv[1]);
    return usage(stderr);
}
