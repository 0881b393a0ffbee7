"""`choose` by where the labels are: which methods are candidates, and that a labelled server keeps its domain."""

from pathlib import Path

import numpy as np
import pytest

import fdgjax
from fdgjax.cli.choose import main
from fdgjax.config import make_config
from fdgjax.sweeps.choosing import cells_of, choosing_of, default_methods, protocol_of
from tests.sweeps.test_choose import DOMAINS, command


def test_candidates_learn_from_labels_and_gather_no_data() -> None:
    names = default_methods("leave_one_out")
    assert {"fedavg", "local", "hfedf"} <= set(names)
    assert not {"central", "fedsimclr", "uap"} & set(names)
    assert names == default_methods("every_domain"), "for which such runs are refused in one line"
    assert "uap" in default_methods("labelled_server")
    assert protocol_of("uap_rotated_mnist_small", {}) == "labelled_server"
    assert protocol_of("uap_rotated_mnist_small", {"data.protocol": "unseen_client"}) == "unseen_client"
    assert protocol_of("pacs", {}) == protocol_of("", {}) == "leave_one_out"


@pytest.mark.parametrize(("given", "server"), [("r30", "r30"), ("", "r0")])
def test_a_labelled_servers_domain_is_the_same_in_all_runs_and_never_unseen(given: str, server: str) -> None:
    configs = [make_config(name) for name in ("uap", "ssfl")]
    for config in configs:
        config.data.server = given
    choosing = choosing_of(configs, "r45")
    assert choosing.domains == [name for name in DOMAINS if name != server]
    cells = cells_of(choosing)
    assert {cell.config.data.server for cell in cells} == {server}
    assert [cell.config.data.target for cell in cells] == choosing.domains * 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--config.data.server=r99"], "domain of data.server 'r99'"),
        (["--config.data.target=r0", "--config.data.server=r0"], "domain of data.server 'r0'"),
        (
            ["--config.data.excluded=r0,r15,r30,r75"],
            "choose got 1 training domains, r60, besides the server's r45; expected at least two",
        ),
    ],
)
def test_mistakes_are_one_line(more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path / "out", "--methods", "ssfl", *more)) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


@pytest.mark.slow
def test_from_python_candidates_learn_where_the_labels_are() -> None:
    rng = np.random.default_rng(0)
    data = {f"site{i}": (rng.integers(0, 256, (20, 8, 8, 1), np.uint8), rng.integers(0, 2, 20)) for i in range(4)}
    made = fdgjax.choose(
        data=data, seeds=1, rounds=1, local_epochs=1, data__protocol="labelled_server", data__server="site1"
    )
    assert {"uap", "ssfl"} <= set(made.scores)
    assert "fedavg" not in made.scores
    assert set(made.scores["uap"]) == {"site0", "site2", "site3"}
