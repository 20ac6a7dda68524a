// autosp train, verify, plan.  Neighbours: cli.h, train/train.h.  SPDX-License-Identifier:
// Apache-2.0
#include "base/file.h"
#include "cli/cli.h"

typedef asp_status job_fn(asp_ctx *cx, const asp_options *all, const asp_train_options *o,
                          const asp_report *report);

// What only formulas know is not left unread by a run.
static asp_status check_device_options(asp_ctx *cx, const asp_options *o)
{
    const struct {
        const char *name;
        bool chosen;
    } of_device[] = {{"nodes", o->nodes != 1},
                     {"gpus", o->gpus != 8},
                     {"zero", strcmp(o->zero, "auto") != 0},
                     {"optimizer-offload", o->optimizer_offload},
                     {"checkpoint-offload", o->checkpoint_offload}};
    for (size_t i = 0; i < ASP_COUNT_OF(of_device); i++)
        if (of_device[i].chosen)
            return asp_fail(cx, ASP_ERR_USAGE,
                            "--%s is of `autosp plan --device`, which answers for machines one "
                            "does not have; nothing here runs that way",
                            of_device[i].name);
    return ASP_OK;
}

static asp_status open_job(asp_ctx *cx, const asp_options *o, bool resumes,
                           asp_train_options *out_options, asp_report *out_report)
{
    if (!o->train.model && !(resumes && o->train.resume))
        return asp_fail(cx, ASP_ERR_USAGE,
                        "no model; give --model config.json, a folder, or graph text *.ir");
    ASP_TRY(check_device_options(cx, o));
    ASP_TRY(asp_options_train(cx, o, out_options));
    return asp_report_open(cx, o, out_report);
}

static asp_status with_report(asp_ctx *cx, const asp_options *o, job_fn *job, bool resumes)
{
    asp_train_options t;
    asp_report r;
    asp_status s = open_job(cx, o, resumes, &t, &r);
    if (s < 0) return asp_ranks_refuse(cx, o->train.comm, s);
    s = job(cx, o, &t, &r);
    asp_ctx closing; // its failure does not hide the first one
    asp_ctx_init(&closing);
    asp_status closed = asp_report_close(s < 0 ? &closing : cx, &r);
    return s < 0 ? s : closed;
}

static asp_status train(asp_ctx *cx, const asp_options *all, const asp_train_options *o,
                        const asp_report *report)
{
    (void)all;
    return asp_train(cx, o, report);
}

static asp_status verify(asp_ctx *cx, const asp_options *all, const asp_train_options *o,
                         const asp_report *report)
{
    (void)all;
    return asp_verify(cx, o, report);
}

asp_status asp_command_train(asp_ctx *cx, const asp_options *o)
{
    return with_report(cx, o, train, true);
}
asp_status asp_command_verify(asp_ctx *cx, const asp_options *o)
{
    return with_report(cx, o, verify, false);
}

static asp_status write_timeline(asp_ctx *cx, const asp_plan *plan, const char *path)
{
    asp_arena a;
    asp_text t;
    const char *end = strrchr(path, '.');
    asp_arena_init(&a, cx);
    asp_text_init(&t, &a);
    asp_plan_put_timeline(plan, end && strcmp(end, ".svg") == 0, &t);
    asp_status s = asp_file_write_whole(cx, path, t.at, t.n);
    asp_arena_fini(&a);
    return s;
}

static asp_status say_levers(asp_ctx *cx, const asp_graph *module, const asp_train_options *o,
                             const asp_plan *plan, int64_t seq, const asp_report *report)
{
    asp_levers levers;
    ASP_TRY(asp_train_levers(cx, module, o, plan, seq, &levers));
    asp_report_levers(report, &levers);
    return ASP_OK;
}

static asp_status plan_only(asp_ctx *cx, const asp_options *all, const asp_train_options *o,
                            const asp_report *report)
{
    asp_program program;
    asp_plan *plan;
    int64_t seq;
    double ms;
    ASP_TRY(asp_front_load(cx, o->model, o->dtype, &program));
    asp_status s = asp_train_plan(cx, program.graph, o, &plan, &seq, &ms);
    if (s == ASP_OK) {
        asp_report_plan(report, plan, o, seq, ms, o->seq == 0 ? seq : 0);
        if (all->timeline) s = write_timeline(cx, plan, all->timeline);
        if (s == ASP_OK && o->seq == 0) s = say_levers(cx, program.graph, o, plan, seq, report);
        asp_plan_destroy(plan);
    }
    asp_report_end(report, s == ASP_OK);
    asp_program_fini(&program);
    return s;
}

asp_status asp_command_plan(asp_ctx *cx, const asp_options *o)
{
    if (o->device) return asp_command_box(cx, o);
    return with_report(cx, o, plan_only, false);
}
