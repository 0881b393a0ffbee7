"""What a run says before training of samples and classes that its table does not show."""

from typing import Any

import numpy as np
import pytest

import fdgjax
from fdgjax.data.protocols import PROTOCOLS
from fdgjax.run.description import notes
from tests.runs import perceptron

__all__ = ["perceptron"]
pytestmark = pytest.mark.usefixtures("perceptron")


def arrays(classes: dict[str, int], samples: int = 12) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Domains of few bytes, each with so many of three classes."""
    rng = np.random.default_rng(0)
    return {
        name: (rng.integers(0, 256, (samples, 4, 4, 1), np.uint8), np.arange(samples) % many)
        for name, many in classes.items()
    }


def said(classes: dict[str, int], **keys: Any) -> list[str]:
    experiment = fdgjax.experiment("fedavg", data=arrays(classes), model="perceptron", rounds=1, **keys)
    return notes(experiment.built)


def test_domains_that_no_client_has_are_named() -> None:
    every = {"a": 3, "b": 3, "c": 3, "d": 3}
    (line,) = said(every, target="a", data__clients=2)
    assert line.startswith("no client has 12 of d: fewer clients than domains")
    assert said(every, target="a") == []
    assert said(every, target="a", data__clients=2, data__homogeneity=0.0) == []
    assert said(every, target="a", data__excluded="d") == []
    assert said(every, data__protocol="unseen_client") == [], "the first domain is unseen unless another is named"


def test_samples_of_the_server_and_the_unseen_domain_that_are_not_used_are_nobodys() -> None:
    """Given splits leave some of both out: those for validation, of the unseen domain also those for training."""
    words = ["train", "train", "val", "test"] * 3
    every = arrays(dict.fromkeys("abcd", 3))
    data = {name: {"inputs": inputs, "labels": labels, "splits": words} for name, (inputs, labels) in every.items()}
    for protocol in PROTOCOLS:
        made = fdgjax.experiment("fedavg", data=data, model="perceptron", rounds=1, data__protocol=protocol).built
        assert notes(made) == []
    data["c"]["splits"] = words[:3] * 4
    made = fdgjax.experiment("fedavg", data=data, model="perceptron", rounds=1).built
    (line,) = notes(made)
    assert line == "no samples for tests: client 1, c, without an accuracy of its own as others have"


def test_classes_that_only_the_unseen_domain_has_are_named() -> None:
    (line,) = said({"a": 3, "b": 2, "c": 2}, target="a")
    assert line == "nobody trains on classes of the test samples: 4 of 2, all of which will be wrong"
    assert said({"a": 2, "b": 3, "c": 2}, target="a") == []
