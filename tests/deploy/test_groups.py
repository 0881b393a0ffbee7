"""Samples that belong together, at the nodes of a deployment: whole groups are held out, and groups are counted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdgjax.config import make_config, read_config, split_seed_of
from fdgjax.data.protocol_parts import SplitSpec
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.deploy.audit import read_log
from fdgjax.deploy.contents import contents_of
from fdgjax.deploy.evaluated_rounds import COUNTED, GROUPED, counts_like, plausible
from fdgjax.deploy.message_log import MESSAGES
from fdgjax.deploy.node_settings import NodeSettings
from fdgjax.deploy.own_samples import OwnPlaces, own_parts, positions, undecoded_samples
from fdgjax.deploy.rounds import Policy, run_rounds
from fdgjax.deploy.server import make_server
from fdgjax.deploy.terms import Terms, agree, no_samples
from fdgjax.deploy.wire import GROUPS, Reply
from fdgjax.experiments.chosen_data import chosen_data
from fdgjax.utils.errors import UserError
from tests.deploy.faulty import one_line
from tests.deploy.test_request_handlers import Direct
from tests.hospitals import NAMES, write_hospitals
from tests.runs import perceptron

__all__ = ["perceptron"]
VISITS = 24
"""Rows of each hospital."""
PATIENTS = 9


def write_grouped(folder: Path) -> Path:
    """Tables of which several rows are of one patient."""
    for file in write_hospitals(folder, VISITS).iterdir():
        head, *lines = file.read_text().splitlines()
        grouped = [f"{head},patient", *(f"{line},{place % PATIENTS}" for place, line in enumerate(lines))]
        file.write_text("\n".join(grouped) + "\n")
    return folder


def terms_of(folder: Path, unseen: int | None = None, **changes: Any) -> Terms:
    config = make_config("fedavg", "table")
    config.data.update({"dir": str(folder), "label": "sick", "ignored": "ward", "group": "patient"})
    config.data.update({"protocol": "every_domain", "target": ""} if unseen is None else {"target": NAMES[unseen]})
    config.update({"rounds": 2, "batch_size": 6, "devices": 1, "eval_every": 1, **changes})
    read = read_config(config)
    data = chosen_data(read.data, read.task)
    clients = len(NAMES) - (unseen is not None)
    return Terms(read, data.class_names, data.inputs.shape[1:], clients, data.columns, unseen=unseen)


def test_a_node_holds_out_the_groups_that_the_simulation_does(tmp_path: Path) -> None:
    terms = terms_of(write_grouped(tmp_path))
    data = chosen_data(terms.config.data, terms.config.task)
    parts = PROTOCOLS["every_domain"].split(data, SplitSpec(seed=split_seed_of(terms.config, terms.config.seed)))
    for party, name in enumerate(NAMES):
        rows = np.flatnonzero(data.domains == party)
        places = OwnPlaces(tmp_path / f"{name}.csv")
        found = positions(undecoded_samples(places.samples, terms), places, terms, party)
        for own, expected in zip(found, (parts.train[party], parts.validation[party], parts.test[party]), strict=False):
            np.testing.assert_array_equal(rows[own], expected)


def test_a_node_groups_its_images_by_their_names(tmp_path: Path) -> None:
    names = [f"p{place % 7}-{place}.png" for place in range(28)]
    for place, name in enumerate(names):
        file = tmp_path / "ab"[place % 2] / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
    config = make_config("fedavg", "folder")
    config.data.group = r"^p\d"
    terms = Terms(read_config(config), ("a", "b"), (8, 8, 3), 2)
    in_order = sorted(names)
    train, validation, *_ = positions(undecoded_samples(tmp_path, terms), OwnPlaces(tmp_path), terms, 0)
    patients = [{in_order[place][:2] for place in own} for own in (train, validation)]
    assert len(train) + len(validation) == len(names)
    assert patients[1]
    assert not patients[0] & patients[1]


def deployed(folder: Path, smallest: int, said: list[str], **changes: Any) -> dict[str, Any]:
    """The summary of the server after all rounds, in which the last hospital is unseen."""
    terms = terms_of(write_grouped(folder / "tables"), unseen=2, model={"name": "linear"}, **changes)
    settings = [
        NodeSettings(party, OwnPlaces(folder / "tables" / f"{name}.csv"), folder / name, smallest=smallest)
        for party, name in enumerate(NAMES)
    ]
    server = make_server(agree(terms), no_samples(terms))
    run_rounds(server, Direct(settings), folder / "server", Policy(), said.append)
    summary: dict[str, Any] = json.loads((folder / "server" / "summary.json").read_text())
    return summary


def test_the_server_counts_the_groups_that_the_nodes_evaluated_on(tmp_path: Path) -> None:
    summary = deployed(tmp_path, smallest=1, said=[])
    # A tenth of 24 rows are two: there is room for none of the groups of three and two but one of two.
    held_out = {"client0": 1, "client1": 1}
    terms = terms_of(tmp_path / "tables", unseen=2, model={"name": "linear"})
    logged = read_log(next(tmp_path.glob(f"{NAMES[0]}/{MESSAGES}"))).entries
    sent = next(one for one in logged if one.kind == "evaluate" and not one.down)
    assert set(sent.facts) == set(contents_of(terms).kinds["evaluate"].up) > {GROUPS}
    assert summary["groups_by_domain"] == {**held_out, "client2": PATIENTS}
    assert summary["images_by_domain"]["client2"] == VISITS
    assert summary["test_images"] == {"id_accuracy": 2.0, "ood_accuracy": float(PATIENTS)}
    records = [json.loads(line) for line in (tmp_path / "server" / "metrics.jsonl").read_text().splitlines()]
    assert all({COUNTED, GROUPED}.isdisjoint(record) for record in records)


@pytest.mark.slow
def test_a_node_sends_nothing_of_fewer_groups_than_its_smallest_number(tmp_path: Path) -> None:
    said = list[str]()
    summary = deployed(tmp_path, smallest=PATIENTS + 1, said=said, rounds=1)
    assert "ood_accuracy" not in summary
    assert any(line.startswith("client 2 sends no figures") and "groups" in line for line in said)


@pytest.mark.parametrize(
    "groups",
    [
        None,
        "",
        "[",
        "[" * 100_000,
        "3",
        '{"source": 4}',
        '{"source": 0}',
        '{"source": true}',
        "{}",
        '{"source": 2, "test": 2}',
        '{"source": 1.5}',
        '{"source": "2"}',
    ],
)
def test_numbers_of_groups_that_no_samples_have_are_an_error(groups: str | None, tmp_path: Path) -> None:
    terms = terms_of(write_grouped(tmp_path))
    like = counts_like({"source": 1})
    counts = {path: np.full_like(leaf, 3 if "total" in path else 0) for path, leaf in like.items()}
    right = Reply(0, counts, {GROUPS: '{"source": 3}'})
    assert not plausible(right, terms, 0).error
    wrong = right._replace(facts={} if groups is None else {GROUPS: groups})
    one_line(plausible(wrong, terms, 0), "no numbers of groups for its counts of source")


def test_a_group_is_not_both_trained_on_and_held_out_by_hand(tmp_path: Path) -> None:
    terms = terms_of(write_grouped(tmp_path), unseen=2)
    east, north, west = (tmp_path / f"{name}.csv" for name in NAMES)
    head, *lines = north.read_text().splitlines()
    north.write_text(
        "\n".join([head, *(f"{line[: line.rindex(',')]},n{place // 4}" for place, line in enumerate(lines))])
    )
    parts = own_parts(OwnPlaces(east, north), terms, 0, tmp_path)
    assert (len(parts.train.labels), parts.train.units) == (VISITS, PATIENTS)
    assert (len(parts.validation.labels), parts.validation.units) == (VISITS, 6)
    north.write_text(north.read_text().replace(",n3", ",7"))
    with pytest.raises(UserError, match=r"north\.csv and .*east\.csv share 1 group\(s\), such as '?7"):
        own_parts(OwnPlaces(east, north), terms, 0, tmp_path)
    # The unseen party trains on neither: its groups are those of both.
    target = own_parts(OwnPlaces(west, north), terms, 2, tmp_path).target
    assert (len(target.labels), target.units) == (2 * VISITS, PATIENTS + 5)
