// Shared by compile.c, choose.c and budget.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run/compile.h"

// A rank's, of all ranks of all replicas.
asp_device asp_compile_device(const asp_machine *m, const asp_compile_options *o);
// One way through the passes behind remat, whose choice the pass options say.
asp_status asp_compile_choice(asp_ctx *cx, const asp_graph *joint,
                              const asp_compile_options *options, const asp_pass_options *passes,
                              const asp_pass_trace *trace, asp_plan **out_plan);
// --ac budget: tries choices.
asp_status asp_compile_budget(asp_ctx *cx, const asp_graph *joint,
                              const asp_compile_options *options, const asp_pass_options *passes,
                              const asp_pass_trace *trace, asp_plan **out_plan);
