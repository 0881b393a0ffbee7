"""A party's secret is made once and its own, a release is known by all that it is made of, and an account is exact."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fdgjax.deploy.account import ACCOUNT, SECRET, Cost, fingerprint, make_guard, refuse_short, secret_in
from fdgjax.engine.privacy import Exposure, budget
from fdgjax.utils.errors import UserError

COST = Cost(Exposure("poisson", 4, 9, 3), 1.3, 1e-3, 1e9)


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    secret = secret_in(tmp_path / "states")
    file = tmp_path / "states" / SECRET
    assert (len(secret), file.stat().st_mode & 0o777) == (32, 0o600)
    assert secret_in(file.parent) == secret
    assert sorted(found.name for found in file.parent.iterdir()) == ["privacy.json", "privacy.lock", SECRET]
    assert secret_in(tmp_path / "other") != secret
    file.chmod(0o644)
    with pytest.raises(UserError, match=r"mode 644, .* chmod 600"):
        secret_in(file.parent)
    file.chmod(0o600)
    file.write_bytes(secret[:-1])
    with pytest.raises(UserError, match="has 31 bytes; expected 32"):
        secret_in(file.parent)


ARRAYS = arrays.arrays(np.float32, st.integers(1, 4), elements=st.floats(width=32))
PARTS = st.lists(st.one_of(st.integers(), st.text(), st.dictionaries(st.text(), ARRAYS)), max_size=3)


@pytest.mark.slow
@given(PARTS, PARTS)
def test_two_releases_have_one_fingerprint_only_if_they_are_the_same(one: list[Any], other: list[Any]) -> None:
    def exact(parts: list[Any]) -> list[Any]:
        return [[(k, x.tobytes()) for k, x in part.items()] if isinstance(part, dict) else repr(part) for part in parts]

    assert (fingerprint(*one) == fingerprint(*other)) == (exact(one) == exact(other))
    assert fingerprint(*one) != fingerprint(*one, "more")


def test_an_account_counts_each_answer_once_and_no_more_than_the_budget(tmp_path: Path) -> None:
    spent = budget([COST.exposure], COST.noise, COST.delta)
    guard = make_guard(tmp_path, "run", COST._replace(most=spent(3)))
    for number, release in enumerate(("a", "b", "b", "a", "c"), start=1):
        expected = spent(min(number, 2) if release != "c" else 3)
        assert guard.charge(release) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(UserError, match="after 3 answers a further one would cost epsilon="):
        guard.charge("d")
    assert guard.charge("a") == pytest.approx(spent(3), rel=1e-12)
    # A limit of the node's own counts what other experiments have spent; without one, each has its own budget.
    for most, words in ((0.0, ""), (spent(3), "this node's own limit")):
        other = make_guard(tmp_path, f"other{most}", COST._replace(most_of_all=most))
        if not words:
            assert other.charge("a") == pytest.approx(spent(1), rel=1e-12)
            continue
        with pytest.raises(UserError, match=words):
            other.charge("a")
    for damaged in ("{", "[]", '{"run": {"a": [2.0]}}', None):
        (tmp_path / ACCOUNT).unlink()
        if damaged is not None:
            (tmp_path / ACCOUNT).write_text(damaged)
        with pytest.raises(UserError, match="cannot be read"):
            guard.charge("a")


def test_an_entry_whose_noise_is_no_number_leaves_nothing_of_any_budget(tmp_path: Path) -> None:
    guard = make_guard(tmp_path, "run", COST)
    guard.charge("a")
    file = tmp_path / ACCOUNT
    file.write_text(file.read_text().replace("1.3", "NaN"))
    with pytest.raises(UserError, match="the privacy budget is spent: after 1 answers"):
        guard.charge("b")
    with pytest.raises(UserError, match="the privacy budget is too small"):
        refuse_short(file, "other", COST._replace(most_of_all=1e9), 1)


def test_a_run_that_would_end_beyond_a_nodes_own_limit_is_refused_before_it_begins(tmp_path: Path) -> None:
    spent, file = budget([COST.exposure], COST.noise, COST.delta), tmp_path / ACCOUNT
    cost = COST._replace(most_of_all=spent(4))
    guard = make_guard(tmp_path, "run", cost)
    refuse_short(file, "run", cost, 4)
    with pytest.raises(UserError, match="after all 5 rounds this node would have spent epsilon="):
        refuse_short(file, "run", cost, 5)
    guard.charge("a")
    refuse_short(file, "run", cost, 4)  # it goes on
    refuse_short(file, "another", cost, 3)
    with pytest.raises(UserError, match="after all 4 rounds"):
        refuse_short(file, "another", cost, 4)
    refuse_short(file, "another", COST, 1000)
