#!/bin/sh
# Compiles each header of src/ and include/ alone: it must include what it uses.  Headers without
# `#pragma once` are templates, which want their parameters defined first; they are compiled where they are used.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
bad=0 n=0
for header in $(find src include -name '*.h' -exec grep -l '^#pragma once' {} + | sort); do
    n=$((n + 1))
    # Headers of kernels are compiled once an instruction set level; the plainest one here.
    printf '#include "%s"\n' "${header#*/}" |
        cc -std=c17 -D_GNU_SOURCE -DASP_ISA=generic -DASP_ISA_generic=1 -Wall -Wextra -Wpedantic -Wno-psabi -Werror \
            -fsyntax-only -Isrc -Iinclude -x c - || { echo "$header does not stand alone"; bad=$((bad + 1)); }
done
echo "$n headers checked, $bad wrong"
[ $bad = 0 ]
