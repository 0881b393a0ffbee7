"""What clusters are given to run is understood by our own command line, and comes back after a preemption."""

import argparse
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fdgjax.sweeps.options import add_options
from fdgjax.sweeps.papers import EXPERIMENTS
from fdgjax.sweeps.share import Share, share_of
from launch.submitit import SHARED
from tests.runs import ROOT
from tests.sweeps.test_share import array

LAUNCH = ROOT / "launch"


def understood(words: list[str]) -> argparse.Namespace:
    """The arguments of `reproduce`, as it reads them."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("name", choices=EXPERIMENTS)
    add_options(parser)
    return parser.parse_args(words)


METADATA = """#!/bin/sh
case "$*" in
*/agent-worker-number) echo 2 ;;
*/worker-network-endpoints) echo a:1:10.0.0.1,b:2:10.0.0.2,c:3:10.0.0.3,d:4:10.0.0.4 ;;
esac
"""


@pytest.mark.parametrize(
    ("script", "share"), [("slurm.sh", Share(1, 2)), ("tpu_pod.sh", Share(3, 4))], ids=["slurm", "tpu_pod"]
)
def test_scripts_of_clusters_run_a_share(script: str, share: Share, tmp_path: Path) -> None:
    for name, text in {"srun": '#!/bin/sh\nexec "$@"\n', "curl": METADATA}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["bash", str(LAUNCH / script), "reproduce", "hfedf-pacs", "--out", "x", "--jobs", "2"],
        env=os.environ | {"PYTHON": "echo", "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    option, module, subcommand, *words = done.stdout.split()
    assert (option, module, subcommand) == ("-m", "fdgjax", "reproduce")
    args = understood(words)
    assert (args.name, args.jobs) == ("hfedf-pacs", 2)
    assert share_of(args.shard, array(1, 2, 1)[0]) == share


def job() -> dict[str, Any]:
    (only,) = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    return dict(only)


def test_the_job_of_kubernetes_is_indexed_and_survives_preemption() -> None:
    whole = job()
    assert (whole["apiVersion"], whole["kind"]) == ("batch/v1", "Job")
    assert whole["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    spec, pod = whole["spec"], whole["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] > 1
    # What the API asks for where there is a podFailurePolicy, or a FailIndex in it.
    assert pod["restartPolicy"] == "Never"
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["backoffLimitPerIndex"] > 0
    first, second = spec["podFailurePolicy"]["rules"]
    assert first == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}, "the first rule that fits"
    (container,) = pod["containers"]
    codes = second["onExitCodes"]
    assert (second["action"], codes["containerName"]) == ("FailIndex", container["name"])
    # Not 143, of a pod that saved because it had to go, nor 3.
    assert codes["values"] == [1, 2]
    assert pod["terminationGracePeriodSeconds"] >= 300


def test_the_job_of_kubernetes_runs_an_experiment_on_its_volume() -> None:
    pod = job()["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["name"]
    assert volume["persistentVolumeClaim"]["claimName"]
    program, subcommand, *words = container["command"] + container["args"]
    assert (program, subcommand) == ("fdgjax", "reproduce")
    args = understood(words)
    variables = {one["name"]: one["value"] for one in container["env"]}
    places = [str(args.out), args.data_dir, variables["XDG_CACHE_HOME"]]
    assert all(place.startswith(f"{mount['mountPath']}/") for place in places)
    count = job()["spec"]["completions"]
    shares = [share_of(args.shard, variables | {"JOB_COMPLETION_INDEX": str(index)}) for index in range(count)]
    assert shares == [(number, count) for number in range(1, count + 1)]


def test_the_image_copies_what_there_is() -> None:
    text = (LAUNCH / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert {"pyproject.toml", "constraints.txt", "fdgjax"} <= set(copied)
    assert all((ROOT / word).exists() for word in copied)


def test_the_image_has_what_the_shared_commands_need() -> None:
    (extras,) = re.findall(r"'/fdgjax\[([^]]*)\]'", (LAUNCH / "Dockerfile").read_text())
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    # Of the modules of these commands, those that the calls of `check_library` name last.
    sources = [(ROOT / "fdgjax/cli" / f"{name}.py").read_text() for name in SHARED]
    needed = {extra for text in sources for extra in re.findall(r'check_library\(.*, "(\w+)"\)', text)}
    assert {"report", "search"} <= needed <= set(extras.split(","))
