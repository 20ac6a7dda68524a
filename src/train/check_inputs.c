// Numbers that a user gives for an input: which element is wrong, before anything runs.
// Neighbours: trainer.c (who is given them), front/ids.c (ranges).
// SPDX-License-Identifier: Apache-2.0
#include "train/train_int.h"

// What a kernel would refuse in the middle of a step.
static asp_status check_ids(asp_ctx *cx, const char *name, const asp_id_range *r, const int64_t *id,
                            int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if ((id[i] >= 0 && id[i] < r->below) || (r->has_ignored && id[i] == r->ignored)) continue;
        char besides[48] = "";
        if (r->has_ignored)
            snprintf(besides, sizeof besides, ", or %lld to ignore it", (long long)r->ignored);
        return asp_fail(cx, ASP_ERR_INPUT, "%s: element %lld is %lld; 0 to %lld are possible%s",
                        name, (long long)i, (long long)id[i], (long long)r->below - 1, besides);
    }
    return ASP_OK;
}

// Documents stand one behind the other: a number that falls is a row put together wrongly, of which
// a part would look back into a document that has ended.
static asp_status check_segments(asp_ctx *cx, const asp_plan_input *in, const int64_t *id)
{
    const int64_t row = in->rank > 0 ? in->dim[in->rank - 1] : 1;
    const int64_t n = in->bytes / asp_dtypes[ASP_I64].bytes;
    for (int64_t i = 1; i < n; i++) {
        if (i % row == 0 || id[i] >= id[i - 1]) continue;
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s: token %lld of row %lld is of segment %lld, behind one of segment "
                        "%lld; number the documents of a row in the order in which they stand",
                        in->name, (long long)(i % row), (long long)(i / row), (long long)id[i],
                        (long long)id[i - 1]);
    }
    return ASP_OK;
}

asp_status asp_train_check_input(asp_ctx *cx, const asp_plan_input *in, const asp_id_range *ids,
                                 const void *data)
{
    if (in->dtype != ASP_I64) return ASP_OK;
    if (ids->below < INT64_MAX)
        ASP_TRY(check_ids(cx, in->name, ids, data, in->bytes / asp_dtypes[ASP_I64].bytes));
    return strcmp(in->role, "segments") == 0 ? check_segments(cx, in, data) : ASP_OK;
}
