#!/bin/sh
# One model on P ranks against one rank, where P divides the sequence and where it does not, in both dtypes,
# and around a ring.
#   verify.sh AUTOSP MODEL DATA P
# SPDX-License-Identifier: Apache-2.0
set -eu
autosp=$1 model=$2 data=$3 ranks=$4
wide=$model option=--dtype=f64

case $model in
*.ir) # its dtype stands in the text
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' EXIT
    wide=$folder/wide.ir option=--dtype=f32
    sed -e 's/f32/f64/g' -e '/: f64.* = cast %/s/ @/ {to = f64} @/' "$model" >"$wide" # f32 is cast's standard
    ;;
esac
"$autosp" verify --model "$model" --data "$data" --ranks "$ranks" --threads 1 --seq 23
"$autosp" verify --model "$model" --data "$data" --ranks "$ranks" --threads 1 --seq 26 --sp ring
"$autosp" verify --model "$wide" --data "$data" --ranks "$ranks" --threads 1 --seq 24 --batch 2 $option
