#!/usr/bin/env bash
# Many runs on a TPU pod: every host runs its share of a paper's table, a sweep or a search, on its own chips, all into one
# folder.
#
#   gcloud compute tpus tpu-vm ssh POD --zone=ZONE --worker=all \
#       --command='cd fdgjax && bash launch/tpu_pod.sh reproduce hfedf-pacs --out /mnt/shared/hfedf-pacs --data_dir DATA'
#
# The folder must be one file system for all hosts, such as Filestore's (NFS). If it is stopped at any moment, the same
# command continues. $CHIPS is the shape of a host's chips, 2,2,1 for four. The interpreter is `python`, or $PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."
attribute() { # name: what Google's metadata server says of this host
    curl --silent --show-error --fail --header 'Metadata-Flavor: Google' \
        "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}
host=$(attribute agent-worker-number) # from 0
hosts=$(attribute worker-network-endpoints | tr ',' '\n' | grep --count .)
# Each host runs by itself: otherwise JAX waits until all hosts have joined one program.
export TPU_CHIPS_PER_PROCESS_BOUNDS=${CHIPS:-2,2,1} TPU_PROCESS_BOUNDS=1,1,1
exec "${PYTHON:-python}" -m fdgjax "$@" --shard "$((host + 1))/$hosts"
