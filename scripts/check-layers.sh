#!/bin/sh
# A folder of src/ includes only folders before it in the order, and another folder's *_int.h never; what belongs to base stays there.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
order=$(sed -n 's/^set(ASP_LAYERS \(.*\))$/\1/p' CMakeLists.txt)
grep -rn --include='*.[ch]' --include='*.def' '^ *# *include "' src | awk -v order="$order" '
    BEGIN { n = split(order, layer, " "); for (i = 1; i <= n; i++) at[layer[i]] = i }
    {
        split($0, where, ":")
        split(where[1], path, "/")
        match($0, /"[^"]*"/)
        included = substr($0, RSTART + 1, RLENGTH - 2)
        if (included == "autosp.h") next
        from = path[2]
        to = included
        if (!sub(/\/.*/, "", to)) wrong = "is not written as folder/file"
        else if (!(from in at) || !(to in at)) wrong = "is of no known folder"
        else if (at[to] > at[from]) wrong = "is above " from
        else if (to != from && included ~ /_int\.h$/) wrong = "is internal to " to
        else next
        print where[1] ":" where[2] ": " included " " wrong
        bad++
    }
    END { print NR " includes checked, " bad + 0 " wrong"; exit bad > 0 }'
# Numbers with a point are read and written by base/text.c alone: elsewhere they would follow the caller's locale.
! grep -rnE --include='*.[ch]' '(^|[^_a-z])(strto[dfl]d?|atof|setlocale) *\(|(^|[^_a-z])v?s?n?f?(printf|scanf) *\([^"]*"[^"]*%[-+ #0-9.*]*[aefgAEFG]' src |
    grep -v '^src/base/text\.c:' || { echo "the locale decides these numbers: use asp_strtod, asp_format, asp_print (base/base.h)"; exit 1; }
