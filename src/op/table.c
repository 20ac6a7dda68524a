// The table of what ops mean, generated from op.def: a function that is missing is a link error.
// Neighbours: op.h (contract), the family files.  SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

#define ROW_MODULE(name)                             \
    {                                                \
        asp_##name##_infer, NULL, asp_##name##_lower \
    }
#define ROW_PRIMITIVE(name)                        \
    {                                              \
        asp_##name##_infer, asp_##name##_vjp, NULL \
    }
#define ROW_TERMINAL(name)             \
    {                                  \
        asp_##name##_infer, NULL, NULL \
    }

const asp_op_fns asp_op_table[] = {
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) ROW_##kind(name),
#include "ir/op.def"
#undef OP
};
