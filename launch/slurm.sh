#!/usr/bin/env bash
# Many runs as a SLURM job array: every task runs its share of a paper's table, a sweep or a search, all into one folder.
#
#   sbatch --array=1-8 launch/slurm.sh reproduce hfedf-pacs --out runs/hfedf-pacs --data_dir DATA
#   sbatch --array=1-4 launch/slurm.sh search fedprox --out runs/search
#
# Before its time limit a task saves and stops. However the tasks ended, the same command runs only what is left.
# Options of SLURM, such as a partition, come before the script. The interpreter is `python`, or $PYTHON.
#SBATCH --job-name=fdgjax
#SBATCH --output=slurm-%A_%a.log
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=32G
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}"
# srun, so that the signal reaches the interpreter; the process ends with 143 once it has saved.
exec srun "${PYTHON:-python}" -m fdgjax "$@" --shard auto
