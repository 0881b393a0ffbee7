"""What a method gives that a round cannot go on with is refused in one line, before anything is compiled."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fdgjax.contract import Method
from fdgjax.engine import RoundPlan, init_state
from fdgjax.engine.round import run_round
from fdgjax.engine.unchanged import check_rows, check_weight_values
from fdgjax.methods.parts.extend import RowExtension, extend
from fdgjax.utils.errors import UserError
from tests.toys import LENGTHS, make_plan, shared_method, toy_federation


def traced(method: Method, plan: RoundPlan | None = None) -> None:
    """Traces a round of the method on the standard federation."""
    federation = toy_federation()
    state = jax.eval_shape(lambda data: init_state(method, data, 0), federation)
    jax.eval_shape(lambda state, data: run_round(method, plan or make_plan(), state, data), state, federation)


def with_row(first: jax.Array, after: jax.Array) -> Callable[[Method], Method]:
    """FedAvg with something more in its clients' rows, `first` and after each round `after`."""
    rows = jnp.stack([first] * len(LENGTHS))
    return lambda base: extend(base, row=RowExtension(lambda fresh: rows, lambda context, trained: after))


def not_aggregated(method: Method) -> Method:
    """The server's state gets the clients' axis."""
    stacked = lambda server: jax.tree.map(lambda leaf: jnp.stack([leaf] * len(LENGTHS)), server)  # noqa: E731
    return method._replace(update=lambda server, clients, aggregate, server_step: (stacked(server), clients))


def forgetful(method: Method) -> Method:
    """The server's state is lost."""
    return method._replace(update=lambda server, clients, aggregate, server_step: ({}, clients))


WRONG: dict[str, tuple[Callable[[Method], Method], str]] = {
    "a fraction in a row of integers": (
        with_row(jnp.int32(0), jnp.float32(0.5)),
        r"finish made float32 \[\] of int32 \[\] at \.more \(a client's row\); expected the shapes, types and names",
    ),
    "a row that grows": (with_row(jnp.zeros(2), jnp.zeros(3)), r"finish made float32 \[3\] of float32 \[2\] at \.more"),
    "an update with a client axis": (
        not_aggregated,
        r"update made float32 \[4, 4\] of float32 \[4\] at \[0\]\.variables.*\[0\] is the server's state",
    ),
    "a lost state": (forgetful, r"update made nothing of float32 .* at \[0\]\.variables"),
    "a weight for all": (
        lambda method: method._replace(weights=lambda lengths: jnp.float32(1)),
        r"weights made float32 \[\] of the numbers of samples of 4 clients; expected one weight for each",
    ),
    "too few weights": (
        lambda method: method._replace(weights=lambda lengths: jnp.ones(3)),
        r"weights made float32 \[3\] of the numbers of samples of 4 clients",
    ),
    "too few positions": (
        lambda method: method._replace(order=lambda key, labels, domains, count, size: jnp.arange(3)),
        r"order got positions int32 \[3\] for samples \[9\]; expected an integer position for each, padding included",
    ),
}


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_round_that_changes_what_states_are_is_refused(wrong: str, left_out: bool) -> None:
    change, said = WRONG[wrong]
    with pytest.raises(UserError, match=said):
        traced(change(shared_method("fedavg")), make_plan(drop_nonfinite=left_out))


def test_what_a_row_of_the_same_kind_becomes_is_not_refused() -> None:
    traced(with_row(jnp.zeros(2), jnp.ones(2))(shared_method("fedavg")))


def test_states_without_a_row_for_each_client_are_refused() -> None:
    check_rows({"a": jnp.zeros((2, 3)), "b": jnp.zeros(2)}, 2)
    for wrong, made in (
        (jnp.zeros(()), r"float32 \[\]"),
        (jnp.zeros((3, 2)), r"float32 \[3, 2\]"),
        (jnp.zeros(20), "20"),
    ):
        with pytest.raises(
            UserError, match=rf"{made}.* at \['b'\] of the clients' states; expected a row for each of 2"
        ):
            check_rows({"a": jnp.zeros((2, 3)), "b": wrong}, 2)


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_weights_that_are_none_are_refused_before_anything_is_trained(weights: list[float]) -> None:
    lengths = jnp.array([3, 4])
    check_weight_values(jnp.array([0.0, 1.0]), lengths)
    with pytest.raises(UserError, match=r"numbers of samples, \[3, 4\]; expected finite numbers from 0, not all 0"):
        check_weight_values(jnp.array(weights), lengths)
