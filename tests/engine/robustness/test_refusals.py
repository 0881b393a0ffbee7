"""Attacks and defences that would do nothing are refused, exactly where they would."""

from typing import Any

import numpy as np
import pytest

from fdgjax.config import make_config, read_config
from fdgjax.config.robustness import defence_of
from fdgjax.engine.robustness.attacks import ATTACKS, Attack
from fdgjax.engine.robustness.defences import check_defence
from fdgjax.engine.round import RoundPlan
from fdgjax.engine.traffic import sends_update
from fdgjax.experiments.components import with_attack
from fdgjax.utils.errors import UserError
from tests.toys import flat, lengths_for, make_plan, shared_case, shared_method, toy_federation


def config_of(method: str = "fedavg", **changes: Any) -> Any:
    config = make_config(method)
    config.update(changes)
    return read_config(config)


def attacked(name: str, config: Any) -> RoundPlan:
    """The plan of a method on the toy federation with the config's attack, if that is not refused."""
    federation = toy_federation(lengths_for(name))
    return with_attack(make_plan(), config, shared_method(name), federation, classes=10, images=True, features=False)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("local", "nan", "clients send no update; expected one on what they train on"),
        ("fedproto", "sign_flip", "clients send no update"),
        ("local", "label_flip", ""),
        ("fedproto", "label_flip", ""),
        ("rscfed", "label_flip", "clients learn without labels; expected one on updates"),
        ("rscfed", "nan", ""),
        ("fedsimclr", "label_flip", "clients learn without labels"),
        ("semifl", "label_flip", ""),
        ("ssfl", "label_flip", ""),
    ],
)
def test_an_attack_on_what_clients_do_not_have_is_refused(name: str, kind: str, message: str) -> None:
    config = config_of(name, attack={"kind": kind})
    if not message:
        assert attacked(name, config).attack
        return
    with pytest.raises(UserError, match=message) as error:
        attacked(name, config)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "fedproto", "fedsimclr", "hfedf", "local", "rscfed", "semifl", "ssfl"])
def test_an_attack_changes_what_it_is_not_refused_for(name: str) -> None:
    """An update of NaN and flipped labels change the state after a round exactly where they are accepted."""
    whole = shared_case(name, plan=make_plan(drop_nonfinite=True)).advance(1)
    for kind in ("nan", "label_flip"):
        attack = Attack(ATTACKS[kind], (14,), classes=3)
        after = shared_case(name, plan=make_plan(drop_nonfinite=True)._replace(attack=attack)).advance(1)
        try:
            accepted = bool(attacked(name, config_of(name, attack={"kind": kind, "ids": "1"})).attack)
        except UserError:
            accepted = False
        assert accepted != np.array_equal(flat(whole), flat(after)), kind


@pytest.mark.parametrize(("name", "sends"), [("local", False), ("fedproto", False), ("fedavg", True), ("hfedf", True)])
@pytest.mark.parametrize("chosen", [{"clip": "median"}, {"rule": "median"}])
def test_a_defence_needs_updates(name: str, sends: bool, chosen: dict[str, str]) -> None:
    federation = toy_federation(lengths_for(name))
    assert sends_update(shared_method(name), federation) == sends
    defence = defence_of(config_of(defence=chosen).defence)
    assert defence
    if sends and (chosen.get("clip") or shared_method(name).averaged):
        check_defence(defence, shared_method(name), 4, updates=sends)
        return
    with pytest.raises(UserError, match="does not average" if sends else "clients send no update") as error:
        check_defence(defence, shared_method(name), 4, updates=sends)
    assert "\n" not in str(error.value)
