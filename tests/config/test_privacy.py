"""Contradictions in `config.privacy` are one line each, and what all rounds cost is known before the first."""

from typing import Any

import pytest

from fdgjax.config import make_config, read_config
from fdgjax.experiments import build
from fdgjax.utils.errors import UserError

CLIENT = {"unit": "client", "noise": 1.0}


def config_of(privacy: dict[str, Any], **changes: Any) -> Any:
    config = make_config("fedavg")
    config.update({"rounds": 3, "devices": 1, "privacy": privacy, **changes})
    return read_config(config)


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        ({"epsilon": 3.0}, "config.privacy.epsilon got 3.0, but config.privacy.unit is empty, which protects nobody"),
        ({"unit": "clients", "noise": 1.0}, "unknown privacy.unit 'clients'; expected one of: client, sample"),
        ({"unit": "client"}, "noise=0.0 and epsilon=0.0; expected one of them above 0"),
        (CLIENT | {"epsilon": 3.0}, "noise=1.0 and epsilon=3.0; expected one of them above 0"),
        (CLIENT | {"clip": 0.0}, "config.privacy.clip got 0, which leaves nothing"),
        (CLIENT | {"clip": -1.0}, "config.privacy.clip got -1.0; expected a number from 0"),
        (CLIENT | {"noise": float("nan")}, "config.privacy.noise got nan; expected a number from 0"),
        (
            CLIENT | {"noise": 1e-155},
            "(config.privacy.noise) got 1e-155; expected a number from 1e-09 to 1e+06, such as",
        ),
        (
            CLIENT | {"noise": 1e160},
            "(config.privacy.noise) got 1e+160; expected a number from 1e-09 to 1e+06, such as",
        ),
        (CLIENT | {"delta": 1.0}, "config.privacy.delta got 1.0; expected a probability"),
        ({"unit": "sample", "noise": 1.0, "where": "clients"}, "config.privacy.where got 'clients', but noise that"),
        (CLIENT | {"where": "nowhere"}, "unknown privacy.where 'nowhere'; expected one of: clients, server"),
    ],
)
def test_contradictions(privacy: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        config_of(privacy)
    assert message in str(error.value)


def test_a_client_left_out_would_show() -> None:
    with pytest.raises(UserError, match=r"config.drop_nonfinite got True with config.privacy.unit=client"):
        config_of(CLIENT, drop_nonfinite=True)


def test_a_defence_would_make_one_update_depend_on_others() -> None:
    with pytest.raises(UserError, match=r"config.defence got a defence with config.privacy.unit=client"):
        config_of(CLIENT, defence={"clip": "median"})


def test_a_method_that_shows_more_is_refused_before_training() -> None:
    with pytest.raises(UserError, match=r"'fedavg' shows more: its server weighs clients .* \(method.weighting=unif"):
        build(config_of(CLIENT))


@pytest.mark.parametrize("unit", ["client", pytest.param("sample", marks=pytest.mark.slow)])
def test_a_delta_with_which_one_of_all_may_be_shown_is_refused(unit: str) -> None:
    with pytest.raises(
        UserError, match=rf"delta got 0.2, with which one of \d+ {unit}s may be shown entirely"
    ) as error:
        build(config_of({"unit": unit, "noise": 1.0, "delta": 0.2}))
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [{"unit": "client", "epsilon": 20.0}, {"unit": "sample", "epsilon": 2.0}])
def test_all_rounds_cost_what_was_asked_for(privacy: dict[str, Any]) -> None:
    experiment = build(config_of(privacy, method={"weighting": "uniform"}))
    assert experiment.epsilon is not None
    assert experiment.epsilon(1) < experiment.epsilon(3) <= privacy["epsilon"] < 1.01 * experiment.epsilon(3)
    assert experiment.facts["privacy_epsilon"] == experiment.epsilon(3)
    assert experiment.facts["privacy_unit"] == privacy["unit"]
    assert experiment.facts["privacy_noise"] > 0


def test_nothing_is_said_where_nobody_is_protected() -> None:
    experiment = build(config_of({}))
    assert experiment.epsilon is None
    assert not any(key.startswith("privacy") for key in experiment.facts)
