#!/usr/bin/env bash
# A paper's table on a TPU pod: every host runs its share of the cells on its own chips, all into one shared folder.
#
#   gcloud compute tpus tpu-vm ssh POD --zone=ZONE --worker=all \
#       --command='cd fdgjax && bash launch/tpu_pod.sh 8 hfedf-pacs --out /mnt/shared/hfedf-pacs --data_dir DATA'
#
# 8 is the number of hosts. The folder must be one file system for all of them that has locks, such as Filestore's (NFS);
# without one give each host a folder of its own. Ended at any moment, the same command goes on. $CHIPS is the shape of
# a host's chips, 2,2,1 for four. The interpreter is `python`, or $PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."
hosts=${1:?expected the number of hosts, then launch.reproduce\'s arguments}
shift
attribute=http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number
host=${HOST:-$(curl --silent --fail --header 'Metadata-Flavor: Google' "$attribute")}
# Each host for itself: otherwise JAX waits until all have joined into one program.
export TPU_CHIPS_PER_PROCESS_BOUNDS=${CHIPS:-2,2,1} TPU_PROCESS_BOUNDS=1,1,1
exec "${PYTHON:-python}" -m launch.reproduce "$@" --shard "$((host + 1))/$hosts"
