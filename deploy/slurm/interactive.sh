#!/usr/bin/env bash
# A shell on a node: interactive.sh [options of srun], for example interactive.sh --gpus-per-node=8 --time=4:00:00
# Each training that is started in this shell is a run of its own, also if two run at once. With several GPUs, start
# it with: otel-rl run -- torchrun --standalone --nproc-per-node="$SLURM_GPUS_ON_NODE" train.py
set -euo pipefail

export OTEL_RL_DIR="${OTEL_RL_DIR:-$PWD/runs}"
exec srun --nodes=1 --ntasks=1 --job-name=interactive "$@" --pty bash
