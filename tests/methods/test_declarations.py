"""What a method file must declare, and what is refused where it is declared."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fdgjax import methods
from fdgjax.config import make_config
from fdgjax.config.presets import PRESETS, dataset_of
from fdgjax.data.sources.loading import DATASETS
from fdgjax.methods import METHODS
from fdgjax.methods.parts.hyper import When, hyper
from fdgjax.utils.errors import UserError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from fdgjax.methods.fedprox import ENTRY", "got ENTRY of the name 'fedprox'"),
        ("RATE = 0.1", "got no ENTRY"),
    ],
)
def test_a_copied_file_does_not_replace_the_method_that_it_was_copied_from(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fedzzz.py").write_text(text)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "fdgjax.methods.fedzzz", raising=False)
    with pytest.raises(UserError, match=rf'fedzzz.py {said}; expected ENTRY = Entry\("fedzzz", ...\)'):
        methods.method_entries()


@pytest.mark.parametrize(
    ("default", "bounds", "said"),
    [
        (-1.0, {}, "got -1.0 in hyper(-1.0, search=(-1.0, 0.5)); expected a number from 0; set other bounds by least"),
        (
            0.5,
            {"least": -2, "most": 0.4},
            "got 0.5 in hyper(0.5, search=(-1.0, 0.5)); expected a number from -2 to 0.4",
        ),
        (0.5, {"above": 0}, "got -1.0 in hyper(0.5, search=(-1.0, 0.5)); expected a number above 0"),
    ],
)
def test_a_declaration_outside_its_own_bounds_is_refused(default: float, bounds: Mapping[str, Any], said: str) -> None:
    """A run would be told that the value, which nobody set, is none, and to take the same one."""
    with pytest.raises(UserError, match=re.escape(said)):
        hyper(default, search=(-1.0, 0.5), source="ours", **bounds)
    hyper(default, search=(-1.0, 0.5), source="ours", least=-1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"search": (0.5, "half")}, "got 'half' in hyper(0.5, search=(0.5, 'half')); expected a float"),
        ({"search": (True,)}, "got True in hyper(0.5, search=(True,)); expected a float"),
        ({"when": lambda h: True}, "expected When(lambda h: ..., otherwise=...)"),
    ],
)
def test_what_no_search_could_try_is_refused_where_it_is_declared(arguments: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        hyper(0.5, **{"search": (0.5,), "source": "ours", **arguments})
    hyper(0.5, search=(0.5, 1), source="ours", when=When(lambda h: True))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_preset_is_a_config_of_every_method(name: str) -> None:
    """Also of one that it was not made for, such as FedAvg on FedGaLA's images."""
    for preset in {*DATASETS, *PRESETS}:
        config = make_config(name, preset)
        assert (config.method.name, config.data.name) == (name, dataset_of(preset))


def test_a_methods_own_settings_are_of_presets_that_exist() -> None:
    for entry in METHODS.values():
        assert entry.presets.keys() <= DATASETS.keys() | PRESETS.keys(), entry.name
