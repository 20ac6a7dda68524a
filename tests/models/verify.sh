#!/bin/sh
# One model on P ranks against one rank, where P divides the sequence and where it does not, in both dtypes.
#   verify.sh AUTOSP MODEL DATA P
# SPDX-License-Identifier: Apache-2.0
set -eu
autosp=$1 model=$2 data=$3 ranks=$4

verify() { "$autosp" verify --model "$model" --data "$data" --ranks "$ranks" --threads 1 "$@"; }
case $model in
*.ir) verify --seq 23; verify --seq 24 --batch 2 ;; # its dtype stands in the text
*) verify --seq 23; verify --seq 24 --batch 2 --dtype f64 ;;
esac
