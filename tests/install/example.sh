#!/bin/sh
# Installs into a folder of its own, builds examples/c-api against the shared library found there and runs it: the loss falls,
# the plan is the one docs/c-api.md shows, and the library shows the functions of autosp.h and nothing else.
# Arguments: cmake, build folder, source folder, C compiler, sanitizers.  SPDX-License-Identifier: Apache-2.0
set -eu
cmake=$1 build=$2 source=$3 cc=$4 sanitize=$5
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
fail() { echo "install.example: $*" >&2; exit 1; }

"$cmake" --install "$build" --prefix "$stage" >"$stage/log" || { cat "$stage/log"; fail "cmake --install failed"; }
pc=$(find "$stage" -name autosp.pc)
[ -n "$pc" ] || fail "autosp.pc is not installed"
export PKG_CONFIG_PATH=${pc%/*}
libdir=$(pkg-config --variable=libdir autosp)
[ "$(find "$stage" -name '*.h' | wc -l)" = 1 ] || fail "more than autosp.h is installed"

# shellcheck disable=SC2046
"$cc" -std=c17 -Wall -Wextra -Wpedantic -Werror ${sanitize:+-fsanitize=$sanitize} "$source/examples/c-api/train.c" \
    $(pkg-config --cflags --libs autosp) -lm -Wl,-rpath,"$libdir" -o "$stage/train"
[ "$(wc -l <"$source/examples/c-api/train.c")" -lt 120 ] || fail "the example is longer than 120 lines"
"$stage/train" >"$stage/out" || fail "the example failed"
cat "$stage/out"
awk '$1 == "step" { loss = $4; n++ } END { exit !(n == 5 && loss > 0 && loss < 2) }' "$stage/out" || fail "the loss did not fall"

planned() { grep -E '^(plan|exchanges|  *(forward|backward|gradients):)' "$1"; }
planned "$source/docs/c-api.md" >"$stage/want"
planned "$stage/out" | diff "$stage/want" - || fail "docs/c-api.md shows another plan; paste the example's output"

nm -D --defined-only "$libdir/libautosp.so" | awk '$2 == "T" && $3 !~ /^_(init|fini)$/ { print $3 }' | sort >"$stage/shown"
tr '\n' ' ' <"$source/include/autosp.h" | grep -oE 'ASP_API[^;]*;' | grep -oE 'asp_[a-z0-9_]+\(' | tr -d '(' | sort >"$stage/declared"
diff "$stage/declared" "$stage/shown" || fail "what the library shows is not what autosp.h declares"
echo "$(wc -l <"$stage/shown") functions shown, as declared"
