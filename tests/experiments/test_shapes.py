"""Samples that are no images: series of sites that measure differently are learnt, and features given as arrays train
as those that are kept of images."""

from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

import fdgjax
from fdgjax.nn import Dense

SITES = {"clinic": (1.0, 1.0, 0.0), "mobile": (1.3, 0.5, 0.4), "ward": (0.8, 2.0, -0.3), "home": (1.15, 0.7, 0.5)}
"""Of each site, the speed of its clock, its gain and its drift."""


def signals(rng: np.random.Generator, site: str, number: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Two channels of 64 points: a beat, or the same beat with a second one, at any phase, as the site has it."""
    rate, gain, drift = SITES[site]
    labels = rng.integers(0, 2, number)
    time = np.linspace(0, 4 * np.pi * rate, 64)[None] + rng.uniform(0, 2 * np.pi, (number, 1))
    beat = np.exp(4 * (np.cos(time) - 1)) + labels[:, None] * 0.8 * np.exp(4 * (np.cos(time - 1.6) - 1))
    both = np.stack([beat, np.roll(beat, 3, axis=1)], axis=-1) + rng.normal(0, 0.05, (number, 64, 2))
    return gain * (both + drift * np.linspace(-1, 1, 64)[None, :, None]), labels


@pytest.mark.slow
@pytest.mark.parametrize(("method", "figure"), [("central", "ood_accuracy"), ("fedbn", "ood_adapted_accuracy")])
def test_a_signal_is_learnt_on_a_site_that_has_another_clock_gain_and_drift(method: str, figure: str) -> None:
    """FedBN keeps each site's statistics, and takes those of the unseen one without labels. (FedAvg, whose BatchNorm
    averages them, stays at chance on the unseen site and on one of its own.)"""
    rng = np.random.default_rng(0)
    data = {site: signals(rng, site) for site in SITES}
    keys: Any = {"rounds": 8, "local_epochs": 2, "batch_size": 32, "devices": 1, "data.standardise": True}
    result = fdgjax.experiment(method, data=data, target="home", **keys).train()
    assert result.config.model.name == "conv1d"
    assert result.summary["id_accuracy"] > 0.9
    assert result.summary[figure] > 0.9


@pytest.mark.parametrize(
    ("method", "keys", "said"),
    [
        (
            "fedavg:rotated_digits",
            {"data.standardise": True},
            "images, whose scaling is config.data.scaling",
        ),
        (
            "fedavg:rotated_digits",
            {"data.label": "num"},
            "config.data.name=rotated_digits does not use it; expected ''",
        ),
        ("fedavg", {"data.crop_size": 4}, r"the samples \[3\] are no images; expected 0"),
        ("fedavg", {"data.scaling": "unit"}, r"the samples \[3\] are no images; expected 'signed'"),
        ("fedavg", {"data.image_size": 8}, "samples of .* are of 3; expected 0"),
        ("fedavg", {"data.standardise": True, "privacy.unit": "client", "privacy.noise": 1.0}, "no noise covers them"),
        ("feddg", {}, "method 'feddg' got samples that are no images"),
        ("fedavg", {"data.augmentation": "flip"}, "images"),
    ],
)
def test_what_samples_that_are_no_images_lack_is_refused_in_one_line(
    method: str, keys: dict[str, Any], said: str, cache: Path
) -> None:
    data = {name: (np.full((8, 3), number, np.float32), np.arange(8) % 2) for number, name in enumerate("ab")}
    given: dict[str, Any] = {"data.cache_dir": cache} if ":" in method else {"data": data}
    with pytest.raises(fdgjax.UserError, match=said) as error:
        fdgjax.experiment(method, rounds=1, **given, **keys).train()
    assert "\n" not in str(error.value)


class LastLayer(nn.Module):
    """The last layer of the digits network, by its name, so that it begins with the same numbers."""

    classes: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[batch, m]` -> logits."""
        self.sow("intermediates", "features", x)
        return Dense(self.classes, init_name="torch", name="linear_2")(x)


@pytest.mark.slow
def test_features_given_as_arrays_train_as_those_that_are_kept_of_images(cache: Path) -> None:
    keys: dict[str, Any] = {"rounds": 2, "local_epochs": 1, "devices": 1, "eval_every": 1}
    frozen = {"data.cache_dir": cache, "model.width": 0.25, "model.frozen": -1}
    of_images = fdgjax.experiment("fedavg:rotated_digits", **keys | frozen)
    built, data = of_images.built, of_images.built.data
    kept = np.asarray(built.federation.inputs)
    assert kept.shape == (len(data.labels), 16)
    arrays = {
        name: (kept[data.domains == number], data.labels[data.domains == number])
        for number, name in enumerate(data.domain_names)
    }
    classes = list(data.class_names)
    given = partial(fdgjax.experiment, "fedavg", data=arrays, classes=classes, target="r45", model=LastLayer)
    first, second = of_images.train(), given(**keys).train()
    for one, other in zip(first.records, second.records, strict=True):
        assert other["train_loss"] == pytest.approx(one["train_loss"], rel=1e-5)
        assert other["id_accuracy"] == pytest.approx(one["id_accuracy"], abs=1e-6)
        assert other["ood_accuracy"] == pytest.approx(one["ood_accuracy"], abs=1e-6)
