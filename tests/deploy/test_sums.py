"""Whose server needs nothing but the weighted mean of messages is found from the step that the server runs."""

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from fdgjax.aggregation.robust import ROBUST
from fdgjax.contract import Method
from fdgjax.data.federation import Federation
from fdgjax.engine.robustness.defences import Defence, bound_of
from fdgjax.methods import METHODS
from tests.deploy.parties import DEPLOYED
from tests.deploy.sums import needs_only_mean
from tests.docs.pages import ROOT, sections
from tests.marks import mostly_slow
from tests.toys import build, lengths_for, make_plan, toy_federation

PLAN = make_plan()


def built(name: str) -> tuple[Method, Federation]:
    federation = toy_federation(lengths_for(name))
    return build(name, federation, "dense" if METHODS[name].unit else "norm"), federation


def by_need() -> list[set[str]]:
    """The methods in the two rows of the page's table: those whose server needs the mean, and the others."""
    section = sections(ROOT / "docs" / "deployment.md")["Secure aggregation"]
    return [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\|[^|`]*\| `.*\|$", section, re.MULTILINE)]


def test_the_pages_table_has_every_method_once() -> None:
    mean, each = by_need()
    assert not mean & each
    assert mean | each == set(DEPLOYED)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(DEPLOYED, ("fedavg",)))
def test_the_pages_table_is_what_the_methods_do(name: str) -> None:
    method, federation = built(name)
    assert needs_only_mean(method, PLAN, federation) == (name in by_need()[0])


@pytest.mark.slow
@pytest.mark.parametrize("defence", [Defence(rule=ROBUST["median"]), Defence(bound_of("median"))])
def test_a_defence_needs_every_message(defence: Defence) -> None:
    method, federation = built("fedavg")
    assert not needs_only_mean(method, PLAN._replace(defence=defence), federation)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "only_mean"),
    [
        (lambda weights: 2 * weights, True),  # weights need not sum to one
        (jnp.ones_like, False),  # another mean than that by the method's weights
        (lambda weights: jnp.where(weights > jnp.min(weights), weights, 0), False),
    ],
)
def test_only_the_mean_by_the_methods_own_weights_counts(
    factor: Callable[[jax.Array], jax.Array], only_mean: bool
) -> None:
    method, federation = built("fedavg")
    another = method._replace(
        aggregate=lambda server, rows, messages, weights: method.aggregate(server, rows, messages, factor(weights))
    )
    assert needs_only_mean(another, PLAN, federation) == only_mean
