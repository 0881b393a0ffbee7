"""Splits that are given are kept by every protocol: nothing that is for evaluation is trained on."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdgjax
from fdgjax.api.trainer import lending
from fdgjax.data.given_splits import Splits, field_in, splits_of
from fdgjax.data.groups import numbered
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.data.sources.arrays import content_digest
from fdgjax.data.sources.domains import Domains
from fdgjax.run.description import notes
from fdgjax.utils.errors import UserError
from tests.data.test_protocols import NAMES, split
from tests.toys import domains_of

LAW = settings(derandomize=True, deadline=None, max_examples=60)
SIZES = (40, 40, 40, 40)
OUT = NAMES.index("west")


def drawn(seed: int, shares: tuple[float, float, float]) -> Splits:
    """Each sample of domains of `SIZES` is for something by these chances; each domain has some of every kind."""
    rng = np.random.default_rng(seed)
    fields = [rng.random(sum(SIZES)) < share for share in shares]
    for domain in range(len(SIZES)):
        for place, field in enumerate(fields):
            own = domains_of(SIZES).domains == domain
            field[own] = np.where(np.arange(40) % 8 < 3, np.arange(40) % 8 == place, field[own])
    train, validation, test = fields
    return Splits(train, validation & ~train, test)


@LAW
@given(
    seed=st.integers(0, 99),
    shares=st.tuples(*[st.sampled_from([0.0, 0.2, 0.6])] * 3),
    clients=st.integers(0, 4),
    chosen=st.sampled_from([{}, {"homogeneity": 0.5}, {"domains_per_client": 2}, {"label_skew": 1.0, "clients": 4}]),
    shots=st.integers(0, 1),
    protocol=st.sampled_from(sorted(PROTOCOLS)),
)
def test_each_sample_is_what_it_is_given_for(
    seed: int, shares: tuple[float, float, float], clients: int, chosen: dict[str, Any], shots: int, protocol: str
) -> None:
    splits = drawn(seed, shares)
    data = domains_of(SIZES)._replace(splits=splits)
    keys = {"clients": clients or 2, "shots": shots, "server": "north", "seed": seed, **chosen}
    takes = PROTOCOLS[protocol].takes
    parts = split(data, protocol, **{key: value for key, value in keys.items() if key in takes})
    unseen = data.domains == (OUT if "target" in takes else -1)
    train, validation, test = (np.concatenate(rows) for rows in (parts.train, parts.validation, parts.test))
    assert splits.train[train].all()
    assert splits.train[parts.server].all()
    assert splits.test[parts.target].all()
    assert set(parts.target) == set(np.flatnonzero(splits.test & unseen)), "a test sample of the target is left out"
    assert len(train[unseen[train]]) == (shots * len(parts.train) if "shots" in takes else 0)
    assert not splits.test[train[unseen[train]]].any(), "a test sample of the target is a shot"
    own = np.concatenate([train[~unseen[train]], validation, test, parts.server])
    assert len(np.unique(own)) == len(own)
    assert not unseen[own].any()
    # Of a client without validation samples, some of its training samples are held out.
    assert (splits.validation | splits.train)[validation].all()
    assert (splits.test & ~splits.train & ~splits.validation)[test].all()
    if not chosen and len(parts.train) >= 3:
        of_sources = splits.used & ~unseen & (data.domains != (NAMES.index("north") if "server" in takes else -1))
        assert set(np.concatenate([train[~unseen[train]], validation, test])) == set(np.flatnonzero(of_sources))


@pytest.mark.parametrize("protocol", ["leave_one_out", "unseen_client"])
def test_lists_that_test_on_every_image_test_on_those_of_the_unseen_domain(protocol: str) -> None:
    """PACS's: each image is for training or validation, and for tests, too."""
    data = domains_of(SIZES)
    validation = np.arange(sum(SIZES)) % 10 == 0
    data = data._replace(splits=Splits(~validation, validation, np.ones(sum(SIZES), bool)))
    parts = split(data, protocol)
    assert sorted(parts.target) == np.flatnonzero(data.domains == OUT).tolist()
    for train, held in zip(parts.train, parts.validation, strict=True):
        assert not validation[train].any()
        assert validation[held].all() or not validation[np.concatenate([train, held])].any()
    shots = split(data, protocol, shots=2)
    assert len(shots.target) == 40 - 2 * 3
    assert not np.isin(np.concatenate(shots.train), shots.target).any()


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_what_no_list_has_is_held_out_at_random(protocol: str) -> None:
    data = domains_of(SIZES)
    nothing = np.zeros(sum(SIZES), bool)
    takes = PROTOCOLS[protocol].takes
    parts = split(data._replace(splits=Splits(~nothing, nothing, nothing)), protocol, server="north")
    for train, held, tested in zip(parts.train, parts.validation, parts.test, strict=True):
        assert len(held) == (8 if "test" in takes else 10)  # a quarter of what is left after tests
        assert len(tested) == (10 if "test" in takes else 0)
        assert len(train) == 40 - len(held) - len(tested)
    assert len(parts.target) == {"leave_one_out": 40, "labelled_server": 40, "unseen_client": 10}.get(protocol, 0)


def by_name(**fields: np.ndarray) -> Domains:
    none = {field: np.zeros(sum(SIZES), bool) for field in Splits._fields}
    return domains_of(SIZES)._replace(splits=Splits(**none | fields))


EVERY = np.ones(sum(SIZES), bool)


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (by_name(train=domains_of(SIZES).domains != 3), "have no sample of 'south'; expected some of each domain, or"),
        (by_name(test=EVERY), r"(client 0|east) has 40 samples, of which the given splits have none for training"),
        (
            by_name(train=np.arange(160) < 80, validation=np.arange(160) >= 80)._replace(
                groups=numbered(domains_of(SIZES).domains, map(str, np.arange(160) // 32))
            ),
            r"has \d group.* with samples in two of the given splits; expected all samples of a group in one",
        ),
    ],
)
def test_splits_that_cannot_be_kept_are_one_line(protocol: str, data: Domains, said: str) -> None:
    with pytest.raises(UserError, match=said):
        split(data, protocol, server="north", clients=0)


def test_a_split_has_the_names_that_data_sets_give_it() -> None:
    splits = splits_of(["train", "Val", "test", "TRAINING", "crossval", "dev"])
    assert splits.train.tolist() == [True, False, False, True, False, False]
    assert splits.validation.tolist() == [False, True, False, False, True, True]
    assert splits.test.tolist() == [False, False, True, False, False, False]
    names = ["art_painting_train_kfold", "photo_crossval_kfold", "CALTECH_test", "real-val", "testament", "checksums"]
    assert [field_in(name) for name in names] == ["train", "validation", "test", "validation", "", ""]
    with pytest.raises(UserError, match=r"train_test is by its name for test and train; expected one of them"):
        field_in("train_test")


def test_a_run_knows_its_splits_and_leaves_no_sample_out_unsaid() -> None:
    data = domains_of(SIZES)
    splits = splits_of(["train", "train", "val", "test"] * 40)
    one, other = data._replace(splits=splits), data._replace(splits=splits._replace(test=splits.validation))
    assert len({content_digest(each) for each in (data, one, other)}) == 3, "a run goes on with other splits"
    unused = one._replace(splits=splits._replace(train=splits.train & (np.arange(160) % 8 > 0)))
    with lending({"own": unused}):
        made = fdgjax.experiment("fedavg:arrays", data__name="own", target="west", devices=1).built
    assert not notes(made), "samples of no split are reported as those of no client"
    assert unused.splits is not None
    own = [np.concatenate([*rows, made.parts[0].target]) for rows in zip(*made.parts[0][:3], strict=True)]
    assert set(np.concatenate(own)) == set(np.flatnonzero(unused.splits.used & ((data.domains != OUT) | splits.test)))
    tested = data.labels[made.parts[0].target]
    assert made.facts["target_majority"] == np.bincount(tested).max() / len(tested), "of samples that are not tested on"
