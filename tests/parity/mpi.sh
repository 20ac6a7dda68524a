#!/bin/sh
# Ranks as threads and as MPI processes give the same bits: two runs of three steps leave equal
# checkpoints, and receive the bytes that were planned.  With "fused" the thread run updates parameters behind the
# backward and the MPI run within it, with layers' inputs in files; "dp2" has two replicas.
# usage: mpi.sh AUTOSP SOURCE_DIR RANKS STRATEGY [fused|dp2|bf16]
# SPDX-License-Identifier: Apache-2.0
set -eu
autosp=$1 source=$2 ranks=$3 sp=$4 how=${5:-}
command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
options="--model $source/examples/demo/config.json --data $source/README.md $source/LICENSE --seq 251 --batch 2
         --ranks $ranks --sp $sp --threads 1 --steps 3 --warmup 2 --ac layer"
more='' world=$ranks
case $how in
fused) options="$options --clip 0" more="--fuse-optimizer --offload $dir" ;;
dp2) options="$options --dp 2" world=$((ranks * 2)) ;;
bf16) options="$options --dtype bf16" ;;
esac
# shellcheck disable=SC2086
"$autosp" train $options --out "$dir/thread" >"$dir/thread.log"
# shellcheck disable=SC2086
timeout -k 5 120 mpirun -n "$world" --oversubscribe "$autosp" train $options $more --comm mpi --out "$dir/mpi" >"$dir/mpi.log"
grep "exchanged .* (equal)" "$dir/thread.log"
grep "exchanged .* (equal)" "$dir/mpi.log"
find "$dir/thread" -name "*.safetensors" | sed "s|^$dir/thread/||" | while read -r file; do
    cmp "$dir/thread/$file" "$dir/mpi/$file"
    echo "$file: equal"
done
test -n "$(find "$dir/thread" -name "*.safetensors")"
