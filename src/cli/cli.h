// The program `autosp`: options and commands.  Neighbours: options.def (rows), train/ (what
// commands do, and their options). SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/train.h"

// Every option of every command.
typedef struct asp_options {
    asp_train_options train;
#define OPTION(kind, field, name, arg, standard, help) ASP_OPTION_##kind field;
#include "cli/options.def"
#undef OPTION
    const char **files; // --data FILE... and what stands without an option; owned
    int n_files;
} asp_options;

// argv[0] is the command's name.  Fails with ASP_ERR_USAGE and a message; *out_help: --help was
// asked for and printed.
asp_status asp_options_parse(asp_ctx *cx, int argc, char **argv, asp_options *out_options,
                             bool *out_help);
// What --comm says, where the command line may not be readable.
asp_comm_backend asp_options_comm(int argc, char **argv);
void asp_options_fini(asp_options *o);
void asp_options_print(asp_text *t); // the table, for docs/cli.md

typedef asp_status asp_command_fn(asp_ctx *cx, const asp_options *o);
asp_command_fn asp_command_train, asp_command_verify, asp_command_plan, asp_command_opt,
    asp_command_bench, asp_command_docs, asp_command_remat, asp_command_box;

// The training options of a command line, checked; a model must be given.
asp_status asp_options_train(asp_ctx *cx, const asp_options *o, asp_train_options *out_options);
asp_status asp_report_open(asp_ctx *cx, const asp_options *o, asp_report *out_report);
asp_status asp_report_close(asp_ctx *cx, asp_report *r);
