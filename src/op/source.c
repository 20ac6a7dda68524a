// Where values come from: inputs, parameters, constants, positions, labels.  Neighbours: ir/op.def
// (rows), kern/ref/. SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

asp_status asp_input_infer(asp_infer *in)
{
    const asp_input_attr *a = in->attr;
    return *a->name ? ASP_OK : asp_infer_fail(in, ASP_ERR_INPUT, "an input needs a name");
}

static asp_status want_numbers(const asp_infer *in, const char *name)
{
    for (uint32_t d = 0; d < in->out[0].rank; d++)
        if (!asp_size_is_num(in->g, in->out[0].dim[d], NULL))
            return asp_infer_fail(in, ASP_ERR_SHAPE,
                                  "%s is %s; a parameter's sizes are plain numbers", name,
                                  asp_type_str(in->g, &in->out[0]));
    return ASP_OK;
}

asp_status asp_param_infer(asp_infer *in)
{
    const asp_param_attr *a = in->attr;
    if (!*a->name) return asp_infer_fail(in, ASP_ERR_INPUT, "a parameter needs a name");
    if (!asp_dtypes[in->out[0].dtype].is_float)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%s is %s; parameters are floating point", a->name,
                              asp_type_str(in->g, &in->out[0]));
    ASP_TRY(want_numbers(in, a->name));
    if (strcmp(a->init, "normal") != 0 && strcmp(a->init, "ones") != 0 &&
        strcmp(a->init, "zeros") != 0)
        return asp_infer_fail(in, ASP_ERR_INPUT, "%s: init is normal, ones or zeros, not '%s'",
                              a->name, a->init);
    return ASP_OK;
}

asp_status asp_constant_infer(asp_infer *in)
{
    (void)in;
    return ASP_OK;
}

asp_status asp_iota_infer(asp_infer *in)
{
    if (in->out[0].rank != 1 || in->out[0].dtype != ASP_I64)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "result is %s; i64 of one dimension is wanted",
                              asp_type_str(in->g, &in->out[0]));
    return ASP_OK;
}

// Sizes stay global in it: made before a graph is split, it counts what all ranks hold.
asp_status asp_size_value_infer(asp_infer *in)
{
    const asp_type *t = &in->out[0];
    if (t->rank != 0 || (!asp_dtypes[t->dtype].is_float && t->dtype != ASP_I64))
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "result is %s; one number, float or i64, is wanted",
                              asp_type_str(in->g, t));
    return ASP_OK;
}

asp_status asp_count_valid_infer(asp_infer *in)
{
    ASP_TRY(asp_want_dtype(in, 0, ASP_I64));
    return asp_result(in, &(asp_type){.dtype = ASP_I64});
}
