#!/bin/sh
# Builds with coverage, runs the tests and prints the share of lines run, a row a folder and the emptiest files.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
scripts/build.sh cov
find build/cov -name '*.gcda' -delete
ctest --preset cov >build/cov-tests.log 2>&1 || { tail -n 20 build/cov-tests.log; exit 1; }
find build/cov -name '*.gcda' -path '*/src/*' | xargs gcov -n 2>/dev/null | awk '
    /^File / { split($0, q, "\047"); file = q[2]; sub(/.*\/src\//, "src/", file) }
    /^Lines executed/ && file ~ /^src\/.*\.c$/ {
        split($2, p, "[:%]")
        run = p[2] * $4 / 100
        if (!(file in lines) || run > done[file]) { lines[file] = $4; done[file] = run } # of the copies of a kernel the best
        file = ""
    }
    END {
        for (f in lines) { split(f, at, "/"); n[at[2]] += lines[f]; r[at[2]] += done[f]; all += lines[f]; ran += done[f] }
        for (d in n) printf "%-8s %5.1f %% of %5d lines\n", d, 100 * r[d] / n[d], n[d] | "sort"
        close("sort")
        printf "%-8s %5.1f %% of %5d lines\n", "all", 100 * ran / all, all
        for (f in lines) if (done[f] < 0.7 * lines[f]) printf "  %5.1f %%  %s\n", 100 * done[f] / lines[f], f | "sort -n"
    }'
