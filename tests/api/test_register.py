"""Methods, networks, data sets, augmentations and figures of one's own, by names, and runs that use them."""

import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fdgjax
from fdgjax.aggregation.robust import RobustSettings
from fdgjax.cli import predict, subcommands
from fdgjax.config import make_config, read_config
from fdgjax.config.provenance import check_registered, provenance
from fdgjax.config.register import REGISTRIES
from fdgjax.data.augmentations.simclr import random_flip
from fdgjax.data.augmentations.training import AUGMENTATIONS, augmentation
from fdgjax.engine.robustness.defences import RULES
from fdgjax.evaluation.metrics import figure_keys, short_names
from fdgjax.evaluation.probabilities import figures_of_samples
from fdgjax.evaluation.probability_figures import FIGURES, figure_of, keys_of
from fdgjax.evaluation.selection import reported
from fdgjax.methods import METHODS
from fdgjax.methods.fedavg import ENTRY as FEDAVG
from fdgjax.utils.checksums import read_checked_json
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lent
from tests.api.test_python import Flat, X, arrays
from tests.docs.pages import README

METHOD = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[-1]


def test_what_is_the_packages_own_stays() -> None:
    assert fdgjax.register_method(FEDAVG) == "fedavg"
    for add in (
        lambda: fdgjax.register_method(FEDAVG._replace(summary="another")),
        lambda: fdgjax.register_model("inception", Flat()),
        lambda: fdgjax.register_data("pacs", arrays()),
        lambda: fdgjax.register_augmentation("flip", darker),
        lambda: fdgjax.register_rule("median", first_client),
    ):
        with pytest.raises(UserError, match="is the package's own"):
            add()
    with pytest.raises(UserError, match="is a preset's"):
        fdgjax.register_data("fdse_pacs", arrays())
    with pytest.raises(UserError, match="got str; expected a function"):
        fdgjax.register_augmentation("mine", "darker")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="expected letters"):
        fdgjax.register_model("a:b", Flat())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unit": "dsee"}, "unknown unit of method 'mine' 'dsee'; .* did you mean 'dse'"),
        ({"head": "projektion"}, "unknown head of method 'mine' 'projektion'; .* did you mean 'projection'"),
        (
            {"presets": {"pacs": {"local_epoch": 3}}},
            "preset 'pacs' of method 'mine' cannot be .*local_epoch.*; expected",
        ),
        ({"presets": {"pacs": {"rounds": "few"}}}, "preset 'pacs' of method 'mine' cannot be .*; expected keys of the"),
    ],
)
def test_an_entry_with_a_mistake_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    def configured() -> None:
        make_config(fdgjax.register_method(FEDAVG._replace(name="mine", **changes)), "pacs")

    with lent(METHODS, {"mine": FEDAVG}), pytest.raises(UserError, match=said):
        configured()


def darker(key: jax.Array, images: jax.Array) -> jax.Array:
    del key
    return (images + 1) / 2 - 1


def test_an_augmentation_of_ones_own_is_applied_in_its_place_of_a_list() -> None:
    fdgjax.register_augmentation("darker", darker)
    fdgjax.register_augmentation("smaller", lambda key, images: images[:, ::2])
    images = jnp.asarray(X, jnp.float32) / 127.5 - 1
    both, smaller = augmentation("flip,darker"), augmentation("smaller")
    assert both is not None
    assert smaller is not None
    first, second = jax.random.split(jax.random.key(0))
    np.testing.assert_array_equal(both(jax.random.key(0), images), darker(second, random_flip(first, images)))
    with pytest.raises(UserError, match=r"'smaller' made float32 \[20, 2, 3, 1\] of float32 \[20, 4, 3, 1\]; expected"):
        jax.eval_shape(smaller, jax.random.key(0), images)
    config = make_config("fedavg", "rotated_digits")
    config.data.augmentation = "flip,darker,smaller,darker"
    found = provenance(read_config(config))["registered"]
    assert {key: one["name"] for key, one in found.items()} == {
        "data.augmentation": "darker",
        "data.augmentation=smaller": "smaller",
    }
    del AUGMENTATIONS["smaller"]
    with pytest.raises(UserError, match=r"RUN needs the augmentation 'smaller', of .* --with .*test_register"):
        check_registered("RUN", {"registered": found})


def first_client(updates: Any, weights: Any, *, hostile: int) -> tuple[Any, jax.Array]:
    """The update of the first client that takes part."""
    del hostile
    first = jnp.argmax(weights > 0)
    return jax.tree.map(lambda u: u[first], updates), jax.nn.one_hot(first, len(weights))


def test_a_rule_of_ones_own_replaces_every_update_by_its_centre() -> None:
    fdgjax.register_rule("first_client", first_client, least=lambda hostile: hostile + 1)
    config = make_config("fedavg", "rotated_digits")
    config.defence.rule = "first_client"
    assert {key: one["name"] for key, one in provenance(read_config(config))["registered"].items()} == {
        "defence.rule": "first_client"
    }
    trained = fdgjax.experiment("fedavg", data=arrays(), model=Flat, rounds=1, defence__rule="first_client").train()
    share = trained.records[0]["defence/share"]
    assert share == [1, *[0] * (len(share) - 1)]
    rule = RULES["first_client"]
    assert rule is not None
    updates = {"w": jnp.arange(6.0).reshape(3, 2)}
    centre, share = rule.apply(updates, jnp.array([0.0, 1.0, 1.0]), RobustSettings())
    np.testing.assert_array_equal(centre["w"], [2, 3])
    np.testing.assert_array_equal(share, [0, 1, 0])
    assert rule.least(3) == 4


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (0.5, "the robust rule 'mine' got float; expected a function .updates, weights, hostile=f."),
        (lambda updates, weights: updates, "the robust rule 'mine' cannot be run .TypeError"),
        (lambda u, w, hostile: u, "the robust rule 'mine' cannot be run .ValueError"),
        (lambda u, w, hostile: (u, w), r"'mine' made the centre of shapes .*\(3, 2\).*; expected .*\(2,\)"),
        (lambda u, w, hostile: ({"w": u["w"][0]}, 1.0), r"'mine' made the shares of shapes \(\); expected \(3,\)"),
    ],
)
def test_a_rule_with_a_mistake_is_refused_in_one_line(rule: Any, said: str) -> None:
    def applied() -> None:
        fdgjax.register_rule("mine", rule)
        made = RULES["mine"]
        assert made is not None
        made.apply({"w": jnp.arange(6.0).reshape(3, 2)}, jnp.ones(3), RobustSettings())

    with pytest.raises(UserError, match=said):
        applied()


def least_certain(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None) -> float:
    del labels, threshold
    return float(probabilities.max(axis=1).min())


def test_a_figure_of_ones_own_is_a_figure_of_config_and_a_rule_of_selection() -> None:
    fdgjax.register_figure("least_certain", least_certain, title="least certain")
    fdgjax.register_figure("least_certain", least_certain, title="surest at least")
    assert short_names()["ood_least_certain"] == "ood surest at least"
    assert set(keys_of("least_certain")) <= set(figure_keys())
    config = make_config("fedavg", "rotated_digits")
    config.update({"figures": "auroc,least_certain", "selection": "validation:least_certain"})
    found = provenance(read_config(config))["registered"]
    assert {key: one["name"] for key, one in found.items()} == {"figures": "least_certain"}
    rounds = [{"round": 1, "id_accuracy": 0.9, "id_least_certain": 0.2}, {"round": 2, "id_least_certain": 0.4}]
    assert reported(rounds, "validation:least_certain")["round"] == 1, "the other round was not evaluated"
    labels, probabilities = np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]])
    of_samples = figures_of_samples(labels, probabilities, 0.5)["least_certain"]
    assert of_samples["value"] == pytest.approx(0.6)
    assert of_samples["interval"] == pytest.approx([0.6, 0.7])


def test_what_a_figure_writes_into_its_arguments_reaches_no_other() -> None:
    def careless(labels: np.ndarray, probabilities: np.ndarray, threshold: float | None) -> float:
        del threshold
        labels[:], probabilities[:] = 0, 0.5
        return 0.5

    fdgjax.register_figure("careless", careless)
    labels, probabilities = np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.3, 0.7], [0.4, 0.6]])
    figure_of(FIGURES["careless"], labels, probabilities, None)
    assert labels.tolist() == [0, 1, 1]
    assert probabilities[0, 0] == 0.9


@pytest.mark.parametrize(
    ("name", "of", "said"),
    [
        ("auroc", least_certain, "the figure 'auroc' is the package's own"),
        ("accuracy", least_certain, "the name 'accuracy', but .*_accuracy is another figure's key"),
        ("all_auroc", least_certain, "the name 'all_auroc', but id_all_auroc is another figure's key"),
        ("my-own", least_certain, "got 'my-own'; expected letters, digits and '_'"),
        ("mine", 0.5, "the figure 'mine' got float; expected a function"),
    ],
)
def test_a_figure_with_a_mistake_is_refused_in_one_line(name: str, of: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        fdgjax.register_figure(name, of)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (lambda labels, p, threshold: p.no_such_thing, "the figure 'mine' cannot be run .AttributeError"),
        (lambda labels, p, threshold: p, "the figure 'mine' cannot be run .TypeError"),
        (lambda labels, p, threshold: np.nan, "the figure 'mine' made nan of 2 samples; expected a finite number"),
    ],
)
def test_a_figure_that_is_no_number_is_refused_in_one_line(of: Any, said: str) -> None:
    fdgjax.register_figure("mine", of)
    figure = FIGURES.pop("mine")
    with pytest.raises(UserError, match=said):
        figure_of(figure, np.array([0, 1]), np.full((2, 2), 0.5), None)


@pytest.mark.slow
def test_a_method_outside_the_package_is_trained_and_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """README's method, from a config file that imports it; its run names that file, and `--with` opens it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(subcommands.WITH, "")
    (tmp_path / "of_readme.py").write_text(METHOD)
    (tmp_path / "own_config.py").write_text(
        "from functools import partial\nimport fdgjax\nfrom fdgjax.config import make_config\n"
        "import of_readme\nfrom tests.api.test_register import Flat, arrays, darker, least_certain\n"
        "fdgjax.register_method(of_readme.ENTRY)\nfdgjax.register_data('own', arrays())\n"
        "fdgjax.register_model('flat', Flat)\nfdgjax.register_augmentation('darker', darker)\n"
        "fdgjax.register_figure('least_certain', least_certain)\n"
        "def get_config(preset='own'):\n    config = make_config('fedmedian', preset)\n"
        "    config.model.name = 'flat'\n"
        "    config.data.augmentation = 'flip,darker'\n    config.figures = 'least_certain'\n    return config\n"
    )
    file = str(tmp_path / "own_config.py")
    result = fdgjax.experiment(file, rounds=1, method__scale=0.5).train(tmp_path / "run")
    registered = read_checked_json(tmp_path / "run" / "config.json")["registered"]
    assert re.fullmatch("[0-9a-f]{8}", registered["method.name"].pop("program"))
    assert registered == {
        key: {"name": name, "from": file}
        for key, name in (
            ("method.name", "fedmedian"),
            ("model.name", "flat"),
            ("data.name", "own"),
            ("data.augmentation", "darker"),
            ("figures", "least_certain"),
        )
    }
    assert 0 < result.summary["ood_least_certain"] <= 1
    for entries in REGISTRIES.values():
        for name in set(entries) - entries.own:
            del entries[name]
    with pytest.raises(UserError, match="needs the method 'fedmedian' and the model 'flat' and the data set 'own' and"):
        fdgjax.open_run(tmp_path / "run")
    image = tmp_path / "image.png"
    image.write_bytes(b"")
    assert predict.main(["predict", str(tmp_path / "run"), str(image)]) == 2
    assert f"`fdgjax --with {file} ...`" in capsys.readouterr().err
    assert subcommands.main(["fdgjax", "--with", file, "methods"]) == 0
    assert "fedmedian" in capsys.readouterr().out
    again = fdgjax.open_run(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(X), result.predict_proba(X))
    assert predict.main(["predict", str(tmp_path / "run"), str(image)]) == 2
    assert "trained on arrays of 4x3" in capsys.readouterr().err


def test_a_file_that_is_none_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(subcommands.WITH, "")
    (tmp_path / "broken.py").write_text("1 / 0")
    assert subcommands.main(["fdgjax", f"--with={tmp_path / 'broken.py'}", "methods"]) == 2
    assert "cannot be run (ZeroDivisionError" in capsys.readouterr().err
    monkeypatch.setenv(subcommands.WITH, "")
    assert subcommands.main(["fdgjax", "--with", str(tmp_path / "none.py"), "methods"]) == 2
    assert "no such file" in capsys.readouterr().err
    monkeypatch.setenv(subcommands.WITH, "")
    assert subcommands.main(["fdgjax", "--with"]) == 2
    assert "got nothing" in capsys.readouterr().err
    assert "fedmedian" not in METHODS


@pytest.mark.parametrize(("shape", "network"), [((6,), "mlp"), ((20, 3), "conv1d"), ((4, 3, 1), "digits_cnn")])
def test_registered_arrays_have_the_network_of_given_ones(shape: tuple[int, ...], network: str) -> None:
    images = len(shape) == 3
    draw = np.random.default_rng(0)
    data = {
        name: (draw.integers(0, 255, (9, *shape)).astype(np.uint8 if images else np.float32), np.arange(9) % 3)
        for name in ("one", "two", "three")
    }
    fdgjax.register_data("mine", data)
    given = fdgjax.experiment("fedavg", data=data, rounds=1).config.model.name
    assert make_config("fedavg", "mine").model.name == given == network
