"""Samples of one group stay together, whoever trains or is tested on them."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fdgjax.config import make_config, read_config
from fdgjax.data.groups import equal_parts, numbered, random_parts
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.domains import Domains
from fdgjax.data.sources.file_groups import file_groups
from fdgjax.experiments import build, image_facts
from fdgjax.utils.errors import UserError
from tests.data.test_protocols import split
from tests.toys import domains_of

LAW = settings(derandomize=True, deadline=None, max_examples=40)
COUNTS = st.lists(st.integers(1, 9), min_size=3, max_size=20)


def grouped(sizes: tuple[int, ...], largest: int, seed: int) -> Domains:
    """Domains of these sizes, in each of which groups of up to `largest` samples are mixed."""
    data, rng = domains_of(sizes), np.random.default_rng(seed)
    names = np.zeros(len(data.domains), int)
    for domain, size in enumerate(sizes):
        repeated = np.repeat(np.arange(size), rng.integers(1, largest + 1, size))[:size]
        names[data.domains == domain] = rng.permutation(repeated)
    return data._replace(groups=numbered(data.domains, map(str, names)))


@LAW
@given(
    sizes=st.tuples(*[st.integers(24, 40)] * 4),
    largest=st.integers(1, 4),
    d=st.integers(1, 3),
    clients=st.integers(0, 4),
    shots=st.integers(0, 1),
    protocol=st.sampled_from(sorted(PROTOCOLS)),
    seed=st.integers(0, 99),
)
def test_no_group_is_in_two_parts_or_at_two_clients(
    sizes: tuple[int, ...], largest: int, d: int, clients: int, shots: int, protocol: str, seed: int
) -> None:
    data = grouped(sizes, largest, seed)
    assert data.groups is not None
    takes = PROTOCOLS[protocol].takes
    keys = {"clients": clients, "domains_per_client": d, "shots": shots, "server": "north"}
    keys |= {"clients": 2, "domains_per_client": 1} if protocol == "labelled_server" else {}
    parts = split(data, protocol, seed=seed, **{key: value for key, value in keys.items() if key in takes})
    out = data.domain_names.index("west")
    own = [rows[data.domains[rows] != out] if "shots" in takes else rows for rows in parts.train]
    held = [*own, *parts.validation, *parts.test, parts.target, parts.server]
    found = [np.unique(data.groups[rows]) for rows in held]
    together = np.concatenate(found)
    assert len(np.unique(together)) == len(together)
    drawn = np.unique(data.groups[np.concatenate(parts.train)])
    assert not np.isin(data.groups[parts.target], drawn).any()
    assert all(len(rows) for rows in (*parts.train, *parts.validation))


@LAW
@given(counts=COUNTS, first=st.integers(1, 12), second=st.integers(1, 12), seed=st.integers(0, 99))
def test_parts_are_as_large_as_whole_groups_allow(counts: list[int], first: int, second: int, seed: int) -> None:
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    rows = np.arange(len(groups))
    try:
        parts = random_parts(rows, [first, second], np.random.default_rng(seed), groups, "a client")
    except UserError:
        assert first + second >= len(rows) - max(counts)
        return
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
    for asked, part, free in zip((first, second), parts, (rows, np.concatenate(parts[1:])), strict=False):
        sizes = np.bincount(groups[free])
        smallest_left = np.bincount(groups[np.setdiff1d(free, part)])
        left = asked - len(part)
        assert left >= 0 or len(part) == sizes[sizes > 0].min()
        assert smallest_left[smallest_left > 0].min() > left, "a group that fits was left out"


@LAW
@given(counts=COUNTS, count=st.integers(1, 6), seed=st.integers(0, 99))
def test_clients_share_groups_as_equally_as_their_sizes_allow(counts: list[int], count: int, seed: int) -> None:
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    parts = equal_parts(np.arange(len(groups)), count, np.random.default_rng(seed), groups)
    sizes = [len(part) for part in parts]
    assert sum(sizes) == len(groups)
    assert max(sizes) - min(sizes) <= max(counts)
    assert len(counts) < count or min(sizes) > 0


@LAW
@given(size=st.integers(4, 60), asked=st.integers(1, 3), seed=st.integers(0, 99))
def test_groups_of_single_samples_are_split_as_samples_are(size: int, asked: int, seed: int) -> None:
    rows = np.arange(size)
    each, whole = (random_parts(rows, [asked], np.random.default_rng(seed), groups, "") for groups in (rows, None))
    for own, expected in zip(each, whole, strict=True):
        np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize(
    ("protocol", "chosen", "groups", "said"),
    [
        ("leave_one_out", {"label_skew": 0.5}, 4, r"label_skew got 0.5, but samples are grouped.* expected 0"),
        ("leave_one_out", {"homogeneity": 0.5}, 4, r"homogeneity got 0.5, but samples are grouped.* expected -1"),
        ("leave_one_out", {}, 40, r"client 0 has 40 samples of 1 group\(s\): .* leaves none to train on"),
        ("every_domain", {"target": ""}, 20, r"east has 40 samples of 2 group\(s\): .* leaves none to train on"),
        ("leave_one_out", {"clients": 9}, 20, r"has 2 group\(s\) of samples for 3 clients"),
        ("leave_one_out", {"shots": 8}, 10, "config.data.shots got 8 for each of 3 clients, which are of all groups"),
    ],
)
def test_splits_that_would_tear_groups_apart_are_refused(
    protocol: str, chosen: dict[str, Any], groups: int, said: str
) -> None:
    data = domains_of((40, 40, 40, 40))
    order = np.argsort(data.domains, kind="stable")
    names = np.empty(len(order), int)
    names[order] = np.arange(len(order)) % 40 // groups
    with pytest.raises(UserError, match=said):
        split(data._replace(groups=numbered(data.domains, map(str, names))), protocol, **chosen)


@pytest.mark.parametrize("name", ["rotated_digits", "arrays"])
def test_data_without_columns_or_files_have_no_key_for_groups(name: str) -> None:
    config = make_config("fedavg", name)
    config.data.group = "patient"
    with pytest.raises(UserError, match=rf"config.data.group got 'patient'.*name={name}.*expected '', or .*table"):
        read_config(config)


@pytest.mark.parametrize("streaming", [False, True])
def test_an_experiment_holds_out_whole_groups_of_image_files(streaming: bool, tmp_path: Path) -> None:
    for domain, label, place in itertools.product("xyz", "ab", range(12)):
        file = tmp_path / domain / label / f"p{place % 5}-{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (20 * place, 0, 0)).save(file)
    config = make_config("fedavg", "folder")
    config.data.update({"dir": str(tmp_path), "cache_dir": str(tmp_path / "cache"), "image_size": 4, "target": "x"})
    config.data.update({"group": "^p[0-9]", "validation": 0.3, "streaming": streaming})
    config.model.name, config.devices = "digits_cnn", 1
    made = build(read_config(config))
    groups, parts = made.data.groups, made.parts[0]
    assert groups is not None
    assert len(np.unique(groups)) == 15
    for train, held in zip(parts.train, parts.validation, strict=True):
        assert len(train) + len(held) == 24
        assert not np.isin(groups[held], groups[train]).any()
    facts, shown = image_facts(made.data, parts), [*parts.validation, parts.target]
    assert facts["images_by_domain"]["x"] == 24
    assert facts["groups_by_domain"]["x"] == facts["test_images"]["ood_accuracy"] == 5
    assert sum(facts["groups_by_domain"].values()) == len(np.unique(groups[np.concatenate(shown)]))


def test_files_are_grouped_by_what_is_in_parentheses_or_by_all_that_is_found() -> None:
    names = ["p1-a.png", "p1-b.png", "p2-a.png"]
    assert file_groups(names, r"^p\d+") == ["p1", "p1", "p2"]
    assert file_groups(names, r"-(\w)") == ["a", "b", "a"]


def test_a_group_belongs_to_one_domain() -> None:
    assert numbered(np.array([0, 1, 0, 1, 1]), ["p1", "p1", "p2", "p2", "p1"]).tolist() == [0, 2, 1, 3, 2]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", r"config.data.group got '\(' .*; expected a regular expression"),
        (r"p2", r"not found in the names of 2 of 3 images, such as p1-a.png"),
        (r"p\d-b(x)?", r"not found in the names of 3 of 3 images"),
    ],
)
def test_names_without_a_group_are_refused(pattern: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        file_groups(["p1-a.png", "p1-b.png", "p2-a.png"], pattern)
