#!/usr/bin/env bash
# A paper's table as a SLURM job array: every task runs its share of the cells, all into one folder.
#
#   sbatch --array=1-8 launch/slurm.sh hfedf-pacs --out runs/hfedf-pacs --data_dir DATA
#
# Before its time is over a task saves and stops; the same command goes on, and runs only what is left. To run some tasks
# of an array again, set the number of shares: SHARES=8 sbatch --array=3,5 ... Options of SLURM, such as a
# partition, come before the script. The interpreter is `python`, or $PYTHON.
#SBATCH --job-name=fdgjax
#SBATCH --output=slurm-%A_%a.log
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=32G
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}"
shares=${SHARES:-$SLURM_ARRAY_TASK_MAX}
# srun, so that the signal reaches the interpreter; the process ends with 143 once it has saved.
exec srun "${PYTHON:-python}" -m launch.reproduce "$@" --shard "$SLURM_ARRAY_TASK_ID/$shares"
