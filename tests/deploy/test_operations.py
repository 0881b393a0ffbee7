"""The folder for administrators: what it says of messages is what is sent, and its files are read by those they are
for."""

import configparser
import math
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.cli.flower import main as flower
from fdgjax.config import make_config, read_config
from fdgjax.data.columns import Column
from fdgjax.deploy.app import ServerSettings
from fdgjax.deploy.contents import FACTS, KINDS, contents_of
from fdgjax.deploy.node_settings import node_settings
from fdgjax.deploy.operations import extras_of, write_operations
from fdgjax.deploy.request_handlers import ACTIONS
from fdgjax.deploy.service_files import NODE_PORT, Service, compose, node_unit, requirements, superlink_unit
from fdgjax.deploy.statistics import of_party
from fdgjax.deploy.terms import OwnSamples, Terms
from fdgjax.utils.errors import UserError
from tests.runs import perceptron

__all__ = ["perceptron"]

SERVICE = Service(
    name="fedavg",
    host="server.example",
    port=8123,
    clients=3,
    authentication=True,
    samples="images='/data/images'",
    workdir='/srv/a "100%" $run',
    own="/srv/own",
)
PROTECTED = {"privacy.unit": "sample", "privacy.noise": 1.0, "method.weighting": "uniform"}
UNITS = {"flower-supernode": node_unit, "flower-superlink": superlink_unit}


def terms_of(method: str, data: str = "folder", columns: tuple[Column, ...] = (), /, **changes: Any) -> Terms:
    config = make_config(method, data)
    config.data.clients = 3
    config.update_from_flattened_dict(changes)
    shape = (len(columns),) if columns else (8, 8, 3)
    return Terms(read_config(config), ("a", "b"), shape, 3, columns)


def started(unit: str) -> list[str]:
    """The words of a unit's program, as systemd splits them."""
    (found,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", unit, re.MULTILINE)
    return shlex.split(found.replace("\\\n", " "))


# What is said of messages


def test_every_kind_of_message_and_every_fact_is_explained() -> None:
    assert set(KINDS) == set(ACTIONS)
    assert {fact for kind in KINDS.values() for fact in (*kind.down, *kind.up)} == set(FACTS) - {"privacy_epsilon"}


def test_what_stays_at_a_node_is_in_no_message() -> None:
    """BatchNorm of FedBN and two numbers for the mean of those that trained, and the control variates of SCAFFOLD."""
    kept = {
        name: contents_of(terms_of(name, **{"model.name": "digits_cnn"})) for name in ("fedbn", "scaffold", "fedavg")
    }
    assert kept["fedbn"].kept
    marks = {path for path in kept["fedbn"].kept if "bn" not in path}
    assert marks == {".more.weight", ".more.trained"}
    assert all(math.prod(kept["fedbn"].kept[path].shape) == 1 for path in marks)
    assert not [path for path in (*kept["fedbn"].down["train"], *kept["fedbn"].up["train"]) if "['bn']" in path]
    assert kept["scaffold"].kept
    assert not kept["fedavg"].kept
    assert "describe" not in kept["fedavg"].down


def test_what_is_said_of_a_tables_statistics_is_what_a_node_sends() -> None:
    columns = (Column("age"), Column("sex", ("0", "1")), Column("pain", ("1", "2", "3")))
    said = contents_of(terms_of("fedavg", "table", columns, **{"model.name": "linear"})).up["describe"]
    rows = np.array([[50.0, 0, 1], [60.0, 1, 2], [np.nan, 1, 0]], np.float32)
    terms = terms_of("fedavg", "table", columns, **{"model.name": "linear"})
    sent = of_party(OwnSamples(rows, np.zeros(3, np.int32)), terms)
    assert {path: (leaf.shape, leaf.dtype) for path, leaf in said.items()} == {
        path: (leaf.shape, leaf.dtype) for path, leaf in sent.items()
    }


@pytest.mark.parametrize(
    ("method", "changes", "sent"),
    [
        ("fedavg", {}, ".target.correct"),
        ("fedavg", {"adaptation.kind": "t3a"}, ".adapted.correct"),
        ("fedavg", PROTECTED, ".target.correct"),
        ("fedsimclr", {}, "probe_by_percent/10"),
    ],
)
def test_what_the_unseen_party_sends_is_on_the_page_and_that_no_noise_covers_it(
    method: str, changes: dict[str, object], sent: str, tmp_path: Path
) -> None:
    if changes is PROTECTED:
        pytest.importorskip("dp_accounting")
    terms = terms_of(method, **{"model.name": "digits_cnn", **changes})._replace(clients=2, unseen=1)
    write_operations(tmp_path / "here", tmp_path / "app", ServerSettings(terms, tmp_path / "server"), "h", 8000)
    page = (tmp_path / "here" / "README.md").read_text()
    assert f"`{sent}`" in page.partition("Up: what the unseen client sends of it")[2]
    assert "| `evaluate (unseen)` | after every few rounds, of client 1, which trains nothing |" in page
    # Of the others, nothing is asked where samples are protected, or where a method learns without labels.
    assert ("| `evaluate` |" in page) == (method == "fedavg" and changes is not PROTECTED)
    assert ("client 1 sends of its evaluations (`evaluate (unseen)`) has no noise" in page) == (changes is PROTECTED)


@pytest.mark.slow
def test_a_method_that_trains_at_the_server_needs_none_of_its_samples() -> None:
    terms = terms_of("semifl", **{"model.name": "digits_cnn", "data.protocol": "labelled_server"})
    assert contents_of(terms).up["train"]


# The folder


@pytest.fixture
def asked(tmp_path: Path, perceptron: None) -> list[str]:
    words = ["--classes=a,b", "--config=fedavg:folder", "--config.data.clients=3", "--config.data.image_size=8"]
    return ["fdgjax flower", f"--app={tmp_path / 'app'}", *words, "--config.model.name=perceptron", "--host=h.example"]


def test_the_app_gets_none_of_it(asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert flower([*asked, "--workdir", str(tmp_path / "run"), "--authentication"]) == 0
    assert [file.name for file in (tmp_path / "app").iterdir()] == ["pyproject.toml"]
    page = (tmp_path / "app-operations" / "README.md").read_text()
    assert "port 8000" in page
    assert "h.example:8000" in page
    # Every array that is trained or evaluated, down and up, with its bytes.
    said = re.findall(r"(\d+) arrays, ([\d,]+) bytes", "".join(re.findall(r"^\| `(?:train|evaluate)` .*$", page, re.M)))
    totals = [tuple(int(number.replace(",", "")) for number in pair) for pair in said]
    rows = [int(size.replace(",", "")) for size in re.findall(r"^\| `.*` \| .* \| float32 \| ([\d,]+) \|$", page, re.M)]
    assert len(totals) == 4
    assert tuple(map(sum, zip(*totals, strict=True))) == (len(rows), sum(rows))
    assert flower([*asked, f"--operations={tmp_path / 'app' / 'more'}"]) == 2
    assert "expected one elsewhere" in capsys.readouterr().err


def test_what_cannot_be_deployed_leaves_no_folder(asked: list[str], tmp_path: Path) -> None:
    assert flower([*asked, "--config.seeds=2"]) == 2
    assert flower([*asked, "--least=4"]) == 2
    assert flower([*asked, "--classes=a,b,a"]) == 2
    for words in ("--least=0", "--clients=-1", "--deadline=-1", "--deadline=inf", "--port=65536"):
        with pytest.raises(SystemExit):
            flower([*asked, words])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config.data.target=client1"], "config.data.target got 'client1', but it deals a simulation's samples"),
        (
            ["--config.data.target=a", "--config.data.excluded=client0"],
            "expected ''; --unseen=client2 leaves a party out",
        ),
        (["--config.data.label_skew=0.5"], "config.data.label_skew got 0.5"),
        (["--config.data.domains_per_client=2"], "config.data.domains_per_client got 2"),
        (["--columns=age,sex"], "--columns got 'age,sex', but 'folder' has no tables; expected none"),
        (["--table=own.csv"], "--table got 'own.csv', but 'folder' has no tables"),
        (["--images=own"], "--images got 'own', but 'fedavg' trains at the clients alone; expected none"),
        (
            ["--config.data.name=arrays"],
            "config.data.name got 'arrays', whose samples are arrays, but nodes read images",
        ),
        (["--clients=5"], "--clients got 5 and config.data.clients 3; expected the number of parties once"),
    ],
)
def test_what_would_not_be_read_is_refused(
    words: list[str], said: str, asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flower([*asked, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert list(tmp_path.iterdir()) == []


def test_versions_are_those_installed(tmp_path: Path) -> None:
    settings = ServerSettings(terms_of("fedavg", **{"model.name": "digits_cnn"}), tmp_path / "server")
    write_operations(tmp_path / "here", tmp_path / "app", settings, "h", 8000)
    pins = dict(line.split("==") for line in (tmp_path / "here" / "requirements.txt").read_text().split())
    assert (pins["jax"], pins["fdgjax[flower]"]) == (version("jax"), version("fdgjax"))
    assert "fdgjax[flower,privacy]==" in requirements(["privacy"])
    page = (tmp_path / "here" / "README.md").read_text()
    # Without authentication there is no key to install.
    assert "client.key" not in page
    assert "whoever reaches the port can take part" in page


@pytest.mark.parametrize(
    ("data", "changes", "extras"),
    [
        ("folder", {}, []),
        ("folder", {"privacy.unit": "client", "privacy.noise": 1.0}, ["privacy"]),
        ("pretrained_folder", {}, ["pretrained"]),
        ("pretrained_folder", {"model.pretrained": "timm/resnet18.tv_in1k"}, []),
    ],
)
def test_each_party_installs_what_the_experiment_needs(
    data: str, changes: dict[str, object], extras: list[str]
) -> None:
    config = make_config("fedavg", data)
    config.update_from_flattened_dict(changes)
    assert extras_of(read_config(config)) == extras


# The files


@pytest.mark.parametrize("program", UNITS)
def test_a_unit_is_one_of_systemds(program: str, tmp_path: Path) -> None:
    text = UNITS[program](SERVICE)
    read = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=")
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(text.replace("\\\n", " "))
    own = dict(read["Service"])
    assert (own["Restart"], own["RestartSec"], own["User"]) == ("always", "20", "fdgjax")
    assert (own["NoNewPrivileges"], own["ProtectSystem"]) == ("yes", "strict")
    own_program = "fdgjax" if program == "flower-supernode" else program  # fdgjax flower --node runs the SuperNode
    assert own["ExecStart"].split()[0].strip('"') == f"/opt/fdgjax/bin/{own_program}"
    if shutil.which("systemd-analyze") is None:
        return
    file = tmp_path / f"{program}.service"
    file.write_text(text.replace(f"/opt/fdgjax/bin/{own_program}", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if program in line]) == (0, [])


def test_a_node_reads_its_samples_and_writes_its_states_alone() -> None:
    unit = node_unit(SERVICE).splitlines()
    assert "ReadOnlyPaths=/data /etc/fdgjax" in unit
    assert "ReadWritePaths=/var/lib/fdgjax" in unit
    assert r'ReadWritePaths=/var/lib/fdgjax "/srv/a \"100%%\" $run"' in superlink_unit(SERVICE).splitlines()


def test_the_compose_file_has_both_sides() -> None:
    yaml = pytest.importorskip("yaml")
    services: dict[str, Any] = yaml.safe_load(compose(SERVICE))["services"]
    node, superlink = services["node"], services["superlink"]
    assert (node["profiles"], superlink["profiles"]) == (["node"], ["superlink"])
    assert node["volumes"][0].endswith(":/data:ro")
    assert "ports" not in node
    assert superlink["ports"] == ["8123:8123"]
    assert superlink["volumes"][-2:] == ['/srv/a "100%" $$run:/srv/a "100%" $$run', "/srv/own:/srv/own:ro"]
    for one, unit in ((node, node_unit(SERVICE)), (superlink, superlink_unit(SERVICE))):
        assert one["read_only"] is True
        assert one["build"]["dockerfile_inline"].startswith(f"FROM python:3.{sys.version_info.minor}-slim\n")
        assert flags(one["command"]) == flags(started(unit))


def flags(words: list[str]) -> list[str]:
    return [word for word in words if word.startswith("--")]


@pytest.mark.slow  # each of Flower's programs takes seconds to start
@pytest.mark.parametrize("program", UNITS)
def test_flower_knows_the_flags(program: str) -> None:
    pytest.importorskip("flwr")
    command = [str(Path(sys.executable).parent / program), "--help"]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = flags(started(UNITS[program](SERVICE)))
    assert len(used) > 4
    assert [flag for flag in used if not re.search(rf"(?<!\S)\[?{flag}\b", known)] == []
    assert program != "flower-supernode" or f"(default: {NODE_PORT})" in " ".join(known.split())


@pytest.mark.parametrize("samples", ["images='/data/images'", "table='/data/table.csv'"])
def test_flower_and_we_read_the_nodes_own_settings(samples: str) -> None:
    pytest.importorskip("flwr")
    from flwr.common.config import parse_config_args

    words = started(node_unit(SERVICE._replace(samples=samples)))[-1].replace("${CLIENT}", "2")
    found = node_settings(parse_config_args([words]))
    assert (found.client, found.states) == (2, Path("/var/lib/fdgjax/states"))
    assert str(found.places.samples) == samples.split("'")[1]


def test_a_nodes_own_settings_are_refused_in_one_line() -> None:
    least: dict[str, Any] = {"client": 0, "images": "/data", "states": "/states"}
    for more, words in (
        ({"smallest": "ten"}, "smallest=ten; expected a whole number from 1"),
        ({"smallest": 0}, "smallest=0; expected a whole number from 1"),
        ({"smallest": 2.5}, "smallest=2.5; expected a whole number"),
        ({"epsilon": "three"}, "epsilon=three; expected a number from 0"),
        ({"epsilon": -1.0}, "epsilon=-1.0; expected a number from 0"),
        ({"epsilon": math.nan}, "epsilon=nan; expected a number from 0"),
        ({"fresh": "false"}, "fresh='false'; expected fresh=true or fresh=false"),
        ({"epsilon": 0}, "epsilon=0, which allows no answer; expected more"),
        ({"client": True}, "lacks the client's number"),
        ({"epsilom": 8.0}, "unknown word of --node-config 'epsilom'; expected one of: client, "),
        ({"Smallest": 50}, "did you mean 'smallest'?"),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            node_settings(least | more)
    found = node_settings(least | {"smallest": 2, "epsilon": 3, "fresh": True})
    assert (found.smallest, found.epsilon, found.fresh) == (2, 3.0, True)
