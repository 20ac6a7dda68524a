#!/bin/sh
# The same training step here and in PyTorch, side by side (compare.py).  Makes its own virtual environment.
#   run.sh [ROUNDS [OPTIONS of compare.py]]     exit 1 beyond a bound
#   run.sh 2 --against eager,compile,checkpoint,ulysses --seq 1024
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-3}
[ $# = 0 ] || shift
venv=build/peers-venv
mkdir -p build/peers
if [ ! -e $venv/all ]; then
    python3 -m venv $venv
    $venv/bin/pip install --quiet torch==2.13.0 numpy safetensors
    touch $venv/all
fi
exec $venv/bin/python -B bench/peers/compare.py build/release/autosp build/peers --rounds "$rounds" "$@"
