"""Clients have the samples that they are said to own, under every protocol."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import fdgjax
from fdgjax.api.trainer import lending
from fdgjax.data.federation import Partition
from fdgjax.data.groups import numbered
from fdgjax.data.owners import owners_of
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.arrays import content_digest
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.loading import load_data
from fdgjax.experiments import build, client_names, describe
from fdgjax.run.description import histogram
from fdgjax.run.summaries import Timings, summaries
from fdgjax.utils.errors import UserError
from tests.data.sources.test_tables import loaded, written
from tests.data.test_given_splits import drawn
from tests.data.test_protocols import NAMES, split
from tests.toys import domains_of

LAW = settings(derandomize=True, deadline=None, max_examples=60)
SIZES = (40, 40, 40, 40)
OUT = NAMES.index("west")


def owned(seed: int, owners: int) -> Domains:
    """Samples of four domains, each of one of so many owners, who have some of one or several domains."""
    data, rng = domains_of(SIZES), np.random.default_rng(seed)
    held = rng.random((owners, 4)) < 0.6
    held[np.arange(4) % owners, np.arange(4)] = True
    of_each = np.zeros(len(data.domains), int)
    for domain in range(4):
        rows = np.flatnonzero(data.domains == domain)
        of_each[rng.permutation(rows)] = np.resize(np.flatnonzero(held[:, domain]), len(rows))
    return data._replace(owners=owners_of([f"site{one}" for one in of_each]))


def names_of(data: Domains, parts: Partition) -> list[set[str]]:
    """The owners of each client's samples, shots left out."""
    assert data.owners is not None
    rows = [np.concatenate(own) for own in zip(parts.train, parts.validation, parts.test, strict=True)]
    return [{data.owners.names[data.owners.numbers[row]] for row in own if data.domains[row] != OUT} for own in rows]


@LAW
@given(
    seed=st.integers(0, 99),
    owners=st.integers(1, 6),
    protocol=st.sampled_from(sorted(PROTOCOLS)),
    shots=st.integers(0, 1),
    listed=st.booleans(),
)
def test_a_client_has_what_it_owns_and_nothing_else(
    seed: int, owners: int, protocol: str, shots: int, listed: bool
) -> None:
    data = owned(seed, owners)
    data = data._replace(splits=drawn(seed, (1.0, 0.3, 0.3)) if listed else None)
    takes = PROTOCOLS[protocol].takes
    keys: dict[str, Any] = {"shots": shots, "server": "north", "seed": seed}
    parts = split(data, protocol, **{key: value for key, value in keys.items() if key in takes})
    sources = [d for d in range(4) if d != (OUT if "target" in takes else -1)]
    sources = [d for d in sources if not ("server" in takes and NAMES[d] == "north")]
    rows = np.flatnonzero(np.isin(data.domains, sources) & (data.splits is None or data.splits.used))
    found = [
        np.concatenate([train[np.isin(data.domains[train], sources)], held, tested])
        for train, held, tested in zip(parts.train, parts.validation, parts.test, strict=True)
    ]
    assert data.owners is not None
    expected = [rows[data.owners.numbers[rows] == one] for one in np.unique(data.owners.numbers[rows])]
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
    first = [min(data.domains[own]) for own in found]
    assert first == sorted(first), "clients are not in the order of their domains"


def test_an_owner_of_several_domains_is_one_client_and_its_share_of_the_target_is_unseen() -> None:
    data = domains_of(SIZES)
    words = np.array(["a", "b", "b", "c"])[data.domains]
    for protocol in ("leave_one_out", "unseen_client"):
        parts = split(data._replace(owners=owners_of(words)), protocol)
        assert len(parts.train) == 3
        assert (data.domains[parts.target] == OUT).all()
        assert not np.isin(np.concatenate(parts.train), np.flatnonzero(data.domains == OUT)).any()
    data = data._replace(owners=owners_of(words))
    assert names_of(data, split(data, "every_domain", target="")) == [{"a"}, {"b"}, {"c"}]
    assert names_of(data, split(data, target="south")) == [{"a"}, {"b"}]


def test_a_client_has_the_name_of_a_domain_that_it_alone_has() -> None:
    data = domains_of(SIZES)
    alone = split(data, shots=2)
    assert client_names(data, [alone, split(data, seed=1)]) == ["east", "north", "south"]
    assert client_names(data, [split(data, "every_domain", target="")]) == list(NAMES)
    assert client_names(data, [split(data, clients=4)]) == []
    assert client_names(data, [split(data, domains_per_client=2)]) == []
    assert client_names(data, [alone, alone._replace(validation=alone.validation[::-1])]) == []


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"clients": 4}, "config.data.clients got 4, but the data say which client has each sample; expected 0, or"),
        ({"homogeneity": 0.5}, "config.data.homogeneity got 0.5, but the data .*; expected -1, or"),
        ({"label_skew": 1.0}, "config.data.label_skew got 1, but"),
        ({"domains_per_client": 2}, "config.data.domains_per_client got 2, but .*; expected 1, or"),
    ],
)
def test_samples_with_owners_are_not_dealt(chosen: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        split(owned(0, 3), **chosen)


def test_a_group_has_one_owner() -> None:
    data = domains_of(SIZES)
    own = np.arange(160)
    data = data._replace(groups=numbered(data.domains, map(str, own // 2)), owners=owners_of(["x\n", "y"] * 80))
    with pytest.raises(UserError, match=r"'x\\n' and 'y' own samples of one group, and \d+ .* have several owners"):
        split(data)
    whole = data._replace(owners=owners_of(np.where(own // 2 % 2, "x", "y").tolist()))
    assert len(split(whole).train) == 2


def test_columns_names_and_arrays_say_whose_samples_are(tmp_path: Path) -> None:
    rows = "age,site,sick\n40,b,no\n50,a,yes\n41,b,no\n"
    tables = loaded(written(tmp_path, {"x.csv": rows, "y.csv": rows.replace("a,", "c,")}), owner="site")
    assert tables.owners is not None
    assert [tables.owners.names[one] for one in tables.owners.numbers] == ["b", "a", "b", "b", "c", "b"]
    assert [column.name for column in tables.columns] == ["age"]
    with pytest.raises(UserError, match=r"x.csv has no 'site' in line 2; expected an owner in each row"):
        loaded(written(tmp_path, {"x.csv": rows.replace("40,b", "40,")}), owner="site")
    with pytest.raises(UserError, match=r"x.csv has no 'site' in line 3; expected an owner in each row"):
        loaded(written(tmp_path, {"x.csv": rows.replace("a,", "?,")}), owner="site", missing=("?",))
    for domain in "xy":
        for number in range(4):
            file = tmp_path / "images" / domain / "ab"[number % 2] / f"s{number // 2}-{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(file)
    load = partial(load_data, "folder", data_dir=str(tmp_path / "images"), cache_dir=str(tmp_path / "c"), image_size=4)
    images = load(owner="^s[0-9]")
    assert images.owners is not None
    assert images.owners.names == ("s0", "s1")
    with pytest.raises(UserError, match=r"config.data.owner got '\^t', which is not found in the names of 8 of 8"):
        load(owner="^t")


def test_an_owner_is_the_same_in_files_of_all_kinds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A column of whole numbers is one of decimal ones where a value was missing once; no two long numbers are one."""
    labels = ["no", "yes", "no"]
    for name, sites in (
        ("p", [1, 2, 30]),
        ("q", [1.0, 2.0, 30.0]),
        ("r", pa.array(["1", "2", "A"]).dictionary_encode()),
    ):
        pq.write_table(pa.table({"age": [1, 2, 3], "sick": labels, "site": sites}), tmp_path / f"{name}.parquet")
    for name, sites in (("s", "1.0 2. 02"), ("t", "90071992547409921 90071992547409922 1.10"), ("u", "a 2 2")):
        each = zip(labels, sites.split(), strict=True)
        written(tmp_path, {f"{name}.csv": "age,sick,site\n" + "".join(f"3,{label},{site}\n" for label, site in each)})
    found = loaded(tmp_path, owner="site").owners
    assert found is not None
    expected = "1 2 30, 1 2 30, 1 2 A, 1 2 02, 90071992547409921 90071992547409922 1.10, a 2 2"
    assert [found.names[one] for one in found.numbers] == expected.replace(",", "").split()
    assert "'A' and 'a' own samples, two clients whose names differ in capitals or the form of accents" in caplog.text


def test_each_owner_has_a_name() -> None:
    with pytest.raises(UserError, match="1 of 3 samples have an owner without a name; expected a name for each"):
        owners_of(["a", " ", "b"])


def test_a_run_names_its_owners_and_goes_on_with_the_same_alone() -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    data = {name: {"inputs": x, "labels": y, "owners": [f"{name}-{i // 20}" for i in range(40)]} for name in "pqr"}
    made = fdgjax.experiment("fedavg", data=data, target="p", devices=1, rounds=1).built
    assert [len(rows) for rows in made.parts[0].train] == [18] * 4
    assert [line.split()[0] for line in histogram(made).splitlines()] == ["client", "q-0", "q-1", "r-0", "r-1"]
    assert made.facts["client_names"] == ["q-0", "q-1", "r-0", "r-1"]
    assert describe(made).client_names == ("q-0", "q-1", "r-0", "r-1")
    own = owned(0, 3)
    assert own.owners is not None
    other = own._replace(owners=own.owners._replace(names=("site0", "site1", "siteX")))
    assert len({content_digest(each) for each in (own, other, own._replace(owners=None))}) == 3


def test_runs_in_one_program_name_their_own_owners() -> None:
    """Who comes first depends on the unseen domain; runs with other numbers of clients train alone."""
    data = domains_of(SIZES)
    words = np.array([["a", "b"], ["b", "c"], ["c", "a"], ["a", "b"]])[data.domains, np.arange(160) % 2]
    with lending({"own": data._replace(owners=owners_of(words))}):
        one, other = (
            fdgjax.experiment("fedavg:arrays", data__name="own", target=out, devices=1).config
            for out in ("west", "east")
        )
        found = summaries(build(one, [other]), [[]] * 2, Timings(1.0, 1.0, 0))
        assert [each["client_names"] for each in found] == [["a", "b", "c"], ["b", "c", "a"]]
    uneven = data._replace(owners=owners_of(np.array(["a", "b", "b", "c"])[data.domains]))
    with lending({"own": uneven}), pytest.raises(UserError, match="one program: their clients are not equally many"):
        build(one, [other])
