#!/bin/sh
# Checks that the sources have the project's format; --write rewrites them.  Only clang-format 14 gives the same answer
# everywhere.  SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
command -v clang-format-14 >/dev/null || { echo "format: clang-format-14 is not installed (make check installs it)" >&2; exit 2; }
files=$(find src include tests bench examples -name '*.[ch]' | sort)
if [ "${1:-}" = --write ]; then
    echo "$files" | xargs clang-format-14 -i
else
    echo "$files" | xargs clang-format-14 --dry-run -Werror
    echo "$(echo "$files" | wc -l) files have the format"
fi
