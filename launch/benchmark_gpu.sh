#!/usr/bin/env bash
# Benchmarks of the round on one GPU: client axes, convolutions and precisions, beside PyTorch. About half an hour.
#
#   pip install -c constraints.txt '.[bench]' 'jax[cuda13]'
#   bash launch/benchmark_gpu.sh runs/gpu                                 records and tables go to runs/gpu
#   bash launch/benchmark_gpu.sh runs/try --clients 2 --steps 1 --rounds 1 --repeats 1      a trial; options come last
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?expected a folder for the records, such as runs/gpu}
shift
mkdir -p "$folder"

measure() { # name, benchmark, options
    local name=$1 benchmark=$2
    shift 2
    echo "== $name"
    python -m "benchmarks.$benchmark" --json "$folder/$name.json" "$@" | tee "$folder/$name.txt"
}

# hFedF's client network. TF32 is what PyTorch users run; float32 forbids TF32 on both sides; bfloat16 computes in
# bfloat16.
for precision in tensorfloat32 float32; do
    measure "inception-$precision" round --clients 10 --steps 50 --naive_steps 50 --precision "$precision" \
        --contenders vmap chunk map naive torch --plans library im2col winograd "$@"
done
measure inception-bfloat16 round --clients 10 --steps 50 --dtype bfloat16 --contenders vmap torch \
    --plans library im2col "$@"

# The target: 100,000 images per second. More clients and larger batches leave less of the card idle.
measure inception-many round --clients 64 --steps 20 --batch_size 256 --precision tensorfloat32 --contenders vmap torch \
    --plans library im2col "$@"

for model in alexnet dse_alexnet resnet18; do
    measure "$model" round --models "$model" --clients 8 --steps 10 --batch_size 64 --precision tensorfloat32 \
        --contenders vmap map torch --plans library im2col "$@"
done
measure scaling-fedavg scaling --clients 3 10 50 200 --axes vmap chunk map --steps 20 --precision tensorfloat32 \
    ${SCALING_OPTIONS:-}
measure scaling-hfedf scaling --clients 3 50 200 --axes chunk map --method hfedf --steps 20 --precision tensorfloat32 \
    ${SCALING_OPTIONS:-}
